"""The notebook as a script: its pictures hold the rows that it computed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

marimo = pytest.importorskip("marimo")

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "does_s2_pay.py"


@pytest.fixture(scope="module")
def ran():
    """Return what the cells show, and what they define."""
    spec = importlib.util.spec_from_file_location("does_s2_pay", NOTEBOOK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app.run()


@pytest.fixture(scope="module")
def defined(ran):
    return ran[1]


def test_the_bars_are_the_rows_of_the_chosen_reducers(defined):
    rows = defined["rows"]
    (axes,) = defined["breakdown"].axes
    assert [row.option_string for row in rows] == [*defined["RIVALS"], defined["chosen"]]
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.option_string for row in rows]
    lengths = [sum(bars.patches[number].get_width() for bars in axes.containers) for number in range(len(rows))]
    assert lengths == pytest.approx([row.total_s for row in rows])


def test_the_curves_pass_through_the_rows(defined):
    curves, rows = defined["curves"], defined["rows"]
    (axes,) = defined["break_even"].axes
    lines = {line.get_label(): line for line in axes.lines}
    assert set(curves.speedups) == {row.option_string for row in rows} - {"dense"}
    assert curves.rates_Bps[0] == pytest.approx(1.25e8)
    assert curves.rates_Bps[-1] == pytest.approx(1e11)
    rate_Bps = defined["nic_Gbps"].value * 1.25e8
    after = next(number for number, rate in enumerate(curves.rates_Bps) if rate > rate_Bps)
    for row in rows[1:]:
        speedups = lines[row.option_string].get_ydata().tolist()
        assert speedups == list(curves.speedups[row.option_string])
        low, high = sorted(speedups[after - 1 : after + 1])
        assert low * 0.98 <= row.speedup_vs_dense <= high * 1.02


def test_the_points_are_all_rows_and_s2_is_a_line_of_all_cells(defined):

    rows = defined["result"].rows
    by_bytes, _, band, _ = defined["error"].axes
    named = [line for line in by_bytes.lines if not line.get_label().startswith("_")]
    shown = [point for line in named for point in map(tuple, line.get_xydata().tolist())]
    expected = [(row.bytes_sent_per_rank, row.error.relative_l2) for row in rows if not row.exact]
    assert sorted(shown) == sorted(expected)
    assert len([line for line in band.lines if not line.get_label().startswith("_")]) == sum(row.exact for row in rows)
    (s2,) = (line for line in by_bytes.lines if line.get_label() == "s2:warm=true, by cells")
    assert len(s2.get_xdata()) == len(defined["cells"].steps)


def test_the_pictures_are_shown_and_what_they_mean_is_said(ran):
    outputs, defined = ran
    for name in ("breakdown", "break_even", "error"):
        assert any(output is defined[name] for output in outputs)
    said = " ".join(output.text for output in outputs if isinstance(output, marimo.Html))
    exact = min((row for row in defined["rows"] if row.lossless), key=lambda row: row.total_s)
    assert f"The fastest exact reducer is <strong>{exact.option_string}</strong>" in said
    assert f"<strong>{defined['chosen']}</strong>" in said
