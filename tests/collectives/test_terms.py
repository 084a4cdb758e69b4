"""The terms of a schedule's time: their sum is the simulated time, and constants act on them as on the simulation."""

import re
import tomllib
from contextlib import suppress
from itertools import product

import numpy as np
import pytest

from s2sim.collectives.algorithms.registry import ALGORITHMS, helpers_of, make_algorithm
from s2sim.collectives.schedules.demand import Demand, make_demand
from s2sim.collectives.schedules.overheads import Overheads
from s2sim.collectives.timing.bounds import duration_ps, step_ends_ps
from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile, apply_overheads
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.collectives.timing.terms import Terms, describe_constant, schedule_terms
from s2sim.collectives.timing.timer import TimedSchedule, Timer
from s2sim.errors import S2SimError
from s2sim.files import data_directory
from s2sim.libraries import constants as constants_file
from s2sim.libraries import message_latency, nccl
from s2sim.libraries.constants import read_constants
from s2sim.libraries.lowering import LIBRARIES, choose_library
from s2sim.libraries.nccl import NcclProfile
from s2sim.topology.cluster import build_cluster
from s2sim.topology.fields import shipped_topologies
from s2sim.topology.read_file import load_shape

NCCL = NcclProfile("nccl")
BY_NODE = NcclProfile("nccl", one_process=True)
PLACES = [
    ("single-switch", (), 8),
    ("fat-tree", (), 24),
    ("dgx-h100", (), 8),
    ("dgx-h100", (), 16),
    ("dgx-h100", (), 21),
    ("dgx-h100", ("nvlink.kind=mesh", "nvlink.links_per_pair=2", "nvlink.rate=25GB/s"), 8),
    ("leaf-spine", (), 32),
    ("torus", (), 12),
]
# It does not say its network, so that constants tell nothing of it.
UNTOLD = "torus"
# Steps that overlap, some of which only a simulation of all of it can time.
OPTIONS = (
    "ring:chunks=3,in_flight=2",
    "ring:chunks=4,release=sent",
    "double-binary-tree:chunks=5",
    "hierarchical:mode=leader,chunks=3",
    "torus:split=both-ways",
    "pairwise:release=sent",
    "spread:partners=5",
    "chain:chunks=40",
)


def runs(topology, overrides, workers, names, profile, sizes):
    """Yield what every one of some algorithms does on a cluster, for each kind and size that it takes."""
    shape = load_shape(topology, overrides)
    for name in names:
        for kind in ALGORITHMS.get(name.partition(":")[0]).kinds:
            for size_bytes in sizes:
                try:
                    helpers = helpers_of(make_algorithm(name, kind), workers, shape.gpus_per_node)
                    cluster = build_cluster(shape, workers + helpers)
                    timed = Timer(cluster, name, profile=profile).time(
                        make_demand(kind, 0 if kind == "barrier" else size_bytes, workers)
                    )
                except S2SimError:
                    continue
                yield timed, cluster


@pytest.mark.parametrize(
    ("profile", "topology", "overrides", "workers"),
    # Without constants of a library the sweep in test_registered.py adds terms up too.
    [
        *(
            pytest.param(NCCL, *place, marks=[pytest.mark.slow] if place != PLACES[2] else [])
            for place in PLACES
            if place[0] != UNTOLD
        ),
        *(pytest.param(BY_NODE, *place, marks=pytest.mark.slow) for place in PLACES if place[0] == "dgx-h100"),
    ],
)
def test_terms_of_every_algorithm_add_up_to_its_time(profile, topology, overrides, workers):
    found = 0
    for timed, cluster in runs(topology, overrides, workers, ALGORITHMS.names(), profile, (4096, 3 << 20)):
        terms = schedule_terms(timed, cluster)
        found += 1
        assert sum(term.ps for term in terms) == timed.duration_ps, timed.schedule.text
        assert all(term.ps >= 0 for term in terms), timed.schedule.text
    assert found


@pytest.mark.slow
@pytest.mark.parametrize(("topology", "overrides", "workers"), [PLACES[1], PLACES[3]])
def test_terms_of_steps_that_overlap_follow_what_was_waited_for(topology, overrides, workers):
    """Some of these are timed by a simulation of all of their messages alone."""
    simulated = 0
    for profile in (NO_OVERHEADS, NCCL):
        for timed, cluster in runs(topology, overrides, workers, OPTIONS, profile, (1 << 20,)):
            assert sum(term.ps for term in schedule_terms(timed, cluster)) == timed.duration_ps, timed.schedule.text
            simulated += step_ends_ps(timed.schedule, cluster, timed.times) is None
    assert simulated


@pytest.mark.parametrize(
    "topology",
    [pytest.param(name, marks=[] if name == "polaris" else pytest.mark.slow) for name in sorted(shipped_topologies())],
)
def test_terms_add_up_on_every_shipped_machine_with_every_library(topology):
    shape = load_shape(topology)
    found = 0
    for name, workers in product(LIBRARIES.names(), {shape.gpus_per_node, shape.gpus_per_node + 4}):
        cluster = build_cluster(shape, workers)
        timer = Timer(cluster, profile=choose_library(name).on(shape).profile)
        for kind, size_bytes in product(("all_reduce", "all_to_all", "broadcast"), (8, 1 << 22)):
            with suppress(S2SimError):
                timed = timer.time(make_demand(kind, size_bytes, workers))
                assert sum(term.ps for term in schedule_terms(timed, cluster)) == timed.duration_ps, timed.schedule.text
                found += 1
    assert found


def timed_with(algorithm, kind, size_bytes, cluster, protocol):
    """Return an algorithm as one protocol sends it."""
    schedule = make_algorithm(algorithm, kind).schedule(make_demand(kind, size_bytes, cluster.workers), cluster)
    sent = apply_overheads(schedule, cluster, NcclProfile("nccl", one_process=True, protocol=protocol))
    times = RoundTimes(cluster, sent.release)
    return TimedSchedule(sent, duration_ps(sent, cluster, times), "", times)


@pytest.mark.parametrize(
    ("workers", "algorithm", "kind", "size_bytes", "protocol"),
    [
        (8, "ring", "all_reduce", 1 << 30, "Simple"),
        (8, "in-network", "all_reduce", 1 << 20, "Simple"),
        (16, "ring", "all_reduce", 1 << 28, "LL128"),
        (16, "ring", "all_gather", 1 << 12, "LL"),
        (16, "nvls-tree", "all_reduce", 1 << 28, "Simple"),
        (24, "double-binary-tree:chunks=16", "all_reduce", 1 << 24, "LL"),
        (24, "chain:chunks=8", "broadcast", 1 << 24, "Simple"),
        (16, "spread", "all_to_all", 1 << 24, "Simple"),
    ],
)
@pytest.mark.parametrize("overrides", [(), ("nic.transport=tcp", "nic.path=staged")], ids=["", "tcp"])
def test_other_constants_are_arithmetic_on_terms(
    workers, algorithm, kind, size_bytes, protocol, overrides, monkeypatch
):
    """Every constant of a term in turn, by some per cent: the terms say what simulating again gives."""
    cluster = build_cluster(load_shape("dgx-h100", overrides), workers)
    before = timed_with(algorithm, kind, size_bytes, cluster, protocol)
    terms = schedule_terms(before, cluster)
    names = dict.fromkeys(name for term in terms for name, _ in term.constants)
    assert len(names) >= 4
    for name in names:
        # Where chunks follow each other through a tree, the busiest link of a round is soon another.
        factor = 2 / 3 if "stages" in name else 0.995 if "tree:" in algorithm else 0.9
        change_constant(name, factor, monkeypatch)
        again = timed_with(algorithm, kind, size_bytes, cluster, protocol)
        predicted_ps = sum(term.ps * factor ** dict(term.constants).get(name, 0) for term in terms)
        changed_ps = predicted_ps - before.duration_ps
        assert again.duration_ps - before.duration_ps == pytest.approx(changed_ps, rel=2e-3, abs=1e3), name


def change_constant(name, factor, monkeypatch):
    """Let measured profiles have one constant that is so many times as large."""
    path = data_directory("libraries") / "nccl.toml"
    tables = tomllib.loads(path.read_text())
    quantity = tables
    for key in name.split("."):
        quantity = quantity[key]
    number, unit = re.fullmatch(r"([\d.]+)(.*)", str(quantity["value"])).groups()
    changed = float(number) * factor
    quantity["value"] = f"{changed:.9g}{unit}" if unit else round(changed) if changed > 1 else changed
    monkeypatch.setattr(constants_file, "read_toml", lambda *_: tables)
    changed_constants = read_constants(path)
    monkeypatch.setattr(message_latency, "load_constants", lambda *_: changed_constants)
    nccl._message_overheads.cache_clear()  # By profiles, which have the name of constants alone


def test_hops_of_a_ring_are_counted_on_the_mean_around_it():
    """Two nodes of eight: of fifteen rounds' hops, 14 of 16 are over NVLink and two over the network."""
    cluster = build_cluster(load_shape("dgx-h100"), 16)
    timed = Timer(cluster, "ring", profile=NCCL).time(Demand("all_gather", (1,) * 16, 4))
    counts = {(term.kind, term.of): term.count for term in schedule_terms(timed, cluster)}
    assert counts["launch", "collective"] == 1
    assert counts["hop", "LL posting"] == pytest.approx(15 * 14 / 16)
    assert counts["hop", "network ib-verbs"] == pytest.approx(15 * 2 / 16)


def test_a_profile_that_does_not_tell_has_its_latency_in_one_term():
    class Silent(LibraryProfile):
        def overheads(self, sent, _schedule, _cluster):
            ones = np.ones(sent.pattern.messages)
            return Overheads(np.full(sent.pattern.messages, 7_000_000), 2 * ones, np.inf * ones)

        def launch_ps(self, _schedule, _cluster):
            return 20_000_000

    cluster = build_cluster(load_shape("single-switch"), 4)
    timed = Timer(cluster, "ring", profile=Silent()).time(make_demand("all_reduce", 4096, 4))
    terms = schedule_terms(timed, cluster)
    assert sum(term.ps for term in terms) == timed.duration_ps
    told = {(term.kind, term.of): term.ps for term in terms}
    assert told["launch", "library"] == 20_000_000
    assert told["library", "each message"] == 6 * 7_000_000


def test_what_rounding_leaves_goes_to_bytes():
    cluster = build_cluster(load_shape("single-switch"), 2)
    terms = Terms(cluster, RoundTimes(cluster))
    terms.add("hop", "a", 1, 10.4, (("a", 1),))
    terms.add("hop", "b", 1, 10.4, (("b", 1),))
    terms.add("bytes", "nic", 1, 5.2)
    terms.add("wire latency", "nic", 1, 0)
    whole = terms.whole(26)
    assert [(term.of, term.ps) for term in whole] == [("a", 10), ("b", 10), ("nic", 6)]


@pytest.mark.parametrize(
    ("constant", "text"),
    [
        ("protocol.Simple.limit", "Simple"),
        ("launch.gpu", "gpu"),
        ("in-network.hopper.share-over-nodes", "in-network hopper"),
        ("path.host-bridge.latency", "path host-bridge"),
        ("share.nvlink", "nvlink"),
        ("generation.hopper.ring-LL128", "hopper ring-LL128"),
        ("protocol.LL.posting", "LL posting"),
        ("network.shared-memory.rendezvous", "network shared-memory"),
    ],
)
def test_constants_have_words(constant, text):
    assert describe_constant(constant) == text
