"""Faults: what changes on links and ranks, when, and what it did."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np
import simpy

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.schedules.schedule import Pattern, Schedule
from s2sim.collectives.timing.by_message import MessageLevelRun
from s2sim.collectives.timing.collective_run import CompletedRound
from s2sim.collectives.timing.critical_path import CriticalPath, UncontendedRun, critical_path
from s2sim.errors import OptionError
from s2sim.files import own_tables
from s2sim.network.fluid import OnLoads
from s2sim.network.max_min import MAX_PS
from s2sim.network.time_varying import TimeVaryingNetwork
from s2sim.options import Described, Time, option_text
from s2sim.registry import Catalogue
from s2sim.topology.cluster import Cluster, fail_links, scale_rates
from s2sim.topology.graph import Routes

START = Time("0s")


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a fault, named by its option string, as text, and whether there was none."""

    fault: str
    description: str
    nothing: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Damage:
    """The damage of the links of a cluster before anything runs; arrays of shape (links,)."""

    factors: Floats  # Of their rates
    dead: Mask
    why: list[str]  # Names of the failures, for messages


@dataclass(frozen=True, slots=True, eq=False)
class ActiveFault:
    """A fault on a network."""

    effect: Callable[[], Effect]  # Returns its effect until now
    # ``late_ps(collective, step, time, messages)`` returns the delay of each message of a round after its last byte,
    # int64 picoseconds; None if it delays no message
    late_ps: Callable[[int, int, int, int], Ints] | None = None


@dataclass(frozen=True, slots=True)
class Fault(Described):
    """Something that goes wrong, with its options."""

    catalogue = Catalogue(__name__.rpartition(".")[0], own_tables(__file__, "faults.toml"))
    example: ClassVar[str]
    draws: ClassVar[bool] = False  # Whether it depends on a seed
    sends: ClassVar[bool] = False  # Whether it sends messages
    on_network: ClassVar[bool] = True  # Whether it affects a network, unless it is permanent
    avoided: ClassVar[bool] = False  # Whether messages go around its links, so that it affects those that would cross

    @property
    def text(self) -> str:
        """Its option string, which `make_fault` reads back."""
        return option_text(self)

    @property
    def permanent(self) -> bool:
        """Whether it is a property of the cluster: from the start on, without end."""
        return False

    def check(self, cluster: Cluster) -> None:
        """Raise `OptionError` for ranks that the cluster does not have, or a load that it does not carry."""

    def damage(self, cluster: Cluster, damage: Damage) -> None:
        """Add its damage to a cluster before anything runs; `TopologyError` for links that it does not have."""

    def damaged_links(self, cluster: Cluster) -> Mask | None:
        """Return a mask of the links that it damages if it is permanent, bool of shape (links,)."""

    def effect_on_messages(self, messages: int) -> Effect:
        """Return its effect by the number of messages on these links."""
        return Effect(self.text, "", nothing=not messages)

    def act(self, network: TimeVaryingNetwork, cluster: Cluster, seed: int) -> ActiveFault | None:
        """Begin on a network of the cluster, if it affects one; ``seed`` is for random samples."""

    def hold_back(self, factors: Floats, late_ps: Ints) -> None:
        """Change the factor of the duration of each rank's GPU work, and the delay of each rank."""

    def effect_on_work(self, *, works: bool) -> Effect | None:
        """Return its effect on ranks that run scripts; ``works`` states whether the slowed ranks have any work."""

    def effect_on_collective(self, ends_ps: Ints, without_ps: Ints) -> Effect | None:
        """Return its effect on the ranks of a collective, by their ends with and without it."""

    def effect_on_transfers(self, src: Ints) -> Effect | None:
        """Return its effect on transfers from the ranks ``src``."""


def apply_permanent_faults(cluster: Cluster, faults: Sequence[Fault]) -> Cluster:
    """Return the cluster with the permanent faults; `TopologyError` or `OptionError` for unknown links or ranks."""
    links = len(cluster.fabric)
    damage = Damage(np.ones(links), np.zeros(links, np.bool_), [])
    for fault in faults:
        fault.damage(cluster, damage)
    if (damage.factors < 1).any():
        cluster = scale_rates(cluster, damage.factors)
    damaged = fail_links(cluster, damage.dead, " and ".join(damage.why)) if damage.why else cluster
    for fault in faults:
        fault.check(damaged)
    return damaged


def permanent_effects(
    faults: Sequence[Fault], cluster: Cluster, sent: Iterable[tuple[Routes, Routes, int]]
) -> list[Effect]:
    """Return the effects of permanent faults; ``sent`` has healthy routes, damaged routes and counts of messages."""
    damage = [(fault, links) for fault in faults if (links := fault.damaged_links(cluster)) is not None]
    messages = [0] * len(damage)
    for healthy, damaged, times in sent if damage else ():
        for number, (fault, links) in enumerate(damage):
            routes = healthy if fault.avoided else damaged
            messages[number] += times * int(np.count_nonzero(routes.crossing(links)))
    effects = [fault.effect_on_messages(met) for (fault, _), met in zip(damage, messages, strict=True)]
    others = any(fault.sends for fault in faults)
    return [replace(effect, nothing=effect.nothing and not others) for effect in effects]


def straggler_delays(faults: Sequence[Fault], ranks: int, work_ps: float = 0, times: int = 1) -> tuple[Floats, Ints]:
    """Return each rank's factor of its GPU work and delay in ps; refuse what, with ``work_ps``, takes too long."""
    factors, late_ps = np.ones(ranks), np.zeros(ranks, np.int64)
    for fault in faults:
        fault.hold_back(factors, late_ps)
    if faults and not times * (factors * work_ps + late_ps).max() < MAX_PS:
        raise OptionError("with the delays and factors of slow-rank a rank would take over 27 days: take smaller ones")
    return factors, late_ps


def effects_on_work(faults: Sequence[Fault], *, works: bool) -> list[Effect]:
    """Return the effects on ranks that run scripts; ``works`` states whether the slowed ranks have any work."""
    return [effect for fault in faults if (effect := fault.effect_on_work(works=works)) is not None]


def arrivals_ps(faults: Sequence[Fault], ranks: int, where: str) -> Ints:
    """Return each rank's delay, int64 picoseconds; `OptionError` for slow GPU work, which ``where`` has none of."""
    for fault in faults:
        if (straggler_delays([fault], ranks)[0] > 1).any():
            raise OptionError(
                f"{fault.text} slows GPU work, and {where} has none: give delay= for a rank that comes late"
            )
    return straggler_delays(faults, ranks)[1]


class FaultyNetwork:
    """A network with the transient faults.

    Background traffic never ends, so that the simulation has to be stopped. The cluster already has the permanent
    faults; its seed is the root of random samples, and ``on_loads`` is called whenever loads of links change.
    """

    def __init__(
        self, env: simpy.Environment, cluster: Cluster, faults: Sequence[Fault], on_loads: OnLoads | None = None
    ) -> None:
        self._cluster = cluster
        self.network = TimeVaryingNetwork(env, cluster, on_loads)
        begun = [fault.act(self.network, cluster, cluster.seed) for fault in faults if not fault.permanent]
        self._acting = [each for each in begun if each is not None]
        self._delays = [each.late_ps for each in self._acting if each.late_ps is not None]
        self._delays_alone = on_loads is None and len(self._delays) == len(self._acting)
        self._started = 0

    def running(
        self,
        schedule: Schedule,
        on_complete: Callable[[], None],
        on_round: Callable[[CompletedRound], None] | None = None,
        ranks: Sequence[int] = (),
        on_rank_done: Callable[[int], None] | None = None,
        alone: Callable[[Pattern], Routes] | None = None,
    ) -> MessageLevelRun | UncontendedRun:
        """Return a collective of some ranks, or all, ready to post; ``alone`` has routes if nothing else is sent."""
        number = self._started
        self._started += 1
        members = np.asarray(ranks, np.int64)

        def join(numbers: Ints, src: Ints, dst: Ints) -> None:
            self.network.join(numbers, members[src] if len(members) else src, members[dst] if len(members) else dst)

        late_ps = partial(self.late_ps, number) if self._delays else None
        cluster = self._cluster.within(ranks) if ranks else self._cluster
        if alone is not None and on_round is None and self._delays_alone:
            passage = critical_path(schedule, cluster, alone)
            if passage is not None:
                self._pass_by(schedule, passage, join)
                env = self.network.env
                return UncontendedRun(env, schedule, passage, on_complete, on_rank_done=on_rank_done, late_ps=late_ps)
        return MessageLevelRun(
            self.network,
            schedule,
            cluster,
            on_complete,
            on_rank_done=on_rank_done,
            on_round=on_round,
            late_ps=late_ps,
            on_routes=join,
        )

    def _pass_by(self, schedule: Schedule, passage: CriticalPath, join: Callable[[Ints, Ints, Ints], None]) -> None:
        numbers: dict[bytes, Ints] = {}
        for step in schedule.steps:
            pattern = step.round.pattern
            if pattern.messages and pattern.key not in numbers:
                added = numbers[pattern.key] = self.network.add_routes(passage.routes[pattern.key])
                join(added, pattern.src[: len(added)], pattern.dst[: len(added)])
            if pattern.messages:
                self.network.record_unsent(numbers[pattern.key], step.times * step.round.bytes)

    def late_ps(self, collective: int, step: int, time: int, messages: int) -> Ints:
        """Return the delay of each message of a round, int64 picoseconds, independent of the order of events."""
        total_ps = np.zeros(messages, np.int64)
        for late_ps in self._delays:
            total_ps += late_ps(collective, step, time, messages)
        return total_ps

    def effects(self) -> list[Effect]:
        """Return the effect of every fault until now."""
        return [acting.effect() for acting in self._acting]


def has_transient_faults(faults: Sequence[Fault]) -> bool:
    """Return whether any fault changes a network while it runs."""
    return any(fault.on_network and not fault.permanent for fault in faults)
