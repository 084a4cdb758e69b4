from __future__ import annotations

import json

import pytest

from s2sim.topology.catalogue import load_shape
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe


def test_json_is_the_description(s2sim):
    code, out, _ = s2sim("topology", "show", "fat-tree", "--workers", "16", "--json", "-")
    assert code == 0
    assert json.loads(out) == describe(build_cluster(load_shape("fat-tree"), 16))


def test_every_number_is_shown_with_kind_and_source(s2sim):
    code, out, err = s2sim("topology", "show", "fat-tree")
    assert (code, err) == (0, "")
    assert out.startswith("fat-tree: 16 nodes x 4 GPUs")
    numbers = out[out.index("Numbers") :].splitlines()
    for item in load_shape("fat-tree").quantities:
        if item.field in ("name", "description", "source"):
            continue
        (line,) = [line for line in numbers if line.split()[:1] == [item.field]]
        assert str(item.value) in line
        assert item.kind in line
        assert line.endswith(item.source or "no source given")


def test_overrides_and_placement_are_shown(s2sim):
    arguments = ("--workers", "8", "--set", "nic.rate=25Gbps", "--placement", "round-robin")
    _, out, _ = s2sim("topology", "show", "fat-tree", *arguments)
    assert "3.125 GB/s (25 Gbps)" in out
    assert "round-robin" in out


@pytest.mark.parametrize("name", ["leaf-spine", "single-switch", "ring", "tcp-10g"])
def test_every_shipped_topology_can_be_shown(s2sim, name):
    assert s2sim("topology", "show", name, "--workers", "8")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("fat-treee",), "fat-tree"),
        (("./none.toml",), "none.toml"),
        (("fat-tree", "--workers", "0"), "at least 1"),
        (("fat-tree", "--placement", "x"), "linear"),
        (("fat-tree", "--set", "nic.rate=fast"), "nic.rate"),
    ],
)
def test_bad_input_is_told_in_one_line(fails, arguments, part):
    assert part in fails("topology", "show", *arguments)
