"""The interface of faults: options, effects on clusters, networks, ranks and messages, and their report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.network.time_varying import TimeVaryingNetwork
from s2sim.options import Time, option_text
from s2sim.topology.cluster import Cluster, fail_links, scale_rates
from s2sim.topology.graph import Routes

START = Time("0s")


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault, named by its option string, did in words, and whether that was nothing."""

    fault: str
    description: str
    nothing: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Damage:
    """What is wrong with the links of a cluster before anything runs.

    Factors of their rates, float64 of shape (links,); which of them nothing crosses, bool; and what has failed, for
    messages.
    """

    factors: Floats
    dead: Mask
    why: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class ActiveFault:
    """A fault on a network."""

    effect: Callable[[], Effect]  # Returns its effect until now
    # ``late_ps(collective, step, time, messages)`` returns the delay of each message of a round after its last byte,
    # int64 picoseconds; None if it delays no message
    late_ps: Callable[[int, int, int, int], Ints] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MessageCounter:
    """Counts the messages that meet a fault which lasts from the start on.

    ``add(healthy, damaged, times)`` takes note of messages by their routes on the healthy cluster and on the damaged
    one, and of how often they go; ``effect()`` returns what the fault did to them.
    """

    add: Callable[[Routes, Routes, int], None]
    effect: Callable[[], Effect]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong, with its options."""

    name: ClassVar[str]
    example: ClassVar[str]
    # draws, sends: whether a seed decides anything of it, and whether it sends messages of its own
    draws: ClassVar[bool] = False
    sends: ClassVar[bool] = False
    on_network: ClassVar[bool] = True  # Whether it happens to a network, unless it lasts from the start on

    @property
    def text(self) -> str:
        """Its option string, which `make_fault` reads back."""
        return option_text(self)

    @property
    def permanent(self) -> bool:
        """Whether it is a property of the cluster: so from the start on and for good."""
        return False

    def check(self, cluster: Cluster) -> None:
        """Raise the error for ranks that the cluster does not have."""

    def damage(self, cluster: Cluster, damage: Damage) -> None:
        """Add what it does to a cluster before anything runs; raise the error for links that it does not have."""

    def meetings(self, cluster: Cluster) -> MessageCounter | None:
        """Return what counts the messages that meet it, where it lasts from the start on."""

    def act(self, network: TimeVaryingNetwork, cluster: Cluster, seed: int) -> ActiveFault | None:
        """Begin on a network of the cluster, where it happens on one; ``seed`` is for what it draws."""

    def hold_back(self, factors: Floats, late_ps: Ints) -> None:
        """Change how much longer the GPU work of each rank takes, and by how much each comes later."""

    def effect_on_work(self, *, works: bool) -> Effect | None:
        """Return what it did to ranks that run scripts, by whether those that it slows have any work."""

    def effect_on_collective(self, ends_ps: Ints, without_ps: Ints) -> Effect | None:
        """Return what it did to the ranks of one collective, by when each of them ended, and would have without it."""

    def effect_on_transfers(self, src: Ints) -> Effect | None:
        """Return what it did to ranks that send transfers, one a rank in ``src``."""


def apply_permanent_faults(cluster: Cluster, faults: Sequence[Fault]) -> Cluster:
    """Return the cluster with the permanent faults; `TopologyError` or `OptionError` for unknown links or ranks."""
    links = len(cluster.fabric)
    done = Damage(np.ones(links), np.zeros(links, np.bool_), [])
    for fault in faults:
        fault.check(cluster)
        fault.damage(cluster, done)
    if (done.factors < 1).any():
        cluster = scale_rates(cluster, done.factors)
    return fail_links(cluster, done.dead, " and ".join(done.why)) if done.why else cluster


def permanent_effects(
    faults: Sequence[Fault], cluster: Cluster, sent: Iterable[tuple[Routes, Routes, int]]
) -> list[Effect]:
    """Return the effects of permanent faults; ``sent`` has healthy routes, damaged routes and counts of messages."""
    found = [meetings for fault in faults if (meetings := fault.meetings(cluster)) is not None]
    if not found:
        return []
    for healthy, damaged, times in sent:
        for meetings in found:
            meetings.add(healthy, damaged, times)
    effects = [meetings.effect() for meetings in found]
    others = any(fault.sends for fault in faults)
    return [replace(effect, nothing=effect.nothing and not others) for effect in effects]
