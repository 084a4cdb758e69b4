"""Wires one experiment together: gradients, scripts, replays, rows, verdict."""

from __future__ import annotations

import warnings
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from s2sim.cluster.faults import make_faults
from s2sim.cluster.lasting import damaged_cluster
from s2sim.cluster.plan import make_plan
from s2sim.collectives.libraries import choose_library
from s2sim.collectives.registry import ALGORITHMS, check_algorithm
from s2sim.collectives.timing import AUTO, Timer
from s2sim.errors import OptionError, S2SimWarning
from s2sim.gradients.load import load_trace
from s2sim.gradients.models import load_model
from s2sim.provenance import content_hash, run_record
from s2sim.reducers.factory import make_reducer, option_string
from s2sim.reducers.script import AwaitGradient
from s2sim.study.extrapolate import Beyond, look_beyond, record_as_asked
from s2sim.study.fault_notes import fault_notes
from s2sim.study.hold_out import Stage
from s2sim.study.idle import warn_of_idle_overrides
from s2sim.study.library_notes import library_notes, warn_of_idle_library_options
from s2sim.study.lowering_rows import Executed
from s2sim.study.measure_rows import make_row, traffic
from s2sim.study.progress import Silent
from s2sim.study.result import Result, Row
from s2sim.study.scan import Scan, scan_rates
from s2sim.study.spec import RunSpec
from s2sim.study.steps import check_steps, follow, trend
from s2sim.study.timeline import watch
from s2sim.study.verdict import give_verdict
from s2sim.topology.catalogue import load_shape
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import first_line
from s2sim.topology.hardware import load_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.cluster.replay import Replay
    from s2sim.gradients.gradient import Gradient
    from s2sim.gradients.load import AnyTrace
    from s2sim.reducers.rank import Reducer
    from s2sim.reducers.script import Recording
    from s2sim.study.progress import Progress
    from s2sim.study.record import Recorded
    from s2sim.study.timeline import Timeline
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.hardware import Gpu
    from s2sim.topology.shape import ClusterShape

INTERRUPTED_NOTE = "interrupted: what was not finished is missing"


def run(
    topology: str | None = None,
    *,
    workers: int | Sequence[int] | None = None,
    reducers: Sequence[str] | None = None,
    spec: RunSpec | None = None,
    progress: Progress | None = None,
    timelines: dict[str, Timeline] | None = None,
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
    **options
        The other fields of `s2sim.study.spec.RunSpec`: ``trace``, ``overrides``, ``placement``, ``collective``,
        ``library``, ``gpu``, ``compute``, ``max_error``, ``seed``, ``scale_to``, ``model``, ``faults``.

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
    return _run(spec, progress or Silent(), timelines)


def _run(spec: RunSpec, progress: Progress, timelines: dict[str, Timeline] | None) -> Result:
    reducers = _with_dense(spec.reducers)
    shape = load_shape(spec.topology, spec.overrides)
    gpu = load_gpu(spec.gpu)
    library = choose_library(spec.library)
    if spec.collective != AUTO:
        check_algorithm(spec.collective)
    clusters = {count: _cluster(spec, shape, count) for count in spec.workers}
    warn_of_idle_overrides(spec.overrides, clusters[max(spec.workers)])
    if spec.steps == 1:
        _warn_of_later_steps(reducers)
    trace = load_trace(spec.trace, workers=max(spec.workers), seed=spec.seed)
    check_steps(trace, spec.steps)
    beyond = look_beyond(spec, reducers, trace, Stage(shape, library, gpu, spec.seed), progress)
    recorded: dict[int, list[Recorded]] = {}
    rows: list[Row] = []
    executed: dict[int, list[Executed]] = {}
    scan = Scan(None)
    interrupted = False
    try:
        progress.start(sum(spec.workers) + len(reducers) * len(spec.workers), "running reducers on real gradients")
        for count in spec.workers:
            gradients = []
            for rank in range(count):
                gradients.append(trace.gradient(0, rank))
                progress.advance()
            records = record_as_asked(spec, reducers, gradients, _earlier(trace, reducers, count), progress.advance)
            executed[count] = _executed(spec, records, clusters[count], gpu)
            rows += [_marked(row, beyond) for row in _rows(spec, records, clusters[count], executed[count])]
            recorded[count] = records
        largest = max(recorded)
        warn_of_idle_library_options(spec.library, library, recorded[largest])
        if timelines is not None:
            pairs = zip(recorded[largest], executed[largest], strict=True)
            timelines |= {item.option_string: watch(each) for item, each in pairs}
        if spec.steps > 1:
            _follow_steps(spec, trace, recorded, executed, rows, progress)
        scan = scan_rates(spec, clusters[largest], recorded[largest], gpu, progress)
    except KeyboardInterrupt:
        # Whoever does not want to wait any longer still gets the rows that are finished.
        if not rows:
            raise
        interrupted = True
    progress.stop()
    largest = max(recorded)
    verdict = give_verdict(
        [row for row in rows if row.workers == largest],
        max_error=spec.max_error,
        scan=scan,
        library=library.option_string,
    )
    notes = [
        *_notes(spec, trace, shape, recorded[largest]),
        *_fault_notes(spec, shape, clusters[largest], recorded[largest], executed[largest]),
        *([INTERRUPTED_NOTE] if interrupted else []),
    ]
    if beyond is not None:
        verdict = replace(verdict, text=f"{verdict.text} Mind that this is {beyond.sentence()}.")
        notes = [beyond.sentence(), *beyond.notes, *notes]
    return Result(
        spec=spec,
        headline=first_line(clusters[largest]),
        provenance=_provenance(spec, shape, gpu, trace, beyond),
        rows=tuple(rows),
        verdict=verdict,
        notes=tuple(notes),
    )


def _follow_steps(
    spec: RunSpec,
    trace: AnyTrace,
    recorded: Mapping[int, Sequence[Recorded]],
    executed: Mapping[int, Sequence[Executed]],
    rows: list[Row],
    progress: Progress,
) -> None:
    """Replace each row by one with its successive steps; a warm reducer is a later step of one without it."""
    progress.start(spec.steps * sum(map(len, recorded.values())), "following reducers over steps")
    for index, row in enumerate(rows):
        pairs = zip(recorded[row.workers], executed[row.workers], strict=True)
        item, one = next(pair for pair in pairs if pair[0].option_string == row.option_string)
        if item.reducer.warm:
            continue

        def execute(recording: Recording, like: Executed = one) -> tuple[Replay, int]:
            again = replace(like, recording=recording)
            return again.replay, int(traffic(again, ring=_counts_as_ring(spec))[0].max())

        steps = follow(item.reducer, trace, row.workers, spec.steps, execute, seed=spec.seed, on_step=progress.advance)
        residuals = [step.residual for step in steps if step.residual is not None]
        rows[index] = replace(row, steps=steps, residual_trend=trend(residuals) if residuals else None)


def _marked(row: Row, beyond: Beyond | None) -> Row:
    return row if beyond is None else replace(row, extrapolated=beyond.mark(row))


def _with_dense(texts: Sequence[str]) -> dict[str, Reducer]:
    """Return the reducers by the option strings that were asked for, ``dense`` first where it is missing."""
    made = {text: make_reducer(text) for text in texts}
    if not any(reducer.name == "dense" for reducer in made.values()):
        made = {"dense": make_reducer("dense")} | made
    asked: dict[str, str] = {}
    for text, reducer in made.items():
        other = asked.setdefault(option_string(reducer), text)
        if other != text or texts.count(text) > 1:
            raise OptionError(f"the same reducer was asked for twice: {other} and {text}")
    return made


def _earlier(trace: AnyTrace, reducers: Mapping[str, Reducer], ranks: int) -> list[Gradient] | None:
    """Return the gradients of another step, from which warm reducers carry over; None if there is none, or no need."""
    if trace.steps == 1 or not any(reducer.warm for reducer in reducers.values()):
        return None
    return [trace.gradient(1, rank) for rank in range(ranks)]


def _warn_of_later_steps(reducers: Mapping[str, Reducer]) -> None:
    for text, reducer in reducers.items():
        for option in reducer.later_options():
            warnings.warn(
                f"{text}: {option} acts from the second step on, and a run takes the first", S2SimWarning, stacklevel=2
            )


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
    dense = next(each for each, item in zip(executed, records, strict=True) if item.reducer.name == "dense")
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


def _notes(spec: RunSpec, trace: AnyTrace, shape: ClusterShape, recorded: Sequence[Recorded]) -> tuple[str, ...]:
    """Return what a reader must know to read the numbers rightly."""
    notes = ["first step of the trace: residuals are empty, and what later steps carry over is exchanged and counted"]
    if spec.steps > 1:
        notes.append(
            f"over {spec.steps} steps what is carried over comes from the step before, and what loses more than rounding "
            "runs with error feedback; residuals over the root mean square of the gradients' norms"
        )
    if trace.manifest.kind == "synthetic":
        notes.append("the gradients are synthetic: errors and sizes are those of made-up data")
    if spec.compute is None:
        notes.append("communication phase only: give --compute, for example 120ms, for whole iterations")
    else:
        notes.append(f"iteration = {spec.compute} of compute + communication phase, without overlap")
    early = [item.option_string for item in recorded if AwaitGradient() in item.recording.scripts[0]]
    if early:
        hidden = "as far as it is long enough" if spec.compute else "which is taken to be long enough without --compute"
        notes.append(f"{', '.join(early)}: what needs the batch alone runs beside forward and backward, {hidden}")
    if spec.max_error is None:
        notes.append("a relative L2 error of 1 or more never wins; --max-error sets a stricter limit")
    library = choose_library(spec.library)
    plans = [make_plan(item.recording, library) for item in recorded]
    kinds = sorted({demand.kind for plan in plans for lowered in plan.lowered for demand in lowered.demands})
    if spec.collective != AUTO:
        able = ALGORITHMS.get(spec.collective.partition(":")[0]).kinds
        notes += [
            f"{spec.collective} does not run {kind}: the fastest that does ran instead"
            for kind in kinds
            if kind not in able
        ]
    warm = [item.option_string for item in recorded if item.reducer.warm]
    if warm:
        source = "the trace's second step" if trace.steps > 1 and not spec.scaled else "the same step, the only one"
        notes.append(f"{', '.join(warm)}: what a later step carries over is taken from {source}")
    by_row = [item.option_string for item in recorded if item.reducer.row_keyed]
    names = [layer.name for layer in trace.manifest.layers if layer.sparse]
    if by_row and names:
        notes.append(f"{', '.join(by_row)}: row-sparse layers ({', '.join(names)}) by row, one key and bit for each")
    notes += [f"{item.option_string}: {note}" for item in recorded for note in item.reducer.notes()]
    notes += library_notes(library, shape, recorded)
    if len(spec.workers) > 1:
        notes.append(f"verdict and break-even are for {recorded[0].recording.workers} workers")
    return tuple(notes)


def _fault_notes(
    spec: RunSpec, shape: ClusterShape, cluster: Cluster, records: Sequence[Recorded], executed: Sequence[Executed]
) -> tuple[str, ...]:
    if not spec.faults:
        return ()
    healthy = build_cluster(shape, cluster.workers, placement=spec.placement, seed=spec.seed)
    replays = {item.option_string: each.replay for item, each in zip(records, executed, strict=True)}
    return fault_notes(make_faults(spec.faults), healthy, cluster, replays)


def _provenance(spec: RunSpec, shape: ClusterShape, gpu: Gpu, trace: AnyTrace, beyond: Beyond | None) -> dict[str, Any]:
    fields = {
        name: {item.field: {"value": item.value, "kind": item.kind, "source": item.source} for item in quantities}
        for name, quantities in (("topology", shape.quantities), ("gpu", gpu.quantities))
    }
    return run_record(
        spec=spec.to_json(),
        inputs={
            "topology": {
                "name": shape.name,
                "sha256": content_hash(fields["topology"]),
                "fields": fields["topology"],
            },
            "gpu": {"name": gpu.name, "sha256": content_hash(fields["gpu"]), "fields": fields["gpu"]},
            "trace": {
                "name": trace.name,
                "kind": trace.manifest.kind,
                "sha256": content_hash(dict(trace.manifest.files)),
            },
            **({} if spec.model is None else {"model": _model_record(spec.model)}),
            "seed": spec.seed,
        },
        measured=["bytes", "error"],
        assumed=[
            "time: simulated on the topology above; encode and decode: bytes over memory bandwidth and launches",
            *([] if beyond is None else [f"rows with a mark are {beyond.sentence()}"]),
        ],
    )


def _model_record(name: str) -> dict[str, Any]:
    """Return what says which layer table was taken, and what it rests on."""
    model = load_model(name)
    table = asdict(model.table)
    return {"name": model.name, "sha256": content_hash(table), "kind": model.table.kind, "source": model.table.source}
