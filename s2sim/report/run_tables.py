"""Tables of a run, one for each number of workers, and the lines below them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import TypeVar

from s2sim.experiment.row_parts import IterationRow, Verdict, WorstLayer
from s2sim.experiment.rows import Result, Row
from s2sim.report import format as fmt
from s2sim.report.grid import Column, Grid, TableColumn, columns_of, filled, number_column, tabulate, text_column
from s2sim.units import format_number_of, format_seconds


def iteration_of(row: Row) -> IterationRow:
    """Return the iteration of a row of a run that simulated iterations."""
    assert row.iteration is not None
    return row.iteration


def exchange_text(rows: Sequence[Row]) -> str:
    """Return bucketing and number of buckets for a title, those of dense."""
    dense = iteration_of(next((row for row in rows if row.baseline), rows[0]))
    together = ", codec beside compute" if dense.streams > 1 else ""
    return f"{dense.discipline}, {format_number_of(dense.buckets, 'bucket')}{together}"


def unrecorded(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the parts of iterations that only a recorded job has, if none of the rows has them."""
    return () if any(iteration_of(row).host for row in rows) else ("host",)


def iteration_grids(result: Result) -> list[Grid]:
    """Return the parts of an iteration of each reducer, a table per number of workers."""
    grids = []
    for rows in fmt.group_by_workers(row for row in result.results if row.iteration is not None).values():
        ran = iteration_of(rows[0]).iterations
        of = f"median of {ran} iterations" if ran > 1 else "an iteration"
        grid = tabulate(
            f"{fmt.workers_with_mark(rows[0])}: where {of} goes on the slowest rank, {exchange_text(rows)}",
            rows,
            *columns_of("iteration", where=dict.fromkeys(unrecorded(rows), False)),
        )
        grids.append(grid)
    return grids


def scaling_efficiencies(rows: Iterable[Row]) -> dict[int, float]:
    """Return a reducer's throughput per worker over that with the fewest workers, by workers, at one batch a worker."""
    per_worker = {}
    for row in sorted(rows, key=lambda row: row.workers):
        own = iteration_of(row)
        per_worker[row.workers] = 1 / own.total_s if own.samples_per_s is None else own.samples_per_s / row.workers
    fewest = next(iter(per_worker.values()), 1.0)
    return {workers: value / fewest for workers, value in per_worker.items()}


T = TypeVar("T")

_SHOWN_STEPS = 9


def _tables(
    result: Result, title: str, select: Callable[[list[Row]], Sequence[T]], *columns: TableColumn[T]
) -> list[Grid]:
    """Return a table of the selected items for each number of workers, which takes the place of ``{}`` in the title."""
    groups = fmt.group_by_workers(result.results).values()
    return [tabulate(title.format(fmt.workers_with_mark(rows[0])), select(rows), *columns) for rows in groups]


def _row_tables(
    result: Result,
    title: str,
    *columns: TableColumn[Row],
    only: Callable[[Row], object] | None = None,
    name: str = "reducer",
) -> list[Grid]:
    """Return a table of the rows of each number of workers for which ``only`` is true, where there are any."""
    first: TableColumn[Row] = text_column(name, lambda row: row.reducer)
    grids = _tables(result, title, lambda rows: [row for row in rows if only is None or only(row)], first, *columns)
    return filled(*grids)


def comparison_grids(result: Result) -> list[Grid]:
    """Return phases and lower bound of each reducer."""

    def exposed(exposed_s: float, work_s: float) -> str:
        # All work of a phase may overlap with something else.
        return "hidden" if work_s and not exposed_s else format_seconds(exposed_s)

    note = "; first step, residuals empty" if any(row.steps for row in result.results) else ""
    if any(row.iteration is not None for row in result.results):
        note = ", if all gradients were there at once"
    return _row_tables(
        result,
        f"{{}}: phases of the slowest rank, and bound{note}",
        *columns_of(
            "phases",
            encode=lambda row: exposed(row.time_s.encode, row.encode_work_s),
            decode=lambda row: exposed(row.time_s.decode, row.decode_work_s),
        ),
    )


def errors_grids(result: Result) -> list[Grid]:
    """Return the errors of each reducer that is not exact, and its worst layer."""

    def worst(found: WorstLayer) -> str:
        layer, error = found
        return fmt.UNDEFINED if layer is None else f"{layer} {fmt.error_text(error)}"

    return _row_tables(
        result,
        "{}: errors, that of an element over the L2 norm of what is compressed",
        *columns_of("errors", worst=worst),
        only=lambda row: not row.exact,
    )


def bounds_grids(result: Result) -> list[Grid]:
    """Return the errors of elements with their theoretical bounds, of reducers for which there are bounds."""
    return _row_tables(
        result,
        "{}: bounds on the error of an element, by theorem",
        *columns_of("bounds"),
        only=lambda row: row.error_bound,
    )


def mechanics_grids(result: Result) -> list[Grid]:
    """Return rounds and host syncs of each reducer, and its total with the ideal library and with a real one."""
    library = result.results[0].real_library if result.results else ""

    def rounds(row: Row) -> str:
        return f"{row.rounds_before_gradient}+{row.rounds}" if row.rounds_before_gradient else str(row.rounds)

    return _row_tables(
        result,
        f"{{}}: rounds that wait for others, the ideal library and {library}",
        *columns_of("mechanics", {"library": library}, rounds=rounds),
    )


def _shown_steps(count: int) -> list[int]:
    """Return the steps to show, 9 at most, the first and last among them.

    >>> _shown_steps(3), _shown_steps(20)
    ([0, 1, 2], [0, 2, 5, 7, 10, 12, 14, 17, 19])
    """
    if count <= _SHOWN_STEPS:
        return list(range(count))
    return [round(index * (count - 1) / (_SHOWN_STEPS - 1)) for index in range(_SHOWN_STEPS)]


def residual_grids(result: Result) -> list[Grid]:
    """Return the residual norms by step, of reducers that have residuals."""

    def residual(step: int, row: Row) -> str:
        return fmt.error_text(row.steps[step].residual)

    return _row_tables(
        result,
        "{}: L2 norm of the residuals over that of the gradients, by step",
        *(number_column(f"step {step}", partial(residual, step)) for step in _shown_steps(result.spec.steps)),
        number_column("trend", lambda row: row.residual_trend or ""),
        only=lambda row: row.residual_trend is not None,
        name="reducer, with feedback",
    )


def steps_grids(result: Result) -> list[Grid]:
    """Return error, time and bytes of the first and the last step of each reducer."""
    return _row_tables(
        result, f"{{}}: first and last of {result.spec.steps} steps", *columns_of("steps"), only=lambda row: row.steps
    )


def collectives_grids(result: Result) -> list[Grid]:
    """Return all collectives of each reducer as they were executed."""
    return _tables(
        result,
        "collectives, {}",
        lambda rows: [(row.reducer, item) for row in rows for item in row.collectives],
        *columns_of("collectives"),
    )


def lowering_grids(result: Result) -> list[Grid]:
    """Return the collectives that each reducer requests, with those that the library executes for them."""
    return _tables(
        result,
        f"lowering by {result.library}, {{}}; costs: by how much the phase would be shorter if this alone ran as asked",
        lambda rows: [(row.reducer, item) for row in rows for item in row.lowering],
        *columns_of("lowering", executed=lambda ran: "as asked" if ran.executes == ran.asked else ran.executes),
    )


def layers_grids(result: Result) -> list[Grid]:
    """Return the error of each layer, a column per reducer."""

    def layer_error(row: Row, layer: str) -> str:
        error = row.error_per_layer[layer]
        return f"{fmt.error_text(error.relative_l2)} ({fmt.cosine_text(error.cosine)})"

    return [
        tabulate(
            f"relative L2 error (cosine) by layer, {fmt.workers_with_mark(rows[0])}",
            rows[0].error_per_layer,
            text_column("layer", str),
            *(number_column(row.reducer, partial(layer_error, row)) for row in rows),
        )
        for rows in fmt.group_by_workers(result.results).values()
    ]


def scaling_grid(result: Result) -> tuple[Grid, list[str]]:
    """Return time and speed-up by number of workers; and the lines below: rejected, equal to dense, refused."""
    counts = list(dict.fromkeys(row.workers for row in result.results))
    by_reducer: dict[str, dict[int, Row]] = {row.reducer: {} for row in result.results}
    by_reducer |= {item.reducer: {} for item in result.refused if item.reducer not in by_reducer}
    for row in result.results:
        by_reducer[row.reducer][row.workers] = row
    alike = {name: [row.judged.as_dense for row in rows.values()] for name, rows in by_reducer.items()}
    as_dense = [name for name, same in alike.items() if same == [True] * len(counts)]

    def time_s(name: str) -> float:
        row = by_reducer[name].get(max(counts))
        return inf if row is None else row.judged.time_s

    # The fastest first, as with one number of workers: with the largest, where they differ.
    shown = {name: by_reducer[name] for name in sorted(by_reducer, key=time_s) if name not in as_dense}
    verdicts = {verdict.workers: verdict for verdict in result.verdicts}
    reasons = {name: [row.judged.rejected or "" for row in rows.values()] for name, rows in shown.items()}
    never = {name: why[-1] for name, why in reasons.items() if why and all(why)}
    titles = {row.workers: fmt.workers_with_mark(row).replace(", ", ",\n") for row in result.results}
    simulated = all(row.iteration is not None for row in result.results)
    shares = {name: scaling_efficiencies(rows.values()) if simulated else {} for name, rows in shown.items()}
    efficiency = f", throughput of a worker over that of {min(counts)}" if simulated else ""
    grid = Grid(
        f"scaling: time of {time_scope_text(result.results)}, speed-up over dense{efficiency}",
        (Column("reducer", numeric=False), *(Column(titles[count]) for count in counts)),
        tuple(
            (name, *(_scaling_cell(rows.get(count), verdicts[count], shares[name].get(count)) for count in counts))
            for name, rows in shown.items()
        ),
        faint=frozenset(number for number, (name, rows) in enumerate(shown.items()) if name in never or not rows),
    )
    return grid, [*fmt.reason_lines(never), *same_as_dense_lines(as_dense), *fmt.refused_lines(result.refused)]


def same_as_dense_lines(names: Sequence[str]) -> list[str]:
    """Return the line that represents all rows equal to dense, if there are any."""
    return [f"As dense does: {', '.join(names)}."] if names else []


def time_scope_text(rows: Sequence[Row]) -> str:
    """Return the name of the time that is compared."""
    unit = "communication" if rows[0].iteration_s is None else "an iteration"
    return f"{unit}, median step" if any(row.steps for row in rows) else unit


def _scaling_cell(row: Row | None, verdict: Verdict, efficiency: float | None) -> str:
    if row is None:
        return fmt.REFUSED
    judgement = row.judged
    best = verdict.decision != "undecided" and row.reducer == verdict.best
    scaling = "" if efficiency is None else f", {round(100 * efficiency)}%"
    return f"{'*' if best else ''}{format_seconds(judgement.time_s)}, {fmt.factor_text(judgement.speedup)}{scaling}"
