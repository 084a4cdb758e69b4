"""Compare reducers, what Python and the command line call: prepare, record, predict, look for break-even, compare."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from s2sim.errors import OptionError
from s2sim.study.break_even.scan import scan_rates
from s2sim.study.by_name import takes_fields_of
from s2sim.study.compare.follow_rows import follow_steps
from s2sim.study.compare.found import Found, Wanted
from s2sim.study.compare.library_notes import warn_of_idle_library_options
from s2sim.study.compare.notes import caveats_of, run_notes
from s2sim.study.compare.origin import origin
from s2sim.study.compare.prepare import prepare
from s2sim.study.compare.vary_rate import vary_rate
from s2sim.study.compare.verdicts import give_verdicts
from s2sim.study.compare.workers import predict, record
from s2sim.study.extrapolate.beyond import look_beyond
from s2sim.study.extrapolate.whose import whose_gradients
from s2sim.study.measuring.result import Result
from s2sim.study.measuring.row_parts import Refused
from s2sim.study.progress import Silent
from s2sim.study.spec import RunSpec
from s2sim.topology.describe import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.break_even.rate_curve import RateCurves
    from s2sim.study.measuring.streams import Streams
    from s2sim.study.measuring.timeline import Timeline
    from s2sim.study.progress import Progress
    from s2sim.study.scenario.reducers import ReducerScenario


@takes_fields_of(RunSpec)
def run(
    topology: str | None = None,
    *,
    workers: int | Sequence[int] | None = None,
    reducers: Sequence[str] | None = None,
    spec: RunSpec | None = None,
    progress: Progress | None = None,
    timelines: dict[str, Timeline | Streams] | None = None,
    timeline_rank: int | None = None,
    break_even: bool = True,
    thorough: bool = True,
    curves: dict[int, RateCurves] | None = None,
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
        Filled with what ranks and links do under each reducer, for the largest number of workers; of whole iterations
        with the streams of one rank.
    timeline_rank : int, optional
        Which; the slowest unless given.
    break_even : bool
        Whether to look for the rates at which reducers break even with dense.
    thorough : bool
        Whether to work out what the first screen does not show: break-even of all reducers instead of those that the
        verdict names, and what other libraries would make of each.
    curves : dict, optional
        Filled with the speed-ups over dense at other rates, by number of workers.

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
        one_or_more: Any = workers
        several = isinstance(one_or_more, Iterable) and not isinstance(one_or_more, str)
        counts = one_or_more if several else (one_or_more,)
        if reducers is not None:
            options["reducers"] = (reducers,) if isinstance(reducers, str) else reducers
        spec = RunSpec.of(topology, workers=counts, **options)
    elif not isinstance(spec, RunSpec):
        raise OptionError(f"s2sim.run: spec is a {type(spec).__name__}: give a RunSpec, or RunSpec.load(path)")
    elif topology is not None or workers is not None or reducers is not None or options:
        asked = {"topology": topology, "workers": workers, "reducers": reducers, **options}
        named = ", ".join(name for name, value in asked.items() if value is not None)
        raise OptionError(f"s2sim.run: spec holds the whole experiment, so {named} cannot be given with it")
    wanted = Wanted(timelines, curves, break_even, thorough, timeline_rank)
    return _run(spec, progress or Silent(), wanted)


def _run(spec: RunSpec, progress: Progress, wanted: Wanted) -> Result:
    """Return the result of a run; after Ctrl-C of what was finished by then."""
    scenario = prepare(spec)
    wanted.check(scenario, scenario.ranks_of(max(spec.workers)))
    beyond = look_beyond(scenario, scenario.ranks_of(max(spec.workers)), progress)
    if beyond is not None and beyond.refused:
        checked = tuple(item for item in scenario.reducers if item.option_string not in beyond.refused)
        scenario = replace(scenario, reducers=checked, refused={**scenario.refused, **beyond.refused})
    found = Found(extrapolated=beyond)
    found.refused += [Refused(name, each, why) for name, why in scenario.refused.items() for each in spec.workers]
    ranks = {count: scenario.ranks_of(count) for count in spec.workers}
    progress.start(sum(ranks.values()) + len(scenario.reducers) * len(ranks), "running reducers on real gradients")
    interrupted = False
    try:
        for count in spec.workers:
            recorded, refused = record(scenario, ranks[count], progress)
            predictions = predict(scenario, recorded, thorough=wanted.thorough)
            if beyond is not None:
                marked = [replace(each.row, extrapolated=beyond.mark(each.row, ranks[count])) for each in predictions]
                predictions = [replace(each, row=row) for each, row in zip(predictions, marked, strict=True)]
            found.predictions[count] = predictions
            found.refused += refused
        if wanted.timelines is not None:
            wanted.timelines |= found.timelines(wanted.timeline_rank)
        if spec.steps > 1:
            follow_steps(spec, scenario, progress, found)
        if wanted.break_even:
            scanned = found.predictions[found.largest] if wanted.thorough else found.named(spec.max_error)
            found.scan = scan_rates(scenario, [each.recorded for each in scanned], progress)
            found.look_over_batches(spec.max_error)
        if wanted.curves is not None:
            wanted.curves |= vary_rate(scenario, found, progress)
    except KeyboardInterrupt:
        # Whoever does not want to wait any longer still gets the rows that are finished.
        if not found.predictions:
            raise
        interrupted = True
    progress.stop()
    return compare(spec, scenario, found, interrupted=interrupted)


def compare(spec: RunSpec, scenario: ReducerScenario, found: Found, *, interrupted: bool = False) -> Result:
    """Compare what was predicted of reducers: rows with what is thought of each, verdicts, notes and run record.

    Parameters
    ----------
    spec : RunSpec
        What was asked for.
    scenario : ReducerScenario
        Where `s2sim.study.compare.workers.predict` found times.
    found : Found
        Predictions by number of workers, at least ``dense`` of each; rates and mini-batches at which reducers pay where
        these were looked for.
    interrupted : bool
        Whether there was to be more.
    """
    largest = found.predictions[found.largest]
    records, beyond = found.recorded(found.largest), found.extrapolated
    warn_of_idle_library_options(spec.library, scenario.library, records)
    rows, verdicts = give_verdicts(spec, scenario, found)
    refused = tuple(found.refused)
    caveats = caveats_of(scenario, records, [each.executed for each in largest], beyond, interrupted=interrupted)
    notes = [*([] if beyond is None else beyond.all_notes()), *run_notes(spec, scenario, records)]
    notes += [f"{item.reducer} did not run with {item.workers} workers: {item.why}" for item in refused]
    ranks = scenario.ranks_of(found.largest)
    return Result(
        spec=spec,
        cluster=first_line(scenario.cluster(ranks)),
        gradients=whose_gradients(scenario, ranks),
        library=scenario.library.option_string,
        gpu=scenario.gpu.name,
        machines=scenario.machines.text,
        provenance=origin(spec, scenario, beyond),
        results=rows,
        verdict=next(each for each in verdicts if each.workers == found.largest),
        verdicts=verdicts,
        refused=refused,
        notes=tuple(dict.fromkeys([*notes, *caveats])),
        caveats=caveats,
    )
