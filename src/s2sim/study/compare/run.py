"""Wires one experiment together: gradients, scripts, replays, rows, verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from s2sim.collectives.algorithms.registry import check_algorithm
from s2sim.collectives.libraries.tables import choose_library
from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.errors import OptionError
from s2sim.gradients.load import load_trace
from s2sim.replay.faults.lasting import damaged_cluster
from s2sim.replay.faults.registry import make_faults
from s2sim.study.break_even.scan import Scan, scan_rates
from s2sim.study.compare.idle_options import warn_of_idle_overrides
from s2sim.study.compare.library_notes import warn_of_idle_library_options
from s2sim.study.compare.notes import notes_on_faults, run_notes
from s2sim.study.compare.origin import origin
from s2sim.study.compare.reducers_asked import (
    INTERRUPTED_NOTE,
    earlier_gradients,
    reducers_asked,
    warn_of_later_options,
)
from s2sim.study.compare.steps import check_steps, follow, trend
from s2sim.study.compare.verdict import give_verdict
from s2sim.study.extrapolate.beyond import Beyond, look_beyond, record_as_asked
from s2sim.study.extrapolate.hold_out import Stage
from s2sim.study.measuring.executed import Executed
from s2sim.study.measuring.make_row import make_row, traffic
from s2sim.study.measuring.result import Result, Row
from s2sim.study.measuring.timeline import watch
from s2sim.study.progress import Silent
from s2sim.study.spec import RunSpec
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import first_line
from s2sim.topology.files.catalogue import load_shape
from s2sim.topology.files.hardware import load_gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from s2sim.gradients.load import AnyTrace
    from s2sim.reducers.rank import Reducer
    from s2sim.reducers.scripts.script import Recording
    from s2sim.replay.run import Replay
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.measuring.timeline import Timeline
    from s2sim.study.progress import Progress
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.files.hardware import Gpu
    from s2sim.topology.shape import ClusterShape


def run(
    topology: str | None = None,
    *,
    workers: int | Sequence[int] | None = None,
    reducers: Sequence[str] | None = None,
    spec: RunSpec | None = None,
    progress: Progress | None = None,
    timelines: dict[str, Timeline] | None = None,
    break_even: bool = True,
    **options: Any,
) -> Result:
    """Compare gradient reducers on a cluster.

    Parameters
    ----------
    topology : str
        Name of a shipped topology or path of a TOML file.
    workers : int or sequence of int
        Number of ranks; several give several rows a reducer.
    reducers : sequence of str, optional
        Option strings; without them those that `s2sim run` compares.
    spec : RunSpec, optional
        The whole experiment as a value, instead of the other arguments.
    progress : Progress, optional
        Told what is being done.
    timelines : dict, optional
        Filled with what ranks and links do under each reducer, for the largest number of workers.
    break_even : bool
        Whether to look for the rates at which reducers break even with dense.
    **options
        The other fields of `s2sim.study.spec.RunSpec`: ``trace``, ``overrides``, ``placement``, ``collective``,
        ``library``, ``gpu``, ``compute``, ``max_error``, ``seed``, ``scale_to``, ``model``, ``faults``, ``steps``.

    Returns
    -------
    Result
        Rows, verdict and run record; shows as a table in a notebook.

    Raises
    ------
    S2SimError
        For anything that cannot be done as asked.
    """
    if spec is None:
        if topology is None or workers is None:
            raise OptionError("run needs a topology and a number of workers, or a spec")
        counts = (workers,) if isinstance(workers, (int, float, str)) else tuple(workers)
        if reducers is not None:
            options["reducers"] = (reducers,) if isinstance(reducers, str) else tuple(reducers)
        for name in ("overrides", "faults"):
            if name in options and not isinstance(options[name], str):
                options[name] = tuple(options[name])
        try:
            spec = RunSpec(topology=topology, workers=counts, **options)
        except TypeError as error:
            raise OptionError(f"run: {error}") from None
    return _run(spec, progress or Silent(), timelines, break_even=break_even)


def _run(spec: RunSpec, progress: Progress, timelines: dict[str, Timeline] | None, *, break_even: bool) -> Result:
    reducers = reducers_asked(spec.reducers)
    shape = load_shape(spec.topology, spec.overrides)
    gpu = load_gpu(spec.gpu)
    library = choose_library(spec.library)
    if spec.collective != AUTO:
        check_algorithm(spec.collective)
    clusters = {count: _cluster(spec, shape, count) for count in spec.workers}
    warn_of_idle_overrides(spec.overrides, clusters[max(spec.workers)])
    if spec.steps == 1:
        warn_of_later_options(reducers, what="a run")
    trace = load_trace(spec.trace, workers=max(spec.workers), seed=spec.seed)
    check_steps(trace, spec.steps)
    beyond = look_beyond(spec, reducers, trace, Stage(shape, library, gpu, spec.seed), progress)
    found = _Found({}, {}, [], Scan(None))
    interrupted = False
    try:
        _run_workers(spec, reducers, trace, clusters, gpu, beyond, progress, found)
        largest = max(found.recorded)
        warn_of_idle_library_options(spec.library, library, found.recorded[largest])
        if timelines is not None:
            timelines |= {item.option_string: watch(each) for item, each in found.pairs(largest)}
        if spec.steps > 1:
            _follow_steps(spec, trace, found, progress)
        if break_even:
            found.scan = scan_rates(spec, clusters[largest], found.recorded[largest], gpu, progress)
    except KeyboardInterrupt:
        # Whoever does not want to wait any longer still gets the rows that are finished.
        if not found.rows:
            raise
        interrupted = True
    progress.stop()
    largest = max(found.recorded)
    verdict = give_verdict(
        [row for row in found.rows if row.workers == largest],
        max_error=spec.max_error,
        scan=found.scan,
        library=library.option_string,
    )
    notes = [
        *run_notes(spec, trace, shape, found.recorded[largest]),
        *notes_on_faults(spec, shape, clusters[largest], found.recorded[largest], found.executed[largest]),
        *([INTERRUPTED_NOTE] if interrupted else []),
    ]
    if beyond is not None:
        verdict = replace(verdict, text=f"{verdict.text} Mind that this is {beyond.sentence()}.")
        notes = [beyond.sentence(), *beyond.notes, *notes]
    return Result(
        spec=spec,
        headline=first_line(clusters[largest]),
        provenance=origin(spec, shape, gpu, trace, beyond),
        rows=tuple(found.rows),
        verdict=verdict,
        notes=tuple(notes),
    )


@dataclass(slots=True)
class _Found:
    """What a run has found so far, by number of workers."""

    recorded: dict[int, list[Recorded]]
    executed: dict[int, list[Executed]]
    rows: list[Row]
    scan: Scan

    def pairs(self, workers: int) -> Iterable[tuple[Recorded, Executed]]:
        """Return each recording with its execution."""
        return zip(self.recorded[workers], self.executed[workers], strict=True)


def _run_workers(
    spec: RunSpec,
    reducers: Mapping[str, Reducer],
    trace: AnyTrace,
    clusters: Mapping[int, Cluster],
    gpu: Gpu,
    beyond: Beyond | None,
    progress: Progress,
    found: _Found,
) -> None:
    """Run all reducers on each number of workers; those that are finished stand in ``found``."""
    progress.start(sum(spec.workers) + len(reducers) * len(spec.workers), "running reducers on real gradients")
    for count, cluster in clusters.items():
        gradients = []
        for rank in range(count):
            gradients.append(trace.gradient(0, rank))
            progress.advance()
        records = record_as_asked(
            spec, reducers, gradients, earlier_gradients(trace, reducers, count), progress.advance
        )
        found.executed[count] = _executed(spec, records, cluster, gpu)
        found.rows += [_marked(row, beyond) for row in _rows(spec, records, cluster, found.executed[count])]
        found.recorded[count] = records


def _follow_steps(spec: RunSpec, trace: AnyTrace, found: _Found, progress: Progress) -> None:
    """Replace each row by one with its successive steps; a warm reducer is a later step of one without it."""
    pairs = [pair for count in found.recorded for pair in found.pairs(count)]
    progress.start(spec.steps * sum(not item.reducer.traits.warm for item, _ in pairs), "following reducers over steps")
    for index, (item, one) in enumerate(pairs):
        row = found.rows[index]
        if item.reducer.traits.warm:
            continue

        def execute(recording: Recording, like: Executed = one) -> tuple[Replay, int]:
            again = replace(like, recording=recording)
            return again.replay, int(traffic(again, ring=_counts_as_ring(spec))[0].max())

        steps = follow(item.reducer, trace, row.workers, spec.steps, execute, seed=spec.seed, on_step=progress.advance)
        residuals = [step.residual for step in steps if step.residual is not None]
        found.rows[index] = replace(row, steps=steps, residual_trend=trend(residuals) if residuals else None)


def _marked(row: Row, beyond: Beyond | None) -> Row:
    return row if beyond is None else replace(row, extrapolated=beyond.mark(row))


def _cluster(spec: RunSpec, shape: ClusterShape, workers: int) -> Cluster:
    healthy = build_cluster(shape, workers, placement=spec.placement, seed=spec.seed)
    return damaged_cluster(healthy, make_faults(spec.faults))


def _executed(spec: RunSpec, records: Sequence[Recorded], cluster: Cluster, gpu: Gpu) -> list[Executed]:
    timer, library, faults = Timer(cluster, spec.collective), choose_library(spec.library), make_faults(spec.faults)
    return [Executed(item.recording, library, timer, gpu, faults, spec.compute_ps) for item in records]


def _counts_as_ring(spec: RunSpec) -> bool:
    """Return whether bytes are those of rings, the convention, rather than of the algorithm that was asked for."""
    return spec.collective.partition(":")[0] in (AUTO, "ring")


def _rows(spec: RunSpec, records: Sequence[Recorded], cluster: Cluster, executed: Sequence[Executed]) -> list[Row]:
    ring = _counts_as_ring(spec)
    dense = next(each for each, item in zip(executed, records, strict=True) if item.reducer.traits.name == "dense")
    dense_sent = int(traffic(dense, ring=ring)[0].max())
    return [
        make_row(
            item,
            each,
            cluster,
            dense=(dense.replay, dense_sent),
            ring=ring,
            compute_ps=spec.compute_ps,
        )
        for item, each in zip(records, executed, strict=True)
    ]
