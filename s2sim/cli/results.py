"""``s2sim results``: the rows of a sweep, filtered, sorted, pivoted, drawn, and written as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from s2sim.cli.options import JSON, PNG, argument, check_targets, examples, option, takes_tables
from s2sim.cli.output import STDOUT, TABLES, show_grids, show_line, write_figure, write_json, write_tables
from s2sim.errors import OptionError
from s2sim.tables import Table
from s2sim.units import format_number_of

if TYPE_CHECKING:
    from s2sim.sweeps.store import SweepResult

EXAMPLES = examples(
    "s2sim results rates",
    "s2sim results rates --csv -",
    "s2sim results rates --where \"reducer == 'union' and speedup_vs_dense > 1.5\" --sort total_s",
    "s2sim results rates --rows workers --columns reducer --value speedup_vs_dense",
    "s2sim results rates --plot workers,speedup_vs_dense --png workers.png",
    "s2sim results rates --cell 3 --json -",
)
# Lines of a table on a terminal.
_MOST_SHOWN = 60
_MOST_REFUSALS = 5


@takes_tables()
def results_command(
    folder: str = argument("FOLDER", "Folder of a sweep.", default=...),
    where: str | None = option(
        "CONDITION", "Rows that meet a condition on the columns, as in a study's [where].", "all"
    ),
    sort: str | None = option("COLUMN", "Order of the rows; -COLUMN for the largest first.", "cell"),
    rows: str | None = option("COLUMN", "Pivot: a line for each value of this column.", "no pivot"),
    columns: str | None = option("COLUMN", "Pivot: a column for each value of this one.", "reducer"),
    value: str | None = option("COLUMN", "Pivot: what stands in the cells.", "speedup_vs_dense"),
    plot: str | None = option(
        "X,Y[,COLOUR]", "Columns to draw, with --png; a line a COLOUR.", "none; a line a reducer"
    ),
    png: str | None = PNG,
    cell: int | None = option("N", "The whole stored result of one cell, as JSON.", "all cells"),
    json: str | None = JSON,
) -> None:
    """Show the finished cells of a sweep: a row a cell and reducer, with a column for each axis.

    Units stand in the names of columns; speedup_vs_dense and relative_l2 are ratios.
    """
    from s2sim.sweeps.store import SweepResult

    written = TABLES.get({})
    check_targets(json=json, png=png, **written)
    _check_together(
        cell=cell, where=where, sort=sort, rows=rows, columns=columns, value=value, plot=plot, png=png, **written
    )
    result = SweepResult.load(folder)
    if cell is not None:
        write_json(result.details(cell), json or STDOUT)
        return
    table = result.table.select(where, sort)
    if plot is not None and png is not None:
        _draw(table, plot, png)
    value = value or "speedup_vs_dense"
    if rows is not None:
        table = table.pivot(rows, columns or "reducer", value)
    write_tables(lambda: table)
    if json is not None:
        write_json(replace(result, table=table).to_json(), json)
    if STDOUT in (json, *written.values()):
        return
    if json is not None or png is not None or any(written.values()):
        show_line(f"{format_number_of(len(table.rows), 'row')} {'written' if png is None else 'drawn'}.")
    else:
        _show(result, table, rows, None if rows is None else value, every=where is not None or sort is not None)


def _check_together(**options: object) -> None:
    """Refuse options that change nothing beside the others."""
    given = [name for name, value in options.items() if value is not None]
    if given[:1] == ["cell"] and len(given) > 1:
        raise OptionError(f"--cell has one whole result, --{given[1]} is of rows: leave one of them out")
    for name, needed in (("columns", "rows"), ("value", "rows"), ("plot", "png"), ("png", "plot")):
        if name in given and needed not in given:
            raise OptionError(f"--{name} changes nothing without --{needed}")
    if "plot" in given and "rows" in given:
        raise OptionError("--plot draws rows, --rows pivots them: leave one of them out")


def _draw(table: Table, plot: str, target: str) -> None:
    from s2sim.report.figures.charts import chart_figure, table_chart

    names = [name.strip() for name in plot.split(",")]
    if len(names) not in (2, 3):
        raise OptionError(f"--plot {plot}: give X,Y or X,Y,COLOUR, for example nic.rate,speedup_vs_dense")
    if len(names) == 2:  # no colour
        names.append("reducer" if any(row["reducer"] for row in table.rows) else "algorithm")
    write_figure(chart_figure(table_chart(table, *map(table.known, names))), target)


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
