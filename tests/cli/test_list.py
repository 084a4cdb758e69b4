from __future__ import annotations

import json

KINDS = {
    "reducers": {"dense", "fp16", "topk", "union", "s2"},
    "codecs": {"bitmap", "count-sketch", "top-k", "fp16"},
    "collectives": {"ring", "double-binary-tree", "halving-doubling", "hierarchical", "in-network", "chain"},
    "libraries": {"ideal", "nccl", "gloo", "mpi"},
    "faults": {"slow-link", "fail-link", "slow-rank", "jitter", "background"},
    "topologies": {"fat-tree", "leaf-spine", "single-switch", "ring", "torus", "dragonfly", "rail-optimised"},
    "traces": {"lstm-lm", "lstm-lm-steps", "ncf", "cnn"},
    "models": {"lstm", "gnmt-8", "gnmt-16", "resnet-50", "vgg-19", "bert-base", "ncf", "deeplight"},
    "gpus": {"a100", "h100"},
}


def test_every_kind_is_listed_with_what_it_is_and_its_source(s2sim):
    code, out, err = s2sim("list", "--json", "-")
    assert (code, err) == (0, "")
    value = json.loads(out)
    assert list(value) == list(KINDS)
    for kind, names in KINDS.items():
        assert names <= {item["name"] for item in value[kind]}
        for item in value[kind]:
            assert set(item) == {"name", "summary", "source"}
            assert item["summary"]
            assert item["source"]


def test_text_has_a_line_each(s2sim):
    value = json.loads(s2sim("list", "--json", "-")[1])
    code, out, err = s2sim("list")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    for kind, items in value.items():
        start = lines.index(f"{kind}:") + 1
        for line, item in zip(lines[start:], items, strict=False):
            assert line.startswith(f"  {item['name']} ")
            assert line.endswith(f"{item['summary']}  [{item['source']}]") or item["summary"] in line


def test_one_kind_alone(s2sim):
    _, out, _ = s2sim("list", "codecs")
    assert out.startswith("codecs:\n")
    assert "reducers" not in out
    assert list(json.loads(s2sim("list", "codecs", "--json", "-")[1])) == ["codecs"]


def test_gpus_are_still_found_under_their_former_name(s2sim):
    assert s2sim("list", "hardware") == s2sim("list", "gpus")


def test_an_unknown_kind_is_told_in_one_line(fails):
    assert "'reducers'" in fails("list", "reducer")
