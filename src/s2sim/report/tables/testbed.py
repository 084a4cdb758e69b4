"""Times measured on testbeds, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from s2sim.report.tables.grid import figures, tabulate, words
from s2sim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.report.tables.grid import Column, Grid
    from s2sim.testbed.measured import Timed
    from s2sim.testbed.measured_folder import MeasuredTestbeds

    _Figures: TypeAlias = tuple[Column, Callable[[Timed], str]]


def measured_grids(found: MeasuredTestbeds) -> list[Grid]:
    """Return a table for each kind of which there are rows."""
    tables = (
        ("Collectives between processes", found.collectives),
        ("Reducers between processes", found.reducers),
        ("Iterations: computing, then reducing", found.iterations),
    )
    return [_grid(title, rows) for title, rows in tables if rows]


def measured_lines(found: MeasuredTestbeds) -> list[str]:
    """Return what one has to know to read the tables."""
    lines = ["From the instant at which all ranks begin until the last is done; CPU: of all processes together."]
    asleep = [setting.name for setting in found.settings if setting.workers > setting.processors]
    if found.iterations and asleep:
        lines.append(
            f"Workers of {', '.join(asleep)} slept instead of computing, because they outnumber the processors."
        )
    return lines


def _grid(title: str, rows: tuple[Timed, ...]) -> Grid:
    codec: list[_Figures] = (
        [figures("codec", lambda row: format_seconds(row.codec_s))] if any(row.codec_s for row in rows) else []
    )
    compute: list[_Figures] = (
        [figures("compute", lambda row: format_seconds(row.compute_s))] if rows[0].compute_s else []
    )
    return tabulate(
        title,
        rows,
        words("setting", lambda row: row.setting),
        words("what", lambda row: row.what),
        figures("buffer", lambda row: format_bytes(row.payload_bytes)),
        *compute,
        figures("median", lambda row: format_seconds(row.median_s)),
        figures("P10", lambda row: format_seconds(row.low_s)),
        figures("P90", lambda row: format_seconds(row.high_s)),
        *codec,
        figures("sent", lambda row: format_bytes(row.sent_bytes)),
        figures("CPU", lambda row: format_seconds(row.cpu_s)),
        figures("repeats", lambda row: str(row.repeats)),
    )
