"""Faults of links: which links they are, and the messages that meet them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.arrays import Ints
from s2sim.errors import OptionError
from s2sim.network.time_varying import BackgroundTraffic, LinkChange, TimeVaryingNetwork
from s2sim.options import Size, Time
from s2sim.seeds import named_generator
from s2sim.simulation.faults.fault import START, ActiveFault, Damage, Effect, Fault, MessageCounter
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Routes
from s2sim.topology.links import find_links
from s2sim.units import PS_PER_S, format_bytes, format_seconds

if TYPE_CHECKING:
    import simpy


_SIZE = Size("1MiB")


@dataclass(frozen=True, slots=True)
class BackgroundFault(Fault):
    """Traffic of others: messages between random ranks of different nodes, as a Poisson process."""

    name: ClassVar[str] = "background"
    example: ClassVar[str] = "background:load=0.3,size=1MiB"
    draws: ClassVar[bool] = True
    sends: ClassVar[bool] = True

    load: float
    size: Size = _SIZE

    def __post_init__(self) -> None:
        if not 0 < self.load < 1:
            raise OptionError(f"background: load={self.load} of what network interfaces carry must lie between 0 and 1")
        if self.size.bytes == 0:
            raise OptionError(f"background: messages of size={self.size} load nothing: leave them out")

    def act(self, network: TimeVaryingNetwork, cluster: Cluster, seed: int) -> ActiveFault:
        """Send for as long as the simulation lasts."""
        traffic = BackgroundTraffic(
            network, cluster, load=self.load, size_bytes=self.size.bytes, generator=named_generator(seed, self.text)
        )
        network.env.process(traffic.run())

        def effect() -> Effect:
            sent_bytes = traffic.messages * self.size.bytes
            share = sent_bytes / (traffic.rate_Bps * network.env.now / PS_PER_S) if network.env.now else 0.0
            did = f"{traffic.messages:,} messages, {format_bytes(sent_bytes)}: {share:.1%} of what interfaces carry"
            return Effect(self.text, did, traffic.messages == 0)

        return ActiveFault(effect)


class LinkFault(Fault):
    """A fault of the links of a name or a shell pattern, from a time on.

    ``avoided`` says whether messages go around the links, so that those meet it that would have crossed them.
    """

    __slots__ = ()
    avoided: ClassVar[bool] = False
    link: str
    at: Time

    @abstractmethod
    def describe_effect(self, messages: int) -> str:
        """Return what it did, in words, by the number of messages that met it."""

    @abstractmethod
    def happen(
        self, network: TimeVaryingNetwork, links: Ints, begun: list[LinkChange]
    ) -> Generator[simpy.Event, None, None]:
        """Change links when it is time, and put the change into ``begun``."""

    def links(self, cluster: Cluster) -> Ints:
        """Return which links it meets, int64; `TopologyError` where there is none."""
        return find_links(cluster.fabric, self.link, cluster.shape.name)

    def meetings(self, cluster: Cluster) -> MessageCounter | None:
        """Count the messages that cross its links, or would."""
        if not self.permanent:
            return None
        marked = np.zeros(len(cluster.fabric), np.bool_)
        marked[self.links(cluster)] = True
        messages = 0

        def add(healthy: Routes, damaged: Routes, times: int) -> None:
            nonlocal messages
            routes = healthy if self.avoided else damaged
            if len(routes.latency_ps):
                crossing = np.logical_or.reduceat(marked[routes.links], routes.offsets[:-1])
                messages += times * int(np.count_nonzero(crossing))

        return MessageCounter(add, lambda: self._effect(messages))

    def act(self, network: TimeVaryingNetwork, cluster: Cluster, _seed: int) -> ActiveFault:
        """Let it happen when it is time."""
        begun: list[LinkChange] = []
        network.env.process(self.happen(network, self.links(cluster), begun))

        def effect() -> Effect:
            if not begun:
                return Effect(self.text, f"all was over before {self.at}", nothing=True)
            return self._effect(begun[0].messages)

        return ActiveFault(effect)

    def _effect(self, messages: int) -> Effect:
        return Effect(self.text, self.describe_effect(messages), messages == 0)


@dataclass(frozen=True, slots=True)
class FailLink(LinkFault):
    """Links that nothing crosses from a moment on: messages take other ways."""

    name: ClassVar[str] = "fail-link"
    example: ClassVar[str] = "fail-link:link=leaf0.up1,at=2ms"
    draws: ClassVar[bool] = True
    avoided: ClassVar[bool] = True

    link: str
    at: Time = START

    @property
    def permanent(self) -> bool:
        """Whether it is so from the start on."""
        return self.at.ps == 0

    @property
    def failure_text(self) -> str:
        """What has failed, and when."""
        return f"{self.link} failed" if self.permanent else f"{self.link} failed at {self.at}"

    def damage(self, cluster: Cluster, damage: Damage) -> None:
        """Take the links away, where it lasts."""
        links = self.links(cluster)
        if self.permanent:
            damage.dead[links] = True
            damage.why.append(self.failure_text)

    def describe_effect(self, messages: int) -> str:
        """Return how many messages went around it."""
        return f"{messages:,} messages took another way" if messages else "no message would have crossed it"

    def happen(
        self, network: TimeVaryingNetwork, links: Ints, begun: list[LinkChange]
    ) -> Generator[simpy.Event, None, None]:
        """Let nothing cross the links any more."""
        yield network.env.timeout(self.at.ps)
        begun.append(network.fail(links, self.failure_text))


@dataclass(frozen=True, slots=True)
class Jitter(Fault):
    """Latency that differs from message to message: more of it, drawn from an exponential distribution."""

    name: ClassVar[str] = "jitter"
    example: ClassVar[str] = "jitter:latency=2us"
    draws: ClassVar[bool] = True

    latency: Time

    def __post_init__(self) -> None:
        if self.latency.ps == 0:
            raise OptionError(f"jitter: latency={self.latency} adds nothing: leave it out")

    def act(self, _network: TimeVaryingNetwork, _cluster: Cluster, seed: int) -> ActiveFault:
        """Delay every message by a draw of its own; the order of events plays no part."""
        total_ps, total_messages = 0, 0

        def late_ps(collective: int, step: int, time: int, messages: int) -> Ints:
            nonlocal total_ps, total_messages
            generator = named_generator(seed, self.text, collective, step, time)
            drawn_ps = np.rint(generator.exponential(self.latency.ps, messages)).astype(np.int64)
            total_ps += int(drawn_ps.sum())
            total_messages += messages
            return drawn_ps

        def effect() -> Effect:
            mean = format_seconds(total_ps / max(total_messages, 1) / PS_PER_S)
            return Effect(self.text, f"{total_messages:,} messages were late, by {mean} on average", total_ps == 0)

        return ActiveFault(effect, late_ps)


@dataclass(frozen=True, slots=True)
class SlowLink(LinkFault):
    """Links that carry less than they should, all the time or for a while."""

    name: ClassVar[str] = "slow-link"
    example: ClassVar[str] = "slow-link:link=node1.nic0.out,factor=0.5"

    link: str
    factor: float
    at: Time = START
    until: Time | None = None

    def __post_init__(self) -> None:
        if not 0 < self.factor < 1:
            raise OptionError(f"slow-link: factor={self.factor} of the rate must lie between 0 and 1")
        if self.until is not None and self.until.ps <= self.at.ps:
            raise OptionError(f"slow-link: until={self.until} must come after at={self.at}")

    @property
    def permanent(self) -> bool:
        """Whether it is so from the start on and for good."""
        return self.at.ps == 0 and self.until is None

    def damage(self, cluster: Cluster, damage: Damage) -> None:
        """Slow the links, where it lasts."""
        links = self.links(cluster)
        if self.permanent:
            damage.factors[links] *= self.factor

    def describe_effect(self, messages: int) -> str:
        """Return how many messages crossed it."""
        met = f"{messages:,} messages crossed" if messages else "no message crossed"
        return f"{met} it at {self.factor:g} of its rate"

    def happen(
        self, network: TimeVaryingNetwork, links: Ints, begun: list[LinkChange]
    ) -> Generator[simpy.Event, None, None]:
        """Slow the links, and let them recover."""
        yield network.env.timeout(self.at.ps)
        change = network.slow_down(links, self.factor)
        begun.append(change)
        if self.until is not None:
            yield network.env.timeout(self.until.ps - self.at.ps)
            network.recover(change)
