"""Iterations in simulated time against closed forms: what can be worked out by hand, and the phase without compute."""

import numpy as np
import pytest

from s2sim.collectives.timing.timer import Timer
from s2sim.libraries.lowering import choose_library
from s2sim.reducers.script import AwaitGradient, Call, Post, Recording, Wait, Work
from s2sim.simulation.accounting import IterationSettings
from s2sim.simulation.bucketing.policy import Bucket, BucketExchange, in_hook, merge_recordings
from s2sim.simulation.device import Compute
from s2sim.simulation.faults.registry import make_faults
from s2sim.simulation.iteration import replay_iterations
from s2sim.simulation.plan import make_plan, to_request, work_ps
from s2sim.simulation.run import replay
from s2sim.topology.cluster import build_cluster
from s2sim.topology.hardware import load_gpu
from s2sim.topology.read_file import load_shape

WORKERS = 4
MS = 10**9
ENCODE, DECODE = Work("encode", 10**8), Work("decode", 10**9)


@pytest.fixture
def gpu():
    return load_gpu("a100")


@pytest.fixture
def timer(make_cluster, switch_fabric):
    return Timer(make_cluster(WORKERS, switch_fabric), "ring")


def dense(elements, *, works=(), before=()):
    """Return what ranks do that all-reduce so many elements, with work before and after."""
    call = Call("all_reduce", "sum", "float32", 4, (elements,) * WORKERS, False, "x")
    script = (*before, *works[:1], Post(0), Wait((0,)), *works[1:])
    return Recording((call,), (script,) * WORKERS)


def iterate(exchange, compute, timer, gpu, *, library="ideal", count=1, faults=(), slower=None, **conditions):
    slower = np.ones((count, WORKERS)) if slower is None else slower
    return replay_iterations(
        [BucketExchange(Bucket(tensors, priority), recording) for tensors, priority, recording in exchange],
        compute,
        timer,
        gpu,
        choose_library(library),
        IterationSettings(slower, **conditions),
        faults=make_faults(faults),
    )


def computing(forward_ms, backward_ms, optimizer_ms=0, memory_bound=0.0):
    times = (np.array(each, np.int64) * MS for each in (forward_ms, backward_ms))
    return Compute(*times, optimizer_ms * MS, memory_bound)


def alone_ps(recording, timer):
    return timer.time(to_request(recording.calls[0]).demand).duration_ps


@pytest.mark.parametrize("library", ["ideal", "nccl", "gloo"])
@pytest.mark.parametrize("works", [(), (ENCODE,), (ENCODE, DECODE)])
def test_without_compute_one_bucket_takes_what_the_phase_takes(timer, gpu, library, works):
    recording = dense(10**6, works=works)
    nothing = computing([0], [0])
    found = iterate([((0,), 0, recording)], nothing, timer, gpu, library=library).typical
    phase = replay(recording, timer, gpu, make_plan(recording, choose_library(library)))
    assert found.iteration == phase.total_ps
    assert found.codec == phase.encode_ps + phase.decode_ps
    assert found.exposed_communication == phase.communication_ps
    assert (found.forward, found.backward, found.optimizer, found.waiting) == (0, 0, 0, 0)


@pytest.mark.parametrize("sizes", [(10**6, 10**7), (10**7, 10**6), (1, 1), (4 * 10**8, 10)])
def test_two_layers_in_two_buckets_follow_each_other_as_the_closed_form_has_it(timer, gpu, sizes):
    recordings = [dense(size) for size in sizes]
    compute = computing([3, 4], [10, 20], 2)
    exchange = [((place,), 0, recording) for place, recording in enumerate(recordings)]
    found = iterate(exchange, compute, timer, gpu, library="nccl:timing=wire").typical
    first_ps, second_ps = (alone_ps(recording, timer) for recording in recordings)
    ends_ps = max((7 + 10) * MS + first_ps, (7 + 30) * MS) + second_ps
    assert found.iteration == ends_ps + 2 * MS
    assert (found.forward, found.backward, found.optimizer) == (7 * MS, 30 * MS, 2 * MS)
    assert found.exposed_communication == ends_ps - 37 * MS
    assert found.hidden_communication == min(first_ps, 20 * MS)
    assert found.codec == found.waiting == 0


@pytest.mark.parametrize("library", ["ideal", "gloo"])
def test_on_one_thread_buckets_follow_each_other_after_an_agreement(timer, gpu, library):
    """As hooks reduce them: without compute to hide behind, the codec of one bucket hides behind no other."""
    exchange = [BucketExchange(Bucket((place,), 0), dense(10**6, works=(ENCODE, DECODE))) for place in (0, 1)]
    conditions = {"library": library, "streams": 2}
    handed = [(each.bucket.tensors, 0, each.recording) for each in in_hook(exchange)]
    alone = [iterate([each], computing([0], [0]), timer, gpu, **conditions).typical.iteration for each in handed[:1]]
    whole = iterate(handed, computing([0, 0], [0, 0]), timer, gpu, one_at_a_time=True, **conditions)
    assert whole.typical.iteration == 2 * alone[0]
    assert [launch.parts[0][0] for launch in whole.launches] == [0, 1, 2, 3]
    assert [launch.timed.schedule.demand.buffer_bytes for launch in whole.launches] == [1, 4 * 10**6] * 2
    beside = iterate(handed, computing([0, 0], [0, 0]), timer, gpu, **conditions).typical
    assert beside.iteration < whole.typical.iteration


@pytest.mark.parametrize("waits_for_all", [True, False])
@pytest.mark.parametrize(("own", "factor"), [(None, 5.0), (1.5, 1.5)])
def test_an_optimizer_takes_its_own_factor_or_that_of_compute_and_that_of_a_slow_rank(
    timer, gpu, waits_for_all, own, factor
):
    found = iterate(
        [((0, 1), 0, dense(10))],
        computing([3, 4], [10, 20], 2),
        timer,
        gpu,
        slower=np.full((1, WORKERS), 5.0),
        optimizer=own,
        waits_for_all=waits_for_all,
        faults=("slow-rank:rank=1,factor=2",),
    )
    for rank, times in ((0, 1), (1, 2)):
        taken_ps = [each.end_ps - each.start_ps for each in found.by_rank[rank].busy if each.what == "optimizer"]
        assert taken_ps == [2 * MS * factor * times]


def test_with_infinite_bandwidth_an_iteration_is_compute_and_codec(make_cluster, gpu):
    fast = make_cluster(WORKERS, 'kind = "single-switch"', nic='rate = "1e18B/s"')
    recording = dense(10**6, works=(ENCODE, DECODE))
    found = iterate([((0, 1), 0, recording)], computing([3, 4], [10, 20], 2), Timer(fast, "ring"), gpu).typical
    codec_ps = work_ps(ENCODE, gpu) + work_ps(DECODE, gpu)
    # A transfer takes a picosecond at least.
    assert found.iteration == pytest.approx(39 * MS + codec_ps, abs=2 * WORKERS)
    assert found.codec == codec_ps


def test_on_one_stream_a_codec_stands_between_kernels_and_on_two_beside_them(timer, gpu):
    works = (ENCODE, DECODE)
    exchange = [((0,), 0, dense(10, works=works)), ((1,), 0, dense(10))]
    spent_ps = sum(work_ps(work, gpu) for work in works)
    kept_ps = alone_ps(exchange[1][2], timer)
    for memory_bound in (0.0, 0.5, 1.0):
        compute = computing([1, 1], [10, 20], memory_bound=memory_bound)
        one, two = (iterate(exchange, compute, timer, gpu, streams=streams).typical for streams in (1, 2))
        assert one.iteration == 32 * MS + spent_ps + kept_ps
        # Both are memory-bound as far as the share goes, and each is slowed down by the other's traffic.
        m = memory_bound
        slowed = (1 - m + m * (m + 1)) / (1 + m)
        more_ps = spent_ps * (1 + m) * (1 - 1 / (1 - m + m * (m + 1)))
        assert slowed <= 1
        assert two.iteration == pytest.approx(32 * MS + more_ps + kept_ps, abs=10)
        assert two.codec == 0


def test_parts_sum_to_the_iteration_and_cover_it(timer, gpu):
    rng = np.random.default_rng(5)
    for _ in range(20):
        tensors = int(rng.integers(1, 6))
        compute = Compute(
            rng.integers(0, 5 * MS, tensors), rng.integers(0, 9 * MS, tensors), int(rng.integers(0, MS)), 0.5
        )
        exchange = [
            ((place,), 0, dense(int(rng.integers(1, 10**7)), works=(ENCODE, DECODE)[: int(rng.integers(0, 3))]))
            for place in range(tensors)
        ]
        slower = rng.lognormal(0, 0.1, (3, WORKERS))
        found = iterate(exchange, compute, timer, gpu, slower=slower, streams=int(rng.integers(1, 3)))
        begun = found.activity.begun_ps
        assert [parts.iteration for parts in found.parts] == np.diff(begun).tolist()
        assert all(
            min(part for part in (parts.codec, parts.waiting, parts.exposed_communication)) >= 0
            for parts in found.parts
        )
        bound_ps = max((compute.forward_ps.sum() + compute.backward_ps.sum()) * slower[0])
        assert begun[1] >= bound_ps


def test_the_slowest_rank_is_waited_for_and_does_not_wait(timer, gpu):
    recording = dense(10**6)
    compute = computing([10], [20])
    slower = np.array([[1.0, 1.0, 2.0, 1.0]])
    found = iterate([((0,), 0, recording)], compute, timer, gpu, slower=slower)
    assert found.activity.rank == 2
    assert found.typical.waiting == 0
    assert found.typical.iteration == 60 * MS + alone_ps(recording, timer)
    assert found.waiting_ps == pytest.approx(30 * MS * 3 / 4)
    late = iterate([((0,), 0, recording)], compute, timer, gpu, faults=("slow-rank:rank=1,delay=5ms",))
    assert late.typical.iteration == 35 * MS + alone_ps(recording, timer)
    assert late.waiting_ps == pytest.approx(5 * MS * 3 / 4)


def test_what_needs_the_batch_alone_hides_behind_compute(timer, gpu):
    call = Call("all_reduce", "max", "uint8", 1, (10**7,) * WORKERS, False, "rows")
    plain = dense(10**6)
    script = (Post(0), Wait((0,)), AwaitGradient(), Post(1), Wait((1,)))
    early = Recording((call, *plain.calls), (script,) * WORKERS)
    rows_ps = timer.time(to_request(call).demand).duration_ps
    for forward_ms in (1, 100):
        found = iterate([((0,), 0, early)], computing([forward_ms], [0]), timer, gpu).typical
        assert found.iteration == max(rows_ps, forward_ms * MS) + alone_ps(plain, timer)


def test_layers_that_wait_for_their_own_parameters_start_forward_earlier(timer, gpu):
    sizes = (3 * 10**7,) * 3
    compute = computing([5, 5, 5], [1, 1, 1])

    def iteration_ps(first, *, waits):
        exchange = [((place,), abs(place - first), dense(size)) for place, size in enumerate(sizes)]
        library = "nccl:timing=wire"
        return iterate(exchange, compute, timer, gpu, library=library, count=6, waits_for_all=waits).typical.iteration

    each_ps = alone_ps(dense(sizes[0]), timer)
    assert 2 * MS < each_ps < 5 * MS
    # In order of readiness the parameters that forward needs first are there last.
    for waits in (True, False):
        assert iteration_ps(0, waits=waits) == 16 * MS + 3 * each_ps
    # The others come while forward goes on.
    assert iteration_ps(2, waits=True) == 16 * MS + 3 * each_ps
    assert iteration_ps(2, waits=False) == 16 * MS + 2 * each_ps


def test_accumulated_batches_compute_more_and_exchange_once(timer, gpu):
    recording = dense(10**6)
    found = iterate([((0,), 0, recording)], computing([10], [20], 1), timer, gpu, accumulate=4).typical
    assert found.iteration == 121 * MS + alone_ps(recording, timer)


def test_kernels_of_a_library_slow_compute_down(gpu):
    timer = Timer(build_cluster(load_shape("dgx-a100"), WORKERS), "ring")
    exchange = [((0,), 0, dense(10**8)), ((1,), 0, dense(10))]
    compute = computing([1, 1], [1, 30], memory_bound=0.5)
    plain = iterate(exchange, compute, timer, gpu, library="nccl:timing=wire").typical
    held = iterate(exchange, compute, timer, gpu, library="nccl:timing=measured").typical
    assert plain.backward == 31 * MS
    assert 31 * MS < held.backward < 40 * MS


def test_joined_programs_post_in_turns_and_one_is_itself():
    one, two = dense(10**5, works=(ENCODE, DECODE)), dense(10**6, works=(ENCODE, DECODE))
    assert merge_recordings([BucketExchange(Bucket((0,)), one)]) is one
    both = merge_recordings([BucketExchange(Bucket((0,)), one), BucketExchange(Bucket((1,)), two)])
    assert both.calls == (*one.calls, *two.calls)
    assert both.scripts[0] == (ENCODE, Post(0), ENCODE, Post(1), Wait((0,)), DECODE, Wait((1,)), DECODE)
    early = Recording(one.calls, ((Post(0), Wait((0,)), AwaitGradient(), DECODE),) * WORKERS)
    mixed = merge_recordings([BucketExchange(Bucket((0,)), two), BucketExchange(Bucket((1,)), early)])
    assert mixed.scripts[0] == (Post(1), Wait((1,)), AwaitGradient(), ENCODE, Post(0), DECODE, Wait((0,)), DECODE)


def test_codec_work_waits_for_the_kernel_in_flight_and_no_longer(timer, gpu):
    exchange = [((0,), 0, dense(10, works=(ENCODE, DECODE))), ((1, 2, 3), 0, dense(10))]
    found = iterate(exchange, computing([1, 1, 1, 1], [10, 5, 5, 5]), timer, gpu)
    encode_ps, decode_ps = work_ps(ENCODE, gpu), work_ps(DECODE, gpu)
    busy = [(each.what, each.start_ps, each.end_ps) for each in found.activity.busy]
    assert busy[:2] == [("forward", 0, 4 * MS), ("backward", 4 * MS, 14 * MS)]
    codec = [each for each in busy if each[0] == "codec"]
    # The first of the next kernels is in flight when the gradient has been handed over; then it is the codec's turn.
    assert codec[0][1] in (14 * MS, 19 * MS)
    assert codec[0][2] - codec[0][1] == encode_ps
    assert codec[1][2] - codec[1][1] == decode_ps
    # Its collective ends while the kernel after that runs.
    assert codec[1][1] == codec[0][2] + 5 * MS
    assert found.typical.backward == 25 * MS
