import json

import pytest

from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe_cluster
from s2sim.topology.read_file import load_shape


def test_json_is_the_description(s2sim):
    code, out, _ = s2sim("topology", "show", "fat-tree", "--workers", "16", "--json", "-")
    assert code == 0
    assert json.loads(out) == describe_cluster(build_cluster(load_shape("fat-tree"), 16))


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


def test_random_placement_follows_the_seed(s2sim):
    arguments = ("topology", "show", "fat-tree", "--workers", "8", "--placement", "random", "--seed")
    one, again, other = (s2sim(*arguments, seed)[1] for seed in (1, 1, 2))
    assert one == again != other
    assert "GPUs of the ranks   0 2 4 6 7 1 3 5\n" in one


@pytest.mark.filterwarnings("default")
def test_a_seed_without_effect_is_told(s2sim):
    code, _, err = s2sim("topology", "show", "fat-tree", "--seed", "1")
    assert (code, err) == (0, "s2sim: warning: --seed 1 changes nothing here: only placement random draws\n")


def test_a_placement_file_is_followed(s2sim, tmp_path):
    (tmp_path / "places.txt").write_text("1 0\n0 3\n0 2\n0 1\n0 0\n")
    arguments = ("topology", "show", "fat-tree", "--workers", "5", "--placement", str(tmp_path / "places.txt"))
    assert "GPUs of the ranks   4 3 2 1 0\n" in s2sim(*arguments)[1]


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("SVG", b"<?xml")])
def test_a_picture_is_drawn(s2sim, tmp_path, ending, start):
    target = tmp_path / f"cluster.{ending}"
    code, out, err = s2sim("topology", "show", "fat-tree", "--workers", "16", "--png", target, "--json", "-")
    assert (code, err) == (0, "")
    assert json.loads(out)["workers"] == 16
    assert target.read_bytes().startswith(start)


def test_the_picture_has_the_first_line_and_the_placement(s2sim, tmp_path):
    arguments = ("--workers", "16", "--placement", "random", "--seed", "3", "--png", tmp_path / "a.svg")
    _, out, _ = s2sim("topology", "show", "single-switch", *arguments)
    words = (tmp_path / "a.svg").read_text()
    assert f">{out.splitlines()[0]}</text>" in words
    assert "16 workers, placement random, seed 3, bisection 100 GB/s (800 Gbps) one way, diameter 2 links" in words


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
        (("fat-tree", "--placement", "./none.txt"), "none.txt: No such file"),
        (("fat-tree", "--png", "cluster.gif"), ".png, .svg, .pdf"),
        (("fat-tree", "--png", "none/cluster.png"), "no directory none"),
        (("fat-tree", "--seed", "-1"), "--seed"),
    ],
)
def test_bad_input_is_told_in_one_line(fails, arguments, part):
    assert part in fails("topology", "show", *arguments)


def test_links_between_pairs_are_counted_for_reading(s2sim):
    out = s2sim("topology", "show", "h100-nvl-8")[1]
    assert "48 links: 0-1 x12, 2-3 x12, 4-5 x12, 6-7 x12 " in out
    out = s2sim("topology", "show", "dgx-1-v100")[1]
    assert "24 links: 0-1, 0-2, 0-3 x2, 0-4 x2 ... " in out


@pytest.mark.parametrize(
    ("topology", "Bps"), [("dgx-1-v100", 6 * 20e9), ("hgx-h100-4", 18 * 20.6e9), ("dgx-a100", 240e9)]
)
def test_nvlink_of_a_gpu_is_all_of_its_links(topology, Bps):
    described = describe_cluster(build_cluster(load_shape(topology), 4))
    assert described["nvlink_rate_Bps"] == pytest.approx(Bps)
