from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.cli.run_output import graph_of
from s2sim.errors import S2SimError
from s2sim.report.figures.cluster import draw_cluster, lay_out_drawing, legend_rows, place_counts, reading_note
from s2sim.report.figures.cluster_sizes import ClusterGraph, find_parts
from s2sim.report.figures.style import check_picture
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe_cluster
from s2sim.topology.fields import shipped_topologies, topology_group
from s2sim.topology.read_file import load_shape

FABRICS = [name for name in shipped_topologies() if topology_group(name) == "fabrics"]
# A cluster looks like its machines behind one switch.
NAMES = [name for name in shipped_topologies() if topology_group(name) != "clusters"]


def graph(name, workers, *overrides, **options):
    cluster = build_cluster(load_shape(name, overrides), workers, **options)
    return graph_of(cluster, describe_cluster(cluster))


def hand_made(links, gpus, nodes, **options):
    """Return a graph of links (tail, head, class, rate), both ways each; GPUs fill nodes evenly."""
    tail, head, names, rates = zip(*links, *((b, a, name, rate) for a, b, name, rate in links), strict=True)
    classes = tuple(dict.fromkeys(names))
    return ClusterGraph(
        tail=np.array(tail),
        head=np.array(head),
        link_class=np.array([classes.index(name) for name in names]),
        class_names=classes,
        rate_Bps=np.array(rates, np.float64),
        latency_ps=np.zeros(len(tail), np.int64),
        node_of_gpu=np.arange(gpus) * nodes // gpus,
        rank_of_gpu=np.arange(gpus),
        nodes=nodes,
        **options,
    )


def texts(plan, kind):
    return [item.text for item in plan.items if item.kind == kind]


@cache
def inches(text):
    from matplotlib.textpath import TextPath

    return TextPath((0, 0), text, size=6.5).get_extents().width / 72 if text else 0.0


def overlap(one, other):
    across, along = abs(one.x - other.x) * 2, abs(one.y - other.y) * 2
    return across < one.width + other.width - 1e-9 and along < one.height + other.height - 1e-9


def check_readable(plan):
    """No two boxes lie over each other, frames hold what they frame, texts fit into boxes, and all fits on a poster."""
    frames = [item for item in plan.items if item.kind == "group"]
    boxes = [item for item in plan.items if item.kind != "group"]
    for one, other in [*combinations(boxes, 2), *combinations(frames, 2)]:
        assert not overlap(one, other), (one, other)
    for box in boxes:
        for line in box.text.split("\n"):
            assert inches(line) < box.width, box
        inside = [abs(box.x - f.x) + box.width / 2 < f.width / 2 for f in frames if overlap(box, f)]
        assert all(inside)
    xs, ys = [item.x for item in plan.items], [item.y for item in plan.items]
    assert max(xs) - min(xs) < 25
    assert max(ys) - min(ys) < 15


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_topology_is_readable(name):
    for workers in (1, 3, 16, 64):
        check_readable(lay_out_drawing(graph(name, workers)))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_topology_is_readable_with_a_thousand_ranks(name):
    check_readable(lay_out_drawing(graph(name, 1000)))


@pytest.mark.slow
@given(
    name=st.sampled_from(FABRICS),
    gpus=st.integers(1, 16),
    workers=st.integers(1, 400),
    placement=st.sampled_from(["linear", "random"]),
)
def test_boxes_never_overlap_and_show_ranks_of_the_cluster(name, gpus, workers, placement):
    joined = "nvlink" if load_shape(name).pcie is None else "pcie"
    overrides = [f"node.gpus={gpus}", "nic.count=1", f"{joined}.rate=100GB/s"]
    plan = lay_out_drawing(graph(name, workers, *overrides, placement=placement))
    check_readable(plan)
    ranks = [int(text) for text in texts(plan, "gpu")]
    assert len(ranks) == len(set(ranks))
    assert set(ranks) <= set(range(workers))


@pytest.mark.slow
def test_the_largest_cluster_is_readable():
    plan = lay_out_drawing(graph("fat-tree", 131072, "node.gpus=8", "fabric.levels=3", "fabric.hosts_per_leaf=16"))
    check_readable(plan)
    assert "131071" in texts(plan, "gpu")
    assert len(plan.items) < 300


def test_a_small_tree_is_drawn_in_full():
    plan = lay_out_drawing(graph("fat-tree", 64))
    assert sorted(map(int, texts(plan, "gpu"))) == list(range(64))
    assert texts(plan, "node") == [f"node {i}" for i in range(16)]
    assert texts(plan, "switch") == [f"{name} {i}" for name in ("leaf", "spine") for i in range(4)]
    assert texts(plan, "more") == []
    # 64 ports of GPUs, 16 of nodes, and each leaf to each spine.
    assert len(plan.inner) == 64 + 16 + 16
    assert all(line.count == 1 and not line.hidden and not line.bend for line in plan.inner)


def test_levels_stand_above_each_other():
    plan = lay_out_drawing(graph("fat-tree", 64))
    heights = {item.text.split(" ")[0]: item.y for item in plan.items if item.kind in {"node", "switch"}}
    gpu = next(item.y for item in plan.items if item.kind == "gpu")
    assert gpu < heights["node"] < heights["leaf"] < heights["spine"]


def test_what_is_left_out_is_counted():
    plan = lay_out_drawing(graph("fat-tree", 1024))
    shown = len([text for text in texts(plan, "switch") if text.startswith("leaf")])
    assert texts(plan, "more") == [f"{64 - shown} more\nleaves"]
    # From the first ones and the last to every spine, and from what is left out, dotted.
    assert len([line for line in plan.inner if line.hidden]) == 4
    assert "left out" in reading_note(plan)


@pytest.mark.parametrize("workers", [5, 8, 16, 64, 200])
def test_gpus_left_out_of_a_node_are_counted(workers):
    plan = lay_out_drawing(graph("fat-tree", workers, "node.gpus=200"))
    left_out = sum(int(text) for text in texts(plan, "more") if text.startswith("+"))
    assert len(texts(plan, "gpu")) + left_out == workers


def test_parallel_links_are_one_line_with_a_number():
    parallel = graph("fat-tree", 16, "nic.count=4")
    plan = lay_out_drawing(parallel)
    nic = plan.classes.index("nic")
    assert [line.count for line in plan.inner if line.link_class == nic] == [4] * 4
    assert [text for _, _, text in place_counts(plan)] == ["4\N{MULTIPLICATION SIGN}"] * 4
    assert any(text.endswith("4 in parallel") for _, _, text in legend_rows(parallel, plan))


@pytest.mark.parametrize("name", ["dragonfly", "fat-tree"])
def test_numbers_stand_on_nothing(name):
    plan = lay_out_drawing(graph(name, 64, "nic.count=2"))
    numbers = place_counts(plan)
    assert numbers
    boxes = [item for item in plan.items if item.kind != "group"]
    for x, y, _ in numbers:
        assert not any(abs(x - box.x) < box.width / 2 and abs(y - box.y) < box.height / 2 for box in boxes)
    assert len({(round(x, 6), round(y, 6)) for x, y, _ in numbers}) == len(numbers)


def test_placement_is_seen():
    linear, random = (lay_out_drawing(graph("fat-tree", 64, placement=how)) for how in ("linear", "random"))
    assert texts(linear, "gpu") == [str(i) for i in range(64)]
    assert sorted(texts(linear, "gpu")) == sorted(texts(random, "gpu"))
    assert texts(linear, "gpu") != texts(random, "gpu")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [16, 64, 1000, 20000])
@pytest.mark.parametrize("name", ["ring", "torus"])
def test_rings_and_tori_fit_on_a_page(name, workers):
    plan = lay_out_drawing(graph(name, workers))
    check_readable(plan)
    left, right = (
        min(item.x - item.width / 2 for item in plan.items),
        max(item.x + item.width / 2 for item in plan.items),
    )
    assert right - left < 11.5


def test_a_ring_is_a_closed_loop_of_neighbours():
    plan = lay_out_drawing(graph("ring", 16))
    assert len(plan.outer) == 16
    ends = [point for line in plan.outer for point in (line.start, line.end)]
    assert all(ends.count(point) == 2 for point in ends)
    dots = {(item.x, item.y) for item in plan.items if item.kind == "dot"}
    assert dots == set(ends)
    # Straight along a row or down at its ends: no line crosses another.
    assert all(start[0] == end[0] or start[1] == end[1] for start, end in ((x.start, x.end) for x in plan.outer))


def test_a_grid_has_a_line_a_link_and_two_short_ones_round_the_edge():
    plan = lay_out_drawing(graph("torus", 12, "fabric.dimensions=2"))
    rows, columns = build_cluster(load_shape("torus", ["fabric.dimensions=2"]), 12).layout.sizes
    inside = rows * (columns - 1) + columns * (rows - 1)
    assert len(plan.outer) == inside + 2 * (rows + columns)
    assert plan.note == "Short lines lead round the edge."


def test_planes_of_a_grid_stand_beside_each_other():
    plan = lay_out_drawing(graph("torus", 27))
    assert "next plane" in plan.note
    # 12 neighbours a plane, 2 ends of the 6 links round it, and 2 of the 27 links between planes.
    assert len(plan.outer) == 3 * (12 + 12) + 2 * 27


def test_groups_of_a_dragonfly_are_joined_frame_to_frame():
    plan = lay_out_drawing(graph("dragonfly", 24, *(f"fabric.{what}" for what in DRAGONFLY)))
    frames = [item for item in plan.items if item.kind == "group"]
    assert [frame.text for frame in frames] == ["group 0", "group 1", "group 2"]
    assert {(line.start, line.end) for line in plan.outer} == {
        ((a.x, a.y), (b.x, b.y)) for a, b in combinations(frames, 2)
    }
    bent = [line for line in plan.inner if line.bend]
    assert {plan.classes[line.link_class] for line in bent} == {"local"}
    assert len(bent) == 3


DRAGONFLY = ("routers_per_group=2", "global_links_per_router=1", "hosts_per_router=1")


def test_lines_know_their_rate_and_the_legend_tells_rates_and_latencies():
    drawn = graph("fat-tree", 64)
    plan = lay_out_drawing(drawn)
    rates = {plan.classes[line.link_class]: line.rate_Bps for line in plan.inner}
    assert rates == {"nvlink": 240e9, "nic": 12.5e9, "leaf": 12.5e9}
    assert [text for _, _, text in legend_rows(drawn, plan)] == [
        "NVLink: 240 GB/s (1.92 Tbps), 200 ns",
        "NIC with its link: 12.5 GB/s (100 Gbps), 500 ns",
        "leaf uplink: 12.5 GB/s (100 Gbps), 150 ns",
    ]


def test_unknown_kinds_of_fabric_are_drawn_by_distance_from_the_gpus():
    # Two nodes of two GPUs (0-3) joined directly, nodes 4 and 5, a switch 6 each node has to itself and one above.
    links = [(0, 1, "mesh", 4), (2, 3, "mesh", 4), (0, 4, "pcie", 2), (1, 4, "pcie", 2), (2, 5, "pcie", 2)]
    links += [(3, 5, "pcie", 2), (4, 6, "cable", 1), (5, 7, "cable", 1), (6, 8, "trunk", 1), (7, 8, "trunk", 3)]
    drawn = hand_made(links, gpus=4, nodes=2, switch_names=("box",))
    plan = lay_out_drawing(drawn)
    check_readable(plan)
    assert texts(plan, "switch") == ["box 0", "box 1", "switch 0"]
    # Direct links hang below the GPUs.
    assert [line.bend < 0 for line in plan.inner if plan.classes[line.link_class] == "mesh"] == [True, True]
    assert "trunk link: 1 B/s (8 bps) to 3 B/s (24 bps), no latency given" in [
        t for _, _, t in legend_rows(drawn, plan)
    ]


def test_switches_joined_to_their_like_go_on_a_circle():
    # Five nodes of one GPU each, a switch a node, all switches joined: vertices 0-4, 5-9, 10-14.
    links = [(node, node + 5, "nic", 1) for node in range(5, 10)]
    links += [(a, b, "mesh", 1) for a, b in combinations(range(10, 15), 2)]
    plan = lay_out_drawing(hand_made(links, gpus=5, nodes=5))
    check_readable(plan)
    assert len(plan.outer) == 10
    assert len([item for item in plan.items if item.kind == "group"]) == 5


def test_parts_nest():
    parts = find_parts(graph("fat-tree", 64))
    (whole,) = set(parts.part[parts.top].tolist())
    leaves = parts.children(parts.top, whole)
    nodes = [node for leaf in leaves for node in parts.children(parts.top - 1, leaf)]
    gpus = [gpu for node in nodes for gpu in parts.children(parts.top - 2, node)]
    assert (len(leaves), len(nodes), gpus) == (4, 16, list(range(64)))


@pytest.mark.parametrize(
    ("file_format", "start"),
    [
        ("svg", b"<?xml"),
        pytest.param("png", b"\x89PNG", marks=pytest.mark.slow),
        pytest.param("pdf", b"%PDF", marks=pytest.mark.slow),
    ],
)
def test_pictures_are_what_their_name_says_and_come_out_again(file_format, start):
    first, second = (draw_cluster(graph("leaf-spine", 40), file_format, title="a $title_1$") for _ in range(2))
    assert first.startswith(start)
    assert first == second


def test_title_and_facts_are_in_the_picture():
    words = draw_cluster(graph("ring", 4), "svg", title="four nodes", facts=["ring of 4"]).decode()
    for text in ("four nodes", "ring of 4", "node 3", "The number of a GPU is its rank."):
        assert f">{text}</text>" in words


def test_nothing_global_is_left_behind():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    draw_cluster(graph("ring", 4), "png", title="")
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("name", ["picture", "picture.jpg", "-", "png"])
def test_other_formats_are_refused(name):
    with pytest.raises(S2SimError, match=r"\.png, \.svg, \.pdf"):
        check_picture(name)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(S2SimError, match=r"pip install 's2sim\[plot\]'"):
        check_picture("a.png")
