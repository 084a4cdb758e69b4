"""Predicts the points of a curve: its machine as a cluster, its collective as a demand, by the fluid network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.libraries.constants_file import load_constants
from s2sim.collectives.libraries.host_software import HostSoftware
from s2sim.collectives.libraries.software import Software
from s2sim.collectives.libraries.version import read_version
from s2sim.collectives.schedules.blocks import exchange
from s2sim.collectives.terms.of_schedule import terms_of
from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.collectives.timing.ways import Ways
from s2sim.errors import S2SimError, nearest
from s2sim.study.collective.sizes import make_demand
from s2sim.study.fidelity.constants import owned
from s2sim.study.fidelity.run_class import run_class
from s2sim.study.fidelity.told import Contender
from s2sim.study.validate.machine import shape_of_machine
from s2sim.study.validate.not_predicted import NotPredictedError
from s2sim.topology.cluster import build_cluster
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.libraries.profile import Profile
    from s2sim.collectives.schedules.demand import Demand, Kind
    from s2sim.collectives.timing.timer import Timed
    from s2sim.study.fidelity.run_class import RunClass
    from s2sim.study.validate.curve import Machine
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.files.links import LinkCatalogue

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
_NO_GPU = "none"
_LIBRARY, _OF_AMD, _ON_HOSTS = "nccl", "rccl", "mpi"
# How generations of AMD's GPUs are called.
_AMD = "gfx"
# A schedule that takes so many times as long as the fastest is not the fastest with other constants either.
_MAY_WIN = 1.3


def _library_of(machine: Machine, catalogue: LinkCatalogue) -> Profile:
    """Return what runs collectives on a machine: NCCL, RCCL between AMD's GPUs, MPI between hosts."""
    gpu = catalogue.find_gpu(machine.gpu_model)
    if machine.gpu_model.startswith(_NO_GPU):
        return HostSoftware(_ON_HOSTS)
    library = _OF_AMD if gpu is not None and (gpu.nvlink or "").startswith(_AMD) else _LIBRARY
    known = [protocol.name for protocol in load_constants(library).protocols]
    if machine.protocol and machine.protocol not in known:
        raise NotPredictedError(f"protocol {machine.protocol!r}{nearest(machine.protocol, known)}")
    return Software(
        library,
        one_process=machine.launch == "node",
        only=machine.protocol,
        version=read_version(machine.nccl_version),
        min_channels=machine.min_channels or 1,
    )


def _told(timed: Timed, timer: Timer, in_a_row: int) -> Contender:
    """Return a schedule's time, or that of one of several in a row, by the constants that it is made of."""
    library = getattr(timer.profile, "library", "")
    return Contender(
        tuple(
            (term.ps / in_a_row, tuple((owned(library, name), power) for name, power in term.constants))
            for term in terms_of(timed, timer.cluster)
        )
    )


def _demand(machine: Machine, kind: Kind, size_bytes: int) -> Demand:
    """Return what a row asks of the network: what one rank gathers or scatters are messages of equal parts."""
    if machine.collective not in ("gather", "scatter"):
        return make_demand(kind, size_bytes, machine.ranks)
    if machine.ranks > _MOST_ROOTED:
        raise NotPredictedError(f"a {machine.collective} of {machine.ranks} ranks is more than {_MOST_ROOTED} take")
    sizes = np.zeros((machine.ranks, machine.ranks), np.int64)
    sizes[1:, 0] = size_bytes // machine.ranks
    return exchange(sizes if machine.collective == "gather" else sizes.T, 1)


class Predictor:
    """Predicts curves one after the other; machines that are alike are laid out once.

    Collectives run as ``profile`` says; None takes that of the library that the machine has, as its row
    says it was started.
    """

    def __init__(self, catalogue: LinkCatalogue, profile: Profile | None = None) -> None:
        self._catalogue, self._profile = catalogue, profile
        self._built: dict[object, tuple[Cluster, Ways]] = {}

    def times_s(self, machine: Machine, sizes_bytes: Sequence[int]) -> list[float]:
        """Return the predicted time of each size in seconds; `NotPredictedError` says why there is none."""
        in_a_row = _IN_A_ROW.get(machine.collective, 1)
        try:
            timer, demands = self._asked(machine, sizes_bytes)
            return [timer.time(demand).duration_ps / in_a_row / PS_PER_S for demand in demands]
        except S2SimError as error:
            raise NotPredictedError(str(error)) from None

    def contenders(self, machine: Machine, sizes_bytes: Sequence[int]) -> list[tuple[Contender, ...]]:
        """Return for each size what may be fastest with other constants, told by these; the first is fastest now."""
        in_a_row = _IN_A_ROW.get(machine.collective, 1)
        try:
            timer, demands = self._asked(machine, sizes_bytes)
            found = [timer.contenders(demand, _MAY_WIN) for demand in demands]
            return [tuple(_told(timed, timer, in_a_row) for timed in each) for each in found]
        except S2SimError as error:
            raise NotPredictedError(str(error)) from None

    def run_class(self, machine: Machine) -> RunClass | None:
        """Return what a machine's collective has in common with others."""
        profile = self._profile or _library_of(machine, self._catalogue)
        return run_class(self._cluster(machine)[0], profile, _KINDS[machine.collective])

    def _asked(self, machine: Machine, sizes_bytes: Sequence[int]) -> tuple[Timer, list[Demand]]:
        """Return what times a machine's collective, and what each size demands as its benchmark counts both."""
        kind = _KINDS.get(machine.collective)
        if kind is None:
            raise NotPredictedError(f"collective {machine.collective!r}{nearest(machine.collective, _KINDS)}")
        algorithm = _ALGORITHMS.get(machine.algorithm)
        if algorithm is None:
            raise NotPredictedError(
                f"algorithm {machine.algorithm!r}{nearest(machine.algorithm, filter(None, _ALGORITHMS))}"
            )
        if kind in _FREE.get(algorithm, ()):
            algorithm = AUTO
        cluster, ways = self._cluster(machine)
        if algorithm != AUTO:
            make_algorithm(algorithm, kind)
        timer = Timer(cluster, algorithm, ways, self._profile or _library_of(machine, self._catalogue))
        in_a_row = _IN_A_ROW.get(machine.collective, 1)
        return timer, [_demand(machine, kind, size * in_a_row) for size in sizes_bytes]

    def _cluster(self, machine: Machine) -> tuple[Cluster, Ways]:
        shape = shape_of_machine(machine, self._catalogue)
        # Curves of one machine differ in its name alone.
        key = str([(item.field, item.value) for item in shape.quantities if item.field != "name"]), machine.ranks
        if key not in self._built:
            cluster = build_cluster(shape, machine.ranks)
            self._built[key] = cluster, Ways(cluster)
        return self._built[key]
