"""Any traffic: against the shares that can be worked out by hand, and the file's own rules."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.cli.main import main
from s2sim.errors import S2SimError
from s2sim.network.network import round_up_ps
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape
from s2sim.traffic.flows import read_transfers, simulate_transfers
from s2sim.traffic.networks import Transfers
from s2sim.traffic.spec import FlowsSpec

SWITCH = 'kind = "single-switch"\n[fabric.link]\nlatency = "1us"'
RATE_BPS = 50 * 2**30


def transfers(*rows):
    start_s, src, dst, size = (np.array(column) for column in zip(*rows, strict=True))
    return Transfers(np.rint(start_s * 1e12).astype(np.int64), src, dst, size.astype(float))


def test_two_into_one_port_share_it(cluster_file):
    size = 50 * 2**20
    result = simulate_transfers(FlowsSpec(cluster_file(SWITCH)), transfers((0.0, 0, 2, size), (0.0, 1, 2, size)))
    assert result.finish_s == pytest.approx(2e-6 + 2 * size / RATE_BPS, rel=1e-9)
    assert result.slowdown == pytest.approx((2e-6 + 2 * size / RATE_BPS) / (2e-6 + size / RATE_BPS))
    assert result.bottlenecks[0].link == "node2.nic0.in"


def test_a_late_transfer_shares_only_what_is_left(cluster_file):
    size = 50 * 2**20
    half = size / RATE_BPS / 2
    result = simulate_transfers(FlowsSpec(cluster_file(SWITCH)), transfers((0.0, 0, 1, size), (half, 0, 2, size)))
    # Half of the first is gone; the other half takes twice as long; then the second goes alone.
    assert result.finish_s == pytest.approx([2e-6 + 3 * half, 2e-6 + 4 * half], rel=1e-9)


def test_alone_nothing_is_slowed_down(cluster_file):
    result = simulate_transfers(
        FlowsSpec(cluster_file(SWITCH)), transfers((0.0, 0, 1, 1000), (1.0, 1, 0, 5), (2.0, 0, 1, 0))
    )
    assert result.slowdown.tolist() == [1, 1, 1]


@given(data=st.data())
def test_equal_starts_finish_by_max_min_rates_first(fair_rates, data):
    """The first to finish among flows that start at once has the largest rate for its size."""
    cluster = build_cluster(load_shape("leaf-spine", ["nic.latency=0s", "fabric.link.latency=0s"]), 24)
    pairs = data.draw(
        st.lists(st.tuples(st.integers(0, 5), st.integers(6, 23), st.integers(1, 10**6)), min_size=1, max_size=12)
    )
    src, dst, size = (np.array(column) for column in zip(*pairs, strict=True))
    routes = cluster.routes(src, dst)
    rates = fair_rates(routes.offsets, routes.links, routes.weights, cluster.fabric.rate_Bps / 1e12)
    spec = FlowsSpec("leaf-spine", workers=24, overrides=("nic.latency=0s", "fabric.link.latency=0s"))
    result = simulate_transfers(spec, Transfers(np.zeros(len(src), np.int64), src, dst, size.astype(float)))
    first = float((size / rates).min()) + float(routes.latency_ps.min())
    assert result.finish_s.min() * 1e12 >= first - 1
    alone = np.minimum.reduceat(cluster.fabric.rate_Bps[routes.links], routes.offsets[:-1]) / 1e12
    assert (result.finish_s * 1e12 >= round_up_ps(size / alone) - 1).all()


def test_the_command_writes_json_and_csv_in_file_order(tmp_path, capsys):
    path = tmp_path / "traffic.csv"
    path.write_text("start_s, src, dst, bytes\n0, 0, 4, 1e6\n5e-6, 1, 5, 200\n")
    out = tmp_path / "finished.csv"
    assert main(["flows", str(path), "--topology", "fat-tree", "--json", "-", "--out", str(out)]) == 0
    value = json.loads(capsys.readouterr().out)
    assert [flow["src"] for flow in value["flows"]] == [0, 1]
    assert all(flow["finish_s"] > flow["start_s"] and flow["slowdown"] >= 1 for flow in value["flows"])
    lines = out.read_text().splitlines()
    assert lines[0] == "start_s,src,dst,bytes,finish_s,slowdown"
    assert [float(line.split(",")[4]) for line in lines[1:]] == [flow["finish_s"] for flow in value["flows"]]
    assert main(["flows", str(path), "--topology", "fat-tree"]) == 0
    assert "2 transfers of 1 MB together" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must name the columns"),
        ("start_s,src,dst\n0,1,2\n", "must name the columns"),
        ("start_s,src,dst,bytes\n0,1,2,many\n", "line 2: .* must be numbers"),
        ("start_s,src,dst,bytes\n0,1,2\n", "line 2: .* must be numbers"),
        ("start_s,src,dst,bytes\n0,1,2,3\n-1,1,2,3\n", "line 3: start_s -1.0"),
        ("start_s,src,dst,bytes\nnan,1,2,3\n", "start_s nan"),
        ("start_s,src,dst,bytes\n0,1,2,-3\n", "-3.0 bytes"),
        ("start_s,src,dst,bytes\n0,1,1,3\n", "rank 1 sends to itself"),
        ("start_s,src,dst,bytes\n0,-1,1,3\n", "src -1 is no rank"),
    ],
)
def test_wrong_files_are_told(text, message, tmp_path):
    path = tmp_path / "traffic.csv"
    path.write_text(text)
    with pytest.raises(S2SimError, match=message):
        simulate_transfers(FlowsSpec("fat-tree"), read_transfers(path))


def test_a_file_without_transfers_and_one_with_too_many_ranks(tmp_path, capsys):
    path = tmp_path / "traffic.csv"
    path.write_text("start_s,src,dst,bytes\n")
    assert main(["flows", str(path), "--topology", "fat-tree"]) == 0
    assert "no transfer" in capsys.readouterr().out
    path.write_text("start_s,src,dst,bytes\n0,0,9,1\n")
    assert main(["flows", str(path), "--topology", "fat-tree", "--workers", "9"]) == 2
    assert "rank 9 does not exist" in capsys.readouterr().err
    assert main(["flows", str(tmp_path / "missing.csv"), "--topology", "fat-tree"]) == 2
    assert "cannot read" in capsys.readouterr().err
