"""The comparison of codecs as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.grid import Column, Grid
from s2sim.report.rows import UNDEFINED, error_text, factor_text, workers_text
from s2sim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.result import Row


def compare_grid(rows: Sequence[Row], by_bytes: frozenset[str], by_time: frozenset[str]) -> Grid:
    """Return the table of one number of workers, with a star where nothing else has less error for as little."""
    columns = (
        Column("reducer", numeric=False),
        Column("relative\nL2 error"),
        Column("error of\ncom-\npressed"),
        Column("its\nlargest\nelement"),
        Column("bound on\nmost\nelements"),
        Column("payload\na rank"),
        Column("sent\na rank"),
        Column("best\nby bytes"),
        Column("total,\nideal"),
        Column(f"total,\n{rows[0].real_library}"),
        Column("best\nby time"),
        Column("speed-\nup"),
        Column("rounds"),
        Column("host\nsyncs"),
    )
    mark = "" if rows[0].extrapolated is None else ", extrapolated"
    return Grid(
        f"{workers_text(rows[0].workers)}{mark}; best: none has a smaller error for as little; errors over L2 norms",
        columns,
        tuple(
            (
                row.option_string,
                error_text(row.error.relative_l2),
                error_text(row.error_compressed.relative_l2),
                error_text(row.error_compressed.largest),
                UNDEFINED if row.bound is None else error_text(row.bound.element),
                format_bytes(row.payload_bytes_per_rank),
                format_bytes(row.bytes_sent_per_rank),
                "*" if row.option_string in by_bytes else "",
                format_seconds(row.total_ideal_s),
                format_seconds(row.total_real_s),
                "*" if row.option_string in by_time else "",
                factor_text(row.speedup_vs_dense),
                f"{row.rounds_before_gradient}+{row.rounds}" if row.rounds_before_gradient else str(row.rounds),
                str(row.host_syncs),
            )
            for row in rows
        ),
    )
