"""Error feedback: what a lossy reducer fails to send is added to later gradients, with or without momentum."""

from dataclasses import dataclass, field, replace
from math import sqrt
from typing import ClassVar, Literal

import numpy as np

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, add, stored, subtract, to_dense
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.gpu_cost import VALUE_BYTES
from s2sim.reducers.rank import Conserves, Program, Rank, Reduced, Traits, Waits
from s2sim.reducers.wrappers.wrapper import Wrapper


@dataclass(slots=True)
class Feedback(Wrapper):
    """A lossy reducer that gets, in later steps, what it failed to send in earlier ones."""

    adds: ClassVar[str]  # What that is, for people: "error feedback"
    conserves: ClassVar[Conserves] = "sum"  # See `Traits`
    of_sums: ClassVar[bool] = True  # Whether sums that are encoded again have residuals too
    corrects_delay: ClassVar[bool] = False  # Whether it corrects how feedback delays momentum
    state_bytes: ClassVar[int] = VALUE_BYTES  # See `Traits`
    # What this rank still holds back; None before the first step
    residual: Gradient | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        Wrapper.__post_init__(self)
        if self.of_sums:
            self.inner = self.inner.with_server_error()

    def check(self) -> None:
        """Refuse what loses nothing, has feedback already, or ends with something else than a mean."""
        traits = self.inner.traits
        name = traits.name
        if traits.lossless or traits.assumes:
            where = traits.assumes and f" if {traits.assumes}"
            raise OptionError(f"{name}: {self.option_text} would change nothing, as {name} loses nothing{where}")
        if isinstance(self.inner, Feedback):
            raise OptionError(
                f"{name}: {self.inner.option_text} and {self.option_text} are two kinds of feedback: give one"
            )
        if traits.feedback == "own":
            raise OptionError(f"{name}: {self.option_text} would be a second feedback, as {name} has its own")
        if traits.estimates != "mean":
            raise OptionError(
                f"{name}: {self.option_text} needs what is lost of a gradient, and ranks end with "
                f"{traits.estimates} here"
            )
        if not traits.adds_up and traits.feedback == "no":
            raise OptionError(f"{name}: {self.option_text} would add what is not lost, but not asked for: leave it out")
        if self.corrects_delay and traits.feedback == "no":
            raise OptionError(
                f"{name}: {self.option_text} corrects what feedback delays, and {name} needs none: leave momentum to "
                "the optimizer"
            )

    def corrected(self, rank: Rank, gradient: Gradient) -> Gradient:
        """Return the gradient with the residual added, and charge for it, in the first step too."""
        corrected = gradient if self.residual is None else add(gradient, self.residual)
        self.charge_passes(rank, corrected)
        return corrected

    def charge_passes(self, rank: Rank, gradient: Gradient, passes: int = 1, *, whole: bool = False) -> None:
        """Charge the GPU for so many sums or differences of the layers that are compressed, or of the ``whole``."""
        places = range(len(gradient.layers)) if whole else self.inner.compresses(gradient)
        values = sum(stored(gradient.layers[place]).size for place in places)
        for _ in range(passes if values else 0):
            rank.work(cost.add(values))

    def held_back(self) -> Gradient | None:
        of_sums = self.inner.held_back()
        return self.residual if self.residual is None or of_sums is None else add(self.residual, of_sums)

    @property
    def traits(self) -> Traits:
        inner = self.inner.traits
        return replace(
            inner,
            summary=f"{inner.summary}; with {self.adds}",
            feedback="own",
            conserves=self.conserves,
            state_bytes=inner.state_bytes + self.state_bytes,
        )


@dataclass(slots=True)
class EF21(Feedback):
    """Any contractive reducer C of differences: ``c_i = C(gradient - g_i); g_i += c_i``, and all end with their mean g.

    P. Richtárik, I. Sokolov and I. Fatkhullin, "EF21: a new, simpler, theoretically better, and practically faster
    error feedback", NeurIPS 2021, algorithm 2, by its abstract and summaries. g_i starts at zero, so that the first
    step sends C(gradient); the paper also allows to begin with the gradient. Bytes and collectives are those of C.
    Written ``ef=ef21``.
    """

    key = "ef"
    adds = "EF21"
    state_bytes = 2 * VALUE_BYTES  # g_i and g
    conserves = "gradient"
    of_sums = False
    ef: Literal["ef21"] = "ef21"
    # g_i, this rank's part of what all know, and g, its mean over ranks
    g_i: Gradient | None = field(init=False, repr=False, default=None)
    g: Gradient | None = field(init=False, repr=False, default=None)

    def check(self) -> None:
        """Refuse also what is unbiased instead of contractive: differences would not shrink."""
        Feedback.check(self)
        traits = self.inner.traits
        if traits.feedback == "no" and not traits.rounds_only:
            raise OptionError(
                f"{traits.name}: ef=ef21 needs a compressor that always sends the larger part; {traits.name} is "
                "unbiased instead and needs no feedback"
            )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        before, g = self.g_i, self.g
        difference = gradient if before is None else subtract(gradient, before)
        reduced = yield from self.inner.reduce(rank, difference)
        c_i = reduced.sent()
        g_i = c_i if before is None else add(before, c_i)
        self.charge_passes(rank, g_i, 3, whole=True)
        self.g_i, self.residual = g_i, subtract(difference, c_i)

        def moved() -> Gradient:
            return reduced.mean if g is None else add(g, reduced.mean)

        self.g = rank.replicated(moved) if self.inner.traits.agrees else moved()
        return Reduced(self.g, sent=lambda: g_i)


@dataclass(slots=True)
class ErrorFeedback(Feedback):
    """Any lossy reducer with a residual: ``residual = (gradient + residual) - sent``.

    S. P. Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019,
    algorithm 2 with a learning rate of 1. Written ``ef=true`` among the inner reducer's options.
    """

    key = "ef"
    adds = "error feedback"
    ef: bool = True

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        corrected = self.corrected(rank, gradient)
        reduced = yield from self.inner.reduce(rank, corrected)
        self.residual = subtract(corrected, (reduced.decoded or reduced.sent)())
        self.charge_passes(rank, corrected)
        return reduced


@dataclass(slots=True)
class FeedbackPasses(ErrorFeedback):
    """A reducer with the passes over gradients that its error feedback takes, in a first step, which has no residual.

    Training adds feedback where a reducer needs some: it is timed like that, and its error is that of a first step.
    """

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        self.charge_passes(rank, gradient)
        reduced = yield from self.inner.reduce(rank, gradient)
        (reduced.decoded or reduced.sent)()  # Which charges for it
        self.charge_passes(rank, gradient)
        return reduced


@dataclass(slots=True)
class FilteredFeedback(Feedback):
    """Any lossy reducer with a low-pass filtered residual m: ``m = (1 - beta) m + beta (m + gradient - sent)``.

    C.-Y. Chen et al., "ScaleCom", NeurIPS 2020; the filter and its usual beta of 0.1 are recalled. What is sent is
    chosen from ``gradient + m``. With beta = 1 it is error feedback; below, of what a step fails to send a share beta
    is kept for later and the rest forgotten, and of what is sent too early only that share is owed. Written
    ``ef=filtered``.
    """

    key = "ef"
    adds = "filtered error feedback"
    conserves = "nothing"
    intervals: ClassVar = {"beta": "(0, 1)"}
    ef: Literal["filtered"] = "filtered"
    beta: float = 0.1

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        corrected = self.corrected(rank, gradient)
        reduced = yield from self.inner.reduce(rank, corrected)
        change = subtract(gradient, (reduced.decoded or reduced.sent)()).map(
            lambda values: values * values.dtype.type(self.beta)
        )
        self.residual = change if self.residual is None else add(self.residual, change)
        self.charge_passes(rank, corrected, 2)
        return reduced


@dataclass(slots=True)
class GlobalMomentum(Feedback):
    """Any lossy reducer C with ``u = e + gradient - (gmc / rate)(w - w_before)``; ``c = C(u)``; ``e = u - c``.

    C. Shi et al., "Global momentum compression for sparse communication in distributed learning", arXiv:1905.12948
    (GMC), of which abstracts were read; algorithm and authors are recalled. As every rank takes ``w - rate mean(c)``,
    the model's difference is the last mean times the rate, and nothing more is sent: ``u = e + gradient + gmc mean``.
    The mean that comes out is what a plain step of SGD takes: momentum is in it already. Written ``gmc=0.9``.
    """

    key = "gmc"
    adds = "global momentum"
    state_bytes = 2 * VALUE_BYTES
    conserves = "nothing"
    corrects_delay = True
    intervals: ClassVar = {"gmc": "(0, 1)"}
    gmc: float = 0.9
    last_mean: Gradient | None = field(init=False, repr=False, default=None)  # What the last step ended with

    @property
    def momentum_within(self) -> float:
        return self.gmc

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        u = gradient
        if self.residual is not None and self.last_mean is not None:
            u = add(add(gradient, self.residual), self.last_mean.map(lambda values: values * np.float32(self.gmc)))
        self.charge_passes(rank, u)
        self.charge_passes(rank, u, whole=True)
        reduced = yield from self.inner.reduce(rank, u)
        self.residual, self.last_mean = subtract(u, (reduced.decoded or reduced.sent)()), reduced.mean
        self.charge_passes(rank, u)
        return reduced


@dataclass(slots=True)
class MomentumCorrection(Feedback):
    """Any lossy reducer that sends from ``v``, where ``u = momentum u + gradient`` and ``v = v + u``.

    Y. Lin et al., "Deep gradient compression", ICLR 2018: momentum correction and factor masking, which clears u and v
    where something was sent (GRACE's code was read, the paper is recalled). The mean is what a plain step of SGD takes:
    momentum is in it already. What a compressor rounds stays in v. Written ``momentum=0.9``.
    """

    key = "momentum"
    adds = "momentum correction"
    state_bytes = 2 * VALUE_BYTES
    conserves = "nothing"
    corrects_delay = True
    intervals: ClassVar = {"momentum": "(0, 1)", "clip": "(0, inf)"}
    momentum: float = 0.9
    masking: bool = True
    clip: float | None = None
    velocity: Gradient | None = field(init=False, repr=False, default=None)  # u; ``residual`` is v

    def check(self) -> None:
        """Refuse also masks that would clear everything."""
        Feedback.check(self)
        name = self.inner.traits.name
        if self.masking and "density" not in self.inner.options():
            raise OptionError(
                f"{name}: {self.option_text} would be cleared everywhere in every step, as {name} sends something of "
                "every element: add masking=false"
            )

    @property
    def momentum_within(self) -> float:
        return self.momentum

    @property
    def traits(self) -> Traits:
        """Those of feedback; with a limit on the length of the whole gradient it is about all of it."""
        traits = super(MomentumCorrection, self).traits
        return traits if self.clip is None else replace(traits, scope="gradient")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Gather momentum, send from what has gathered, clear what was sent."""
        if self.clip is not None:
            gradient = yield from self._clipped(rank, gradient)
        u = v = gradient
        if self.velocity is not None and self.residual is not None:
            u = add(self.velocity.map(lambda values: values * np.float32(self.momentum)), gradient)
            v = add(self.residual, u)
        self.charge_passes(rank, u, whole=True)
        self.charge_passes(rank, v)
        reduced = yield from self.inner.reduce(rank, v)
        sent = (reduced.decoded or reduced.sent)()
        self.residual = subtract(v, sent)
        self.velocity = Gradient(u.names, tuple(map(_mask_sent, u.layers, sent.layers))) if self.masking else u
        self.charge_passes(rank, v, 1 + self.masking)
        return reduced

    def _clipped(self, rank: Rank, gradient: Gradient) -> Waits[Gradient]:
        assert self.clip is not None
        own = sum(float(np.square(stored(layer), dtype=np.float64).sum()) for layer in gradient.layers)
        self.charge_passes(rank, gradient, whole=True)
        total = yield from rank.all_reduce(np.array([own]), label="squared norms")
        length = sqrt(float(total[0]) / rank.size)
        limit = self.clip / sqrt(rank.size)
        return gradient.map(lambda values: values * np.float32(limit / length)) if length > limit else gradient


def _mask_sent(layer: Layer, sent: Layer) -> Layer:
    if not isinstance(layer, RowSparse):
        return np.where(to_dense(sent) == 0, layer, np.float32(0))
    if not isinstance(sent, RowSparse):
        return layer.with_values(np.where(sent[layer.rows] == 0, layer.values, np.float32(0)))
    values = layer.values.copy()
    _, own, others = np.intersect1d(layer.rows, sent.rows, assume_unique=True, return_indices=True)
    values[own] = np.where(sent.values[others] == 0, values[own], np.float32(0))
    return layer.with_values(values)
