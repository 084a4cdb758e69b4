"""The kit against algorithms that break its rules."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import pytest

from s2sim.collectives.bounds import LowerBound
from s2sim.collectives.ring import Ring
from s2sim.collectives.schedule import Demand
from s2sim.errors import S2SimError
from s2sim.testing.collectives import check_algorithm


def with_rounds(schedule, change):
    return dataclasses.replace(schedule, round_at=lambda k: change(schedule.round_at(k)))


@dataclass
class Thawed:
    """Not frozen."""

    name: ClassVar[str] = "thawed"


@dataclass(frozen=True)
class Broadcasts(Ring):
    kinds: ClassVar[tuple[str, ...]] = ("broadcast",)


@dataclass(frozen=True)
class Idle(Ring):
    kinds: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Short(Ring):
    """Stops a round early."""

    def schedule(self, demand, cluster):
        schedule = Ring.schedule(self, demand, cluster)
        return dataclasses.replace(schedule, rounds=max(schedule.rounds - 1, 0))


@dataclass(frozen=True)
class Sizeless(Ring):
    """Makes the schedule of another size."""

    def schedule(self, demand, cluster):
        return Ring.schedule(self, Demand(demand.kind, (8,) * demand.ranks, 4), cluster)


@dataclass(frozen=True)
class ToItself(Ring):
    def schedule(self, demand, cluster):
        schedule = Ring.schedule(self, demand, cluster)
        return dataclasses.replace(schedule, dst=schedule.src)


@dataclass(frozen=True)
class Beyond(Ring):
    """The last rank sends past the end."""

    def schedule(self, demand, cluster):
        schedule = Ring.schedule(self, demand, cluster)
        return dataclasses.replace(schedule, dst=schedule.src + 1)


@dataclass(frozen=True)
class Twice(Ring):
    """Uses its first pair for all."""

    def schedule(self, demand, cluster):
        schedule = Ring.schedule(self, demand, cluster)
        return with_rounds(schedule, lambda transfers: dataclasses.replace(transfers, pair=transfers.pair * 0))


@dataclass(frozen=True)
class Unnamed(Ring):
    """Uses a pair that the schedule does not have."""

    def schedule(self, demand, cluster):
        schedule = Ring.schedule(self, demand, cluster)
        return with_rounds(schedule, lambda transfers: dataclasses.replace(transfers, pair=transfers.pair + 1))


@dataclass(frozen=True)
class Understates(Ring):
    """Counts half of the bytes."""

    def schedule(self, demand, cluster):
        schedule = Ring.schedule(self, demand, cluster)
        return with_rounds(schedule, lambda transfers: dataclasses.replace(transfers, bytes=transfers.bytes / 2))


@dataclass(frozen=True)
class Backwards(Ring):
    """Goes round the other way, but is called a ring."""

    def schedule(self, demand, cluster):
        schedule = Ring.schedule(self, demand, cluster)
        last = demand.ranks - 1
        return dataclasses.replace(schedule, src=last - schedule.src, dst=last - schedule.dst)


@dataclass(frozen=True)
class Misnamed(Ring):
    def schedule(self, demand, cluster):
        return dataclasses.replace(Ring.schedule(self, demand, cluster), algorithm="ring:channels=7")


@dataclass(frozen=True)
class Unregistered(Ring):
    name: ClassVar[str] = "my-ring"


@dataclass(frozen=True)
class Uniform(Ring):
    """Claims that all rounds are alike, whatever the ranks contribute."""

    def schedule(self, demand, cluster):
        return dataclasses.replace(Ring.schedule(self, demand, cluster), uniform=True)


@dataclass(frozen=True)
class Negative(Ring):
    def closed_form_s(self, demand, *, nodes, latency_s, rate_Bps):
        return -Ring.closed_form_s(self, demand, nodes=nodes, latency_s=latency_s, rate_Bps=rate_Bps)


@dataclass(frozen=True)
class Starts(Ring):
    """Takes time on a single rank."""

    def closed_form_s(self, demand, *, nodes, latency_s, rate_Bps):
        return latency_s + Ring.closed_form_s(self, demand, nodes=nodes, latency_s=latency_s, rate_Bps=rate_Bps)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Thawed, "not frozen"),
        (Broadcasts, "'broadcast', which is none of"),
        (Idle, "runs no kind"),
        (Short, "wrong all_reduce on rank"),
        (Sizeless, "for another demand"),
        (ToItself, "from a rank to itself in all_reduce of 101 elements over 2 ranks on fat-tree"),
        (Beyond, "rank that does not exist"),
        (Twice, "uses a pair twice"),
        (Unnamed, "pair that the schedule does not have"),
        (Understates, "other bytes than it sends"),
        (Backwards, "reads back to an algorithm with another schedule"),
        (Misnamed, "'ring:channels=7' reads back"),
        (Unregistered, "unknown algorithm 'my-ring'"),
        (Uniform, "in the network in all_gather"),
        (Negative, "the closed form of all_reduce over 2 ranks is -"),
        (Starts, "on one rank is 1e-06 s, not 0"),
    ],
)
def test_the_kit_finds(broken, complaint):
    with pytest.raises((AssertionError, S2SimError), match=complaint) as caught:
        check_algorithm(broken())
    assert "\n" not in str(caught.value)


def test_the_kit_finds_a_time_under_the_bound(monkeypatch):
    bound = LowerBound(1.0, "a slower world")
    monkeypatch.setattr("s2sim.testing.collectives.lower_bound", lambda _demands, _cuts: bound)
    with pytest.raises(AssertionError, match="under the lower bound by a slower world"):
        check_algorithm(Ring())
