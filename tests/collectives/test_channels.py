"""Channels use all interfaces of a node alike, in rings and in trees."""

import numpy as np
import pytest

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.algorithms.tree import tree_channels
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.rounds import link_bytes
from s2sim.collectives.timing.timer import Timer, closed_form_s
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

CUBE = (
    "[[0,1],[0,2],[0,3],[0,3],[0,4],[0,4],[1,2],[1,2],[1,3],[1,5],[1,5],[2,3],[2,3],[2,6],[3,7],"
    "[4,5],[4,6],[4,7],[4,7],[5,6],[5,6],[5,7],[6,7],[6,7]]"
)


@pytest.mark.parametrize("algorithm", ["ring", "double-binary-tree"])
@pytest.mark.parametrize(("topology", "workers"), [("rail-optimised", 16), ("rail-optimised", 32), ("dragonfly", 8)])
def test_every_interface_carries_as_much(algorithm, topology, workers):
    cluster = build_cluster(load_shape(topology), workers)
    demand = Demand("all_reduce", (1 << 22,) * workers, 4)
    timed = Timer(cluster, algorithm).time(demand)
    names = cluster.fabric.link_names
    carried = link_bytes(timed.schedule, timed.times)
    by_interface = [carried[at] for at, name in enumerate(names) if ".nic" in name and name.endswith(".out")]
    if algorithm == "ring" or workers == 16:
        assert by_interface == pytest.approx([np.mean(by_interface)] * len(by_interface), rel=1e-9)
    # Nodes are leaves of one tree and inside the other, or its root: interfaces of one node are alike.
    per_node = np.reshape(by_interface, (len(np.unique(cluster.node_of_rank)), -1))
    assert per_node == pytest.approx(np.broadcast_to(per_node[:, :1], per_node.shape), rel=1e-9)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_trees_of_all_channels_reduce_everything(channels):
    cluster = build_cluster(load_shape("dragonfly"), 10)
    algorithm = make_algorithm(f"double-binary-tree:channels={channels},chunks=3", "all_reduce")
    check_schedule(algorithm.schedule(Demand("all_reduce", (101,) * 10, 4), cluster))


def test_a_pair_of_trees_for_each_interface_is_faster_than_one():
    cluster = build_cluster(load_shape("rail-optimised"), 16)
    demand = Demand("all_reduce", (1 << 28,) * 16, 4)
    one, each = (Timer(cluster, f"double-binary-tree{text}").time(demand).duration_ps for text in (":channels=1", ""))
    assert each < 0.6 * one


@pytest.mark.parametrize(("nodes", "channels"), [(2, 4), (2048, 4), (1 << 14, 2), (1 << 16, 1)])
def test_trees_of_very_many_ranks_have_fewer_channels(nodes, channels):
    assert tree_channels(load_shape("dragonfly").lanes_per_node, 4 * nodes) == channels


def mesh_of(tmp_path, workers, *, gpus=8, pairs=None, nics=1, latency="0us", placement="linear"):
    path = tmp_path / "mesh.toml"
    path.write_text(
        f"[node]\ngpus = {gpus}\n[nvlink]\nkind = 'mesh'\nrate = '10GB/s'\nlatency = '{latency}'\n"
        + (f"pairs = {pairs}\n" if pairs else "")
        + f"[nic]\ncount = {nics}\nrate = '1GB/s'\n[fabric]\nkind = 'single-switch'\n"
    )
    return build_cluster(load_shape(path), workers, placement=placement)


SIZE = 1 << 25


@pytest.mark.parametrize(
    ("gpus", "pairs", "links"),
    [(2, None, 1), (3, None, 2), (4, None, 3), (5, None, 4), (6, None, 5), (8, None, 7), (8, CUBE, 6)],
)
@pytest.mark.parametrize(("kind", "part"), [("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)])
def test_rings_reach_what_all_links_of_a_mesh_carry(tmp_path, gpus, pairs, links, kind, part):
    """All NVLinks of a GPU at once: 2(n - 1)/n·D over them, without latency."""
    cluster = mesh_of(tmp_path, gpus, gpus=gpus, pairs=pairs)
    elements = SIZE if kind == "all_reduce" else SIZE // gpus
    timed = Timer(cluster, "ring").time(Demand(kind, (elements,) * gpus, 4))
    expected_s = part * (gpus - 1) / gpus * 4 * elements * (1 if kind == "all_reduce" else gpus) / (links * 10e9)
    assert timed.duration_ps / 1e12 == pytest.approx(expected_s, rel=1e-6)


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_chains_use_the_links_of_a_mesh(tmp_path, kind):
    cluster = mesh_of(tmp_path, 8, pairs=CUBE)
    demand = Demand(kind, (SIZE,) * 8, 4, root=3)
    timed = Timer(cluster, "chain:chunks=1024").time(demand)
    least_s = 4 * SIZE / 60e9
    assert least_s <= timed.duration_ps / 1e12 <= 1.01 * least_s


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize(
    ("workers", "options"),
    [
        (3, {"pairs": CUBE}),
        (5, {"pairs": CUBE}),
        (6, {"pairs": CUBE}),
        (8, {"pairs": CUBE}),
        (8, {"placement": "random"}),
        (13, {"pairs": CUBE, "nics": 2}),
        (16, {"nics": 8}),
        (16, {"pairs": CUBE, "nics": 4, "placement": "round-robin"}),
        (7, {"gpus": 3, "nics": 2}),
    ],
)
def test_rings_of_meshes_compute_what_they_should(tmp_path, kind, workers, options):
    cluster = mesh_of(tmp_path, workers, **options)
    elements = (101,) * workers if kind == "all_reduce" else tuple(range(1, workers + 1))
    for channels in ("", ":channels=1", ":channels=5"):
        check_schedule(make_algorithm(f"ring{channels}", kind).schedule(Demand(kind, elements, 4), cluster))


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
@pytest.mark.parametrize("root", [0, 5])
def test_chains_of_several_channels_compute_what_they_should(tmp_path, kind, root):
    for workers, nics in ((8, 1), (16, 8), (13, 2)):
        cluster = mesh_of(tmp_path, workers, nics=nics)
        for channels in ("", "channels=2,", "channels=8,"):
            algorithm = make_algorithm(f"chain:{channels}chunks=3", kind)
            check_schedule(algorithm.schedule(Demand(kind, (101,) * workers, 4, root=root), cluster))


def test_what_rings_of_a_mesh_say_is_what_they_are(tmp_path):
    """The algorithm that a schedule names runs the same schedule again."""
    demand = Demand("all_reduce", (1 << 20,) * 8, 4)
    cluster = mesh_of(tmp_path, 8, pairs=CUBE, latency="1us")
    timed = Timer(cluster, "ring").time(demand)
    assert timed.schedule.algorithm == "ring:channels=6"
    assert Timer(cluster, timed.schedule.algorithm).time(demand).duration_ps == timed.duration_ps


def test_channels_of_several_meshes_share_no_link(tmp_path):
    cluster = mesh_of(tmp_path, 16, nics=8)
    timed = Timer(cluster, "ring").time(Demand("all_reduce", (SIZE,) * 16, 4))
    carried = link_bytes(timed.schedule, timed.times)
    links = cluster.fabric.blocks["nvlink.mesh"].part
    assert carried[links] == pytest.approx(np.full(2 * 8 * 7, 2 * 15 / 16 * 4 * SIZE / 8), rel=1e-9)


def test_an_exchange_takes_the_direct_links_of_a_mesh(tmp_path):
    cluster = mesh_of(tmp_path, 8, latency="1us")
    timed = Timer(cluster).time(Demand("all_to_all", (SIZE,) * 8, 4))
    assert timed.duration_ps / 1e12 == pytest.approx(1e-6 + 4 * SIZE / 8 / 10e9, rel=1e-6)


@pytest.mark.parametrize("gpus", [1, 4])
def test_a_ring_uses_several_interfaces_of_each_gpu(tmp_path, gpus):
    """Each channel, one a GPU of a node, goes through 4 interfaces of 1 GB/s at once: 2(P - 1)/P·D over all of them."""
    path = tmp_path / "many.toml"
    path.write_text(
        f"[node]\ngpus = {gpus}\n[nvlink]\nrate = '100GB/s'\n[nic]\ncount = {4 * gpus}\nrate = '1GB/s'\n[fabric]\n"
        "kind = 'single-switch'\n"
    )
    demand = Demand("all_reduce", (SIZE,) * 8, 4)
    timer = Timer(build_cluster(load_shape(path), 8), "ring")
    timed = timer.time(demand)
    assert timed.duration_ps / 1e12 == pytest.approx(2 * 7 / 8 * 4 * SIZE / (4e9 * gpus), rel=1e-6)
    if gpus == 1:
        assert closed_form_s(timed.schedule, timer.cluster) == pytest.approx(timed.duration_ps / 1e12, rel=1e-6)
