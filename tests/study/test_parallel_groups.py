"""Tensor-, pipeline- and data-parallel groups as people write them, and replays of one of them beside the others."""

import time

import numpy as np
import pytest

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.scenario.groups import ParallelGroups, concurrent_groups_timer, parse_groups
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.simulation.run import replay
from s2sim.topology.cluster import build_cluster
from s2sim.topology.hardware import load_gpu
from s2sim.topology.read_file import load_shape


@pytest.mark.parametrize(
    ("text", "workers", "sizes"),
    [
        ("tp=8,pp=4,dp=rest", 256, (8, 4, 8)),
        ("pp=4", 64, (1, 4, 16)),
        (" tp = 2 , dp=rest", 64, (2, 1, 32)),
        ("tp=8,pp=rest,dp=2", 64, (8, 4, 2)),
        ("tp=2,pp=2,dp=2", 8, (2, 2, 2)),
        ("tp=2,order=tp-pp-dp", 8, (2, 1, 4)),
    ],
)
def test_groups_are_read(text, workers, sizes):
    groups = parse_groups(text, workers)
    assert (groups.tp, groups.pp, groups.dp) == sizes
    assert groups.workers == workers
    assert parse_groups(groups.text, workers) == groups


@pytest.mark.parametrize(
    ("text", "workers", "part"),
    [
        ("", 8, "is not name=number"),
        ("tp", 8, "'tp' is not name=number"),
        ("tp=", 8, "write for example tp=8,pp=4,dp=rest"),
        ("tpp=8", 8, "did you mean 'tp'?"),
        ("tp=0", 8, "tp=0 must be at least 1"),
        ("tp=-1", 8, "neither a whole number from 1 on nor rest"),
        ("tp=1.5", 8, "neither a whole number"),
        ("tp=²", 8, "neither a whole number"),
        ("tp=2,tp=2", 8, "tp stands twice"),
        ("tp=2,pp=2,dp=3", 8, "are 12 ranks and not 8: write dp=rest"),
        ("tp=3", 8, "8 workers do not divide by tp=3: take 6 workers"),
        ("tp=16", 8, "8 workers do not divide by tp=16: take 16 workers"),
        ("tp=rest", 8, "only one of tp and dp can be the rest"),
        ("tp=2,order=dp", 8, "write order=tp-pp-dp"),
        ("tp=99999999999999999999999999", 8, "at most the workers"),
    ],
)
def test_groups_that_cannot_be_are_told_in_one_line(text, workers, part):
    with pytest.raises(OptionError) as error:
        parse_groups(text, workers)
    assert part in str(error.value)
    assert str(error.value).startswith(f"--groups {text}: ")
    assert "\n" not in str(error.value)


def test_ranks_are_numbered_as_megatron_does():
    """The example of its parallel_state.py with two tensor-parallel ranks and four stages on sixteen GPUs."""
    groups = ParallelGroups(tp=2, pp=4, dp=2)
    data = [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert groups.dp_groups.tolist() == data
    assert groups.of("tp").tolist() == [[rank, rank + 1] for rank in range(0, 16, 2)]
    assert groups.of("pp").tolist() == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]


def test_replicas_after_stages():
    groups = parse_groups("tp=2,pp=2,order=tp-pp-dp", 8)
    assert groups.dp_groups.tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert groups.of("pp").tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]


@pytest.mark.parametrize("text", ["tp=1", "tp=2,pp=2", "pp=3,order=tp-pp-dp", "tp=4,dp=3"])
def test_every_rank_is_in_one_group_of_each_kind(text):
    groups = parse_groups(text, 24 if "dp=3" not in text else 12)
    for kind in ("tp", "pp", "dp"):
        assert sorted(groups.of(kind).reshape(-1).tolist()) == list(range(groups.workers))
    assert groups.dp_groups.shape == (groups.count, groups.dp)


def test_one_group_is_a_plain_timer():
    cluster = build_cluster(load_shape("fat-tree"), 16)
    demand = Demand("all_reduce", (1000,) * 16, 4)
    found = concurrent_groups_timer(cluster, parse_groups("dp=rest", 16)).time(demand)
    assert found.duration_ps == Timer(cluster).time(demand).duration_ps


@pytest.mark.parametrize("reducer", ["dense", "topk", "hierarchical-topk:node=2"])
def test_a_recording_of_one_group_is_replayed_beside_the_others(reducer):
    """On nodes of eight GPUs with one interface: four groups take longer than one, and at most four times as long."""
    cluster = build_cluster(load_shape("dgx-h100", ("nic.count=1", "nic.rate=1Gbps")), 32)
    groups = parse_groups("tp=4", 32)
    timer = concurrent_groups_timer(cluster, groups, "ring:channels=1")
    rng = np.random.default_rng(0)
    gradients = [Gradient(("w",), (rng.standard_normal(20_000).astype(np.float32),)) for _ in range(groups.dp)]
    recording = run_reducer(make_reducer(reducer), gradients).recording
    gpu = load_gpu("h100")
    beside = replay(recording, timer, gpu).communication_ps
    alone = replay(recording, timer.alone, gpu).communication_ps
    assert 3 * alone < beside <= groups.count * alone


def test_a_recording_of_all_ranks_is_refused():
    cluster = build_cluster(load_shape("fat-tree"), 16)
    timer = concurrent_groups_timer(cluster, parse_groups("tp=2", 16))
    recording = run_reducer(make_reducer("dense"), [Gradient(("w",), (np.zeros(8, np.float32),))] * 16).recording
    with pytest.raises(S2SimError, match="16 ranks cannot be replayed on 8 workers"):
        replay(recording, timer, load_gpu("h100"))


def test_sixteen_thousand_gpus_take_seconds():
    cluster = build_cluster(load_shape("dgx-h100"), 16384)
    began = time.process_time()
    timer = concurrent_groups_timer(cluster, parse_groups("tp=8,pp=8,dp=rest", 16384))
    timed = timer.time(Demand("all_reduce", (100_000_000,) * 256, 4))
    assert time.process_time() - began < 10
    assert timed.schedule.places == 16384
