"""Claims of communication, speed and error of S2 Reducer, with its baselines on a cluster."""

from collections.abc import Callable
from functools import partial
from itertools import starmap
from typing import TypeAlias

from s2sim.claims import paper
from s2sim.claims.grid import SweepTime, sweep
from s2sim.claims.training_outcomes import TrainingComparison, loop_part, loss_claim
from s2sim.experiment.progress import ProgressWatcher
from s2sim.experiment.rows import ROUNDING_ERROR
from s2sim.experiment.spec import RunSpec
from s2sim.units import format_ratio

# By cluster, then by reducer.
Times: TypeAlias = dict[str, dict[str, SweepTime]]

_TEXTS = paper.PaperTexts("s2-reducer")
_REDUCERS = _TEXTS.figures["reducers"]
_IN_THE_LOOP = tuple(name for name in _REDUCERS if name != "union")
_SAVED, _POINTS, _SPEEDUP = 0.81, 0.05, 1.8


def in_the_loop(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    """Return the accuracy claim for every setting."""
    loop = TrainingComparison(
        "lstm-lm:width=32,sequences=8,length=16", _REDUCERS, workers=4, steps=50, seeds=3, reads_text=True
    ).for_effort(effort)
    return loop_part(loop, progress, _TEXTS, _IN_THE_LOOP, partial(loss_claim, most_share=0.01))


CLUSTERS, BASELINES = _TEXTS.figures["clusters"], _TEXTS.figures["baselines"]
FIRST = "100 Gb/s"
OURS = _AUTHORS_ROW, _REPAIRED_ROW, _EXACT_ROW = "S2, authors", "S2, repaired", "S2, exact"
_ALL = (*BASELINES, *OURS)


def sweep_model(model: str, effort: paper.PaperEffort, progress: ProgressWatcher, *, tables_only: bool) -> Times:
    """Return the times of baselines and S2 for a model, or for its tables alone, at every rate."""
    options = f"s2:preset=authors-{model.partition('-')[0]}", "s2:rows=3,cells=4,warm=true", "s2-exact:warm=true"
    names = {option: name for name, option in zip(_ALL, (*BASELINES.values(), *options), strict=True)}
    spec = RunSpec.of(**_TEXTS.figures["run"], reducers=tuple(names), profile=model)
    return {
        cluster: {names[option]: timed for option, timed in found.items()}
        for cluster, found in sweep(spec, CLUSTERS, effort, progress, tables_only=tables_only).items()
    }


def saved_share(times: Times, cluster: str, what: str, against: str) -> float:
    """Return the saved share of another's communication time."""
    return 1 - times[cluster][what].time_s / times[cluster][against].time_s


def speedup(times: Times, cluster: str, what: str, against: str) -> float:
    """Return the speed-up of an iteration over another's."""
    return times[cluster][against].iteration_s / times[cluster][what].iteration_s


def _saved_views(name: str, times: Times) -> tuple[paper.Table, paper.Chart]:
    """Return communication times of a model's tables, the share that each saves at each rate, and its error."""

    def saved(what: str, cluster: str) -> float:
        return saved_share(times, cluster, what, "dense")

    rows = []
    for what in _ALL:
        cells = (f"{1e3 * times[where][what].time_s:.1f} ms ({saved(what, where):.0%})" for where in CLUSTERS)
        error = times[FIRST][what].error
        exact = error is not None and error <= ROUNDING_ERROR
        rows.append((what, *cells, "exact" if exact else "-" if error is None else format_ratio(error, 3)))
    title = f"{name}: communication of the tables alone, (saved of a dense all-reduce of them)"
    over_rates = f"{name}: communication of the tables saved, against a dense all-reduce of them (published: 81 %)"
    return (
        paper.Table(title, ("", *CLUSTERS, "relative L2 error"), tuple(rows)),
        _chart(over_rates, "saved (%)", _ALL[1:], lambda what, where: 100 * saved(what, where)),
    )


def _speed_views(name: str, times: Times) -> tuple[paper.Table, paper.Chart]:

    def faster(what: str, cluster: str) -> float:
        return speedup(times, cluster, what, "dense")

    rows = tuple(
        (what, *(f"{1e3 * times[where][what].iteration_s:.0f} ms ({faster(what, where):.2f}x)" for where in CLUSTERS))
        for what in _ALL
    )
    title = f"{name}: speed-up of an iteration over dense (published: 1.8x over the state of the art)"
    return (
        paper.Table(f"{name}: iterations of 16 GPUs (times as fast as dense)", ("", *CLUSTERS), rows),
        _chart(title, "times as fast as dense", _ALL, faster),
    )


def _chart(title: str, y: str, names: tuple[str, ...], value: Callable[[str, str], float]) -> paper.Chart:
    rates_Gbps = (100.0, 25.0, 10.0, 1.0)
    lines = tuple(paper.Line(what, rates_Gbps, tuple(value(what, where) for where in CLUSTERS)) for what in names)
    return paper.Chart(title, "rate of an interface (Gb/s)", y, lines, log_x=True)


def in_time(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    """Return these claims, with the times behind them."""
    whole, tables = (
        {name: sweep_model(model, effort, progress, tables_only=only) for name, model in _TEXTS.figures[key].items()}
        for key, only in (("models", False), ("tables", True))
    )
    views = [*starmap(_saved_views, tables.items()), *starmap(_speed_views, whole.items())]
    return paper.PaperPart(
        claims=(*_saving_claims(tables), *_speed_claims(whole), _error_claim(tables)),
        tables=tuple(table for table, _ in views),
        pictures=tuple(chart for _, chart in views),
    )


def _saving_claims(tables: dict[str, Times]) -> tuple[paper.Claim, ...]:
    name, times = next(iter(tables.items()))
    every = [saved_share(each, cluster, _AUTHORS_ROW, "dense") for each in tables.values() for cluster in CLUSTERS]
    first, slowest = times[FIRST], saved_share(times, "1 Gb/s", _AUTHORS_ROW, "OmniReduce")

    merged = saved_share(times, FIRST, "OmniReduce", "dense")
    merged_ms, own_ms = (1e3 * first[what].time_s for what in ("OmniReduce", _AUTHORS_ROW))
    said: dict[str, tuple[str, str, dict[str, float]]] = {
        "saves": (_AUTHORS_ROW, "dense", {"low": min(every), "high": max(every)}),
        "saves-repaired": (_REPAIRED_ROW, "dense", {}),
        "saves-exact": (_EXACT_ROW, "dense", {"merged": merged}),
        "saves-best": (_AUTHORS_ROW, "OmniReduce", {"merged_ms": merged_ms, "own_ms": own_ms, "slowest": slowest}),
    }
    claims = []
    for key, (what, against, figures) in said.items():
        ours, error = saved_share(times, FIRST, what, against), format_ratio(first[what].error or 0.0, 3)
        texts = {"place": f"{name}, {FIRST}", "points": 100 * _POINTS, "error": error}
        claims.append(_TEXTS.claim(key, abs(ours - _SAVED) <= _POINTS, ours=ours, **texts, **figures))
    return tuple(claims)


def _speed_claims(whole: dict[str, Times]) -> tuple[paper.Claim, ...]:
    places = [(times, cluster) for times in whole.values() for cluster in CLUSTERS]

    def over_best(what: str) -> list[float]:
        return [min(speedup(*place, what, baseline) for baseline in BASELINES) for place in places]

    def bounds(values: list[float]) -> str:
        return f"{min(values):.2f}x to {max(values):.2f}x"

    over = {baseline: [speedup(*place, _AUTHORS_ROW, baseline) for place in places] for baseline in BASELINES}
    ranges = ", ".join(f"{name} {bounds(values)}" for name, values in over.items())
    at_first = max(speedup(times, FIRST, _AUTHORS_ROW, baseline) for times in whole.values() for baseline in BASELINES)
    claimed = {
        "faster": [value for values in over.values() for value in values],
        "faster-best": over_best(_AUTHORS_ROW),
        "faster-repaired": [*over_best(_REPAIRED_ROW), *over_best(_EXACT_ROW)],
    }
    figures = {"models": ", ".join(whole), "ranges": ranges, "first": FIRST, "at_first": at_first}
    return tuple(
        _TEXTS.claim(key, paper.judge_within(max(ours), _SPEEDUP), ours=bounds(ours), **figures)
        for key, ours in claimed.items()
    )


def _error_claim(tables: dict[str, Times]) -> paper.Claim:
    errors = {name: times[FIRST][_AUTHORS_ROW].error or 0.0 for name, times in tables.items()}
    repaired = max(times[FIRST][_REPAIRED_ROW].error or 0.0 for times in tables.values())
    ours = " and ".join(f"{format_ratio(error, 3)} ({name})" for name, error in errors.items())
    return _TEXTS.claim("error", max(errors.values()) < 1, ours=ours, repaired=repaired)


PAPER = _TEXTS.paper(paper.on_both_bases(in_time), in_the_loop)
