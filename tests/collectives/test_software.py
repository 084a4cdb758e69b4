"""What a library's constants add to the wire, against sums worked out by hand from the shipped file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import Overheads
from s2sim.collectives.schedules.round_latency import pipeline_round_latency, ring_round_latency
from s2sim.collectives.schedules.schedule import Pattern
from s2sim.collectives.timing.bounds import lower_bound, simulate_ps
from s2sim.collectives.timing.library_profile import LibraryProfile
from s2sim.collectives.timing.terms import schedule_terms
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError, S2SimError, TopologyError
from s2sim.files import data_directory
from s2sim.libraries.constants import load_constants, read_constants
from s2sim.libraries.lowering import choose_library
from s2sim.libraries.message_latency import nvls_in_flight_bytes
from s2sim.libraries.nccl import NcclProfile
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

US = 10**6
NCCL = NcclProfile("nccl")
SILENT = Path(__file__).parents[1] / "silent.toml"
CONSTANTS = load_constants("nccl")


def timed(topology, workers, kind, size_bytes, algorithm="auto", profile=NCCL, overrides=()):
    cluster = build_cluster(load_shape(topology, overrides), workers)
    elements = size_bytes // 4 if kind == "all_reduce" else size_bytes // 4 // workers
    demand = Demand(kind, (elements,) * workers, 4)
    return Timer(cluster, algorithm, profile=profile).time(demand), cluster, demand


def test_the_smallest_ring_waits_for_the_mean_of_its_hops():
    """Two nodes of eight: 14 of 16 hops are over NVLink, two over the network, and every hop has its way's latency."""
    found, cluster, _ = timed("dgx-h100", 16, "all_gather", 16 * 4)
    # Hosts post a message a step, which takes longer than a hop over NVLink.
    nvlink_ps = CONSTANTS["protocol.LL.posting"] + int(cluster.routes(np.array([0]), np.array([1])).latency_ps[0])
    ways_ps = cluster.routes(np.array([7, 15]), np.array([8, 0])).latency_ps
    network_ps = CONSTANTS["network.ib-verbs.latency"] + int(ways_ps.max())
    expected = CONSTANTS["launch.collective"] + 15 * (14 * nvlink_ps + 2 * network_ps) / 16
    assert found.duration_ps == pytest.approx(expected, rel=2e-3)
    assert found.schedule.protocol == "LL"


def test_large_buffers_travel_as_plain_data_at_the_share_of_the_rate():
    found, _, _ = timed("dgx-h100", 8, "all_gather", 1 << 30)
    rate = 370.8e9 * CONSTANTS["share.nvlink"]
    assert found.schedule.protocol == "Simple"
    assert found.duration_ps / 1e12 == pytest.approx(7 / 8 * (1 << 30) / rate, rel=0.02)


def test_an_nvswitch_reduces_where_it_can():
    large, cluster, demand = timed("dgx-h100", 8, "all_reduce", 1 << 30)
    assert large.schedule.algorithm == "in-network"
    rate = 370.8e9 * CONSTANTS["in-network.hopper.share"]
    # Three stages of 16 channels of 8 heads of 64 KiB are filled before anything comes out.
    passing, filling = 9 / 8 * (1 << 30) / rate, 3 * 9 / 8 * (16 * 8 << 17) / rate
    latency = (CONSTANTS["launch.collective"] + CONSTANTS["in-network.latency"]) / 1e12
    assert large.duration_ps / 1e12 == pytest.approx(latency + passing + filling, rel=1e-3)
    assert lower_bound([demand], cluster.cuts(), assisted=True).seconds < large.duration_ps / 1e12
    assert timed("dgx-h100", 16, "all_reduce", 1 << 30)[0].schedule.algorithm == "nvls-tree"
    assert timed("dgx-a100", 8, "all_reduce", 1 << 30)[0].schedule.algorithm.startswith("ring")


def test_switches_of_a_rack_reach_less_of_the_rate_than_those_of_a_host():
    """All 72 GPUs of 18 hosts: n + 1 parts of n at the share of such a domain, once it is filled."""
    size_bytes = 8 << 30
    found, _, _ = timed("nvl72", 72, "all_reduce", size_bytes)
    assert found.schedule.algorithm == "in-network"
    assert CONSTANTS["in-network.blackwell.share-over-hosts"] < CONSTANTS["in-network.blackwell.share"]
    rate = 721.8e9 * CONSTANTS["in-network.blackwell.share-over-hosts"]
    assert found.duration_ps / 1e12 == pytest.approx(73 / 72 * size_bytes / rate, rel=0.05)


def test_trees_between_switches_fill_a_stage_for_each_leg():
    """Two nodes of eight: switches as in one, up and down a leg each, at 800 GB/s; interfaces are not the limit."""
    found, cluster, _ = timed("dgx-h100", 16, "all_reduce", 64 << 20, "nvls-tree")
    seconds_a_byte = 9 / 8 / (370.8e9 * CONSTANTS["in-network.hopper.share-over-nodes"])
    network_ps = CONSTANTS["network.ib-verbs.latency"] + CONSTANTS["protocol.Simple.network"]
    inside_ps, between_ps = cluster.routes(np.array([0, 0]), np.array([1, 8])).latency_ps
    wire_ps = int(inside_ps + 2 * between_ps)
    latency_s = (CONSTANTS["launch.collective"] + CONSTANTS["in-network.latency"] + 2 * network_ps + wire_ps) / 1e12
    legs_s = 2 * (16 * 8 << 17) / (800e9 * CONSTANTS["network.ib-verbs.share"])
    expected = latency_s + ((64 << 20) + 2 * (16 * 8 << 17)) * seconds_a_byte + legs_s
    assert found.duration_ps / 1e12 == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize(
    ("size_bytes", "nodes", "expected"),
    [
        (1 << 10, 1, 1 << 10),
        (4 << 20, 1, 128 << 14),
        (32 << 20, 1, 128 << 15),
        (256 << 20, 1, 128 << 16),
        (2 << 30, 1, 128 << 17),
        (4 << 20, 2, 128 << 15),
        (8 << 20, 2, 128 << 16),
        (64 << 20, 3, 128 << 17),
        (4 << 20, 4, 128 << 15),
        (64 << 20, 4, 128 << 16),
    ],
)
def test_smaller_buffers_have_less_in_flight(size_bytes, nodes, expected):
    assert nvls_in_flight_bytes(size_bytes, 128, nodes) == expected


def test_without_peer_to_peer_a_gpu_that_sends_and_receives_is_slower(tmp_path):
    """Two GPUs below one PCIe switch: what they send each other passes it up and down, half of the rate each."""
    path = tmp_path / "box.toml"
    path.write_text(
        'name = "box"\n[node]\ngpus = 2\n[pcie]\nrate = "12GB/s"\ngpus_per_switch = 2\npeer_to_peer = "no"\n'
        '[nic]\nrate = "10Gbps"\ntransport = "tcp"\n[fabric]\nkind = "single-switch"\n'
    )
    one_way, _, _ = timed(str(path), 2, "broadcast", 1 << 30, "chain:chunks=1")
    both_ways, _, _ = timed(str(path), 2, "all_gather", 1 << 30, "ring")
    size = one_way.schedule.demand.buffer_bytes
    assert one_way.duration_ps / 1e12 == pytest.approx(size / 12e9 / CONSTANTS["share.host-memory"], rel=0.01)
    assert both_ways.duration_ps / 1e12 == pytest.approx(
        (1 << 29) / 6e9 / CONSTANTS["share.host-memory-both-ways"], rel=0.01
    )


@pytest.mark.parametrize(
    ("topology", "workers", "override", "direct"),
    [
        ("dgx-a100", 8, "nic.path=host-bridge", True),
        ("dgx-a100", 16, "nic.path=host-bridge", False),
        ("dgx-a100", 16, "nic.path=switch", True),
        ("dgx-a100", 16, "nic.path=staged", False),
    ],
)
def test_lines_of_128_bytes_need_a_way_past_no_processor(topology, workers, override, direct):
    cluster = build_cluster(load_shape(topology, [override]), workers)
    schedule = Timer(cluster, "ring", profile=NCCL).time(Demand("all_reduce", (1 << 16,) * workers, 4)).schedule
    names = [each.protocol for each in NCCL.protocols(schedule, cluster)]
    assert names == ["LL", *(["LL128"] if direct else []), "Simple"]


class OwnMessages(LibraryProfile):
    """The wire, with rings and pipelines that wait for their own messages alone, as libraries' do."""

    def overheads(self, sent, schedule, cluster):
        pattern, whole = sent.pattern, schedule.stage.whole
        if pattern.through_switch:
            return None
        every = pattern if whole is None else whole.round.pattern
        way_ps = cluster.routes(every.src, every.dst).latency_ps
        clock = ring_round_latency(every, way_ps) if whole is None else pipeline_round_latency(whole, way_ps)
        messages = pattern.messages
        return Overheads(np.zeros(messages, np.int64), np.ones(messages), np.full(messages, np.inf), clock)


@pytest.mark.parametrize("topology", ["dgx-a100", "dgx-h100"])
@pytest.mark.parametrize("workers", [2, 11, *(pytest.param(many, marks=pytest.mark.slow) for many in (8, 24))])
@pytest.mark.parametrize("size_bytes", [4096, 1 << 22])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather"])
def test_nothing_is_faster_than_the_wire_and_fast_paths_agree(topology, workers, size_bytes, kind):
    found, cluster, demand = timed(topology, workers, kind, size_bytes)
    assert found.duration_ps == simulate_ps(found.schedule, cluster)
    assert found.duration_ps / 1e12 > lower_bound([demand], cluster.cuts()).seconds
    bare, _, _ = timed(topology, workers, kind, size_bytes, found.schedule.algorithm, OwnMessages())
    assert found.duration_ps > bare.duration_ps


def test_rounds_that_are_parts_of_a_pattern_take_their_part_of_what_is_added():
    found, cluster, _ = timed("dgx-h100", 24, "all_reduce", 1 << 22, "double-binary-tree:chunks=4")
    chosen = NcclProfile("nccl", protocol=found.schedule.protocol)
    for step in found.schedule.steps:
        pattern = step.round.pattern
        sending = chosen.sending(step.round, found.schedule, cluster)
        alone = chosen.each_message(Pattern(pattern.src, pattern.dst), cluster, "tree", sending)
        assert replace(pattern.overheads, round_latency=None).key == alone.key
    assert len({step.round.pattern.messages for step in found.schedule.steps}) > 1


def test_large_messages_between_two_ranks_are_sent_as_plain_data():
    assert timed("dgx-h100", 16, "all_to_all", 16 * 16 * (16384 + 4))[0].schedule.protocol == "Simple"
    assert timed("dgx-h100", 16, "all_gather", 16 * 4)[0].schedule.protocol == "LL"


def test_one_process_launches_on_one_gpu_after_the_other_ahead_of_them():
    """Small collectives wait for their host, larger ones hide it; before 2.22 it launches channels of 32 KiB too."""
    cases = (
        (4096, 1, (2, 21)),
        (100 << 10, 4, (2, 21)),
        (1 << 20, 24, (2, 21)),
        (1 << 26, 24, (2, 21)),
        (1 << 20, 0, ()),
    )
    for size_bytes, channels, version in cases:
        host_ps = 8 * (CONSTANTS["launch.gpu"] + channels * CONSTANTS["launch.channel"])
        alone, together = (NcclProfile("nccl", one_process=one, version=version) for one in (False, True))
        alone, _, _ = timed("dgx-h100", 8, "all_gather", size_bytes, profile=alone)
        together, cluster, _ = timed("dgx-h100", 8, "all_gather", size_bytes, profile=together)
        assert together.duration_ps == max(alone.duration_ps, host_ps)
        assert together.schedule.host_bound == (alone.duration_ps < host_ps) == (size_bytes <= 1 << 20)
        assert simulate_ps(together.schedule, cluster) == together.duration_ps
        terms = schedule_terms(together, cluster)
        assert sum(term.ps for term in terms) == together.duration_ps
        assert any(term.constants == (("launch.gpu", 1),) for term in terms) == together.schedule.host_bound


def test_a_library_is_asked_for_it_and_refuses_topologies_whose_latencies_may_be_its_own():
    assert choose_library("nccl:timing=measured,launch=node").profile == NcclProfile("nccl", one_process=True)
    assert choose_library("nccl:timing=measured").option_string == "nccl:timing=measured"
    with pytest.raises(OptionError, match="changes nothing with timing=wire"):
        choose_library("nccl:timing=wire,launch=node")
    with pytest.raises(S2SimError, match="does not say"):
        timed(SILENT, 8, "all_reduce", 4096)


@pytest.mark.parametrize(
    ("latencies", "clock"), [([1, 1, 7, 2, 2, 2], 3), ([5] * 6, 5), ([0, 0, 1, 0, 0, 1], 1), ([9, 9, 9, 0, 0, 0], 9)]
)
def test_a_round_of_rings_is_clocked_by_the_slowest_mean(latencies, clock):
    two_channels = Pattern(np.array([0, 1, 2, 2, 0, 1]), np.array([1, 2, 0, 0, 1, 2]))
    assert ring_round_latency(two_channels, np.array(latencies)).ps == clock


def test_a_pipeline_meets_each_latency_of_its_way_once():
    """Through a chain over two nodes: the hops' latencies once, and the bytes of every round."""
    sent = timed("dgx-h100", 16, "broadcast", 1 << 24, "chain:chunks=64")[0]
    latency_ps = sum(each.latency_ps.sum() for each in [sent.schedule.stage.whole.round.pattern.overheads])
    clock = sent.schedule.steps[0].round.pattern.overheads.round_latency
    assert (clock.rounds, len(clock.src)) == (15 - 1 + 64, 15)
    bare = timed("dgx-h100", 16, "broadcast", 1 << 24, "chain:chunks=64", choose_library("ideal").profile)[0]
    assert clock.ps * clock.rounds >= latency_ps
    assert clock.ps * clock.rounds < latency_ps + bare.duration_ps


def test_the_longest_way_through_trees_goes_up_and_down():
    sent, cluster, _ = timed("dgx-h100", 24, "all_reduce", 1 << 24, "double-binary-tree:chunks=8")
    clock = sent.schedule.steps[0].round.pattern.overheads.round_latency
    # Up a chain of eight and over a node, and the same way down again. Chunks of 128 KiB fill a quarter of a step of
    # plain data: of seven that follow the first, three quarters wait between nodes for the one before.
    step = {"Simple": 2**19, "LL128": 576_000}[sent.schedule.protocol]
    waits = round(7 * (1 - 2**17 / step))
    way, crosses = len(clock.src) - waits, cluster.node_of_rank[clock.src] != cluster.node_of_rank[clock.dst]
    assert np.array_equal(clock.src[1:way], clock.dst[: way - 1])
    assert way == 2 * (7 + 1) or way == 2 * (7 + 2)
    assert crosses[:way].sum() in (2, 4)
    assert crosses[way:].all()
    assert len(set(clock.src[way:].tolist())) == 1


@pytest.mark.parametrize(("workers", "rate"), [(16, 41.4e9), (24, 36e9)])
def test_a_tree_is_no_faster_than_its_channels_reduce(workers, rate):
    """Both directions of both trees of a channel share its rate: half of it is that of the buffer."""
    found, cluster, _ = timed("dgx-h100", workers, "all_reduce", 1 << 32, "double-binary-tree:chunks=64")
    assert found.schedule.protocol == "Simple"
    assert found.duration_ps / 1e12 > 2 * (1 << 32) / (8 * rate)
    free, _, _ = timed("dgx-h100", workers, "all_reduce", 1 << 32, "ring")
    every = found.schedule.stage.whole.round.pattern
    between = cluster.node_of_rank[every.src] != cluster.node_of_rank[every.dst]
    share = CONSTANTS["network.ib-verbs.share"]
    assert every.overheads.limit_Bps[between] == pytest.approx(rate / 4 / share)
    limits = free.schedule.steps[0].round.pattern.overheads.limit_Bps
    assert set(limits[np.isfinite(limits)]) == {CONSTANTS["generation.hopper.ring-Simple"] / share}


def test_trees_with_two_children_reach_a_share_of_their_own_on_slingshot():
    """Over more than two nodes, where data takes the time; rings, and trees of two nodes, have the usual one."""
    own, usual = (CONSTANTS[f"network.slingshot.{name}"] for name in ("tree-share", "share"))
    other = NcclProfile("nccl", own=(("network.slingshot.tree-share", usual),))

    def ratio(workers, size_bytes, algorithm="double-binary-tree:chunks=256"):
        first, second = (timed("alps", workers, "all_reduce", size_bytes, algorithm, each) for each in (NCCL, other))
        return first[0].duration_ps / second[0].duration_ps

    assert ratio(16, 1 << 32) == pytest.approx(usual / own, rel=0.02)
    assert ratio(16, 1 << 12, "double-binary-tree:chunks=1") == pytest.approx(1, abs=0.02)
    assert ratio(8, 1 << 32) == ratio(16, 1 << 30, "ring") == 1


def test_a_way_past_the_host_is_no_faster_than_what_pcie_forwards():
    """Cards of 24 GB/s behind a host bridge: interfaces of 50 GB/s wait for them; those below their switch do not."""
    bridged, switched = (
        build_cluster(load_shape("dgx-a100", [f"nic.path={path}", "nic.rate=400Gbps", "pcie.rate=24GB/s"]), 16)
        for path in ("host-bridge", "switch")
    )
    crossing = Pattern(np.array([0]), np.array([8]))
    plain = NcclProfile("nccl", protocol="Simple")
    share = CONSTANTS["path.host-bridge.share"]
    assert plain.each_message(crossing, bridged).limit_Bps == pytest.approx([24e9 * share])
    assert np.isinf(plain.each_message(crossing, switched).limit_Bps).all()
    small = NcclProfile("nccl", protocol="LL").each_message(crossing, switched).limit_Bps
    assert small == [CONSTANTS["protocol.LL.limit"]]


@pytest.mark.parametrize(("size_bytes", "filled"), [(16 << 10, 1), (1 << 20, 16), (1 << 30, 16)])
def test_a_small_buffer_fills_few_channels_of_a_ring_with_flags(size_bytes, filled):
    """Two nodes of eight A100: a channel has at least 64 KiB, 4 KiB a rank; all together send what hosts can."""
    found, _, _ = timed("dgx-a100", 16, "all_gather", size_bytes, profile=NcclProfile("nccl", only="LL"))
    limits = found.schedule.steps[0].round.pattern.overheads.limit_Bps
    of_blocks = CONSTANTS["generation.ampere.LL"] * filled / CONSTANTS["generation.ampere.channels"]
    data_Bps = min(of_blocks, CONSTANTS["generation.ampere.LL-two-nodes"])
    share = CONSTANTS["protocol.LL.share"] * CONSTANTS["network.ib-verbs.share"]
    assert min(limits) == pytest.approx(data_Bps / 8 / share)


def test_a_chunk_of_a_tree_waits_until_the_one_before_has_passed_the_network():
    """Sixteen nodes of one GPU: each chunk takes the latency of the network and its wires, and no announcement."""
    for transport in ("ib-verbs", "slingshot"):
        topology = ["node.gpus=1", "nic.count=1", f"nic.transport={transport}"]
        found = [
            timed(
                "dgx-a100",
                16,
                "all_reduce",
                1 << 20,
                f"double-binary-tree:chunks={chunks}",
                overrides=topology,
                profile=NcclProfile("nccl", only="Simple"),
            )
            for chunks in (64, 128)
        ]
        (first, cluster, _), (second, _, _) = found
        wire_ps = int(cluster.routes(np.array([0]), np.array([1])).latency_ps[0])
        each_ps = (second.duration_ps - first.duration_ps) / 64
        assert each_ps == pytest.approx(CONSTANTS[f"network.{transport}.latency"] + wire_ps, rel=0.05)


def test_chains_over_nodes_post_a_step_of_buffers_at_once():
    """Sixteen nodes of one GPU: 32 MiB are 64 steps of 512 KiB, however finely the chain is cut."""

    def duration_ps(transport, *own, chunks, each=32 << 20):
        topology = ["node.gpus=1", "nic.count=1", f"nic.transport={transport}"]
        profile, how = NcclProfile("nccl", own, only="Simple"), f"chain:chunks={chunks}"
        return timed("dgx-a100", 16, "broadcast", 16 * each, how, overrides=topology, profile=profile)[0].duration_ps

    # A rendezvous is part of the latency of each of the 15 hops as well.
    posting, rendezvous = "protocol.Simple.posting", "network.slingshot.rendezvous"
    for transport, post, times in (("ib-verbs", posting, 63), ("slingshot", rendezvous, 63 + 15)):
        for chunks in (256, 384):
            slow, slower = (duration_ps(transport, (post, each), chunks=chunks) for each in ("500us", "600us"))
            assert (slower - slow) / times == pytest.approx(100_000_000, rel=0.05)
        # One step is one post, which is part of the latency of its hops.
        small, smaller = (duration_ps(transport, chunks=256, each=each) for each in (64 << 10, 32 << 10))
        assert small < 2 * smaller


def test_what_is_no_round_of_rings_has_no_such_clock():
    for src, dst in (([0, 1], [1, 2]), ([0, 1, 2], [1, 1, 0]), ([0, 0, 1], [1, 2, 0])):
        assert ring_round_latency(Pattern(np.array(src), np.array(dst)), np.ones(len(src), np.int64)) is None
    assert ring_round_latency(Pattern(np.arange(2), np.arange(2), through_switch=True), np.ones(1, np.int64)) is None


@pytest.mark.parametrize(
    ("was", "becomes", "why"),
    [
        ("[launch]", "[lunch]", "unknown table"),
        ("limit = ", "limt = ", "unknown field 'protocol.LL.limt'"),
        ("share = { value = 0.5,", "share = { value = 1.5,", "is a share"),
        ('gpus = ["h100",', "gpus = [1,", "is a list of names"),
        ('name = "nccl"', "", "name is missing"),
        (
            'off = { value = "LL in-network',
            'off = { value = "LL129 in-network',
            r"network\.tcpxo\.off has 'LL129'.*LL128",
        ),
        ("[share]\nnvlink", "[share]\nnvlinks", "unknown field"),
    ],
)
def test_a_file_of_constants_is_checked(tmp_path, was, becomes, why):
    text = (data_directory("libraries") / "nccl.toml").read_text()
    assert was in text
    path = tmp_path / "own.toml"
    path.write_text(text.replace(was, becomes, 1))
    with pytest.raises(TopologyError, match=why):
        read_constants(path)


def test_every_constant_has_an_origin():
    constants = load_constants("nccl")
    assert len(constants.quantities) > 30
    for quantity in constants.quantities:
        assert quantity.source, quantity.field


def test_what_one_rank_sends_at_once_has_one_limit(tmp_path):
    """Over the six channels of a mesh as over one: with LL no more than its limit, half of it data."""
    times = []
    for kind in ("rate = '300GB/s'", "kind = 'mesh'\nrate = '300GB/s'"):
        path = tmp_path / "box.toml"
        path.write_text(
            f"[node]\ngpus = 4\n[nvlink]\n{kind}\n[nic]\nrate = '10Gbps'\ntransport = 'tcp'\n"
            "[fabric]\nkind = 'single-switch'\n"
        )
        times.append(timed(str(path), 4, "all_reduce", 1 << 28, "ring", NcclProfile("nccl", only="LL"))[0].duration_ps)
    data_Bps = CONSTANTS["protocol.LL.limit"] * CONSTANTS["protocol.LL.share"] * CONSTANTS["share.nvlink"]
    assert times[0] / 1e12 == pytest.approx(2 * 3 / 4 * (1 << 28) / data_Bps, rel=0.02)
    assert times[1] == pytest.approx(times[0], rel=0.001)


@pytest.mark.parametrize("nics", [1, 8, 32])
@pytest.mark.parametrize("algorithm", ["ring", "double-binary-tree", "nvls-tree", "spread"])
def test_all_messages_through_an_interface_have_one_limit_of_sockets(algorithm, nics):
    """Four nodes of eight, where 1.5 times the buffer leaves each node, or 24/32 of what its eight ranks send."""
    kind, size_bytes = ("all_to_all", 1 << 33) if algorithm == "spread" else ("all_reduce", 1 << 30)
    rate = "nic.rate=400Gbps" if nics <= 8 else "nic.rate=100Gbps"
    sockets = ("nic.transport=tcp", "nic.path=staged", f"nic.count={nics}", rate)
    found, cluster, _ = timed("dgx-h100", 32, kind, size_bytes, algorithm, overrides=sockets)
    sent_bytes = 8 * 24 / 32 * size_bytes / 32 if kind == "all_to_all" else 1.5 * size_bytes
    least_s = sent_bytes / (nics * CONSTANTS["network.tcp.stream"] * CONSTANTS["network.tcp.share"])
    assert least_s < found.duration_ps / 1e12 < 1.7 * least_s
    terms = schedule_terms(found, cluster)
    assert sum(term.ps for term in terms) == found.duration_ps
    assert sum(term.ps for term in terms if ("network.tcp.stream", -1) in term.constants) > 0.5 * found.duration_ps


@pytest.mark.parametrize("algorithm", ["ring", "double-binary-tree", "spread"])
def test_faster_interfaces_make_sockets_no_slower(algorithm):
    kind = "all_to_all" if algorithm == "spread" else "all_reduce"
    times_ps = [
        timed("tcp-10g", 8, kind, 25 << 20, algorithm, overrides=(f"nic.rate={gbps}Gbps",))[0].duration_ps
        for gbps in (10, 25, 32, 40, 50, 100)
    ]
    assert times_ps == sorted(times_ps, reverse=True)
    assert times_ps[-2] == times_ps[-1]
