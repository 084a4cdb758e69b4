"""``s2sim results``: the rows of a sweep, filtered, sorted, pivoted, drawn, and written as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from s2sim.cli.options import JsonOption, argument, examples, option, takes_tables
from s2sim.cli.output import STDOUT, TABLES, show_grids, show_line, write_json, write_tables
from s2sim.tables import Table
from s2sim.units import format_number_of

if TYPE_CHECKING:
    from s2sim.sweeps.results import SweepResult

EXAMPLES = examples(
    "s2sim results rates",
    "s2sim results rates --csv -",
    "s2sim results rates --where \"reducer == 'union' and speedup_vs_dense > 1.5\" --sort total_s",
    "s2sim results rates --rows workers --columns reducer --value speedup_vs_dense",
    "s2sim results rates --cell 3 --json -",
)
# Lines of a table on a terminal.
_MOST_SHOWN = 60
_MOST_REFUSALS = 5


@takes_tables()
def results_command(
    folder: Annotated[str, argument("FOLDER", "Folder of a sweep.")],
    where: Annotated[
        str | None, option("CONDITION", "Rows that meet a condition on the columns, as in a study's [where].", "all")
    ] = None,
    sort: Annotated[str | None, option("COLUMN", "Order of the rows; -COLUMN for the largest first.", "cell")] = None,
    rows: Annotated[str | None, option("COLUMN", "Pivot: a line for each value of this column.", "no pivot")] = None,
    columns: Annotated[str | None, option("COLUMN", "Pivot: a column for each value of this one.", "reducer")] = None,
    value: Annotated[str | None, option("COLUMN", "Pivot: what stands in the cells.", "speedup_vs_dense")] = None,
    cell: Annotated[int | None, option("N", "The whole stored result of one cell, as JSON.", "all cells")] = None,
    json: JsonOption = None,
) -> None:
    """Show the finished cells of a sweep: a row a cell and reducer, with a column for each axis.

    Units stand in the names of columns; speedup_vs_dense and relative_l2 are ratios.
    """
    from s2sim.sweeps.results import SweepResult

    result = SweepResult.load(folder)
    if cell is not None:
        write_json(result.details(cell), json or STDOUT)
        return
    table = result.table.select(where, sort)
    value = value or "speedup_vs_dense"
    if rows is not None:
        table = table.pivot(rows, columns or "reducer", value)
    written = TABLES.get({})
    write_tables(lambda: table)
    if json is not None:
        write_json(replace(result, table=table).to_json(), json)
    if STDOUT in (json, *written.values()):
        return
    if json is not None or any(written.values()):
        show_line(f"{format_number_of(len(table.rows), 'row')} written.")
    else:
        _show(result, table, rows, None if rows is None else value, every=where is not None or sort is not None)


def _show(result: SweepResult, table: Table, rows: str | None, value: str | None, *, every: bool) -> None:
    """Print a pivot, rows, or by default only those that each cell's verdict takes."""
    from s2sim.report.grid import table_grid

    title = f"{value} by {rows}"
    refused: list[dict[str, Any]] = []
    if rows is None:
        title = f"{format_number_of(len(table.rows), 'row')} of {result.path.parent}"
        refused = [row for row in table.rows if row["state"] != "done"]
        kept = tuple(row for row in table.rows if row["state"] == "done" and (every or row["chosen"] is not False))
        if not every:
            title = f"{len(kept)} of {title}: what each cell's verdict takes"
        # Wide tables are in CSV: here is what an answer needs.
        left_out = ("state", "reason", "chosen", "lower_bound_s")
        table = Table(tuple(name for name in table.columns if name not in left_out), kept)
    if table.rows:
        show_grids([table_grid(Table(table.columns, table.rows[:_MOST_SHOWN]), title, value)])
    if len(table.rows) > _MOST_SHOWN:
        show_line(f"{len(table.rows) - _MOST_SHOWN} more rows: --csv - has all, --where selects, --rows pivots.")
    for row in refused[:_MOST_REFUSALS]:
        show_line(f"Cell {row['cell']} {row['state']}: {row['reason']}.")
    if len(refused) > _MOST_REFUSALS:
        show_line(f"{len(refused) - _MOST_REFUSALS} more are in --csv -.")
    if not table.rows and not refused:
        show_line("No row meets the condition.")
    if missing := result.counts.get("missing", 0):
        show_line(f"{missing} cells are not computed yet: run the sweep again.")
