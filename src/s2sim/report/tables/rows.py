"""From result rows to tables: the one place that says which figures are shown and how they are written."""

from __future__ import annotations

from math import floor, isfinite
from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Column, Grid
from s2sim.units import format_bytes, format_rate, format_seconds
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.study.collective.link_loads import LinkLoad
    from s2sim.study.measuring.result import Result, Row

UNDEFINED = "-"


def factor_text(value: float | None) -> str:
    """Return a ratio for reading.

    >>> factor_text(1.234), factor_text(250.0), factor_text(None)
    ('1.23x', '250x', '-')
    """
    if value is None or not isfinite(value):
        return UNDEFINED if value is None else "inf"
    return f"{value:.2f}x" if value < 100 else f"{value:.0f}x"


def error_text(value: float | None) -> str:
    """Return a relative error for reading.

    >>> error_text(0.012345), error_text(0.0)
    ('0.0123', '0')
    """
    return UNDEFINED if value is None else f"{value:.3g}"


def cosine_text(value: float | None) -> str:
    """Return a cosine for reading.

    >>> cosine_text(0.99999)
    '1.0000'
    """
    return UNDEFINED if value is None else f"{value:.4f}"


def rates_text(rate_Bps: float | None) -> str:
    """Return a rate in bytes and in bits a second.

    >>> rates_text(12.5e9)
    '12.5 GB/s (100 Gbps)'
    """
    return UNDEFINED if rate_Bps is None else f"{format_bytes(rate_Bps)}/s ({format_rate(rate_Bps)})"


_COMPARISON: tuple[tuple[Column, Callable[[Row], str]], ...] = (
    (Column("reducer", numeric=False), lambda row: row.option_string),
    (Column("encode"), lambda row: format_seconds(row.encode_s)),
    (Column("communi-\ncation"), lambda row: format_seconds(row.communication_s)),
    (Column("decode"), lambda row: format_seconds(row.decode_s)),
    (Column("total"), lambda row: format_seconds(row.total_s)),
    (Column("sent\nper rank"), lambda row: format_bytes(row.bytes_sent_per_rank)),
    (Column("bytes\nratio"), lambda row: factor_text(row.ratio)),
    (Column("relative\nL2 error"), lambda row: error_text(row.error.relative_l2)),
    (Column("cosine"), lambda row: cosine_text(row.error.cosine)),
    (Column("error of\ncom-\npressed"), lambda row: error_text(row.error_compressed.relative_l2)),
    (Column("lower\nbound"), lambda row: format_seconds(row.lower_bound_s)),
    (Column("speed-\nup"), lambda row: factor_text(row.speedup_vs_dense)),
)
_ITERATION = Column("iteration")


def workers_text(count: int) -> str:
    """Return a number of workers for reading."""
    return number_of(count, "worker")


def marked_workers(row: Row) -> str:
    """Return the number of workers of a row, with a mark where the row goes beyond what was recorded."""
    return f"{workers_text(row.workers)}{'' if row.extrapolated is None else ', extrapolated'}"


def _by_workers(result: Result) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = {}
    for row in result.rows:
        groups.setdefault(row.workers, []).append(row)
    return groups


def _compared(row: Row) -> str:
    """Return whose times the speed-up is a ratio of."""
    return "communication phases" if row.iteration_s is None else "iterations"


def _comparison_grid(rows: Sequence[Row]) -> Grid:
    columns = list(_COMPARISON)
    if rows[0].iteration_s is not None:
        columns.insert(-1, (_ITERATION, lambda row: format_seconds(row.iteration_s or 0.0)))
    title = f"{marked_workers(rows[0])}; lower bound: of communication; speed-up: of {_compared(rows[0])} over dense"
    return Grid(title, tuple(column for column, _ in columns), tuple(tuple(f(row) for _, f in columns) for row in rows))


def comparison_grids(result: Result) -> list[Grid]:
    """Return the table of each number of workers, a line a reducer."""
    return [_comparison_grid(rows) for rows in _by_workers(result).values()]


def rounds_text(row: Row) -> str:
    """Return the rounds of a row, those before the gradient apart."""
    return f"{row.rounds_before_gradient}+{row.rounds}" if row.rounds_before_gradient else str(row.rounds)


def _bound_text(row: Row) -> tuple[str, str]:
    """Return a bound on the error of an element, and for how many it holds at least and was found to."""
    if row.bound is None:
        return (UNDEFINED,) * 2
    bound = row.bound
    return error_text(bound.element), f"{_share_text(bound.share)}, {_share_text(bound.share_found)}"


def _share_text(share: float) -> str:
    """Return a share for reading, never rounded up to all.

    >>> _share_text(1.0), _share_text(0.99996), _share_text(0.741)
    ('all', '99.99%', '74.10%')
    """
    return "all" if share == 1 else f"{floor(share * 1e4) / 1e2:.2f}%"


def _mechanics_grid(rows: Sequence[Row]) -> Grid:
    library = rows[0].real_library
    columns = (
        Column("reducer", numeric=False),
        Column("rounds"),
        Column(f"host syncs,\nideal,\n{library}"),
        Column("total,\nideal"),
        Column(f"total,\n{library}"),
        Column(f"sent a rank,\n{library}"),
        Column("largest\nerror of an\nelement"),
        Column("bound\non it"),
        Column("which holds for\nat least, found"),
        Column("L2 error\nby law"),
    )
    return Grid(
        f"{marked_workers(rows[0])}; rounds: messages of the reducer that wait for others; errors of the compressed "
        "over their L2 norm",
        columns,
        tuple(
            (
                row.option_string,
                rounds_text(row),
                f"{row.host_syncs_ideal}, {row.host_syncs_real}",
                format_seconds(row.total_ideal_s),
                format_seconds(row.total_real_s),
                format_bytes(row.bytes_sent_real_per_rank),
                error_text(row.error_compressed.largest),
                *_bound_text(row),
                error_text(None if row.bound is None else row.bound.relative_l2),
            )
            for row in rows
        ),
    )


def mechanics_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what each reducer waits for, what a real library makes of it, and bounds."""
    return [_mechanics_grid(rows) for rows in _by_workers(result).values()]


_SHOWN_STEPS = 9


def _some_steps(count: int) -> list[int]:
    """Return the steps to show: all, or about as many as fit beside each other, the first and last among them.

    >>> _some_steps(3), _some_steps(20)
    ([0, 1, 2], [0, 2, 5, 7, 10, 12, 14, 17, 19])
    """
    if count <= _SHOWN_STEPS:
        return list(range(count))
    return [round(index * (count - 1) / (_SHOWN_STEPS - 1)) for index in range(_SHOWN_STEPS)]


def residual_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, the residual norms of all reducers that have residuals, by step."""
    shown = _some_steps(result.spec.steps)
    return [
        Grid(
            f"{marked_workers(rows[0])}: L2 norm of the residuals over that of the gradients, by step",
            (
                Column("reducer, with ef=true", numeric=False),
                *(Column(f"step {step}") for step in shown),
                Column("trend"),
            ),
            tuple(
                (row.option_string, *(error_text(row.steps[step].residual) for step in shown), row.residual_trend or "")
                for row in rows
                if row.residual_trend is not None
            ),
        )
        for count, rows in _by_workers(result).items()
        if any(row.residual_trend is not None for row in rows)
    ]


def steps_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what changes from the first step of every reducer to its last."""
    columns = (
        Column("reducer", numeric=False),
        Column("error,\nfirst step"),
        Column("error,\nlast step"),
        Column("error of\nall steps' sum"),
        Column("total,\nfirst step"),
        Column("total,\nlast step"),
        Column("sent a rank,\nfirst step"),
        Column("sent a rank,\nlast step"),
    )
    return [
        Grid(
            f"{marked_workers(rows[0])}: first and last of {result.spec.steps} steps",
            columns,
            tuple(
                (
                    row.option_string,
                    error_text(row.steps[0].error),
                    error_text(row.steps[-1].error),
                    error_text(row.steps[-1].error_so_far),
                    format_seconds(row.steps[0].total_s),
                    format_seconds(row.steps[-1].total_s),
                    format_bytes(row.steps[0].bytes_sent_per_rank),
                    format_bytes(row.steps[-1].bytes_sent_per_rank),
                )
                for row in rows
                if row.steps
            ),
        )
        for count, rows in _by_workers(result).items()
    ]


def scaling_grid(result: Result) -> Grid:
    """Return how total time and speed-up change with the number of workers, a line a reducer."""
    groups = _by_workers(result)
    reducers = list(dict.fromkeys(row.option_string for row in result.rows))
    cells = {
        (row.option_string, row.workers): f"{format_seconds(row.total_s)}, {factor_text(row.speedup_vs_dense)}"
        for row in result.rows
    }
    return Grid(
        f"scaling: total time of the communication phase, speed-up of {_compared(result.rows[0])} over dense",
        (
            Column("reducer", numeric=False),
            *(Column(marked_workers(rows[0]).replace(", ", ",\n")) for rows in groups.values()),
        ),
        tuple((name, *(cells[name, count] for count in groups)) for name in reducers),
    )


def collectives_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, every collective of every reducer as it ran."""
    columns = (
        Column("reducer: what it carries", numeric=False),
        Column("collective", numeric=False),
        Column("bytes\na rank"),
        Column("time"),
        Column("size known\nfrom data", numeric=False),
        Column("algorithm", numeric=False),
        Column("why", numeric=False),
    )
    return [
        Grid(
            f"collectives, {marked_workers(rows[0])}",
            columns,
            tuple(
                (
                    f"{row.option_string}: {item.label or UNDEFINED}",
                    item.kind,
                    format_bytes(item.bytes),
                    format_seconds(item.time_s),
                    "yes" if item.size_from_data else "no",
                    item.algorithm,
                    item.why,
                )
                for row in rows
                for item in row.collectives
            ),
        )
        for count, rows in _by_workers(result).items()
    ]


def lowering_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what every reducer asks of the library beside what the library executes."""
    columns = (
        Column("reducer: what it carries", numeric=False),
        Column("asks for", numeric=False),
        Column("executed", numeric=False),
        Column("sent a\nrank, ideal"),
        Column("sent\na rank"),
        Column("time,\nideal"),
        Column("time"),
        Column("costs"),
    )
    return [
        Grid(
            f"lowering by {result.spec.library}, {marked_workers(rows[0])}; costs: by how much the phase would be "
            "shorter if this alone ran as asked",
            columns,
            tuple(
                (
                    f"{row.option_string}: {item.call or UNDEFINED}",
                    item.asked,
                    "as asked" if item.executes == item.asked else item.executes,
                    format_bytes(item.bytes_ideal),
                    format_bytes(item.bytes_sent),
                    format_seconds(item.time_ideal_s),
                    format_seconds(item.time_s),
                    format_seconds(item.gap_s),
                )
                for row in rows
                for item in row.lowering
            ),
        )
        for count, rows in _by_workers(result).items()
    ]


def _layer_text(row: Row, layer: str) -> str:
    error = row.error_per_layer[layer]
    return f"{error_text(error.relative_l2)} ({cosine_text(error.cosine)})"


def layers_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, the error of every layer, a column a reducer."""
    return [
        Grid(
            f"relative L2 error (cosine) by layer, {marked_workers(rows[0])}",
            (Column("layer", numeric=False), *(Column(row.option_string) for row in rows)),
            tuple((layer, *(_layer_text(row, layer) for row in rows)) for layer in rows[0].error_per_layer),
        )
        for count, rows in _by_workers(result).items()
    ]


_NAMED_FLOWS = 3


def links_grid(loads: Sequence[LinkLoad]) -> Grid:
    """Return the busiest links of a collective."""
    return Grid(
        "busiest links (one direction each)",
        (
            Column("link", numeric=False),
            Column("bytes"),
            Column("utilisation"),
            Column("flows"),
            Column("most of it from", numeric=False),
        ),
        tuple(
            (
                load.link,
                format_bytes(load.bytes),
                f"{load.utilisation:.1%}",
                str(load.flows),
                ", ".join(f"{flow.src} to {flow.dst}" for flow in load.shared_by[:_NAMED_FLOWS]),
            )
            for load in loads
        ),
    )
