"""Advice on a cluster and a training job: five questions, each answered by runs that anybody can repeat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise, product
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import Any

from s2sim.advice import cells as advice
from s2sim.advice.script import script_lines
from s2sim.advice.search import AS_IT_IS, Changes, CheapestSearch, last_that_holds, pareto
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.choice import WORTHWHILE
from s2sim.experiment.cluster_spec import accept_fields_of
from s2sim.experiment.costs import Gate, accept_any
from s2sim.experiment.json_form import ResultForm
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.experiment.rate_curve import limiting_rate, rate_of
from s2sim.experiment.run import spec_of
from s2sim.experiment.scenario.reducers import ReducerScenario, resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.options import join_option_string, split_option_string
from s2sim.provenance import run_record
from s2sim.reducers.registry import make_reducer
from s2sim.simulation.bucketing.policy import make_discipline
from s2sim.sweeps.explore import with_density
from s2sim.sweeps.study import MOST_CELLS
from s2sim.tables import group_by
from s2sim.units import enumerate_words, format_money, format_number_of, format_rate

MOST_RUNS = 64
"""Combinations that the frontier computes; of more it takes a sample."""

_BUCKETS = ("1MiB", "5MiB", "25MiB", "100MiB", "400MiB")
_DENSITIES = tuple(float(f"{10 ** (-4 + step / 4):.2g}") for step in range(16))


@dataclass(frozen=True, slots=True, repr=False)
class Advice(ResultForm):
    """What `s2sim.advise` returns."""

    question: str
    spec: RunSpec  # The cluster and the job as they are
    lines: tuple[str, ...]  # The answer
    cells: tuple[advice.AdviceCell, ...]  # Those that it rests on, as it is first
    combinations: int  # Cells among which the answer was looked for, a reducer each
    runs: int  # Runs that it took; one computes all reducers of a cluster
    currency: str | None  # Of prices
    notes: tuple[str, ...]
    script: tuple[str, ...] = ()  # Python for the script of a recorded job: hook, buckets, variables as predicted
    provenance: dict[str, Any] = field(default_factory=dict)  # The run record


def _best(base: RunSpec, runs: advice.Runs) -> Advice:
    """Return the quickest reducer with an error below the allowed one, with its density and the size of buckets."""
    if base.max_error is None:
        raise OptionError("advise best needs the error that is allowed: for example --max-error 0.1")
    today = runs.needed(base)
    names = [row.reducer for row in today.results if not row.baseline]
    # Where the option string names no density it is free.
    free = [name for name in names if "density" in make_reducer(name).options() and "density=" not in name]
    able = [row.reducer for row in today.results if not row.baseline and row.judged.rejected is None]
    kept = [name for name in able if name not in free] + _allowed_densities(base, free, runs)
    settings = _with_buckets(replace(base, reducers=tuple(kept or names)))
    dense = advice.cell_of(today, today.results[0])
    cells, offered = {_alike(dense): dense}, [dense]
    for label, spec in settings:
        result = runs.result(spec)
        rows = {} if result is None else {row.reducer: row for row in result.results}
        for name in dict.fromkeys([dense.reducer, *kept]):
            if result is None or name not in rows:
                continue
            cell = advice.cell_of(result, rows[name], label)
            cell, verdict = cells.setdefault(_alike(cell), cell), result.verdict
            named = (verdict.best, verdict.best_exact, verdict.best_lossy, verdict.without_assumption)
            offered += [cell] if name in named else []
    lines, taken = [], dense
    sure = [cell for cell in offered if cell.assumes is None]
    for able_cells in (offered, sure, [cell for cell in offered if cell.exact], [cell for cell in sure if cell.exact]):
        best = advice.quickest([dense, *able_cells])
        if dense.compared_s and best.compared_s * WORTHWHILE <= dense.compared_s:
            gain = dense.compared_s / best.compared_s
            lines.append(f"{advice.named_text(best, base)}: {advice.time_text(best)}, {gain:.2f}x of dense as it is.")
            taken = best if taken is dense else taken
    if not lines:
        hidden = advice.hidden_text(today)
        lines = [f"Nothing with an error below {base.max_error:g} is clearly faster than dense{hidden}."]
    combinations = (len(names) + len(free) * (len(_DENSITIES) - 1) + 1) * len(settings)
    listed = [dense, *sorted([*cells.values()][1:], key=attrgetter("compared_s"))]
    least, most = _DENSITIES[0], _DENSITIES[-1]
    tried = f"densities of {', '.join(free)}: {len(_DENSITIES)} from {least:g} to {most:g} were tried"
    notes = [tried] if free else []
    return _advice("best", base, list(dict.fromkeys(lines)), listed, combinations, runs, notes=notes, taken=taken)


def _alike(cell: advice.AdviceCell) -> tuple[Any, ...]:
    """Return what two settings of one reducer differ in, if they do not come to the same."""
    return cell.reducer, cell.time_s, cell.relative_l2, cell.made and cell.made[1].bytes_sent_per_rank


def _allowed_densities(base: RunSpec, names: Sequence[str], runs: advice.Runs) -> list[str]:
    """Return each reducer with the density with which it is quickest among those with an error that is allowed."""
    levels = [[with_density(name, each) for each in _DENSITIES] for name in names]
    every = tuple(dict.fromkeys(chain(*levels)))
    result = runs.result(replace(base, reducers=every)) if every else None
    rows = [] if result is None else [(result, row) for row in result.results if row.judged.rejected is None]
    found = []
    for texts in levels:
        own = [advice.cell_of(*made) for made in rows if made[1].reducer in texts]
        found += [advice.quickest(own).reducer] if own else []
    return found


def _with_buckets(spec: RunSpec) -> list[tuple[str, RunSpec]]:
    """Return a spec as it is, and with other sizes of buckets where its discipline has some."""
    found = [(AS_IT_IS.text, spec)]
    text = spec.discipline or ("ddp" if spec.profile is not None else None)
    today = None if text is None else make_discipline(text)
    if text is None or not hasattr(today, "bucket"):
        return found
    name, options = split_option_string(text)
    for size in () if "bucket" in options else _BUCKETS:
        discipline = join_option_string(name, {**options, "bucket": size})
        # Without a name a recorded job has the buckets that it had.
        if make_discipline(discipline) != today or spec.recorded is not None:
            found.append((f"discipline={discipline}", replace(spec, discipline=discipline)))
    return found


def _cheapest(base: RunSpec, runs: advice.Runs, changes: Changes, faster: float) -> Advice:
    """Return the cheapest changes with which the same work takes less of the time that it takes now."""
    ways = advice.Combinations(base, changes, runs, together=False)
    if ways.count > MOST_CELLS:
        raise OptionError(f"--changes make {ways.count:,} combinations, above {MOST_CELLS:,}: give fewer options")
    if (today := ways.cell((0,) * (len(ways.axes) + 1))) is None:
        raise OptionError("advise cheapest: the cluster as it is cannot be run: s2sim run says why")
    if not today.compared_s:
        workers = format_number_of(today.workers, "worker")
        raise OptionError(f"advise cheapest: nothing is shorter than {workers} in 0 s")
    target_s = today.compared_s * (1 - faster)

    def cheapest(search: CheapestSearch) -> advice.AdviceCell | None:
        # Of equally cheap ones that no model can tell apart the error and what is there already decide.
        points = [] if (point := search.run()) is None else search.as_cheap(point)
        cells = [cell for each in points if (cell := ways.cell(each)) is not None]
        return advice.quickest(cells) if cells else None

    search = CheapestSearch(ways.prices, ways.time, target_s)
    found = cheapest(search)
    # Else the cheapest of those that no model can tell from the quickest.
    best = found or cheapest(CheapestSearch(ways.prices, ways.time, min(search.tried.values()) * WORTHWHILE))
    assert best is not None
    answers, name = [best], advice.named_text(best, base)
    if found is not None:
        if ways.conditional(best):
            sure = cheapest(CheapestSearch(ways.prices, partial(ways.time, sure=True), target_s))
            answers += [] if sure is None else [sure]
        texts = [_answer_text(cell, today, base, changes.currency) for cell in answers]
        lines = [texts[0], *(f"Else {text}" for text in texts[1:])]
        lines += ["Nothing does so without that condition."] * ways.conditional(answers[-1])
    elif best.compared_s * WORTHWHILE <= today.compared_s:
        less = f"{1 - best.compared_s / today.compared_s:.0%}"
        lines = [f"Nothing makes it {faster:.0%} shorter. The quickest tried takes {less} less: {name}."]
    elif runs.refused and sum(not isinstance(each, S2SimError) for each in runs.computed.values()) == 1:
        answers, lines = [], ["No change could be tried: notes say why."]
    else:
        hidden = advice.hidden_text(runs.needed(ways.as_it_is))
        answers, lines = [], [f"Nothing helps: no change that was tried makes it clearly shorter{hidden}."]
    grid = [change.name for change in changes.changes if not advice.is_of_reducers(change)]
    falling = [name for axis, name in enumerate(grid) if axis in search.monotone]
    notes = [
        f"along {', '.join(falling)} dearer was never slower where both were tried, which the search relies on"
    ] * bool(falling)
    cells, taken = [today, *answers], [*answers, today][0]
    return _advice("cheapest", base, lines, cells, ways.count, runs, changes.currency, notes, taken=taken)


def _answer_text(cell: advice.AdviceCell, today: advice.AdviceCell, base: RunSpec, currency: str | None) -> str:
    cost = "" if currency is None or cell.price is None else f", for {format_money(cell.price, currency)}"
    what = "A sample" if cell.samples_per_s else "A step"
    less = f"{1 - cell.compared_s / today.compared_s:.0%} less than now ({advice.time_text(today)})"
    return f"{advice.named_text(cell, base)}: {advice.time_text(cell)}{cost}. {what} takes {less}."


def _largest(base: RunSpec, runs: advice.Runs, efficiency: float, most: int) -> Advice:
    """Return the most workers of which each trains at least a share as fast as one alone."""
    if most < 1:
        raise OptionError(f"most_workers = {most}: at least 1 is needed")
    # One worker has no straggler: what one costs is part of what is lost.
    alone = runs.needed(replace(base, workers=(1,), faults=()))
    one = advice.cell_of(alone, alone.results[0], efficiency=1.0)
    if alone.results[0].iteration_s is None:
        raise OptionError("advise largest compares iterations: give their compute by --profile or --compute")
    step = resolve_run(replace(base, workers=(1,), faults=())).shape.gpus_per_node
    step = step if step <= most else 1
    cells: dict[int, advice.AdviceCell] = {1: one}

    def holds(nodes: int) -> bool:
        result = runs.needed(replace(base, workers=(nodes * step,)))
        row = next(row for row in result.results if row.reducer == result.verdict.best)
        per_worker = advice.cell_of(result, row)
        workers = per_worker.workers if per_worker.samples_per_s else 1
        cell = advice.cell_of(result, row, efficiency=one.compared_s / (per_worker.compared_s * workers))
        cells[cell.workers] = cell
        return (cell.efficiency or 0.0) >= efficiency

    found = last_that_holds(holds, most // step)
    ordered = [cells[count] for count in sorted(cells)]
    shares = [cell.efficiency or 0.0 for cell in ordered]
    notes = []
    if any(late > early * (1 + 1e-6) for early, late in pairwise(shares)):
        notes.append("efficiency does not fall with every step: sizes between those that ran may do otherwise")
    if step > 1:
        notes.append(f"numbers of workers are those of whole nodes of {step}")
    last = cells[found * step] if found else None
    if last is None:
        workers = format_number_of(step, "worker")
        line = f"No cluster of {workers} or more keeps {100 * efficiency:.6g}% of the speed of one."
    else:
        end = ", the largest that was tried" if last.workers + step > most else ""
        line = (
            f"With {advice.named_text(last, base)}, {last.workers} workers keep {last.efficiency:.2%} "
            f"of the speed of one{end}: {advice.time_text(last)}."
        )
        after = next((cell for cell in ordered if cell.workers > last.workers), None)
        if after is not None:
            line += f" {after.workers} keep {after.efficiency:.2%}."
    return _advice("largest", base, [line], ordered, most // step, runs, notes=notes, taken=last)


def _frontier(base: RunSpec, runs: advice.Runs, changes: Changes) -> Advice:
    """Return the combinations that no other one betters in time, error and price together."""
    ways = advice.Combinations(base, changes, runs, together=True)
    clusters = prod(map(len, ways.axes))
    sampled = clusters > MOST_RUNS
    if not sampled:
        points = list(product(*(range(len(axis)) for axis in ways.axes)))
    else:
        from scipy.stats import qmc

        corners = {(0,) * len(ways.axes), tuple(len(axis) - 1 for axis in ways.axes)}
        shares = qmc.Sobol(len(ways.axes), seed=base.seed).random(MOST_RUNS)
        drawn = {tuple(int(s * len(a)) for s, a in zip(share, ways.axes, strict=True)) for share in shares}
        points = sorted(corners | drawn)
    every = [(*point, reducer) for point in points for reducer in range(len(ways.reducers))]
    known = [cell for point in every if (cell := ways.cell(point)) is not None]
    if not known:
        raise OptionError("advise frontier: none of the combinations can be run: s2sim run says why")
    axes = [(cell.longest_s, cell.candidate.loss, cell.price or 0.0) for cell in known]
    cells = [known[place] for place in pareto(axes)]
    several = format_number_of(len(cells), "cell")
    line = f"{several} of {len(known)}: nothing betters them in time, error and price together."
    notes = [f"a Sobol sample of {len(points)} of {clusters} clusters: others may be better"] if sampled else []
    unsure = dict.fromkeys(cell.reducer for cell in cells if cell.feedback)
    notes += [f"training has to tell whether error feedback allows {enumerate_words([*unsure])}"] if unsure else []
    return _advice("frontier", base, [line], cells, ways.count, runs, changes.currency, notes)


def _flips(base: RunSpec, runs: advice.Runs) -> Advice:
    """Return what would change the answer of a run: rates, mini-batches, estimated constants, errors."""
    result = runs.needed(base, break_even=True)
    verdict, rows = result.verdict, result.results
    scenario = resolve_run(base)
    cluster = scenario.healthy(scenario.ranks_of(max(base.workers)))
    field = limiting_rate(cluster)
    here = "" if field is None else f"; here it is {format_rate(rate_of(cluster, field))}"
    lines = [verdict.lines[0], *(f"{name} {text}{here}." for name, text in verdict.pays.items())]
    lines += [f"{each.reducer} pays {each.text}." for each in verdict.pays_over]
    lines += [
        f"{flip.constant} of {flip.value}, taken as {flip.taken}, which is an estimate, would make it {flip.best}."
        for flip in verdict.flips
    ]
    lines += [f"{row.reducer}: {judged.change}." for row in rows if (judged := row.judged).change]
    if sure := verdict.sureness:
        named = sure.startswith(tuple(row.reducer for row in rows))
        lines.append(f"{sure if named else sure[0].upper() + sure[1:]}.")
    cells = [advice.cell_of(result, row) for row in rows]
    taken = next((cell for cell in cells if cell.reducer == verdict.best), cells[0])
    return _advice("flips", base, lines, cells, len(cells), runs, taken=taken)


def _advice(
    question: str,
    base: RunSpec,
    lines: Sequence[str],
    cells: Sequence[advice.AdviceCell],
    combinations: int,
    runs: advice.Runs,
    currency: str | None = None,
    notes: Sequence[str] = (),
    taken: advice.AdviceCell | None = None,
) -> Advice:
    refused = [
        f"{what[0]} {f'and {len(what) - 1} more were' if len(what) > 1 else 'was'} left out: {why}"
        for why, what in group_by(runs.refused, runs.refused.__getitem__).items()
    ]
    script = script_lines(*taken.made) if taken is not None and taken.made is not None else ()
    said = (*notes, *refused)
    return Advice(question, base, tuple(lines), tuple(cells), combinations, len(runs.computed), currency, said, script)


QUESTIONS_TAKE = {
    "best": (),
    "cheapest": ("changes", "faster"),
    "largest": ("efficiency", "most_workers"),
    "frontier": ("changes",),
    "flips": (),
}
"""The questions of `advise`, and the arguments of each."""

MOST_WORKERS = 1024
"""More are not tried unless they are asked for."""


@accept_fields_of(RunSpec)
def advise(
    question: str,
    topology: str | None = None,
    *,
    workers: int | None = None,
    reducers: Sequence[str] | None = None,
    spec: RunSpec | None = None,
    changes: Path | str | Mapping[str, Any] | None = None,
    faster: float | None = None,
    efficiency: float | None = None,
    most_workers: int = MOST_WORKERS,
    progress: ProgressWatcher | None = None,
    gate: Gate = accept_any,
    **options: Any,
) -> Advice:
    """Answer a question about a cluster and a training job; the others are arguments of `s2sim.run`.

    `S2SimError` if it cannot be run as given, or the question lacks an argument.

    Parameters
    ----------
    question : str
        ``best``: the quickest reducer, density and size of buckets with an error below ``max_error``. ``cheapest``: the
        cheapest changes that make the same work shorter. ``largest``: the most workers of which each keeps a share of
        the speed of one. ``frontier``: the combinations of changes that none betters in time, error and price.
        ``flips``: what would change the answer.
    changes : path or dict
        For ``cheapest`` and ``frontier``: what can be changed, and its prices; docs/advise.md has the format.
    faster : float
        For ``cheapest``: the share by which a sample, or a step where mini-batches are not known, has to be shorter.
    efficiency : float
        For ``largest``: the share of the speed of one worker.
    most_workers : int
        For ``largest``: more are not tried.
    """
    base = spec_of(topology, workers, reducers, spec, options)
    if question not in QUESTIONS_TAKE:
        raise OptionError(f"advise {question!r}: the questions are {', '.join(QUESTIONS_TAKE)}")
    if len(base.workers) > 1 or len(base.topologies) > 1:
        raise OptionError("advise is about one cluster: give one topology and one number of workers")
    if question in ("cheapest", "frontier") and len(base.reducers) > 1:
        raise OptionError(f"advise {question}: --reducer is the one in use; others are options of a change")
    watcher = progress or SILENT
    watcher.start(0, "asking")
    runs = advice.Runs(watcher, gate)
    try:
        if question in ("cheapest", "frontier"):
            if changes is None:
                needs = f"advise {question} needs what can be changed"
                raise OptionError(f"{needs}: --changes FILE.toml; docs/advise.md has one")
            scenario: ReducerScenario = resolve_run(base)
            most = max(base.workers)
            known = Changes.load(changes, scenario.all_groups(scenario.ranks_of(most))[1].layout.nodes, most)
            if question == "frontier":
                found = _frontier(base, runs, known)
            else:
                found = _cheapest(base, runs, known, _needed_share(question, "faster", faster, "20%"))
        elif question == "largest":
            found = _largest(base, runs, _needed_share(question, "efficiency", efficiency, "80%"), most_workers)
        else:
            found = _best(base, runs) if question == "best" else _flips(base, runs)
        asked: dict[str, Any] = {"question": question, "spec": base.to_json(), "changes": str(changes)}
        asked |= {"faster": faster, "efficiency": efficiency, "most_workers": most_workers}
        answered = {"measured": ["bytes", "error"], "assumed": ["time: simulated in the runs that it rests on"]}
        return replace(found, provenance=run_record(spec=asked, inputs={}, named=asked, **answered))
    finally:
        watcher.stop()


def _needed_share(question: str, name: str, value: float | str | None, example: str) -> float:
    if value is None:
        raise OptionError(f"advise {question} needs --{name}, for example --{name} {example}")
    if isinstance(value, str) or not 0 < value < 1:
        raise OptionError(f"--{name} {value} must lie between 0 and 100%, for example --{name} {example}")
    return value
