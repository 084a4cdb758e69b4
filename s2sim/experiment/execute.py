"""A recording as the communication library executes it, and the cost of its difference from the ideal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.collectives.schedules.demand import Demand, exchanged_bytes
from s2sim.collectives.schedules.schedule import Schedule
from s2sim.collectives.timing.rounds import link_bytes
from s2sim.collectives.timing.timer import Timer
from s2sim.experiment.row_parts import LoweringRow
from s2sim.experiment.scenario.reducers import ReducerScenario
from s2sim.libraries.lowering import LoweredCall
from s2sim.reducers.script import Call, Recording, ring_bytes, sum_over_ranks
from s2sim.simulation.accounting import Iterations
from s2sim.simulation.bucketing.policy import Bucket, BucketExchange
from s2sim.simulation.iteration import replay_iterations
from s2sim.simulation.plan import Plan, Watcher, make_plan
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
    launched = [(launch.ranks, launch.timed.schedule) for launch in replay.launches]
    return _sum_traffic(launched, Schedule.traffic, ranks)


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
    """One recording on the cluster of ``timer``, as the scenario's library executes it.

    ``exchange`` are its buckets; empty if it has all layers in one.
    """

    recording: Recording
    scenario: ReducerScenario
    timer: Timer
    exchange: tuple[BucketExchange, ...] = ()

    @cached_property
    def plan(self) -> Plan:
        """What the library executes for each call."""
        return make_plan(self.recording, self.scenario.library)

    @cached_property
    def replay(self) -> Replay:
        """In time."""
        return self.simulate(self.plan)

    def simulate(self, plan: Plan, watcher: Watcher | None = None) -> Replay:
        """Return the replay of a plan, message by message where somebody watches."""
        scenario = self.scenario
        return replay(
            self.recording,
            self.timer,
            scenario.gpu,
            plan,
            watcher,
            compute_ps=scenario.compute_ps,
            faults=scenario.faults,
        )

    def replayed(self, plan: Plan) -> Replay:
        """Return the replay of a plan, which is known where it is that of the library."""
        return self.replay if plan == self.plan else self.simulate(plan)

    def traffic(self) -> tuple[Ints, Ints]:
        """Return (sent, received) bytes of each rank over all steps, of rings or of the algorithms that ran."""
        if self.scenario.uses_ring_bytes:
            return ring_traffic(self.plan.lowered, self.recording.workers)
        return schedule_traffic(self.replay, self.recording.workers)

    @property
    def bucket_exchanges(self) -> tuple[BucketExchange, ...]:
        """The buckets of an iteration, one of everything where it is of all layers at once."""
        training = self.scenario.training
        tensors = 0 if training is None else len(training.profile.tensors)
        return self.exchange or (BucketExchange(Bucket(tuple(range(tensors))), self.recording),)

    @cached_property
    def iterations(self) -> Iterations | None:
        """Whole training iterations, where a profile says what they compute."""
        scenario, training = self.scenario, self.scenario.training
        if training is None:
            return None
        return replay_iterations(
            self.bucket_exchanges,
            training.compute,
            self.timer,
            scenario.gpu,
            scenario.library,
            training.conditions(self.recording.workers, self.recording.steps, scenario.seed),
            faults=scenario.faults,
        )

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
    def ideal(self) -> Replay:
        """In time, if everything ran as asked."""
        return self.replayed(self.ideal_plan)

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
        times, ideal_times = _times_s(self.replay), _times_s(self.ideal)
        calls, lowered, ideal = self.recording.calls, self.plan.lowered, self.ideal_plan.lowered
        posted = [
            (call.ranks, (call.label, own.requested, own.executes)) for call, own in zip(calls, lowered, strict=True)
        ]
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
