"""One training as curves: loss, accuracy, bytes and time against iterations."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s2sim.arrays import Floats, Ints
    from s2sim.bridge.task import Evaluated
    from s2sim.study.convergence.clock import Tick


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One reducer with one seed."""

    reducer: str  # By its option string
    seed: int  # Of initial weights, shards and draws
    iterations: Ints  # int64 array, shape (n,): after how many steps the model was evaluated; the first is 0
    # train_loss, eval_loss, accuracy: float64 array, shape (n,): mean loss of the mini-batches since the evaluation
    # before (at 0 that of the first step's), and loss and share of right answers on held-out data.
    train_loss: Floats
    eval_loss: Floats
    accuracy: Floats
    sent_bytes: Ints  # int64 array, shape (n,): by the busiest rank until then
    time_s: Floats  # float64 array, shape (n,): simulated time until then
    # step_loss, step_s: float64 array, shape (steps,): of every step: mean loss of all ranks' mini-batches before it,
    # and what it takes in simulated time.
    step_loss: Floats
    step_s: Floats
    step_bytes: Ints  # int64 array, shape (steps,): of every step: what the busiest rank sends
    stopped: str | None = None  # Why it ended before its last step


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be reached on held-out data: a loss at most, or an accuracy at least."""

    what: Literal["loss", "accuracy"]
    value: float


class Reached(NamedTuple):
    """When a curve first crosses a target, between two evaluations on the line through both."""

    iterations: float
    time_s: float
    sent_bytes: float


@dataclass(slots=True)
class History:
    """A curve while it grows."""

    step_loss: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    step_bytes: list[int] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)
    eval_loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    stopped: str | None = None

    def add_step(self, loss: float, tick: Tick) -> None:
        """Add a step."""
        self.step_loss.append(loss)
        self.step_s.append(tick.time_s)
        self.step_bytes.append(tick.sent_bytes)

    def add_evaluation(self, found: Evaluated) -> None:
        """Add what the model does after the steps so far."""
        self.iterations.append(len(self.step_loss))
        self.eval_loss.append(found.loss)
        self.accuracy.append(found.accuracy)

    def curve(self, reducer: str, seed: int) -> Curve:
        """Return what there is so far."""
        at = np.array(self.iterations, np.int64)
        loss = np.array(self.step_loss)
        step_s, step_bytes = np.array(self.step_s), np.array(self.step_bytes, np.int64)
        spans = zip([0, *self.iterations[:-1]], self.iterations, strict=True)
        train = [loss[start:end].mean() if end > start else (loss[0] if len(loss) else np.nan) for start, end in spans]
        return Curve(
            reducer=reducer,
            seed=seed,
            iterations=at,
            train_loss=np.array(train),
            eval_loss=np.array(self.eval_loss),
            accuracy=np.array(self.accuracy),
            sent_bytes=np.concatenate([[0], np.cumsum(step_bytes)])[at],
            time_s=np.concatenate([[0.0], np.cumsum(step_s)])[at],
            step_loss=loss,
            step_s=step_s,
            step_bytes=step_bytes,
            stopped=self.stopped,
        )

    def state(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> History:
        """Return what `state` was of."""
        return cls(**state)


def reached(curve: Curve, target: Target) -> Reached | None:
    """Return when a curve first crosses a target; None if it does not."""
    values = curve.eval_loss if target.what == "loss" else -curve.accuracy
    wanted = target.value if target.what == "loss" else -target.value
    below = np.flatnonzero(values <= wanted)
    if not len(below):
        return None
    after = int(below[0])
    if after == 0:
        return Reached(0.0, 0.0, 0.0)
    before = after - 1
    share = (values[before] - wanted) / (values[before] - values[after]) if isfinite(values[before]) else 1.0
    steps = curve.iterations[before] + share * (curve.iterations[after] - curve.iterations[before])
    at = np.arange(len(curve.step_s) + 1)
    return Reached(
        float(steps),
        float(np.interp(steps, at, np.concatenate([[0.0], np.cumsum(curve.step_s)]))),
        float(np.interp(steps, at, np.concatenate([[0], np.cumsum(curve.step_bytes)]))),
    )
