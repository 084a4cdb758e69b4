"""``s2sim sweep`` and ``s2sim results``."""

import io
import json
import re
import shutil
from contextlib import redirect_stdout

import pytest

from s2sim.cli.main import main
from s2sim.report.page_charts import table_chart
from s2sim.tables import table_of

STUDY = """
what = "collective"
[base]
kind = "all_reduce"
topology = "leaf-spine"
[axes]
algorithm = ["ring", "double-binary-tree"]
workers = [2, 8]
size = ["1KiB", "1MiB"]
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Carry the study out once."""
    folder, said = tmp_path_factory.mktemp("swept"), io.StringIO()
    (folder / "study.toml").write_text(STUDY)
    with redirect_stdout(said):
        assert main(["sweep", str(folder / "study.toml"), "--out", str(folder / "out"), "--jobs", "1", "-q"]) == 0
    assert said.getvalue() == "8 cells: 8 done.\n"
    return folder


@pytest.fixture
def folder(swept, tmp_path):
    shutil.copytree(swept, tmp_path, dirs_exist_ok=True)
    return tmp_path / "out"


def test_a_dry_run_does_nothing(tmp_path, s2sim):
    (tmp_path / "study.toml").write_text(STUDY)
    code, text, _ = s2sim("sweep", tmp_path / "study.toml", "--out", tmp_path / "out", "--dry-run")
    assert code == 0
    assert text.startswith("8 cells: 0 finished, 8 to compute")
    assert not (tmp_path / "out").exists()


def test_results_are_shown_selected_and_pivoted(folder, s2sim):
    assert "8 rows of" in s2sim("results", folder)[1]
    text = s2sim("results", folder, "--where", "workers == 8 and size_bytes > '2KiB'", "--sort", "total_s")[1]
    assert "2 rows of" in text
    assert text.count("1MiB") == 2
    pivot = s2sim(
        "results",
        folder,
        "--rows",
        "workers",
        "--columns",
        "algorithm",
        "--where",
        "size_bytes == '1KiB'",
        "--value",
        "total_s",
    )
    assert pivot[1].splitlines()[1] == "total_s by workers"
    assert "us" in pivot[1]


def test_tables_are_written(folder, s2sim, tmp_path):
    code, text, _ = s2sim("results", folder, "--csv", "-")
    assert code == 0
    assert len(text.splitlines()) == 9
    assert s2sim("results", folder, "--latex", tmp_path / "t.tex", "--csv", tmp_path / "t.csv")[:2] == (
        0,
        "8 rows written.\n",
    )
    assert (tmp_path / "t.csv").read_text() == text
    assert (tmp_path / "t.tex").read_text().startswith("\\begin{tabular}")
    rows = json.loads(s2sim("results", folder, "--json", "-")[1])["rows"]
    assert [row["cell"] for row in rows] == list(range(8))
    assert json.loads(s2sim("results", folder, "--cell", 3, "--json", "-")[1])["time_s"] == rows[3]["total_s"]


def test_what_ran_stands_beside_an_axis_of_that_name(tmp_path, s2sim):
    (tmp_path / "study.toml").write_text(STUDY.replace('"ring", "double-binary-tree"', '"auto", "ring"'))
    s2sim("sweep", tmp_path / "study.toml", "--out", tmp_path / "out", "--jobs", 1)
    rows = json.loads(s2sim("results", tmp_path / "out", "--json", "-")[1])["rows"]
    assert [row["algorithm"] for row in rows] == ["auto"] * 4 + ["ring"] * 4
    assert "auto" not in [row["executed_algorithm"] for row in rows]


@pytest.mark.filterwarnings("default::s2sim.errors.S2SimWarning")
def test_shards_are_merged(tmp_path, s2sim, folder):
    for part in ("2/3", "1/3", "3/3"):
        assert (
            s2sim("sweep", tmp_path / "study.toml", "--out", tmp_path / "parts", "--shard", part, "--jobs", 1)[0] == 0
        )
        if part == "2/3":
            warned = s2sim("sweep", "merge", tmp_path / "parts")[2]
            assert warned.endswith("parts lacks shards 1/3, 3/3, whose cells do not count\n")
    assert s2sim("sweep", "merge", tmp_path / "parts")[1].startswith("8 cells: 8 done.\n")
    assert s2sim("results", tmp_path / "parts", "--csv", "-")[1] == s2sim("results", folder, "--csv", "-")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sweep", "none.toml", "--out", "x"), "none.toml"),
        (("sweep", "none.toml"), "needs a folder"),
        (("sweep", "merge"), "takes the folder"),
        (("sweep", "merge", "."), "no shard"),
        (("sweep", "x.toml", "--out", "x", "--shard", "a"), "I/N"),
        (("sweep", "x.toml", "--out", "x", "--shard", "²/4"), "I/N"),
        (("results", "nowhere"), "holds no sweep"),
    ],
)
def test_mistakes_are_one_line(fails, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert said in fails(*arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cell", 0, "--csv", "-"), "--csv is of rows"),
        (("--columns", "workers"), "without --rows"),
        (("--value", "total_s"), "without --rows"),
        (("--plot", "workers,total_s"), "without --png"),
        (("--png", "a.png"), "without --plot"),
        (("--plot", "workers", "--png", "a.png"), "X,Y,COLOUR"),
        (("--plot", "workers,nothing,algorithm", "--png", "a.png"), "no column 'nothing'"),
        (("--plot", "algorithm,total_s,workers", "--png", "a.png"), "is a text"),
        (("--plot", "workers,total_s", "--png", "a.png", "--rows", "workers"), "leave one of them out"),
    ],
)
def test_options_that_change_nothing_are_refused(folder, s2sim, arguments, said):
    code, _, error = s2sim("results", folder, *arguments)
    assert code == 2
    assert said in error


def test_rows_are_drawn(folder, s2sim, tmp_path):
    pytest.importorskip("matplotlib")
    target = tmp_path / "times.svg"
    assert s2sim("results", folder, "--plot", "size_bytes,total_s", "--png", target)[0] == 0
    svg = target.read_text()
    assert "total_s over size_bytes (B) by algorithm; medians, least to largest shaded" in svg
    assert "double-binary-tree" in svg


def charts_of(page):
    (data,) = re.findall('<script type="application/json" id="data">(.*?)</script>', page.read_text("utf-8"))
    return json.loads(data)


def test_a_page_of_results_has_its_rows_over_the_first_axis_of_numbers(folder, s2sim, tmp_path):
    page = tmp_path / "rates.html"
    assert s2sim("results", folder, "--html", page, "--where", "size_bytes == '1MiB'")[0] == 0
    (chart,) = charts_of(page)
    rows = json.loads(s2sim("results", folder, "--where", "size_bytes == '1MiB'", "--json", "-")[1])["rows"]
    shown = {(series["name"], x): y for series in chart["series"] for x, y, _ in series["points"]}
    assert shown == {(row["algorithm"], row["workers"]): row["busbw_Bps"] for row in rows}


def test_a_page_of_a_pivot_has_what_it_shows(folder, s2sim, tmp_path):
    page, pivot = tmp_path / "pivot.html", ("--rows", "size_bytes", "--columns", "algorithm", "--value", "total_s")
    assert s2sim("results", folder, *pivot, "--where", "workers == 8", "--html", page)[0] == 0
    (chart,) = charts_of(page)
    assert chart["title"] == "total_s over size_bytes (B) by algorithm"
    assert [x for x, _, _ in chart["series"][0]["points"]] == [2**10, 2**20]


def test_a_sweep_writes_the_page_of_its_results(folder, s2sim, tmp_path):
    swept, shown = tmp_path / "swept.html", tmp_path / "shown.html"
    code, text, _ = s2sim("sweep", tmp_path / "study.toml", "--out", folder, "--jobs", 1, "--html", swept)
    assert code == 0
    assert text.startswith("8 cells: 8 done.")
    assert s2sim("results", folder, "--html", shown)[0] == 0
    tables = [re.findall("<table>.*?</table>", page.read_text("utf-8"), re.DOTALL) for page in (swept, shown)]
    assert tables[0] == tables[1]
    assert len(tables[0]) == 1
    assert charts_of(swept) == charts_of(shown) != []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--html", "/no/where.html"), "there is no directory /no"), (("--html", "x.html", "--dry-run"), "leave one out")],
)
def test_a_page_that_a_sweep_cannot_write_is_refused_before_work_begins(tmp_path, fails, arguments, said):
    (tmp_path / "study.toml").write_text(STUDY)
    assert said in fails("sweep", tmp_path / "study.toml", "--out", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_a_chart_has_medians_and_ranges_in_the_unit_of_the_column():
    rows = [{"rate": rate, "s": s, "of": "a"} for rate, s in (("1Gbps", 3.0), ("1Gbps", 1.0), ("25Gbps", 2.0))]
    chart = table_chart(table_of([*rows, {"rate": "2Gbps", "s": None, "of": "b"}]), "rate", "s", "of")
    (line,) = chart.lines
    assert line.x == pytest.approx((1.0, 25.0))
    assert (line.y, line.low, line.high) == ((2.0, 2.0), (1.0, 2.0), (3.0, 2.0))
    assert (chart.x, chart.log_x, chart.log_y) == ("rate (Gbps)", True, False)


def test_why_cells_are_refused_is_said_where_they_are_counted(tmp_path, s2sim):
    study = """what = "collective"
base = { kind = "all_reduce", topology = "single-switch", size = "1KiB", workers = 2 }
axes = { algorithm = ["ring", "nosuch"] }
"""
    (tmp_path / "study.toml").write_text(study)
    lines = s2sim("sweep", tmp_path / "study.toml", "--out", tmp_path / "out", "--jobs", "1")[1].splitlines()
    assert lines[0] == "2 cells: 1 done, 1 refused."
    assert lines[1].startswith("Refused: unknown algorithm 'nosuch' (known: ")


def test_what_cells_warn_of_is_said_once_with_their_number(tmp_path, s2sim):
    study = """base = { topology = "leaf-spine", workers = 4, trace = "ncf", reducers = ["union"] }
axes = { seed = [1, 2], "nic.rate" = ["10Gbps", "25Gbps"] }
where = { few = "seed < 2 or nic.rate < '20Gbps'" }
"""
    (tmp_path / "study.toml").write_text(study)
    said = "changes nothing here: all 4 workers are in one node.\n"
    lines = f"Warning in 2 cells: nic.rate=10Gbps {said}Warning in 1 cell: nic.rate=25Gbps {said}"
    # Also where all is finished.
    for _ in range(2):
        text = s2sim("sweep", tmp_path / "study.toml", "--out", tmp_path / "out", "--jobs", "1", "-q")[1]
        assert text == f"3 cells: 3 done.\n{lines}"
    assert s2sim("results", tmp_path / "out")[1].endswith(lines)
