"""NCCL's own choice of algorithms and protocols: its formulas by hand, and that all commands follow it."""

import csv
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.schedules.demand import make_demand
from s2sim.collectives.timing.timer import Timer
from s2sim.libraries.constants import load_constants, read_version
from s2sim.libraries.nccl import NcclProfile
from s2sim.libraries.tuner import channel_graph, estimate_us
from s2sim.topology.cluster import build_cluster
from s2sim.topology.hardware import shipped_tables
from s2sim.topology.read_file import load_shape

MIB = 2**20


def cluster(topology, workers, *overrides):
    return build_cluster(load_shape(topology, overrides), workers)


def chosen(topology, workers, kind, size_bytes, *overrides, version=()):
    found = Timer(cluster(topology, workers, *overrides), profile=NcclProfile("nccl", version=version))
    schedule = found.time(make_demand(kind, size_bytes, workers)).schedule
    return schedule.algorithm.partition(":")[0], schedule.protocol


def test_estimates_are_those_of_the_formulas():
    """Two nodes of eight A100, in microseconds and GB/s: a channel an interface, as PCIe has 24 of its 25 GB/s."""
    shape = cluster("dgx-a100", 16, "nic.path=switch")
    graph, demand = channel_graph(shape, "ampere"), make_demand("all_reduce", 4 * MIB, 16)
    assert (graph.channels, graph.rate) == (8, 24)
    # Seven hops inside and one between, up and down; 20 GB/s a channel, half of it up, and the table's 0.8.
    tree_us = 14.0 + 2 * (7 * 1.25 + 8.5) + 4 * MIB / 1e3 / (8 * 20 * 0.5 * 0.8)
    assert estimate_us(graph, demand, "double-binary-tree", "LL128", ()) == pytest.approx(tree_us)
    # Of thirty steps two cross; hosts of AMD post in 2 us.
    ring_us = 14.0 + 28 * 2.0 + 2 * 4.0 + 4 * MIB / 1e3 / (8 * 20 * 16 / 30)
    assert estimate_us(graph, demand, "ring", "LL128", ()) == pytest.approx(ring_us)
    plain_us = 1.4 * (8.4 + 28 * 6.0 + 2 * 14.0) + 4 * MIB / 1e3 / (192 * 16 / 30)
    assert estimate_us(graph, demand, "ring", "Simple", ()) == pytest.approx(plain_us)
    assert estimate_us(graph, demand, "nvls-tree", "Simple", ()) is None
    assert estimate_us(graph, demand, "direct", "Simple", ()) is None


def read_figures():
    with (Path(__file__).parent / "nccl_estimates.csv").open(newline="") as file:
        return list(csv.DictReader(file))


GRAPH = ("channels", "rate", "tree", "heads", "head", "head_between")
FIGURES = read_figures()


@pytest.mark.parametrize("version", sorted({row["version"] for row in FIGURES}, key=read_version))
def test_estimates_are_those_of_the_source(version):
    """The figures are those of `ncclTopoTuneModel` and `ncclTopoGetAlgoTime` of src/graph/tuning.cc, compiled.

    They were made for channels as the row has them, with processors of Intel, of AMD with A100.
    """
    for row in (row for row in FIGURES if row["version"] == version):
        gpus, nodes = int(row["gpus"]), int(row["nodes"])
        alone = ("node.gpus=1", "nic.count=1") if gpus == 1 else ()
        found = channel_graph(cluster(row["topology"], gpus * nodes, *alone), row["generation"], read_version(version))
        assert [getattr(found, field) for field in GRAPH] == pytest.approx([float(row[field]) for field in GRAPH], 1e-5)
        sizes = {"64KiB": 64 * 1024, "4MiB": 4 * MIB, "256MiB": 256 * MIB}
        demands = [make_demand("all_reduce", size, gpus * nodes) for size in sizes.values()]
        asked = row["algorithm"], row["protocol"], read_version(version)
        estimates = [estimate_us(found, demand, *asked) for demand in demands]
        assert estimates == pytest.approx([float(row[field]) for field in sizes], 1e-4), asked


def test_the_search_finds_what_public_logs_show():
    """Lines "Pattern" of public logs: NVIDIA/nccl#1197 (eight GPUs, 2.19.4) and #1189 (two nodes of two H20)."""
    found = channel_graph(cluster("dgx-h100", 8), "hopper", (2, 19, 4))
    assert (found.heads, found.head, found.head_between) == (8, 40, 60)
    found = channel_graph(cluster("dgx-h100", 4, "node.gpus=2", "nic.count=2"), "hopper")
    assert (found.channels, found.rate) == (4, 24)


def test_trees_and_switches_take_turns_as_a_public_log_shows():
    """NVIDIA/nccl#1752, 64 nodes of eight H200: 16 MiB run with TREE and LL128, 32 MiB with NVLS_TREE."""
    sizes = 16 * MIB, 32 * MIB
    names = [chosen("dgx-h100", 512, "all_reduce", size, version=(2, 26, 2)) for size in sizes]
    assert names == [("double-binary-tree", "LL128"), ("nvls-tree", "Simple")]


def test_switches_that_sum_over_nodes_are_corrected_on_blackwell_with_x86():
    asked = make_demand("all_reduce", 4 * MIB, 32), "nvls-tree", "Simple"
    graph = channel_graph(cluster("dgx-b200", 32), "blackwell")
    corrected, older = (estimate_us(graph, *asked, version) for version in ((), (2, 28)))
    grace = estimate_us(replace(graph, x86=False), *asked, ())
    latency_us = 25 + 2 * 2 * 20.9
    assert corrected - latency_us == pytest.approx((grace - latency_us) / 0.7)
    assert older < corrected
    assert not channel_graph(cluster("alps", 8), "hopper").x86


def test_ll128_runs_on_gpus_that_a_version_enables_it_for():
    """Capabilities of 7.0 and more, before 2.27 those named: 7.0, 8.0, 9.0, 10.0 and 12.0."""
    enabled = {
        ("p100", (2, 26)): False, ("p100", ()): False,
        ("t4", (2, 26)): False, ("t4", (2, 27)): True,
        ("a40", (2, 26, 6)): False, ("a40", ()): True,
        ("v100", (2, 10)): True, ("a100", (2, 10)): True, ("b200", (2, 26)): True,
    }  # fmt: skip
    for (gpu, version), expected in enabled.items():
        shape = build_cluster(replace(load_shape("dgx-a100"), gpu=gpu), 8)
        assert ("LL128" in NcclProfile("nccl", version=version)._available(shape)) == expected, (gpu, version)


def test_every_nvidia_gpu_of_the_catalogue_has_a_generation():
    of_nvidia = [name for name in shipped_tables().names("gpu") if not name.startswith("mi")]
    assert len(of_nvidia) > 40
    assert [name for name in of_nvidia if load_constants("nccl").generation_of(name) is None] == []


@pytest.mark.parametrize(
    ("topology", "channels"),
    # One interface of 400 Gbit/s a GPU keeps its channel where there are eight, and has two where there are four.
    [
        (("dgx-h100", 16), 8),
        (("dgx-h100", 16, "nic.count=4", "node.gpus=4"), 8),
        (("dgx-a100", 16, "nic.rate=100Gbps"), 8),
    ],
)
def test_interfaces_have_channels_as_the_search_doubles_them(topology, channels):
    found = cluster(*topology)
    generation = "hopper" if topology[0] == "dgx-h100" else "ampere"
    assert channel_graph(found, generation).channels == channels


@pytest.mark.parametrize("rate", ["200Gbps", "400Gbps", "800Gbps"])
def test_interfaces_beyond_their_pcie_make_no_difference(rate):
    given, faster = (channel_graph(cluster("dgx-a100", 16, f"nic.rate={each}"), "ampere") for each in ("200Gbps", rate))
    assert given == faster


def test_one_gpu_a_node_has_pat_where_it_is_estimated_to_be_faster():
    """8 us, a level of 14/3.5 for each doubling, and 2.8 a rank; three quarters of the rate."""
    alone = cluster("dgx-h100", 16, "node.gpus=1", "nic.count=1")
    graph, demand = channel_graph(alone, "hopper"), make_demand("all_gather", MIB, 16)
    expected = 8 + 4 * 14 / 3.5 + 2.8 * 16 + MIB / 1e3 / (0.75 * graph.channels * graph.rate)
    assert estimate_us(graph, demand, "pat", "Simple", ()) == pytest.approx(expected)
    assert estimate_us(graph, demand, "pat", "LL", ()) is None
    asked = ("dgx-h100", 16, "all_gather")
    lone = ("node.gpus=1", "nic.count=1")
    assert chosen(*asked, 16 * 1024, *lone) == ("pat", "Simple")
    assert chosen(*asked, 1 << 30, *lone)[0] == "ring"
    assert chosen(*asked, 16 * 1024, *lone, version=(2, 22))[0] == "ring"
    assert chosen(*asked, 16 * 1024)[0] == "ring"


@pytest.mark.parametrize(("workers", "sums"), [(2, False), (3, True), (8, True), (9, False), (10, False), (11, True)])
def test_nvswitches_sum_where_every_node_has_more_than_two_gpus(workers, sums):
    demand = make_demand("all_reduce", 64 * MIB, workers)
    names = NcclProfile("nccl").candidates(demand, cluster("dgx-h100", workers))
    assert bool({"in-network", "nvls-tree"}.intersection(names)) == sums


def test_large_messages_go_around_a_ring_and_small_ones_through_trees():
    """As on two nodes of Polaris; with four interfaces of 200 Gbit/s, and NVLinks to spare, trees stay ahead."""
    sizes = 256, 64 * MIB
    assert [chosen("polaris", 8, "all_reduce", size)[0] for size in sizes] == ["double-binary-tree", "ring"]
    assert chosen("alps", 8, "all_reduce", 64 * MIB)[0] == "double-binary-tree"
    assert chosen("dgx-h100", 16, "all_reduce", 64 * MIB) == ("nvls-tree", "Simple")
    assert chosen("dgx-h100", 16, "all_reduce", 64 * MIB, version=(2, 16)) == ("ring", "Simple")


def test_versions_have_the_constants_of_their_time():
    graph, demand = channel_graph(cluster("dgx-h100", 32), "hopper"), make_demand("all_reduce", 256, 32)
    by_version = [
        estimate_us(graph, demand, "double-binary-tree", "Simple", version) for version in ((), (2, 22), (2, 18))
    ]
    more = 256 / 1e3 / (min(0.92 * 8 * graph.rate, 8 * 36.0) * 0.5 * 0.9)
    assert by_version == pytest.approx(
        [8.4 + 2 * (7 * 4 + 2 * 14) + more, 2 * (7 * 28 + 2 * 28) + more, 2 * (7 * 4 + 2 * 14) + more]
    )


@given(
    size=st.integers(1, 2**34),
    workers=st.sampled_from([8, 16, 24, 64]),
    kind=st.sampled_from(["all_reduce", "all_gather"]),
)
def test_the_choice_has_the_least_estimate_of_those_that_could_run(size, workers, kind):
    timer = Timer(cluster("dgx-h100", workers), profile=NcclProfile("nccl"))
    graph, demand = channel_graph(timer.cluster, "hopper"), make_demand(kind, size, workers)
    found = timer.time(demand).schedule
    names = {name.partition(":")[0] for name in timer.profile.candidates(demand, timer.cluster)}
    estimates = [
        estimate_us(graph, demand, name, protocol, ()) for name in names for protocol in ("LL", "LL128", "Simple")
    ]
    least = min(each for each in estimates if each is not None)
    own = estimate_us(graph, demand, found.algorithm.partition(":")[0], found.protocol, ())
    assert own == pytest.approx(least)


def test_before_estimates_trees_were_for_buffers_up_to_one_size():
    """NCCL 2.4, two nodes of four over PCIe: 10,000 bytes for each of the 42 - 27 us that a ring takes longer."""
    shape = build_cluster(load_shape("leaf-spine", ("node.gpus=4",)), 8)
    graph = channel_graph(shape, "volta")
    assert not graph.linked
    for size_bytes, tree in ((149_000, True), (151_000, False)):
        demand = make_demand("all_reduce", size_bytes, 8)
        algorithms = ("ring", "double-binary-tree")
        ring_us, tree_us = (estimate_us(graph, demand, name, "Simple", (2, 4, 8)) for name in algorithms)
        assert (tree_us < ring_us) == tree
        assert inf in (ring_us, tree_us)


def test_what_may_run_as_well_lies_within_the_scatter_of_the_estimates():
    """For 4 MiB on two DGX H100, NVSwitches that sum and trees are estimated within half a per cent of each other."""
    timer = Timer(cluster("dgx-h100", 16), profile=NcclProfile("nccl"))
    for size_bytes in (64 * 2**10, 4 * MIB, 2**30):
        found = timer.time(make_demand("all_reduce", size_bytes, 16))
        candidates = timer.profile.candidates(found.schedule.demand, timer.cluster)
        possible = [each for name in candidates for each in timer._schedules(name, found.schedule.demand)]
        estimates = {
            (each.schedule.algorithm, each.schedule.protocol): each.profile.estimate_us(
                found.schedule.demand, each.algorithm, timer.cluster
            )
            for each in possible
        }
        least = estimates.pop((found.schedule.algorithm, found.schedule.protocol))
        close = {key for key, estimate in estimates.items() if estimate < 1.15 * least}
        also = timer.alternatives(found)
        assert {(each.schedule.algorithm, each.schedule.protocol) for _, each in also} == close
        assert all(1 <= ratio < 1.15 for ratio, _ in also)
        assert bool(also) == (size_bytes == 4 * MIB)
    assert Timer(timer.cluster, "ring", profile=timer.profile).alternatives(found) == []


def test_a_faster_candidate_of_the_library_itself_is_named():
    """NCCL takes nvls-tree for 4 MiB on two DGX H100, also where only its other candidates are faster."""
    timer = Timer(cluster("dgx-h100", 16), profile=NcclProfile("nccl"))
    found = timer.time(make_demand("all_reduce", 4 * MIB, 16))
    faster = timer.faster(found)
    assert faster is not None
    assert faster.duration_ps < 0.9 * found.duration_ps
    alone = Timer(timer.cluster, faster.schedule.algorithm, profile=timer.profile).time(found.schedule.demand)
    assert alone.duration_ps == faster.duration_ps


def test_chunks_of_trees_are_those_of_protocols_that_run():
    """GPUDirect-TCPXO is set up without LL and NVLS, and processors between GPU and interface leave LL128 out."""
    for name, left in (("gcp-a3-mega", {"LL128", "Simple"}), ("polaris", {"LL", "Simple"})):
        shape = cluster(name, 16)
        timer = Timer(shape, profile=NcclProfile("nccl"))
        for size_bytes in (2**16, 2**22, 2**30):
            demand = make_demand("all_reduce", size_bytes, 16)
            possible = timer._possibilities(demand)[0]
            assert {each.profile.protocol for each in possible} == left
            assert len({each.text for each in possible}) == len(possible)
            # A pair of trees for each protocol, unless two have as many chunks.
            trees = [each for each in possible if each.algorithm.startswith("double")]
            assert len(trees) == len(left)
            assert not any(each.algorithm.startswith(("nvls", "in-network")) for each in possible)
    assert "nvls-tree" in NcclProfile("nccl").candidates(demand, cluster("dgx-h100", 16))


def test_many_demands_are_timed_as_each_alone():
    """Sizes of an all-to-all in lockstep, where rounds are kept, and of collectives that are not chains."""
    for topology, workers in (("polaris", 40), ("dgx-h100", 16)):
        for kind in ("all_to_all", "all_reduce", "all_gather"):
            demands = [make_demand(kind, size_bytes, workers) for size_bytes in (4096, 2**20, 2**26, 2**20)]
            together, alone = (Timer(cluster(topology, workers), profile=NcclProfile("nccl")) for _ in range(2))
            found = together.time_all(demands)
            expected = [alone.time(demand) for demand in demands]
            assert [each.duration_ps for each in found] == [each.duration_ps for each in expected]
            assert [each.schedule.text for each in found] == [each.schedule.text for each in expected]
            assert [each.why for each in found] == [each.why for each in expected]


@pytest.mark.parametrize("topology", ["tcp-10g", "leaf-spine", "dgx-h100"])
def test_a_time_does_not_depend_on_what_was_timed_before(topology):
    """Buffers of other sizes may have as many chunks, and wait differently for each."""
    found = cluster(topology, 16)
    sizes = [15_751_168, 31_502_336, 7_875_584, 12_000_000, 3_000_000]
    timer = Timer(found, "double-binary-tree", profile=NcclProfile("nccl"))
    together = [timer.time(make_demand("all_reduce", size, 16)).duration_ps for size in sizes]
    for size, time_ps in zip(sizes, together, strict=True):
        alone = Timer(found, "double-binary-tree", profile=NcclProfile("nccl"))
        assert alone.time(make_demand("all_reduce", size, 16)).duration_ps == time_ps
