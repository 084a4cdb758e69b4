"""Every example in a document runs: console lines here, Python ones as doctests of the same files."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

import s2sim
from s2sim.cli.main import main

from .cli.test_examples import EXAMPLES, GOLDEN

ROOT = Path(__file__).parents[1]
# These take over a third of a second each; no line but a slow one reads what they write.
SLOW = {
    "dev validate --html fidelity.html --json fidelity.json",
    "run --topology fat-tree --workers 8,16,32 --reducer topk:density=0.01 --max-error 0.1 --json result.json",
    "run --spec result.json --quiet",
    "run --topology fat-tree --workers 4 --trace lstm-lm-steps --steps 8 --reducer topk:density=0.01",
    "run --topology fat-tree --trace ncf --workers 8,64 --show pareto",
    "run --topology fat-tree --trace lstm-lm --workers 8,64 --show pareto --png compare.png",
    "run --topology fat-tree --trace lstm-lm --workers 8 --show pareto --png compare.svg",
    "regimes --library ideal --png regimes.png",
    "run --topology fat-tree --workers 16 --reducer union --fault slow-rank:rank=3,factor=2 --fault jitter:latency=5us",
    "run --topology fat-tree --workers 64 --reducer s2:error=0.1 --reducer s2-exact:warm=true --reducer union",
    (
        "run --topology fat-tree --workers 4 --trace lstm-lm-steps --steps 20 --reducer topk:density=0.01"
        " --reducer s2:rows=1,cells=0.5 --reducer s2:rows=3,cells=2"
    ),
}
# Rates and mini-batches at which iterations gain are looked for in tests/study.
NO_SCAN = "--no-break-even"
# What takes seconds runs on the ends of its axes, with fewer ranks, steps and gradients: of an option given twice the
# last holds.
SMALLER = {
    "run --topology fat-tree --workers 8,16,32 --reducer topk:density=0.01 --max-error 0.1 --json result.json": (
        "--workers 4,8 --trace ncf"
    ),
    "run --topology fat-tree --workers 4 --trace lstm-lm-steps --steps 8 --reducer topk:density=0.01": (
        "--workers 2 --steps 2"
    ),
    "run --topology fat-tree --trace ncf --workers 8,64 --show pareto": f"--workers 4,8 {NO_SCAN}",
    (
        "run --topology leaf-spine --workers 16 --profile bert-base --batch 16 --reducer fp16 --reducer topk"
        " --reducer powersgd --reducer qsgd --png iterations.png"
    ): f"--workers 4 --profile resnet-18 {NO_SCAN}",
    "run --topology leaf-spine --workers 8 --profile resnet-18 --reducer fp16 --timeline iterations.json"
    " --timeline-rank 3": NO_SCAN,
    "run --topology dgx-h100 --workers 16 --profile llama-7b --discipline fsdp --reducer fp16": NO_SCAN,
    (
        "collective all_to_all --topology leaf-spine --workers 64 --size 16MiB --algorithm pairwise --placement random"
        " --execution by-message"
    ): "--workers 16",
    (
        "run --topology fat-tree --workers 16 --reducer union --fault slow-rank:rank=3,factor=2"
        " --fault jitter:latency=5us"
    ): "--workers 4 --trace ncf",
    "run --topology fat-tree --workers 16 --reducer union --reducer node-union --reducer node-union:prefetch=true": (
        f"--workers 8 --trace ncf {NO_SCAN}"
    ),
    (
        "run --topology fat-tree --workers 16 --reducer owner-reduce:hierarchical=true"
        " --reducer topk:hierarchical=true,ef=true"
    ): f"--workers 8 --trace ncf {NO_SCAN}",
    "run --topology fat-tree --trace lstm-lm --workers 8,64 --show pareto --png compare.png": (
        f"--workers 4,8 --trace ncf {NO_SCAN}"
    ),
    "run --topology fat-tree --workers 64 --reducer s2:error=0.1 --reducer s2-exact:warm=true --reducer union": (
        "--workers 8"
    ),
    (
        "run --topology fat-tree --workers 4 --trace lstm-lm-steps --steps 20 --reducer topk:density=0.01"
        " --reducer s2:rows=1,cells=0.5 --reducer s2:rows=3,cells=2"
    ): "--workers 2 --steps 2",
    "regimes --library ideal --png regimes.png": (
        "--workers 8 --density 0.001,0.2 --overlap 0,1 --rate 1Gbps,400Gbps --latency 50us"
    ),
    "run --topology ./rented.toml,dgx-a100 --workers 16": "--trace ncf",
    "train cnn --reducer topk:density=0.01 --reducer fp16 --steps 60 --seeds 2 --png cnn.png": "--steps 4",
    (
        "train cnn --reducer fp16 --steps 40 --seeds 1 --profile resnet-50 --set price.node_hour=60USD"
        " --target-loss 0.5"
    ): "--steps 4",
    "dev bridge check --reducer topk --reducer union --reducer owner-reduce --workers 3": "--workers 1",
    "run --topology leaf-spine --workers 16 --profile bert-base --reducer fp16 --instead nic.count=2": (
        f"--workers 8 --profile resnet-18 {NO_SCAN}"
    ),
    # tests/study/test_all.py runs every reducer, tests/golden too.
    "run --topology fat-tree --workers 8 --trace ncf --reducer all": (
        f"--workers 2 --trace synthetic:density=0.1,rows=200,width=8,dense=100 {NO_SCAN}"
    ),
    "run --topology fat-tree --workers 4 --trace lstm-lm-steps --steps 6 --reducer topk:density=0.01 --reducer union": (
        "--workers 2 --steps 2"
    ),
    "run --topology fat-tree --trace lstm-lm --workers 8 --show pareto --png compare.svg": f"--trace ncf {NO_SCAN}",
    "run --topology dgx-h100 --workers 64 --profile gpt2 --accumulate 8 --groups tp=4,pp=2,dp=rest --reducer fp16": (
        f"--workers 16 --accumulate 2 {NO_SCAN}"
    ),
}
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# What stands under a --help too runs in tests/cli/test_examples.py, and some in tests/golden; none of it writes what
# another line reads.
ELSEWHERE = {line.removeprefix("s2sim ") for lines in EXAMPLES.values() for line in lines}.union(GOLDEN)
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
        if line not in left_out | ELSEWHERE:
            assert main(shlex.split(f"{line} {SMALLER.get(line, '')}")) == 0, line
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
    assert {line for document in DOCUMENTS for line in console_lines(document)} >= SLOW | SMALLER.keys()


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
