"""The plan of a recording: its collectives as lowered by a library, and the durations of work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile
from s2sim.libraries.lowering import IDEAL, CollectiveRequest, LocalWork, LoweredCall, lower
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.arrays import Floats
    from s2sim.collectives.timing.collective_run import CompletedRound
    from s2sim.libraries.library import Library
    from s2sim.reducers.script import Call, Recording, Work
    from s2sim.topology.hardware import Gpu
    from s2sim.topology.shape import LinkSpec


def measured_passes_s(work: Work, gpu: Gpu) -> float:
    """Return what the measured passes of published code over dense tables take, at full bandwidth, in seconds."""
    passes_bytes = work.dense_encode_bytes * gpu.dense_encode_passes + work.dense_decode_bytes * gpu.dense_decode_passes
    return passes_bytes / gpu.memory_bandwidth_Bps


def work_ps(work: Work, gpu: Gpu, pcie: LinkSpec | None = None) -> int:
    """Return the duration of codec work in integer picoseconds.

    Kernels take the longer of memory traffic at the reached bandwidth and operations at the reached peak (roofline:
    Williams et al., CACM 2009). PCIe copies (free without a rate) and host work are sequential.
    """
    computed = max(work.bytes_moved / gpu.stream_Bps, gpu.flops_s(work.flops))
    if not work.bytes_moved:
        computed += measured_passes_s(work, gpu)
    copied = 0.0 if pcie is None else work.copied_bytes / pcie.rate_Bps
    return (
        round((computed + copied) * PS_PER_S)
        + work.fixed_ps
        + work.launches * gpu.kernel_launch_ps
        + gpu.host_ps(work.host_steps)
    )


def local_work_ps(local: LocalWork, gpu: Gpu, pcie: LinkSpec | None) -> int:
    """Return the picoseconds of a library's work between launches; copies are free without a PCIe rate."""
    copied_s = 0.0 if pcie is None else (local.to_host_bytes + local.to_gpu_bytes) / pcie.rate_Bps
    return (
        round((local.gpu_bytes / gpu.stream_Bps + copied_s) * PS_PER_S)
        + local.kernels * gpu.kernel_launch_ps
        + local.host_syncs * gpu.host_sync_ps
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """The execution of the collectives of one recording, one lowered call per call."""

    lowered: tuple[LoweredCall, ...]
    groups: bool  # Whether those of one kind and bucket that are posted together are one launch
    in_flight: int | None  # Concurrent ones, in the order of posting; None for any number
    profile: LibraryProfile = NO_OVERHEADS
    buckets: tuple[int, ...] = ()  # Of each call; () if there is one

    def launch_key(self, call: int) -> Hashable:
        """Return what is equal for calls that are one launch if they are posted together."""
        return (self.lowered[call].kinds, self.buckets and self.buckets[call]) if self.groups else call

    @property
    def launched(self) -> Hashable:
        """What is equal for plans that launch the same, whatever was asked for and why."""
        return (
            tuple((each.steps, each.after, each.ranks) for each in self.lowered),
            self.groups,
            self.in_flight,
            self.profile,
        )

    @property
    def host_syncs(self) -> int:
        """Number of waits of the busiest rank's host for the GPU due to the library."""
        by_group: Counter[tuple[int, ...]] = Counter()
        for each in self.lowered:
            by_group[each.ranks] += each.after.host_syncs + sum(step.before.host_syncs for step in each.steps)
        by_rank: Counter[int] = Counter()
        for ranks, syncs in by_group.items():
            by_rank.update(dict.fromkeys(ranks, syncs))
        return by_group[()] + max(by_rank.values(), default=0)

    def closed(self, calls: Collection[int], ideal: Plan) -> Plan:
        """Return the plan with some calls executed as in ``ideal``."""
        pairs = zip(self.lowered, ideal.lowered, strict=True)
        return replace(self, lowered=tuple(other if call in calls else own for call, (own, other) in enumerate(pairs)))

    def unordered(self, ideal: Plan) -> Plan:
        """Return the plan with the groups and the concurrency of ``ideal``."""
        return replace(self, groups=ideal.groups, in_flight=ideal.in_flight)


def to_request(call: Call) -> CollectiveRequest:
    """Return the request of a recorded call."""
    demand = Demand(call.kind, call.elements, call.itemsize, call.root, call.blocks)
    return CollectiveRequest(demand, call.op, call.dtype, call.size_from_data)


def make_plan(recording: Recording, library: Library = IDEAL) -> Plan:
    """Return the execution of a recording by ``library``."""
    # Buckets of equal layers share their calls.
    calls = {id(call): call for call in recording.calls}
    lowered = {key: replace(lower(to_request(call), library), ranks=call.ranks) for key, call in calls.items()}
    in_order = tuple(lowered[id(call)] for call in recording.calls)
    return Plan(in_order, library.groups, library.in_flight, library.profile, recording.buckets)


class Watcher(Protocol):
    """Receives all events in simulated time; a watched replay runs message by message."""

    def add_round(self, ran: CompletedRound, what: str) -> None:
        """Record a delivered round; ``what`` names the collective."""

    def add_work(self, rank: int, name: str, category: str, start_ps: int, end_ps: int) -> None:
        """Record work of a rank."""

    def add_loads(self, now_ps: int, loads_Bps: Floats) -> None:
        """Record the load of every link from now on, float64 bytes per second of shape (links,)."""
