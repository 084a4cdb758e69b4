"""The kit against algorithms that break its rules."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import pytest

from s2sim.collectives.algorithms.ring import Ring
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.bounds import LowerBound
from s2sim.errors import OptionError, S2SimError
from s2sim.testing.collectives import check_algorithm


def changed(schedule, step=lambda step: step, steps=list, **stage):
    """Return the schedule with each step, the list of steps, or other fields of its stage replaced."""
    found = steps([step(each) for each in schedule.stage.steps])
    return dataclasses.replace(schedule, stage=dataclasses.replace(schedule.stage, steps=found, **stage))


def with_pattern(change):
    def step(each):
        pattern = dataclasses.replace(each.round.pattern, **change(each.round.pattern))
        return dataclasses.replace(each, round=dataclasses.replace(each.round, pattern=pattern))

    return step


@dataclass
class Thawed:
    """Not frozen."""

    name: ClassVar[str] = "thawed"


@dataclass(frozen=True)
class Broadcasts(Ring):
    kinds: ClassVar[tuple[str, ...]] = ("multicast",)
    auto: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Idle(Ring):
    kinds: ClassVar[tuple[str, ...]] = ()
    auto: ClassVar[tuple[str, ...]] = ()


class Changed(Ring):
    """A ring with a change to its schedule."""

    def schedule(self, demand, cluster):
        return self.change(Ring.schedule(self, demand, cluster))


@dataclass(frozen=True)
class Short(Changed):
    """Stops a round early."""

    def change(self, schedule):
        stage = dataclasses.replace(schedule.stage, steps=schedule.stage.steps[:-1], volume=None)
        return dataclasses.replace(schedule, stage=stage)


@dataclass(frozen=True)
class Sizeless(Ring):
    """Makes the schedule of another size."""

    def schedule(self, demand, cluster):
        return Ring.schedule(self, Demand(demand.kind, (8,) * demand.ranks, 4), cluster)


@dataclass(frozen=True)
class ToItself(Changed):
    def change(self, schedule):
        return changed(schedule, with_pattern(lambda pattern: {"dst": pattern.src}))


@dataclass(frozen=True)
class Beyond(Changed):
    """The last rank sends past the end."""

    def change(self, schedule):
        return changed(schedule, with_pattern(lambda pattern: {"dst": pattern.src + 1}))


@dataclass(frozen=True)
class Twice(Changed):
    """Uses its first pair for all."""

    def change(self, schedule):
        def first(pattern):
            return {"src": pattern.src * 0 + pattern.src[0], "dst": pattern.dst * 0 + pattern.dst[0]}

        return changed(schedule, with_pattern(first), volume=None)


@dataclass(frozen=True)
class Understates(Changed):
    """Counts half of the bytes."""

    def change(self, schedule):
        def halved(step):
            return dataclasses.replace(step, round=dataclasses.replace(step.round, bytes=step.round.bytes / 2))

        return changed(schedule, halved)


@dataclass(frozen=True)
class Overstates(Changed):
    """Says that ranks send more than they do."""

    def change(self, schedule):
        return changed(schedule, volume=lambda ranks: schedule.stage.traffic(ranks) + 1)


@dataclass(frozen=True)
class Early(Changed):
    """The first step waits for the last."""

    def change(self, schedule):
        last = (len(schedule.stage.steps) - 1,)
        return changed(schedule, lambda step: dataclasses.replace(step, after=last), chain=False)


@dataclass(frozen=True)
class Hasty(Changed):
    """All steps start at once, whatever data they need."""

    def change(self, schedule):
        return changed(schedule, lambda step: dataclasses.replace(step, after=()), chain=False)


@dataclass(frozen=True)
class Backwards(Changed):
    """Goes round the other way, but is called a ring."""

    def change(self, schedule):
        last = schedule.demand.ranks - 1
        return changed(
            schedule, with_pattern(lambda pattern: {"src": last - pattern.src, "dst": last - pattern.dst}), volume=None
        )


@dataclass(frozen=True)
class Misnamed(Ring):
    def schedule(self, demand, cluster):
        return dataclasses.replace(Ring.schedule(self, demand, cluster), algorithm="ring:channels=7")


@dataclass(frozen=True)
class Unregistered(Ring):
    name: ClassVar[str] = "my-ring"

    def schedule(self, demand, cluster):
        return dataclasses.replace(Ring.schedule(self, demand, cluster), algorithm="my-ring")


@dataclass(frozen=True)
class Refuses(Ring):
    def schedule(self, demand, cluster):
        raise OptionError(f"not for {demand.ranks} ranks on {cluster.workers}")


@dataclass(frozen=True)
class Negative(Ring):
    def closed_form_s(self, demand, hops):
        return -Ring.closed_form_s(self, demand, hops)


@dataclass(frozen=True)
class Starts(Ring):
    """Takes time on a single rank."""

    def closed_form_s(self, demand, hops):
        return 1e-6 + Ring.closed_form_s(self, demand, hops)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Thawed, "not frozen"),
        (Broadcasts, "'multicast', which is none of"),
        (Idle, "runs no kind"),
        (Short, "wrong all_reduce on rank"),
        (Sizeless, "for another demand"),
        (ToItself, "from a rank to itself in all_reduce of 101 elements over 2 ranks on fat-tree"),
        (Beyond, "rank that does not exist"),
        (Twice, "wrong all_reduce on rank"),
        (Understates, "other bytes than it sends"),
        (Backwards, "reads back to an algorithm with another schedule"),
        (Misnamed, "'ring:channels=7' reads back"),
        (Unregistered, "unknown algorithm 'my-ring'"),
        (Overstates, "traffic of the ranks"),
        (Early, "waits for a later one"),
        (Hasty, "wrong all_reduce on rank"),
        (Refuses, "refuses all_reduce over any"),
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
    monkeypatch.setattr("s2sim.testing.collectives.lower_bound", lambda _demands, _cuts, **_: bound)
    with pytest.raises(AssertionError, match="under the lower bound: a slower world"):
        check_algorithm(Ring())
