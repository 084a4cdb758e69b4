"""The conformance kit over every registered reducer, and the kit against reducers that break its rules."""

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import pytest

from s2sim.gradients.gradient import Gradient
from s2sim.reducers.rank import Reduced
from s2sim.reducers.registry import REDUCERS, make_reducer
from s2sim.reducers.systems.dense import Dense
from s2sim.testing.reducers import check_reducer

VARIANTS = [
    *REDUCERS.names(),
    "dense:dtype=bf16",
    "dense:dtype=fp16,ef=true",
    "fp16:ef=true",
    "topk:density=0.2,ef=true",
    "topk:density=1",
    "topk:density=0.1,granularity=layer",
    "sparcml:density=0.1,algorithm=rec-dbl,ef=true",
    "sparcml:density=0.1,algorithm=split",
    "sparcml:density=0.1,algorithm=dense-split",
    "sparcml:density=1,algorithm=rec-dbl",
    "sparcml:density=1,algorithm=split",
    "sparcml:density=1",
    "topka2a:density=0.1,ef=true",
    "topka2a:density=1,calls=together",
    "random-k:density=0.2,seed=own,granularity=global,ef=true",
    "random-k:density=0.2,seed=own,send=seed,scale=true",
    "random-block:density=0.2,seed=own",
    "random-block:density=0.2,granularity=global,ef=true",
    "union:layers=all",
    "union:bitmap=byte",
    "union:bitmap=float32,layers=all",
    "union:prefetch=true",
    "owner-reduce:layers=all",
    "gather-rows:layers=all",
    "s2:ef=true",
    "s2:rows=1,columns=40,hash=modulo",
    "s2:rows=5,cells=4,bitmap=byte,layers=all,hash=product",
    "s2:bitmap=float32,margin=1.5",
    "s2:preset=authors-gnmt",
    "s2:preset=authors-lstm,ef=true,layers=all",
]


LOSSY = dataclasses.replace(Dense.about, lossless=False)


@pytest.mark.parametrize("text", VARIANTS)
def test_every_registered_reducer_conforms(text):
    check_reducer(lambda: make_reducer(text))


@dataclass
class Sum(Dense):
    """Forgets to divide."""

    def reduce(self, rank, gradient):
        total = rank.all_reduce(gradient, label="gradient")
        yield total
        return Reduced(total.value, lambda: gradient)


@dataclass
class OwnOnly(Dense):
    """Uses its local gradient: the defect of the published S2 code."""

    about = LOSSY

    def reduce(self, rank, gradient):
        yield rank.all_reduce(gradient, label="gradient")
        return Reduced(gradient, lambda: gradient)


@dataclass
class WrongSent(Dense):
    """Claims to have sent nothing."""

    about = LOSSY

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
class Offset(Dense):
    """Adds a constant: zero gradients do not give zero."""

    about = LOSSY

    def compresses(self, gradient):
        return tuple(range(len(gradient.layers)))

    def reduce(self, rank, gradient):
        reduced = yield from Dense.reduce(self, rank, gradient)
        shifted = Gradient(reduced.mean.names, tuple(layer + np.float32(1) for layer in reduced.mean.layers))
        return Reduced(shifted, lambda: shifted)


@dataclass
class Random(Dense):
    """Takes its noise from the wind."""

    about = LOSSY
    generator: np.random.Generator = field(init=False, default_factory=np.random.default_rng)

    def compresses(self, gradient):
        return tuple(range(len(gradient.layers)))

    def reduce(self, rank, gradient):
        reduced = yield from Dense.reduce(self, rank, gradient)
        mean = rank.replicated(lambda: reduced.mean.map(lambda values: values * np.float32(self.generator.random())))
        return Reduced(mean, lambda: mean)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Sum, "should be exact"),
        (OwnOnly, "different values"),
        (WrongSent, "is not the mean"),
        (Doubles, "float64"),
        (Offset, "do not give zero"),
        (Random, "other values when it is run again"),
    ],
)
def test_the_kit_finds(broken, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_reducer(broken)


def test_the_kit_finds_a_changed_input():
    with pytest.raises(ValueError, match="read-only"):
        check_reducer(Scribbles)
