"""The packet network: alone it is the fluid one plus the fill, under contention it converges to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import OptionError, S2SimError
from s2sim.network.network import deliver_ps, uncontended_ps
from s2sim.network.packet import PacketNetwork
from s2sim.network.packet_queues import count_packet_hops, pipeline_fill_ps
from s2sim.topology.cluster import build_cluster
from s2sim.topology.graph import Routes
from s2sim.topology.read_file import load_shape

RATE_BPS = 12.5e9


@dataclass
class Line:
    """Links one after another, from vertex 0 on."""

    rate_Bps: np.ndarray
    latency_ps: np.ndarray

    @property
    def tail(self):
        return np.arange(len(self.rate_Bps))

    @property
    def head(self):
        return self.tail + 1

    @property
    def link_names(self):
        return [f"link{index}" for index in self.tail]


def line(*hops):
    rates, latencies = zip(*hops, strict=True)
    return Line(np.array(rates, float), np.array(latencies, np.int64))


def along(fabric, *spans):
    """Return routes over links ``first ... last - 1`` of a line."""
    links = [np.arange(*span) for span in spans]
    return Routes(
        offsets=np.concatenate([[0], np.cumsum([len(part) for part in links])]),
        links=np.concatenate(links),
        weights=np.ones(sum(len(part) for part in links)),
        latency_ps=np.array([fabric.latency_ps[part].sum() for part in links]),
    )


def packets(fabric, routes, start_ps, sizes_bytes, **options):
    network = partial(PacketNetwork, **options)
    return deliver_ps(fabric, routes, np.array(start_ps), np.array(sizes_bytes, float), network=network)


def build(tmp_path, fabric, workers, *, routing="", latency="10ns"):
    path = tmp_path / "cluster.toml"
    link = f'[fabric.link]\nlatency = "{latency}"'
    path.write_text(f'{routing}\n[node]\ngpus = 1\n[nic]\nrate = "12.5GB/s"\n[fabric]\n{fabric}\n{link}\n')
    return build_cluster(load_shape(str(path)), workers)


def tree(tmp_path, routing, hosts=4, uplinks=2, workers=16, **options):
    fabric = f'kind = "fat-tree"\nhosts_per_leaf = {hosts}\nuplinks_per_leaf = {uplinks}'
    return build(tmp_path, fabric, workers, routing=f'routing = "{routing}"', **options)


def test_a_packet_takes_every_link_and_latency_in_turn():
    fabric = line((1e9, 500), (2e9, 0), (5e8, 7))
    # 1000 B take 1 us, 0.5 us and 2 us.
    assert packets(fabric, along(fabric, (0, 3)), [3], [1000])[0] == 3 + 1_000_000 + 500 + 500_000 + 2_000_000 + 7


def test_the_fill_is_one_packet_on_every_link_but_the_narrowest():
    fabric = line((1e9, 500), (2e9, 0), (5e8, 7))
    assert pipeline_fill_ps(fabric, along(fabric, (0, 3)), np.array([10_000.0]), 1000)[0] == 1_000_000 + 500_000


@given(
    st.lists(st.tuples(st.sampled_from([1e9, 3e9, 7e9, 12.5e9]), st.integers(0, 3_000_000)), min_size=1, max_size=6),
    st.one_of(st.integers(0, 300_000), st.floats(0, 300_000)),
    st.sampled_from([512, 1000, 4096]),
)
def test_alone_it_is_the_fluid_time_and_the_fill(hops, size_bytes, packet_bytes):
    fabric = line(*hops)
    routes = along(fabric, (0, len(hops)))
    sizes = np.array([size_bytes], float)
    found = packets(fabric, routes, [0], sizes, packet_bytes=packet_bytes)
    expected = uncontended_ps(fabric, routes, sizes) + pipeline_fill_ps(fabric, routes, sizes, packet_bytes)
    assert abs(found - expected).max() <= len(hops)


@pytest.mark.parametrize(("hosts", "uplinks"), [(4, 2), (4, 4), (8, 3)])
@pytest.mark.parametrize("size_bytes", [100, 4096 * 7, 1_000_000, 1_234_567.5])
def test_alone_and_sprayed_it_is_the_fluid_time_and_the_fill(tmp_path, hosts, uplinks, size_bytes):
    cluster = tree(tmp_path, "spray", hosts, uplinks, 2 * hosts)
    routes = cluster.routes(np.array([0]), np.array([2 * hosts - 1]))
    sizes = np.array([size_bytes], float)
    expected = uncontended_ps(cluster.fabric, routes, sizes) + pipeline_fill_ps(cluster.fabric, routes, sizes)
    assert abs(packets(cluster.fabric, routes, [0], sizes) - expected).max() <= 4


def test_two_messages_share_a_link_by_turns():
    fabric = line((1e9, 0))
    # Turns of 1 us: the first has its third packet at 5 us, then the second goes on alone.
    finish = packets(fabric, along(fabric, (0, 1), (0, 1)), [0, 0], [3000, 5000], packet_bytes=1000)
    assert finish.tolist() == [5_000_000, 8_000_000]


def test_turns_are_bytes_not_packets():
    fabric = line((1e9, 0), (1e9, 0))
    routes = along(fabric, (0, 1), (0, 1))
    both = partial(PacketNetwork, packet_bytes=1000)
    # Packets of 100 B against packets of 1000 B: ten to one.
    sizes, starts = np.array([100.0] * 30 + [50_000.0]), np.zeros(31, np.int64)
    finish = deliver_ps(fabric, routes.take(np.zeros(31, np.int64)), starts, sizes, network=both)
    assert finish[:30].max() <= 4_000_000 + 1
    assert finish[30] == 53_000_000


def test_sprayed_packets_take_parallel_links_in_turn(tmp_path):
    cluster = tree(tmp_path, "spray", 4, 4, 8, latency="0s")
    routes = cluster.routes(np.array([0]), np.array([4]))
    env = simpy.Environment(initial_time=0)
    network = PacketNetwork(env, cluster.fabric, packet_bytes=1000)
    network.send(network.add_routes(routes), np.array([8000.0]), network.add_owner(lambda _: None), np.array([0]))
    env.run()
    assert network.packet_hops == 8 * 4 == count_packet_hops(routes, np.array([8000.0]), 1000)
    sent = {number: link.virtual for number, link in network._links.items()}
    ups = [sent[link] for link, weight in zip(routes.links, routes.weights, strict=True) if weight < 1]
    # Two packets each: the second one's tag is the end of the first, at a quarter of the weight.
    assert ups == [4000.0] * 8


def test_deliveries_of_one_instant_are_told_together():
    fabric = line((1e9, 5), (1e9, 5))
    env = simpy.Environment(initial_time=0)
    network = PacketNetwork(env, fabric)
    numbers = network.add_routes(along(fabric, (0, 1), (1, 2)))
    told = []
    owner = network.add_owner(lambda tags: told.append((env.now, tags.tolist())))
    network.send(numbers, np.array([1000.0, 1000.0]), owner, np.array([7, 9]))
    env.run()
    assert told == [(1_000_005, [7, 9])]


def test_an_owner_may_send_on_delivery_and_others_may_send_in_between():
    fabric = line((1e9, 0))
    env = simpy.Environment(initial_time=0)
    network = PacketNetwork(env, fabric, packet_bytes=1000)
    number = network.add_routes(along(fabric, (0, 1)))
    told = []

    def delivered(tags):
        told.append((env.now, tags.tolist()))
        if tags[0] == 0:
            network.send(number, np.array([2000.0]), owner, np.array([1]))

    owner = network.add_owner(delivered)

    def other():
        yield env.timeout(4_500_000)
        network.send(number, np.array([1000.0]), owner, np.array([2]))

    env.process(other())
    network.send(number, np.array([4000.0]), owner, np.array([0]))
    env.run()
    # The second message is sent by the time that the third comes: they take turns, and its packet was there first.
    assert told == [(4_000_000, [0]), (6_000_000, [2]), (7_000_000, [1])]


def test_a_route_of_another_latency_than_its_links_takes_its_own():
    fabric = line((1e9, 600), (1e9, 200))
    routes = replace(along(fabric, (0, 2)), latency_ps=np.array([0]))
    assert packets(fabric, routes, [0], [1000])[0] == 2_000_000
    routes = replace(routes, latency_ps=np.array([1600]))
    assert packets(fabric, routes, [0], [1000])[0] == 2_001_600


def patterns(cluster, count, seed):
    """Return random messages of 1 to 4 MiB that start within the time that the shortest takes alone."""
    rng = np.random.default_rng(seed)
    source = rng.integers(0, cluster.workers, count)
    target = (source + rng.integers(1, cluster.workers, count)) % cluster.workers
    sizes = rng.integers(2**20, 2**22, count).astype(float)
    return cluster.routes(source, target), rng.integers(0, 80_000_000, count), sizes


def incast(cluster, count, seed):
    """Return random messages to two targets."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2**20, 2**22, count).astype(float)
    routes = cluster.routes(rng.integers(2, cluster.workers, count), rng.integers(0, 2, count))
    return routes, rng.integers(0, 80_000_000, count), sizes


def gaps(cluster, routes, start_ps, sizes_bytes, packets_a_message):
    """Return how far each message is from the fluid time, its fill subtracted, as a share of it."""
    packet_bytes = int(sizes_bytes.min() // packets_a_message)
    fluid = deliver_ps(cluster.fabric, routes, start_ps, sizes_bytes) - start_ps
    found = packets(cluster.fabric, routes, start_ps, sizes_bytes, packet_bytes=packet_bytes) - start_ps
    fill = pipeline_fill_ps(cluster.fabric, routes, sizes_bytes, packet_bytes)
    return np.abs((found - fill) / fluid - 1)


CONTENDED = [
    "incast",
    "d-mod-k",
    pytest.param("ecmp", marks=pytest.mark.slow),
    pytest.param("spray", marks=pytest.mark.slow),
]


def contended(tmp_path, name, seed):
    """Return a cluster and contended messages on it."""
    if name == "incast":
        cluster = build(tmp_path, 'kind = "single-switch"', 12)
        return cluster, incast(cluster, 10, seed)
    cluster = tree(tmp_path, name)
    return cluster, patterns(cluster, 12, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTENDED)
def test_nearly_all_flows_are_within_two_per_cent_of_the_fluid(tmp_path, name):
    # A sprayed message has a window on each of the links side by side, and they are larger: it takes more packets.
    count = 1024 if name == "spray" else 256
    found = []
    for seed in range(8):
        cluster, messages = contended(tmp_path, name, seed)
        found.extend(gaps(cluster, *messages, count).tolist())
    # What several others had on their way when shares changed may add up, in about one message of a thousand.
    assert np.mean(np.array(found) < 0.02) >= 0.98
    assert max(found) < 0.025


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTENDED)
def test_law_2_the_gap_shrinks_as_packets_halve(tmp_path, name):
    worst = {128: [], 256: [], 512: []}
    for seed in range(6):
        cluster, messages = contended(tmp_path, name, seed)
        for count, found in worst.items():
            found.append(gaps(cluster, *messages, count).max())
    assert np.mean(worst[512]) < np.mean(worst[256]) < np.mean(worst[128])


def test_a_bottleneck_further_on_leaves_the_rest_to_others():
    """Without back-pressure the first would take half of the shared link for packets that only pile up."""
    fabric = line((1e9, 0), (1e8, 0))
    sizes = np.array([100_000.0, 900_000.0])
    finish = packets(fabric, along(fabric, (0, 2), (0, 1)), [0, 0], sizes, packet_bytes=500)
    # A tenth and nine tenths of the shared link: both end at 1 ms.
    assert finish == pytest.approx([1e9, 1e9], rel=0.01)


def test_small_buffers_slow_down_but_lose_nothing(tmp_path):
    cluster = tree(tmp_path, "ecmp")
    messages = patterns(cluster, 12, 3)
    free = packets(cluster.fabric, *messages)
    tight = packets(cluster.fabric, *messages, buffer_bytes=4096)
    assert tight.max() > free.max()
    large = packets(cluster.fabric, *messages, buffer_bytes=10**9)
    assert large.tolist() == free.tolist()


def test_waiting_in_a_circle_is_an_error(tmp_path):
    cluster = build(tmp_path, 'kind = "ring"', 8)
    ranks = np.arange(8)
    routes = cluster.routes(ranks, (ranks + 4) % 8)
    with pytest.raises(S2SimError, match="wait for each other's room for ever"):
        packets(cluster.fabric, routes, np.zeros(8, np.int64), np.full(8, 1e5), buffer_bytes=4096)
    assert (packets(cluster.fabric, routes, np.zeros(8, np.int64), np.full(8, 1e5)) > 0).all()


def test_impossible_options_and_routes_are_refused():
    fabric = line((1e9, 0), (1e9, 0), (1e9, 0))
    with pytest.raises(OptionError, match="packets of 0 bytes"):
        packets(fabric, along(fabric, (0, 1)), [0], [1], packet_bytes=0)
    with pytest.raises(OptionError, match="holds no packet of 4096"):
        packets(fabric, along(fabric, (0, 1)), [0], [1], buffer_bytes=4095)
    broken = replace(along(fabric, (0, 2)), links=np.array([0, 2]))
    with pytest.raises(S2SimError, match="cannot follow a route over link2"):
        packets(fabric, broken, [0], [1])


@pytest.mark.parametrize("longer", ["s1", "s2"])
def test_ways_of_interfaces_that_meet_share_the_links_from_there(longer):
    """From switches s1 and s2, one of which reaches the host of both interfaces behind s4 over another switch."""
    graph = nx.Graph([("a", "s1"), ("a", "s2"), ("b", "s4"), ("s3", "s4"), *pairwise((longer, "s0", "s3"))])
    graph.add_edge("s1" if longer == "s2" else "s2", "s3")
    nx.set_node_attributes(graph, {name: "host" if name in "ab" else "switch" for name in graph}, "kind")
    cluster = build_cluster(load_shape(graph, ["node.gpus=1", "nic.rate=1GB/s", "nic.count=2"]), 2)
    routes, sizes = cluster.routes([0], [1]), np.array([1e6])
    expected = uncontended_ps(cluster.fabric, routes, sizes) + pipeline_fill_ps(cluster.fabric, routes, sizes)
    assert packets(cluster.fabric, routes, [0], sizes) == pytest.approx(expected, rel=1e-3)
