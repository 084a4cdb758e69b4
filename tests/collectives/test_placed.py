"""NCCL on jobs that have parts of nodes, or ranks placed out of order: what it chooses and takes follows the GPUs."""

from itertools import pairwise

import numpy as np
import pytest

import s2sim
from s2sim.collectives.timing.routes import RouteTable
from s2sim.collectives.timing.timer import Timer
from s2sim.libraries.tuner import channel_graph
from s2sim.simulation import iteration
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


def time_s(kind, topology, workers, size_bytes, **options):
    found = s2sim.run_collective(
        kind, topology=topology, workers=workers, size_bytes=size_bytes, library="nccl", **options
    )
    return found.time_s


@pytest.mark.parametrize("size_bytes", [1 << 20, 1 << 24, 1 << 28])
def test_a_group_of_one_gpu_a_node_takes_what_nodes_of_one_gpu_do(size_bytes):
    groups = time_s("all_reduce", "dgx-h100", 64, size_bytes, groups="tp=8,dp=rest")
    alone = time_s("all_reduce", "dgx-h100", 8, size_bytes, overrides=("node.gpus=1", "nic.count=1"))
    assert groups == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize(("workers", "interfaces"), [(9, 1), (12, 4), (17, 1), (65, 1), (64, 8)])
def test_channels_are_those_of_the_gpus_in_use_on_the_node_with_the_fewest(workers, interfaces):
    graph = channel_graph(build_cluster(load_shape("dgx-h100"), workers), "hopper")
    assert graph.channels * graph.rate == pytest.approx(interfaces * 50, rel=0.1)


@pytest.mark.parametrize(
    "name", ["aws-p5", "aws-p5en", "aws-p4d", "dgx-h100", "rail-optimised", "perlmutter", "gh200-4"]
)
def test_channels_of_whole_nodes_are_those_of_all_interfaces(name):
    shape = load_shape(name)
    node = shape.nodes[0]
    graph = channel_graph(build_cluster(shape, 2 * node.gpus), "hopper")
    assert graph.channels in (node.nics, 2 * node.nics)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("placement", ["round-robin", "random"])
def test_rings_and_chains_go_node_by_node_wherever_ranks_are_placed(kind, placement):
    cluster = build_cluster(load_shape("fat-tree"), 16, placement=placement)
    # Rank 0 may be on any GPU of its node, from which a broadcast then comes.
    root = {"root": int(cluster.gpu_of_rank[0])} if kind in ("broadcast", "reduce") else {}
    linear = time_s(kind, "fat-tree", 16, 10 << 20, **root)
    assert time_s(kind, "fat-tree", 16, 10 << 20, placement=placement) == pytest.approx(linear, rel=1e-9)


@pytest.mark.parametrize("topology", ["dgx-h100", "dgx-a100", "polaris", "summit", "dgx-1-v100", "a100-pcie-8"])
@pytest.mark.parametrize("algorithm", ["auto", "ring", "double-binary-tree"])
def test_channels_are_of_gpus_and_not_of_the_numbers_that_ranks_have(topology, algorithm, tmp_path):
    gpus = load_shape(topology).nodes[0].gpus
    workers = gpus if topology == "a100-pcie-8" else 2 * gpus
    placed = tmp_path / "placed"
    shuffled = np.random.default_rng(0).permutation(workers).tolist()
    placed.write_text("\n".join(f"{gpu // gpus} {gpu % gpus}" for gpu in shuffled), "utf-8")
    asked = {"size_bytes": 32 << 20, "algorithm": algorithm}
    linear = time_s("all_reduce", topology, workers, **asked)
    assert time_s("all_reduce", topology, workers, placement=str(placed), **asked) == pytest.approx(linear, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("topology", ["perlmutter", "gh200-4", "dgx-h100", "frontier", "fat-tree"])
def test_larger_buffers_take_longer_and_hardly_less(kind, topology):
    library = "rccl" if topology == "frontier" else "nccl"
    sizes = [1 << power for power in range(10, 28, 2)]
    asked = {"topology": topology, "workers": 16, "library": library}
    times = [s2sim.run_collective(kind, size_bytes=size, **asked).time_s for size in sizes]
    assert all(later >= 0.8 * earlier for earlier, later in pairwise(times)), times
    # Four times as much takes at most so many times as long, but for another protocol.
    assert all(later <= 6 * earlier for earlier, later in pairwise(times)), times


def test_groups_of_nodes_and_of_rails_share_no_link_and_all_ranks_do():
    cluster = build_cluster(load_shape("dgx-h100"), 16)
    nodes = (tuple(range(8)), tuple(range(8, 16)))
    rails = tuple((gpu, gpu + 8) for gpu in range(8))
    ways = Timer(cluster).ways
    assert ways.sharing_no_link((*nodes, *rails)) == {*nodes, *rails}
    across = ((0, 1, 8), (2, 3, 9))
    # On the second node each of them has one GPU, which needs no NVLink.
    assert ways.sharing_no_link((*nodes, *across)) == {nodes[1]}
    assert ways.sharing_no_link(((),)) == {()}
    assert ways.sharing_no_link(((), *nodes)) == set()


@pytest.mark.slow
@pytest.mark.parametrize("reducer", ["fp16", "qgz", "topk:density=0.01"])
def test_one_rank_stands_for_all_that_do_the_same_in_groups_of_their_own(reducer, monkeypatch):
    asked = {"topology": "dgx-h100", "workers": 16, "profile": "resnet-18", "discipline": "fsdp:shard=node"}
    asked |= {"reducers": [reducer], "break_even": False}
    found = s2sim.run(**asked)
    stood = []
    monkeypatch.setattr(iteration, "one_stands_for_all", lambda *given: stood.append(given) or False)
    monkeypatch.setattr(RouteTable, "sharing_no_link", lambda *_: frozenset())
    apart = s2sim.run(**asked)
    assert stood
    for one, each in zip(found.results, apart.results, strict=True):
        assert one.iteration_s == pytest.approx(each.iteration_s, abs=2e-11)
        assert one.iteration.exposed_communication == pytest.approx(each.iteration.exposed_communication, abs=2e-11)
