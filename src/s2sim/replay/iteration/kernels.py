"""What the kernels of a communication library hold of a GPU while a collective is in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.collectives.schedules.demand import bus_factor
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.collectives.libraries.profile import Profile
    from s2sim.collectives.timing.timer import Timed
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.files.hardware import Gpu

# A byte that a ring passes on is read, added to another that is read, and written.
_MEMORY_PASSES = 3


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Shares of a GPU, from 0 to 1: of its multiprocessors, and of its memory's bandwidth."""

    multiprocessors: float
    memory: float


def held_by(timed: Timed, cluster: Cluster, profile: Profile, gpu: Gpu) -> Held | None:
    """Return what a collective's kernels hold on each GPU; None where nothing is known of them.

    A channel is one thread block, which takes a multiprocessor for itself; a byte on the bus, as nccl-tests counts it,
    is read twice and written once.
    """
    demand = timed.schedule.demand
    blocks = profile.blocks(demand, cluster)
    if not blocks or not gpu.multiprocessors or not timed.duration_ps:
        return None
    bus = bus_factor(demand.kind, demand.ranks)
    memory_Bps = _MEMORY_PASSES * bus * demand.buffer_bytes / (timed.duration_ps / PS_PER_S)
    return Held(blocks / gpu.multiprocessors, memory_Bps / gpu.memory_bandwidth_Bps)
