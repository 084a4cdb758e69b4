"""Makes docs/testbed.md of the shipped measurements: ``python docs/make_testbed.py``, half a minute of CPU."""

from __future__ import annotations

from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from s2sim.report.figures.charts import set_log_scales, times_figure
from s2sim.report.figures.labels import write_legend
from s2sim.report.figures.style import GREY, SMALL_SIZE, TEXT_SIZE, WIDTH, figure_bytes, figure_style
from s2sim.report.format import group_by
from s2sim.report.log_comparison import comparison_grids, comparison_lines, rate_text
from s2sim.testbed.measured import read_measured, resolve_testbeds_folder
from s2sim.units import format_bytes
from s2sim.validation.testbed import compare_testbeds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from s2sim.report.grid import Grid
    from s2sim.validation.testbed import ComparedTime, PredictionComparison

PAGE = Path(__file__).parent / "testbed.md"
IMAGES = Path(__file__).parent / "images"
_COLUMNS = 3
_PANEL, _AROUND = 2.1, 0.9  # Inches of a row of panels, and of title and legend
_DENSE = "dense"
CALIBRATED_ON = "w4-200mbps"
HEAD = f"""# Predicted and measured on a testbed

Made by `python docs/make_testbed.py` of [measured/testbed/](../measured/testbed/README.md): real processes (PyTorch,
Gloo over TCP) in network namespaces of one machine with two processors, on links whose rates are set. It shows what
`s2sim dev testbed compare --calibrate-on {CALIBRATED_ON}` prints.

Constants of Gloo are fitted to the collectives of **one** setting, as `s2sim dev calibrate --testbed measured/testbed
--setting {CALIBRATED_ON} --out gloo-here.toml` does; all other rates and numbers of workers are predicted.
`s2sim dev testbed topology NAME --out FILE.toml` writes the cluster that a setting, or a testbed that is up, is to the
simulator, and `s2sim collective all_reduce --topology FILE.toml --workers 4 --library gloo:timing=gloo-here.toml`
predicts by hand.

The model and its rules were settled with measurements of an earlier session in view; those shown are of a later one,
that nothing was settled with.

"""
LAW = """
## What is simulated

- **Rings** as Gloo's source has them: two pieces of what each rank passes on are under way, none larger than 1 MiB.
- **All-to-alls** of ranks that outnumber processors take turns: a rank's word that it is ready to receive waits behind
  what it sends on the same connection, so that of two ranks one sends first.
- **Processors** are shared by all workers. A message costs a processor some time, and so does each packet of it (what
  TCP hands over at once, which the testbed sets by its rate) and each byte. Messages of a round end when processors
  have done all of them; wires and processors work at once, but not perfectly: times add as their p-norm.
- **Codecs** are NumPy on the same processors, not on a GPU: what the calibrated setting measured of a reducer beyond
  its simulated exchange, in proportion to the work that its script notes and to the workers for each processor. Rows
  of that setting are no test of it.

## What is not understood

- Of two workers on two processors nobody is late as a rule, and an all-to-all goes both ways at once; in an
  earlier session one was in some settings (50 Mbps, 2 Gbps), and it took twice as long. Who is late is a race, which
  nothing here predicts.
- Small messages of two workers take about half of what is predicted: nothing waits for a processor there.
- A bucket lets the first bytes after a pause pass at once; messages of some kilobytes are faster than predicted.
- What is in flight at once shares wires in simulation, but each takes processors as if alone.
- A break-even rate is where straight lines between measured rates cross. Where predicted times cross at none of these
  rates, none is shown: where rates are high both take what processors take, and `topk` is predicted to pay where it has
  just ceased to.
"""


def page(result: PredictionComparison) -> str:
    """Return the text of the page."""
    lines = [f"**{line[0].upper()}{line[1:]}.**  " for line in comparison_lines(result)]
    parts = [HEAD + "\n".join(lines), "", "![Measured and predicted times](images/testbed-times.png)", ""]
    if gains_figure(result) is not None:
        parts += ["![Gains over dense against the rate](images/testbed-gains.png)", ""]
    for grid in comparison_grids(result):
        parts += [f"## {grid.title[0].upper()}{grid.title[1:]}", "", *_table(grid), ""]
    return "\n".join([*parts[:-1], LAW])


def shipped() -> PredictionComparison:
    """Return the comparison of what is shipped."""
    return compare_testbeds(read_measured(resolve_testbeds_folder(None)), CALIBRATED_ON)


def gains_figure(result: PredictionComparison) -> Figure | None:
    """Return a panel per number of workers: dense's time over each reducer's against the rate; None without any."""
    points = [point for point in result.points if point.kind == "reducers" and not isinf(point.rate_Bps)]
    dense = {(point.setting, point.trace): point for point in points if point.what == _DENSE}
    others = [point for point in points if point.what != _DENSE and (point.setting, point.trace) in dense]
    panels = group_by(others, lambda point: (point.workers, point.payload_bytes, point.trace))
    shown = {key: group for key, group in sorted(panels.items()) if len({point.rate_Bps for point in group}) > 1}
    if not shown:
        return None
    names = list(dict.fromkeys(point.what for point in others))
    rows = -(-len(shown) // _COLUMNS)
    with figure_style():
        title = "Dense's time over the reducer's: measured (dots) and predicted (lines); above 1 it pays"
        figure = Figure((WIDTH, _PANEL * rows + _AROUND), layout="constrained")
        figure.suptitle(title, fontsize=TEXT_SIZE)
        grid = figure.subplots(rows, _COLUMNS, sharex=True, sharey=True, squeeze=False)
        for axes, (key, group) in zip(grid.flat, shown.items(), strict=False):
            for number, name in enumerate(names):
                own = sorted((point for point in group if point.what == name), key=lambda point: point.rate_Bps)
                _draw_gains(axes, own, dense, f"C{number % 10}")
            axes.axhline(1, color=GREY, linewidth=0.6)
            axes.set_title(f"{key[0]} workers, {format_bytes(key[1])}", fontsize=SMALL_SIZE)
            set_log_scales(axes)
            axes.xaxis.set_major_formatter(lambda rate_Bps, _: rate_text(rate_Bps))
            axes.yaxis.set_major_formatter(lambda gain, _: f"{gain:g}")
        for axes in list(grid.flat)[len(shown) :]:
            axes.set_visible(False)
        lines = {line.get_label(): line for axes in grid.flat for line in axes.lines}
        write_legend(figure, [lines[name] for name in names if name in lines])
    return figure


def _draw_gains(
    axes: Axes, own: Sequence[ComparedTime], dense: Mapping[tuple[str, str], ComparedTime], colour: str
) -> None:
    pairs = [(dense[point.setting, point.trace], point) for point in own]
    rates = [point.rate_Bps for point in own]
    if not own:
        return
    predicted = [base.predicted_s / point.predicted_s for base, point in pairs]
    measured = [base.measured_s / point.measured_s for base, point in pairs]
    axes.plot(rates, predicted, color=colour, linewidth=1, label=own[0].what)
    axes.plot(rates, measured, "o", color=colour, markersize=3)


def _table(grid: Grid) -> list[str]:
    head = [column.title.replace("\n", " ") for column in grid.columns]
    rule = ["---:" if column.numeric else "---" for column in grid.columns]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *grid.rows)]


def main() -> None:
    """Write the page and its pictures."""
    result = shipped()
    IMAGES.joinpath("testbed-times.png").write_bytes(figure_bytes(times_figure(result), "png"))
    gains = gains_figure(result)
    if gains is not None:
        IMAGES.joinpath("testbed-gains.png").write_bytes(figure_bytes(gains, "png"))
    PAGE.write_text(page(result), "utf-8")


if __name__ == "__main__":
    main()
