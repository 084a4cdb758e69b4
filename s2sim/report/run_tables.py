"""From result rows to tables: the one place that says which figures are shown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Protocol

from s2sim.experiment.row_parts import Verdict
from s2sim.experiment.rows import Result, Row
from s2sim.report.format import (
    REFUSED,
    UNDEFINED,
    aligned,
    cosine_text,
    error_text,
    factor_text,
    reason_lines,
    refused_lines,
    rounds_text,
    seconds_text,
    share_text,
    workers_with_mark,
)
from s2sim.report.grid import Column, Grid, number_column, tabulate, text_column
from s2sim.report.iteration_tables import scaling_efficiencies
from s2sim.traffic.link_loads import LinkLoad
from s2sim.units import format_bytes, format_seconds


class Effect(Protocol):
    """A fault with its effect."""

    @property
    def fault(self) -> str:
        """Its option string."""

    @property
    def description(self) -> str:
        """Its effect in words."""


def fault_lines(effects: Sequence[Effect]) -> list[str]:
    """Return a line a fault: what it is, and what it did."""
    return aligned([(effect.fault, effect.description) for effect in effects], indent="  fault ")


_SHOWN_STEPS = 9
_NAMED_FLOWS = 3


def _by_workers(result: Result) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = {}
    for row in result.results:
        groups.setdefault(row.workers, []).append(row)
    return groups


def _marked_name(row: Row) -> str:
    return row.reducer


def _exposed_text(exposed_s: float, work_s: float) -> str:
    """Return the work of a phase that takes time of its own; all of it may hide behind something else."""
    return "hidden" if work_s and not exposed_s else format_seconds(exposed_s)


def _comparison_grid(rows: Sequence[Row]) -> Grid:
    first = "; first step, no feedback" if any(row.steps for row in rows) else ""
    if rows[0].iteration is not None:
        first = ", if all gradients were there at once"
    return tabulate(
        f"{workers_with_mark(rows[0])}: phases of the slowest rank, and bound{first}",
        rows,
        text_column("reducer", _marked_name),
        number_column("encode", lambda row: _exposed_text(row.time_s.encode, row.encode_work_s)),
        number_column("communi-\ncation", lambda row: format_seconds(row.time_s.communication)),
        number_column("decode", lambda row: _exposed_text(row.time_s.decode, row.decode_work_s)),
        number_column("total", lambda row: format_seconds(row.time_s.total)),
        number_column("lower\nbound", lambda row: format_seconds(row.lower_bound_s)),
    )


def _worst_layer_text(row: Row) -> str:
    layer, error = row.error_worst_layer
    return UNDEFINED if row.exact or layer is None else f"{layer} {error_text(error)}"


def comparison_grids(result: Result) -> list[Grid]:
    """Return the table of each number of workers, a line a reducer."""
    return [_comparison_grid(rows) for rows in _by_workers(result).values()]


def errors_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what each reducer that is not exact loses, and where."""
    return [
        tabulate(
            f"{workers_with_mark(rows[0])}: errors, that of an element over the L2 norm of what is compressed",
            lossy,
            text_column("reducer", _marked_name),
            number_column("cosine", lambda row: cosine_text(row.error.cosine)),
            number_column("of com-\npressed", lambda row: error_text(row.error_compressed.relative_l2)),
            number_column("largest,\nelement", lambda row: error_text(row.error_compressed_largest)),
            text_column("worst layer,\nits error", _worst_layer_text),
        )
        for rows in _by_workers(result).values()
        if (lossy := [row for row in rows if not row.exact])
    ]


def bounds_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what theory says of the error of those of which something is known."""
    return [
        tabulate(
            f"{workers_with_mark(rows[0])}: bounds on the error of an element, by theorem",
            bounded,
            text_column("reducer", _marked_name),
            number_column("largest,\nelement", lambda row: error_text(row.error_compressed_largest)),
            number_column("bound\non it", lambda row: error_text(row.error_bound.element if row.error_bound else None)),
            number_column("which holds for\nat least, found", _shares_text),
            number_column(
                "L2 error\nby law", lambda row: error_text(row.error_bound.relative_l2 if row.error_bound else None)
            ),
        )
        for rows in _by_workers(result).values()
        if (bounded := [row for row in rows if row.error_bound is not None])
    ]


def mechanics_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what each reducer waits for, and what a real library makes of it."""
    return [
        tabulate(
            f"{workers_with_mark(rows[0])}: rounds that wait for others, the ideal library and {library}",
            rows,
            text_column("reducer", _marked_name),
            number_column("bytes\nratio", lambda row: factor_text(row.ratio)),
            number_column("rounds", rounds_text),
            number_column(
                f"host\nsyncs,\nideal,\n{library}", lambda row: f"{row.host_syncs_ideal}, {row.host_syncs_real}"
            ),
            number_column("total,\nideal", lambda row: seconds_text(row.total_ideal_s)),
            number_column(f"total,\n{library}", lambda row: seconds_text(row.total_real_s)),
            number_column(f"sent,\n{library}", lambda row: format_bytes(row.bytes_sent_real_per_rank)),
        )
        for rows in _by_workers(result).values()
        for library in [rows[0].real_library]
    ]


def _shares_text(row: Row) -> str:
    """Return for how many elements a bound holds at least, and for how many it was found to."""
    bound = row.error_bound
    return UNDEFINED if bound is None else f"{share_text(bound.share)}, {share_text(bound.share_found)}"


def _shown_steps(count: int) -> list[int]:
    """Return the steps to show: all, or about as many as fit beside each other, the first and last among them.

    >>> _shown_steps(3), _shown_steps(20)
    ([0, 1, 2], [0, 2, 5, 7, 10, 12, 14, 17, 19])
    """
    if count <= _SHOWN_STEPS:
        return list(range(count))
    return [round(index * (count - 1) / (_SHOWN_STEPS - 1)) for index in range(_SHOWN_STEPS)]


def _residual_text(step: int, row: Row) -> str:
    return error_text(row.steps[step].residual)


def residual_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, the residual norms of all reducers that have residuals, by step."""
    shown = _shown_steps(result.spec.steps)
    return [
        tabulate(
            f"{workers_with_mark(rows[0])}: L2 norm of the residuals over that of the gradients, by step",
            kept,
            text_column("reducer, with feedback", _marked_name),
            *(number_column(f"step {step}", partial(_residual_text, step)) for step in shown),
            number_column("trend", lambda row: row.residual_trend or ""),
        )
        for rows in _by_workers(result).values()
        if (kept := [row for row in rows if row.residual_trend is not None])
    ]


def steps_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what changes from the first step of every reducer to its last."""
    return [
        tabulate(
            f"{workers_with_mark(rows[0])}: first and last of {result.spec.steps} steps",
            [row for row in rows if row.steps],
            text_column("reducer", _marked_name),
            number_column("error,\nfirst step", lambda row: error_text(row.steps[0].error)),
            number_column("error,\nlast step", lambda row: error_text(row.steps[-1].error)),
            number_column("error of\nall steps' sum", lambda row: error_text(row.steps[-1].error_so_far)),
            number_column("total,\nfirst step", lambda row: format_seconds(row.steps[0].total_s)),
            number_column("total,\nlast step", lambda row: format_seconds(row.steps[-1].total_s)),
            number_column("sent a rank,\nfirst step", lambda row: format_bytes(row.steps[0].bytes_sent_per_rank)),
            number_column("sent a rank,\nlast step", lambda row: format_bytes(row.steps[-1].bytes_sent_per_rank)),
        )
        for rows in _by_workers(result).values()
    ]


def collectives_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, every collective of every reducer as it ran."""
    return [
        tabulate(
            f"collectives, {workers_with_mark(rows[0])}",
            [(row.reducer, item) for row in rows for item in row.collectives],
            text_column("reducer: what it carries", lambda ran: f"{ran[0]}: {ran[1].label or UNDEFINED}"),
            text_column("collective", lambda ran: ran[1].kind),
            number_column("bytes\na rank", lambda ran: format_bytes(ran[1].bytes)),
            number_column("time", lambda ran: format_seconds(ran[1].time_s)),
            text_column("size known\nfrom data", lambda ran: "yes" if ran[1].size_from_data else "no"),
            text_column("algorithm", lambda ran: ran[1].algorithm),
            text_column("why", lambda ran: ran[1].why),
        )
        for rows in _by_workers(result).values()
    ]


def lowering_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, what every reducer asks of the library beside what the library executes."""
    return [
        tabulate(
            f"lowering by {result.library}, {workers_with_mark(rows[0])}; costs: by how much the phase would be "
            "shorter if this alone ran as asked",
            [(row.reducer, item) for row in rows for item in row.lowering],
            text_column("reducer: what it carries", lambda ran: f"{ran[0]}: {ran[1].call or UNDEFINED}"),
            text_column("asks for", lambda ran: ran[1].asked),
            text_column("executed", lambda ran: "as asked" if ran[1].executes == ran[1].asked else ran[1].executes),
            number_column("sent a\nrank, ideal", lambda ran: format_bytes(ran[1].bytes_ideal)),
            number_column("sent\na rank", lambda ran: format_bytes(ran[1].bytes_sent)),
            number_column("time,\nideal", lambda ran: format_seconds(ran[1].time_ideal_s)),
            number_column("time", lambda ran: format_seconds(ran[1].time_s)),
            number_column("costs", lambda ran: format_seconds(ran[1].gap_s)),
        )
        for rows in _by_workers(result).values()
    ]


def _layer_text(row: Row, layer: str) -> str:
    error = row.error_per_layer[layer]
    return f"{error_text(error.relative_l2)} ({cosine_text(error.cosine)})"


def layers_grids(result: Result) -> list[Grid]:
    """Return, for each number of workers, the error of every layer, a column a reducer."""
    return [
        Grid(
            f"relative L2 error (cosine) by layer, {workers_with_mark(rows[0])}",
            (Column("layer", numeric=False), *(Column(row.reducer) for row in rows)),
            tuple((layer, *(_layer_text(row, layer) for row in rows)) for layer in rows[0].error_per_layer),
        )
        for rows in _by_workers(result).values()
    ]


def links_grid(loads: Sequence[LinkLoad]) -> Grid:
    """Return the busiest links of a collective."""
    return tabulate(
        "busiest links (one direction each)",
        loads,
        text_column("link", lambda load: load.link),
        number_column("bytes", lambda load: format_bytes(load.bytes)),
        number_column("utilisation", lambda load: f"{load.utilisation:.1%}"),
        number_column("flows", lambda load: str(load.flows)),
        text_column(
            "most of it from",
            lambda load: ", ".join(f"{flow.src} to {flow.dst}" for flow in load.shared_by[:_NAMED_FLOWS]),
        ),
    )


def scaling_grid(result: Result) -> tuple[Grid, list[str]]:
    """Return how time and speed-up change with the number of workers; what can win with none of them; what refuses."""
    counts = list(dict.fromkeys(row.workers for row in result.results))
    found: dict[str, dict[int, Row]] = {row.reducer: {} for row in result.results}
    found |= {each.reducer: {} for each in result.refused if each.reducer not in found}
    for row in result.results:
        found[row.reducer][row.workers] = row
    complete = {name: rows for name, rows in found.items() if len(rows) == len(counts)}
    as_dense = [name for name, rows in complete.items() if all(map(_equals_dense, rows.values()))]
    # As with one number of workers, the fastest first; with most of them, where they differ.
    order = sorted(found, key=lambda name: _time_s(found[name].get(max(counts))))
    shown = {name: found[name] for name in order if name not in as_dense}
    verdicts = {verdict.workers: verdict for verdict in result.verdicts}
    never = {name: why for name, rows in shown.items() if (why := _common_rejection(list(rows.values())))}
    titles = {row.workers: workers_with_mark(row).replace(", ", ",\n") for row in result.results}
    simulated = all(row.iteration is not None for row in result.results)
    shares = {name: scaling_efficiencies(rows.values()) if simulated else {} for name, rows in shown.items()}
    efficiency = f", throughput of a worker over that of {min(counts)}" if simulated else ""
    grid = Grid(
        f"scaling: time of {time_scope_text(result.results)}, speed-up over dense{efficiency}",
        (Column("reducer", numeric=False), *(Column(titles[count]) for count in counts)),
        tuple(
            (name, *(_cell(rows.get(count), verdicts[count], shares[name].get(count)) for count in counts))
            for name, rows in shown.items()
        ),
        faint=frozenset(place for place, (name, rows) in enumerate(shown.items()) if name in never or not rows),
    )
    return grid, [*reason_lines(never), *same_as_dense_lines(as_dense), *refused_lines(result.refused)]


def _time_s(row: Row | None) -> float:
    return inf if row is None or row.judgement is None else row.judgement.time_s


def same_as_dense_lines(names: Sequence[str]) -> list[str]:
    """Return the line that stands for all rows that equal dense; none for none."""
    return [f"As dense does: {', '.join(names)}."] if names else []


def _equals_dense(row: Row) -> bool:
    return row.judgement is not None and row.judgement.as_dense


def time_scope_text(rows: Sequence[Row]) -> str:
    """Return in words what times are compared."""
    unit = "communication" if rows[0].iteration_s is None else "an iteration"
    return f"{unit}, median step" if any(row.steps for row in rows) else unit


def _cell(row: Row | None, verdict: Verdict, efficiency: float | None) -> str:
    if row is None:
        return REFUSED
    judgement = row.judgement
    assert judgement is not None
    best = verdict.decision != "undecided" and row.reducer == verdict.best
    scaling = "" if efficiency is None else f", {round(100 * efficiency)}%"
    return f"{'*' if best else ''}{format_seconds(judgement.time_s)}, {factor_text(judgement.speedup)}{scaling}"


def _common_rejection(rows: Sequence[Row]) -> str | None:
    """Return why a reducer is rejected with every number of workers; None where it is not with one."""
    reasons = [None if row.judgement is None else row.judgement.rejected for row in rows]
    return None if None in reasons or not reasons else reasons[-1]
