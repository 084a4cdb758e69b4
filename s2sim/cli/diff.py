"""``s2sim diff``: what changed between two results, and which input made it."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Any

from s2sim.cli.options import argument, examples, option, takes_tables
from s2sim.cli.output import show_grids, show_line, write_tables
from s2sim.errors import S2SimError
from s2sim.files import read_text

EXAMPLES = examples("s2sim diff before.json after.json", "s2sim diff before.json after.json --csv -")
_MOST_BYTES = 2**28


@takes_tables()
def diff_command(
    a: str = argument("A.json", "A result that --json wrote.", default=...),
    b: str = argument("B.json", "Another, of the same command.", default=...),
    most: int = option("N", "Figures that are shown, those that changed most first.", default=30, minimum=1),
) -> None:
    """Show which inputs differ between two results, and which figures: their values and the ratio of B to A."""
    from s2sim.report.differences import compare_results
    from s2sim.report.grid import table_grid
    from s2sim.tables import Table

    inputs, figures = compare_results(_read(a), _read(b))
    if not write_tables(lambda: Table(figures.columns, inputs.rows + figures.rows)):
        return
    for title, table in (("inputs that differ", inputs), ("figures that differ", figures)):
        if not table.rows:
            show_line(f"No {title}.")
            continue
        # Sentences follow from figures; --csv has them too.
        numbers = [row for row in table.rows if row["b_over_a"] is not None]
        ordered = sorted(numbers, key=_change, reverse=True) if table is figures else list(table.rows)
        show_grids([table_grid(Table(table.columns, tuple(ordered[:most])), title)])
        if len(table.rows) > most:
            show_line(f"{len(table.rows) - min(most, len(ordered))} more: --csv - has all.")


def _change(row: dict[str, Any]) -> float:
    ratio = row["b_over_a"]
    return 0.0 if ratio is None else abs(ratio) if abs(ratio) >= 1 or ratio == 0 else 1 / abs(ratio)


def _read(path: str) -> dict[str, Any]:
    try:
        value = json_module.loads(read_text(Path(path), noun="the result", most_bytes=_MOST_BYTES))
    except json_module.JSONDecodeError as error:
        raise S2SimError(f"{path} is not JSON: {error.msg} at line {error.lineno}") from None
    if not isinstance(value, dict) or "schema_version" not in value:
        raise S2SimError(f"{path} is no result of s2sim: write one with --json FILE")
    return value
