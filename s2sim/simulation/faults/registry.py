"""The faults by name."""

import dataclasses
from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import simpy

from s2sim.arrays import Floats, Ints, Mask
from s2sim.errors import OptionError
from s2sim.network.time_varying import BackgroundTraffic, LinkChange, TimeVaryingNetwork, check_background
from s2sim.options import Size, Time, build, split_option_string
from s2sim.registry import Registry
from s2sim.seeds import named_generator
from s2sim.simulation.faults.fault import START, ActiveFault, Damage, Effect, Fault
from s2sim.topology.cluster import Cluster
from s2sim.topology.links import find_links
from s2sim.units import PS_PER_S, format_bytes, format_number_of, format_seconds

_SIZE, _MOST_FACTOR = Size("1MiB"), 10_000
_Events: TypeAlias = "Generator[simpy.Event, None, None]"


@dataclass(frozen=True, slots=True)
class BackgroundFault(Fault):
    """Traffic of others: messages between random ranks of different nodes, as a Poisson process."""

    load: float
    size: Size = _SIZE

    def __post_init__(self) -> None:
        if not 0 < self.load < 1:
            raise OptionError(f"background: load={self.load} of what network interfaces carry must lie between 0 and 1")
        if self.size.bytes == 0:
            raise OptionError(f"background: messages of size={self.size} load nothing: leave them out")

    def check(self, cluster: Cluster) -> None:
        """Raise `OptionError` where links have no room for its load."""
        check_background(cluster, self.load)

    def act(self, network: TimeVaryingNetwork, cluster: Cluster, seed: int) -> ActiveFault:
        """Send for as long as the simulation lasts."""
        generator = named_generator(seed, self.text)
        traffic = BackgroundTraffic(network, cluster, self.load, self.size.bytes, generator)
        network.env.process(traffic.run())

        def effect() -> Effect:
            sent_bytes = traffic.messages * self.size.bytes
            share = sent_bytes / (traffic.rate_Bps * network.env.now / PS_PER_S) if network.env.now else 0.0
            did = f"{traffic.messages:,} messages, {format_bytes(sent_bytes)}: {share:.1%} of what interfaces carry"
            return Effect(self.text, did, traffic.messages == 0)

        return ActiveFault(effect)


class LinkFault(Fault):
    """A fault of the links of a name or a shell pattern, from a time on."""

    __slots__ = ()
    link: str
    at: Time

    @abstractmethod
    def describe_effect(self, messages: int) -> str:
        """Return its effect as text, by the number of affected messages."""

    @abstractmethod
    def happen(self, network: TimeVaryingNetwork, links: Ints, begun: list[LinkChange]) -> _Events:
        """Change the links at the time of the fault, and append the change to ``begun``."""

    def links(self, cluster: Cluster) -> Ints:
        """Return the affected links, int64; `TopologyError` if there are none."""
        return find_links(cluster.fabric, self.link, cluster.shape.name)

    def damaged_links(self, cluster: Cluster) -> Mask | None:
        """Return a mask of its links if it is permanent."""
        return np.isin(np.arange(len(cluster.fabric)), self.links(cluster)) if self.permanent else None

    def effect_on_messages(self, messages: int) -> Effect:
        """Return its effect by the number of messages that crossed its links, or went around them."""
        return Effect(self.text, self.describe_effect(messages), messages == 0)

    def act(self, network: TimeVaryingNetwork, cluster: Cluster, _seed: int) -> ActiveFault:
        """Begin the fault's process on a network."""
        begun: list[LinkChange] = []
        network.env.process(self.happen(network, self.links(cluster), begun))

        def effect() -> Effect:
            if not begun:
                return Effect(self.text, f"all was over before {self.at}", nothing=True)
            return self.effect_on_messages(begun[0].messages)

        return ActiveFault(effect)


@dataclass(frozen=True, slots=True)
class FailLink(LinkFault):
    """Links that nothing crosses from a moment on: messages take other ways."""

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
        """Remove the links if the fault is permanent."""
        links = self.links(cluster)
        if self.permanent:
            damage.dead[links] = True
            damage.why.append(self.failure_text)

    def describe_effect(self, messages: int) -> str:
        """Return the number of messages on other routes as text."""
        return f"{messages:,} messages took another way" if messages else "no message would have crossed it"

    def happen(self, network: TimeVaryingNetwork, links: Ints, begun: list[LinkChange]) -> _Events:
        """Fail the links."""
        yield network.env.timeout(self.at.ps)
        begun.append(network.fail(links, self.failure_text))


@dataclass(frozen=True, slots=True)
class Jitter(Fault):
    """Latency that differs from message to message: more of it, drawn from an exponential distribution."""

    latency: Time

    def __post_init__(self) -> None:
        if not 0 < self.latency.ps <= PS_PER_S:
            raise OptionError(f"jitter: latency={self.latency} must be more than 0 s, which adds nothing, to 1 s")

    def act(self, _network: TimeVaryingNetwork, _cluster: Cluster, seed: int) -> ActiveFault:
        """Delay every message by its own sample, independent of the order of events."""
        total_ps, total_messages = 0, 0

        def late_ps(collective: int, step: int, time: int, messages: int) -> Ints:
            nonlocal total_ps, total_messages
            generator = named_generator(seed, self.text, collective, step, time)
            sampled_ps = np.rint(generator.exponential(self.latency.ps, messages)).astype(np.int64)
            total_ps += int(sampled_ps.sum())
            total_messages += messages
            return sampled_ps

        def effect() -> Effect:
            mean = format_seconds(total_ps / max(total_messages, 1) / PS_PER_S)
            return Effect(self.text, f"{total_messages:,} messages were late, by {mean} on average", total_ps == 0)

        return ActiveFault(effect, late_ps)


@dataclass(frozen=True, slots=True)
class SlowLink(LinkFault):
    """Links that carry less than they should, all the time or for a while."""

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
        """Slow the links if the fault is permanent."""
        links = self.links(cluster)
        if self.permanent:
            damage.factors[links] *= self.factor

    def describe_effect(self, messages: int) -> str:
        """Return the number of messages on the links as text."""
        crossed = f"{messages:,} messages crossed" if messages else "no message crossed"
        return f"{crossed} it at {self.factor:g} of its rate"

    def happen(self, network: TimeVaryingNetwork, links: Ints, begun: list[LinkChange]) -> _Events:
        """Slow the links, and let them recover."""
        yield network.env.timeout(self.at.ps)
        change = network.slow_down(links, self.factor)
        begun.append(change)
        if self.until is not None:
            yield network.env.timeout(self.until.ps - self.at.ps)
            network.recover(change)


@dataclass(frozen=True, slots=True)
class SlowRank(Fault):
    """A rank whose GPU work takes a factor longer, or that comes later by a delay."""

    rank: int
    factor: float | None = None
    delay: Time | None = None

    def __post_init__(self) -> None:
        if (self.factor is None) == (self.delay is None):
            raise OptionError("slow-rank: give either factor=, for its GPU work, or delay=, for coming late")
        if self.rank < 0:
            raise OptionError(f"slow-rank: rank={self.rank} must not be negative")
        if self.factor is not None and not 1 < self.factor <= _MOST_FACTOR:
            raise OptionError(f"slow-rank: factor={self.factor} of work must be more than 1, at most {_MOST_FACTOR:,}")
        if self.delay is not None and self.delay.ps == 0:
            raise OptionError(f"slow-rank: delay={self.delay} delays nothing: leave it out")

    def check(self, cluster: Cluster) -> None:
        """Raise the error for a rank that the cluster does not have."""
        if self.rank >= cluster.workers:
            raise OptionError(f"{self.text}: {format_number_of(cluster.workers, 'rank')} in all, from 0 on")

    def hold_back(self, factors: Floats, late_ps: Ints) -> None:
        """Slow the rank's work, or let it come late."""
        if self.factor is not None:
            factors[self.rank] *= self.factor
        if self.delay is not None:
            late_ps[self.rank] += self.delay.ps

    def effect_on_work(self, *, works: bool) -> Effect:
        """Return the effect on the rank: one without work cannot be slow."""
        if self.factor is None:
            return Effect(self.text, f"it came {self.delay} late", nothing=False)
        did = f"its work took {self.factor:g} times as long" if works else "it has no work"
        return Effect(self.text, did, nothing=not works)

    def effect_on_collective(self, ends_ps: Ints, without_ps: Ints) -> Effect:
        """Return the effect on the ends of ranks: none if no rank waits for the slow one."""
        if np.array_equal(ends_ps, without_ps):
            return Effect(self.text, f"rank {self.rank} came {self.delay} late, and nobody ended later", nothing=True)
        later = format_seconds((int(ends_ps.max()) - int(without_ps.max())) / PS_PER_S)
        others = int(np.count_nonzero(ends_ps > without_ps))
        did = f"rank {self.rank} came {self.delay} late: {others:,} ranks ended later, the last one by {later}"
        return Effect(self.text, did, nothing=False)

    def effect_on_transfers(self, src: Ints) -> Effect:
        """Return the number of its transfers as text."""
        count = int(np.count_nonzero(src == self.rank))
        return Effect(self.text, f"{count:,} transfers start later", count == 0)


FAULTS = Registry("fault", "s2sim.faults", Fault.catalogue.places)


def make_fault(text: str) -> Fault:
    """Return the fault of an option string.

    >>> make_fault("jitter:latency=2us").latency.ps
    2000000
    """
    name, options = split_option_string(text)
    cls: type[Fault] = FAULTS.get(name)
    needed = {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
    missing = sorted(needed - set(options))
    if missing and set(options) <= {field.name for field in dataclasses.fields(cls)}:
        raise OptionError(f"{text} needs {' and '.join(f'{key}=' for key in missing)}, for example {cls.example}")
    return build(cls, options, name)


def make_faults(texts: Sequence[str]) -> tuple[Fault, ...]:
    """Return the faults of option strings; `OptionError` for duplicates."""
    faults: dict[str, Fault] = {}
    for text in texts:
        fault = make_fault(text)
        if fault.text in faults:
            raise OptionError(f"the fault {text} was asked for twice: leave one out")
        faults[fault.text] = fault
    return tuple(faults.values())
