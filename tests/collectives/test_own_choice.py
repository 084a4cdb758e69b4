"""NCCL's own choice of rings and trees: its formulas by hand."""

import pytest

from s2sim.collectives.schedules.demand import make_demand
from s2sim.libraries.nccl import TunerModel, estimates_us
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

MIB = 2**20


def cluster(workers, gpus=4):
    return build_cluster(load_shape("tcp-10g", (f"node.gpus={gpus}",)), workers)


def test_estimates_are_those_of_the_formulas():
    nodes = cluster(8)
    # Simple, of 1.25 GB/s: 0.92 / 2 of it, corrected by 0.5 at 2^14 times 64 bytes; and 8 / 14, with long latencies.
    tree_us = 8.4 + 2 * (3 * 4.0 + 14.0) + MIB / (1e3 * 1.25 * 0.92 * 0.5 * 0.5)
    ring_us = 1.9 * (8.4 + 12 * 5.7 + 2 * 14.0) + MIB / (1e3 * 1.25 * 8 / 14)
    assert estimates_us(MIB, nodes) == pytest.approx((tree_us, ring_us))


def test_large_messages_go_around_a_ring_and_small_ones_of_many_nodes_do_not():
    library = TunerModel("nccl")
    chosen = [library.choose(make_demand("all_reduce", size, 32), cluster(32)) for size in (256, 4096, 64 * MIB)]
    assert chosen == [None, None, "ring"]
    assert library.choose(make_demand("all_reduce", 64 * MIB, 8), cluster(8)) == "ring"
    assert library.choose(make_demand("all_gather", 64 * MIB, 8), cluster(8)) is None
    assert library.choose(make_demand("all_reduce", 64 * MIB, 4), cluster(4)) is None
