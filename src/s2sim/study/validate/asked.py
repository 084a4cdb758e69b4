"""What a row asks of the network: its collective, algorithm and sizes as a simulation calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.blocks import exchange
from s2sim.collectives.timing.timer import AUTO
from s2sim.errors import S2SimError, nearest
from s2sim.study.collective.sizes import make_demand

if TYPE_CHECKING:
    from s2sim.collectives.kinds import Kind
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.study.validate.curve import Machine

# As indexes call them. A ping-pong is a message each way, one after the other; half of it is one of two at once.
_KINDS: dict[str, Kind] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send_recv",
    "send_recv": "send_recv",
    "p2p_latency": "send_recv",
    "latency": "send_recv",
    "p2p_bandwidth": "send_recv",
    "bandwidth": "send_recv",
    "gather": "all_to_all",
    "scatter": "all_to_all",
}
# Whoever measures a rate lets so many messages follow each other (osu_bw); one of all their bytes stands for them.
_IN_A_ROW = {"p2p_bandwidth": 64, "bandwidth": 64}
_ALGORITHMS = {
    "": AUTO,
    "ring": "ring",
    "tree": "double-binary-tree",
    "nvls": "in-network",
    "collnet": "in-network",
    "nvlstree": "nvls-tree",
    "pat": "pat",
}
# What a forced algorithm leaves as it is: a chain along the ring, messages between two ranks, and parts that switches
# spread no faster than a ring.
_FREE = {
    "ring": ("broadcast", "reduce", "all_to_all", "send_recv"),
    "double-binary-tree": ("all_to_all", "send_recv"),
    "in-network": ("all_gather", "reduce_scatter", "all_to_all", "send_recv"),
}
# Of gathers and scatters, which are told pair by pair.
_MOST_ROOTED = 2**10


def kind_of(machine: Machine) -> Kind:
    """Return the kind of a row's collective; `S2SimError` for one that is not known."""
    kind = _KINDS.get(machine.collective)
    if kind is None:
        raise S2SimError(f"collective {machine.collective!r}{nearest(machine.collective, _KINDS)}")
    return kind


def algorithm_of(machine: Machine, kind: Kind) -> str:
    """Return the algorithm that a row says ran, `AUTO` where it leaves that open for a kind."""
    algorithm = _ALGORITHMS.get(machine.algorithm)
    if algorithm is None:
        raise S2SimError(f"algorithm {machine.algorithm!r}{nearest(machine.algorithm, filter(None, _ALGORITHMS))}")
    return AUTO if kind in _FREE.get(algorithm, ()) else algorithm


def messages_in_a_row(machine: Machine) -> int:
    """Return how many messages follow each other in what a row measured the mean of."""
    return _IN_A_ROW.get(machine.collective, 1)


def demand_of(machine: Machine, kind: Kind, size_bytes: int) -> Demand:
    """Return what a row asks of the network: what one rank gathers or scatters are messages of equal parts."""
    size_bytes *= messages_in_a_row(machine)
    if machine.collective not in ("gather", "scatter"):
        return make_demand(kind, size_bytes, machine.ranks)
    if machine.ranks > _MOST_ROOTED:
        raise S2SimError(f"a {machine.collective} of {machine.ranks} ranks is more than {_MOST_ROOTED} take")
    sizes = np.zeros((machine.ranks, machine.ranks), np.int64)
    sizes[1:, 0] = size_bytes // machine.ranks
    return exchange(sizes if machine.collective == "gather" else sizes.T, 1)
