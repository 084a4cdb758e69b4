"""The comparison of codecs as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Grid, figures, tabulate, words
from s2sim.report.tables.texts import error_text, factor_text, marked_workers, rounds_text, seconds_text
from s2sim.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.measuring.result import Row


def compare_grid(rows: Sequence[Row], by_bytes: frozenset[str], by_time: frozenset[str]) -> Grid:
    """Return the table of one number of workers, with a star where nothing else has less error for as little."""
    alone, library = rows[0].workers == 1, rows[0].real_library
    # Stars stand where the time is that of the library asked for.
    ideal = all(row.time_s.total == row.total_ideal_s for row in rows)
    by_ideal, by_real = (by_time, frozenset[str]()) if ideal else (frozenset[str](), by_time)
    return tabulate(
        f"{marked_workers(rows[0])}; *: none has a smaller error for as little; errors over L2 norms",
        rows,
        words("reducer", lambda row: row.reducer),
        figures("relative\nL2 error", lambda row: error_text(row.error.relative_l2)),
        figures("error of\ncom-\npressed", lambda row: error_text(row.error_compressed.relative_l2)),
        figures("its\nlargest\nelement", lambda row: error_text(row.error_compressed_largest)),
        figures(
            "bound on\nmost\nelements", lambda row: error_text(row.error_bound.element if row.error_bound else None)
        ),
        figures(
            "payload\na rank" if alone else "sent\na rank",
            lambda row: _starred(
                format_bytes(row.payload_bytes_per_rank if alone else row.bytes_sent_per_rank), row, by_bytes
            ),
        ),
        figures("total,\nideal", lambda row: _starred(seconds_text(row.total_ideal_s), row, by_ideal)),
        figures(f"total,\n{library}", lambda row: _starred(seconds_text(row.total_real_s), row, by_real)),
        figures("speed-\nup", lambda row: factor_text(row.speedup_vs_dense)),
        figures("rounds", rounds_text),
        figures("host\nsyncs", lambda row: str(row.host_syncs)),
    )


def _starred(text: str, row: Row, best: frozenset[str]) -> str:
    return f"* {text}" if row.reducer in best else text
