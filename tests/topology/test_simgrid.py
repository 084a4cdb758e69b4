"""Platforms of SimGrid: the same cluster here and there, by SimGrid itself where python3-simgrid is installed."""

import json
import random
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from s2sim.cli.main import main
from s2sim.errors import S2SimError
from s2sim.topology.cluster import build_cluster, fail_links
from s2sim.topology.describe import describe_cluster
from s2sim.topology.read_file import load_shape
from s2sim.topology.simgrid import to_simgrid
from s2sim.traffic.collective_run import run_collective
from s2sim.traffic.flows import simulate_transfers
from s2sim.traffic.networks import Transfers
from s2sim.traffic.spec import FlowsSpec
from s2sim.validation.import_machine import import_machine

PYTHON = "/usr/bin/python3"
FLOWS = Path(__file__).with_name("simgrid_flows.py")
DOCTYPE = '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
NO_LATENCY = ("nic.latency=0s", "fabric.link.latency=0s")
# Flows of one latency, or of none: SimGrid shares by latency.
CLUSTERS = {
    "ring": ("ring", NO_LATENCY, 12),
    "leaf-spine": ("leaf-spine", ("fabric.hosts_per_leaf=2", "pcie.latency=0s", *NO_LATENCY), 24),
    "one-leaf": ("leaf-spine", ("node.gpus=1",), 8),
    "fat-tree": (
        "fat-tree",
        ("fabric.levels=3", "fabric.hosts_per_leaf=2", "routing=ecmp", "nvlink.latency=0s", *NO_LATENCY),
        32,
    ),
}


NAMES = [pytest.param(name, marks=pytest.mark.slow) if name == "fat-tree" else name for name in CLUSTERS]


@cache
def has_simgrid():
    found = subprocess.run([PYTHON, "-c", "import simgrid"], capture_output=True, check=False)
    return found.returncode == 0


def cluster_of(name):
    topology, overrides, workers = CLUSTERS[name]
    return build_cluster(load_shape(topology, overrides), workers)


def draw_transfers(hosts, flows=100, seed=1):
    generator = np.random.default_rng(seed)
    source = generator.integers(0, hosts, flows)
    target = (source + generator.integers(1, hosts, flows)) % hosts
    start_ps = generator.integers(0, 2 * 10**9, flows)
    return Transfers(start_ps, source, target, generator.integers(10**3, 10**7, flows).astype(float))


def ours(topology, overrides, workers, transfers):
    return simulate_transfers(FlowsSpec(topology, workers=workers, overrides=overrides), transfers).finish_s


def theirs(platform, hosts, transfers, tmp_path):
    if not has_simgrid():
        pytest.skip("python3-simgrid is not installed")
    columns = transfers.start_ps / 1e12, transfers.src, transfers.dst, transfers.sizes_bytes.astype(np.int64)
    flows = list(zip(*(column.tolist() for column in columns), strict=True))
    (tmp_path / "flows.json").write_text(json.dumps({"hosts": hosts, "flows": flows}))
    command = [PYTHON, str(FLOWS), str(platform), str(tmp_path / "flows.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return np.array(json.loads(done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_hundred_flows_take_what_they_take_in_simgrid(name, tmp_path):
    topology, overrides, workers = CLUSTERS[name]
    (tmp_path / "net.xml").write_text(to_simgrid(cluster_of(name)))
    transfers = draw_transfers(workers)
    expected = ours(topology, overrides, workers, transfers)
    hosts = list(load_shape(str(tmp_path / "net.xml")).graph.vertices[:workers])
    np.testing.assert_allclose(theirs(tmp_path / "net.xml", hosts, transfers, tmp_path), expected, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_written_cluster_is_read_as_the_same(name, tmp_path):
    topology, overrides, workers = CLUSTERS[name]
    path = tmp_path / "net.xml"
    path.write_text(to_simgrid(cluster_of(name)))
    transfers = draw_transfers(workers, 40)
    np.testing.assert_array_equal(
        ours(str(path), (), workers, transfers), ours(topology, overrides, workers, transfers)
    )
    for kind, algorithm in (("all_reduce", "ring:channels=1"), ("all_to_all", "pairwise"), ("all_gather", "bruck")):
        each = {"workers": workers, "size_bytes": 10**6, "algorithm": algorithm}
        here, there = (
            run_collective(kind, at, overrides=given, **each) for at, given in ((topology, overrides), (str(path), ()))
        )
        assert here.time_s == there.time_s
        assert there.lower_bound_s <= there.time_s
    whole, pairs = describe_cluster(build_cluster(load_shape(path), workers)), np.nonzero(~np.eye(workers, dtype=bool))
    assert whole["routing"] == "explicit"
    assert whole["latency_max_ps"] == cluster_of(name).routes(*pairs).latency_ps.max()


SHARED = f"""{DOCTYPE}<platform version="4.1"><zone id="world" routing="Full">
<host id="a" speed="1Gf"/><host id="b" speed="1Gf"/><host id="c" speed="1Gf"><prop id="x" value="y"/></host>
<link id="la" bandwidth="1GBps" latency="1us"/><link id="lb" bandwidth="8Gbps" latency="1us"/>
<link id="lc" bandwidth="500MiBps" latency="1us" sharing_policy="SPLITDUPLEX"/>
<route src="a" dst="b"><link_ctn id="la"/><link_ctn id="lb"/></route>
<route src="a" dst="c"><link_ctn id="la"/><link_ctn id="lc" direction="UP"/></route>
<route src="b" dst="c"><link_ctn id="lb"/><link_ctn id="lc" direction="UP"/></route></zone></platform>"""
BACKBONE = f"""<?xml version='1.0'?>{DOCTYPE}<platform version="4.1"><zone id="w" routing="Full">
<cluster id="c" prefix="n" suffix="" radical="0-6,9" speed="1Gf" bw="125MBps" lat="50us" bb_bw="250MBps" bb_lat="9us"/>
</zone></platform>"""
FLOYD = f"""{DOCTYPE}<platform version="4.1"><AS id="w" routing="Floyd">
<host id="a" speed="1f"/><host id="b" speed="1f"/><router id="r"/><router id="s"/><host id="c" speed="1f"/>
<link id="1" bandwidth="1e8" latency="0"/><link id="6" bandwidth="9e9" latency="0"/>
<link id="2" bandwidth="2e8" latency="0"/><link id="3" bandwidth="3e8" latency="0"/>
<link id="4" bandwidth="4e8" latency="0"/><link id="5" bandwidth="9e9" latency="0"/>
<route src="a" dst="r"><link_ctn id="1"/></route><route src="b" dst="r"><link_ctn id="2"/></route>
<route src="r" dst="s"><link_ctn id="3"/></route><route src="s" dst="c"><link_ctn id="4"/></route>
<route src="a" dst="s"><link_ctn id="5"/><link_ctn id="6"/><link_ctn id="4"/></route></AS></platform>"""

# Shorter ways lead through a host, and through a third zone, where all routes are written.
ZONES = f"""{DOCTYPE}<platform version="4.1"><zone id="world" routing="Full">
<zone id="one" routing="Full"><host id="a" speed="1f"/><host id="b" speed="1f"/><host id="c" speed="1f"/>
<router id="gw"/><link id="la" bandwidth="1GBps" latency="0"/><link id="lb" bandwidth="900MBps" latency="0"/>
<link id="s1" bandwidth="20MBps" latency="0"/>
<route src="a" dst="b"><link_ctn id="la"/><link_ctn id="lb"/></route>
<route src="a" dst="c"><link_ctn id="s1"/></route><route src="b" dst="c"><link_ctn id="s1"/></route>
<route src="a" dst="gw"><link_ctn id="la"/></route><route src="b" dst="gw"><link_ctn id="lb"/></route>
<route src="c" dst="gw"><link_ctn id="s1"/></route></zone>
<cluster id="two" prefix="n" suffix="" radical="0-2" speed="1f" bw="100MBps" lat="0" limiter_link="150MBps"
 router_id="r2"/>
<cluster id="three" prefix="m" suffix="" radical="0-1" speed="1f" bw="80MBps" lat="0" bb_bw="110MBps" bb_lat="0"
 router_id="r3"/>
<link id="bb" bandwidth="1GBps" latency="0"/><link id="slow" bandwidth="10MBps" latency="0"/>
<zoneRoute src="one" dst="two" gw_src="gw" gw_dst="r2"><link_ctn id="slow"/><link_ctn id="bb"/></zoneRoute>
<zoneRoute src="one" dst="three" gw_src="gw" gw_dst="r3"><link_ctn id="bb"/></zoneRoute>
<zoneRoute src="two" dst="three" gw_src="r2" gw_dst="r3"><link_ctn id="bb"/></zoneRoute></zone></platform>"""


@pytest.mark.parametrize(
    "text", [SHARED, BACKBONE, FLOYD, ZONES], ids=["both-ways", "backbone", "shortest", "zones-and-limiters"]
)
def test_platforms_of_others_take_what_they_take_in_simgrid(text, tmp_path):
    (tmp_path / "net.xml").write_text(text)
    graph = load_shape(str(tmp_path / "net.xml")).graph
    transfers = draw_transfers(graph.hosts, 60)
    expected = ours(str(tmp_path / "net.xml"), (), graph.hosts, transfers)
    hosts = list(graph.vertices[: graph.hosts])
    np.testing.assert_allclose(theirs(tmp_path / "net.xml", hosts, transfers, tmp_path), expected, rtol=1e-6)


def test_what_both_directions_share_is_shared(tmp_path):
    """Two flows the two ways over one link of 1 GB/s take twice as long, over a split one as long as one alone."""
    (tmp_path / "net.xml").write_text(SHARED)
    both = Transfers(np.zeros(2, np.int64), np.array([0, 1]), np.array([1, 0]), np.full(2, 1e6))
    assert ours(str(tmp_path / "net.xml"), (), 3, both) == pytest.approx(2e-6 + 2e-3, rel=1e-9)
    (tmp_path / "split.xml").write_text(SHARED.replace('<link_ctn id="lb"/>', '<link_ctn id="lc" direction="UP"/>'))
    assert ours(str(tmp_path / "split.xml"), (), 3, both)[0] == pytest.approx(2e-6 + 2e-3, rel=1e-9)


def test_a_link_that_a_route_has_twice_takes_its_bytes_twice(tmp_path):
    (tmp_path / "net.xml").write_text(SHARED.replace('<link_ctn id="lb"/></route>', '<link_ctn id="la"/></route>', 1))
    one = FlowsSpec(str(tmp_path / "net.xml"), workers=3)
    found = simulate_transfers(one, Transfers(np.zeros(1, np.int64), np.array([0]), np.array([1]), np.full(1, 1e6)))
    assert (found.finish_s[0], found.slowdown[0]) == (pytest.approx(2e-6 + 2e-3, rel=1e-9), 1)


def test_the_commands_write_read_and_name_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["topology", "show", "ring", "--workers", "6", "--simgrid", "net.xml"]) == 0
    (tmp_path / "sub").mkdir()
    assert main(["import", "net.xml", "--out", "sub/ours.toml", "--gpu", "h100"]) == 0
    assert "net.xml: simgrid-platform" in capsys.readouterr().out
    assert main(["collective", "all_reduce", "--topology", "./sub/ours.toml", "--workers", "6", "--size", "1MB"]) == 0
    found = capsys.readouterr().out
    assert main(["collective", "all_reduce", "--topology", "ring", "--workers", "6", "--size", "1MB"]) == 0
    assert found.splitlines()[2] == capsys.readouterr().out.splitlines()[2]
    assert load_shape("sub/ours.toml").gpu == "h100"


@pytest.mark.parametrize(
    ("topology", "overrides", "workers", "said"),
    [
        ("ring", (), 129, "routes of at most 128 ranks, not 129"),
        ("leaf-spine", ("routing=spray", "fabric.hosts_per_leaf=2"), 16, "spreads a message over several links"),
    ],
)
def test_what_cannot_be_written_is_one_line(topology, overrides, workers, said):
    with pytest.raises(S2SimError, match=said):
        to_simgrid(build_cluster(load_shape(topology, overrides), workers))


def test_routes_of_a_file_have_no_detours_and_no_graph(tmp_path):
    (tmp_path / "net.xml").write_text(SHARED)
    cluster = build_cluster(load_shape(tmp_path / "net.xml"), 3)
    with pytest.raises(S2SimError, match="have no detours after a link was cut"):
        fail_links(cluster, np.ones(len(cluster.fabric), bool), "a link was cut").routes([0], [1])
    with pytest.raises(S2SimError, match="which no graph has: --simgrid writes them"):
        cluster.to_networkx()
    with pytest.raises(S2SimError, match="'explicit' is that of platforms of SimGrid, which have no other"):
        load_shape(tmp_path / "net.xml", ["routing=shortest"])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("platform", "system", "begins with <system> and not with <platform>"),
        (DOCTYPE, "<!DOCTYPE a [<!ENTITY b 'c'>]>", "is no XML of SimGrid: EntitiesForbidden"),
        ('routing="Full"', 'routing="Vivaldi"', "zone world has another routing: hosts, routers, links"),
        ('<host id="a"', '<peer id="a"', "<peer> a is not read: hosts"),
        ('<host id="a"', "<host", "<host> has no id"),
        ('<host id="a"', '<host id="b"', "b is there twice"),
        ('"1GBps"', '"1GBs"', "link la: rate '1GBs' has the unit 'GBs'"),
        ('"1us"', '"-1us"', "link la: time '-1us' is negative"),
        ('"SPLITDUPLEX"', '"WIFI"', "link lc is there twice, or not SHARED"),
        ('direction="UP"', "", "link lc of a route is not there, or split and crossed without UP or DOWN"),
        ('dst="b"', 'dst="z"', "z, an end of a route from a to z, is not in its zone"),
        ('<route src="b" dst="c">', '<route src="b" dst="c" symmetrical="NO">', "no route leads from c to b"),
        ("host", "router", "it has 0 hosts"),
        ("</zone>", '<zone id="a" routing="Full"/></zone>', "zone a is there twice"),
    ],
)
def test_what_is_not_read_is_one_line(old, new, said, tmp_path):
    path = tmp_path / "net.xml"
    path.write_text(SHARED.replace(old, new) if old != '"1us"' else SHARED.replace(old, new, 1))
    with pytest.raises(S2SimError) as caught:
        load_shape(path)
    assert said in str(caught.value)
    assert "net.xml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cases", [60, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damage_is_a_network_or_one_line(cases, tmp_path):
    rng = random.Random(cases)
    parts = ["", '"', "<", "/>", "9" * 30, "Floyd", "NO", 'id="a"', 'direction="DOWN"', '<host id="h"/>', "0-700", "-1"]
    for case in range(cases):
        text = rng.choice([SHARED, BACKBONE, FLOYD, ZONES])
        at = rng.randrange(len(DOCTYPE), len(text))
        text = text[:at] + rng.choice(parts) + text[at + rng.randrange(30) :]
        (tmp_path / "net.xml").write_text(text)
        said = ""
        try:
            cluster = build_cluster(load_shape(tmp_path / "net.xml"), 2)
            assert cluster.routes([0], [1]).latency_ps[0] >= 0, case
        except S2SimError as error:
            said = str(error)
        assert "\n" not in said, case


def test_size_alone_takes_no_time(tmp_path):
    """Seconds at most, where squares of these sizes would take minutes."""
    for text in ("<zone/>" * 100_000, '<cluster id="c" radical="0-999999999" bw="1" lat="1"/>', "<route/>" * 100_000):
        (tmp_path / "net.xml").write_text(f"<platform>{text}</platform>")
        with pytest.raises(S2SimError):
            import_machine(tmp_path / "net.xml")
