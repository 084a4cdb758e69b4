"""``s2sim results``: the rows of a sweep, filtered, sorted, pivoted, drawn, and written as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from s2sim.cli.options import (
    CsvOption,
    JsonOption,
    LatexOption,
    ParquetOption,
    argument,
    check_targets,
    examples,
    option,
)
from s2sim.cli.output import STDOUT, show_grids, show_line, write_json, write_table

EXAMPLES = examples(
    "s2sim results rates",
    "s2sim results rates --csv -",
    "s2sim results rates --where \"reducer == 'union' and speedup_vs_dense > 1.5\" --sort total_s",
    "s2sim results rates --rows workers --columns reducer --value speedup_vs_dense",
    "s2sim results rates --cell 3 --json -",
)


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
    csv: CsvOption = None,
    parquet: ParquetOption = None,
    latex: LatexOption = None,
    json: JsonOption = None,
) -> None:
    """Show the finished cells of a sweep: a row a cell and reducer, with a column for each axis.

    Units stand in the names of columns; speedup_vs_dense and relative_l2 are ratios.
    """
    from s2sim.report.sweep_tables import table_grid
    from s2sim.sweep.results import SweepResult

    check_targets(csv=csv, json=json, parquet=parquet, latex=latex)
    result = SweepResult.load(folder)
    if cell is not None:
        write_json(result.details(cell), json or STDOUT)
        return
    table = result.table.select(where, sort)
    value = value or "speedup_vs_dense"
    if rows is not None:
        table = table.pivot(rows, columns or "reducer", value)
    write_table(table, csv=csv, parquet=parquet, latex=latex)
    if json is not None:
        write_json(replace(result, table=table).to_json(), json)
    if STDOUT not in (csv, json, latex):
        title = f"{value} by {rows}" if rows is not None else f"{len(table.rows)} rows of {result.path.parent}"
        show_grids([table_grid(table, title, None if rows is None else value)])
        if missing := result.counts.get("missing", 0):
            show_line(f"{missing} cells are not computed yet: run the sweep again.")
