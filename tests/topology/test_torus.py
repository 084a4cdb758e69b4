"""Tori against closed facts, a breadth-first search and the ring."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe_cluster, summary_line
from s2sim.topology.read_file import load_shape


def torus(size, workers=None):
    text = "x".join(map(str, size))
    return build_cluster(load_shape("torus", [f"fabric.size={text}"]), workers or int(np.prod(size)))


def distances(fabric, start):
    """Return the links from one vertex to all others, by breadth-first search."""
    after = {}
    for tail, head in zip(fabric.tail.tolist(), fabric.head.tolist(), strict=True):
        after.setdefault(tail, []).append(head)
    found, queue = {start: 0}, [start]
    for vertex in queue:
        for other in after[vertex]:
            if other not in found:
                found[other] = found[vertex] + 1
                queue.append(other)
    return found


@pytest.mark.parametrize(
    ("size", "links", "diameter", "bisection"),
    [
        # k-ary n-cubes: 2 n k^n link directions, n k / 2 hops, 2 k^(n-1) links each way between halves.
        ((4, 4, 4), 384, 6, 32),
        ((8, 8), 256, 8, 16),
        ((6,), 12, 3, 2),
        # Hypercubes: n 2^n link directions, n hops, 2^(n-1) links.
        ((2, 2, 2, 2), 64, 4, 8),
        # The longest side is halved.
        ((2, 8), 16 + 32, 5, 4),
        ((1, 5), 10, 2, 2),
    ],
)
def test_closed_facts(size, links, diameter, bisection):
    values = describe_cluster(torus(size))
    assert values["links_by_class"]["torus"] == links
    assert values["diameter_hops"] == diameter + 2
    assert values["bisection_Bps"] == bisection * 50e9
    assert (values["size"], values["oversubscription"], values["leaves"]) == (list(size), None, 0)


@given(size=st.lists(st.integers(1, 5), min_size=1, max_size=3), data=st.data())
def test_ways_are_shortest_and_go_dimension_by_dimension(size, data):
    nodes = int(np.prod(size))
    workers = data.draw(st.integers(1, nodes))
    cluster = torus(size, workers)
    fabric = cluster.fabric
    source = data.draw(st.integers(0, workers - 1))
    others = np.delete(np.arange(workers), source)
    routes = cluster.routes(np.full(len(others), source), others)
    shortest = distances(fabric, fabric.gpus + source)
    for number, target in enumerate(others):
        links = routes.links[routes.offsets[number] : routes.offsets[number + 1]]
        assert len(links) == shortest[fabric.gpus + target]
        ways = [fabric.link_names[link].split(".")[1] for link in links[1:-1]]
        assert ways == sorted(ways)


def test_ties_go_in_the_positive_direction():
    cluster = torus((4, 2))
    names = [cluster.fabric.link_names[link] for link in cluster.routes([0], [5]).links]
    assert names == ["node0.nic0.out", "node0.dim0.plus", "node2.dim0.plus", "node4.dim1.plus", "node5.nic0.in"]
    back = [cluster.fabric.link_names[link] for link in cluster.routes([0], [6]).links]
    assert back[1:-1] == ["node0.dim0.minus"]


@pytest.mark.parametrize("nodes", [3, 4, 9, 10])
@pytest.mark.parametrize("nic", ['rate = "60GiB/s"', 'rate = "150GiB/s"\nlatency = "100ns"'])
def test_a_torus_of_one_dimension_is_a_ring(make, nodes, nic):
    options = {"gpus": 2, "node": '[nvlink]\nrate = "240GB/s"', "nic": nic}
    ring = make.cluster(make.toml('kind = "ring"', **options), 2 * nodes - 1)
    line = make.cluster(make.toml('kind = "torus"\ndimensions = 1', **options), 2 * nodes - 1)
    for name in ("rate_Bps", "latency_ps", "tail", "head", "link_class"):
        assert np.array_equal(getattr(ring.fabric, name), getattr(line.fabric, name))
    pairs = np.nonzero(~np.eye(2 * nodes - 1, dtype=bool))
    for name in ("offsets", "links", "weights", "latency_ps"):
        assert np.array_equal(getattr(ring.routes(*pairs), name), getattr(line.routes(*pairs), name))
    for one, other in zip(ring.cuts().families, line.cuts().families, strict=True):
        assert one.name == other.name
        assert np.array_equal(one.group_of_rank, other.group_of_rank)
        assert np.array_equal(one.egress_Bps, other.egress_Bps)
    for key in ("bisection_Bps", "diameter_hops", "latency_min_ps", "latency_max_ps"):
        assert describe_cluster(ring)[key] == describe_cluster(line)[key]


@given(nodes=st.integers(1, 500), dimensions=st.integers(1, 4))
def test_sides_are_nearly_equal_and_none_can_be_shorter(nodes, dimensions):
    cluster = build_cluster(load_shape("torus", [f"fabric.dimensions={dimensions}"]), nodes)
    sizes = cluster.layout.sizes
    assert len(sizes) == dimensions
    assert np.prod(sizes) >= nodes
    assert max(sizes) - min(sizes) <= 1
    longest = sizes.index(min(sizes)) - 1 if max(sizes) > min(sizes) else dimensions - 1
    shorter = np.array(sizes)
    shorter[longest] -= 1
    assert np.prod(shorter) < nodes


def test_sides_of_the_cube():
    assert build_cluster(load_shape("torus"), 64).layout.sizes == (4, 4, 4)
    assert build_cluster(load_shape("torus"), 65).layout.sizes == (5, 4, 4)
    assert "torus of 4 x 4 x 4, links of 400 Gbps" in summary_line(build_cluster(load_shape("torus"), 64))


def test_planes_and_slabs_bind_where_sides_differ():
    cuts = torus((16, 2, 2)).cuts()
    assert [family.name for family in cuts.families] == [
        "gpu",
        "node",
        "dimension-0 plane",
        "dimension-0 slab",
        "dimension-1 plane",
        "dimension-2 plane",
    ]
    # 2 x 2 stops with a link each way up and down the long side; 16 x 2 with the only link across a short one.
    assert set(cuts["dimension-0 plane"].egress_Bps) == {8 * 50e9}
    assert set(cuts["dimension-0 slab"].egress_Bps) == {8 * 50e9}
    assert set(cuts["dimension-2 plane"].egress_Bps) == {32 * 50e9}
    assert set(cuts["node"].egress_Bps) == {4 * 50e9}
