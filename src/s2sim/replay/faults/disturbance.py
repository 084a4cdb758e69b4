"""Faults in simulated time: one network with all that goes wrong on it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.timing.running import Running
from s2sim.errors import OptionError
from s2sim.network.background import BackgroundTraffic
from s2sim.network.changing import ChangingNetwork
from s2sim.replay.faults.kinds import Background, FailLink, Jitter, SlowLink, SlowRank, fault_text
from s2sim.replay.faults.lasting import Effect, is_lasting, link_effect
from s2sim.seeds import named_generator
from s2sim.topology.find_links import find_links
from s2sim.units import PS_PER_S, format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import simpy
    from numpy.typing import NDArray

    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.collectives.timing.running import RanRound
    from s2sim.network.changing import Change
    from s2sim.network.fluid import OnLoads
    from s2sim.replay.faults.kinds import Fault
    from s2sim.topology.cluster import Cluster


class Disturbance:
    """A network on which those faults happen that do not last from the start on.

    Parameters
    ----------
    env : simpy.Environment
        Its time is integer picoseconds.
    cluster : Cluster
        From `damaged_cluster`.
    faults : sequence of Fault
        All of them; those that the cluster has already are left alone.
    seed : int
        Root of what jitter and background traffic draw.
    on_loads : callable, optional
        Told of the loads of all links whenever they change.

    Attributes
    ----------
    network : ChangingNetwork
        Carries everything; background traffic never ends, so that the simulation has to be stopped.
    """

    def __init__(
        self,
        env: simpy.Environment,
        cluster: Cluster,
        faults: Sequence[Fault],
        seed: int,
        on_loads: OnLoads | None = None,
    ) -> None:
        self._env = env
        self._cluster = cluster
        self._faults = tuple(fault for fault in faults if not is_lasting(fault))
        self._seed = seed
        self.network = ChangingNetwork(env, cluster, on_loads)
        self._changes: dict[Fault, Change] = {}
        self._background: dict[Fault, BackgroundTraffic] = {}
        self._late_ps: dict[Fault, int] = {}
        self._jittered = 0
        self._started = 0
        for fault in self._faults:
            if isinstance(fault, (SlowLink, FailLink)):
                env.process(self._change(fault))
            elif isinstance(fault, Background):
                traffic = BackgroundTraffic(
                    self.network,
                    cluster,
                    load=fault.load,
                    size_bytes=fault.size_bytes,
                    generator=named_generator(seed, fault_text(fault)),
                )
                self._background[fault] = traffic
                env.process(traffic.run())

    def _change(self, fault: SlowLink | FailLink) -> Generator[simpy.Event, None, None]:
        links = find_links(self._cluster.fabric, fault.link, self._cluster.shape.name)
        yield self._env.timeout(fault.at_ps)
        if isinstance(fault, FailLink):
            self._changes[fault] = self.network.fail(links, fault.words)
            return
        self._changes[fault] = self.network.slow_down(links, fault.factor)
        if fault.until_ps is not None:
            yield self._env.timeout(fault.until_ps - fault.at_ps)
            self.network.recover(self._changes[fault])

    def running(
        self,
        schedule: Schedule,
        on_complete: Callable[[], None],
        on_round: Callable[[RanRound], None] | None = None,
    ) -> Running:
        """Return a collective that is ready to start on the disturbed network, message by message."""
        number = self._started
        self._started += 1
        return Running(
            self.network,
            schedule,
            self._cluster,
            on_complete,
            on_round=on_round,
            late_ps=partial(self.jitter_ps, number) if self._jitters else None,
            on_routes=self.network.join,
        )

    @property
    def _jitters(self) -> list[Jitter]:
        return [fault for fault in self._faults if isinstance(fault, Jitter)]

    def jitter_ps(self, collective: int, step: int, time: int, messages: int) -> NDArray[np.int64]:
        """Return by how much each message of a round is late, int64 picoseconds; the order of events plays no part."""
        total_ps = np.zeros(messages, np.int64)
        for fault in self._jitters:
            generator = named_generator(self._seed, fault_text(fault), collective, step, time)
            late_ps = np.rint(generator.exponential(fault.mean_ps, messages)).astype(np.int64)
            self._late_ps[fault] = self._late_ps.get(fault, 0) + int(late_ps.sum())
            total_ps += late_ps
        self._jittered += messages
        return total_ps

    def effects(self) -> list[Effect]:
        """Return what every fault has done until now, but for slow ranks."""
        return [self._effect(fault) for fault in self._faults if not isinstance(fault, SlowRank)]

    def _effect(self, fault: Fault) -> Effect:
        if isinstance(fault, (SlowLink, FailLink)):
            change = self._changes.get(fault)
            if change is None:
                return Effect(fault_text(fault), f"all was over before {fault.at}", nothing=True)
            return link_effect(fault, change.messages)
        if isinstance(fault, Background):
            traffic = self._background[fault]
            sent_bytes = traffic.messages * fault.size_bytes
            share = sent_bytes / (traffic.rate_Bps * self._env.now / PS_PER_S) if self._env.now else 0.0
            did = f"{traffic.messages:,} messages, {format_bytes(sent_bytes)}: {share:.1%} of what interfaces carry"
            return Effect(fault_text(fault), did, traffic.messages == 0)
        late_ps = self._late_ps.get(fault, 0)
        mean = format_seconds(late_ps / max(self._jittered, 1) / PS_PER_S)
        did = f"{self._jittered:,} messages were late, by {mean} on average"
        return Effect(fault_text(fault), did, late_ps == 0)


def disturbs(faults: Sequence[Fault]) -> bool:
    """Return whether anything happens to a network while it runs."""
    return not all(is_lasting(fault) or isinstance(fault, SlowRank) for fault in faults)


def work_factors(faults: Sequence[Fault], ranks: int) -> NDArray[np.float64]:
    """Return how much longer the GPU work of each rank takes, float64 of shape (ranks,)."""
    factors = np.ones(ranks)
    for fault in faults:
        if isinstance(fault, SlowRank) and fault.factor is not None:
            factors[fault.rank] *= fault.factor
    return factors


def delays_ps(faults: Sequence[Fault], ranks: int) -> NDArray[np.int64]:
    """Return by how much each rank comes later, int64 picoseconds of shape (ranks,)."""
    late_ps = np.zeros(ranks, np.int64)
    for fault in faults:
        if isinstance(fault, SlowRank):
            late_ps[fault.rank] += fault.delay_ps
    return late_ps


def arrivals_ps(faults: Sequence[Fault], ranks: int, where: str) -> NDArray[np.int64]:
    """Return the delays of ranks where nothing but delays can slow a rank; see `delays_ps`.

    Raises
    ------
    OptionError
        For slow GPU work, of which there is none ``where`` this is asked.
    """
    for fault in faults:
        if isinstance(fault, SlowRank) and fault.factor is not None:
            raise OptionError(
                f"{fault_text(fault)} slows GPU work, and {where} has none: give delay= for a rank that comes late"
            )
    return delays_ps(faults, ranks)
