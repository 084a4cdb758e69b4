"""Break-even over a rate of the topology: the recorded scripts, replayed on the same cluster at other rates."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.cluster.faults import make_faults
from s2sim.cluster.lasting import damaged_cluster
from s2sim.cluster.plan import make_plan
from s2sim.cluster.replay import replay
from s2sim.collectives.libraries import choose_library
from s2sim.collectives.timing import Timer
from s2sim.study.break_even import HIGHEST_BPS, find_crossings, scanned_rates
from s2sim.topology.cluster import build_cluster
from s2sim.topology.shape import with_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.progress import Progress
    from s2sim.study.record import Recorded
    from s2sim.study.result import Crossing
    from s2sim.study.spec import RunSpec
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.hardware import Gpu


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found.

    Attributes
    ----------
    field : str or None
        The topology field that was varied; None where nothing crosses a link.
    crossings : tuple of Crossing
        Where a reducer and dense take the same time.
    pays_at_ends : dict of str to (bool, bool)
        For each reducer, whether it is faster than dense at the lowest and at the highest rate.
    highest_Bps : float
        Highest rate that was tried, in bytes per second; beyond it nothing changes, or no network goes.
    """

    field: str | None
    crossings: tuple[Crossing, ...] = ()
    pays_at_ends: dict[str, tuple[bool, bool]] = dataclasses.field(default_factory=dict)
    highest_Bps: float = HIGHEST_BPS


def scan_rates(spec: RunSpec, cluster: Cluster, recorded: Sequence[Recorded], gpu: Gpu, progress: Progress) -> Scan:
    """Return where each recorded reducer breaks even with dense over the rate that limits this cluster."""
    varied = _limiting_rate(cluster)
    others = [item.option_string for item in recorded if item.reducer.name != "dense"]
    if varied is None or not others:
        return Scan(None)
    # Interfaces faster than the cables they are plugged into change nothing.
    given = any(item.field == "fabric.link.rate" for item in cluster.shape.quantities)
    capped = varied == "nic.rate" and given and cluster.shape.host_cable
    highest_Bps = min(HIGHEST_BPS, cluster.shape.link.rate_Bps) if capped else HIGHEST_BPS
    rates = scanned_rates(highest_Bps)
    progress.start(len(rates), f"looking for break-even over {varied}")
    replays = _RateReplays(spec, cluster, recorded, gpu, varied)
    crossings, ends = find_crossings(others, replays.times_at, varied, rates, on_rate=progress.advance)
    return Scan(varied, crossings, ends, highest_Bps)


def _limiting_rate(cluster: Cluster) -> str | None:
    """Return the rate whose break-even people ask for: of the network, or inside the only node."""
    if cluster.workers == 1:
        return None
    if int(cluster.node_of_rank.max()) > 0:
        return "nic.rate"
    return "nvlink.rate" if cluster.shape.nvlink is not None else "pcie.rate"


class _RateReplays:
    """Total times of reducers on the same cluster at another rate, each computed once."""

    def __init__(self, spec: RunSpec, cluster: Cluster, recorded: Sequence[Recorded], gpu: Gpu, varied: str) -> None:
        self._spec = spec
        self._cluster = cluster
        library = choose_library(spec.library)
        self._recordings = {
            item.option_string: (item.recording, make_plan(item.recording, library)) for item in recorded
        }
        self._dense = next(item.option_string for item in recorded if item.reducer.name == "dense")
        self._gpu = gpu
        self._varied = varied
        self._faults = make_faults(spec.faults)
        self._timers: dict[float, Timer] = {}
        self._totals: dict[tuple[float, str], int] = {}

    def times_at(self, rate_Bps: float, reducer: str) -> tuple[int, int]:
        """Return (dense, reducer) total times in picoseconds."""
        return self._total(rate_Bps, self._dense), self._total(rate_Bps, reducer)

    def _total(self, rate_Bps: float, reducer: str) -> int:
        if rate_Bps not in self._timers:
            shape = with_rate(self._cluster.shape, self._varied, rate_Bps)
            cluster = build_cluster(shape, self._cluster.workers, placement=self._spec.placement, seed=self._spec.seed)
            self._timers[rate_Bps] = Timer(damaged_cluster(cluster, self._faults), self._spec.collective)
        key = (rate_Bps, reducer)
        if key not in self._totals:
            recording, plan = self._recordings[reducer]
            found = replay(
                recording,
                self._timers[rate_Bps],
                self._gpu,
                plan,
                compute_ps=self._spec.compute_ps,
                faults=self._faults,
            )
            self._totals[key] = found.total_ps
        return self._totals[key]
