"""The first screen of a run: verdict, a table of 80 columns, and reasons of rejection."""

import re
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from textwrap import fill

from rich.console import Console

from s2sim.experiment.row_parts import Refused, Verdict
from s2sim.experiment.rows import Result, Row
from s2sim.files import own_tables
from s2sim.report import format as fmt
from s2sim.report import run_tables
from s2sim.report.grid import Grid, columns_of, continue_names, filled, fold_grid, minimum_width, rich_tables, tabulate
from s2sim.report.run_tables import exchange_text, same_as_dense_lines, scaling_grid, time_scope_text
from s2sim.tables import group_by
from s2sim.units import format_bytes, format_money, format_number_of, format_seconds

_BAR = 12
# Characters of names in tables of communication, and of iterations, which have more columns.
_NAME, _SHORT_NAME, _LONG_NAME = 27, 19, 30
_ERROR = 7
_EIGHTHS = " ▏▎▍▌▋▊▉"
_FULL = "█"
# Reasons of rejection in up to 12 characters, the width of a bar.
_BAD_LAYER = "worse than zeros on "
_SCHEDULE = "dense by another schedule"
_SHORT_REJECTIONS: dict[str, str] = own_tables(__file__, "texts.toml")["short_rejections"]


def _bar(share: float) -> str:
    """Return a bar of up to 12 characters.

    >>> _bar(0.5), _bar(0.01)
    ('██████', '▏')
    """
    eighths = max(1, round(share * _BAR * 8))
    return _FULL * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _rejection_word(row: Row, dense: Row) -> str | None:
    judgement = row.judged
    if row is dense:
        return None
    if judgement.rejected is not None:
        return short_rejection(judgement.rejected)
    if judgement.time_s >= dense.judged.time_s:
        return "slower"
    return "beaten" if judgement.dominated_by is not None else None


def short_rejection(rejected: str) -> str:
    """Return a reason of rejection in up to 12 characters.

    >>> short_rejection("worse than zeros on encoder.weight")
    'a bad layer'
    """
    return next(text for reason, text in _SHORT_REJECTIONS.items() if rejected.startswith(reason))


def answer_grid(rows: Sequence[Row], verdict: Verdict, refused: Sequence[Refused] = ()) -> tuple[Grid, list[str]]:
    """Return the table of one number of workers, the fastest first, and the lines below it."""
    named = {verdict.best, verdict.without_assumption}
    folded = [row for row in rows if row.judged.as_dense and row.reducer not in named]
    shown = sorted((row for row in rows if row not in folded), key=lambda row: row.judged.time_s)
    dense = next(row for row in rows if row.baseline)
    why = {row.reducer: _rejection_word(row, dense) for row in shown}
    chosen = None if verdict.decision == "undecided" else verdict.best
    best = frozenset(place for place, row in enumerate(shown) if row.reducer == chosen)
    simulated = dense.iteration is not None
    # Bars are as long as the times of those that may be chosen.
    longest_s = max(row.judged.time_s for row in shown if why[row.reducer] is None)
    columns = columns_of(
        "answer of iterations" if simulated else "answer",
        marked=lambda row: f"{'*' if shown.index(row) in best else ' '} {row.reducer}",
        error=lambda row: _error_in_seven(fmt.row_error_text(row)),
        word=lambda row: why[row.reducer] or ("" if simulated else _bar(row.judged.time_s / (longest_s or 1.0))),
    )
    grid = tabulate(_answer_title(rows), shown, *columns)
    faint = frozenset(place for place, row in enumerate(shown) if why[row.reducer] is not None)
    reasons = {row.reducer: row.judged.rejected or "" for row in shown}
    explained = {name: reason for name, reason in reasons.items() if reason.startswith((_BAD_LAYER, _SCHEDULE))}
    means = {row.reducer: f"time and bytes are means over {row.period} steps" for row in shown if row.period > 1}
    empty = [""] * (len(grid.columns) - 2)
    missing = tuple((f"  {item.reducer}", *empty, fmt.REFUSED) for item in refused)
    more = frozenset(range(len(shown), len(shown) + len(missing)))
    name = _SHORT_NAME if simulated else _NAME
    return continue_names(replace(grid, rows=grid.rows + missing, faint=faint | more, strong=best), name), [
        *fmt.reason_lines(means | explained),
        *same_as_dense_lines([row.reducer for row in folded]),
        *fmt.refused_lines(refused),
    ]


def pareto_grids(result: Result) -> list[Grid]:
    """Return error, bytes and time of all rows of each number of workers, with stars at the Pareto fronts."""
    from s2sim.experiment.judgement import pareto_fronts

    return [pareto_grid(rows, *pareto_fronts(rows)) for rows in fmt.group_by_workers(result.results).values()]


def pareto_grid(rows: Sequence[Row], by_bytes: frozenset[str], by_time: frozenset[str]) -> Grid:
    """Return the table of one number of workers, with stars at the Pareto fronts in bytes and in time."""
    alone = rows[0].workers == 1

    def starred(text: str, row: Row, front: frozenset[str]) -> str:
        return f"* {text}" if row.reducer in front else text

    def sent(row: Row) -> str:
        return starred(format_bytes(row.payload_bytes_per_rank if alone else row.bytes_sent_per_rank), row, by_bytes)

    def time(row: Row) -> str:
        total_s = row.time_s.total if row.iteration is None else row.iteration.total_s
        return starred(format_seconds(total_s), row, by_time)

    grid = tabulate(
        f"{fmt.workers_with_mark(rows[0])}; *: none has a smaller error for as little",
        sorted(rows, key=lambda row: row.time_s.total),
        *columns_of(
            "pareto",
            {"sent": "payload" if alone else "sent"},
            indented=lambda row: f"  {row.reducer}",
            error=lambda row: _error_in_seven(fmt.row_error_text(row)),
            sent=sent,
            time=time,
        ),
    )
    return continue_names(grid, _LONG_NAME)


def _error_in_seven(error: str) -> str:
    """Return an error in up to seven characters, as many as fit next to the longest names.

    >>> _error_in_seven("1.88e-10"), _error_in_seven("4.01e+03"), _error_in_seven("0.000226"), _error_in_seven("0.0123")
    ('1.9e-10', '4e+03', '0.00023', '0.0123')
    """
    if len(error) <= _ERROR:
        return error
    mark, number = ("~", error[1:]) if error.startswith("~") else ("", error)
    return f"{mark}{float(number):.{1 if mark else 2}g}"


def _answer_title(rows: Sequence[Row]) -> str:
    if rows[0].iteration is not None:
        title = f"{fmt.workers_with_mark(rows[0])}: time of {time_scope_text(rows)}, {exchange_text(rows)}"
        return f"{title}; communication exposed and hidden"
    other = "sent, error: first step" if any(row.steps for row in rows) else "sent: by the busiest rank"
    return f"{fmt.workers_with_mark(rows[0])}: time of {time_scope_text(rows)}; {other}"


def break_even_grids(result: Result) -> list[Grid]:
    """Return the rates, mini-batches and numbers of workers at which each reducer pays, if they are known."""
    verdict = result.verdict
    grid = tabulate(
        f"break-even with dense, {fmt.workers_with_mark(result.results[-1])}",
        [*verdict.pays.items(), *((item.reducer, f"pays {item.text}") for item in verdict.pays_over)],
        *columns_of("break-even"),
    )
    return filled(grid)


def details_grids(result: Result) -> list[Grid]:
    """Return the tables that explain an answer: parts, bounds, errors, steps if there are several, break-even rates."""
    of_rows = (run_tables.iteration_grids, run_tables.comparison_grids, run_tables.mechanics_grids)
    of_errors = (run_tables.errors_grids, run_tables.bounds_grids, run_tables.residual_grids)
    many = (*of_rows, *of_errors, run_tables.steps_grids, break_even_grids)
    return [grid for grids in many for grid in grids(result)]


_COLUMNS = 80
# Reducers that need no explanation.
_KNOWN = ("dense", "fp16")


def verdict_lines(result: Result) -> list[str]:
    """Return the recommendation for each number of workers, and all lines on the largest."""
    first, *others = result.verdict.lines
    others += alternative_lines(result)
    if len(result.verdicts) == 1:
        return [first, *others]
    by_text = group_by(result.verdicts, lambda verdict: verdict.lines[0])
    lines = []
    for line, same in by_text.items():
        *most, last = (verdict.workers for verdict in same)
        counts = f"{', '.join(map(str, most))}{' and ' if most else ''}{fmt.workers_text(last)}"
        lines.append(f"{counts}: {line}")
    return [*lines, *others]


# Factors of more are shown as 1.00.
_SEEN = 0.995


def alternative_lines(result: Result) -> list[str]:
    """Return what the same question gives without faults, and on other hardware."""
    workers = max(row.workers for row in result.results)
    here = {row.reducer: row.judged.time_s for row in result.results if row.workers == workers}
    dense = next(row.reducer for row in result.results if row.baseline)
    lines = []
    for each in result.alternatives:
        named = dict.fromkeys([dense, result.verdict.best, each.best])
        times = ", ".join(f"{name} {format_seconds(each.time_s[name])}" for name in named if name in each.time_s)
        if each.overrides == result.spec.overrides:
            factors = {name: here[name] / time_s for name, time_s in each.time_s.items() if time_s}
            costs = ", ".join(f"{name} {fmt.factor_text(factor)}" for name, factor in factors.items())
            # Rounds in step leave shared links idle while all wait for latencies.
            quick = min(factors.values(), default=1) < _SEEN
            quicker = "; below 1.00x ranks out of step, or another choice of the library, are quicker" if quick else ""
            lines.append(f"Without the faults: {times}; with them each takes as many times as long: {costs}{quicker}.")
        else:
            own = f"{result.verdict.best} {format_seconds(here[result.verdict.best])}"
            best = each.best if each.decision == "use" else each.decision
            there = each.name if each.batch is None else f"{each.name} and the mini-batch of {each.batch} as here"
            lines.append(f"With {there}: {times} (the answer there: {best}); here {own}.")
    return lines


def result_table(result: Result) -> tuple[Grid, list[str]]:
    """Return the table of reducers, or of times if there are several numbers of workers; and the lines below it."""
    if len(result.verdicts) > 1:
        return scaling_grid(result)
    return answer_grid(result.results, result.verdict, result.refused)


def about_lines(result: Result, *, details: bool = False) -> list[str]:
    """Return the cluster and the gradients; in detail with all that is known of the cluster, and its machines."""
    if not details:
        # Nodes, links and interfaces, without the fabric.
        parts, _, assumed = result.cluster.partition("; ")
        cluster = "; ".join(filter(None, (", ".join(re.split(r", (?![^(]*\))", parts)[:2]), assumed)))
        best = next(row.name for row in result.results if row.reducer == result.verdict.best)
        # What follows a colon says how exact it is and in how many rounds, as other columns do.
        summary = result.verdict.best_summary.partition(":")[0]
        lines = [f"{best}: {summary}."] if summary and best not in _KNOWN else []
        return [*lines, f"{cluster}.", *price_lines(result), result.gradients.short_sentence()]
    machines = f"{result.machines[0].upper()}{result.machines[1:]}."
    return [result.cluster, machines, *price_lines(result), result.gradients.sentence()]


def price_lines(result: Result) -> list[str]:
    """Return what the largest number of workers costs for an hour, and steps with dense and the first choice."""
    if not result.prices:
        return []
    cost = max(result.prices, key=lambda each: each.workers)
    rows = [row for row in result.results if row.workers == cost.workers]
    named = [row for row in rows if row.baseline or row.reducer == result.verdict.best]
    each = (f"{format_money(cost.of_steps(row.judged.time_s), cost.currency)} with {row.reducer}" for row in named)
    what = "iterations" if rows[0].time_s.iteration is not None else "exchanges"
    hour = f"{format_money(cost.per_hour, cost.currency)} an hour for {format_number_of(cost.nodes, 'node')}"
    return [f"Price: {hour}; 1,000 {what} cost {', '.join(each)}."]


def result_text(result: Result) -> str:
    """Return the first screen as plain text of 80 columns."""
    grid, below = result_table(result)
    return lines_text(verdict_lines(result), [grid], [*below, *about_lines(result), *fmt.note_lines(result.caveats)])


def lines_text(before: Sequence[str], grids: Sequence[Grid], after: Sequence[str]) -> str:
    """Return lines, tables and lines as plain text, 80 columns wide unless a table needs more."""
    lines = list(map(_wrap_line, before))
    for grid in grids:
        stream, folded = StringIO(), fold_grid(grid, _COLUMNS)
        console = Console(file=stream, width=max(_COLUMNS, minimum_width(folded)), highlight=False, color_system=None)
        for table in rich_tables(folded, _COLUMNS):
            console.print()
            console.print(table)
        lines += (line.rstrip() for line in stream.getvalue().splitlines())
    return "\n".join([*lines, *map(_wrap_line, after)])


def _wrap_line(line: str) -> str:
    # Continued lines are indented like the text after the label.
    label = re.match(r"\s+(\S+( \S+)*\s{2,})?", line)
    indent = " " * (0 if label is None else label.end())
    return fill(line, _COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
