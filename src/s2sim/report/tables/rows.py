"""From result rows to tables: the one place that says which figures are shown."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Column, Grid, figures, tabulate, words
from s2sim.report.tables.texts import (
    UNDEFINED,
    cosine_text,
    error_text,
    factor_text,
    marked_workers,
    rounds_text,
    seconds_text,
    share_text,
)
from s2sim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.collective.link_loads import LinkLoad
    from s2sim.study.measuring.result import Result, Row

_SHOWN_STEPS = 9
_NAMED_FLOWS = 3


def _by_workers(result: Result) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = {}
    for row in result.results:
        groups.setdefault(row.workers, []).append(row)
    return groups


def _name(row: Row) -> str:
    return row.reducer


def _exposed_text(exposed_s: float, work_s: float) -> str:
    """Return the work of a phase that takes time of its own; all of it may hide behind something else."""
    return "hidden" if work_s and not exposed_s else format_seconds(exposed_s)


def _comparison_grid(rows: Sequence[Row]) -> Grid:
    first = "; first step, no feedback" if any(row.steps for row in rows) else ""
    if rows[0].iteration is not None:
        first = ", if all gradients were there at once"
    return tabulate(
        f"{marked_workers(rows[0])}: phases of the slowest rank, and bound{first}",
        rows,
        words("reducer", _name),
        figures("encode", lambda row: _exposed_text(row.time_s.encode, row.encode_work_s)),
        figures("communi-\ncation", lambda row: format_seconds(row.time_s.communication)),
        figures("decode", lambda row: _exposed_text(row.time_s.decode, row.decode_work_s)),
        figures("total", lambda row: format_seconds(row.time_s.total)),
        figures("lower\nbound", lambda row: format_seconds(row.lower_bound_s)),
    )


def _worst_layer_text(row: Row) -> str:
    layer, error = row.error_worst_layer
    return UNDEFINED if row.exact or layer is None else f"{layer} {error_text(error)}"


def comparison_grids(result: Result) -> list[Grid]:
    """Return the table of each number of workers, a line a reducer."""
    return [_comparison_grid(rows) for rows in _by_workers(result).values()]


def errors_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what each reducer that is not exact loses, and where."""
    return [
        tabulate(
            f"{marked_workers(rows[0])}: errors, that of an element over the L2 norm of what is compressed",
            lossy,
            words("reducer", _name),
            figures("cosine", lambda row: cosine_text(row.error.cosine)),
            figures("of com-\npressed", lambda row: error_text(row.error_compressed.relative_l2)),
            figures("largest,\nelement", lambda row: error_text(row.error_compressed_largest)),
            words("worst layer,\nits error", _worst_layer_text),
        )
        for rows in _by_workers(result).values()
        if (lossy := [row for row in rows if not row.exact])
    ]


def bounds_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what theory says of the error of those of which something is known."""
    return [
        tabulate(
            f"{marked_workers(rows[0])}: bounds on the error of an element, by theorem",
            bounded,
            words("reducer", _name),
            figures("largest,\nelement", lambda row: error_text(row.error_compressed_largest)),
            figures("bound\non it", lambda row: error_text(row.error_bound.element if row.error_bound else None)),
            figures("which holds for\nat least, found", _shares_text),
            figures(
                "L2 error\nby law", lambda row: error_text(row.error_bound.relative_l2 if row.error_bound else None)
            ),
        )
        for rows in _by_workers(result).values()
        if (bounded := [row for row in rows if row.error_bound is not None])
    ]


def mechanics_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what each reducer waits for, and what a real library makes of it."""
    return [
        tabulate(
            f"{marked_workers(rows[0])}: rounds that wait for others, the ideal library and {library}",
            rows,
            words("reducer", _name),
            figures("bytes\nratio", lambda row: factor_text(row.ratio)),
            figures("rounds", rounds_text),
            figures(f"host\nsyncs,\nideal,\n{library}", lambda row: f"{row.host_syncs_ideal}, {row.host_syncs_real}"),
            figures("total,\nideal", lambda row: seconds_text(row.total_ideal_s)),
            figures(f"total,\n{library}", lambda row: seconds_text(row.total_real_s)),
            figures(f"sent,\n{library}", lambda row: format_bytes(row.bytes_sent_real_per_rank)),
        )
        for rows in _by_workers(result).values()
        for library in [rows[0].real_library]
    ]


def _shares_text(row: Row) -> str:
    """Return for how many elements a bound holds at least, and for how many it was found to."""
    bound = row.error_bound
    return UNDEFINED if bound is None else f"{share_text(bound.share)}, {share_text(bound.share_found)}"


def _some_steps(count: int) -> list[int]:
    """Return the steps to show: all, or about as many as fit beside each other, the first and last among them.

    >>> _some_steps(3), _some_steps(20)
    ([0, 1, 2], [0, 2, 5, 7, 10, 12, 14, 17, 19])
    """
    if count <= _SHOWN_STEPS:
        return list(range(count))
    return [round(index * (count - 1) / (_SHOWN_STEPS - 1)) for index in range(_SHOWN_STEPS)]


def _residual_text(step: int, row: Row) -> str:
    return error_text(row.steps[step].residual)


def residual_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, the residual norms of all reducers that have residuals, by step."""
    shown = _some_steps(result.spec.steps)
    return [
        tabulate(
            f"{marked_workers(rows[0])}: L2 norm of the residuals over that of the gradients, by step",
            kept,
            words("reducer, with feedback", _name),
            *(figures(f"step {step}", partial(_residual_text, step)) for step in shown),
            figures("trend", lambda row: row.residual_trend or ""),
        )
        for rows in _by_workers(result).values()
        if (kept := [row for row in rows if row.residual_trend is not None])
    ]


def steps_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what changes from the first step of every reducer to its last."""
    return [
        tabulate(
            f"{marked_workers(rows[0])}: first and last of {result.spec.steps} steps",
            [row for row in rows if row.steps],
            words("reducer", _name),
            figures("error,\nfirst step", lambda row: error_text(row.steps[0].error)),
            figures("error,\nlast step", lambda row: error_text(row.steps[-1].error)),
            figures("error of\nall steps' sum", lambda row: error_text(row.steps[-1].error_so_far)),
            figures("total,\nfirst step", lambda row: format_seconds(row.steps[0].total_s)),
            figures("total,\nlast step", lambda row: format_seconds(row.steps[-1].total_s)),
            figures("sent a rank,\nfirst step", lambda row: format_bytes(row.steps[0].bytes_sent_per_rank)),
            figures("sent a rank,\nlast step", lambda row: format_bytes(row.steps[-1].bytes_sent_per_rank)),
        )
        for rows in _by_workers(result).values()
    ]


def collectives_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, every collective of every reducer as it ran."""
    return [
        tabulate(
            f"collectives, {marked_workers(rows[0])}",
            [(row.reducer, item) for row in rows for item in row.collectives],
            words("reducer: what it carries", lambda ran: f"{ran[0]}: {ran[1].label or UNDEFINED}"),
            words("collective", lambda ran: ran[1].kind),
            figures("bytes\na rank", lambda ran: format_bytes(ran[1].bytes)),
            figures("time", lambda ran: format_seconds(ran[1].time_s)),
            words("size known\nfrom data", lambda ran: "yes" if ran[1].size_from_data else "no"),
            words("algorithm", lambda ran: ran[1].algorithm),
            words("why", lambda ran: ran[1].why),
        )
        for rows in _by_workers(result).values()
    ]


def lowering_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what every reducer asks of the library beside what the library executes."""
    return [
        tabulate(
            f"lowering by {result.library}, {marked_workers(rows[0])}; costs: by how much the phase would be "
            "shorter if this alone ran as asked",
            [(row.reducer, item) for row in rows for item in row.lowering],
            words("reducer: what it carries", lambda ran: f"{ran[0]}: {ran[1].call or UNDEFINED}"),
            words("asks for", lambda ran: ran[1].asked),
            words("executed", lambda ran: "as asked" if ran[1].executes == ran[1].asked else ran[1].executes),
            figures("sent a\nrank, ideal", lambda ran: format_bytes(ran[1].bytes_ideal)),
            figures("sent\na rank", lambda ran: format_bytes(ran[1].bytes_sent)),
            figures("time,\nideal", lambda ran: format_seconds(ran[1].time_ideal_s)),
            figures("time", lambda ran: format_seconds(ran[1].time_s)),
            figures("costs", lambda ran: format_seconds(ran[1].gap_s)),
        )
        for rows in _by_workers(result).values()
    ]


def _layer_text(row: Row, layer: str) -> str:
    error = row.error_per_layer[layer]
    return f"{error_text(error.relative_l2)} ({cosine_text(error.cosine)})"


def layers_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, the error of every layer, a column a reducer."""
    return [
        Grid(
            f"relative L2 error (cosine) by layer, {marked_workers(rows[0])}",
            (Column("layer", numeric=False), *(Column(row.reducer) for row in rows)),
            tuple((layer, *(_layer_text(row, layer) for row in rows)) for layer in rows[0].error_per_layer),
        )
        for rows in _by_workers(result).values()
    ]


def links_grid(loads: Sequence[LinkLoad]) -> Grid:
    """Return the busiest links of a collective."""
    return tabulate(
        "busiest links (one direction each)",
        loads,
        words("link", lambda load: load.link),
        figures("bytes", lambda load: format_bytes(load.bytes)),
        figures("utilisation", lambda load: f"{load.utilisation:.1%}"),
        figures("flows", lambda load: str(load.flows)),
        words(
            "most of it from",
            lambda load: ", ".join(f"{flow.src} to {flow.dst}" for flow in load.shared_by[:_NAMED_FLOWS]),
        ),
    )
