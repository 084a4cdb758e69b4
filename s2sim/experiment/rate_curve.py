"""Speed-up over dense against the rate that limits a cluster: break-even as a curve."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf, isfinite, sqrt

from s2sim.collectives.timing.routes import RouteTable
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError
from s2sim.experiment.execute import ExecutedRecording, busiest_link
from s2sim.experiment.prediction import record
from s2sim.experiment.record import RecordedReducer, baseline_of
from s2sim.experiment.row_parts import Crossing
from s2sim.experiment.scenario.reducers import ReducerScenario, resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.gradients.law import ExtrapolatedRanks
from s2sim.topology.cluster import Cluster
from s2sim.topology.shape import LinkSpec, follows, with_rate
from s2sim.units import format_bytes


def limiting_rate(cluster: Cluster) -> str | None:
    """Return the topology field of the rate that limits a cluster: of the network, or inside the only node.

    None if there is one worker, or if all nodes that workers use have rates of their own.
    """
    if cluster.workers == 1:
        return None
    inside = "nvlink.rate" if cluster.shape.nvlink is not None else "pcie.rate"
    field = "nic.rate" if int(cluster.node_of_rank.max()) > 0 else inside
    return field if _following(cluster, field) else None


def _following(cluster: Cluster, field: str) -> list[LinkSpec]:
    """Return the links of the kinds of nodes in use that follow a rate."""
    used = set(cluster.layout.node_set.spec[cluster.node_of_rank].tolist())
    kinds = [kind for kind in follows(cluster.shape, field) if kind in used]
    return [getattr(cluster.shape.nodes[kind], field.partition(".")[0]) for kind in kinds]


def rate_of(cluster: Cluster, field: str) -> float:
    """Return the value of a field of `limiting_rate`, in bytes per second."""
    return _following(cluster, field)[0].rate_Bps


# Times that differ by less are the same; the precision of the rate from which on they are.
_FLAT, _CEILING_PRECISION = 1.001, 1.02
# Times that differ by less are hardly any gain over rates that differ by more than the other factor.
_HARDLY_FASTER, _WIDE = 1.02, 1.5
# A link that is busy for less of a communication phase does not limit it.
_BUSY = 0.5
_LINKS = {"pcie": "PCIe", "nvlink": "NVLink", "nic": "a network interface", "gpu": "a link between GPUs"}
_LINKS |= {"socket": "host memory", **dict.fromkeys(("node", "dim"), "a link between nodes")}


class RateReplays:
    """Compared times of recorded reducers at other rates, the topology's ``varied`` field; ``ways``: known routes."""

    def __init__(
        self,
        scenario: ReducerScenario,
        recorded: Sequence[RecordedReducer],
        varied: str,
        ways: RouteTable | None = None,
    ) -> None:
        self._recorded = {item.option_string: item for item in recorded}
        self._dense = baseline_of(recorded).option_string
        self._times: dict[tuple[float, str], int] = {}
        self.known: dict[tuple[float, str], ExecutedRecording] = {}  # What ran, by rate and reducer
        self._choices: dict[tuple[float, str], tuple[tuple[str, str] | None, ...]] = {}
        self._workers = workers = recorded[0].recording.workers
        routes = ways or scenario.route_table(workers)

        @cache
        def at(rate_Bps: float) -> ReducerScenario:
            moved, training = replace(scenario, shape=with_rate(scenario.shape, varied, rate_Bps)), scenario.training
            if training is None or scenario.groups is None:
                return moved
            # What ranks that share the model send each other is in what they compute.
            shared = training.with_batch(training.profile.batch, moved, scenario.machines, workers)
            return replace(moved, training=shared)

        @cache
        def timer(rate_Bps: float, algorithm: str | None) -> Timer:
            return at(rate_Bps).running(algorithm).timer(workers, routes)

        @cache
        def plain_routes(ranks: int) -> RouteTable:
            return scenario.plain().route_table(ranks)

        @cache
        def plain_timer(rate_Bps: float, ranks: int) -> Timer:
            """Return the timer of some ranks on the plain cluster at a rate, by which extrapolation is checked."""
            return at(rate_Bps).plain().timer(ranks, plain_routes(ranks))

        self._at, self._timer, self.plain_timer = at, timer, plain_timer

    def dense_at(self, rate_Bps: float) -> int:
        """Return dense's time in picoseconds."""
        return self.time_at(rate_Bps, self._dense)

    def time_at(self, rate_Bps: float, reducer: str) -> int:
        """Return a reducer's time in picoseconds."""
        if (rate_Bps, reducer) not in self._times:
            executed = self._executed(rate_Bps, reducer)
            self._times[rate_Bps, reducer] = executed.compared_ps
            launches = (executed.iterations or executed.replay).launches
            self._choices[rate_Bps, reducer] = tuple(dict.fromkeys(launch.timed.choice for launch in launches))
        return self._times[rate_Bps, reducer]

    def choices_at(self, reducer: str, load: float) -> tuple[tuple[str, str] | None, ...]:
        """Return what a library's estimates choose for dense and for a reducer at a known rate, 1 / ``load``."""
        return self._choices[1 / load, self._dense] + self._choices[1 / load, reducer]

    def phase_at(self, rate_Bps: float, reducer: str) -> int:
        """Return the time of a reducer's communication phase alone in picoseconds."""
        return self._executed(rate_Bps, reducer).replay.total_ps

    def highest_possible(self, own_Bps: float, highest_Bps: float) -> float:
        """Return the highest rate up to ``highest_Bps``, to 2 %, at which the network carries what its faults send."""
        low, high = min(own_Bps, highest_Bps), highest_Bps
        while high > low * _CEILING_PRECISION:
            try:
                self._at(high).cluster(self._workers)
            except OptionError:
                highest_Bps = high
            else:
                low = high
            high = sqrt(low * highest_Bps)
        return low

    def ceiling(self, lowest_Bps: float, highest_Bps: float) -> tuple[float, str] | None:
        """Return the rate, to 2 %, above which dense is no faster, and what limits; None if beyond, or by latency.

        Where hardly anything is gained over a wide range of rates, such as by another protocol, that begins below it.
        None also where dense is slower at the highest rate than at a lower one, with another choice of a library.
        """
        most_ps = self.phase_at(highest_Bps, self._dense)
        if any(_FLAT * self.phase_at(rate, name) < most_ps for rate, name in [*self._times] if name == self._dense):
            return None
        high = self._flat_from(lowest_Bps, highest_Bps, _FLAT * most_ps)
        if self.phase_at(high / _WIDE, self._dense) <= _HARDLY_FASTER * most_ps:
            high = self._flat_from(lowest_Bps, high / _WIDE, _HARDLY_FASTER * most_ps)
        if high == highest_Bps or high <= lowest_Bps * _CEILING_PRECISION:
            return None
        fastest = self._executed(highest_Bps, self._dense)
        busiest = busiest_link(fastest.replay, fastest.timer.cluster)
        if busiest is None or busiest.share < _BUSY:
            return None
        return high, f"{_LINKS.get(busiest.kind, 'a link between switches')} at {format_bytes(busiest.rate_Bps)}/s"

    def _flat_from(self, low_Bps: float, high_Bps: float, most_ps: float) -> float:
        """Return the least rate between two, to 2 %, at which dense takes at most so many picoseconds."""
        while high_Bps > low_Bps * _CEILING_PRECISION:
            middle = sqrt(low_Bps * high_Bps)
            if self.phase_at(middle, self._dense) <= most_ps:
                high_Bps = middle
            else:
                low_Bps = middle
        return high_Bps

    def _executed(self, rate_Bps: float, reducer: str) -> ExecutedRecording:
        if (rate_Bps, reducer) in self.known:
            return self.known[rate_Bps, reducer]
        item = self._recorded[reducer]
        return ExecutedRecording.of(item, self._at(rate_Bps), self._timer(rate_Bps, item.reducer.runs_by))


@dataclass(frozen=True, slots=True)
class RateCurves:
    """Speed-ups over dense at several rates."""

    field: str  # The topology field that was varied
    workers: int  # Ranks
    own_Bps: float  # The value that the cluster has, in bytes per second
    rates_Bps: tuple[float, ...]  # Its values, in bytes per second
    baseline: str  # Option string of the ``dense`` that all are compared with
    # By option string, without that: one at each rate; of iterations where compute was given, else of communication
    # phases
    speedups: dict[str, tuple[float, ...]]
    compute: bool  # Whether compute was given
    extrapolated: bool  # Whether ranks or sizes go beyond what was recorded
    crossings: tuple[Crossing, ...] = ()  # Where a reducer and dense take the same time, as far as they were looked for


def rate_curves(spec: RunSpec, rates_Bps: Sequence[float]) -> RateCurves:
    """Return the speed-up of each reducer over dense at each rate in bytes per second, from one recording.

    The largest number of workers of the spec counts. The rate is that of the network, or of the links inside the
    only node, and replaces that of the spec. `S2SimError` if it cannot be run, as with one worker or a rate that is
    not above 0.
    """
    if not rates_Bps or not all(isfinite(rate) and rate > 0 for rate in rates_Bps):
        raise OptionError(f"rates_Bps = {list(rates_Bps)} must be numbers of bytes per second above 0, at least one")
    scenario = resolve_run(spec)
    recorded, _ = record(scenario, scenario.ranks_of(max(spec.workers)))
    return rate_curves_of(scenario, recorded, rates_Bps)


def rate_curves_of(
    scenario: ReducerScenario,
    recorded: Sequence[RecordedReducer],
    rates_Bps: Sequence[float],
    on_rate: Callable[[], None] = lambda: None,
) -> RateCurves:
    """Return the speed-up of each recorded reducer over dense at each rate; see `rate_curves`."""
    workers = recorded[0].recording.workers
    cluster = scenario.healthy(workers)
    if (field := limiting_rate(cluster)) is None:
        one = "a curve over rates was asked for 1 worker, whom no rate limits: take 2 workers or more"
        own = "no rate can be varied: all nodes that these workers use have their own, which stays"
        raise OptionError(one if workers == 1 else own)
    replays = RateReplays(scenario, recorded, field)

    def speedup(rate_Bps: float, reducer: str) -> float:
        dense_ps, own_ps = replays.dense_at(rate_Bps), replays.time_at(rate_Bps, reducer)
        return dense_ps / own_ps if own_ps else inf

    baseline = baseline_of(recorded)
    others = [item.option_string for item in recorded if item is not baseline]
    at_rates = []
    for rate_Bps in rates_Bps:
        at_rates.append([speedup(rate_Bps, reducer) for reducer in others])
        on_rate()
    return RateCurves(
        field=field,
        workers=workers,
        own_Bps=rate_of(cluster, field),
        rates_Bps=tuple(rates_Bps),
        baseline=baseline.option_string,
        speedups=dict(zip(others, zip(*at_rates, strict=True), strict=True)),
        compute=scenario.compute_ps is not None or scenario.training is not None,
        extrapolated=isinstance(scenario.trace, ExtrapolatedRanks) or scenario.target is not None,
    )
