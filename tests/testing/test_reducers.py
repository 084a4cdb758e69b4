"""The kit against reducers that break its rules."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import pytest

from s2sim.errors import S2SimError, S2SimWarning
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.rank import ErrorBound, Reduced
from s2sim.reducers.systems.dense import Dense
from s2sim.testing import reducers as lengths
from s2sim.testing.reducers import check_reducer

LOSSY = dataclasses.replace(Dense.about, lossless=False)


class Lossy(Dense):
    """Says that it loses something."""

    about = LOSSY

    @property
    def traits(self):
        return self.about


class Compressing(Lossy):
    """Compresses all layers."""

    def compresses(self, gradient):
        return tuple(range(len(gradient.layers)))


@dataclass
class Sum(Dense):
    """Forgets to divide."""

    def reduce(self, rank, gradient):
        total = rank.all_reduce(gradient, label="gradient")
        yield total
        return Reduced(total.value, lambda: gradient)


@dataclass
class OwnOnly(Lossy):
    """Uses its local gradient: the defect of the published S2 code."""

    def reduce(self, rank, gradient):
        yield rank.all_reduce(gradient, label="gradient")
        return Reduced(gradient, lambda: gradient)


@dataclass
class WrongSent(Lossy):
    """Claims to have sent nothing."""

    def reduce(self, rank, gradient):
        reduced = yield from Dense.reduce(self, rank, gradient)
        return dataclasses.replace(reduced, sent=lambda: gradient.map(np.zeros_like))


@dataclass
class Scribbles(Dense):
    """Scales its input in place."""

    def reduce(self, rank, gradient):
        for layer in gradient.layers:
            values = getattr(layer, "values", layer)
            values *= 2
        return (yield from Dense.reduce(self, rank, gradient))


@dataclass
class Doubles(Dense):
    """Returns float64."""

    def reduce(self, rank, gradient):
        reduced = yield from Dense.reduce(self, rank, gradient)
        return dataclasses.replace(reduced, mean=reduced.mean.map(lambda values: values.astype(np.float64)))


@dataclass
class Offset(Compressing):
    """Adds a constant: zero gradients do not give zero."""

    def reduce(self, rank, gradient):
        reduced = yield from Dense.reduce(self, rank, gradient)
        shifted = Gradient(reduced.mean.names, tuple(layer + np.float32(1) for layer in reduced.mean.layers))
        return Reduced(shifted, lambda: shifted)


@dataclass
class Random(Compressing):
    """Takes its noise from the wind."""

    generator: np.random.Generator = field(init=False, default_factory=np.random.default_rng)

    def reduce(self, rank, gradient):
        reduced = yield from Dense.reduce(self, rank, gradient)
        mean = rank.replicated(lambda: reduced.mean.map(lambda values: values * np.float32(self.generator.random())))
        return Reduced(mean, lambda: mean)


@dataclass
class Hangs(Dense):
    """Waits for what only the first rank posts."""

    def reduce(self, rank, gradient):
        reduced = yield from Dense.reduce(self, rank, gradient)
        if rank.index == 0:
            yield rank.all_reduce(gradient, label="alone")
        return reduced


@dataclass
class Murmurs(Dense):
    """Refuses without saying what."""

    def reduce(self, rank, gradient):
        if rank.size > 1:
            raise S2SimError("not possible")
        return (yield from Dense.reduce(self, rank, gradient))


@dataclass
class RefusesAll(Dense):
    """Takes no number of ranks."""

    def reduce(self, rank, gradient):
        raise S2SimError(f"{rank.size} ranks are too many or too few")
        yield


@dataclass
class RefusesOne(Dense):
    """Takes two ranks and more, and says so: nothing is wrong."""

    def reduce(self, rank, gradient):
        if rank.size < 2:
            raise S2SimError("1 rank has nobody to talk to: take 2")
        return (yield from Dense.reduce(self, rank, gradient))


@dataclass
class Squares(Compressing):
    """Takes a square of which float32 has none, and divides by it."""

    def reduce(self, rank, gradient):
        reduced = yield from Dense.reduce(self, rank, gradient)

        def changed(values):
            length = np.sqrt(np.square(values).sum(dtype=np.float32)) if values.size else np.float32(1)
            return values / length * length if length else values

        return Reduced(reduced.mean, lambda: gradient.map(changed))


@dataclass
class Halves(Compressing):
    """Sends the half and keeps quiet about it."""

    def reduce(self, rank, gradient):
        half = rank.all_reduce(gradient.map(lambda values: values / 2), label="half")
        yield half
        mean = rank.replicated(lambda: half.value.map(lambda values: values / rank.size))
        return Reduced(mean, lambda: gradient.map(lambda values: values / 2))


@dataclass
class TwiceAsOften(Halves):
    """Claims to have sent what it has not."""

    about = dataclasses.replace(LOSSY, feedback="needed")

    def reduce(self, rank, gradient):
        reduced = yield from Halves.reduce(self, rank, gradient)
        return Reduced(reduced.mean, (lambda: reduced.mean) if rank.size == 1 else (lambda: gradient))


@dataclass
class Forgets(Halves):
    """Keeps less than it has not sent."""

    about = dataclasses.replace(LOSSY, feedback="own")
    kept: Gradient | None = field(init=False, default=None)

    def reduce(self, rank, gradient):
        self.kept = gradient.map(lambda values: values / 4)
        return (yield from Halves.reduce(self, rank, gradient))

    def held_back(self):
        return self.kept


@dataclass
class Boasts(Halves):
    """Promises to lose less than it does."""

    about = dataclasses.replace(LOSSY, feedback="needed")

    def contraction(self, gradient):
        return 0.8


@dataclass
class BoundsOne(Compressing):
    """Knows a bound of one layer of several."""

    def error_bound(self):
        return ErrorBound((0.5,), relative=True, share=0.5, relative_l2=None, source="")


@dataclass
class Keeps(Boasts):
    """Promises what it keeps: nothing is wrong."""

    def contraction(self, gradient):
        return 0.75


def test_the_kit_finds_nothing():
    check_reducer(RefusesOne, exhaustive=False)


def test_the_kit_warns_where_nothing_but_the_gpu_work_is_missing():
    with pytest.warns(S2SimWarning, match="compresses layers and charges no GPU work") as warned:
        check_reducer(Keeps, exhaustive=False)
    assert warned[0].filename == __file__


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Sum, "should be exact"),
        (OwnOnly, "different values"),
        (WrongSent, "is not the mean"),
        (Doubles, "float64"),
        (Offset, "do not give zero"),
        (Random, "other values when it is run again"),
        (Hangs, "fails with 2 ranks.*hang"),
        (Murmurs, "a refusal names their number: not possible"),
        (RefusesAll, "refuses 1, 2, 3 ranks"),
        (Halves, "has to be unbiased"),
        (TwiceAsOften, "is not so many times the mean"),
        (Forgets, "is not the gradient"),
        (Boasts, "promises at most 0.200"),
        (BoundsOne, "is of 1 layers, 4 are compressed"),
    ],
)
def test_the_kit_finds(broken, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_reducer(broken, exhaustive=False)


def test_the_kit_finds_scripts_of_other_lengths_than_what_is_posted(monkeypatch):
    real = lengths.payload_bytes
    monkeypatch.setattr(lengths, "payload_bytes", lambda recording: real(recording) + 1)
    with pytest.raises(AssertionError, match="rank 0 posts 4840 bytes, and its script has 4841"):
        check_reducer(Dense, exhaustive=False)


def test_the_kit_finds_what_overflows():
    with pytest.raises((AssertionError, RuntimeWarning), match=r"overflow|not finite"):
        check_reducer(Squares, exhaustive=False)


def test_the_kit_finds_a_changed_input():
    with pytest.raises(ValueError, match="read-only"):
        check_reducer(Scribbles, exhaustive=False)
