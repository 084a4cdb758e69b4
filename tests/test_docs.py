"""Every example in a document runs: console lines here, Python ones as doctests of the same files."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

import s2sim
from s2sim.cli.main import main

from .cli.test_examples import EXAMPLES

ROOT = Path(__file__).parents[1]
# These take over a third of a second each; no line but a slow one reads what they write.
SLOW = {
    "dev validate --html fidelity.html --json fidelity.json",
    "run --topology leaf-spine --workers 32 --reducer union --reducer s2:rows=3,cells=4 --compute 120ms",
    "run --topology fat-tree --workers 8,16,32 --reducer topk:density=0.01 --max-error 0.1 --json result.json",
    "run --spec result.json --quiet",
    "run --topology fat-tree --workers 4 --trace lstm-lm-steps --steps 8 --reducer topk:density=0.01",
    "run --topology fat-tree --trace ncf --workers 8,64 --show pareto",
    "run --topology fat-tree --trace lstm-lm --workers 8,64 --show pareto --png compare.png",
    "run --topology fat-tree --trace lstm-lm --workers 8 --show pareto --png compare.svg",
    "regimes --library ideal --png regimes.png",
    "run --topology fat-tree --workers 16 --reducer union --fault slow-rank:rank=3,factor=2 --fault jitter:latency=5us",
    "run --topology single-switch --workers 16 --trace synthetic:density=0.01,overlap=0.5 --set nic.rate=25Gbps",
    "run --topology fat-tree --workers 64 --reducer s2:error=0.1 --reducer s2-exact:warm=true --reducer union",
    (
        "run --topology fat-tree --workers 4 --trace lstm-lm-steps --steps 20 --reducer topk:density=0.01"
        " --reducer s2:rows=1,cells=0.5 --reducer s2:rows=3,cells=2"
    ),
}
# The ends of the axes of a map that takes a minute: 16 of its 144 cells.
ENDS = {
    "regimes --library ideal --png regimes.png": (
        "--density 0.001,0.2 --overlap 0,1 --rate 1Gbps,400Gbps --latency 1us,50us"
    )
}
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# What stands under a --help too runs in tests/cli/test_examples.py; none of it writes what another line reads.
HELP = {line.removeprefix("s2sim ") for lines in EXAMPLES.values() for line in lines}
WITH_EXAMPLES = [path for path in DOCUMENTS if "```" in path.read_text(encoding="utf-8")]


def console_lines(document):
    inside = False
    for line in document.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line == "```console"
        elif inside and line.startswith("$ s2sim"):
            yield line.removeprefix("$ s2sim ")


def documents():
    """Yield each document with the lines to leave out: those that take seconds, but in the slow tests none."""
    for path in WITH_EXAMPLES:
        if path.parent == ROOT:
            yield pytest.param(path, SLOW, id=f"{path.name}-quick")
            if SLOW.isdisjoint(console_lines(path)):
                continue
        yield pytest.param(path, set(), id=path.name, marks=pytest.mark.slow)


@pytest.mark.usefixtures("one_validation")
@pytest.mark.parametrize(("document", "left_out"), list(documents()))
def test_examples_run(document, left_out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testfile(str(document), module_relative=False)
    assert failed == 0
    for line in console_lines(document):
        if line not in left_out | HELP:
            assert main(shlex.split(f"{line} {ENDS.get(line, '')}")) == 0, line
            assert capsys.readouterr().out, line


@pytest.mark.slow
def test_the_frame_of_usage_has_a_row_for_each_reducer_and_number_of_workers():
    pytest.importorskip("polars")
    text = (ROOT / "docs" / "usage.md").read_text(encoding="utf-8")
    names = {"s2sim": s2sim}
    exec("import polars" + text.split("```python\nimport polars")[1].split("```")[0], names)
    expected = [
        (row.reducer, row.workers, row.speedup_vs_dense, row.time_s.total, row.error.relative_l2)
        for row in names["result"].rows
    ]
    assert names["times"].rows() == expected
    assert len(expected) == 6


def test_slow_examples_stand_in_a_document():
    assert {line for document in DOCUMENTS for line in console_lines(document)} >= SLOW | ENDS.keys()


def test_the_readme_starts_with_the_two_commands():
    lines = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("$ ")]
    assert lines[:2] == [
        "$ pip install . && s2sim run --topology fat-tree --workers 64",
        "$ pip install '.[test]' && pytest",
    ]


def test_the_toml_example_of_contributing_is_a_topology(tmp_path, capsys):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    path = tmp_path / "example.toml"
    path.write_text(text.split("```toml\n")[1].split("```")[0])
    assert main(["topology", "show", str(path), "--workers", "5"]) == 0
    assert "25 Gbps" in capsys.readouterr().out


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_and_folders_that_a_document_names_are_there(document):
    named = re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|toml|md))?)`", document.read_text(encoding="utf-8"))
    rooms = [ROOT, *(path for path in (ROOT / "s2sim").rglob("*") if path.is_dir()), ROOT / "s2sim"]
    assert [path for path in named if not any((room / path).exists() for room in rooms)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_pictures_and_pages_that_a_document_links_are_there(document):
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    assert [path for path in linked if not (document.parent / path).exists()] == []
