"""docs/reducers.md is what reducers say now, and s2sim list tells the same."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from s2sim.cli.main import main
from s2sim.reducers.registry import reducer_names

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_of_reducers_is_up_to_date():
    spec = importlib.util.spec_from_file_location("make_reducers", DOCS / "make_reducers.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert (DOCS / "reducers.md").read_text("utf-8") == script.page(), "run python docs/make_reducers.py"


def listed(capsys, *arguments):
    assert main(["list", "reducers", *arguments]) == 0
    return capsys.readouterr().out


def test_all_that_is_known_stands_in_json(capsys):
    found = {item["name"]: item for item in json.loads(listed(capsys, "--json", "-"))["reducers"]}
    assert list(found) == reducer_names()
    assert found["union"]["measured"] == {
        "linear": True,
        "collectives": ["3 all-reduce"],
        "rounds": 2,
        "rounds_grow": False,
        "host_syncs": 1,
    }
    assert found["topk"]["feedback"] == "needed"
    assert found["gtopk"]["measured"]["rounds_grow"]
    assert not found["owner-reduce"]["measured"]["linear"]
    assert found["mem-sgd"]["stands_for"] == "topk:ef=true"
    for item in found.values():
        assert item["measured"] is not None, item["name"]
        assert item["summary"], item["name"]
        assert item["source"], item["name"]
        assert all(option["text"] and option["type"] for option in item["options"]), item["name"]


def test_the_table_fits_in_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = listed(capsys).splitlines()
    assert max(map(len, lines)) <= 100
    start = next(place for place, line in enumerate(lines) if line.startswith("union "))
    assert lines[start].split() == ["union", "yes", "3", "all-reduce", "2", "1", "no"]
    monkeypatch.setenv("COLUMNS", "160")
    (line,) = [line for line in listed(capsys).splitlines() if line.startswith("topka2a ")]
    assert line.split() == ["topka2a", "no", "2", "all-to-all,", "all-gather", "3", "0", "needed", "(8k+4n)(P-1)/P"]


def test_one_reducer_has_a_page(capsys):
    text = listed(capsys, "topk")
    assert "density=0.01 (float): Fraction of the elements" in text
    assert "8k(P-1)" in text


def test_other_kinds_have_no_pages(capsys):
    assert main(["list", "codecs", "bitmap"]) == 2
    assert "reducers alone have pages" in capsys.readouterr().err
    assert main(["list", "reducers", "topkk"]) == 2
    assert "did you mean 'topk'" in capsys.readouterr().err
