"""``s2sim sweep`` and ``s2sim results``."""

from __future__ import annotations

import json

import pytest

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


@pytest.fixture
def folder(tmp_path, s2sim):
    (tmp_path / "study.toml").write_text(STUDY)
    assert s2sim("sweep", tmp_path / "study.toml", "--out", tmp_path / "out", "--jobs", 1, "-q")[:2] == (
        0,
        "8 cells: 8 done.\n",
    )
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


def test_shards_are_merged(tmp_path, s2sim, folder):
    for part in ("1/2", "2/2"):
        assert (
            s2sim("sweep", tmp_path / "study.toml", "--out", tmp_path / "parts", "--shard", part, "--jobs", 1)[0] == 0
        )
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
        (("results", "nowhere"), "holds no sweep"),
    ],
)
def test_mistakes_are_one_line(fails, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert said in fails(*arguments)
