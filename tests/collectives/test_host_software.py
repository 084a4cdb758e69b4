"""What MPI and Gloo add between hosts, against sums worked out by hand from their files; and RCCL beside NCCL."""

import math

import numpy as np
import pytest

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.bounds import lower_bound, simulate_ps
from s2sim.collectives.timing.library_profile import NO_OVERHEADS
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimError, TopologyError
from s2sim.files import data_directory
from s2sim.libraries.constants import load_constants, read_constants
from s2sim.libraries.gloo import HostLibraryProfile, carrier
from s2sim.libraries.lowering import choose_library
from s2sim.libraries.nccl import NcclProfile
from s2sim.topology.cluster import build_cluster
from s2sim.topology.quantity import KINDS
from s2sim.topology.read_file import load_shape

WAY_US = 1.0


@pytest.fixture
def hosts(tmp_path):
    """Return a function that makes a cluster of hosts on one switch: 12.5 GB/s, 1 us from one to another."""

    def make(workers, transport="ib-verbs", processes=1):
        path = tmp_path / "hosts.toml"
        pcie = '[pcie]\nrate = "24GB/s"\n' if processes > 1 else ""
        path.write_text(
            f'name = "hosts"\n[node]\ngpus = {processes}\n{pcie}[nic]\nrate = "100Gbps"\nlatency = "350ns"\n'
            f'transport = "{transport}"\n[fabric]\nkind = "single-switch"\n[fabric.link]\nlatency = "150ns"\n'
        )
        return build_cluster(load_shape(str(path)), workers)

    return make


def timed(cluster, kind, size_bytes, library="mpi", algorithm="auto"):
    ranks = cluster.workers
    shared = kind in ("all_reduce", "broadcast", "reduce", "send_recv")
    elements = size_bytes // 4 if shared else size_bytes // 4 // ranks
    return Timer(cluster, algorithm, profile=HostLibraryProfile(library)).time(Demand(kind, (elements,) * ranks, 4))


@pytest.mark.parametrize(
    ("transport", "size_bytes"),
    [("ib-verbs", 8), ("ib-verbs", 8192), ("ib-verbs", 12 << 10), ("ib-verbs", 1 << 20), ("tcp", 32 << 10)],
)
def test_a_message_is_copied_if_it_is_small_and_announced_if_it_is_not(transport, size_bytes, hosts):
    """Latency, copies or an answer, and the bytes at the share of the rate, or at what a connection gets."""
    constants = load_constants("mpi")
    network = carrier(constants, transport)
    rate = min(12.5e9 * constants[f"{network}.share"], constants[f"{network}.stream"] * constants[f"{network}.share"])
    small = size_bytes < constants[f"{network}.eager"]
    waits_us = size_bytes / constants[f"{network}.copy"] * 1e6 if small else constants[f"{network}.rendezvous"] / 1e6
    expected_us = (
        WAY_US
        + (constants["call.latency"] + constants[f"{network}.latency"]) / 1e6
        + waits_us
        + size_bytes / rate * 1e6
    )
    found = timed(hosts(2, transport), "send_recv", size_bytes)
    assert found.duration_ps / 1e6 == pytest.approx(expected_us, rel=1e-4)


def test_the_smallest_all_reduce_doubles_who_has_what(hosts):
    """Four rounds of sixteen processes, with four bytes copied and added in each."""
    constants = load_constants("mpi")
    network = carrier(constants, "ib-verbs")
    found = timed(hosts(16), "all_reduce", 4)
    assert found.schedule.algorithm == "recursive-doubling"
    assert found.duration_ps / 1e6 == pytest.approx(
        constants["call.latency"] / 1e6 + 4 * (WAY_US + constants[f"{network}.latency"] / 1e6), rel=0.01
    )


@pytest.mark.parametrize(("size_bytes", "pieces"), [(1 << 20, 2), (8 << 20, 2), (64 << 20, 16)])
def test_gloo_passes_pieces_of_at_most_a_segment_two_at_a_time(size_bytes, pieces, hosts):
    """Pairs of pieces go around 2(n-1) times, each piece as soon as the one before has left or its own has come.

    Half of what comes is added.
    """
    constants = load_constants("gloo")
    network = carrier(constants, "tcp")
    ranks = 4
    part = size_bytes / ranks / pieces
    assert part <= constants["ring.segment"]
    latency_us = WAY_US + constants[f"{network}.latency"] / 1e6 + part / 2 / constants["memory.add"] * 1e6
    sending_us = part / (constants[f"{network}.stream"] * constants[f"{network}.share"]) * 1e6
    pair_us = (2 * (ranks - 1) - 1) * max(2 * sending_us, latency_us + sending_us) + 2 * sending_us + latency_us
    found = timed(hosts(ranks, "tcp"), "all_reduce", size_bytes, "gloo")
    assert found.schedule.algorithm == f"ring:chunks={pieces},in_flight=2,release=sent"
    expected_us = constants["call.latency"] / 1e6 + pieces / 2 * pair_us
    assert found.duration_ps / 1e6 == pytest.approx(expected_us, rel=0.01)


def test_gloo_passes_unequal_parts_on_whole(hosts):
    gathered = Demand("all_gather", (1000, 1000, 3000, 1000), 4)
    timer = Timer(hosts(4, "tcp"), profile=HostLibraryProfile("gloo"))
    assert timer.time(gathered).schedule.algorithm == "ring"
    assert timer.time(Demand("all_gather", (1000,) * 4, 4)).schedule.algorithm.startswith("ring:chunks=2")


@pytest.fixture
def one_machine(tmp_path):
    """Return a function that makes a cluster of workers on one machine: 125 MB/s each, packets of 10 kB."""

    def make(workers, processors):
        path = tmp_path / f"machine{processors}.toml"
        path.write_text(
            '[node]\ngpus = 1\n[nic]\nrate = "1Gbps"\ntransport = "tcp"\n[fabric]\nkind = "single-switch"\n'
            f'[machine]\nprocessors = {processors}\npacket = "10kB"\n'
        )
        return build_cluster(load_shape(str(path)), workers)

    return make


def test_workers_of_one_machine_share_its_processors(one_machine):
    """A round's messages end when processors have done all of them, or one has done its own, slowed by the wire."""
    constants = load_constants("gloo")
    network = carrier(constants, "tcp")
    size = 100_000
    work_s = (
        constants["processor.message"] / 1e12
        + 10 * constants["processor.packet"] / 1e12
        + size / constants["processor.rate"]
    )
    wire_s = size / constants[f"{network}.share"] / 125e6
    for workers, processors in ((2, 2), (8, 2), (8, 64)):
        busy_s = work_s * max(1, workers / processors)
        both_s = (busy_s ** constants["processor.overlap"] + wire_s ** constants["processor.overlap"]) ** (
            1 / constants["processor.overlap"]
        )
        found = timed(one_machine(workers, processors), "send_recv", size, "gloo")
        expected_s = (
            constants["call.latency"] * max(1, workers / processors) + constants[f"{network}.latency"]
        ) / 1e12 + both_s
        assert found.duration_ps / 1e12 == pytest.approx(expected_s, rel=1e-6)


def test_processors_of_nodes_with_their_own_are_not_counted(hosts):
    assert hosts(4, "tcp").shape.processors is None


def test_constants_of_ones_own_take_the_place_of_shipped_ones(one_machine):
    profile = HostLibraryProfile("gloo", (("processor.message", "2ms"),))
    slow = Timer(one_machine(8, 2), profile=profile).time(Demand("all_reduce", (2,) * 8, 4))
    assert slow.duration_ps > 2 * 7 * 2e9
    with pytest.raises(TopologyError, match=r"no constant processor\.massage \(did you mean 'processor\.message'"):
        load_constants("gloo", (("processor.massage", "2ms"),))


def test_gloo_speaks_tcp_on_every_network(hosts):
    times = {timed(hosts(4, transport), "all_reduce", 4096, "gloo").duration_ps for transport in ("tcp", "ib-verbs")}
    assert len(times) == 1


def test_processes_of_a_host_pass_shared_memory(hosts):
    stream_Bps = load_constants("mpi")["network.shared-memory.stream"]
    found = timed(hosts(2, processes=2), "send_recv", 1 << 20)
    assert found.duration_ps / 1e12 == pytest.approx((1 << 20) / stream_Bps, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["mpi", "gloo"])
@pytest.mark.parametrize("size_bytes", [64, 20000, 1 << 22])
@pytest.mark.parametrize(
    "kind", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send_recv"]
)
def test_nothing_is_faster_than_the_wire_and_fast_paths_agree(library, size_bytes, kind, hosts):
    cluster = hosts(6, processes=2)
    found = timed(cluster, kind, size_bytes, library)
    demand = found.schedule.demand
    assert found.duration_ps == simulate_ps(found.schedule, cluster)
    assert found.duration_ps > Timer(cluster, found.schedule.algorithm, profile=NO_OVERHEADS).time(demand).duration_ps
    assert lower_bound([demand], cluster.cuts()).seconds < found.duration_ps / 1e12


def test_what_is_added_is_the_sum_of_what_it_is_made_of(hosts):
    found = timed(hosts(6, processes=2), "all_reduce", 1 << 20)
    for step in found.schedule.steps:
        added = step.round.pattern.overheads
        assert np.array_equal(added.latency_ps, sum(each.each for each in added.latencies))
        assert added.factor == pytest.approx(1 / math.prod(each.each for each in added.shares))


@pytest.mark.parametrize(
    ("was", "becomes", "why"),
    [
        ("[memory]", "[memories]", "unknown table"),
        ("eager = ", "early = ", "unknown field 'network.ib-verbs.early'"),
        ('name = "mpi"', "", "name is missing"),
        ('add = { value = "5GB/s"', 'add = { value = "5us"', "memory.add"),
        ("share = { value = 0.94,", "share = { value = 1.94,", "is a share"),
    ],
)
def test_a_file_of_constants_is_checked(tmp_path, was, becomes, why):
    text = (data_directory("libraries") / "mpi.toml").read_text()
    assert was in text
    path = tmp_path / "own.toml"
    path.write_text(text.replace(was, becomes, 1))
    with pytest.raises(S2SimError, match=why):
        read_constants(path, library="gloo")


def test_a_network_that_no_table_tells_is_named(hosts):
    with pytest.raises(TopologyError, match="do not tell the network tcpx: they have ib-verbs"):
        timed(hosts(2, "tcpx"), "send_recv", 8)


@pytest.mark.parametrize("library", ["mpi", "gloo", "rccl"])
def test_every_constant_has_an_origin(library):
    constants = load_constants(library)
    assert constants.quantities
    for quantity in constants.quantities:
        assert quantity.kind in KINDS
        assert quantity.source, quantity.field


def test_rccl_is_nccl_but_for_what_its_file_says():
    rccl, nccl = load_constants("rccl"), load_constants("nccl")
    same = [field for field in nccl.values if field.startswith(("network.", "path.", "share.", "protocol.Simple.pcie"))]
    assert len(same) > 30
    assert [rccl[field] for field in same] == [nccl[field] for field in same]
    assert rccl["launch.collective"] > nccl["launch.collective"]
    assert rccl["protocol.Simple.nvlink"] != nccl["protocol.Simple.nvlink"]


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("mpi:timing=measured", HostLibraryProfile("mpi")),
        ("mpi:timing=measured,buffers=device", HostLibraryProfile("mpi")),
        ("gloo:timing=measured", HostLibraryProfile("gloo")),
        ("rccl:timing=measured,launch=node", NcclProfile("rccl", one_process=True)),
        ("mpi", NO_OVERHEADS),
        ("rccl", NO_OVERHEADS),
    ],
)
def test_libraries_are_asked_for_their_time(text, profile):
    assert choose_library(text).profile == profile


@pytest.mark.parametrize("library", ["mpi", "gloo"])
def test_processes_of_a_node_send_each_other_one_message_at_a_time(library):
    """Eight interfaces of a node are eight processes' own: none has eight connections to the next."""
    cluster = build_cluster(load_shape("dgx-h100"), 16)
    for kind in ("all_reduce", "all_gather", "broadcast"):
        found = timed(cluster, kind, 64 << 20, library)
        for step in found.schedule.steps:
            pairs = list(zip(step.round.pattern.src.tolist(), step.round.pattern.dst.tolist(), strict=True))
            assert len(set(pairs)) == len(pairs)
