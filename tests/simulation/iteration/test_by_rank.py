"""Ranks that compute unequally long: each begins when it has posted, and goes on when its own part is done."""

from dataclasses import replace

import numpy as np
import pytest

from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimError
from s2sim.libraries.lowering import choose_library
from s2sim.reducers.script import Call, Post, Recording, Wait, Work
from s2sim.simulation import iteration as run
from s2sim.simulation import skewed_communicator as by_rank
from s2sim.simulation.accounting import IterationSettings
from s2sim.simulation.bucketing.policy import Bucket, BucketExchange
from s2sim.simulation.device import Compute
from s2sim.simulation.faults.registry import make_faults
from s2sim.simulation.iteration import replay_iterations
from s2sim.simulation.plan import make_plan
from s2sim.simulation.skewed_communicator import can_skew
from s2sim.topology.cluster import build_cluster
from s2sim.topology.hardware import load_gpu
from s2sim.topology.read_file import load_shape

MS = 10**9
WIRE = "nccl:timing=wire"
ENCODE, DECODE = Work("encode", 10**8), Work("decode", 10**8)


def timer_of(make_cluster, fabric, ranks, algorithm="ring"):
    return Timer(make_cluster(ranks, fabric), algorithm)


def call_of(ranks, elements, kind="all_reduce", **more):
    op = {"all_reduce": "sum", "broadcast": "copy", "all_gather": "gather", "reduce": "sum"}[kind]
    return Call(kind, op, "float32", 4, (elements,) * ranks, more.pop("size_from_data", False), "x", **more)


def recorded(ranks, *calls, works=()):
    """Return what posts calls at once and then waits for all, with work before and after."""
    posts = tuple(Post(number) for number in range(len(calls)))
    script = (*works[:1], *posts, Wait(tuple(range(len(calls)))), *works[1:])
    return Recording(calls, (script,) * ranks)


def iterate(recordings, timer, *, library=WIRE, slower=None, faults=(), backward_ms=10, priorities=None):
    slower = np.ones((1, timer.workers)) if slower is None else slower
    compute = Compute(*(np.full(len(recordings), each * MS, np.int64) for each in (1, backward_ms)), 0, 0.0)
    exchange = [
        BucketExchange(Bucket((place,), priorities[place] if priorities else 0), recording)
        for place, recording in enumerate(recordings)
    ]
    library = choose_library(library)
    return replay_iterations(
        exchange, compute, timer, load_gpu("a100"), library, IterationSettings(slower), faults=make_faults(faults)
    )


def ends_ps(found):
    return [spent.begun_ps[-1] for spent in found.by_rank]


@pytest.fixture
def clocked(monkeypatch):
    """Return what iterations are where launches begin with their last rank."""

    def clock(*args, **kwargs):
        with monkeypatch.context() as patched:
            patched.setattr(run, "can_skew", lambda *_: False)
            return iterate(*args, **kwargs)

    return clock


def test_two_ranks_by_hand(make_cluster, switch_fabric):
    timer = timer_of(make_cluster, switch_fabric, 2)
    call = call_of(2, 10**6)
    alone_ps = timer.time(make_plan(recorded(2, call)).lowered[0].demands[0]).duration_ps
    found = iterate([recorded(2, call)], timer, faults=("slow-rank:rank=1,delay=5ms",))
    assert ends_ps(found) == [16 * MS + alone_ps] * 2
    early, late = found.by_rank
    assert early.waiting == ((11 * MS, 16 * MS),)
    assert late.waiting == ((16 * MS, 16 * MS),)
    assert early.in_flight == late.in_flight == ((16 * MS, 16 * MS + alone_ps),)
    assert found.waiting_ps == 2.5 * MS


def test_a_ring_of_four_with_late_ranks_is_the_last_passage_recursion(make_cluster, switch_fabric, clocked):
    slow = "\n[[links]]\nname = 'node2.nic0.out'\nrate = '30GiB/s'\n"
    ranks = 4
    timer = timer_of(make_cluster, switch_fabric + slow, ranks)
    recording = recorded(ranks, call_of(ranks, 10**7))
    timed = timer.time(make_plan(recording).lowered[0].demands[0])
    hop = timed.schedule.steps[0].round
    assert hop.pattern.src.tolist() == [0, 1, 2, 3]
    assert hop.pattern.dst.tolist() == [1, 2, 3, 0]
    hop_ps = timed.times.message_ps(hop)[1].tolist()
    gained = []
    for late_ms in ((0, 0, 7, 0), (7, 0, 0, 0), (3, 0, 1, 2), (0.1, 0.2, 0, 0.05)):
        slower = 1 + np.array([late_ms]) / 11
        found = iterate([recording], timer, slower=slower)
        posted = [spent.ready[0][2] for spent in found.by_rank]
        done = list(posted)
        for _ in range(2 * (ranks - 1)):
            arrived = [max(done[rank], posted[(rank + 1) % ranks]) + hop_ps[rank] for rank in range(ranks)]
            done = [max(arrived[rank], arrived[rank - 1]) for rank in range(ranks)]
        assert ends_ps(found) == done
        gained += [max(posted) + timed.duration_ps - max(done)]
        assert ends_ps(clocked([recording], timer, slower=slower)) == [max(posted) + timed.duration_ps] * ranks
    # A rank that does not cross the slow link lets the others be done with some of that before it comes.
    assert gained[1] > 0
    assert min(gained) >= 0


def test_a_root_goes_on_while_others_have_not_posted(make_cluster, switch_fabric):
    ranks = 4
    timer = timer_of(make_cluster, switch_fabric, ranks, "auto")
    found = iterate(
        [recorded(ranks, call_of(ranks, 10**3, "broadcast", root=0))],
        timer,
        library="mpi:timing=wire",
        faults=("slow-rank:rank=3,delay=5ms",),
    )
    ends = ends_ps(found)
    assert found.launches[0].timed.schedule.text.startswith("binomial")
    assert ends[3] > 16 * MS
    assert any(end < 16 * MS for end in ends)
    early = found.by_rank[ends.index(min(ends))]
    # It waits for others until its own part is done, and no longer.
    assert early.waiting == ((11 * MS, early.begun_ps[-1]),)


@pytest.mark.parametrize("topology", ["tcp-10g", "dgx-a100"])
@pytest.mark.parametrize("library", ["ideal", "nccl", WIRE, "mpi", "gloo"])
def test_ranks_that_are_as_fast_as_others_end_with_them(topology, library, clocked):
    ranks = 16
    timer = Timer(build_cluster(load_shape(topology), ranks))
    grouped = recorded(ranks, call_of(ranks, 10**5), call_of(ranks, 10**6), works=(ENCODE, DECODE))
    unequal = Call("all_gather", "gather", "float32", 4, tuple(range(1000, 1000 + ranks)), True, "sizes first")
    buckets = [grouped, recorded(ranks, unequal, works=(ENCODE,)), recorded(ranks, call_of(ranks, 10))]
    slower = np.ones((2, ranks))
    # So little that no time rounded up to picoseconds is another.
    slower[:, 3] = np.nextafter(1, 0)
    found, alike = (how(buckets, timer, library=library, slower=slower, backward_ms=2) for how in (iterate, clocked))
    assert found.parts == alike.parts
    assert [launch.parts for launch in found.launches] == [launch.parts for launch in alike.launches]
    assert [(each.start_ps, each.end_ps) for each in found.completed] == [
        (each.start_ps, each.end_ps) for each in alike.completed
    ]


def test_several_launches_at_once_groups_of_ranks_and_too_many_messages_are_clocked(
    make_cluster, switch_fabric, monkeypatch
):
    timer = timer_of(make_cluster, switch_fabric, 4)
    recording = recorded(4, call_of(4, 10))
    whole = make_plan(recording, choose_library(WIRE))
    group = replace(whole, lowered=(replace(whole.lowered[0], ranks=(0, 1)),))
    assert can_skew(whole, timer)
    assert not can_skew(group, timer)
    assert not can_skew(replace(whole, in_flight=2), timer)
    messages = 6 * 4
    monkeypatch.setattr(by_rank, "_MAX_MESSAGES", messages)
    assert can_skew(whole, timer)
    assert not can_skew(replace(whole, lowered=whole.lowered * 2), timer)


def test_all_ranks_go_through_launches_in_one_order(make_cluster, switch_fabric):
    ranks = 4
    timer = timer_of(make_cluster, switch_fabric, ranks)
    rng = np.random.default_rng(3)
    buckets = [recorded(ranks, call_of(ranks, int(size)), works=(ENCODE,)) for size in (10**7, 10**6, 10**6, 10**7)]
    for _ in range(10):
        slower = rng.lognormal(0, 0.5, (3, ranks))
        found = iterate(buckets, timer, slower=slower, backward_ms=1, priorities=(3, 2, 1, 0))
        assert len(found.launches) == 12
        for spent in found.by_rank:
            assert len(spent.in_flight) == 12
        assert all(
            parts.iteration == length
            for parts, length in zip(found.parts, np.diff(found.activity.begun_ps), strict=True)
        )


def test_a_hang_is_named(make_cluster, switch_fabric):
    timer = timer_of(make_cluster, switch_fabric, 4)
    whole = recorded(4, call_of(4, 10))
    broken = Recording(whole.calls, (*whole.scripts[:3], ()))
    with pytest.raises(S2SimError, match="hangs"):
        iterate([broken], timer, faults=("slow-rank:rank=1,delay=5ms",))


@pytest.mark.slow
def test_sixty_four_unlike_ranks_are_done_no_later_than_clocked_ones(clocked):
    ranks = 64
    timer = Timer(build_cluster(load_shape("tcp-10g"), ranks))
    buckets = [recorded(ranks, call_of(ranks, size)) for size in (10**4, 10**6, 4 * 10**6)]
    slower = np.random.default_rng(1).lognormal(0, 0.05, (5, ranks))
    found, last = (how(buckets, timer, library="nccl", slower=slower, backward_ms=30) for how in (iterate, clocked))
    means = [np.mean([parts.iteration for parts in each.parts]) for each in (found, last)]
    assert means[0] < means[1]
    assert means[0] > 0.9 * means[1]
    assert len({id(spent) for spent in found.by_rank}) == ranks
