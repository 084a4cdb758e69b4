"""Nodes of several kinds in one cluster."""

import numpy as np
import pytest

from s2sim.errors import TopologyError
from s2sim.testing.topologies import check_topology
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe_cluster, summary_line
from s2sim.topology.kinds import KINDS, most_workers
from s2sim.topology.read_file import load_shape
from s2sim.topology.shape import LinkSpec, follows, with_rate

NVSWITCH = '[nvlink]\nrate = "240GB/s"\nlatency = "300ns"'
LINK = 'rate = "10GB/s"\nlatency = "250ns"'
FABRICS = ("single-switch", "fat-tree", "rail-optimised", "ring", "torus", "dragonfly")
UNEQUAL = """
[[nodes]]
count = 2
gpus = 4
nvlink.rate = "240GB/s"
nvlink.latency = "300ns"
nic.count = 4

[[nodes]]
count = 1
gpus = 2
pcie.rate = "12GB/s"
nic = { rate = "5GB/s", latency = "1us" }

[[nodes]]
gpus = 3
nvlink = { kind = "mesh", rate = "25GB/s" }
nic.count = 2
"""


def unequal(fabric, *, top="", end=UNEQUAL):
    return f'{top}\n[fabric]\nkind = "{fabric}"\n[fabric.link]\n{LINK}\n{end}'


def every_pair(workers):
    return np.nonzero(~np.eye(workers, dtype=bool))


@pytest.mark.slow
@pytest.mark.parametrize("fabric", FABRICS)
def test_unequal_nodes_conform(make, fabric):
    for routing in KINDS[fabric].routings or [""]:
        shape = make.shape(unequal(fabric, top=routing and f'routing = "{routing}"'))
        check_topology(shape.file)
        for workers in (3, 7, 13):
            make.check_cuts(build_cluster(shape, workers))


def test_unequal_nodes_fill_in_order(make):
    shape = make.shape(unequal("fat-tree"))
    cluster = build_cluster(shape, 18)
    assert cluster.node_of_rank.tolist() == [0] * 4 + [1] * 4 + [2] * 2 + [3] * 3 + [4] * 3 + [5] * 2
    assert (shape.gpus_per_node, shape.lanes_per_node, cluster.layout.nodes) == (4, 1, 6)
    node_set = cluster.layout.node_set
    assert node_set.port_of_gpu.tolist() == [*range(8), 8, 8, 9, 9, 10, 11, 11, 12, 13, 13]
    assert summary_line(cluster).startswith(
        "mine: 2 nodes x 4 GPUs (NVLink 240 GB/s) + 1 node x 2 GPUs (PCIe 12 GB/s) + 3 nodes x 3 GPUs (NVLink 25 GB/s "
        "a link, no switch), 2 in use on the last, 4 NICs of 80 Gbps or 1 NIC of 40 Gbps or 2 NICs of 80 Gbps a node"
    )
    assert make.names(cluster, 0, 1) == ["node0.gpu0.nvlink.out", "node0.gpu1.nvlink.in"]
    assert make.names(cluster, 8, 9) == ["node2.gpu0.pcie.out", "node2.gpu1.pcie.in"]
    assert make.names(cluster, 10, 12) == ["node3.gpu0.to2"]
    assert make.names(cluster, 9, 17)[:2] == ["node2.gpu1.pcie.out", "node2.nic0.out"]
    assert make.names(cluster, 9, 17)[-1] == "node5.nic0.in"
    assert cluster.cuts()["node"].egress_Bps.tolist() == [40e9, 40e9, 5e9, 20e9, 20e9, 10e9]
    rate = cluster.fabric.rate_Bps[cluster.fabric.blocks["nic.out"].part]
    assert rate.tolist() == [10e9] * 8 + [5e9] + [10e9] * 6
    assert len(set(cluster.fabric.link_names)) == len(cluster.fabric)


def test_equal_groups_are_equal_nodes(make):
    body = 'gpus = 4\nnvlink = { rate = "240GB/s", latency = "300ns" }\nnic.count = 2\n'
    for fabric in FABRICS:
        plain = make.cluster(make.toml(f'kind = "{fabric}"', gpus=4, node=NVSWITCH, nic="count = 2", link=LINK), 27)
        groups = make.cluster(unequal(fabric, end=f"[[nodes]]\ncount = 3\n{body}[[nodes]]\n{body}"), 27)
        for array in ("rate_Bps", "latency_ps", "tail", "head"):
            assert np.array_equal(getattr(plain.fabric, array), getattr(groups.fabric, array))
        assert list(plain.fabric.link_names) == list(groups.fabric.link_names)
        one, other = (cluster.routes(*every_pair(27)) for cluster in (plain, groups))
        assert np.array_equal(one.links, other.links)
        for family in plain.cuts().families:
            assert np.array_equal(family.egress_Bps, groups.cuts()[family.name].egress_Bps)
        for key in ("bisection_Bps", "oversubscription", "diameter_hops", "latency_max_ps"):
            assert describe_cluster(plain)[key] == describe_cluster(groups)[key]


def test_a_rail_is_the_leaf_switch_of_an_interface_number(make):
    cluster = make.cluster(unequal("rail-optimised"), 16)
    ports = cluster.layout.node_set.local_port(np.arange(cluster.layout.node_set.ports))
    assert cluster.layout.rails == 4
    assert np.array_equal(cluster.layout.switch_of_port(np.arange(len(ports))) % 4, ports)


def test_the_rates_of_a_group_and_of_all(make):
    shape = make.shape(unequal("single-switch"), ["nodes.1.nic.rate=3GB/s", "nic.latency=7us", "nodes.2.nic.count=1"])
    assert [node.nic for node in shape.nodes] == [
        LinkSpec(10e9, 7_000_000),
        LinkSpec(3e9, 1_000_000),
        LinkSpec(10e9, 7_000_000),
    ]
    assert shape.nodes[2].nics == 1
    kinds = {item.field: (item.value, item.kind) for item in shape.quantities}
    assert kinds["nodes.1.nic.rate"] == ("3GB/s", "user")
    # As an override of the rate does: nodes keep their own.
    every = with_rate(shape, "nic.rate", 2e9)
    assert [node.nic.rate_Bps for node in every.nodes] == [2e9, 3e9, 2e9]


@pytest.mark.parametrize("field", ["nic.rate", "nvlink.rate", "pcie.rate"])
@pytest.mark.parametrize("name", ["fat-tree", "dgx-h100", "rtx-4090-8-two-sockets", "leaf-spine", "tcp-10g", "own"])
def test_a_rate_changes_what_its_override_changes(make, name, field):
    """Searches over rates find what a run with ``--set`` finds."""
    source, before = name, []
    if name == "own":
        source, before = make.shape(unequal("single-switch")).file, ["nodes.1.nic.rate=3GB/s"]
    shape = load_shape(source, before)
    if not follows(shape, field):
        return
    asked, found = load_shape(source, [*before, f"{field}=2GB/s"]), with_rate(shape, field, 2e9)
    assert (found.nodes, found.link) == (asked.nodes, asked.link)


def test_groups_that_end_are_full(make):
    text = unequal(
        "single-switch", end="[[nodes]]\ncount = 2\ngpus = 1\n[[nodes]]\ncount = 1\ngpus = 2\npcie.rate='1GB/s'"
    )
    shape = make.shape(text)
    assert most_workers(shape) == 4
    assert build_cluster(shape, 4).node_of_rank.tolist() == [0, 1, 2, 2]
    with pytest.raises(TopologyError, match=r"5 workers .* holds 4 \(3 nodes\): .*raise the count of the last"):
        build_cluster(shape, 5)
    assert most_workers(load_shape(shape.file, ["fabric.nodes=2"])) == 2
    assert most_workers(load_shape(shape.file, ["nodes.0.count=7"])) == 9
    check_topology(shape.file)


@pytest.mark.parametrize(
    ("end", "overrides", "message"),
    [
        ("[[nodes]]\ngpus = 1\n[[nodes]]\ngpus = 1", (), "nodes.0.count is missing: only the last"),
        ("[[nodes]]\ncount = 1", (), "node.gpus is missing"),
        ("[[nodes]]\ngpus = 2", (), r"node.gpus = 2 needs \[nvlink\]"),
        ("[[nodes]]\ngpu = 2", (), "unknown field 'nodes.0.gpu'.*did you mean 'gpus'"),
        ("[[nodes]]\ngpus = 0", (), "nodes.0.gpus = 0 must be at least 1"),
        ("[nodes]\ngpus = 1", (), r"nodes is an array of tables: write \[\[nodes\]\]"),
        ("[node]\ngpus = 1\n[[nodes]]\ngpus = 1", (), "node.gpus has no effect: all .* set nodes.0.gpus"),
        (
            "[[nodes]]\ngpus = 1\nnic.rate = '1GB/s'",
            ["nic.rate=2GB/s"],
            "nic.rate has no effect: all .* nodes.0.nic.rate",
        ),
        ("[[nodes]]\ngpus = 1", ["nodes.1.gpus=2"], r"nodes.1.gpus was asked for, there are 1 \[\[nodes\]\]"),
        ("[[nodes]]\ngpus = 1", ["nodes.0.nic.speed=2"], "unknown field 'nodes.0.nic.speed'.*nic.rate"),
        ("[node]\ngpus = 1\n[[links]]\nrate = '1GB/s'", (), "links.0 has no name"),
        ("[node]\ngpus = 1\n[[links]]\nname = 'a'", (), "have neither rate nor latency"),
        ("[node]\ngpus = 1\n[[links]]\nname = 'a'\nrte = 1", (), "unknown field 'links.0.rte'.*did you mean 'rate'"),
        ("[node]\ngpus = 1\n[links]\nname = 'a'", (), r"links is an array of tables: write \[\[links\]\]"),
        (
            "[node]\ngpus = 1\n[[links]]\nname = 'a'\nrate = '1GB/s'\n[[links]]\nname = 'a'\nrate = '2GB/s'",
            (),
            "a.rate is given twice",
        ),
    ],
)
def test_refused_groups_and_links(make, end, overrides, message):
    with pytest.raises(TopologyError, match=message) as caught:
        make.shape(unequal("single-switch", end=end), overrides)
    assert "\n" not in str(caught.value)


def test_ranks_are_dealt_and_placed_on_the_nodes_that_there_are(make, tmp_path):
    """Leaves of one node: each deals its GPUs in turn; nodes have 4, 4, 2 and 3 of them."""
    shape = make.shape(unequal("leaf-spine").replace("[fabric.link]", "hosts_per_leaf = 1\n[fabric.link]", 1))
    dealt = build_cluster(shape, 13, placement="round-robin")
    assert dealt.node_of_rank.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 3, 0, 1]
    file = tmp_path / "places.txt"
    file.write_text(
        "\n".join(f"{node} {gpu}" for node, gpus in ((3, 3), (2, 2), (1, 4), (0, 4)) for gpu in range(gpus))
    )
    placed = build_cluster(shape, 13, placement=str(file))
    assert placed.gpu_of_rank.tolist() == [10, 11, 12, 8, 9, 4, 5, 6, 7, 0, 1, 2, 3]
    file.write_text(file.read_text().replace("2 1", "2 2"))
    with pytest.raises(TopologyError, match="'2 2' is not in use"):
        build_cluster(shape, 13, placement=str(file))
