"""``s2sim sweep``: the cells of a study; ``s2sim results``: their rows as tables; ``explore``: with sliders."""

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from importlib import util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from s2sim.cli import INTERRUPTED, output
from s2sim.cli.options import Experiment, check_targets, options_from, takes_tables
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.spec import RunSpec
from s2sim.provenance import content_hash, usable_cores
from s2sim.tables import Table
from s2sim.units import format_number_of

if TYPE_CHECKING:
    from s2sim.sweeps.store import SweepResult
    from s2sim.sweeps.sweep import SweepPlan


def sweep_command(
    *,
    study: str,
    folder: str | None = None,
    out: str | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    shard: str = "1/1",
    html: str | None = None,
    dry_run: bool = False,
    quiet: bool = False,
) -> None:
    """Compute every cell of a study: s2sim run or collective over axes such as workers, rates and reducers.

    Run it again to go on where it was interrupted: what is finished stays, what has changed is computed anew. The
    study's format is in docs/sweeps.md.
    """
    check_targets(html=html)
    if html is not None and dry_run:
        raise OptionError(f"--html {html} is of what was computed, and --dry-run computes nothing: leave one out")
    from s2sim.sweeps.store import SweepResult
    from s2sim.sweeps.study import Study
    from s2sim.sweeps.sweep import merge_shards, store_name, sweep

    if study == "merge":
        if folder is None or out is not None:
            raise OptionError("sweep merge takes the folder of the shards, for example s2sim sweep merge rates")
        _show_end(merge_shards(folder), html, quiet=quiet)
        return
    if folder is not None or out is None:
        raise OptionError("sweep needs a folder for its results, for example s2sim sweep study.toml --out rates")
    number, _, count = shard.partition("/")
    if not (number.isdecimal() and count.isdecimal()):
        raise OptionError(f"--shard {shard}: write I/N, for example 1/4 for the first of four parts")
    part = int(number), int(count)
    if dry_run:
        _show_plan(study, out, part, jobs or usable_cores())
        return
    with suppress(KeyboardInterrupt):
        with output.watching(quiet=quiet) as progress:
            result = sweep(study, out=out, jobs=jobs, dask=dask, shard=part, progress=progress)
        _show_end(result, html, quiet=quiet)
        return
    with suppress(S2SimError):
        own = content_hash(asdict(Study.load(study)))
        _show_end(SweepResult.load(Path(out) / store_name(part), own), html, quiet=True)
    output.show_line(f"Interrupted; s2sim sweep {study} --out {out} goes on.")
    raise typer.Exit(INTERRUPTED)


def _show_plan(study: str, out: str, part: tuple[int, int], processes: int) -> None:
    from s2sim.sweeps.store import SweepStore
    from s2sim.sweeps.study import Study
    from s2sim.sweeps.sweep import plan_sweep, store_name

    path = Path(out) / store_name(part)
    # Nothing is made where there is nothing yet.
    with TemporaryDirectory() as empty, closing(SweepStore(path if path.exists() else Path(empty) / "none")) as store:
        plan: SweepPlan = plan_sweep(Study.load(study), store, part)
    refused = [cell for cell, _ in plan.cells if cell.spec is None]
    left = sum(len(job.cells) for job in plan.jobs)
    taken = f", {plan.cost(min(processes, len(plan.jobs))).text()}" if plan.jobs else ""
    output.show_line(
        f"{format_number_of(len(plan.cells), 'cell')}: {plan.finished} finished, {left} to compute in "
        f"{format_number_of(len(plan.jobs), 'run')} from {format_number_of(plan.recordings, 'set')} of recordings, "
        f"{len(refused)} refused{taken}."
    )
    output.show_lines([f"Refused: cell {cell.number}: {cell.problem}" for cell in refused[:3]])


# Lines of a table on a terminal.
_MOST_SHOWN, _MOST_REFUSALS = 60, 5


def _show_end(result: "SweepResult", html: str | None, *, quiet: bool) -> None:
    if html is not None:
        output.write_text(_page(result.table, result.table, result.axes), html)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(result.counts.items()))
    output.show_line(f"{format_number_of(sum(result.counts.values()), 'cell')}: {counts}.")
    if result.counts.keys() - {"done", "missing"}:
        reasons = dict.fromkeys(row["reason"] for row in result.table.rows if row["state"] not in ("done", "missing"))
        for reason in [*reasons][:_MOST_REFUSALS]:
            output.show_line(f"Refused: {reason}.")
    for text, cells in result.warnings.most_common():
        output.show_line(f"Warning in {format_number_of(cells, 'cell')}: {text}.")
    if not quiet:
        output.show_line(f"s2sim results {result.path.parent} shows them; --csv FILE writes a row a cell and reducer.")


def _page(shown: Table, rows: Table, axes: Sequence[str], value: str | None = None, colour: str | None = None) -> str:
    """Return the page of a table, with the chart of the rows that it is made of."""
    from s2sim.report.page_charts import sweep_charts
    from s2sim.report.screens import page, table_report

    return page(table_report(shown, sweep_charts(rows, axes, value, colour), output.own_command()))


@options_from(RunSpec, topology="fat-tree", workers="16")
def explore_command(
    experiment: Experiment[RunSpec], *, folder: str | None = None, port: int | None = None, headless: bool = False
) -> None:
    """Ask in a browser, with sliders: about the cells of a sweep, or about a cluster and a job as in s2sim run.

    Answers come from the store of the sweep; what is not there is computed, and kept there. The address in the browser
    holds the question. It is served to this machine alone, and only to who has the token of the address that is
    printed; Ctrl-C ends it. Needs Starlette and uvicorn (the extra explore).
    """
    missing = [module for module in ("starlette", "uvicorn") if util.find_spec(module) is None]
    if missing:
        raise S2SimError(f"explore needs {' and '.join(missing)}: pip install 's2sim[explore]'")
    given = [name for name in experiment.given if name.startswith("-") and name not in ("--port", "--headless")]
    if folder is not None and given:
        raise OptionError(f"explore {folder} asks about the study of that folder: leave {given[0]} out")
    from s2sim.cli.explore_server import listen, serve
    from s2sim.sweeps.explore import Explorer

    with TemporaryDirectory(prefix="s2sim-", ignore_cleanup_errors=True) as empty, listen(port) as listening:
        place = Path(folder or empty)
        explorer = Explorer.of_sweep(place) if folder is not None else Explorer.of_spec(experiment.spec(), place)
        serve(explorer, place, listening, headless=headless)


@takes_tables
def results_command(
    *,
    folder: str,
    where: str | None = None,
    sort: str | None = None,
    rows: str | None = None,
    columns: str | None = None,
    value: str | None = None,
    plot: str | None = None,
    png: str | None = None,
    cell: int | None = None,
    json: str | None = None,
) -> None:
    """Show the finished cells of a sweep: a row a cell and reducer, with a column for each axis.

    Units stand in the names of columns; speedup_vs_dense and relative_l2 are ratios.
    """
    from s2sim.sweeps.store import SweepResult

    written = output.TABLES.get({})
    check_targets(json=json, png=png, **written)
    _check(cell=cell, where=where, sort=sort, rows=rows, columns=columns, value=value, plot=plot, png=png, **written)
    result = SweepResult.load(folder)
    if cell is not None:
        output.write_json(result.details(cell), json or output.STDOUT)
        return
    table = result.table.select(where, sort)
    if plot is not None and png is not None:
        _draw(table, plot, png)
    drawn: tuple[Any, ...] = table, result.axes
    if rows is not None:
        columns, value = columns or "reducer", value or "speedup_vs_dense"
        drawn = table, (rows,), value, columns
        table = table.pivot(rows, columns, value)
    output.write_tables(lambda: table, lambda: _page(table, *drawn))
    if json is not None:
        output.write_json(replace(result, table=table).to_json(), json)
    if output.STDOUT in (json, *written.values()):
        return
    if json is not None or png is not None or any(written.values()):
        output.show_line(f"{format_number_of(len(table.rows), 'row')} {'written' if png is None else 'drawn'}.")
    else:
        _show(result, table, rows, value, every=where is not None or sort is not None)


def _check(**options: object) -> None:
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
    from s2sim.report.figures.charts import chart_figure
    from s2sim.report.page_charts import table_chart

    names = [name.strip() for name in plot.split(",")]
    if len(names) not in (2, 3):
        raise OptionError(f"--plot {plot}: give X,Y or X,Y,COLOUR, for example nic.rate,speedup_vs_dense")
    output.write_figure(chart_figure(table_chart(table, *map(table.known, names))), target)


def _show(result: "SweepResult", table: Table, rows: str | None, value: str | None, *, every: bool) -> None:
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
        output.show_grids([table_grid(Table(table.columns, table.rows[:_MOST_SHOWN]), title, value)])
    if len(table.rows) > _MOST_SHOWN:
        output.show_line(f"{len(table.rows) - _MOST_SHOWN} more rows: --csv - has all, --where selects, --rows pivots.")
    for row in refused[:_MOST_REFUSALS]:
        output.show_line(f"Cell {row['cell']} {row['state']}: {row['reason']}.")
    if len(refused) > _MOST_REFUSALS:
        output.show_line(f"{len(refused) - _MOST_REFUSALS} more are in --csv -.")
    if not table.rows and not refused:
        output.show_line("No row meets the condition.")
    for text, cells in result.warnings.most_common():
        output.show_line(f"Warning in {format_number_of(cells, 'cell')}: {text}.")
    if missing := result.counts.get("missing", 0):
        output.show_line(f"{format_number_of(missing, 'cell')} not computed yet: run the sweep again.")
