"""Tables of scalars on a terminal: figures with the units that stand in the names of columns."""

from __future__ import annotations

from typing import Any

from s2sim.report.grid import Column, Grid
from s2sim.tables import Table
from s2sim.units import format_bytes, format_rate, format_seconds


def table_grid(table: Table, title: str = "", value: str | None = None) -> Grid:
    """Return a table for a terminal; ``value`` names the column whose figures a pivot shows."""
    shown = table.shown()
    first = shown.columns[:1] if value is not None else ()
    return Grid(
        title,
        tuple(Column(name, numeric=shown.is_numeric(name)) for name in shown.columns),
        tuple(
            tuple(_text(name if value is None or name in first else value, row[name]) for name in shown.columns)
            for row in shown.rows
        ),
    )


def _text(column: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if not isinstance(value, float) and not (isinstance(value, int) and "bytes" in column):
        return str(value)
    if column.endswith("_s"):
        return format_seconds(value)
    if column.endswith("_Bps"):
        return format_rate(value)
    return format_bytes(value) if "bytes" in column else f"{value:.4g}"
