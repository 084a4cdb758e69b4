"""Claims of communication, speed and error of S2 Reducer, by what it and its baselines take on a cluster."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING

from s2sim.study.papers.claim import Claim
from s2sim.study.papers.entries.s2_reducer.times import (
    BASELINES,
    CLUSTERS,
    FIRST,
    MODELS,
    TABLES,
    best,
    saved,
    saved_chart,
    saved_table,
    speed_chart,
    speed_table,
    speedup,
    swept,
)
from s2sim.study.papers.judge import IN_RANGE, holds, in_range
from s2sim.study.papers.paper import Part
from s2sim.units import format_ratio

if TYPE_CHECKING:
    from s2sim.study.papers.entries.s2_reducer.times import Times
    from s2sim.study.papers.paper import Effort
    from s2sim.study.progress import Progress

_SAVED, _POINTS, _SPEEDUP = 0.81, 0.05, 1.8
_ABSTRACT = "abstract; model, baseline and network not given"
_NEAR = f"reproduced where ours is within {100 * _POINTS:.0f} points of 81 %"
_AUTHORS, _REPAIRED, _EXACT = "S2, authors", "S2, repaired", "S2, exact"


def in_time(_effort: Effort, progress: Progress) -> Part:
    """Return these claims, with the times behind them."""
    whole = {name: swept(model, progress, tables_only=False) for name, model in MODELS.items()}
    tables = {name: swept(model, progress, tables_only=True) for name, model in TABLES.items()}
    return Part(
        claims=(*_saving_claims(tables), *_speed_claims(whole), _error_claim(tables)),
        tables=(*starmap(saved_table, tables.items()), *starmap(speed_table, whole.items())),
        pictures=(*starmap(saved_chart, tables.items()), *starmap(speed_chart, whole.items())),
    )


def _saving_claims(tables: dict[str, Times]) -> tuple[Claim, ...]:
    name, times = next(iter(tables.items()))
    every = [saved(each, cluster, _AUTHORS, "dense") for each in tables.values() for cluster in CLUSTERS]
    error = times[FIRST][_AUTHORS].error or 0.0
    over_union = [saved(times, cluster, _AUTHORS, "OmniReduce") for cluster in CLUSTERS]
    return (
        _saving(
            f"81 % less sparse communication: authors' settings against a dense all-reduce of tables ({name}, {FIRST})",
            saved(times, FIRST, _AUTHORS, "dense"),
            f"the one pairing that the timings shipped with the code allow; over all models and rates it is "
            f"{min(every):.0%} to {max(every):.0%}, bought with a relative L2 error of {format_ratio(error, 3)}, more "
            "than sending nothing has",
        ),
        _saving(
            f"the same with sketches whose error is below 1: three rows, four cells a value ({name}, {FIRST})",
            saved(times, FIRST, _REPAIRED, "dense"),
            f"an error of {format_ratio(times[FIRST][_REPAIRED].error or 0.0, 3)} needs more cells than the union has "
            "values",
        ),
        _saving(
            f"the same exactly, by sketches that are peeled: s2-exact ({name}, {FIRST})",
            saved(times, FIRST, _EXACT, "dense"),
            "three rows of 1.3 cells a value give every value back; merged bitmap and packed rows, its baseline "
            f"OmniReduce, save {saved(times, FIRST, 'OmniReduce', 'dense'):.0%} exactly too",
        ),
        _saving(
            f"81 % less than the best of its four baselines: authors' settings ({name}, {FIRST})",
            saved(times, FIRST, _AUTHORS, "OmniReduce"),
            f"merged bitmap and packed rows, exact, take {1e3 * times[FIRST]['OmniReduce'].time_s:.1f} ms; S2's "
            "encoding, decoding and collectives one after the other "
            f"{1e3 * times[FIRST][_AUTHORS].time_s:.1f} ms; at 1 Gb/s S2 saves {over_union[-1]:.0%} of it",
        ),
    )


def _saving(text: str, ours: float, why: str) -> Claim:
    return Claim(text, _ABSTRACT, "81 %", f"{ours:.0%}", holds(abs(ours - _SAVED) <= _POINTS), _NEAR, why)


def _speed_claims(whole: dict[str, Times]) -> tuple[Claim, ...]:
    def over_best(what: str) -> list[float]:
        return [speedup(times, cluster, what, best(times, cluster)) for times in whole.values() for cluster in CLUSTERS]

    each = {
        baseline: [speedup(times, cluster, _AUTHORS, baseline) for times in whole.values() for cluster in CLUSTERS]
        for baseline in BASELINES
    }
    ranges = ", ".join(f"{name} {_range(values)}" for name, values in each.items())
    over_any = [value for values in each.values() for value in values]
    at_first = [speedup(times, FIRST, _AUTHORS, baseline) for times in whole.values() for baseline in BASELINES]
    names = ", ".join(whole)
    return (
        _speed(
            f"1.8 times as fast as some baseline, at some rate: authors' settings ({names})",
            over_any,
            f"over {ranges}; at {FIRST} at most {max(at_first):.2f}x",
        ),
        _speed(
            f"1.8 times as fast as the best of its baselines: authors' settings ({names}, all rates)",
            over_best(_AUTHORS),
            "dense layers are most of what travels, and merging bitmaps and packing rows leaves little to save",
        ),
        _speed(
            f"the same with an error below 1: repaired and exact sketches ({names}, all rates)",
            [*over_best(_REPAIRED), *over_best(_EXACT)],
            "both send more than the rows of the union",
        ),
    )


def _speed(text: str, ours: list[float], why: str) -> Claim:
    return Claim(text, _ABSTRACT, "1.8x", _range(ours), in_range(ours, _SPEEDUP), IN_RANGE, why)


def _range(values: list[float]) -> str:
    return f"{min(values):.2f}x to {max(values):.2f}x"


def _error_claim(tables: dict[str, Times]) -> Claim:
    errors = {name: times[FIRST][_AUTHORS].error or 0.0 for name, times in tables.items()}
    repaired = max(times[FIRST][_REPAIRED].error or 0.0 for times in tables.values())
    return Claim(
        "same accuracy: what authors' settings recover of the tables' sum",
        "abstract; settings of the code",
        "no loss",
        " and ".join(f"{format_ratio(error, 3)} ({name})" for name, error in errors.items()) + " relative L2 error",
        holds(max(errors.values()) < 1),
        "reproduced where the relative L2 error of the aggregate is below 1, which sending nothing has",
        "as many cells as a quarter (GNMT) or a thousandth (LSTM) of one rank's values cannot hold the sum of 16; the "
        "code that was measured never writes what it decodes into the gradient, so that its accuracy tells nothing "
        f"of this; repaired sketches have {repaired:.2g}",
    )
