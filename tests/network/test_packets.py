"""How messages are cut, and which network a name stands for."""

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import OptionError, UnknownNameError
from s2sim.network.fluid import FluidNetwork
from s2sim.network.network import make_network
from s2sim.network.packet import PacketNetwork
from s2sim.network.packet_queues import Lane, count_packet_hops, find_window, next_lane, pipeline_fill_ps, round_robin
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 60))
def test_turns_are_in_proportion_and_those_that_queues_take(parts, count):
    weights = np.array(parts) / sum(parts)
    turns = round_robin(weights, count)
    dealt = np.bincount(turns, minlength=len(parts))
    assert (np.abs(dealt - count * weights) < len(parts)).all()
    lanes = [Lane(None, None, weight, 1, 0) for weight in weights.tolist()]
    assert [lanes.index(next_lane(lanes)) for _ in range(count)] == turns.tolist()


def test_the_window_covers_the_way_there_and_back():
    # 1 us there and back at 12.5 GB/s is 12,500 bytes: 3 packets of 4096 and a part.
    window, sooner_ps = find_window(500_000, 0.0125, 1.0, 4096, 256)
    assert (window, sooner_ps) == (3 + 2, pytest.approx((12_500 - 3 * 4096) / 0.0125, abs=5))
    assert find_window(500_000, 0.0125, 0.5, 4096, 256)[0] == 1 + 3
    growing = [find_window(0, 0.0125, 1.0, 4096, packets)[0] for packets in (1, 1024, 4096, 65536)]
    assert growing == [2, 2, 4, 16]


def test_hops_and_fill_of_nothing_and_of_many():
    cluster = build_cluster(load_shape("single-switch", []), 16)
    ranks = np.arange(8)
    routes = cluster.routes(ranks, ranks + 8)
    none = routes.take(np.zeros(0, np.int64))
    assert count_packet_hops(none, np.zeros(0), 4096) == 0
    assert pipeline_fill_ps(cluster.fabric, none, np.zeros(0)).tolist() == []
    assert pipeline_fill_ps(cluster.fabric, routes, np.zeros(8)).tolist() == [0] * 8
    lengths = np.diff(routes.offsets)
    assert count_packet_hops(routes, np.full(8, 8193.0), 4096) == 3 * lengths.sum()


def test_networks_by_name():
    env = simpy.Environment(initial_time=0)
    fabric = build_cluster(load_shape("single-switch", []), 4).fabric
    assert isinstance(make_network("fluid", env, fabric), FluidNetwork)
    assert isinstance(make_network("packet", env, fabric, packet_bytes=512), PacketNetwork)
    with pytest.raises(UnknownNameError, match="did you mean 'packet'"):
        make_network("packets", env, fabric)
    with pytest.raises(OptionError, match="packet size of 512 bytes changes nothing"):
        make_network("fluid", env, fabric, packet_bytes=512)
    with pytest.raises(OptionError, match="buffer size of 9000 bytes changes nothing"):
        make_network("fluid", env, fabric, buffer_bytes=9000)
