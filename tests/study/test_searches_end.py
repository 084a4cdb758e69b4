"""Searches over rates change what an override changes, and end where nothing can run; the answer stays."""

import re
from dataclasses import replace

import pytest

import s2sim
from s2sim.errors import S2SimError, S2SimWarning
from s2sim.experiment import run as experiment_run
from s2sim.experiment.rate_curve import limiting_rate, rate_of
from s2sim.experiment.scenario.cluster import resolve_machines
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

TRACE = "synthetic:density=0.05,rows=20000,width=16,layers=1,dense=0"
MIXED = """
extends = "leaf-spine"
name = "mixed"
[node]
gpus = 2
[nic]
rate = "{first}"
[[nodes]]
count = 1
[[nodes]]
[nodes.nic]
rate = "10Gbps"
"""


@pytest.fixture
def mixed(tmp_path):
    path = tmp_path / "mixed.toml"
    path.write_text(MIXED.format(first="100Gbps"), "utf-8")
    return path


def pays_at(result, rate_Bps):
    """Return whether the sentence on rates says that union pays at one of them."""
    crossings = [each.at_Bps for each in result.verdict.break_even if each.reducer == "union"]
    first = next((each.direction for each in result.verdict.break_even if each.reducer == "union"), None)
    if first is None:
        return "pays at any" in result.verdict.pays["union"]
    pays = first == "below"
    for at in sorted(crossings):
        if rate_Bps > at:
            pays = not pays
    return pays


@pytest.mark.parametrize("rate", ["1Gbps", "25Gbps", "400Gbps"])
def test_a_run_at_a_rate_says_what_was_foretold_where_some_nodes_keep_their_own(mixed, rate):
    foretold = s2sim.run(str(mixed), workers=6, trace=TRACE, reducers=["union"])
    there = s2sim.run(str(mixed), workers=6, trace=TRACE, reducers=["union"], overrides=[f"nic.rate={rate}"])
    rate_Bps = float(rate.removesuffix("Gbps")) * 1.25e8
    wins = there.verdict.decision == "use"
    assert wins == pays_at(foretold, rate_Bps)


def test_a_rate_that_no_node_follows_is_not_searched(mixed):
    shape = load_shape(str(mixed), ["nodes.0.nic.rate=50Gbps"])
    cluster = build_cluster(shape, 6)
    assert limiting_rate(cluster) is None
    # The first node alone follows nothing either; of two nodes one does.
    followed = build_cluster(load_shape(str(mixed), []), 6)
    assert (limiting_rate(followed), rate_of(followed, "nic.rate")) == ("nic.rate", 12.5e9)


@pytest.mark.slow
def test_faults_end_a_search_where_links_have_no_room():
    spec = {"workers": 8, "trace": TRACE, "reducers": ["union"], "faults": ["background:load=0.3,size=64KiB"]}
    result = s2sim.run("leaf-spine", **spec)
    assert "nic.rate" in result.verdict.pays["union"]
    with pytest.raises(S2SimError, match="it carries at most load="):
        s2sim.run("leaf-spine", **spec, overrides=["nic.rate=3.2Tbps"], break_even=False)


def test_a_search_that_fails_leaves_the_answer(monkeypatch):
    def fail(*_):
        raise S2SimError("nothing runs at 1 Bps")

    monkeypatch.setattr(experiment_run, "scan_rates", fail)
    curves = {}
    result = s2sim.run("leaf-spine", workers=8, trace=TRACE, reducers=["union"], curves=curves)
    assert result.verdict.best == "union"
    assert "the search for break-even ended early: nothing runs at 1 Bps" in result.notes
    assert not curves


@pytest.mark.parametrize("option", ["shard=node", "secondary=true"])
def test_shards_of_unlike_nodes_are_refused_before_anything_runs(option, monkeypatch):
    monkeypatch.setattr(experiment_run, "record", None)
    asked = {"profile": "resnet-18", "discipline": f"fsdp:{option}", "reducers": ["fp16"]}
    with pytest.raises(S2SimError, match="take workers that fill their nodes"):
        s2sim.run("dgx-a100", workers=12, **asked)


def test_what_only_training_judges_is_named_where_nothing_else_gains():
    result = s2sim.run("ring", workers=2, trace=TRACE, reducers=["dense:h=4"], break_even=False)
    assert result.verdict.decision == "do not compress"
    assert "only training can tell whether dense:h=4" in result.verdict.lines[0]


@pytest.mark.parametrize(("library", "has"), [("nccl", True), ("gloo", False), ("mpi", False)])
@pytest.mark.parametrize("size_bytes", [1 << 10, 1 << 20, 1 << 27])
def test_intervals_begin_at_bounds_and_are_of_what_curves_were_fitted_to(library, has, size_bytes):
    cluster = "tcp-10g" if library != "nccl" else "dgx-a100"
    found = s2sim.run_collective("all_reduce", topology=cluster, workers=24, size_bytes=size_bytes, library=library)
    assert (found.band is not None) is has
    if found.band is not None:
        assert found.lower_bound_s <= found.band.low_s <= found.time_s <= found.band.high_s


def test_a_slow_rank_computes_slowly():
    asked = {"topology": "fat-tree", "workers": 16, "reducers": ["fp16"], "compute": "100ms", "break_even": False}
    healthy, slow = (s2sim.run(**asked, faults=faults) for faults in ((), ("slow-rank:rank=3,factor=2",)))
    for before, after in zip(healthy.results, slow.results, strict=True):
        assert after.iteration_s - before.iteration_s == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize(
    ("options", "known", "said"),
    [
        ({"faults": ("slow-rank:rank=3,factor=1.0001",)}, True, "with a probability"),
        ({"faults": ("slow-link:link=node0.nic0.out,factor=0.5",)}, True, "with a probability"),
        ({"faults": ("jitter:latency=1us",)}, False, "how far off times may be is not known with these faults"),
        ({"groups": "tp=2,dp=rest"}, False, "how far off times may be is not known with --groups"),
    ],
)
def test_an_answer_says_how_sure_it_is_or_that_nobody_knows(options, known, said):
    found = s2sim.run("dgx-a100", workers=16, reducers=["fp16"], trace=TRACE, break_even=False, **options)
    assert (found.verdict.probability is not None) == known
    assert (found.results[0].band is not None) == known
    assert said in found.verdict.lines[2]


@pytest.mark.parametrize(("topology", "library", "right"), [("dgx-h100", "rccl", "nccl"), ("frontier", "nccl", "rccl")])
def test_a_library_of_another_vendor_is_warned_of(topology, library, right):
    with pytest.warns(S2SimWarning, match=f"{library} does not run on .*, where {right} does"):
        s2sim.run_collective("all_reduce", topology=topology, workers=8, size_bytes=1 << 20, library=library)
    with pytest.warns(S2SimWarning, match=f"{library} does not run on .*, where {right} does"):
        s2sim.run(topology, workers=8, reducers=["fp16"], trace=TRACE, break_even=False, library=library)


def test_a_delay_shifts_intervals_and_leaves_the_probability():
    asked = {"topology": "tcp-10g", "workers": 8, "reducers": ["union", "fp16"], "trace": TRACE, "break_even": False}
    alone, late = (s2sim.run(**asked, faults=faults) for faults in ((), ("slow-rank:rank=3,delay=10ms",)))
    assert late.verdict.probability == pytest.approx(alone.verdict.probability, abs=0.05)
    for before, after in zip(alone.results, late.results, strict=True):
        assert after.band.low_s >= 0.01
        assert after.band.high_s - after.band.low_s == pytest.approx(before.band.high_s - before.band.low_s, rel=0.2)


def test_a_topology_that_names_no_library_has_that_of_its_gpu():
    shape = load_shape("leaf-spine")
    for gpu, library in (("mi300x", "rccl"), ("h100", "nccl")):
        assert resolve_machines(replace(shape, library=None, gpu=gpu), ()).library.name == library


def test_the_rate_that_limits_is_where_the_plateau_begins():
    """One link of 100 Gbps: faster interfaces gain 1.6 % somewhere far above, by another protocol."""
    fixed = ("link.node1.nic0.out.rate=100Gbps",)
    result = s2sim.run("fat-tree", workers=16, reducers=["fp16", "union"], overrides=fixed)
    assert re.search(r"above (9\d|10[0-4])[.\d]* Gbps a network interface at 12.5 GB/s", result.verdict.text)


@pytest.mark.slow
def test_mini_batches_are_said_of_what_does_not_follow_rows():
    result = s2sim.run("leaf-spine", workers=8, profile="dlrm", reducers=["gather-rows", "fp16"])
    assert {each.reducer for each in result.verdict.pays_over} <= {"fp16"}


def test_links_of_switches_that_reduce_name_no_pair():
    found = s2sim.run_collective(
        "all_reduce", topology="dgx-h100", workers=16, size_bytes=1 << 26, library="nccl", algorithm="nvls-tree"
    )
    assert all(flow.src != flow.dst for load in found.bottlenecks for flow in load.shared_by)


def test_reducers_that_only_training_judges_are_named_beside_the_choice():
    reducers = ["onebit-adam", "fp16"]
    first = s2sim.run(
        "ring", workers=4, reducers=reducers, trace="cnn", overrides=("nic.rate=1Gbps",), break_even=False
    ).verdict.lines[0]
    assert first.startswith("Use fp16")
    assert "only training can tell whether onebit-adam" in first
