"""The recorded scripts of one run, replayed on the same cluster at other rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.collectives.libraries.tables import choose_library
from s2sim.collectives.timing.timer import Timer
from s2sim.collectives.timing.ways import Ways
from s2sim.replay.faults.lasting import damaged_cluster
from s2sim.replay.faults.registry import make_faults
from s2sim.replay.plan import make_plan
from s2sim.replay.run import replay
from s2sim.topology.cluster import build_cluster
from s2sim.topology.shape import with_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.measuring.record import Recorded
    from s2sim.study.spec import RunSpec
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.files.hardware import Gpu


def limiting_rate(cluster: Cluster) -> str | None:
    """Return the rate whose break-even people ask for: of the network, or inside the only node."""
    if cluster.workers == 1:
        return None
    if int(cluster.node_of_rank.max()) > 0:
        return "nic.rate"
    return "nvlink.rate" if cluster.shape.nvlink is not None else "pcie.rate"


class RateReplays:
    """Total times of reducers on the same cluster at another rate, each computed once.

    Parameters
    ----------
    spec : RunSpec
        What was asked for.
    cluster : Cluster
        Where it was replayed.
    recorded : sequence of Recorded
        ``dense`` among them.
    gpu : Gpu
        What encodes and decodes.
    varied : str
        The topology field that the rate is given to.
    """

    def __init__(self, spec: RunSpec, cluster: Cluster, recorded: Sequence[Recorded], gpu: Gpu, varied: str) -> None:
        self._spec = spec
        self._cluster = cluster
        library = choose_library(spec.library)
        self._recordings = {
            item.option_string: (item.recording, make_plan(item.recording, library)) for item in recorded
        }
        self._dense = next(item.option_string for item in recorded if item.reducer.traits.name == "dense")
        self._gpu = gpu
        self._varied = varied
        self._faults = make_faults(spec.faults)
        self._timers: dict[float, Timer] = {}
        self._ways = Ways(cluster)
        self._totals: dict[tuple[float, str], int] = {}

    def dense_at(self, rate_Bps: float) -> int:
        """Return dense's total time in picoseconds."""
        return self.time_at(rate_Bps, self._dense)

    def time_at(self, rate_Bps: float, reducer: str) -> int:
        """Return a reducer's total time in picoseconds."""
        if rate_Bps not in self._timers:
            shape = with_rate(self._cluster.shape, self._varied, rate_Bps)
            cluster = build_cluster(shape, self._cluster.workers, placement=self._spec.placement, seed=self._spec.seed)
            self._timers[rate_Bps] = Timer(damaged_cluster(cluster, self._faults), self._spec.collective, self._ways)
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
