"""Figures hold what rows say, and can be read."""

from dataclasses import replace
from html import unescape
from itertools import combinations, pairwise
from math import inf
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import s2sim
from s2sim.errors import OptionError
from s2sim.experiment.judgement import pareto_fronts
from s2sim.experiment.rate_curve import rate_curves
from s2sim.experiment.spec import FOR_TABLES
from s2sim.reducers.measure import Error
from s2sim.reducers.registry import REDUCERS
from s2sim.report.figures.labels import describe_setup, spread_positions
from s2sim.report.figures.reducers import PHASES, breakdown_figure, error_figure
from s2sim.report.figures.style import (
    FAMILY_STYLES,
    FORMATS,
    family_of,
    family_style,
    figure_bytes,
    figure_style,
    find_series,
    log_limits,
    log_ticks,
)
from s2sim.report.figures.sweeps import break_even_figure, scaling_figure

SMALL = "synthetic:density=0.02,overlap=0.5,rows=2000,width=16"
CELLS = (0.25, 1, 4, 16)
ASKED = (
    "fp16",
    *(f"topk:density={density}" for density in (0.001, 0.003, 0.01)),
    "topk:density=0.01,ef=true",
    *("union", "owner-reduce", "gather-rows", "s2-exact"),
    *(f"s2:cells={cells}" for cells in reversed(CELLS)),
    "s2:preset=authors-gnmt",
)
RATES_BPS = tuple(1.25e8 * 2.0**step for step in range(11))


@pytest.fixture(scope="module")
def result():
    return s2sim.run("fat-tree", workers=8, trace=SMALL, reducers=ASKED)


@pytest.fixture(scope="module")
def rows(result):
    return result.rows


@pytest.fixture(scope="module")
def curves(result):
    return replace(rate_curves(result.spec, RATES_BPS), crossings=result.verdict.break_even)


@pytest.fixture(scope="module")
def figures(result, curves):
    rows, subtitle = {8: result.rows}, describe_setup(result)
    more = {
        8: result.rows,
        16: [replace(row, workers=16, time_s=row.time_s._replace(total=2 * row.time_s.total)) for row in result.rows],
    }
    return {
        "breakdown": breakdown_figure(rows, subtitle),
        "break-even": break_even_figure({8: curves}, subtitle),
        "error": error_figure(rows, {8: pareto_fronts(result.rows)}, subtitle),
        "scaling": scaling_figure(more, subtitle),
    }


def colour(artist):
    from matplotlib.colors import to_hex

    return to_hex(artist.get_color() if hasattr(artist, "get_color") else artist.get_facecolor()).upper()


def texts(figure):
    from matplotlib.text import Text

    return [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]


def points(axes):
    """Return the points of all lines that a legend names, as (name, x, y)."""
    lines = [line for line in axes.lines if not line.get_label().startswith("_")]
    return [(line.get_label(), x, y) for line in lines for x, y in line.get_xydata().tolist()]


def test_bars_are_as_long_as_the_phases_and_follow_each_other(figures, rows):
    (axes,) = figures["breakdown"].axes
    assert [text.get_text() for text in axes.get_yticklabels()] == [row.option_string for row in rows]
    bars = {container.get_label(): container.patches for container in axes.containers}
    assert tuple(bars) == tuple(PHASES)
    for number, row in enumerate(rows):
        communication, encode, decode = (bars[phase][number] for phase in PHASES)
        assert encode.get_width() == pytest.approx(row.time_s.encode)
        assert communication.get_width() == pytest.approx(row.time_s.communication)
        assert decode.get_width() == pytest.approx(row.time_s.decode)
        assert encode.get_x() == pytest.approx(row.time_s.communication)
        assert decode.get_x() + decode.get_width() == pytest.approx(row.time_s.total)
        (bound,) = axes.collections[number].get_segments()
        assert bound[:, 0].tolist() == [row.lower_bound_s] * 2
        assert colour(communication) == family_style(row.name).colour
    assert axes.get_xlim()[0] == 0
    assert axes.get_xscale() == "linear"


def test_beside_each_bar_stand_speed_up_and_error(figures, rows):
    found = [text.get_text() for text in figures["breakdown"].axes[0].texts]
    for text, row in zip(found, rows, strict=True):
        assert f"{row.speedup_vs_dense:.2f}x" in text
        assert text.endswith("exact" if row.exact else f"error {row.error.relative_l2:.3g}")


@pytest.mark.parametrize("quantity", ["bytes_sent_per_rank", "time_s.total"])
def test_points_are_at_the_errors_of_the_rows(figures, rows, quantity):
    column = ["bytes_sent_per_rank", "time_s.total"].index(quantity)
    main, band = figures["error"].axes[column], figures["error"].axes[2 + column]
    value = attrgetter(quantity)
    expected = sorted((value(row), row.error.relative_l2) for row in rows if not row.exact)
    assert sorted((x, y) for _, x, y in points(main)) == expected
    exact = [row for row in rows if row.exact]
    assert {name: x for name, x, _ in points(band)} == {row.reducer: value(row) for row in exact}
    assert {"dense", "union", "owner-reduce", "gather-rows", "s2-exact"} <= {row.option_string for row in exact}
    assert main.get_xlim() == band.get_xlim()
    assert main.get_xscale() == main.get_yscale() == band.get_xscale() == "log"
    for _, x, y in points(main):
        assert main.get_xlim()[0] < x < main.get_xlim()[1]
        assert main.get_ylim()[0] < y < main.get_ylim()[1]


def test_a_swept_option_is_one_line_in_its_order(figures, rows):
    main = figures["error"].axes[0]
    (line,) = (line for line in main.lines if line.get_label() == "s2, by cells")
    of = {row.option_string: row for row in rows}
    assert line.get_xdata().tolist() == [of[f"s2:cells={cells}"].bytes_sent_per_rank for cells in CELLS]
    (legend,) = (part.legends for part in figures["error"].subfigs[1].subfigs)
    named = {text.get_text() for text in legend[0].get_texts()}
    assert named == {"s2, by cells", "topk, by density", "topk:density=0.01,ef=true", "fp16", "s2:preset=authors-gnmt"}
    labels = [text.get_text() for text in main.texts]
    assert {"0.25", "1", "4", "16", "fp16"} <= set(labels)


def test_labels_cross_no_line_and_no_marker(figures):
    from matplotlib.path import Path
    from matplotlib.text import Text

    figure = figures["error"]
    for main in figure.axes[:2]:
        boxes = [Text.get_window_extent(text) for text in main.texts]
        assert len(boxes) > 4
        lines = [main.transData.transform(line.get_xydata()) for line in main.lines]
        for box in boxes:
            for line, drawn in zip(lines, main.lines, strict=True):
                if drawn.get_label() != "_ring" and len(line) > 1:
                    assert not Path(line).intersects_bbox(box, filled=False)
            markers = np.concatenate(
                [line for line, drawn in zip(lines, main.lines, strict=True) if drawn.get_marker() != "None"]
            )
            assert not any(box.contains(*marker) for marker in markers)


def test_what_nothing_beats_is_ringed(figures, rows):
    for column, beaten in enumerate(pareto_fronts(rows)):
        main, band = figures["error"].axes[column], figures["error"].axes[2 + column]
        rings = [len([line for line in axes.lines if line.get_label() == "_ring"]) for axes in (main, band)]
        assert sum(rings) == len(beaten) >= 1


def test_lines_of_scaling_pass_through_every_number_of_workers(figures, rows):
    time, gain = figures["scaling"].axes
    of = {line.get_label(): line for line in time.lines}
    for row in rows:
        assert of[row.option_string].get_xdata().tolist() == [8, 16]
        assert of[row.option_string].get_ydata().tolist() == [row.time_s.total, 2 * row.time_s.total]
    assert {text.get_text() for text in gain.texts} == {row.option_string for row in rows}
    assert [text.get_text() for text in time.get_xticklabels()] == ["8", "16"]
    with pytest.raises(OptionError, match="several numbers of workers"):
        scaling_figure({8: rows})


@pytest.mark.slow
def test_what_never_wins_is_pale_and_its_error_stands_beside(rows, curves):
    rejected = {"topk:density=0.01": "worse than zeros"}
    for figure in (break_even_figure({8: curves}, "", rejected), scaling_figure({8: rows, 16: rows}, "", rejected)):
        axes = figure.axes[-1]
        said = [
            text.get_text() for text in axes.texts if text.get_text().startswith("topk:density=0.01 (worse than zeros)")
        ]
        assert len(said) == 1
        pale = {
            line.get_label()
            for line in axes.lines
            if line.get_alpha() not in {None, 1.0} and line.get_label()[0] != "_"
        }
        assert pale == set(rejected)


def test_efficiency_is_the_share_of_an_iteration_that_computes(rows):
    timed = {
        count: [
            replace(row, workers=count, time_s=row.time_s._replace(total=1.0, iteration=1.0 + count)) for row in rows
        ]
        for count in (1, 3)
    }
    share = scaling_figure(timed).axes[1]
    line = next(line for line in share.lines if line.get_label() == "dense")
    assert line.get_ydata().tolist() == pytest.approx([1 / 2, 3 / 4])
    assert share.get_yscale() == "linear"
    low, high = share.get_ylim()
    assert 0 <= low < 1 / 2 < 1 < high


def test_scaling_from_one_worker_who_takes_no_time(rows):
    lone = [
        replace(
            row, workers=1, time_s=row.time_s._replace(total=0.0 if row.name == "dense" else 1e-5), speedup_vs_dense=0.0
        )
        for row in rows
    ]
    time, gain = scaling_figure({1: lone, 8: rows}).axes
    for axes in (time, gain):
        line = next(line for line in axes.lines if line.get_label() == "dense")
        assert np.isfinite(line.get_ydata()).tolist() == [False, True]
        assert axes.get_ylim()[0] > 0


@pytest.mark.parametrize("name", ["breakdown", "break-even", "error", "scaling"])
def test_cluster_gradients_and_library_stand_above(figures, result, name):
    said = " ".join(text.get_text() for text in texts(figures[name]) if text.get_text() in about_lines(figures[name]))
    for words in (result.cluster, f"gradients of {SMALL}", f"library {result.library}"):
        assert words in said


def about_lines(figure):
    return [text.get_text() for text in figure.texts]


def many(rows, count=40):
    return [replace(rows[number % len(rows)], reducer=f"s2:cells={number}", options={}) for number in range(count)]


@pytest.mark.slow
def test_an_svg_says_what_the_figure_says(figures):
    for figure in figures.values():
        said = unescape(figure_bytes(figure, "svg").decode())
        assert [text.get_text() for text in texts(figure) if f">{text.get_text()}</text>" not in said] == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [12, 40])
def test_with_many_reducers_the_legend_covers_nothing_and_files_stay_small(rows, count):
    drawn = many(rows, count)
    figure = breakdown_figure({8: drawn})
    with figure_style():
        figure.draw_without_rendering()
    (axes,) = figure.axes
    (legend,) = (part.legends[0] for part in figure.subfigs[1].subfigs if part.legends)
    assert legend.get_window_extent().y1 < axes.get_tightbbox().y0
    assert legend.get_window_extent().y0 > 0
    assert len(figure_bytes(figure, "svg")) < 3e5
    assert len(figure_bytes(error_figure({8: drawn}, {8: pareto_fronts(drawn)}), "svg")) < 3e5


def test_rows_that_differ_in_more_than_a_number_are_no_sweep(rows):
    of = {row.option_string: row for row in rows}
    (sweep,) = (series for series in find_series(rows) if series.rows[0].name == "topk" and series.swept)
    assert [row.option_string for row in sweep.rows] == [f"topk:density={density}" for density in (0.001, 0.003, 0.01)]
    assert of["topk:density=0.01,ef=true"] not in sweep.rows
    assert sum(len(series.rows) for series in find_series(rows)) == len(rows)


@pytest.mark.slow
def test_every_number_of_workers_has_its_panels(rows):
    more = tuple(replace(row, workers=16) for row in rows)
    figure = error_figure({8: rows, 16: more})
    assert len(figure.axes) == 2 * 4
    assert [text.get_text().partition(";")[0] for text in texts(figure) if "workers" in text.get_text()] == [
        "8 workers",
        "16 workers",
    ]
    bars = breakdown_figure({8: rows, 16: more})
    assert [axes.get_title(loc="left") for axes in bars.axes] == ["8 workers", "16 workers"]


def test_without_exact_rows_there_is_no_band(rows):
    lossy = [row for row in rows if not row.exact]
    assert len(error_figure({8: lossy}).axes) == 2
    assert len(points(error_figure({8: [row for row in rows if row.exact]}).axes[0])) == 0


def test_an_error_that_tells_nothing_is_not_drawn(rows):
    dense, fp16, *others = rows
    drifting = replace(fp16, estimates="weights", lossless=False)
    figure = error_figure({8: [dense, drifting, *others]})
    (note,) = (text.get_text() for text in texts(figure) if "not shown" in text.get_text())
    assert "fp16 (own models)" in note
    bars = breakdown_figure({8: [dense, drifting]})
    assert any(text.get_text().endswith("own models") for text in texts(bars))


def test_what_a_logarithmic_axis_cannot_show_is_said(rows):
    dense, fp16, first, second, *others = rows
    broken = [
        dense,
        replace(fp16, error=Error(None, None, None)),
        replace(first, error=Error(inf, None, None)),
        replace(second, bytes_sent_per_rank=0),
        *others,
    ]
    figure = error_figure({8: broken})
    (note,) = (text.get_text() for text in texts(figure) if "not shown" in text.get_text())
    assert "fp16 (error undefined)" in note
    assert f"{first.option_string} (error undefined)" in note
    assert f"{second.option_string} (takes nothing)" in note
    shown = len(points(figure.axes[0])) + len(points(figure.axes[2]))
    assert shown == len(rows) - 3


def test_one_worker_has_figures_too():
    lone = s2sim.run("fat-tree", workers=1, trace=SMALL, reducers=["union"], library="ideal", break_even=False).rows
    assert "1 worker" in breakdown_figure({1: lone}).axes[0].get_title(loc="left")
    figure = error_figure({1: lone})
    # Nothing is sent: what the rank would hand to a network stands in its place.
    (point,) = points(figure.axes[2])
    assert point[1] == lone[1].payload_bytes_per_rank
    assert any("dense (takes nothing)" in text.get_text() for text in texts(figure))


def test_curves_are_the_speed_ups_and_cross_one_where_the_verdict_says(figures, curves, result):
    (axes,) = figures["break-even"].axes
    lines = {line.get_label(): line for line in axes.lines}
    shown = [crossing for crossing in result.verdict.break_even if crossing.at_Bps < RATES_BPS[-1]]
    assert shown
    for reducer, speedups in curves.speedups.items():
        assert lines[reducer].get_xdata().tolist() == list(RATES_BPS)
        assert lines[reducer].get_ydata().tolist() == list(speedups)
        assert colour(lines[reducer]) == family_style(reducer.partition(":")[0]).colour
    for crossing in shown:
        gains = np.log(curves.speedups[crossing.reducer])
        (after,) = np.flatnonzero((gains[:-1] > 0) != (gains[1:] > 0)) + 1
        assert RATES_BPS[after - 1] <= crossing.at_Bps <= RATES_BPS[after]
    rings = axes.collections[-1].get_offsets()
    assert rings.tolist() == [[crossing.at_Bps, 1.0] for crossing in shown]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert "nic.rate" in axes.get_xlabel()
    names = {text.get_text().partition(", ")[0] for text in axes.texts}
    assert {"dense", "union"} <= names


def test_texts_do_not_overlap(figures):
    from matplotlib.text import Text

    for name, figure in figures.items():
        with figure_style():
            figure.draw_without_rendering()
        # Without the line that joins it with its point.
        shown = [(text.get_text(), Text.get_window_extent(text)) for text in texts(figure)]
        for (first, box), (second, other) in combinations(shown, 2):
            # A pixel: fonts are hinted.
            width = min(box.x1, other.x1) - max(box.x0, other.x0)
            height = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert width < 1 or height < 1, f"{name}: {first!r} over {second!r}"
        size = figure.bbox
        assert [
            text for text, box in shown if not (size.x0 <= box.x0 and box.x1 <= size.x1 and size.y0 <= box.y0)
        ] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["error", *(pytest.param(name, marks=pytest.mark.slow) for name in ("breakdown", "break-even"))]
)
def test_figures_become_the_same_files_each_time(figures, name):
    for file_format in FORMATS:
        first, second = (figure_bytes(figures[name], file_format[1:]) for _ in range(2))
        assert first == second
        assert len(first) > 5000


def test_rows_of_several_numbers_of_workers_do_not_mix(rows):
    with pytest.raises(OptionError, match="found 8, 16"):
        breakdown_figure({8: [rows[0], replace(rows[0], workers=16)]})
    with pytest.raises(OptionError, match="no rows"):
        breakdown_figure({8: []})


def test_iterations_and_extrapolations_say_so(curves):
    compared = s2sim.run("fat-tree", workers=16, trace="cnn", reducers=["fp16"], compute="1ms", break_even=False).rows
    figure = breakdown_figure({16: compared})
    assert figure.axes[0].get_title(loc="left") == "16 workers, extrapolated"
    assert "of iterations" in figure.texts[0].get_text()
    figure = break_even_figure({8: replace(curves, extrapolated=True, compute=True)})
    assert "extrapolated" in figure.axes[0].get_title(loc="left")
    assert "iterations" in figure.texts[0].get_text()


# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009):
# linear RGB as it is seen without one kind of cone.
SIGHTS = {
    "all": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
# Differences of about 2.3 can just be seen.
CLEARLY_DIFFERENT = 12.0


def lab(code, sight):
    """Return CIE L*a*b* of a colour as it is seen."""
    levels = np.array([int(code[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(sight) @ linear, 0, 1)
    xyz = np.array(TO_XYZ) @ seen / [0.95047, 1, 1.08883]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHTS)
def test_families_are_told_apart_by_everybody(sight):
    seen = [lab(look.colour, SIGHTS[sight]) for look in FAMILY_STYLES.values()]
    assert min(np.linalg.norm(one - other) for one, other in combinations(seen, 2)) > CLEARLY_DIFFERENT


def test_what_is_compared_unless_others_are_asked_for_has_looks_of_its_own():
    looks = [family_style(family) for family in {family_of(text) for text in FOR_TABLES}]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == len(looks)
    others = [family_style(name) for name in REDUCERS.names() if name not in FAMILY_STYLES]
    assert not {look.colour for look in others} & {look.colour for look in FAMILY_STYLES.values()}
    assert not {look.marker for look in others} & {look.marker for look in FAMILY_STYLES.values()}
    assert family_style("a-plug-in") == family_style("a-plug-in")


positive = st.floats(1e-12, 1e12)


@given(positive, st.floats(1.5, 1e9), st.sampled_from([1.0, 1.25e8]), st.sampled_from([5, 7]))
def test_ticks_are_in_sight_and_few(low, factor, unit, most):
    ticks = log_ticks(low, low * factor, unit, most)
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= most
    assert all(low * 0.999 <= tick <= low * factor * 1.001 for tick in ticks)


def test_limits_hold_what_can_be_shown():
    low, high = log_limits([0.0, 2.0, inf, float("nan"), 50.0], include=1.0)
    assert 0 < low < 1
    assert 50 < high < 100
    assert log_limits([0.0]) == (1.0, 10.0)


@given(st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=12))
def test_names_keep_their_distance(wanted):
    places = spread_positions(sorted(wanted), 0.05)
    assert all(after - before > 0.05 - 1e-9 for before, after in pairwise(places))
    assert places[0] >= -1e-9
    assert places[-1] <= 1 + 1e-9
