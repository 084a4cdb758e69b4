import json
from contextlib import redirect_stdout
from io import StringIO

import pytest

from s2sim.cli.main import main

KINDS = {
    "reducers": {"dense", "fp16", "topk", "union", "s2"},
    "codecs": {"bitmap", "count-sketch", "top-k", "fp16"},
    "collectives": {"ring", "double-binary-tree", "halving-doubling", "hierarchical", "in-network", "chain"},
    "libraries": {"ideal", "nccl", "gloo", "mpi"},
    "faults": {"slow-link", "fail-link", "slow-rank", "jitter", "background"},
    "disciplines": {"after-backward", "per-tensor", "ddp", "mg-wfbp", "topka2a", "two-priorities"},
    "topologies": {"fat-tree", "leaf-spine", "single-switch", "ring", "torus", "dragonfly", "rail-optimised"},
    "traces": {"lstm-lm", "lstm-lm-steps", "ncf", "cnn"},
    "models": {"lstm", "gnmt-8", "gnmt-16", "resnet-50", "vgg-19", "bert-base", "ncf", "deeplight"},
    "profiles": {"resnet-50", "vgg-16", "bert-base", "gpt2", "gnmt-8", "lstm", "ncf", "dlrm", "llama-70b"},
    "gpus": {"a100", "h100"},
    "nics": {"connectx-7", "cassini", "efa-v2"},
    "switches": {"quantum-2", "rosetta", "nvswitch-3"},
    "transports": {"ib-verbs", "roce", "tcp"},
}


@pytest.fixture(scope="module")
def listed():
    """Return what ``s2sim list --json -`` prints."""
    with redirect_stdout(StringIO()) as out:
        assert main(["list", "--json", "-"]) == 0
    return json.loads(out.getvalue())


@pytest.mark.slow
def test_every_kind_is_listed_with_what_it_is_and_its_source(listed):
    assert list(listed) == list(KINDS)
    for kind, names in KINDS.items():
        assert names <= {item["name"] for item in listed[kind]}
        for item in listed[kind]:
            assert set(item) == {"name", "summary", "source"}
            assert item["summary"]
            assert item["source"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("topologies", "reducers")])
def test_a_kind_has_a_line_each_and_within_80_columns_where_the_terminal_has_no_more(kind, listed, s2sim, monkeypatch):
    code, out, err = s2sim("list", kind)
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head == f"{kind}:"
    for line, item in zip(lines, listed[kind], strict=True):
        assert line.startswith(f"  {item['name']} ")
        assert f"  {item['summary']}  [{item['source'].split()[0].rstrip(',;')}" in line
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, s2sim("list", kind)[1].splitlines())) <= 80


@pytest.mark.slow
def test_without_a_kind_all_names_are_listed_on_a_screen_or_two(listed, s2sim, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = s2sim("list")[1]
    assert len(out.splitlines()) < 80
    assert max(map(len, out.splitlines())) <= 80
    for kind, items in listed.items():
        assert f"{kind} ({len(items)}):" in out
        assert all(item["name"] in out for item in items)


def test_topologies_stand_under_three_headings(listed, s2sim):
    lines = s2sim("list", "topologies")[1].splitlines()
    headings = [line for line in lines if not line.startswith("    ")]
    assert headings == ["topologies:", "  fabrics:", "  machines:", "  clusters:"]
    names = [line.split()[0] for line in lines if line.startswith("    ")]
    assert names == [item["name"] for item in listed["topologies"]]
    assert lines.index("  machines:") < next(at for at, line in enumerate(lines) if line.startswith("    dgx-2 "))
    assert lines.index("  clusters:") < next(at for at, line in enumerate(lines) if line.startswith("    polaris "))


def test_one_kind_alone(s2sim):
    _, out, _ = s2sim("list", "codecs")
    assert out.startswith("codecs:\n")
    assert "reducers" not in out
    assert list(json.loads(s2sim("list", "codecs", "--json", "-")[1])) == ["codecs"]


def test_hardware_is_four_kinds(s2sim):
    listed = json.loads(s2sim("list", "hardware", "--json", "-")[1])
    assert list(listed) == ["gpus", "nics", "switches", "transports"]
    assert s2sim("list", "hardware")[1].startswith(s2sim("list", "gpus")[1])


def test_a_part_of_hardware_has_a_page_with_a_source_for_each_number(s2sim, fails):
    code, out, err = s2sim("list", "gpus", "h200")
    assert (code, err) == (0, "")
    assert "h200: NVIDIA H200 SXM5: 141 GB, 4800 GB/s of memory bandwidth" in out
    (part,) = json.loads(s2sim("list", "gpus", "h200", "--json", "-")[1])["gpus"]
    of = {item["field"]: item for item in part["quantities"]}
    assert of["links"]["value"] == 18
    assert "H200" in of["memory_bandwidth"]["source"]
    # What it has from the GPU that it is like, and what is said of all.
    assert "H100" in of["fp16_flops"]["source"]
    assert (of["kernel_launch"]["value"], of["kernel_launch"]["kind"]) == ("5us", "estimated")
    assert "450 ns" in s2sim("list", "switches", "spectrum-4")[1]
    assert "'h100'" in fails("list", "gpus", "h10")
    assert "alone have pages" in fails("list", "hardware", "h100")


def test_an_unknown_kind_is_told_in_one_line(fails):
    assert "'reducers'" in fails("list", "reducer")


@pytest.mark.parametrize("library", ["nccl", "rccl", "mpi", "gloo"])
def test_a_library_shows_what_it_adds_with_the_origin_of_each(library, s2sim):
    (page,) = json.loads(s2sim("list", "libraries", library, "--json", "-")[1])["libraries"]
    code, out, _ = s2sim("list", "libraries", library)
    assert code == 0
    assert out.startswith(f"{library}: ")
    assert len(page["quantities"]) > 8
    for item in page["quantities"]:
        assert item["source"]
        assert item["field"] in out
        assert item["source"] in out


def test_what_adds_nothing_has_no_constants(fails):
    assert "adds nothing to the wire" in fails("list", "libraries", "ideal")
    assert "'mpi'" in fails("list", "libraries", "mpj")


@pytest.mark.parametrize("what", [("libraries", "nccl"), ("libraries",), ("reducers", "topk"), ()])
def test_a_table_is_of_all_reducers_alone(what, fails):
    assert "--table is one of all reducers" in fails("list", *what, "--table")
