"""What MPI and Gloo add between hosts, against sums worked out by hand from their files; and RCCL beside NCCL."""

from __future__ import annotations

import math

import numpy as np
import pytest

from s2sim.collectives.libraries.constants_file import load_constants
from s2sim.collectives.libraries.host_constants import load_host_constants, read_host_constants
from s2sim.collectives.libraries.host_software import HostSoftware
from s2sim.collectives.libraries.profile import PLAIN
from s2sim.collectives.libraries.software import Software
from s2sim.collectives.libraries.tables import choose_library
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.bounds import lower_bound
from s2sim.collectives.timing.duration import simulate_ps
from s2sim.collectives.timing.timer import Timer
from s2sim.data import data_directory
from s2sim.errors import S2SimError, TopologyError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.catalogue import load_shape
from s2sim.topology.files.quantity import KINDS

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
    return Timer(cluster, algorithm, profile=HostSoftware(library)).time(Demand(kind, (elements,) * ranks, 4))


@pytest.mark.parametrize(
    ("transport", "size_bytes"),
    [("ib-verbs", 8), ("ib-verbs", 8192), ("ib-verbs", 12 << 10), ("ib-verbs", 1 << 20), ("tcp", 32 << 10)],
)
def test_a_message_is_copied_if_it_is_small_and_announced_if_it_is_not(transport, size_bytes, hosts):
    """Latency, copies or an answer, and the bytes at the share of the rate, or at what a connection gets."""
    constants = load_host_constants("mpi")
    _, carrier = constants.carrier(transport)
    rate = min(12.5e9 * carrier.share, carrier.stream_Bps * carrier.share)
    small = size_bytes < carrier.eager_bytes
    waits_us = size_bytes / carrier.copy_Bps * 1e6 if small else carrier.rendezvous_ps / 1e6
    expected_us = WAY_US + (constants.call_ps + carrier.latency_ps) / 1e6 + waits_us + size_bytes / rate * 1e6
    found = timed(hosts(2, transport), "send_recv", size_bytes)
    assert found.duration_ps / 1e6 == pytest.approx(expected_us, rel=1e-4)


def test_the_smallest_all_reduce_doubles_who_has_what(hosts):
    """Four rounds of sixteen processes, with four bytes copied and added in each."""
    constants = load_host_constants("mpi")
    _, carrier = constants.carrier("ib-verbs")
    found = timed(hosts(16), "all_reduce", 4)
    assert found.schedule.algorithm == "recursive-doubling"
    assert found.duration_ps / 1e6 == pytest.approx(
        constants.call_ps / 1e6 + 4 * (WAY_US + carrier.latency_ps / 1e6), rel=0.01
    )


def test_what_comes_around_a_ring_is_added_in_half_of_its_rounds(hosts):
    """Of Gloo: 2(n-1) rounds of D/n, of which n - 1 are added."""
    constants = load_host_constants("gloo")
    _, carrier = constants.carrier("tcp")
    size_bytes, ranks = 64 << 20, 4
    part = size_bytes / ranks
    round_us = WAY_US + carrier.latency_ps / 1e6 + part / (carrier.stream_Bps * carrier.share) * 1e6
    expected_us = constants.call_ps / 1e6 + 2 * (ranks - 1) * round_us + (ranks - 1) * part / constants.add_Bps * 1e6
    found = timed(hosts(ranks, "tcp"), "all_reduce", size_bytes, "gloo")
    assert found.schedule.algorithm == "ring"
    assert found.duration_ps / 1e6 == pytest.approx(expected_us, rel=1e-4)


def test_gloo_speaks_tcp_on_every_network(hosts):
    times = {timed(hosts(4, transport), "all_reduce", 4096, "gloo").duration_ps for transport in ("tcp", "ib-verbs")}
    assert len(times) == 1


def test_processes_of_a_host_pass_shared_memory(hosts):
    _, carrier = load_host_constants("mpi").carrier("shared-memory")
    found = timed(hosts(2, processes=2), "send_recv", 1 << 20)
    assert found.duration_ps / 1e12 == pytest.approx((1 << 20) / carrier.stream_Bps, rel=0.02)


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
    assert found.duration_ps > Timer(cluster, found.schedule.algorithm, profile=PLAIN).time(demand).duration_ps
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
        read_host_constants(path)


def test_a_network_that_no_table_tells_is_named(hosts):
    with pytest.raises(TopologyError, match="do not tell the network tcpx: they have ib-verbs"):
        timed(hosts(2, "tcpx"), "send_recv", 8)


@pytest.mark.parametrize("library", ["mpi", "gloo", "rccl"])
def test_every_constant_has_an_origin(library):
    constants = load_constants(library) if library == "rccl" else load_host_constants(library)
    assert constants.quantities
    for quantity in constants.quantities:
        assert quantity.kind in KINDS
        assert quantity.source, quantity.field


def test_rccl_is_nccl_but_for_what_its_file_says():
    rccl, nccl = load_constants("rccl"), load_constants("nccl")
    assert (rccl.networks, rccl.paths, rccl.shares) == (nccl.networks, nccl.paths, nccl.shares)
    assert rccl.launch_ps > nccl.launch_ps
    of_rccl, of_nccl = ({each.name: dict(each.inside_ps) for each in one.protocols} for one in (rccl, nccl))
    assert of_rccl["Simple"]["nvlink"] != of_nccl["Simple"]["nvlink"]
    assert of_rccl["Simple"]["pcie"] == of_nccl["Simple"]["pcie"]


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("mpi:timing=measured", HostSoftware("mpi")),
        ("mpi:timing=measured,buffers=device", HostSoftware("mpi")),
        ("gloo:timing=measured", HostSoftware("gloo")),
        ("rccl:timing=measured,launch=node", Software("rccl", one_process=True)),
        ("mpi", PLAIN),
        ("rccl", PLAIN),
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
