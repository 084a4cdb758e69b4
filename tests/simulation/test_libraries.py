"""What libraries execute, in simulated time: on a switch, against closed forms worked out by hand."""

import pytest

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.timer import Timer
from s2sim.libraries.lowering import LocalWork, choose_library
from s2sim.reducers.script import Call, Post, Recording, Wait, Work
from s2sim.simulation.bucketing.policy import Bucket, BucketExchange, merge_recordings
from s2sim.simulation.plan import local_work_ps, make_plan, work_ps
from s2sim.simulation.run import replay
from s2sim.topology.hardware import load_gpu

RATE_BPS = 50 * 2**30
WORKERS = 4
BITS = Call("all_reduce", "or", "uint8", 1, (400_000,) * WORKERS, False, "bits")
VALUES = Call("all_reduce", "sum", "float32", 4, (1_000_000,) * WORKERS, False, "values")
HALVES = Call("all_reduce", "sum", "float16", 2, (1_000_000,) * WORKERS, False, "halves")
GATHER = Call("all_gather", "gather", "uint8", 1, (1_000_000, 10, 0, 500_000), True, "pairs")
LONGEST = 1_000_000


@pytest.fixture
def gpu():
    return load_gpu("a100")


@pytest.fixture
def timer(make_cluster, switch_fabric):
    return Timer(make_cluster(WORKERS, switch_fabric), "ring")


@pytest.fixture
def staged_timer(make_cluster, switch_fabric):
    # Messages cross PCIe as well, which has to be no slower than the network to leave the closed forms alone.
    return Timer(make_cluster(WORKERS, switch_fabric, extra='[pcie]\nrate = "64GB/s"'), "ring")


def reduce_ps(size_bytes):
    return 2 * (WORKERS - 1) * (1e6 + size_bytes / WORKERS / RATE_BPS * 1e12)


def gather_ps(size_bytes):
    return (WORKERS - 1) * (1e6 + size_bytes / RATE_BPS * 1e12)


def alone(call):
    return Recording((call,), ((Post(0), Wait((0,))),) * WORKERS)


def run(recording, timer, gpu, library):
    return replay(recording, timer, gpu, make_plan(recording, choose_library(library)))


def works_ps(gpu, *local):
    return sum(local_work_ps(each, gpu, None) for each in local)


@pytest.mark.parametrize(
    ("library", "call", "network_ps", "local"),
    [
        ("ideal", BITS, reduce_ps(400_000), ()),
        ("mpi:buffers=device", BITS, reduce_ps(400_000), ()),
        ("nccl", BITS, reduce_ps(3_200_000), (LocalWork(3_600_000, 1),) * 2),
        ("nccl:or=gather", BITS, gather_ps(400_000), (LocalWork(2_000_000, 1),)),
        # Every rank sends three stretches at once over its only port, then they go around the ring.
        ("nccl:or=owners", BITS, None, (LocalWork(500_000, 1),)),
        ("nccl", HALVES, reduce_ps(2_000_000), ()),
        ("mpi:buffers=device", HALVES, reduce_ps(4_000_000), (LocalWork(6_000_000, 1),) * 2),
        ("mpi:half=user-op,buffers=device", HALVES, reduce_ps(2_000_000), ()),
        # The host waits twice: for its own size, and for all sizes.
        (
            "nccl",
            GATHER,
            gather_ps(8) + gather_ps(LONGEST),
            (LocalWork(2_000_000, 1, host_syncs=2), LocalWork(2 * 1_500_010, 1)),
        ),
        ("nccl:gather=broadcast", GATHER, None, (LocalWork(host_syncs=2),)),
        # Rounds of a ring are clocked by the largest contribution, padded or not.
        ("mpi:buffers=device", GATHER, gather_ps(8) + gather_ps(LONGEST), (LocalWork(host_syncs=1),)),
        ("ideal", GATHER, gather_ps(LONGEST), (LocalWork(host_syncs=1),)),
    ],
)
def test_a_call_takes_the_time_of_its_launches_and_of_the_work_between(library, call, network_ps, local, timer, gpu):
    found = run(alone(call), timer, gpu, library)
    if network_ps is None:
        network_ps = sum(launch.timed.duration_ps for launch in found.launches)
    assert found.total_ps == pytest.approx(network_ps + works_ps(gpu, *local), abs=20)
    assert (found.encode_ps, found.decode_ps) == (0, 0)


def test_grouped_broadcasts_cost_the_sum_of_what_is_gathered(timer, gpu):
    """A pipeline around the switch: every rank passes all bytes on once, and the chunks' fill is small."""
    found = run(alone(GATHER), timer, gpu, "nccl:gather=broadcast")
    sizes, group = found.launches
    assert sizes.timed.schedule.demand == Demand("all_gather", (1,) * WORKERS, 8)
    together = 1_500_010 / RATE_BPS * 1e12
    assert together < group.timed.duration_ps < 1.5 * together + 10 * 1e6
    assert group.timed.duration_ps < gather_ps(LONGEST)


def test_owners_exchange_by_all_to_all(timer, gpu):
    found = run(alone(BITS), timer, gpu, "nccl:or=owners")
    assert [launch.timed.schedule.demand.kind for launch in found.launches] == ["all_to_all", "all_gather"]
    assert found.launches[1].start_ps - found.launches[0].end_ps == works_ps(gpu, LocalWork(500_000, 1))
    assert found.launches[1].timed.duration_ps == pytest.approx(gather_ps(100_000), abs=6)


@pytest.mark.parametrize("library", ["gloo", "mpi"])
def test_buffers_cross_pcie_before_and_after(library, timer, staged_timer, gpu):
    bare = run(alone(VALUES), timer, gpu, library)
    found = run(alone(VALUES), staged_timer, gpu, library)
    assert bare.total_ps == pytest.approx(reduce_ps(4_000_000) + gpu.host_sync_ps, abs=6)
    assert found.total_ps - bare.total_ps == pytest.approx(2 * 4_000_000 / 64e9 * 1e12, abs=6)
    assert found.launches[0].start_ps == pytest.approx(gpu.host_sync_ps + 4_000_000 / 64e9 * 1e12, abs=1)


def later(pause, *calls):
    """Every call is posted a pause after the one before it; then all are waited for."""
    steps = [step for number in range(len(calls)) for step in (Post(number), pause)]
    return Recording(calls, ((*steps, Wait(tuple(range(len(calls))))),) * WORKERS)


def test_one_communicator_of_nccl_runs_its_launches_in_order(timer, gpu):
    pause = Work("encode", 10**7)
    queued = run(later(pause, VALUES, HALVES), timer, gpu, "nccl")
    first, second = queued.launches
    assert second.start_ps == first.end_ps > work_ps(pause, gpu)
    assert queued.total_ps == pytest.approx(reduce_ps(4_000_000) + reduce_ps(2_000_000), abs=12)
    shared = run(later(pause, VALUES, HALVES), timer, gpu, "ideal")
    assert shared.launches[1].start_ps == work_ps(pause, gpu)
    assert shared.launches[1].start_ps < shared.launches[0].end_ps
    # Posted at a time, done at another: the wait for the first is part of the second's time.
    assert queued.completed[1].start_ps == work_ps(pause, gpu)
    assert queued.completed[1].end_ps == second.end_ps


def test_gloo_has_two_in_flight(timer, gpu):
    recording = Recording((VALUES, VALUES, VALUES), ((Post(0), Post(1), Post(2), Wait((0, 1, 2))),) * WORKERS)
    found = run(recording, timer, gpu, "gloo")
    first, second, third = found.launches
    assert first.start_ps == second.start_ps == gpu.host_sync_ps
    assert third.start_ps == min(first.end_ps, second.end_ps) + gpu.host_sync_ps
    # The two share the ports: each takes longer than alone, together no longer than one after the other.
    assert reduce_ps(4_000_000) < first.end_ps - first.start_ps <= 2 * reduce_ps(4_000_000)


def test_what_is_posted_at_once_is_one_launch_only_where_the_library_groups(timer, gpu):
    recording = Recording((VALUES, BITS), ((Post(0), Post(1), Wait((0, 1))),) * WORKERS)
    turn = LocalWork(3_600_000, 1)
    grouped = run(recording, timer, gpu, "nccl")
    assert len(grouped.launches) == 1
    assert grouped.total_ps == pytest.approx(reduce_ps(7_200_000) + works_ps(gpu, turn, turn), abs=6)
    single = run(recording, timer, gpu, "mpi:buffers=device")
    assert len(single.launches) == 2
    assert single.total_ps == pytest.approx(reduce_ps(4_000_000) + reduce_ps(400_000), abs=12)
    # Of other kinds they are no group, and queue.
    apart = run(recording, timer, gpu, "nccl:or=gather")
    assert apart.total_ps == pytest.approx(
        reduce_ps(4_000_000) + gather_ps(400_000) + works_ps(gpu, LocalWork(2_000_000, 1)), abs=12
    )


def test_buckets_that_are_posted_at_once_are_launches_of_their_own(timer, gpu):
    """As DistributedDataParallel starts an all-reduce a bucket; the calls of one bucket's program are a group."""
    several = Recording((VALUES, VALUES), ((Post(0), Post(1), Wait((0, 1))),) * WORKERS)
    assert len(run(several, timer, gpu, "nccl").launches) == 1
    buckets = [BucketExchange(Bucket((number,)), recording) for number, recording in enumerate((several, alone(BITS)))]
    found = run(merge_recordings(buckets), timer, gpu, "nccl")
    assert [len(launch.parts) for launch in found.launches] == [2, 1]
    alone_ps = [run(each.recording, timer, gpu, "nccl").total_ps for each in buckets]
    assert found.total_ps == pytest.approx(sum(alone_ps), abs=12)


def test_an_exchange_of_sizes_holds_the_program_until_the_host_knows_them(timer, gpu):
    """Work after the post hides behind the payload at best, never behind the exchange."""
    work = Work("decode", 10**6)
    script = (Post(0), work, Wait((0,)), Post(1), Wait((1,)))
    recording = Recording((GATHER, BITS), (script,) * WORKERS)
    found = run(recording, timer, gpu, "nccl:gather=broadcast")
    sizes, payload, _ = found.launches
    held_until = 2 * gpu.host_sync_ps + sizes.timed.duration_ps
    assert payload.start_ps == held_until
    assert found.completed[0].start_ps == gpu.host_sync_ps
    posted_early = Recording((GATHER, BITS), ((Post(0), Post(1), Wait((0, 1))),) * WORKERS)
    assert run(posted_early, timer, gpu, "nccl").completed[1].start_ps == held_until + works_ps(
        gpu, LocalWork(2_000_000, 1)
    )
    assert run(posted_early, timer, gpu, "ideal").completed[1].start_ps == gpu.host_sync_ps


@pytest.mark.parametrize("library", ["ideal", "nccl", "nccl:or=owners,gather=broadcast", "gloo", "mpi"])
def test_ranks_with_different_scripts_end_together(library, timer, gpu):
    calls = (BITS, GATHER, VALUES)
    scripts = tuple(
        (Work("encode", 10**6 * rank), Post(0), Post(1), Wait((0, 1)), Post(2), Work("decode", 10**7), Wait((2,)))
        for rank in range(WORKERS)
    )
    found = run(Recording(calls, scripts), timer, gpu, library)
    assert sorted(number for each in found.completed for number in each.calls) == [0, 1, 2]
    assert found.total_ps == found.encode_ps + found.communication_ps + found.decode_ps
    assert min(found.encode_ps, found.communication_ps, found.decode_ps) >= 0


def test_a_plan_with_one_call_closed_runs_that_call_as_asked(timer, gpu):
    recording = Recording((BITS, HALVES), ((Post(0), Wait((0,)), Post(1), Wait((1,))),) * WORKERS)
    plan, ideal = make_plan(recording, choose_library("mpi:buffers=device")), make_plan(recording)
    closed = replay(recording, timer, gpu, plan.closed([1], ideal))
    assert closed.total_ps == replay(recording, timer, gpu).total_ps
    assert replay(recording, timer, gpu, plan).total_ps > closed.total_ps
    assert plan.unordered(ideal).lowered == plan.lowered
    assert plan.unordered(ideal).in_flight is None


ROWS = Call(
    "all_to_all",
    "exchange",
    "uint8",
    1,
    (1_000_000, 500_000, 0, 20),
    True,
    "rows",
    ((0, 900_000, 100_000, 0), (500_000, 0, 0, 0), (0,) * 4, (5, 5, 5, 5)),
)


@pytest.mark.parametrize(
    ("library", "host_syncs"), [("ideal", 1), ("nccl", 2), ("gloo", 2), ("mpi", 2), ("mpi:buffers=device", 1)]
)
def test_unequal_blocks_wait_for_an_exchange_of_their_sizes(library, host_syncs, timer, gpu):
    """Everything goes at once over each rank's only port: the fullest of these is busy until the end."""
    found = run(alone(ROWS), timer, gpu, library)
    *sizes, payload = found.launches
    fullest = 1_000_000 / RATE_BPS * 1e12
    assert payload.timed.duration_ps == pytest.approx(1e6 + fullest, abs=2)
    assert [launch.timed.duration_ps for launch in sizes] == (
        [] if library == "ideal" else [pytest.approx(1e6 + 3 * 8 / RATE_BPS * 1e12, abs=2)]
    )
    assert found.total_ps == sum(launch.timed.duration_ps for launch in found.launches) + host_syncs * gpu.host_sync_ps
