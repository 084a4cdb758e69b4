"""Networks of ASTRA-sim and SimAI: what their lines say, against closed forms, and back."""

import random

import numpy as np
import pytest

from s2sim.cli.main import main
from s2sim.errors import S2SimError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe_cluster
from s2sim.topology.graph_file import to_astra
from s2sim.topology.read_file import load_shape
from s2sim.traffic.collective_run import run_collective

GIB = 2**30
ASTRA = """# Two NPUs in a ring, eight such nodes joined each to each, and four of these at a switch
topology: [ Ring, FullyConnected, Switch ]  # blocks
npus_count: [ 2, 8, 4 ]
bandwidth: [ 200.0, 100.0, 50.0 ]  # GB/s
latency: [ 50.0, 500.0, 2000.0 ]  # ns
"""
NS3 = "7 2 6\n5 6\n" + "".join(f"{host} 5 100Gbps 0.001ms 0\n" for host in range(5)) + "5 6 400Gbps 500ns 0\n"
# Two servers of two GPUs, an NVSwitch each, and a switch for each place in a server, joined by a third.
SIMAI = "9 2 2 3 10 A100\n4 5 6 7 8 \n" + "".join(
    [f"{gpu} {4 + gpu // 2} 2400Gbps 0.000025ms 0\n{gpu} {6 + gpu % 2} 100Gbps 0.0005ms 0\n" for gpu in range(4)]
    + [f"{leaf} 8 400Gbps 0.0005ms 0\n" for leaf in (6, 7)]
)


@pytest.fixture
def read(tmp_path):
    def read(text, workers, *, name="net.yml", overrides=()):
        (tmp_path / name).write_text(text)
        return build_cluster(load_shape(tmp_path / name, overrides), workers)

    return read


def hop(cluster, source, target):
    """Return the latency in nanoseconds and the rate in GiB/s from a rank to another, alone."""
    routes = cluster.routes([source], [target])
    return int(routes.latency_ps[0]) / 1000, float(routes.narrowest(cluster.fabric.rate_Bps)[0]) / GIB


def test_each_dimension_has_its_links(read):
    cluster = read(ASTRA, 64)
    assert hop(cluster, 0, 1) == (50, 200)
    # From NPU 0 of a node to that of the next ones, and over the switch to the same place.
    assert hop(cluster, 0, 2) == hop(cluster, 0, 14) == (500, 200)
    assert hop(cluster, 0, 16) == hop(cluster, 0, 48) == (4000, 100)
    assert describe_cluster(cluster)["nodes"] == 32
    torus = read("topology: [Ring, Ring, Ring]\nnpus_count: [2, 4, 3]\nbandwidth: [9, 5, 7]\nlatency: [1, 2, 3]", 24)
    assert (hop(torus, 0, 2), hop(torus, 0, 6), hop(torus, 0, 4)) == ((2, 10), (2, 10), (4, 10))
    assert hop(torus, 0, 16) == (3, 14)


@pytest.mark.parametrize(("block", "hops"), [("Ring", 1), ("FullyConnected", 1), ("Switch", 2)])
def test_a_ring_takes_its_closed_form(block, hops, read):
    text = f"topology: [ {block} ]\nnpus_count: [ 8 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
    cluster = read(text, 8)
    size = 1 << 26
    found = run_collective("all_reduce", cluster.shape.file, workers=8, size_bytes=size, algorithm="ring")
    assert found.time_s == pytest.approx(14 * (hops * 500e-9 + size / 8 / (50 * GIB)), rel=1e-6)


@pytest.mark.parametrize(
    ("topology", "overrides", "workers"),
    [("single-switch", (), 8), ("ring", (), 8), ("aws-p5", (), 16), ("hgx-a100-4", (), 16)],
)
def test_a_cluster_written_is_the_same_read(topology, overrides, workers, read):
    cluster = build_cluster(load_shape(topology, overrides), workers)
    again = read(to_astra(cluster), workers)
    each = {"workers": workers, "size_bytes": 1 << 24, "algorithm": "ring:channels=1"}
    here, there = (
        run_collective("all_reduce", at, overrides=given, **each)
        for at, given in ((topology, overrides), (again.shape.file, ()))
    )
    assert here.time_s == pytest.approx(there.time_s, rel=1e-9)


def test_a_torus_written_has_the_same_neighbours(read):
    cluster = build_cluster(load_shape("torus", ("fabric.size=4x3", "nic.latency=0s")), 12)
    assert "no neighbours are farther apart" in to_astra(cluster)
    again = read(to_astra(cluster), 12)
    for other in (1, 2, 3, 9):
        assert hop(again, 0, other)[0] == hop(cluster, 0, other)[0]


@pytest.mark.parametrize(
    ("topology", "overrides", "workers"),
    [
        ("dgx-a100", (), 16),
        ("fat-tree", ("fabric.hosts_per_leaf=2",), 32),
        ("ring", ("node.gpus=2",), 8),
        ("aws-p5", ("nic.count=4",), 16),
        ("ring", (), 1),
    ],
)
def test_what_has_no_blocks_is_refused(topology, workers, overrides):
    with pytest.raises(S2SimError, match="is not of rings, switches and full meshes in dimensions"):
        to_astra(build_cluster(load_shape(topology, ("pcie.rate=10GB/s", *overrides)), workers))


def test_links_of_ns3_and_servers_of_simai(read, tmp_path, capsys, monkeypatch):
    cluster = read(NS3, 5, name="net.txt")
    assert hop(cluster, 0, 4) == (2000, 12.5e9 / GIB)
    cluster = read(SIMAI, 4, name="simai.txt")
    assert [hop(cluster, 0, other) for other in (1, 2, 3)] == [
        *((50, 300e9 / GIB), (1000, 12.5e9 / GIB), (2000, 12.5e9 / GIB))
    ]
    # A GPU has a link to each NVSwitch of its server.
    two = SIMAI.replace("9 2 2 3 10", "11 2 4 3 14").replace("6 7 8", "9 10 6 7 8", 1)
    two = "".join(
        f"{line}\n" if "2400Gbps" not in line else f"{line}\n{line.replace(' 4 ', ' 9 ').replace(' 5 ', ' 10 ')}\n"
        for line in two.splitlines()
    )
    assert hop(read(two, 4, name="two.txt"), 0, 1)[1] == 600e9 / GIB
    with pytest.raises(S2SimError, match="its GPUs have other links to NVSwitches"):
        read(two.replace("0 4 2400Gbps", "0 4 1200Gbps"), 4, name="uneven.txt")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planes").write_text(SIMAI.replace(" 3 10 A", " 3 8 A").partition("6 8 400")[0])
    assert main(["import", "planes"]) == 2
    assert "interface 0 of host server0: planes that no switch joins are not read" in capsys.readouterr().err
    (tmp_path / "A100").write_text(SIMAI)
    assert main(["import", "A100", "--out", "ours.toml", "--gpu", "a100"]) == 0
    assert "Understood: 2 hosts of 2 GPUs" in capsys.readouterr().out
    np.testing.assert_array_equal(build_cluster(load_shape("./ours.toml"), 4).fabric.rate_Bps, cluster.fabric.rate_Bps)
    assert main(["topology", "show", "single-switch", "--workers", "4", "--astra", "net.yml"]) == 0
    assert main(["import", "net.yml"]) == 0
    assert 'file = { value = "net.yml", kind = "user", source = "astra-network" }' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ASTRA.replace("Switch", "Dragonfly"), "topology is no list as topology: [ Ring, FullyConnected, Switch ]"),
        (ASTRA.replace("[ 2, 8, 4 ]", "[ 2, 8 ]"), "shorter"),
        (ASTRA.replace("[ 2, 8, 4 ]", "[ 2, 8, 1 ]"), "npus_count [2, 8, 1] are under 2, or too many"),
        (ASTRA.replace("8", "99999"), "too many together"),
        (ASTRA.replace("50.0 ]  # GB", "tbd ]  # GB"), "bandwidth is no list as bandwidth: [ 200.0, 100.0, 50.0 ]"),
        (NS3.replace("7 2 6", "7 2 9"), "its first line counts other nodes or links"),
        (NS3.replace("0 5 100Gbps", "0 9 100Gbps"), "KeyError 9"),
        (NS3.replace("100Gbps 0.001ms", "100Gbps 1", 1), "latency"),
    ],
)
def test_what_is_wrong_is_one_line(text, said, read):
    with pytest.raises(S2SimError) as caught:
        read(text, 2)
    assert said in str(caught.value)
    assert "net.yml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cases", [60, pytest.param(2_000, marks=pytest.mark.slow)])
def test_damage_is_a_network_or_one_line(cases, read):
    rng = random.Random(cases)
    for case in range(cases):
        text = rng.choice([ASTRA, NS3, SIMAI])
        at = rng.randrange(len(text))
        put = rng.choice(["", "0", "9" * 30, "-1", "Ring", "Gbps", "[", "\n", "1e9", " 4 ", "ns"])
        said = ""
        try:
            assert read(text[:at] + put + text[at + rng.randrange(12) :], 2).routes([0], [1]).latency_ps[0] >= 0, case
        except S2SimError as error:
            said = str(error)
        assert "\n" not in said, case
