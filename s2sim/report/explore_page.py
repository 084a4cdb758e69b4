"""The page of the explorer, and its answers: the screen of a cell, and charts of it and of its neighbours."""

from collections.abc import Mapping
from math import nan
from typing import Any

from s2sim.experiment.cluster_spec import ClusterSpec
from s2sim.experiment.costs import refuse_too_large
from s2sim.experiment.json_form import SchemaBuilder
from s2sim.experiment.rate_curve import RateCurves
from s2sim.experiment.row_parts import Refused, Verdict
from s2sim.experiment.rows import Row
from s2sim.experiment.run import run
from s2sim.experiment.spec import RunSpec
from s2sim.experiment.timeline import Streams, Timeline
from s2sim.report.answer import answer_grid
from s2sim.report.figures import style
from s2sim.report.format import error_text
from s2sim.report.page_charts import BUS_BANDWIDTH, SPEEDUP, TIME, Quantity, collective_charts, line_chart, row_charts
from s2sim.report.screens import Report, page, render, run_report, screen_page
from s2sim.report.traffic_tables import collective_screen
from s2sim.sweeps.explore import Control, Explorer, Points
from s2sim.traffic.collective_result import CollectiveResult
from s2sim.traffic.collective_run import collective_result, plan_collective
from s2sim.traffic.spec import CollectiveSpec
from s2sim.units import format_bytes, format_rate, format_seconds

# What a field is called, where not by its name.
_LABELS = {"nic.rate": "NIC rate", "batch": "mini-batch", "size_bytes": "size"}
# What can be drawn along a slider: by name the column of a line, or the first of two that has a value.
SHOWN: dict[str, tuple[Quantity, tuple[str, ...]]] = {
    "speed-up": (SPEEDUP, ("speedup_vs_dense",)),
    "time": (TIME, ("iteration_s", "total_s")),
    "error": (Quantity("relative L2 error", error_text), ("relative_l2",)),
    "bytes": (Quantity("bytes sent by the busiest rank", format_bytes), ("bytes_sent_per_rank",)),
    "bus bandwidth": (BUS_BANDWIDTH, ("busbw_Bps",)),
}
_OF = {"run": ("speed-up", "time", "error", "bytes"), "collective": ("time", "bus bandwidth")}


def _label(name: str) -> str:
    label = _LABELS.get(name, name.replace("_", " "))
    return f"{label[0].upper()}{label[1:]}"


def explorer_page(explorer: Explorer, question: Mapping[str, str]) -> str:
    """Return the page, with the controls set to a question."""
    controls, over = [*explorer.controls.values()], explorer.over(question.get("over"))
    shown = _OF[explorer.what]
    values: dict[str, Any] = {"controls": controls, "label": _label, "question": question, "over": over, "shown": shown}
    return render("explore.html", f"s2sim explore: {explorer.title}", **values)


def answer_parts(
    explorer: Explorer, question: Mapping[str, str], over: str | None = None, show: str | None = None
) -> dict[str, Any]:
    """Return an answer as the page takes it: ``error``, or what is known, and how many cells are to be computed.

    ``html`` is the screen of the cell, escaped; ``charts`` are drawn by the script of all pages.
    """
    cell, slider = explorer.cell(question), explorer.over(over)
    if cell.spec is None:
        return {"error": cell.problem}
    found = explorer.store.answer(explorer.key(cell))
    points, missing = ([], 0) if slider is None else explorer.curve(question, slider)
    parts: dict[str, Any] = {"missing": missing, "known": len(points), "html": None, "charts": []}
    if slider is not None and points:
        own = _OF[explorer.what]
        here = slider.number(question.get(slider.name, slider.chosen))
        parts["charts"].append(_curve_chart(slider, points, here, show if show in own else own[0]))
    if found is None:
        return parts
    state, reason, details = found
    if state != "done":
        return {"error": f"{state}: {reason}", **parts}
    if explorer.what == "run":
        # What the first screen of `s2sim run` says of the stored rows.
        builder = SchemaBuilder()
        rows, verdict = builder.load(tuple[Row, ...], details["results"]), builder.load(Verdict, details["verdict"])
        refused = [builder.load(Refused, each) for each in details["refused"]]
        grid, below = answer_grid(rows, verdict, refused)
        about = [*below, f"{details['cluster']}.", *(f"Note: {each}." for each in details.get("warnings", ()))]
        report = Report("", verdict.lines, [grid], about, notes=details["notes"], charts=row_charts(rows))
    else:
        result = SchemaBuilder().load(CollectiveResult, details)
        screen, charts = collective_screen(result), collective_charts(result)
        report = Report("", screen.before, screen.grids, screen.after, charts=charts, aligned=True)
    html = render("answer.html", explorer.title, report, command=explorer.command(cell))
    return {**parts, "html": html, "charts": [*parts["charts"], *report.charts]}


def _curve_chart(slider: Control, points: Points, here: float | None, show: str) -> dict[str, Any]:
    quantity, columns = SHOWN[show]
    series: dict[str, list[tuple[float, float]]] = {}
    for number, lines in points:
        for line in lines:
            name = line["reducer"] or "collective"
            if line["state"] == "done" and not (name == "dense" and show == "speed-up"):
                value = next((line[column] for column in columns if line[column] is not None), nan)
                series.setdefault(name, []).append((number, value))
    title, unit = _label(slider.name), slider.unit.lower()
    over = Quantity(title, "{:g}".format)
    if unit.endswith(("bps", "b/s", "bit/s")):
        over = Quantity(title, format_rate, style.GBPS)
    elif unit:
        over = Quantity(title, format_bytes if unit == "b" else lambda number: format_seconds(number / 1e12))
    at = None if here is None else (here, f"here: {over.text(here)}")
    level, note = (1.0, "Above 1x a reducer is faster than dense.") if show == "speed-up" else (None, "")
    return line_chart(f"{_label(show)} by {over.title}", over, quantity, series, note=note, level=level, at=at)


def report_page(spec: ClusterSpec, command: str) -> str:
    """Return the page that ``command`` writes with ``--html``."""
    if isinstance(spec, CollectiveSpec):
        return screen_page(collective_result(plan_collective(spec)), command)
    assert isinstance(spec, RunSpec)
    curves: dict[int, RateCurves] = {}
    timelines: dict[str, Timeline | Streams] = {}
    timed = timelines if spec.profile is not None else None
    result = run(spec=spec, timelines=timed, curves=curves, gate=refuse_too_large)
    return page(run_report(result, command, curves, timelines))
