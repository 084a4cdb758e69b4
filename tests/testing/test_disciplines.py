"""The kit against disciplines that break its rules."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import pytest

from s2sim.simulation.bucketing import policy as registry
from s2sim.simulation.bucketing.policy import Bucket, Discipline
from s2sim.testing.collectives import check_discipline

COUNTER = itertools.count()


@dataclass(frozen=True, slots=True)
class Pairs(Discipline):
    """Two at a time: a good one."""

    name: ClassVar[str] = "pairs"
    summary: ClassVar[str] = "two at a time"
    source: ClassVar[str] = "this file"
    example: ClassVar[str] = "pairs"

    def buckets(self, tensors, exchange_ps):
        places = range(len(tensors.bytes))
        return tuple(Bucket(tuple(places[start : start + 2])) for start in places[::2])


class Forgetful(Pairs):
    def buckets(self, tensors, exchange_ps):
        return Pairs.buckets(self, tensors, exchange_ps)[:-1]


class Twofold(Pairs):
    def buckets(self, tensors, exchange_ps):
        return Pairs.buckets(self, tensors, exchange_ps) * 2


class Hollow(Pairs):
    def buckets(self, tensors, exchange_ps):
        return (*Pairs.buckets(self, tensors, exchange_ps), Bucket(()))


class Backwards(Pairs):
    def buckets(self, tensors, exchange_ps):
        return tuple(Bucket(item.tensors[::-1]) for item in Pairs.buckets(self, tensors, exchange_ps))


class Listed(Pairs):
    def buckets(self, tensors, exchange_ps):
        return list(Pairs.buckets(self, tensors, exchange_ps))


class Restless(Pairs):
    def buckets(self, tensors, exchange_ps):
        return tuple(Bucket(item.tensors, next(COUNTER)) for item in Pairs.buckets(self, tensors, exchange_ps))


class Scribbles(Pairs):
    def buckets(self, tensors, exchange_ps):
        tensors.bytes[:] += 1
        return Pairs.buckets(self, tensors, exchange_ps)


class Wordless(Pairs):
    summary: ClassVar[str] = " "


class Wordy(Pairs):
    summary: ClassVar[str] = "two\nlines"


class Misspelt(Pairs):
    text = "ddp"


class Elsewhere(Pairs):
    example: ClassVar[str] = "ddp"


class Undecided(Pairs):
    waits_for_all: ClassVar[str] = "maybe"


def check(cls, monkeypatch):
    registered = registry.Registry("discipline", "s2sim.disciplines", {"pairs": "module:cls", "ddp": "module:Ddp"})
    kinds = {"pairs": cls, "ddp": Pairs}
    monkeypatch.setattr(type(registered), "get", lambda _, name: kinds[name])
    monkeypatch.setattr(registry, "DISCIPLINES", registered)
    check_discipline(cls())


def test_a_good_one_passes(monkeypatch):
    check(Pairs, monkeypatch)


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        (Forgetful, "exactly one bucket"),
        (Twofold, "exactly one bucket"),
        (Hollow, "empty bucket"),
        (Backwards, "do not increase"),
        (Listed, "no tuple"),
        (Restless, "another answer"),
        (Scribbles, "changes the gradients"),
        (Wordless, "has no summary"),
        (Wordy, "more than a line"),
        (Misspelt, "reads back"),
        (Elsewhere, "is another discipline"),
        (Undecided, "neither true nor false"),
    ],
)
def test_the_kit_finds_what_is_wrong(cls, says, monkeypatch):
    with pytest.raises(AssertionError, match=says):
        check(cls, monkeypatch)
