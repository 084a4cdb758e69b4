"""Replays training iterations: forward, backward, codecs, network and optimizer concurrently."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil, isclose
from operator import attrgetter

import numpy as np
import simpy

from s2sim.collectives.timing.timer import TimedSchedule, Timer
from s2sim.errors import S2SimError
from s2sim.libraries.library import Library
from s2sim.reducers.script import AwaitGradient, Work
from s2sim.simulation.accounting import LEAST_PERIODS, Iterations, IterationSettings, RankActivity, time_breakdown
from s2sim.simulation.bucketing.policy import BucketExchange
from s2sim.simulation.bucketing.sharded import ParameterGathers
from s2sim.simulation.communicator import Communicators, CompletedCalls, one_stands_for_all
from s2sim.simulation.device import BucketProgram, Compute, GpuDevice, GpuShare, IterationRanks, collective_gpu_share
from s2sim.simulation.faults.fault import Fault, FaultyNetwork, effects_on_work, has_transient_faults, straggler_delays
from s2sim.simulation.plan import Plan, make_plan, work_ps
from s2sim.simulation.run import Passing, run_script, run_until
from s2sim.simulation.skewed_communicator import RankCommunicator, SkewedCommunicator, can_skew
from s2sim.topology.hardware import Gpu
from s2sim.units import PS_PER_S

# Ranks whose iterations differ by less end them together; which one the others wait for changes from one to the next.
_AS_LONG, _waiting = 1e-3, attrgetter("waiting")


def replay_iterations(
    exchange: Sequence[BucketExchange],
    compute: Compute,
    timer: Timer,
    gpu: Gpu,
    library: Library,
    conditions: IterationSettings,
    *,
    gathers: ParameterGathers | None = None,
    faults: Sequence[Fault] = (),
) -> Iterations:
    """Replay iterations; permanent ``faults`` are already applied to the timer's cluster.

    ``gathers`` are all-gathers of parameters, whose calls come after those of the buckets in each iteration.
    """
    timer = timer.with_profile(library.profile)
    gathers = gathers or ParameterGathers()
    return _IterationReplay(exchange, compute, timer, gpu, library, conditions, gathers, faults).run()


@dataclass(slots=True)
class _GatherQueue:
    """The all-gathers of an iteration on some ranks: events of their posts and ends, in the order of use."""

    events: Sequence[tuple[simpy.Event, simpy.Event]]
    prefetch: int
    posted: int = field(default=0, init=False)
    used: int = field(default=0, init=False)
    limit: int = field(default=0, init=False)  # Those of the pass end here

    def begin(self, count: int, ahead: int) -> None:
        """Begin a pass that uses so many, and post the first ones."""
        self.limit = self.used + count
        self._post(ahead)

    def wait(self, ranks: IterationRanks) -> Passing:
        """Wait for the next one, and then post those ahead of it."""
        self._post(1)
        ranks.computing = False
        yield self.events[self.used][1]
        ranks.computing = True
        self.used += 1
        self._post(self.prefetch)

    def _post(self, ahead: int) -> None:
        end = max(self.posted, min(self.used + ahead, self.limit))
        for post, _ in self.events[self.posted : end]:
            post.succeed()
        self.posted = end


@dataclass
class _IterationReplay:
    _exchange: Sequence[BucketExchange]
    _compute: Compute
    _timer: Timer
    _gpu: Gpu
    _library: Library
    _conditions: IterationSettings
    _gathers: ParameterGathers
    _faults: Sequence[Fault]

    def __post_init__(self) -> None:
        workers = self._timer.workers
        for leaving in self._exchange:
            if (ranks := leaving.recording.workers) != workers:
                raise S2SimError(f"a recording of {ranks} ranks cannot be replayed on {workers} workers")
        self._period = max((leaving.recording.steps for leaving in self._exchange), default=1)
        self._iterations = self._conditions.slower.shape[0]
        if self._iterations % self._period:
            raise S2SimError(f"{self._iterations} iterations are no multiple of {self._period}, after which it repeats")
        self._env = simpy.Environment()
        # The segments of backward: the number of its tensors until then, and the buckets ready with them.
        last: dict[int, list[int]] = {}
        for at, leaving in enumerate(self._exchange):
            last.setdefault(max(leaving.bucket.tensors, default=0) + 1, []).append(at)
        last.setdefault(len(self._compute.backward_ps), [])
        self._segments = sorted(last.items())
        self._buckets = len(self._exchange)
        of_gathers = [gather.exchange for gather in self._gathers.in_order(self._conditions.accumulate)]
        self._exchange = [*self._exchange, *of_gathers]
        # Timers keep what they have timed.
        self._prices_ps: dict[int, int] = {}
        self._held: dict[tuple[int, tuple[int, ...]], GpuShare | None] = {}
        self._communicators, self._disturbance = self._make_communicators()
        self._of_rank = self._make_ranks()
        self._classes = list(dict.fromkeys(self._of_rank))

    def _make_communicators(self) -> tuple[Communicators | SkewedCommunicator, FaultyNetwork | None]:
        cluster, exchanges, library = self._timer.cluster, self._iterations // self._period, self._library
        recordings = {id(leaving.recording): leaving.recording for leaving in self._exchange}
        of_recording = {key: make_plan(recording, library) for key, recording in recordings.items()}
        plans = [of_recording[id(leaving.recording)] for leaving in self._exchange]
        self._first_calls, self._one_for_all = [0, *accumulate(len(plan.lowered) for plan in plans)], False
        buckets = tuple(number for number, plan in enumerate(plans) for _ in plan.lowered)
        priorities = [self._exchange[number].bucket.priority for number in buckets]
        lowered = tuple(each for plan in plans for each in plan.lowered)
        disturbance = None
        if has_transient_faults(self._faults):
            disturbance = FaultyNetwork(self._env, cluster, self._faults)
        own, times = self._compute, self._iterations * self._conditions.accumulate
        own_ps = (int((own.forward_ps + own.backward_ps).sum()) + own.optimizer_ps) * self._conditions.slower.max()
        self._factors, self._late_ps = straggler_delays(self._faults, self._timer.workers, own_ps, times)
        plan = Plan(lowered * exchanges, library.groups, library.in_flight, library.profile, buckets * exchanges)
        slower = self._conditions.slower * self._factors
        skewed = bool((slower != slower[:, :1]).any() or (self._late_ps != self._late_ps[:1]).any())
        if disturbance is None and skewed and can_skew(plan, self._timer):
            by_rank = SkewedCommunicator(
                plan,
                self._timer,
                self._gpu,
                factors=self._factors.tolist(),
                priorities=priorities * exchanges,
                on_launch=lambda timed, rank: self._launched(timed, (rank,)),
            )
            return by_rank, None
        self._one_for_all = (
            disturbance is None
            and not skewed
            and all(one_stands_for_all(each, of_recording[key], self._timer) for key, each in recordings.items())
        )
        communicators = Communicators(
            self._env,
            plan,
            self._timer,
            self._gpu,
            quiet=lambda: all(ranks.quiet for ranks in self._classes),
            disturbance=disturbance,
            slowest=float(self._factors.max(initial=1.0)),
            priorities=priorities * exchanges,
            on_launch=self._launched,
            one_for_all=self._one_for_all,
        )
        return communicators, disturbance

    def _make_ranks(self) -> list[IterationRanks]:
        """Return the state of each rank: one object for equal ranks that end together."""
        classes: dict[object, IterationRanks] = {}
        of_rank = []
        settings = self._conditions
        recordings = {id(leaving.recording): leaving.recording for leaving in self._exchange}.values()
        numbers = [recording.representatives for recording in recordings]
        # Where scripts differ: all ranks of the others are as the first.
        differing = [] if self._one_for_all else [each for each in numbers if any(each)]
        slower_of_rank, late_of_rank = (settings.slower * self._factors).T.tolist(), self._late_ps.tolist()
        for rank in range(self._timer.workers):
            slower, late_ps, factor = tuple(slower_of_rank[rank]), late_of_rank[rank], float(self._factors[rank])
            optimizer = slower if settings.optimizer is None else (settings.optimizer * factor,) * len(slower)
            equal = (tuple(each[rank] for each in differing), slower, late_ps)
            key = rank if isinstance(self._communicators, SkewedCommunicator) else equal
            if key not in classes:
                # They wait for the gradient first of all unless they say when.
                own = (leaving.recording.scripts[rank] for leaving in self._exchange)
                scripts = tuple(each if AwaitGradient() in each else (AwaitGradient(), *each) for each in own)
                shared = self._communicators
                env = shared.of_rank[rank].env if isinstance(shared, SkewedCommunicator) else self._env
                device = GpuDevice(env, settings.streams, self._compute.memory_bound)
                classes[key] = IterationRanks(scripts, slower, optimizer, factor, late_ps, device, rank)
            classes[key].ranks += 1
            of_rank.append(classes[key])
        return of_rank

    def _launched(self, timed: TimedSchedule, ranks: tuple[int, ...]) -> Callable[[], None]:
        """Record that a collective's kernels run on its ranks; return the callback for their end."""
        key = id(timed), ranks
        if key not in self._held:
            cluster = self._timer.within(ranks).cluster
            self._held[key] = collective_gpu_share(timed, cluster, self._timer.profile, self._gpu)
            if (taken := self._conditions.processor_s_per_byte) and timed.duration_ps:
                taken_s = taken * timed.schedule.demand.buffer_bytes
                self._held[key] = GpuShare(taken_s * PS_PER_S / timed.duration_ps, 0.0)
        if (held := self._held[key]) is None:
            return lambda: None
        members = self._classes if not ranks else list(dict.fromkeys(self._of_rank[rank] for rank in ranks))
        for each in members:
            each.device.hold(held)

        def end() -> None:
            for each in members:
                each.device.release(held)

        return end

    def run(self) -> Iterations:
        over = [ranks.device.env.process(self._compute_on(ranks)) for ranks in self._classes]
        if isinstance(self._communicators, SkewedCommunicator):
            self._communicators.run()
        else:
            run_until(self._env, self._env.all_of(over))
        if not all(each.processed for each in over):
            raise S2SimError("the iteration hangs: some ranks wait for what others never post")
        completed = tuple(sorted(self._communicators.completed, key=lambda each: (each.start_ps, each.calls)))
        by_call = {call: each for each in completed for call in each.calls}
        spent = [self._spent(ranks, by_call) for ranks in self._classes]
        of_class = {id(ranks): each for ranks, each in zip(self._classes, spent, strict=True)}
        # Unless all gradients are waited for, only the last iteration waits for all collectives in flight.
        open_end = not self._conditions.waits_for_all
        parts, waiting = [], 0
        for ranks, each in zip(self._classes, spent, strict=True):
            bounds = ranks.begun_ps[:: self._period]
            cut = bounds[:-1] if open_end and len(bounds) > LEAST_PERIODS else bounds
            parts.append(time_breakdown(each, cut, self._period))
            waiting += ranks.ranks * sum(map(_waiting, parts[-1]))
        works = bool(self._compute.forward_ps.any() or self._compute.backward_ps.any())
        slowed = effects_on_work(self._faults, works=works)
        # Of ranks that end together the one that waits least for others.
        slowest = max(
            range(len(parts)), key=lambda at: (self._classes[at].begun_ps[-1], -sum(each.waiting for each in parts[at]))
        )
        return Iterations(
            parts=tuple(parts[slowest]),
            least_waiting=tuple(
                min(
                    (one for one in each if isclose(one.iteration, each[slowest].iteration, rel_tol=_AS_LONG)),
                    key=_waiting,
                )
                for each in zip(*parts, strict=True)
            ),
            activity=spent[slowest],
            by_rank=tuple(of_class[id(ranks)] for ranks in self._of_rank),
            waiting_ps=waiting / (len(self._of_rank) * len(parts[slowest])),
            launches=tuple(sorted(self._communicators.launches, key=lambda launch: launch.start_ps)),
            completed=completed,
            effects=(*(self._disturbance.effects() if self._disturbance else ()), *slowed),
        )

    def _compute_on(self, ranks: IterationRanks) -> Passing:
        env, compute, settings = ranks.device.env, self._compute, self._conditions
        freed: list[simpy.Event] = []
        for iteration, slower in enumerate(ranks.slower):
            ranks.begun_ps.append(int(env.now))
            exchanges = (iteration + 1) % self._period == 0
            ready = [env.event() for _ in self._exchange]
            ended: list[simpy.Event] = []
            if exchanges:
                number = iteration // self._period
                for at, event in enumerate(ready):
                    before = ended[-1] if settings.one_at_a_time and 0 < at < self._buckets else None
                    ended.append(env.process(self._exchange_on(ranks, at, event, number, before)))
            if ranks.late_ps:
                yield ranks.device.run("forward", ranks.late_ps)
            queue = _GatherQueue(list(zip(ready, ended, strict=False))[self._buckets :], self._gathers.prefetch)
            for _ in range(settings.accumulate - 1):
                yield from self._forward(ranks, slower, freed, queue)
                yield from self._backward(ranks, slower, None, queue)
                freed = []
            if settings.idle_ps:
                ranks.idle.append((int(env.now), int(env.now) + settings.idle_ps))
                yield env.timeout(settings.idle_ps)
            yield from self._forward(ranks, slower, freed, queue)
            yield from self._backward(ranks, slower, ready, queue)
            ranks.computing = False
            freed = ended
            if settings.waits_for_all or iteration == len(ranks.slower) - 1:
                yield env.all_of(ended[: self._buckets])
            # Else each bucket has its share.
            for what, alone_ps in compute.after_ps if settings.waits_for_all or not exchanges else ():
                yield ranks.device.run(what, ceil(alone_ps * ranks.optimizer[iteration]))
            if count := len(self._gathers.after_step):
                queue.begin(count, count)
                yield env.all_of(ended)
            ranks.computing = True
        ranks.computing = False
        ranks.begun_ps.append(int(env.now))

    def _forward(
        self, ranks: IterationRanks, slower: float, freed: Sequence[simpy.Event], queue: _GatherQueue
    ) -> Passing:
        """Run forward; a layer waits for its own parameters unless all have been waited for."""
        forward_ps = self._compute.forward_ps
        if self._conditions.waits_for_all or not freed:
            yield from self._gathered_forward(ranks, slower, queue)
            return
        bucket_of = {tensor: at for at, leaving in enumerate(self._exchange) for tensor in leaving.bucket.tensors}
        for tensor in reversed(range(len(forward_ps))):
            if tensor in bucket_of:
                yield freed[bucket_of[tensor]]
            if forward_ps[tensor]:
                yield ranks.device.run("forward", ceil(int(forward_ps[tensor]) * slower))

    def _gathered_forward(self, ranks: IterationRanks, slower: float, queue: _GatherQueue) -> Passing:
        """Run forward between the arrivals of parameters."""
        forward_ps, gathers, begin = self._compute.forward_ps[::-1], self._gathers.forward, 0
        queue.begin(len(gathers), 1)
        for end in [*(gather.at for gather in gathers[1:]), len(forward_ps)]:
            kernels_ps = [ceil(int(forward_ps[begin:end].sum()) * slower)]
            if gathers:
                yield from queue.wait(ranks)
                # Between which codec work for the next gather may run.
                kernels_ps = [ceil(each * slower) for each in forward_ps[begin:end].tolist()]
            yield ranks.device.run("forward", *(kernels_ps or [0]))
            begin = end

    def _backward(
        self, ranks: IterationRanks, slower: float, ready: Sequence[simpy.Event] | None, queue: _GatherQueue
    ) -> Passing:
        """Run backward between the arrivals of parameters; a bucket is ready with the last of its gradients."""
        backward_ps, begin = self._compute.backward_ps, 0
        kernels_ps = np.ceil(backward_ps * slower).astype(np.int64)
        stops = dict(self._segments) if ready else {len(kernels_ps): []}
        needed = {gather.at for gather in self._gathers.backward}
        queue.begin(len(needed), self._gathers.prefetch)
        for end in sorted({*stops, *needed}):
            segment_ps = kernels_ps[begin:end].tolist()
            if not ready:
                segment_ps = [ceil(int(backward_ps[begin:end].sum()) * slower)]
            begin = end
            if any(segment_ps) or not ready:
                yield ranks.device.run("backward", *segment_ps)
            if ready:
                for at in stops.get(end, ()):
                    ready[at].succeed()
            if end in needed:
                yield from queue.wait(ranks)

    def _exchange_on(
        self, ranks: IterationRanks, at: int, ready: simpy.Event, number: int, before: simpy.Event | None
    ) -> Passing:
        """Run a program, and a bucket's share of the optimizer if layers are waited for separately."""
        leaving, settings = self._exchange[at], self._conditions
        env, script = ranks.device.env, ranks.scripts[at]
        program = BucketProgram(ranks, ready, self._price_ps, self._gpu.host_sync_ps)
        if at < self._buckets:
            assert ready.callbacks is not None
            ready.callbacks.append(lambda _: ranks.ready.append((number, at, int(env.now))))
        ranks.programs += 1
        first_call = self._first_calls[-1] * number + self._first_calls[at]
        communicators = self._communicators_of(ranks)
        if before is not None:
            yield from program.wait([before])
        yield from run_script(script, leaving.recording.calls, communicators, program, first_call)
        for what, alone_ps in () if settings.waits_for_all else self._compute.after_ps:
            share = len(leaving.bucket.tensors) / max(1, len(self._compute.backward_ps))
            share *= ranks.optimizer[(number + 1) * self._period - 1]
            yield ranks.device.run(what, ceil(alone_ps * share))
        ranks.programs -= 1

    def _price_ps(self, work: Work) -> int:
        """Return the duration of codec work, which the scripts of all ranks share."""
        if id(work) not in self._prices_ps:
            self._prices_ps[id(work)] = work_ps(work, self._gpu, self._timer.cluster.shape.pcie)
        return self._prices_ps[id(work)]

    def _spent(self, ranks: IterationRanks, by_call: Mapping[int, CompletedCalls]) -> RankActivity:
        own = {id(by_call[call]): call for call in ranks.posted_ps}
        communicators = self._communicators_of(ranks)
        ended_ps = {call: communicators.ended_ps[call] for call in ranks.posted_ps}
        in_flight = ((by_call[call].start_ps, ended_ps[call]) for call in own.values())
        # A rank that is done before the last rank has posted waits until then.
        waited = (
            (posted_ps, min(by_call[call].start_ps, ended_ps[call])) for call, posted_ps in ranks.posted_ps.items()
        )
        return RankActivity(
            busy=tuple(ranks.device.log),
            in_flight=tuple((start_ps, max(start_ps, end_ps)) for start_ps, end_ps in in_flight),
            waiting=(*waited, *ranks.idle),
            ready=tuple(ranks.ready),
            begun_ps=tuple(ranks.begun_ps),
            rank=ranks.first,
        )

    def _communicators_of(self, ranks: IterationRanks) -> Communicators | RankCommunicator:
        shared = self._communicators
        return shared.of_rank[ranks.first] if isinstance(shared, SkewedCommunicator) else shared
