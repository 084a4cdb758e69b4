"""Single links that differ from their like."""

import numpy as np
import pytest

from s2sim.errors import TopologyError, UnitError
from s2sim.testing import topologies as kit
from s2sim.testing.topologies import check_topology
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe_cluster, summary_line
from s2sim.topology.kinds import KINDS
from s2sim.topology.read_file import load_shape

NVSWITCH = '[nvlink]\nrate = "240GB/s"\nlatency = "300ns"'


@pytest.mark.slow
def test_clusters_with_named_links_conform(make):
    slow = "\n[[links]]\nname = 'node0.*'\nlatency = '3us'\n[[links]]\nname = '*.in'\nrate = '4GB/s'\n"
    # A graph is in a file: tests/topology/test_graph.py.
    for kind in KINDS.keys() - {"graph"}:
        for routing in KINDS[kind].routings or [""]:
            top = routing and f'routing = "{routing}"'
            shape = make.shape(make.toml(f'kind = "{kind}"', gpus=2, node=NVSWITCH, top=top) + slow)
            check_topology(shape.file)
            make.check_cuts(build_cluster(shape, 9))


def test_named_links(make):
    tree = make.tree(2, 2, gpus=2, node=NVSWITCH)
    plain = make.cluster(tree, 8)
    file = tree + (
        "\n[[links]]\nname = 'leaf0.up*'\nrate = { value = '1GB/s', kind = 'measured', source = 'iperf' }\n"
        "[[links]]\nname = 'node1.nic0.in'\nlatency = '9us'"
    )
    cluster = make.cluster(file, 8)
    changed = np.flatnonzero(plain.fabric.rate_Bps != cluster.fabric.rate_Bps)
    assert [cluster.fabric.link_names[link] for link in changed] == ["leaf0.up0", "leaf0.up1"]
    later = np.flatnonzero(plain.fabric.latency_ps != cluster.fabric.latency_ps)
    assert [cluster.fabric.link_names[link] for link in later] == ["node1.nic0.in"]
    assert cluster.routes([0], [2]).latency_ps == plain.routes([0], [2]).latency_ps + 9_000_000 - 250_000
    leaf = cluster.cuts()["leaf"]
    assert leaf.egress_Bps.tolist() == [2e9, 2 * make.rate_Bps]
    assert leaf.ingress_Bps.tolist() == [2 * make.rate_Bps] * 2
    assert describe_cluster(cluster)["bisection_Bps"] == 2e9
    assert describe_cluster(cluster)["oversubscription"] == make.rate_Bps / 1e9
    given = {item.field: (item.kind, item.source) for item in cluster.shape.quantities}
    assert given["link.leaf0.up*.rate"] == ("measured", "iperf")
    override = load_shape(cluster.shape.file, ["link.leaf0.up*.rate=2GB/s", "link.leaf0.up1.rate=3GB/s"])
    assert build_cluster(override, 8).cuts()["leaf"].egress_Bps[0] == 5e9
    assert "2 exceptions among the links" in summary_line(cluster)


def test_a_slow_interface_slows_its_node_alone(make):
    cluster = make.cluster(
        make.tree(2, 2, gpus=2, node=NVSWITCH) + "\n[[links]]\nname='node2.nic0.out'\nrate='1GB/s'", 8
    )
    cuts = cluster.cuts()
    assert cuts["node"].egress_Bps.tolist() == [make.rate_Bps, make.rate_Bps, 1e9, make.rate_Bps]
    assert set(cuts["node"].ingress_Bps) == {float(make.rate_Bps)}
    assert cuts["leaf"].egress_Bps.tolist() == [2 * make.rate_Bps, make.rate_Bps + 1e9]
    assert cuts["gpu"].egress_Bps.tolist() == [240e9 + make.rate_Bps] * 4 + [241e9] * 2 + [240e9 + make.rate_Bps] * 2


def test_sprayed_ways_wait_for_the_slowest_of_their_links(make):
    text = make.tree(2, 3, routing="spray") + "\n[[links]]\nname = 'leaf?.up1'\nlatency = '4us'"
    assert make.cluster(text, 4).routes([0], [3]).latency_ps.tolist() == [3 * 250_000 + 4_000_000]
    kit._check_routes(make.cluster(text, 7), "here")


def test_a_link_that_does_not_exist_is_told_with_the_nearest(make):
    text = make.tree(2, 2)
    with pytest.raises(TopologyError, match=r"mine with 8 workers has no link 'leaf9.up1' \(did you mean 'leaf\d.up1'"):
        build_cluster(make.shape(text, ["link.leaf9.up1.rate=1GB/s"]), 8)
    with pytest.raises(
        TopologyError, match=r"has no link 'core\*' .*for example node0.nic0.out, .*leaf0.up0"
    ) as caught:
        build_cluster(make.shape(text, ["link.core*.rate=1GB/s"]), 8)
    assert "\n" not in str(caught.value)
    with pytest.raises(UnitError, match=r"link.leaf0.up0.rate: rate '1' has no unit"):
        make.shape(text, ["link.leaf0.up0.rate=1"])
    with pytest.raises(TopologyError, match=r"unknown field 'link.leaf0.up0'"):
        make.shape(text, ["link.leaf0.up0=1GB/s"])
