"""What tables and pictures say of iterations."""

from dataclasses import replace

import pytest

from s2sim.experiment.judgement import pareto_fronts
from s2sim.report.answer import result_text
from s2sim.report.figures.reducers import HIDDEN, STACKED, error_figure, iterations_figure
from s2sim.report.figures.style import ITERATION_PARTS
from s2sim.report.figures.sweeps import scaling_figure
from s2sim.report.run_tables import iteration_grids, scaling_efficiencies
from s2sim.report.screens import screen_html

from .conftest import iterating, iterating_rows


def by_workers(result):
    held = {row.workers: [] for row in result.rows}
    for row in result.rows:
        held[row.workers].append(row)
    return held


def test_the_first_screen_tells_iterations_throughput_and_what_is_exposed(iterations):
    text = result_text(iterations)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "time of an iteration, ddp:bucket=25MiB, 20" in text
    (dense,) = (line.split() for line in text.splitlines() if line.strip().startswith("dense "))
    assert dense == ["dense", "388", "ms", "1.00x", "5,278", "30", "ms", "40%", "exact"]
    (union,) = (line.split() for line in text.splitlines() if line.strip().startswith("union "))
    assert union[-1] == "beaten"


def test_an_unknown_batch_leaves_throughput_open(iterations):
    rows = [replace(row, iteration=replace(row.iteration, samples_per_s=None)) for row in iterations.rows]
    (dense,) = (
        line.split()
        for line in result_text(replace(iterations, results=tuple(rows))).splitlines()
        if line.strip().startswith("dense ")
    )
    assert dense[4] == "-"


def test_details_show_every_part_of_an_iteration(iterations):
    (grid,) = iteration_grids(iterations)
    titles = [column.title.replace("-\n", "").replace("\n", " ") for column in grid.columns]
    cells = dict(zip(titles, grid.rows[1], strict=True))
    assert cells == {
        "reducer": "fp16",
        "iteration": "372 ms",
        "forward": "110 ms",
        "backward": "240 ms",
        "codec": "2 ms",
        "communication, exposed": "12 ms",
        "waiting": "2 ms",
        "optimizer": "6 ms",
        "5% to 95%": "4 ms",
        "communication, hidden": "20 ms",
        "samples /s": "5,505",
    }
    assert "median of 5 iterations" in grid.title
    assert grid.title in screen_html(iterations)


def test_a_run_without_iterations_has_no_table_of_them(result):
    assert iteration_grids(result) == []


def test_several_numbers_of_workers_tell_how_throughput_scales(scaled_iterations):
    text = result_text(scaled_iterations)
    assert "throughput of a worker over that of" in text.replace("\n", " ")
    dense = [line.split() for line in text.splitlines() if line.startswith("dense ")]
    assert " ".join(dense[0]) == "dense 364 ms, 1.00x, 100% 373 ms, 1.00x, 98%"
    assert " ".join(dense[1]) == "dense 388 ms, 1.00x, 94%"


@pytest.mark.parametrize("known", [True, False])
def test_scaling_efficiency_is_throughput_of_a_worker_over_that_of_the_fewest(known):
    rows = [iterating(workers=8, exposed=0.002), iterating(workers=32, exposed=0.182)]
    if not known:
        rows = [replace(row, iteration=replace(row.iteration, samples_per_s=None)) for row in rows]
    assert scaling_efficiencies(reversed(rows)) == pytest.approx({8: 1.0, 32: 0.36 / 0.54})


def test_bars_add_up_to_iterations_and_hidden_communication_ends_where_exposed_begins():
    rows = iterating_rows()
    (axes,) = iterations_figure({64: rows}).axes
    bars = {container.get_label(): container.patches for container in axes.containers}
    assert [*STACKED, HIDDEN] == list(ITERATION_PARTS)
    stacked = [part for part in STACKED if part != "host"]
    assert list(bars) == [*stacked, HIDDEN]
    names = [text.get_text() for text in axes.get_yticklabels()]
    order = sorted(rows, key=lambda row: row.iteration_s)
    assert names == [row.option_string for row in order]
    for number, row in enumerate(order):
        own = [bars[part][number] for part in stacked]
        assert own[0].get_x() == 0
        assert own[-1].get_x() + own[-1].get_width() == pytest.approx(row.iteration_s)
        assert [bar.get_width() for bar in own] == pytest.approx(
            [getattr(row.iteration, part.replace(" ", "_")) for part in stacked]
        )
        thin = bars[HIDDEN][number]
        exposed = bars["exposed communication"][number]
        assert thin.get_width() == pytest.approx(row.iteration.hidden_communication)
        assert thin.get_x() + thin.get_width() == pytest.approx(exposed.get_x())
        assert thin.get_y() >= exposed.get_y() + exposed.get_height() - 1e-9
    beside = [text.get_text() for text in axes.texts]
    assert beside[names.index("fp16")] == "372 ms, 1.04x, 5,505/s, exact"


def test_texts_of_bars_stay_in_the_picture():
    figure = iterations_figure({64: iterating_rows()}, "a cluster")
    right = figure.bbox.x1
    assert all(text.get_window_extent().x1 <= right for text in figure.axes[0].texts)
    (legend,) = (part.legends[0] for part in figure.subfigs[1].subfigs if part.legends)
    assert legend.get_window_extent().x0 >= 0
    assert legend.get_window_extent().x1 <= right


def test_errors_stand_against_the_time_of_iterations():
    rows = iterating_rows()
    figure = error_figure({64: rows}, {64: pareto_fronts(rows)})
    titles = [axes.get_xlabel() for axes in figure.axes]
    assert "time of an iteration" in titles
    assert "time of the communication phase" not in titles
    main = figure.axes[1]
    drawn = {x for line in main.lines if not line.get_label().startswith("_") for x in line.get_xdata().tolist()}
    assert drawn == {row.iteration.total_s for row in rows if not row.exact}
    # As narrow a range as that has ticks to read it by.
    assert len(main.get_xticks()) >= 3
    assert "signsgd" in pareto_fronts(rows)[1]


@pytest.mark.slow
def test_scaling_shows_efficiency_of_iterations(scaled_iterations):
    time, share = scaling_figure(by_workers(scaled_iterations)).axes
    assert time.get_title(loc="left") == "time of an iteration"
    (dense,) = (line for line in share.lines if line.get_label() == "dense")
    assert dense.get_ydata().tolist() == pytest.approx([1.0, 0.364 / 0.373, 0.364 / 0.388])
    # A range as narrow as that has ticks to read it by.
    assert len([tick for tick in time.get_yticks() if 0.36 < tick < 0.42]) > 3
