"""A recording as the communication library executes it, and the cost of its difference from the ideal."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Self, TypeVar

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.collectives.schedules.demand import Demand, exchanged_bytes
from s2sim.collectives.schedules.schedule import Schedule
from s2sim.collectives.timing.rounds import link_bytes
from s2sim.collectives.timing.timer import Timer
from s2sim.experiment.codec_costs import KERNELS, VALUE_BYTES, CodecCosts, charge_buckets, charge_codec, codec_costs
from s2sim.experiment.record import RecordedReducer
from s2sim.experiment.row_parts import LoweringRow
from s2sim.experiment.scenario.reducers import ReducerScenario, ReducerSpec
from s2sim.experiment.scenario.training import RankWork
from s2sim.libraries.lowering import LoweredCall
from s2sim.reducers.script import Call, HostSync, Recording, Work, ring_bytes, sum_over_ranks
from s2sim.reducers.systems.dense import summed_dtype
from s2sim.simulation.accounting import Iterations
from s2sim.simulation.bucketing.policy import Bucket, BucketExchange, in_hook, merge_recordings
from s2sim.simulation.iteration import replay_iterations
from s2sim.simulation.plan import Plan, Watcher, local_work_ps, make_plan, work_ps
from s2sim.simulation.run import Replay, replay
from s2sim.topology.cluster import Cluster
from s2sim.units import PS_PER_S

T = TypeVar("T")


def group_identical_collectives(posted: Iterable[tuple[tuple[int, ...], Hashable]]) -> list[list[int]]:
    """Return the indices of collectives that are listed as one, from the ranks and a description of each.

    The first of every group form one, the second another, and so on; those of all ranks, which name none, stay
    single.

    >>> group_identical_collectives([((0, 1), "a"), ((2, 3), "a"), ((0, 1), "a"), ((), "a"), ((), "a")])
    [[0, 1], [2], [3], [4]]
    """
    times: Counter[tuple[tuple[int, ...], Hashable]] = Counter()
    found: dict[tuple[bool, Hashable, int], list[int]] = {}
    for place, (ranks, what) in enumerate(posted):
        found.setdefault((bool(ranks), what, times[ranks, what]), []).append(place)
        times[ranks, what] += 1
    return list(found.values())


def demand_bytes(demand: Demand) -> tuple[Ints, Ints]:
    """Return (sent, received) bytes of each rank, int64 of shape (ranks,); see `ring_bytes`."""
    if demand.kind == "all_to_all":
        return exchanged_bytes(demand)
    assert demand.kind != "send_recv"
    assert demand.kind != "barrier"
    return ring_bytes(
        Call(demand.kind, "", "", demand.itemsize, demand.elements, size_from_data=False, label="", root=demand.root)
    )


def ring_traffic(lowered: Iterable[LoweredCall], ranks: int) -> tuple[Ints, Ints]:
    """Return (sent, received) bytes of each rank over all launches, as rings would send them."""
    return _sum_traffic([(each.ranks, demand) for each in lowered for demand in each.demands], demand_bytes, ranks)


def mean_bytes(sent_bytes: int, recording: Recording) -> int:
    """Return the mean bytes per step of a recording, rounded up."""
    return -(-sent_bytes // recording.steps)


def schedule_traffic(replay: Replay, ranks: int) -> tuple[Ints, Ints]:
    """Return (sent, received) bytes of each rank with the algorithms that ran."""
    return _sum_traffic([(launch.ranks, launch.timed.schedule) for launch in replay.launches], Schedule.traffic, ranks)


def _sum_traffic(
    parts: Sequence[tuple[tuple[int, ...], T]], bytes_of: Callable[[T], tuple[Ints, Ints]], ranks: int
) -> tuple[Ints, Ints]:
    """Return (sent, received) bytes of each rank over what groups of ranks send, each distinct object counted once."""
    times = Counter((members, id(each)) for members, each in parts)
    distinct = {(members, id(each)): each for members, each in parts}
    of_each = {key: np.stack(bytes_of(each)) for key, each in distinct.items()}
    sent_bytes, received_bytes = sum_over_ranks(((key[0], times[key] * of_each[key]) for key in distinct), ranks)
    return sent_bytes, received_bytes


@dataclass(frozen=True, slots=True)
class BusiestLink:
    """The link that is busy for the largest share of a replay's communication."""

    name: str  # ``"node3.gpu1.nvlink.out"``
    rate_Bps: float
    share: float  # Of the communication phase

    @property
    def kind(self) -> str:
        """What it is a link of, such as ``nic``.

        >>> BusiestLink("node0.nic1.out", 1.25e10, 0.9).kind, BusiestLink("node0.gpu3.pcie.in", 1.2e10, 0.9).kind
        ('nic', 'pcie')
        """
        return self.name.rpartition(".")[0].rpartition(".")[2].rstrip("0123456789")


def busiest_link(replay: Replay, cluster: Cluster, steps: int = 1) -> BusiestLink | None:
    """Return the busiest link of a replay of ``steps`` steps; None if nothing crosses one."""
    sent_bytes = np.zeros(len(cluster.fabric.rate_Bps))
    known: dict[int, Floats] = {}
    # Launches that end before the gradients are ready take no time of this phase.
    for timed in (launch.timed for launch in replay.launches if launch.end_ps > 0):
        if id(timed) not in known:
            known[id(timed)] = link_bytes(timed.schedule, timed.times)
        sent_bytes += known[id(timed)]
    busy_s = sent_bytes / cluster.fabric.rate_Bps
    if replay.communication_ps == 0 or not busy_s.any():
        return None
    link = int(busy_s.argmax())
    share = float(busy_s[link]) * PS_PER_S / (replay.communication_ps * steps)
    return BusiestLink(cluster.fabric.link_names[link], float(cluster.fabric.rate_Bps[link]), share)


@dataclass(frozen=True)
class ExecutedRecording:
    """A recording on the cluster of ``timer``, as its library executes it; ``exchange``: its buckets, empty for one.

    Its codec takes ``costs``.
    """

    recording: Recording
    scenario: ReducerScenario
    timer: Timer
    exchange: tuple[BucketExchange, ...] = ()
    costs: CodecCosts = KERNELS
    sizes: Sequence[int] = ()  # Elements of each tensor, where its codec costs more than kernels
    coded: Collection[int] = ()  # Places of those that it compresses
    reducer: ReducerSpec | None = None  # What was recorded, where iterations of it are asked for

    @classmethod
    def of(cls, item: RecordedReducer, scenario: ReducerScenario, timer: Timer) -> Self:
        """Return what a reducer has recorded on a cluster, with the costs of codecs that the scenario has."""
        training, scenario = scenario.training, scenario.for_codec(item.reducer.traits.name, item.recording.workers)
        costs = codec_costs(item.reducer, scenario.codec_as, 0 if training is None else training.host_loop_ps)
        if scenario.gpu.hook_copy_Bps is not None and summed_dtype(item.reducer) is None:
            # Of each value; half of it in encode and half in decode.
            costs = replace(costs, copy_ps=PS_PER_S * VALUE_BYTES / scenario.gpu.hook_copy_Bps / 2)
        sizes, coded = ((), ()) if costs == KERNELS else scenario.tensor_sizes(item.reducer)
        return cls(item.recording, scenario, timer, item.exchange, costs, sizes, coded, item.spec)

    @cached_property
    def charged(self) -> Recording:
        """The recording with the costs of its codec."""
        if self.costs == KERNELS:
            return self.recording
        if self.exchange:
            return merge_recordings(self.bucket_exchanges)
        coded = [self.sizes[place] for place in self.coded]
        return charge_codec(self.recording, self.costs, self.sizes, self.scenario.gpu, coded)

    @cached_property
    def plan(self) -> Plan:
        """What the library executes for each call."""
        return make_plan(self.recording, self.scenario.library)

    @cached_property
    def replay(self) -> Replay:
        """In time."""
        return self.replayed(self.plan)

    def simulate(self, plan: Plan, watcher: Watcher | None = None) -> Replay:
        """Return the replay of a plan, message by message where somebody watches."""
        gpu, compute_ps, faults = self.scenario.gpu, self.scenario.compute_ps, self.scenario.faults
        return replay(self.charged, self.timer, gpu, plan, watcher, compute_ps=compute_ps, faults=faults)

    def replayed(self, plan: Plan) -> Replay:
        """Return the replay of a plan; those that launch alike have one."""
        return self._replays.get(plan.launched) or self._replays.setdefault(plan.launched, self.simulate(plan))

    @cached_property
    def _replays(self) -> dict[Hashable, Replay]:
        return {}

    def traffic(self) -> tuple[Ints, Ints]:
        """Return (sent, received) bytes of each rank over all steps, of rings or of the algorithms that ran."""
        if self.scenario.uses_ring_bytes:
            return ring_traffic(self.plan.lowered, self.recording.workers)
        return schedule_traffic(self.replay, self.recording.workers)

    @cached_property
    def bucket_exchanges(self) -> tuple[BucketExchange, ...]:
        """The buckets of an iteration, one of everything where it is of all layers at once."""
        training = self.scenario.training
        tensors = 0 if training is None else len(training.profile.tensors)
        exchange = self.exchange or (BucketExchange(Bucket(tuple(range(tensors))), self.recording),)
        return charge_buckets(exchange, self.costs, self.sizes, self.coded, self.scenario.gpu)

    @cached_property
    def rank_work(self) -> RankWork:
        """What a rank computes and gathers in an iteration."""
        assert self.scenario.training is not None
        kept = None if self.reducer is None else self.reducer.timed.traits
        return self.scenario.training.on_ranks(self.timer, self.scenario.dtype, self.scenario.gpu, kept)

    @cached_property
    def iterations(self) -> Iterations | None:
        """Whole training iterations, where a profile says what they compute."""
        scenario, training = self.scenario, self.scenario.training
        if training is None:
            return None
        exchange = self.bucket_exchanges
        conditions = training.conditions(self.recording.workers, self.recording.steps, scenario.seed)
        # A hook on processors has one thread; what has no codec is left to DistributedDataParallel.
        scripts = (script for each in exchange for script in each.recording.distinct_scripts)
        if self.costs.copy_ps and any(isinstance(step, Work) for step in chain(*scripts)):
            exchange, conditions = in_hook(exchange), replace(conditions, one_at_a_time=True)
        return replay_iterations(
            exchange,
            self.rank_work.compute,
            self.timer,
            scenario.gpu,
            scenario.library,
            conditions,
            gathers=self.rank_work.gathers,
            faults=scenario.faults,
        )

    def work_durations_ps(self) -> Floats:
        """Return what GPUs and hosts take for each piece of their work in picoseconds, float64 of shape (pieces,)."""
        gpu, pcie, training = self.scenario.gpu, self.timer.cluster.shape.pcie, self.scenario.training
        recordings, taken_ps = [self.charged], list[Ints]()
        if training is not None:
            compute = self.rank_work.compute
            gathers = self.rank_work.gathers.in_order(training.accumulate)
            recordings = [each.recording for each in (*self.bucket_exchanges, *(each.exchange for each in gathers))]
            taken_ps += [compute.forward_ps, compute.backward_ps, np.array([compute.optimizer_ps, compute.host_ps])]
        for recording in {id(each): each for each in recordings}.values():
            steps = [step for script in recording.distinct_scripts for step in script]
            works_ps = [work_ps(step, gpu, pcie) for step in steps if isinstance(step, Work)]
            for lowered in make_plan(recording, self.scenario.library).lowered:
                local = (lowered.after, *(step.before for step in lowered.steps))
                works_ps += [local_work_ps(each, gpu, pcie) for each in local]
            if HostSync() in steps or any(call.size_from_data for call in recording.calls):
                works_ps.append(gpu.host_sync_ps)
            taken_ps.append(np.array(works_ps, np.int64))
        return np.concatenate(taken_ps).astype(np.float64)

    @property
    def compared_ps(self) -> int:
        """What reducers are compared by: the iteration, or the communication phase and what is added to it."""
        if self.iterations is not None:
            return self.iterations.typical.iteration
        return (self.scenario.compute_ps or 0) + self.replay.total_ps

    @cached_property
    def ideal_plan(self) -> Plan:
        """Everything as asked, with what the library adds."""
        return replace(make_plan(self.recording), profile=self.plan.profile)

    @cached_property
    def real_plan(self) -> Plan:
        """What the real library executes for each call."""
        real = self.scenario.machines.real_library
        return self.plan if real is self.scenario.library else make_plan(self.recording, real)

    def sent_real(self) -> int:
        """Return the bytes that the busiest rank sends with that library, by rings."""
        return self._most_sent(self.real_plan.lowered)

    def gap_s(self, plan: Plan) -> float:
        """Return by how much the phase would be shorter with another plan."""
        return (self.replay.total_ps - self.replayed(plan).total_ps) / PS_PER_S

    def lowering(self) -> tuple[LoweringRow, ...]:
        """Return a row per call; identical calls of several groups of ranks share one.

        The cost of a gap is the time of the phase less that of a replay with this gap alone closed: hidden time
        costs nothing, and several gaps together may cost more or less than their sum.
        """
        times, ideal_times = _times_s(self.replay), _times_s(self.replayed(self.ideal_plan))
        calls, lowered, ideal = self.recording.calls, self.plan.lowered, self.ideal_plan.lowered
        pairs = zip(calls, lowered, strict=True)
        posted = [(call.ranks, (call.label, own.requested, own.executes)) for call, own in pairs]
        return tuple(
            LoweringRow(
                call=calls[group[0]].label,
                asked=lowered[group[0]].requested,
                executes=lowered[group[0]].executes,
                bytes_ideal=self._most_sent(ideal[number] for number in group),
                bytes_sent=self._most_sent(lowered[number] for number in group),
                time_ideal_s=max(ideal_times[number] for number in group),
                time_s=max(times[number] for number in group),
                gap_s=self.gap_s(self.plan.closed(group, self.ideal_plan)),
                why=lowered[group[0]].why,
            )
            for group in group_identical_collectives(posted)
        )

    def _most_sent(self, lowered: Iterable[LoweredCall]) -> int:
        return int(ring_traffic(lowered, self.recording.workers)[0].max())


def _times_s(replayed: Replay) -> dict[int, float]:
    return {call: (each.end_ps - each.start_ps) / PS_PER_S for each in replayed.completed for call in each.calls}
