"""Times over several numbers of workers: a table of reducers and numbers of workers."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Column, Grid
from s2sim.report.tables.iteration_parts import scaling_efficiencies
from s2sim.report.tables.texts import REFUSED, factor_text, marked_workers, reason_lines, refused_lines
from s2sim.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.measuring.result import Result, Row
    from s2sim.study.measuring.verdict_row import Verdict


def scaling_grid(result: Result) -> tuple[Grid, list[str]]:
    """Return how time and speed-up change with the number of workers; what can win with none of them; what refuses."""
    counts = list(dict.fromkeys(row.workers for row in result.results))
    found: dict[str, dict[int, Row]] = {row.reducer: {} for row in result.results}
    found |= {each.reducer: {} for each in result.refused if each.reducer not in found}
    for row in result.results:
        found[row.reducer][row.workers] = row
    complete = {name: rows for name, rows in found.items() if len(rows) == len(counts)}
    as_dense = [name for name, rows in complete.items() if all(map(_is_as_dense, rows.values()))]
    # As with one number of workers, the fastest first; with most of them, where they differ.
    order = sorted(found, key=lambda name: _time_s(found[name].get(max(counts))))
    shown = {name: found[name] for name in order if name not in as_dense}
    verdicts = {verdict.workers: verdict for verdict in result.verdicts}
    never = {name: why for name, rows in shown.items() if (why := _why_never(list(rows.values())))}
    titles = {row.workers: marked_workers(row).replace(", ", ",\n") for row in result.results}
    simulated = all(row.iteration is not None for row in result.results)
    shares = {name: scaling_efficiencies(rows.values()) if simulated else {} for name, rows in shown.items()}
    efficiency = f", throughput of a worker over that of {min(counts)}" if simulated else ""
    grid = Grid(
        f"scaling: time of {unit_of(result.results)}, speed-up over dense{efficiency}",
        (Column("reducer", numeric=False), *(Column(titles[count]) for count in counts)),
        tuple(
            (name, *(_cell(rows.get(count), verdicts[count], shares[name].get(count)) for count in counts))
            for name, rows in shown.items()
        ),
        faint=frozenset(place for place, (name, rows) in enumerate(shown.items()) if name in never or not rows),
    )
    return grid, [*reason_lines(never), *as_dense_lines(as_dense), *refused_lines(result.refused)]


def _time_s(row: Row | None) -> float:
    return inf if row is None or row.judgement is None else row.judgement.time_s


def as_dense_lines(names: Sequence[str]) -> list[str]:
    """Return the line that stands for all rows that equal dense; none for none."""
    return [f"As dense does: {', '.join(names)}."] if names else []


def _is_as_dense(row: Row) -> bool:
    return row.judgement is not None and row.judgement.as_dense


def unit_of(rows: Sequence[Row]) -> str:
    """Return in words what times are compared."""
    unit = "communication" if rows[0].iteration_s is None else "an iteration"
    return f"{unit}, median step" if any(row.steps for row in rows) else unit


def _cell(row: Row | None, verdict: Verdict, efficiency: float | None) -> str:
    if row is None:
        return REFUSED
    judgement = row.judgement
    assert judgement is not None
    best = verdict.decision != "undecided" and row.reducer == verdict.best
    scaling = "" if efficiency is None else f", {round(100 * efficiency)}%"
    return f"{'*' if best else ''}{format_seconds(judgement.time_s)}, {factor_text(judgement.speedup)}{scaling}"


def _why_never(rows: Sequence[Row]) -> str | None:
    """Return why a reducer is rejected with every number of workers; None where it is not with one."""
    reasons = [None if row.judgement is None else row.judgement.rejected for row in rows]
    return None if None in reasons or not reasons else reasons[-1]
