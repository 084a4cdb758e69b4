"""docs/reducers.md and the pages of its groups are what reducers say now, and s2sim list says the same."""

import importlib.util
import json
from pathlib import Path

import pytest

from s2sim.cli.main import main
from s2sim.experiment.reducer_facts import all_reducer_facts
from s2sim.reducers.registry import reducer_names
from s2sim.report.grid import split_grid
from s2sim.report.study_tables import reducers_grid
from s2sim.testing.reducer_properties import example_gradients

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def facts():
    return all_reducer_facts(example_gradients(8))


@pytest.mark.slow
def test_the_pages_of_reducers_are_up_to_date(facts):
    spec = importlib.util.spec_from_file_location("make_reducers", DOCS / "make_reducers.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    pages = script.pages(facts)
    assert {path.name for path in (DOCS / "reducers").iterdir()} == {Path(path).name for path in pages} - {
        "reducers.md"
    }
    for path, text in pages.items():
        assert (DOCS / path).read_text("utf-8") == text, "run python docs/make_reducers.py"


def test_all_that_is_known_stands_in_json(facts):
    found = {item.name: item.to_json() for item in facts}
    assert list(found) == reducer_names()
    assert found["union"]["measured"] == {
        "linear": True,
        "collectives": ["3 all-reduce"],
        "rounds": 2,
        "rounds_grow": False,
        "host_syncs": 1,
    }
    assert found["topk"]["feedback"] == "needed"
    assert (found["topk"]["scope"], found["qsgd"]["scope"]) == ("gradient", "bucket")
    assert found["gtopk"]["measured"]["rounds_grow"]
    assert not found["owner-reduce"]["measured"]["linear"]
    assert found["mem-sgd"]["stands_for"] == "topk:ef=true"
    for item in found.values():
        assert item["measured"] is not None, item["name"]
        assert item["summary"], item["name"]
        assert item["source"], item["name"]
        assert all(option["text"] and option["type"] for option in item["options"]), item["name"]


def listed(capsys, *arguments):
    assert main(["list", "reducers", *arguments]) == 0
    return capsys.readouterr().out


def test_the_table_fits_in_a_terminal(facts):
    whole = reducers_grid(facts)
    assert [part.columns[-1].title for part in split_grid(whole, 80, 2)] == ["feed-\nback", "bytes"]
    rows = {row[0]: row for row in whole.rows if row[0]}
    assert list(rows) == reducer_names()
    assert rows["union"][:6] == ("union", "yes", "3 all-reduce", "2", "1", "no")
    assert rows["topka2a"][2:] == ("2 all-to-all,", "3", "0", "needed", "(8k+4n)(P-1)/P")


@pytest.mark.slow
def test_the_list_of_reducers_has_a_table(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    text = listed(capsys, "--table")
    (line,) = [line for line in text.splitlines() if line.startswith("topk ")]
    assert line.split() == ["topk", "no", "all-gather", "1", "0", "needed", "8k(P-1)"]


def test_reducers_are_listed_by_family_with_citations_by_name(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = listed(capsys)
    assert max(map(len, text.splitlines())) <= 80
    assert text.index("  Sketches:") < text.index("    s2-exact ") < text.index("  Reducers that are others")
    assert "[Aji and Heafield 2017]" in " ".join(text.split())
    assert "  installed:" not in text


def test_one_reducer_has_a_page(capsys):
    (item,) = json.loads(listed(capsys, "topk", "--json", "-"))["reducers"]
    assert item["options"][0]["default"] == "0.01"
    text = listed(capsys, "topk")
    assert "density=0.01 (float): Fraction of the elements" in text
    assert "8k(P-1)" in text


def test_other_kinds_have_no_pages(capsys):
    assert main(["list", "codecs", "bitmap"]) == 2
    assert "alone have pages" in capsys.readouterr().err
    assert main(["list", "reducers", "topkk"]) == 2
    assert "did you mean 'topk'" in capsys.readouterr().err
