"""Reducers recorded once on a model's gradients, and replayed on several clusters."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from s2sim.claims.paper import HeatMap, PaperEffort, Table
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimWarning
from s2sim.experiment.choice import rejected
from s2sim.experiment.prediction import execute, predict, record
from s2sim.experiment.progress import ProgressWatcher
from s2sim.experiment.record import RecordedReducer, baseline_of
from s2sim.experiment.rows import Row
from s2sim.experiment.run import resolve_checked, run
from s2sim.experiment.scenario.reducers import ReducerScenario
from s2sim.experiment.spec import RunSpec
from s2sim.gradients.gradient import Gradient
from s2sim.gradients.models import Model, load_model
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.simulation.bucketing.policy import Bucket
from s2sim.tables import group_by
from s2sim.units import PS_PER_S

MARGINS = (0.01, 0.05, 0.2)
"""Speed-ups over dense, less 1, from which on a reducer wins; 1 % is the least that is noticeable."""

FILTERS = (None, 0.9, 0.5, 0.1, 1e-6)
"""Largest relative L2 errors that count, from all that a verdict trusts to what rounds."""


@dataclass(frozen=True, slots=True)
class ClusterSetting:
    """A cluster by a short name, as a `RunSpec` has it."""

    name: str  # For people
    topology: str  # Name of a shipped topology
    overrides: tuple[str, ...] = ()  # ``field=value`` on its fields
    gpu: str | None = None  # Name in the hardware catalogue; None for the topology's


@dataclass(frozen=True, slots=True)
class SettingGain:
    """One reducer in one setting: a model, a mini-batch, a cluster and a number of workers."""

    model: str  # Name of the profile
    cluster: str
    reducer: str  # Option string
    batch: int  # Samples of one GPU's mini-batch
    workers: int
    dense_s: float  # Iteration with dense
    time_s: float  # Iteration with this reducer
    error: float | None  # Relative L2 error of the first step; None if undefined
    rejected: str | None  # Why this error cannot be trusted, as in verdicts of runs; None if it can

    @property
    def speedup(self) -> float:
        """Iteration time of dense over that of this reducer."""
        return self.dense_s / self.time_s

    @property
    def setting(self) -> tuple[str, int, str, int]:
        """Model, mini-batch, cluster and number of workers."""
        return (self.model, self.batch, self.cluster, self.workers)

    def trusted(self, max_error: float | None = None) -> bool:
        """Return whether the error can be trusted and is at most ``max_error``."""
        return self.rejected is None and (max_error is None or (self.error is not None and self.error <= max_error))


def winning_gains(gains: Iterable[SettingGain], margin: float) -> list[SettingGain]:
    """Return the gains whose speed-up over dense exceeds 1 + ``margin``.

    >>> one = SettingGain("m", "here", "fp16", 1, 8, dense_s=1.04, time_s=1.0, error=0.0, rejected=None)
    >>> len(winning_gains([one], 0.01)), len(winning_gains([one], 0.05))
    (1, 0)
    """
    return [gain for gain in gains if gain.speedup > 1 + margin]


def best_of(gains: Iterable[SettingGain]) -> dict[tuple[str, int, str, int], SettingGain]:
    """Return the fastest reducer of each setting."""
    found: dict[tuple[str, int, str, int], SettingGain] = {}
    for gain in gains:
        found[gain.setting] = max(found.get(gain.setting, gain), gain, key=lambda each: each.speedup)
    return found


def share_text(found: int, of: int) -> str:
    """Return a count and its share.

    >>> share_text(6, 200)
    '6 of 200 (3%)'
    """
    return f"{found} of {of} ({found / of:.0%})" if of else "0 of 0"


def filter_table(gains: Sequence[SettingGain]) -> Table:
    """Return a table of winning set-ups and settings by the largest allowed error."""
    settings = len({gain.setting for gain in gains})
    allowed = {"whatever the error": list(gains)}
    for limit in FILTERS:
        title = "errors that verdicts trust" if limit is None else f"error at most {limit:g}"
        allowed[title] = [gain for gain in gains if gain.trusted(limit)]
    rows = []
    for title, left in allowed.items():
        counts = (share_text(len(winning_gains(left, margin)), len(gains)) for margin in MARGINS)
        winners = {gain.setting for gain in winning_gains(left, MARGINS[0])}
        rows.append((title, *counts, share_text(len(winners), settings)))
    counted = (f"set-ups that win over {margin:.0%}" for margin in MARGINS)
    columns = ("allowed", *counted, f"settings where one wins over {MARGINS[0]:.0%}")
    return Table("What the error that is allowed does to the count", columns, tuple(rows))


def table_by(what: str, key: Callable[[SettingGain], str], gains: Sequence[SettingGain]) -> Table:
    """Return a table of wins and speed-ups of set-ups by a key, in order of first occurrence."""
    rows = []
    for name, own in group_by(gains, key).items():
        wins = (share_text(len(winning_gains(own, margin)), len(own)) for margin in MARGINS)
        speedups = [gain.speedup for gain in own]
        rows.append((name, *wins, f"{median(speedups):.2f}x", f"{max(speedups):.2f}x"))
    columns = (what, *(f"win over {margin:.0%}" for margin in MARGINS), "median", "best")
    return Table(f"Set-ups that win, by {what}", columns, tuple(rows))


def best_map(title: str, gains: Sequence[SettingGain]) -> HeatMap:
    """Return the speed-up of the fastest reducer by model and mini-batch (rows) and cluster (columns)."""
    return _map_by(title, lambda gain: f"{gain.model}, batch {gain.batch}", gains, best_of(gains).values())


def median_map(title: str, gains: Sequence[SettingGain]) -> HeatMap:
    """Return the median speed-up of each reducer over models and mini-batches: a column a cluster."""
    return _map_by(title, lambda gain: gain.reducer, gains, gains)


def _map_by(
    title: str, key: Callable[[SettingGain], str], gains: Iterable[SettingGain], counted: Iterable[SettingGain]
) -> HeatMap:
    """Return the median speed-up of those that are counted, by a key and by cluster."""
    grouped = group_by(counted, lambda gain: (key(gain), gain.cluster))
    rows, columns = tuple(dict.fromkeys(map(key, gains))), tuple(dict.fromkeys(gain.cluster for gain in gains))
    found = {place: median(gain.speedup for gain in own) for place, own in grouped.items()}
    return HeatMap(title, columns, rows, tuple(tuple(found.get((row, where)) for where in columns) for row in rows))


@dataclass(slots=True)
class GridRecorder:
    """Runs reducers on the gradients of models, each once for all clusters on which they leave in the same buckets."""

    reducers: tuple[str, ...]  # Option strings, ``dense`` among them
    workers: int  # Ranks
    discipline: str = "ddp"  # What leaves together, and when
    effort: PaperEffort = field(default_factory=PaperEffort)  # What codecs cost, and what is recorded already

    # By model the last buckets, what each reducer does with them, and why its error cannot be trusted
    _known: dict[str, tuple[tuple[Bucket, ...], list[RecordedReducer], list[str | None]]] = field(
        init=False, repr=False
    )
    _timers: dict[ClusterSetting, dict[str | None, Timer]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._known = self.effort.recorded.setdefault((self.reducers, self.workers, self.discipline), {})

    def gains(
        self, model: str, where: ClusterSetting, batch: int | None = None, host_loop: str | None = None
    ) -> list[SettingGain]:
        """Return the gain of each reducer but dense in iterations of a model's profile in float32 on a cluster.

        ``batch`` is the mini-batch of one GPU (None: the profile's), ``host_loop`` the time that the host's loop takes
        per tensor of a bucket, before encode and before decode.
        """
        scenario = resolve_checked(
            RunSpec(
                where.topology,
                overrides=where.overrides,
                workers=(self.workers,),
                reducers=self.reducers,
                gpu=where.gpu,
                profile=f"{model}:precision=fp32",
                batch=batch,
                discipline=self.discipline,
                codec_as=self.effort.basis,
                host_loop=host_loop,
            )
        )
        training = scenario.training
        assert training is not None
        timers = self._timers.get(where) or self._timers.setdefault(where, {None: scenario.timer(self.workers)})
        buckets = training.buckets(timers[None].with_profile(scenario.library.profile), scenario.dtype)
        if model not in self._known or self._known[model][0] != buckets:
            with warnings.catch_warnings():
                # That one has nothing to do for some model is for whoever chose both; here every one meets every model.
                warnings.simplefilter("ignore", S2SimWarning)
                recorded, _ = record(scenario, self.workers)
            why_not = [rejected(each.row, None) for each in predict(scenario, recorded, thorough=False)]
            self._known[model] = buckets, recorded, why_not
        _, recorded, why_not = self._known[model]
        times_s = [each.compared_ps / PS_PER_S for each in execute(scenario, recorded, timers)]
        dense = recorded.index(baseline_of(recorded))
        setting = training.profile.batch, self.workers, times_s[dense]
        return [
            SettingGain(*(model, where.name, item.option_string, *setting, time_s, item.errors.whole.relative_l2, why))
            for number, (item, time_s, why) in enumerate(zip(recorded, times_s, why_not, strict=True))
            if number != dense
        ]


def compare_rows(effort: PaperEffort, progress: ProgressWatcher, **fields: Any) -> dict[str, Row]:
    """Return the row of each reducer of a run with one number of workers, without break-even and other libraries."""
    result = run(spec=RunSpec.of(**fields, codec_as=effort.basis), progress=progress, break_even=False, thorough=False)
    if result.interrupted:
        raise KeyboardInterrupt
    return {row.reducer: row for row in result.results}


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds.

    >>> milliseconds(0.0742)
    '74.2 ms'
    """
    return f"{1e3 * seconds:.1f} ms"


def normal_gradient(shapes: Iterable[tuple[int, ...]], seed: int = 0) -> Gradient:
    """Return a dense float32 gradient with layers of these shapes, standard normal."""
    generator = np.random.default_rng(seed)
    layers = tuple(generator.standard_normal(shape, np.float32) for shape in shapes)
    return Gradient(tuple(f"layer{place}" for place in range(len(layers))), layers)


def message_bytes(reducer: str, gradient: Gradient) -> int:
    """Return the bytes that one rank hands to collectives in one step, or in all of a reducer's period."""
    return sum(call.bytes_by_rank[0] for call in run_reducer(make_reducer(reducer), [gradient], seed=0).recording.calls)


@dataclass(frozen=True, slots=True)
class SweepTime:
    """What one reducer takes on one cluster."""

    time_s: float  # The communication phase, encoding and decoding included, with all gradients there at once
    iteration_s: float  # The whole iteration where the spec has a profile, else ``time_s``
    sent_bytes: int  # By the busiest rank, of ring collectives
    error: float | None  # Relative L2 error of the aggregate on the trace's gradients; None where it is undefined


def sweep(
    spec: RunSpec,
    clusters: Mapping[str, tuple[str, ...]],
    effort: PaperEffort,
    progress: ProgressWatcher,
    *,
    tables_only: bool = False,
) -> dict[str, dict[str, SweepTime]]:
    """Return times of a spec's reducers by cluster (``--set`` overrides by name) and option string; reduced once."""
    key = spec, tables_only
    if key not in effort.recorded:
        scenario, count = _sweep_scenario(spec, tables_only=tables_only), spec.workers[0]
        progress.start(count + len(scenario.reducers), "running reducers on real gradients")
        effort.recorded[key] = record(scenario, count, progress)[0]
    recorded: list[RecordedReducer] = effort.recorded[key]
    spec = replace(spec, codec_as=effort.basis)
    timed: dict[str, dict[str, SweepTime]] = {}
    for name, overrides in clusters.items():
        where = _sweep_scenario(replace(spec, overrides=(*spec.overrides, *overrides)), tables_only=tables_only)
        timed[name] = {}
        for item, executed in zip(recorded, execute(where, recorded), strict=True):
            times_s = executed.replay.total_ps / PS_PER_S, executed.compared_ps / PS_PER_S
            timed[name][item.option_string] = SweepTime(*times_s, executed.sent_real(), item.errors.whole.relative_l2)
    return timed


def _sweep_scenario(spec: RunSpec, *, tables_only: bool) -> ReducerScenario:
    scenario = resolve_checked(spec)
    if not tables_only:
        return scenario
    table = load_model(spec.model or spec.profile or "").table
    layers = tuple(group for group in table.layers if group.sparse)
    return replace(scenario, target=Model("tables", replace(table, layers=layers, published=None)), training=None)
