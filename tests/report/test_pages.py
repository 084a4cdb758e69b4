"""Pages: what stands in them as data, and what a browser makes of it."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape, unescape
from math import isclose, isfinite

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import s2sim
from s2sim.cli.main import main
from s2sim.report.format import group_by_workers
from s2sim.report.page_charts import TIME, Quantity, axis, line_chart, train_charts
from s2sim.report.screens import page, run_report
from s2sim.units import format_seconds

KILOBYTES = 500_000
SIZES = [
    "collective",
    "table",
    "all_reduce",
    "--topology",
    "fat-tree",
    "--workers",
    "8",
    "--from",
    "1KiB",
    "--to",
    "1MiB",
]


def charts_of(text):
    """Return the charts of a page, which loads nothing and runs no code of others."""
    assert len(text.encode()) <= KILOBYTES
    assert not re.search("<(link|img|iframe)|(src|@import|url)[=(][\"']?http", text)
    (data,) = re.findall('<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(data)


def numbers_of(charts, title):
    (chart,) = [chart for chart in charts if chart["title"].startswith(title)]
    return chart


def test_charts_of_a_run_are_its_rows(result):
    charts = charts_of(page(run_report(result)))
    for workers, rows in group_by_workers(result.results).items():
        bars = {
            bar["name"]: bar for bar in numbers_of(charts, f"Where the time of communication goes: {workers}")["bars"]
        }
        for row in rows:
            spans = bars[row.reducer]["spans"]
            assert isclose(spans[-1][2], row.time_s.encode + row.time_s.communication + row.time_s.decode)
            assert bars[row.reducer]["text"].startswith(format_seconds(row.time_s.total))
    if len(group_by_workers(result.results)) > 1:
        scaling = numbers_of(charts, "Speed-up by number of workers")
        shown = {(series["name"], x): y for series in scaling["series"] for x, y, _ in series["points"]}
        finite = [row for row in result.results if isfinite(row.speedup_vs_dense)]
        assert shown == {(row.reducer, row.workers): row.speedup_vs_dense for row in finite}


def test_no_name_ends_the_script(result):
    name = "</script><script>alert(1)"
    first, *others = result.results
    charts = charts_of(
        page(run_report(replace(result, results=(first, *(replace(each, reducer=name) for each in others)))))
    )
    assert name in [bar["name"] for bar in charts[0]["bars"]]


@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=9), st.sampled_from([None, True, False]))
def test_an_axis_holds_its_values_and_has_ticks(values, log):
    made = axis(TIME, values, log=log)
    assert made["low"] <= min(values)
    assert made["high"] >= max(values)
    assert made["log"] or made["ticks"][0][0] >= made["low"]
    assert 2 <= len(made["ticks"]) <= 12 or made["log"]


def test_what_no_axis_can_show_is_left_out():
    lines = {"union": [(1.0, 2.0), (2.0, float("inf"))], "fp16": [(1.0, float("nan"))]}
    chart = line_chart("title", Quantity("x", str), TIME, lines)
    assert [len(series["points"]) for series in chart["series"]] == [1, 0]
    assert chart["series"][0]["points"][0][2] == "union: 2 s at 1.0"


def test_a_page_of_sizes_has_their_times(tmp_path, capsys):
    assert main([*SIZES, "--html", str(tmp_path / "page.html"), "--csv", "-"]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    charts = charts_of((tmp_path / "page.html").read_text("utf-8"))
    at = rows[0].index("size_bytes")
    for title, column in (("Time by size", "time_s"), ("Bus bandwidth by size", "busbw_Bps")):
        of = rows[0].index(column)
        points = [(x, y) for x, y, _ in numbers_of(charts, title)["series"][0]["points"]]
        assert points == [(int(row[at]), float(row[of])) for row in rows[1:]]


def bars_of(chart):
    """Return by name of a bar its length."""
    return {bar["name"]: bar["spans"][-1][2] for bar in chart["bars"]}


@pytest.mark.parametrize("terms", [False, True])
def test_a_page_of_a_collective_has_its_time_its_terms_and_what_else_is_known(tmp_path, terms):
    words = ["collective", "all-reduce", "--topology", "fat-tree", "--workers", "8", "--size", "1MiB", "--library"]
    written = ["--html", str(tmp_path / "page.html"), "--json", str(tmp_path / "run.json"), "--quiet"]
    assert main([*words, "nccl", *written, *["--terms"] * terms]) == 0
    found = json.loads((tmp_path / "run.json").read_text("utf-8"))
    (chart,) = charts_of((tmp_path / "page.html").read_text("utf-8"))
    lengths = bars_of(chart)
    ran, bound, *_, faster = lengths
    assert ran.split()[0] == found["algorithm"]
    assert isclose(lengths[ran], found["time_s"])
    assert lengths[bound] == found["lower_bound_s"]
    assert lengths[faster] == found["faster"]["time_s"]
    parts = [chart["parts"][span[0]][0] for span in chart["bars"][0]["spans"]]
    assert len(parts) == (len([term for term in found["terms"] if term["time_s"]]) if terms else 1)
    assert len(set(parts)) == len(parts)


def cell(**fields):
    from s2sim.advice.cells import AdviceCell

    known = {"changes": "as it is", "reducer": "dense", "workers": 8, "time_s": 1e-3, "samples_per_s": None}
    known |= {"speedup_vs_dense": 1.0, "relative_l2": 0.0, "exact": True, "assumes": None, "doubt": 1.0}
    return AdviceCell(**known | {"price": None, "efficiency": None, "command": ""} | fields)


def advice(*cells, currency=None):
    from s2sim.advice.advise import Advice

    spec = s2sim.RunSpec(topology="leaf-spine", workers=(8,))
    return Advice("best", spec, ("Take it.",), cells, len(cells), 1, currency, ())


def test_a_page_of_advice_has_the_time_of_the_same_work_in_its_runs():
    faster = cell(changes="faster interfaces", reducer="union", time_s=5e-4, speedup_vs_dense=None, price=900.0)
    (chart,) = charts_of(advice(cell(), faster, currency="USD").to_html())
    assert bars_of(chart) == {"dense, as it is": 1e-3, "union, faster interfaces": 5e-4}
    assert chart["bars"][1]["text"] == "500 us, inf, exact, 900.00 USD"
    rough = cell(reducer="powersgd", exact=False, relative_l2=0.923, error_range=(0.25, 3.5))
    (chart,) = charts_of(advice(cell(), rough).to_html())
    assert chart["bars"][1]["text"] == "1 ms, 1.00x, error ~0.923"
    # Mini-batches of two sizes: a sample takes as long in both.
    both = [cell(samples_per_s=1e3), cell(reducer="fp16", samples_per_s=1e3, time_s=2e-3, exact=False, relative_l2=0.1)]
    (chart,) = charts_of(advice(*both).to_html())
    assert bars_of(chart) == {"dense": 1e-3, "fp16": 1e-3}
    assert chart["title"].startswith("Time of a sample")


def test_a_page_of_the_largest_cluster_has_efficiency_over_workers():
    cells = [cell(workers=count, efficiency=share) for count, share in ((1, 1.0), (4, 0.7), (8, 0.4))]
    (chart,) = charts_of(advice(*cells).to_html())
    assert [point[:2] for point in chart["series"][0]["points"]] == [[1, 1.0], [4, 0.7], [8, 0.4]]


def test_a_page_without_a_folder_is_refused_before_work_begins(capsys):
    assert main([*SIZES, "--html", "/no/where.html"]) == 2
    assert "there is no directory /no: create it first" in capsys.readouterr().err


@pytest.mark.parametrize("seeds", [1, 2])
def test_charts_of_a_training_are_means_inside_the_range_of_seeds(seeds):
    from s2sim.training.curve import Curve

    loss = np.array([[3.0, 2.0, 1.0], [4.0, 3.0, 2.0]])[:seeds]
    steps, time_s = np.array([0, 5, 10]), np.array([0.0, 0.5, 1.0])
    curves = tuple(
        Curve("dense", seed, steps, own, own, own, steps, time_s, own, own, steps) for seed, own in enumerate(loss)
    )

    class Row:
        reducer = "dense"

    class Trained:
        rows = (Row,)

    Trained.curves = curves
    over_steps, over_time = train_charts(Trained)
    (series,) = over_steps["series"]
    assert [(x, y) for x, y, _ in series["points"]] == list(zip([0, 5, 10], loss.mean(0), strict=True))
    assert series["band"] == ([[x, y, y + 1] for x, y in ((0, 3), (5, 2), (10, 1))] if seeds == 2 else [])
    assert [x for x, _, _ in over_time["series"][0]["points"]] == [0, 0.5, 1]


@pytest.mark.slow
def test_the_page_of_iterations_has_rates_and_streams(tmp_path):
    words = [
        "run",
        "--topology",
        "leaf-spine",
        "--workers",
        "4",
        "--profile",
        "resnet-18",
        "--reducer",
        "fp16",
        "--quiet",
    ]
    file = tmp_path / "page.html"
    assert main([*words, "--html", str(file), "--json", str(tmp_path / "run.json")]) == 0
    rows = {row["reducer"]: row for row in json.loads((tmp_path / "run.json").read_text())["results"]}
    charts = charts_of(file.read_text("utf-8"))
    bars = {bar["name"]: bar for bar in numbers_of(charts, "Where the time of an iteration goes")["bars"]}
    for name, row in rows.items():
        assert isclose(bars[name]["spans"][-1][2], row["time_s"]["iteration"], rel_tol=1e-9)
    rates = numbers_of(charts, "Speed-up over dense at other rates")
    assert min(y for _, y, _ in rates["series"][0]["points"]) > 0
    streams = {bar["name"]: bar["spans"] for bar in numbers_of(charts, "An iteration over time: dense")["bars"]}
    assert set(streams) == {"compute", "network"}
    assert streams["compute"][-1][2] <= rows["dense"]["time_s"]["iteration"] * (1 + 1e-9)


NEEDS_BROWSER = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")


def browsed(file, width=500):
    """Return what a browser makes of a page, as HTML."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--dump-dom"]
    command = ["chromium", *options, file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


# A window has at least 500 pixels, a frame in it any number.
MEASURE = """<!doctype html><title>nothing</title>
<iframe style="border:0;width:%dpx;height:9000px" srcdoc="%s"></iframe>
<script>document.querySelector("iframe").onload = (event) => {
  const page = event.target.contentDocument;
  const bounds = (node) => {
    const { left, right, top, bottom } = node.getBoundingClientRect();
    return { text: node.textContent, left, right, top, bottom };
  };
  const charts = [...page.querySelectorAll("svg.chart")].map((svg) => ({
    texts: [...svg.querySelectorAll("text")].map(bounds),
    marks: [...svg.querySelectorAll("g rect")].map(bounds),
  }));
  const { clientWidth, scrollWidth } = page.documentElement;
  document.title = JSON.stringify({ width: clientWidth, scrolled: scrollWidth, charts });
};</script>"""


def measured(folder, text, width):
    """Return where a browser puts the texts and bars of a page's charts in a window of ``width`` pixels."""
    file = folder / "frame.html"
    file.write_text(MEASURE % (width, escape(text)), "utf-8")
    (title,) = re.findall("<title>(.*?)</title>", browsed(file), re.DOTALL)
    return json.loads(unescape(title))


def apart(one, other):
    return (
        one["bottom"] <= other["top"] + 1
        or other["bottom"] <= one["top"] + 1
        or one["right"] <= other["left"]
        or other["right"] <= one["left"]
    )


LONG = "topk:density=0.001,ef=true,momentum=0.9,warmup=100,layers=all,sampled=true,values=fp16"


@pytest.mark.slow
@NEEDS_BROWSER
@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("width", [320, 375, 768])
def test_no_text_of_a_chart_is_cut_or_covered(tmp_path, width, simulated):
    iterations = {"profile": "resnet-18"} if simulated else {}
    made = s2sim.run(topology="fat-tree", workers=8, reducers=["fp16", "topk", "qsgd"], **iterations)
    report = run_report(made)
    report.charts[0]["bars"][0]["name"] = LONG
    found = measured(tmp_path, page(report), width)
    assert found["width"] == found["scrolled"] == width
    assert len(found["charts"]) == len(report.charts)
    for chart, drawn in zip(report.charts, found["charts"], strict=True):
        for text in drawn["texts"]:
            assert 0 <= text["left"] < text["right"] <= width, text
        for place, text in enumerate(drawn["texts"]):
            for other in [*drawn["texts"][place + 1 :], *drawn["marks"]]:
                assert apart(text, other), (text, other)
        shown = "".join(text["text"] for text in drawn["texts"]).replace(" ", "")
        for bar in chart.get("bars", ()):
            assert bar["name"].replace(" ", "") in shown
            assert bar["text"].replace(" ", "") in shown


@pytest.mark.slow
@NEEDS_BROWSER
@pytest.mark.parametrize("width", [500, 1440])
def test_a_browser_draws_every_chart_and_follows_a_click(tmp_path, width):
    made = s2sim.run(topology="fat-tree", workers=8, reducers=["fp16", "union"])
    clicks = (
        "<script>onerror = (text) => { document.title = text };"
        "document.querySelector('.key button').click(); document.querySelector('th button').click();</script></body>"
    )
    file = tmp_path / "page.html"
    file.write_text(made.to_html().replace("</body>", clicks), "utf-8")
    found = browsed(file, width)
    assert found.count('class="chart"') == len(run_report(made).charts)
    assert "<title>fat-tree, 8 workers: which gradient compressor pays</title>" in found
    assert 'aria-pressed="false"' in found
    assert 'aria-sort="ascending"' in found
