"""Predicts the points of a curve: its machine as a cluster, its collective as a demand, by the fluid network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.libraries.constants import load_constants, read_version
from s2sim.collectives.libraries.profile import PLAIN
from s2sim.collectives.libraries.software import Software
from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.collectives.timing.ways import Ways
from s2sim.errors import S2SimError, TopologyError, nearest
from s2sim.study.collective.sizes import make_demand
from s2sim.study.validate.machine import NotPredictedError, shape_of_machine
from s2sim.topology.cluster import build_cluster
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.libraries.profile import Profile
    from s2sim.collectives.schedules.demand import Kind
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
}
_ALGORITHMS = {
    "": AUTO,
    "ring": "ring",
    "tree": "double-binary-tree",
    "nvls": "in-network",
    "collnet": "in-network",
    "nvlstree": "nvls-tree",
}


_NO_GPU = "none"
_LIBRARY = "nccl"


def _library_of(machine: Machine) -> Profile:
    """Return what runs collectives on a machine; RCCL is a descendant of NCCL."""
    if machine.gpu_model.startswith(_NO_GPU):
        return PLAIN
    known = [protocol.name for protocol in load_constants(_LIBRARY).protocols]
    if machine.protocol and machine.protocol not in known:
        raise NotPredictedError(f"protocol {machine.protocol!r}{nearest(machine.protocol, known)}")
    return Software(
        _LIBRARY,
        one_process=machine.launch == "node",
        only=machine.protocol,
        version=read_version(machine.nccl_version),
        min_channels=machine.min_channels or 1,
    )


class Predictor:
    """Predicts curves one after the other; machines that are alike are laid out once.

    Collectives run as ``profile`` says; None takes NCCL's between GPUs, launched as the machine's row says, and the
    wire alone between hosts.
    """

    def __init__(self, catalogue: LinkCatalogue, profile: Profile | None = None) -> None:
        self._catalogue, self._profile = catalogue, profile
        self._built: dict[object, tuple[Cluster, Ways]] = {}

    def times_s(self, machine: Machine, sizes_bytes: Sequence[int]) -> list[float]:
        """Return the predicted time of each size in seconds; `NotPredictedError` says why there is none."""
        kind = _KINDS.get(machine.collective)
        if kind is None:
            raise NotPredictedError(f"collective {machine.collective!r}{nearest(machine.collective, _KINDS)}")
        algorithm = _ALGORITHMS.get(machine.algorithm)
        if algorithm is None:
            raise NotPredictedError(
                f"algorithm {machine.algorithm!r}{nearest(machine.algorithm, filter(None, _ALGORITHMS))}"
            )
        cluster, ways = self._cluster(machine)
        try:
            if algorithm != AUTO:
                make_algorithm(algorithm, kind)
            profile = self._profile or _library_of(machine)
            timer = Timer(cluster, algorithm, ways, profile)
            demands = [make_demand(kind, size, machine.ranks) for size in sizes_bytes]
            return [timer.time(demand).duration_ps / PS_PER_S for demand in demands]
        except S2SimError as error:
            raise NotPredictedError(str(error)) from None

    def _cluster(self, machine: Machine) -> tuple[Cluster, Ways]:
        try:
            shape = shape_of_machine(machine, self._catalogue)
        except TopologyError as error:
            raise NotPredictedError(str(error)) from None
        # Curves of one machine differ in its name alone.
        key = str([(item.field, item.value) for item in shape.quantities if item.field != "name"]), machine.ranks
        if key not in self._built:
            try:
                cluster = build_cluster(shape, machine.ranks)
            except TopologyError as error:
                raise NotPredictedError(str(error)) from None
            self._built[key] = cluster, Ways(cluster)
        return self._built[key]
