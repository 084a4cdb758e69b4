"""Collectives and transfers with faults: against times by hand, and the same twice."""

from dataclasses import replace

import numpy as np
import pytest
import simpy

from s2sim.errors import OptionError, S2SimWarning, TopologyError, UnknownNameError
from s2sim.simulation.faults.fault import FaultyNetwork
from s2sim.simulation.faults.registry import make_faults
from s2sim.traffic.collective_run import (
    collective_result,
    collective_timeline,
    plan_collective,
    run_collective,
    watch_rounds,
)
from s2sim.traffic.flows import simulate_transfers
from s2sim.traffic.networks import Transfers
from s2sim.traffic.spec import CollectiveSpec, FlowsSpec

RATE_BPS = 50 * 2**30
SIZE = 50 * 2**20
ALONE_S = SIZE / RATE_BPS
LATENCY_S = 2e-6
SWITCH = 'kind = "single-switch"\n[fabric.link]\nlatency = "1us"'
TREE = 'kind = "fat-tree"\nhosts_per_leaf = 2\nuplinks_per_leaf = 2'
EVERYTHING = (
    "slow-link:link=node1.nic0.out,factor=0.7",
    "fail-link:link=leaf0.up1",
    "slow-link:link=node0.*,factor=0.5,at=20us,until=200us",
    "fail-link:link=leaf1.up0,at=10us",
    "slow-rank:rank=3,delay=50us",
    "jitter:latency=2us",
    "background:load=0.2,size=64KiB",
)


def collective(topology, *faults, kind="all_reduce", workers=4, size=SIZE, algorithm="ring", **options):
    return run_collective(
        kind, topology, workers=workers, size_bytes=size, algorithm=algorithm, faults=faults, **options
    )


def flows(topology, rows, *faults, **options):
    start_s, src, dst, size = (np.array(column) for column in zip(*rows, strict=True))
    asked = Transfers(np.rint(start_s * 1e12).astype(np.int64), src, dst, size.astype(float))
    return simulate_transfers(FlowsSpec(topology, faults=faults, **options), asked)


def planned_collective(topology, *faults, **options):
    asked = {"kind": "all_reduce", "size_bytes": SIZE, "algorithm": "ring"} | options
    return plan_collective(CollectiveSpec(topology, faults=faults, **asked))


def test_all_links_at_half_rate_are_a_slower_cluster(cluster_file):
    slow = collective(cluster_file(SWITCH), "slow-link:link=*,factor=0.5")
    other = collective(cluster_file(SWITCH, nic='rate = "25GiB/s"'))
    assert (slow.time_s, slow.closed_form_s, slow.lower_bound_s) == (
        other.time_s,
        other.closed_form_s,
        other.lower_bound_s,
    )
    assert slow.effects[0].description == "24 messages crossed it at 0.5 of its rate"
    # From the first picosecond on: the same, but for that, and without a closed form.
    moving = collective(cluster_file(SWITCH), "slow-link:link=*,factor=0.5,at=1ps")
    assert moving.time_s == pytest.approx(slow.time_s, rel=1e-6)
    assert moving.closed_form_s is None


def test_one_slow_link_clocks_a_ring(cluster_file):
    result = collective(cluster_file(SWITCH), "slow-link:link=node2.nic0.in,factor=0.25")
    assert result.time_s == pytest.approx(6 * (LATENCY_S + SIZE / 4 / (RATE_BPS / 4)), rel=1e-9)
    assert result.bottlenecks[0].link == "node2.nic0.in"


def test_a_ring_that_is_slow_for_some_of_its_rounds(cluster_file):
    size = 4 * 2**20
    healthy = collective(cluster_file(SWITCH), size=size)
    round_ps = round(healthy.time_s * 1e12) // 6
    fault = f"slow-link:link=node0.nic0.out,factor=0.5,at={2 * round_ps}ps"
    bytes_s = size / 4 / RATE_BPS
    slow = collective(cluster_file(SWITCH), fault, size=size)
    assert slow.time_s == pytest.approx(healthy.time_s + 4 * bytes_s, rel=1e-9)
    # One round, at half rate, and its latency.
    over = collective(
        cluster_file(SWITCH), f"{fault},until={2 * round_ps + round((LATENCY_S + 2 * bytes_s) * 1e12)}ps", size=size
    )
    assert over.time_s == pytest.approx(healthy.time_s + bytes_s, rel=1e-9)


@pytest.mark.parametrize("routing", ["d-mod-k", "ecmp", "spray"])
def test_transfers_share_the_up_port_that_is_left(cluster_file, routing):
    topology = cluster_file(TREE, routing=f'routing = "{routing}"')
    rows = [(0.0, 0, 2, SIZE), (0.0, 1, 3, SIZE)]
    result = flows(topology, rows, "fail-link:link=leaf0.up1")
    assert result.finish_s == pytest.approx(2 * ALONE_S, rel=1e-9)
    assert result.slowdown == pytest.approx(2)
    busiest = next(item for item in result.bottlenecks if item.link == "leaf0.up0")
    assert busiest.utilisation == pytest.approx(1)
    assert busiest.flows == 2
    later = flows(topology, rows, f"fail-link:link=leaf0.up1,at={round(ALONE_S * 5e11)}ps")
    healthy = flows(topology, rows)
    if routing == "ecmp":  # the hash may have chosen one port for both
        assert (later.finish_s >= healthy.finish_s).all()
    else:
        assert later.finish_s == pytest.approx(1.5 * ALONE_S, rel=1e-9)
        assert sum(item.bytes for item in later.bottlenecks if ".up" in item.link) == pytest.approx(2 * SIZE)


def test_a_rank_that_comes_late(cluster_file):
    topology = cluster_file(SWITCH)
    late = collective(topology, "slow-rank:rank=3,delay=1ms")
    assert late.time_s == pytest.approx(collective(topology).time_s + 1e-3, abs=1e-12)
    assert late.effects[0].description == "rank 3 came 1ms late: 4 ranks ended later, the last one by 1 ms"
    rows = [(0.0, 0, 1, SIZE), (0.0, 0, 1, SIZE), (0.0, 2, 3, SIZE)]
    result = flows(topology, rows, "slow-rank:rank=2,delay=1ms")
    assert result.finish_s == pytest.approx(LATENCY_S + np.array([2, 2, 1]) * ALONE_S + np.array([0, 0, 1e-3]))
    assert result.effects[0].description == "1 transfers start later"


@pytest.mark.parametrize("workers", [2, 5, 16, 64, pytest.param(256, marks=pytest.mark.slow)])
def test_jitter_reaches_others_as_messages_take_it_there(cluster_file, workers):
    topology, fault = cluster_file(SWITCH), "jitter:latency=5us"
    planned = planned_collective(topology, workers=workers)
    drawn = FaultyNetwork(simpy.Environment(initial_time=0), planned.cluster, make_faults([fault]))
    rounds = [(index, time) for index, step in enumerate(planned.timed.schedule.steps) for time in range(step.times)]
    assert len(rounds) == 2 * (workers - 1)
    hop_ps = planned.timed.duration_ps // len(rounds)
    # Last passage: a rank sends once its own last message and that of the one before it have been delivered.
    ends_ps, latest_ps = np.zeros(workers, np.int64), 0
    for each in rounds:
        late_ps = drawn.late_ps(0, *each, workers)
        latest_ps += int(late_ps.max())
        ends_ps = np.maximum(ends_ps, np.roll(ends_ps, 1)) + hop_ps + late_ps
    result = collective(topology, fault, workers=workers)
    assert round(result.time_s * 1e12) == ends_ps.max()
    assert np.rint(np.array(result.rank_finish_s) * 1e12).tolist() == np.maximum(ends_ps, np.roll(ends_ps, 1)).tolist()
    assert result.effects == (drawn.effects()[0],)
    # In rounds all would wait for the latest of all.
    added_ps = ends_ps.max() - planned.timed.duration_ps
    assert added_ps <= latest_ps * (1 if workers < 16 else 0.7)


def test_messages_may_be_waited_for_alone_without_any_fault(cluster_file):
    topology = cluster_file('kind = "fat-tree"\nhosts_per_leaf = 4\nuplinks_per_leaf = 2')
    asked = {"workers": 16, "algorithm": "pairwise", "kind": "all_to_all", "placement": "random", "seed": 1}
    clocked, by_message = collective(topology, **asked), collective(topology, **asked, execution="by-message")
    assert by_message.clocked_s == clocked.time_s > by_message.time_s >= by_message.lower_bound_s
    assert by_message.to_json()["clocked_s"] == clocked.time_s
    assert "where all ranks wait for whole rounds: by message it takes -" in " ".join(str(by_message).split())
    assert by_message.spec_sha256 != clocked.spec_sha256
    assert clocked.clocked_s is None
    assert "clocked_s" not in clocked.to_json()
    assert sum(item.bytes for item in by_message.bottlenecks) == pytest.approx(
        sum(item.bytes for item in clocked.bottlenecks)
    )
    # Where links are not shared nothing changes.
    alone = collective(topology, execution="by-message")
    assert alone.clocked_s == alone.time_s
    assert "it takes the same" in " ".join(str(alone).split())


def test_executions_that_cannot_be_are_refused(cluster_file):
    topology = cluster_file(SWITCH)
    with pytest.raises(UnknownNameError, match="did you mean 'by-message'"):
        collective(topology, execution="by-mesage")
    with pytest.raises(OptionError, match="under jitter:latency=1us ranks wait for their own messages alone"):
        collective(topology, "jitter:latency=1us", execution="clocked")
    with pytest.raises(OptionError, match="leave it out, or --groups, --network packet"):
        collective(topology, execution="by-message", cross_check=True)
    with pytest.raises(OptionError, match="of one group of ranks"):
        collective(topology, execution="by-message", groups="tp=2,dp=rest")


def test_jitter_delays_transfers_alike_on_any_traffic(cluster_file):
    rows = [(0.001 * index, 0, 1, 1000) for index in range(2000)]
    late_s = (
        flows(cluster_file(SWITCH), rows, "jitter:latency=5us").finish_s - flows(cluster_file(SWITCH), rows).finish_s
    )
    assert late_s.mean() == pytest.approx(5e-6, rel=0.05)
    shorter = flows(cluster_file(SWITCH), rows[:10], "jitter:latency=5us")
    longer = flows(cluster_file(SWITCH), [(*row[:3], 2000) for row in rows[:10]], "jitter:latency=5us")
    assert longer.finish_s - shorter.finish_s == pytest.approx(1000 / RATE_BPS, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ring", "double-binary-tree", "halving-doubling"])
def test_everything_at_once_is_the_same_twice_and_never_under_the_bound(cluster_file, algorithm):
    topology = cluster_file(TREE)
    asked = {"workers": 8, "size": SIZE // 40, "algorithm": algorithm}
    one, two = (collective(topology, *EVERYTHING, **asked) for _ in range(2))
    assert one.to_json() == two.to_json()
    assert one.to_json()["faults"] == list(EVERYTHING)
    healthy = collective(topology, **asked)
    assert one.time_s > healthy.time_s > 0
    assert one.time_s >= one.lower_bound_s >= healthy.lower_bound_s
    assert not any(effect.nothing for effect in one.effects)
    other = collective(topology, *EVERYTHING, **asked, seed=1)
    assert other.time_s != one.time_s


def test_transfers_with_everything_at_once(cluster_file):
    rows = [(index * 1e-5, index % 4, (index + 2) % 4, SIZE / 20) for index in range(20)]
    topology = cluster_file(TREE)
    one, two = (flows(topology, rows, *EVERYTHING) for _ in range(2))
    assert one.to_json() == two.to_json()
    assert (one.finish_s > flows(topology, rows).finish_s).all()


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("slow-link:link=leaf0.up1,factor=0.5", "no message crossed it"),
        ("slow-link:link=leaf0.up1,factor=0.5,at=1ns", "no message crossed it"),
        ("slow-link:link=*,factor=0.5,at=1s", "all was over before 1s"),
        ("fail-link:link=leaf0.up1", "no message would have crossed it"),
        ("fail-link:link=leaf0.up1,at=1ns", "no message would have crossed it"),
        ("background:load=0.001,size=1GiB", "0 messages"),
    ],
)
def test_a_fault_that_changes_nothing_is_a_warning(cluster_file, fault, why):
    # A ring in order leaves each leaf through one up-port.
    with pytest.warns(S2SimWarning, match=rf"--fault {fault.replace('*', '.')} changes nothing here: {why}"):
        result = collective(cluster_file(TREE), fault)
    assert result.time_s == collective(cluster_file(TREE)).time_s


def test_a_slow_rank_that_nobody_waits_for_is_a_warning(cluster_file):
    topology = cluster_file(SWITCH)
    with pytest.warns(S2SimWarning, match="delay=1us changes nothing here"):
        collective(topology, "slow-rank:rank=1,delay=1us", "slow-rank:rank=2,delay=2us")
    # A leaf that comes before what it is sent.
    with pytest.warns(S2SimWarning, match="rank 3 came 1us late, and nobody ended later"):
        collective(topology, "slow-rank:rank=3,delay=1us", kind="broadcast", algorithm="chain:chunks=1")
    with pytest.warns(S2SimWarning, match="0 transfers start later"):
        flows(topology, [(0.0, 0, 1, SIZE)], "slow-rank:rank=1,delay=1us")


def test_seeds_are_used_where_faults_draw(cluster_file):
    topology = cluster_file(SWITCH)
    collective(topology, "jitter:latency=1us", seed=3)
    with pytest.warns(S2SimWarning, match="nor a fault draws"):
        collective(topology, "slow-rank:rank=1,delay=1us", seed=3)


def test_who_cannot_be_reached_ends_the_run(cluster_file):
    for when in ("", ",at=10us"):
        with pytest.raises(TopologyError, match=r"rank 2 cannot reach rank 3 after node2\.nic0\.out failed"):
            collective(cluster_file(TREE), f"fail-link:link=node2.nic0.out{when}")


def test_a_switch_that_reduces_has_no_other_way(cluster_file):
    slow = collective(cluster_file(TREE), "slow-link:link=leaf0.up0,factor=0.5,at=1us", algorithm="in-network")
    assert slow.time_s > collective(cluster_file(TREE), algorithm="in-network").time_s
    for when in ("", ",at=10us"):
        with pytest.raises(TopologyError, match=r"tree"):
            collective(cluster_file(TREE), f"fail-link:link=leaf0.up0{when}", algorithm="in-network")


def test_packets_know_faults_that_last(cluster_file):
    faults = ("fail-link:link=leaf0.up0", "slow-link:link=node0.*,factor=0.5")
    planned = planned_collective(cluster_file(TREE), *faults, workers=4, size_bytes=2**20, cross_check=True)
    check = collective_result(planned).cross_check
    assert abs(check.difference) < 0.02
    with pytest.raises(OptionError, match="jitter:latency=1us needs the fluid network"):
        flows(cluster_file(TREE), [(0.0, 0, 1, SIZE)], "jitter:latency=1us", network="packet")
    with pytest.raises(OptionError, match="needs the fluid network"):
        flows(cluster_file(TREE), [(0.0, 0, 1, SIZE)], "fail-link:link=leaf0.up0,at=1us", cross_check=True)


def test_a_timeline_shows_what_happens(cluster_file):
    def spans(*faults):
        planned = planned_collective(cluster_file(SWITCH), *faults, workers=4)
        return [(span.start_us, span.end_us) for span in collective_timeline(planned).spans]

    slow = spans("slow-rank:rank=1,delay=10us", "slow-link:link=node0.nic0.in,factor=0.5,at=1ms")
    # Rank 0 waits for rank 1, to which it sends; ranks 2 and 3 begin.
    assert sorted({start for start, _ in slow})[:2] == [0, 10]
    assert sum(start == 0 for start, _ in slow) == sum(start == 10 for start, _ in slow) == 2
    assert max(end for _, end in slow) > max(end for _, end in spans()) + 10


@pytest.mark.parametrize("fault", ["jitter:latency=3us", "slow-rank:rank=2,delay=30us"])
def test_what_is_foreseen_is_what_messages_would_give(cluster_file, fault, monkeypatch):
    topology = cluster_file(SWITCH)
    foreseen = collective(topology, fault, workers=9)
    monkeypatch.setattr("s2sim.simulation.faults.fault.critical_path", lambda *_: None)
    sent = collective(topology, fault, workers=9)
    assert (foreseen.time_s, foreseen.rank_finish_s, foreseen.effects) == (
        sent.time_s,
        sent.rank_finish_s,
        sent.effects,
    )
    assert [(item.link, item.shared_by) for item in foreseen.bottlenecks] == [
        (item.link, tuple(replace(pair, bytes=pytest.approx(pair.bytes)) for pair in item.shared_by))
        for item in sent.bottlenecks
    ]


@pytest.mark.parametrize("faults", [("jitter:latency=3us",), ("slow-rank:rank=1,delay=30us",), ()])
def test_pictures_show_what_faults_do(cluster_file, faults):
    planned = planned_collective(cluster_file(SWITCH), *faults, workers=4)
    rounds = []
    watch_rounds(planned, rounds.append)
    assert max(int(ran.end_ps.max()) for ran in rounds) == round(collective_result(planned).time_s * 1e12)
