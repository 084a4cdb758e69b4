"""The comparison of codecs as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Column, Grid
from s2sim.report.tables.rows import UNDEFINED, error_text, factor_text, marked_workers, rounds_text
from s2sim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.measuring.result import Row


def compare_grid(rows: Sequence[Row], by_bytes: frozenset[str], by_time: frozenset[str]) -> Grid:
    """Return the table of one number of workers, with a star where nothing else has less error for as little."""
    alone = rows[0].workers == 1
    # Stars stand where the time is that of the library asked for.
    ideal = all(row.total_s == row.total_ideal_s for row in rows)
    columns = (
        Column("reducer", numeric=False),
        Column("relative\nL2 error"),
        Column("error of\ncom-\npressed"),
        Column("its\nlargest\nelement"),
        Column("bound on\nmost\nelements"),
        Column("payload\na rank" if alone else "sent\na rank"),
        Column("total,\nideal"),
        Column(f"total,\n{rows[0].real_library}"),
        Column("speed-\nup"),
        Column("rounds"),
        Column("host\nsyncs"),
    )
    return Grid(
        f"{marked_workers(rows[0])}; *: none has a smaller error for as little; errors over L2 norms",
        columns,
        tuple(
            (
                row.option_string,
                error_text(row.error.relative_l2),
                error_text(row.error_compressed.relative_l2),
                error_text(row.error_compressed.largest),
                UNDEFINED if row.bound is None else error_text(row.bound.element),
                _starred(format_bytes(row.payload_bytes_per_rank if alone else row.bytes_sent_per_rank), row, by_bytes),
                _starred(format_seconds(row.total_ideal_s), row, by_time if ideal else frozenset()),
                _starred(format_seconds(row.total_real_s), row, frozenset() if ideal else by_time),
                factor_text(row.speedup_vs_dense),
                rounds_text(row),
                str(row.host_syncs),
            )
            for row in rows
        ),
    )


def _starred(text: str, row: Row, best: frozenset[str]) -> str:
    return f"* {text}" if row.option_string in best else text
