"""Charts of a page, as the data that its script draws."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, cycle, pairwise
from math import floor, inf, isfinite, log10
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from s2sim.advice.advise import Advice
from s2sim.claims.paper import Chart, Line
from s2sim.errors import OptionError
from s2sim.experiment.rate_curve import RateCurves
from s2sim.experiment.rows import Result, Row
from s2sim.experiment.timeline import STREAMS, Streams, Timeline
from s2sim.report.figures import style
from s2sim.report.format import error_text, factor_text, group_by_workers, loss_text, signed_text, workers_text
from s2sim.report.grid import scalar_text
from s2sim.report.run_tables import iteration_of, unrecorded
from s2sim.report.traffic_tables import term_name
from s2sim.sweeps.study import Scale
from s2sim.tables import Table, group_by
from s2sim.traffic.collective_result import CollectiveResult, OtherAlgorithm
from s2sim.training.result import TrainResult
from s2sim.units import format_bytes, format_money, format_percent, format_rate, format_seconds
from s2sim.validation.curve_result import ValidationResult

# Ratio of the largest to the smallest value from which an axis is logarithmic.
_WIDE = 5.0
_WIDE_SWEEP = 10.0
_NETWORK = "#0072B2"


class Quantity(NamedTuple):
    """What an axis shows, and how its values read."""

    title: str
    text: Callable[[float], str]
    unit: float = 1.0  # Of which ticks are round numbers


TIME = Quantity("time", format_seconds)
WORKERS = Quantity("workers", "{:g}".format)
SPEEDUP = Quantity("speed-up over dense", factor_text)
BUS_BANDWIDTH = Quantity("bus bandwidth", format_rate, style.GBPS)


def axis(quantity: Quantity, values: Iterable[float], *, log: bool | None = None) -> dict[str, Any]:
    """Return a round-ticked axis of all finite values: from 0 unless they lie close, logarithmic where far apart."""
    known = [value for value in values if isfinite(value)]
    positive = [value for value in known if value > 0]
    if log is None:
        log = bool(positive) and len(positive) == len(known) and max(positive) > _WIDE * min(positive)
    if log:
        low, high = style.log_limits(positive)
        ticks = style.log_ticks(low, high, quantity.unit, most=8)
    else:
        low, high = min([0.0, *known]), max(known, default=1.0) or 1.0
        ticks = _round_ticks(low, high)
        high = max(high, ticks[-1])
    named = [[tick, quantity.text(tick)] for tick in ticks]
    return {"title": quantity.title, "log": log, "low": low, "high": high, "ticks": named}


def _round_ticks(low: float, high: float) -> list[float]:
    """Return four to nine round numbers from low to high.

    >>> _round_ticks(0, 0.7)
    [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    """
    power = 10.0 ** floor(log10((high - low) or 1.0))
    step = next(part * power for part in (0.1, 0.2, 0.5, 1.0, 2.0) if (high - low) / (part * power) <= 8)
    return [round(place * step, 12) for place in range(floor(low / step), floor(high / step + 1e-9) + 1)]


def line_chart(
    title: str,
    x: Quantity,
    y: Quantity,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    note: str = "",
    level: float | None = None,
    at: tuple[float, str] | None = None,
    bands: Mapping[str, Sequence[tuple[float, float, float]]] | None = None,
    log_x: bool | None = None,
    log_y: bool | None = None,
) -> dict[str, Any]:
    """Return a chart of lines of (x, y), one point as a marker, bands (x, low, high), and a ``level`` and ``at``."""
    bands = bands or {}
    dashes = style.line_styles(lines)
    shown = {name: [point for point in points if all(map(isfinite, point))] for name, points in lines.items()}
    around = [value for band in bands.values() for _, *ends in band for value in ends]
    series = []
    for name, points in shown.items():
        look = style.family_style(style.family_of(name))
        told = [[one, other, f"{name}: {y.text(other)} at {x.text(one)}"] for one, other in points]
        own = {"name": name, "colour": look.colour, "marker": look.marker, "dash": dashes[name], "points": told}
        series.append({**own, "band": [list(each) for each in bands.get(name, ())]})
    everything = [point for points in shown.values() for point in points]
    levels = [] if level is None else [level]
    return {
        "kind": "lines",
        "title": title,
        "note": note,
        "x": axis(x, [one for one, _ in everything], log=log_x),
        "y": axis(y, [*(other for _, other in everything), *around, *levels], log=log_y),
        "series": series,
        "level": level,
        "at": None if at is None else list(at),
    }


Spans = Sequence[tuple[str, float, float, str]]  # part, start and end, and what is told of it


def bar_chart(
    title: str, parts: Mapping[str, str], bars: Mapping[str, tuple[str, Spans]], *, note: str = ""
) -> dict[str, Any]:
    """Return a chart of bars by name, each with a text and spans of time; ``parts`` are the colours of parts."""
    place = {part: number for number, part in enumerate(parts)}
    shown = [
        {"name": name, "text": text, "spans": [[place[part], *rest] for part, *rest in spans]}
        for name, (text, spans) in bars.items()
    ]
    scale = axis(TIME, [end for _, spans in bars.values() for _, _, end, _ in spans], log=False)
    return {"kind": "bars", "title": title, "note": note, "x": scale, "parts": [*parts.items()], "bars": shown}


def _in_a_row(lengths: Mapping[str, float]) -> Spans:
    """Return parts by their seconds as spans, one after the other."""
    ends = pairwise(accumulate(lengths.values(), initial=0.0))
    return [(part, *each, f"{part}: {format_seconds(lengths[part])}") for part, each in zip(lengths, ends, strict=True)]


def run_charts(
    result: Result, curves: Mapping[int, RateCurves], timelines: Mapping[str, Timeline | Streams]
) -> list[dict[str, Any]]:
    """Return a run's charts; ``curves``: speed-ups at other rates by workers, ``timelines`` by reducer."""
    by_workers = group_by_workers(result.results)
    charts = [_time_chart(rows) for rows in by_workers.values()]
    if len(by_workers) > 1:
        charts += _scaling_charts(result.results)
    for each in curves.values():
        lines = {name: list(zip(each.rates_Bps, values, strict=True)) for name, values in each.speedups.items()}
        found = [f"{item.reducer} {item.pays} {format_rate(item.at_Bps)}" for item in each.crossings]
        note = f"Above 1x a reducer pays{': ' if found else ''}{', '.join(found)}."
        at = (each.own_Bps, f"here: {format_rate(each.own_Bps)}")
        title = f"Speed-up over dense at other rates: {workers_text(each.workers)}"
        rate = Quantity(each.field, format_rate, style.GBPS)
        charts.append(line_chart(title, rate, SPEEDUP, lines, note=note, level=1.0, at=at, log_x=True))
    charts += [chart for rows in by_workers.values() if (chart := _error_chart(rows)) is not None]
    return charts + [_timeline_chart(name, of) for name, of in timelines.items() if isinstance(of, Streams)]


def row_charts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the charts of one number of workers: where the time goes, and what a byte buys."""
    return [_time_chart(rows), *filter(None, [_error_chart(rows)])]


def _time_chart(rows: Sequence[Row]) -> dict[str, Any]:
    simulated = all(row.iteration is not None for row in rows)
    *stacked, hidden = style.ITERATION_PARTS
    shown = [part for part in stacked if simulated and part not in unrecorded(rows)]
    colours = {part: style.ITERATION_PARTS[part] for part in shown} if simulated else style.COLOURS["phases"]

    def spans(row: Row) -> Spans:
        of: Any = iteration_of(row) if simulated else row.time_s
        return _in_a_row({part: getattr(of, part.replace(" ", "_")) for part in colours})

    def text(row: Row) -> str:
        time_s = iteration_of(row).total_s if simulated else row.time_s.total
        loss = "exact" if row.exact else f"error {error_text(row.error.relative_l2)}"
        beside = f", {hidden} {format_seconds(iteration_of(row).hidden_communication)}" if simulated else ""
        return f"{format_seconds(time_s)}, {factor_text(row.speedup_vs_dense)}, {loss}{beside}"

    bars = {row.reducer: (text(row), spans(row)) for row in rows}
    fastest_first = dict(sorted(bars.items(), key=lambda item: item[1][1][-1][2]))
    what = "an iteration" if simulated else "communication"
    note = "On the slowest rank; time, speed-up over dense and relative L2 error beside each bar."
    return bar_chart(f"Where the time of {what} goes: {style.workers_title(rows)}", colours, fastest_first, note=note)


def _scaling_charts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    by_name = group_by(rows, lambda row: row.reducer)

    def over_workers(of: Callable[[Row], float]) -> dict[str, list[tuple[float, float]]]:
        return {name: [(row.workers, of(row)) for row in own] for name, own in by_name.items()}

    times = over_workers(lambda row: row.time_s.total if row.iteration is None else iteration_of(row).total_s)
    extrapolated = sorted({row.workers for row in rows if row.extrapolated})
    note = f"Extrapolated: {', '.join(map(str, extrapolated))} workers." if extrapolated else ""
    speedups = over_workers(lambda row: row.speedup_vs_dense)
    return [
        line_chart("Time by number of workers", WORKERS, TIME, times, note=note, log_x=True),
        line_chart("Speed-up by number of workers", WORKERS, SPEEDUP, speedups, note=note, level=1.0, log_x=True),
    ]


def _error_chart(rows: Sequence[Row]) -> dict[str, Any] | None:
    lossy = {
        row.reducer: [(float(row.bytes_sent_per_rank), float(row.error.relative_l2))]
        for row in rows
        if row.error.relative_l2 is not None and not row.exact and row.bytes_sent_per_rank and row.estimates == "mean"
    }
    if not lossy:
        return None
    exact = [f"{row.reducer} {format_bytes(row.bytes_sent_per_rank)}" for row in rows if row.exact]
    of = "Of all steps, with feedback." if any(row.steps for row in rows) else "Of one step, without feedback."
    note = f"{of} Exact: {', '.join(exact)}." if exact else of
    size, error = Quantity("bytes sent by the busiest rank", format_bytes), Quantity("relative L2 error", error_text)
    title = f"What a byte buys: {style.workers_title(rows)}"
    return line_chart(title, size, error, lossy, note=note, log_x=True, log_y=True)


def _timeline_chart(name: str, streams: Streams) -> dict[str, Any]:
    """Return the last iteration of a rank, a bar a stream."""
    computed = [span for span in streams.spans if span.category != STREAMS[-1]]
    last = max((span.details["iteration"] for span in computed), default=0)
    begin_us = min((span.start_us for span in computed if span.details["iteration"] == last), default=0.0)
    parts = {**style.COLOURS["streams"], "network": _NETWORK}
    if all(span.name != "host" for span in computed):
        del parts["host"]
    spans: dict[str, list[tuple[str, float, float, str]]] = {stream: [] for stream in STREAMS}
    for span in (span for span in streams.spans if span.end_us > begin_us):
        start_s, end_s = ((at_us - begin_us) / 1e6 for at_us in (span.start_us, span.end_us))
        part = span.name if span.name in parts else "codec" if span.category == "codec" else "network"
        what = f"{span.name}: {format_seconds(end_s - start_s)} from {format_seconds(start_s)}"
        spans[span.category].append((part, max(start_s, 0.0), end_s, what))
    bars = {stream: ("", own) for stream, own in spans.items() if own}
    return bar_chart(f"An iteration over time: {name}", parts, bars, note=f"Of rank {streams.rank}.")


def train_charts(result: TrainResult) -> list[dict[str, Any]]:
    """Return loss on held-out data against iterations and simulated time, means over seeds inside their range."""
    charts = []
    kinds = {"iterations": Quantity("iterations", "{:g}".format), "time_s": Quantity("simulated time", format_seconds)}
    for field, x in kinds.items():
        lines, bands = {}, {}
        for row in result.rows:
            curves = [curve for curve in result.curves if curve.reducer == row.reducer]
            points = min(len(curve.iterations) for curve in curves)
            values = np.array([curve.eval_loss[:points] for curve in curves])
            places = np.array([getattr(curve, field)[:points] for curve in curves]).mean(0).tolist()
            lines[row.reducer] = list(zip(places, values.mean(0).tolist(), strict=True))
            if len(curves) > 1:
                bands[row.reducer] = list(zip(places, values.min(0).tolist(), values.max(0).tolist(), strict=True))
        loss = Quantity("loss on held-out data", "{:.4g}".format)
        charts.append(line_chart(f"Loss over {x.title}", x, loss, lines, bands=bands, log_x=False))
    return charts


def curve_charts(result: ValidationResult) -> list[dict[str, Any]]:
    """Return predicted and measured times of each curve by size, those of a source one after the other."""
    size = Quantity("size", format_bytes)
    charts = []
    for curve in sorted((each for each in result.curves if each.predicted), key=lambda each: each.source):
        lines = {
            "measured": [(float(point.size_bytes), point.measured_s) for point in curve.points],
            "predicted": [(float(p.size_bytes), p.predicted_s) for p in curve.points if p.predicted_s > 0],
        }
        large, small = map(signed_text, (curve.signed_log_error_large, curve.signed_log_error_small))
        apart = "" if curve.counts else "; apart from the others"
        note = f"Bias at large and at small sizes: {large} / {small}{apart}. {curve.source_url}"
        charts.append(line_chart(f"{curve.source}: {curve.id}", size, TIME, lines, note=note, log_x=True, log_y=True))
    return charts


def collective_charts(result: CollectiveResult) -> list[dict[str, Any]]:
    """Return the time of a collective, by terms where these were asked for, above what else is known of it."""
    terms = {term_name(term): term.time_s for term in result.terms if term.time_s} or {"time": result.time_s}

    def name(ran: CollectiveResult | OtherAlgorithm) -> str:
        return " ".join(filter(None, (ran.algorithm, ran.protocol)))

    known = {
        "lower bound": result.lower_bound_s,
        "closed form": result.closed_form_s,
        "in rounds": result.clocked_s,
        "as the other network has it": None if result.cross_check is None else result.cross_check.time_s,
        "one group alone": None if result.groups is None else result.groups.alone_s,
        **{name(each): each.time_s for each in (*result.alternatives, result.faster) if each is not None},
    }
    bars = {name(result): (format_seconds(result.time_s), _in_a_row(terms))}
    bars |= {what: (format_seconds(s), _in_a_row({"time": s})) for what, s in known.items() if s is not None}
    colours = dict(zip(terms, cycle(style.COLOURS["others"]["colours"]), strict=False)) | {"time": _NETWORK}
    note = "What runs, and below it what bounds it and what else may run."
    return [bar_chart(f"Time of {result.kind}: {workers_text(result.workers)}", colours, bars, note=note)]


def advice_charts(result: Advice) -> list[dict[str, Any]]:
    """Return the time of the same work in the runs that advice rests on, or the efficiency by number of workers."""
    shares = [(cell.workers, cell.efficiency) for cell in result.cells if cell.efficiency is not None]
    if shares:
        share = Quantity("throughput of a worker over that of one alone", format_percent)
        return [line_chart("Efficiency by number of workers", WORKERS, share, {"the best": shares}, log_x=True)]
    bars, several = {}, len({cell.changes for cell in result.cells}) > 1
    for cell in result.cells:
        name = f"{cell.reducer}, {cell.changes}" if several else cell.reducer
        loss = loss_text(cell.relative_l2, cell.error_range, exact=cell.exact)
        loss = loss if cell.exact else f"error {loss}"
        price = "" if cell.price is None else f", {format_money(cell.price, str(result.currency))}"
        text = f"{format_seconds(cell.compared_s)}, {factor_text(cell.speedup_vs_dense or inf)}, {loss}{price}"
        bars[name] = text, _in_a_row({"time": cell.compared_s})
    work = "a sample" if all(cell.samples_per_s for cell in result.cells) else "a step"
    note = "Beside it speed-up over dense on the same cluster, relative L2 error and price, where there is one."
    return [bar_chart(f"Time of {work} in the runs that the answer rests on", {"time": _NETWORK}, bars, note=note)]


def table_charts(table: Table) -> list[dict[str, Any]]:
    """Return the charts of a table of sizes, with times and bus bandwidths; none of other tables."""
    if not {"size_bytes", "time_s"} <= set(table.columns) or len({row["size_bytes"] for row in table.rows}) < 2:
        return []

    def chart(column: str, y: Quantity) -> dict[str, Any]:
        points = {y.title: [(row["size_bytes"], row[column]) for row in table.rows if row[column]]}
        size = Quantity("size", format_bytes)
        return line_chart(f"{y.title.capitalize()} by size", size, y, points, log_x=True, log_y=True)

    shown = {"time_s": TIME, "busbw_Bps": BUS_BANDWIDTH}
    return [chart(column, y) for column, y in shown.items() if column in table.columns]


def sweep_charts(table: Table, axes: Sequence[str], value: str | None, colour: str | None) -> list[dict[str, Any]]:
    """Return the chart of a sweep's rows over the first axis of several numbers, a line for each ``colour``."""
    values = ("speedup_vs_dense", "busbw_Bps", "total_s") if value is None else (value,)
    known = [name for name in values if any(row[name] is not None for row in table.rows)]
    for name in axes if known else ():
        with suppress(OptionError):
            chart = table_chart(table, name, known[0], colour)
            if len({at for line in chart.lines for at in line.x}) > 1:
                x, y = (Quantity(title, partial(scalar_text, title)) for title in (chart.x, chart.y))
                lines = {line.name: [*zip(line.x, line.y, strict=True)] for line in chart.lines}
                bands = {line.name: [*zip(line.x, line.low, line.high, strict=False)] for line in chart.lines}
                return [line_chart(chart.title, x, y, lines, bands=bands)]
    return []


def table_chart(table: Table, x: str, y: str, colour: str | None = None) -> Chart:
    """Return a chart of two columns of a table, a line for each value of a third, by default each reducer or algorithm.

    Where several rows have the same x on a line, it goes through their median, inside a band from the least to the
    largest. Texts with units, such as ``25Gbps``, are numbers of the unit of the first; `OptionError` for other texts.
    """
    colour = colour or ("reducer" if any(row["reducer"] for row in table.rows) else "algorithm")
    points: dict[str, dict[float, list[float]]] = {}
    kept = [row for row in table.rows if row[x] is not None and row[y] is not None]
    (x_label, x_values), (y_label, y_values) = (_numbers(name, [row[name] for row in kept]) for name in (x, y))
    for row, at, value in zip(kept, x_values, y_values, strict=True):
        points.setdefault(str(row[colour]), {}).setdefault(at, []).append(value)
    lines = []
    for name, found in points.items():
        columns = [(at, median(values), min(values), max(values)) for at, values in sorted(found.items())]
        ats, middles, lows, highs = zip(*columns, strict=True)
        lines.append(Line(name, ats, middles, *(((lows, highs)) if lows != highs else ())))
    several = any(line.low for line in lines)
    title = f"{y_label} over {x_label} by {colour}{'; medians, least to largest shaded' if several else ''}"
    return Chart(title, x_label, y_label, tuple(lines), log_x=_is_wide(x_values), log_y=_is_wide(y_values))


def _numbers(name: str, values: Sequence[Any]) -> tuple[str, list[float]]:
    """Return the label of a column, with the unit, and its values as numbers."""
    if not values:
        raise OptionError(f"nothing to draw: no row has {name}, or none meets the condition")
    try:
        scale = Scale.of(name, values[0], values[0])
    except OptionError:
        raise OptionError(f"--plot {name}: {values[0]!r} is a text: draw a column of numbers") from None
    return f"{name} ({scale.unit})" if scale.unit else name, [scale.number(value) / scale.size for value in values]


def _is_wide(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) > _WIDE_SWEEP * min(values)
