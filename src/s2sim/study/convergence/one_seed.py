"""All reducers of one seed: the same data and initial weights for each."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.bridge.task import reproducible_torch
from s2sim.bridge.training.arrays import keep_rows, set_weights, weights_of
from s2sim.bridge.training.trainer import DIVERGED, Trainer
from s2sim.errors import S2SimError
from s2sim.study.convergence.checkpoint import checkpoint_path, load, save
from s2sim.study.convergence.clock import Clock
from s2sim.study.convergence.curve import History
from s2sim.study.convergence.wanted import facts_of

if TYPE_CHECKING:
    from s2sim.bridge.task import Task
    from s2sim.bridge.training.fits import Fitting
    from s2sim.study.convergence.curve import Curve
    from s2sim.study.convergence.spec import TrainSpec
    from s2sim.study.convergence.wanted import Facts, Wanted
    from s2sim.study.progress import Progress

_OF_SAVING = 10
"""How many times as long as a checkpoint takes to write is trained before the next."""


class OneSeed:
    """The trainings of one seed; data are read when the first of them needs them."""

    def __init__(self, wanted: Wanted, seed: int) -> None:
        self._wanted = wanted
        self._seed = seed
        self._task: Task | None = None
        self._start: dict[str, Any] = {}
        self._growing: tuple[str, History] | None = None

    def train(self, fitting: Fitting, progress: Progress) -> Curve:
        """Return the curve of one reducer, from where its checkpoint ends."""
        wanted, spec = self._wanted, self._wanted.spec
        path, key = None, wanted.key(fitting, self._seed)
        kept = None
        if wanted.out is not None:
            path = checkpoint_path(wanted.out, fitting.option_string, self._seed)
            kept = load(path, key)
        facts = self._prepared()
        assert self._task is not None
        set_weights(dict(self._task.module.named_parameters()), self._start)
        trainer = Trainer(self._task, wanted.settings, fitting, workers=spec.workers, seed=self._seed)
        history = History()
        if kept is not None:
            history = History.of(kept["history"])
            trainer.restore(kept["trainer"])
            progress.advance(trainer.steps)
        self._growing = (fitting.option_string, history)
        clock = Clock(wanted.where, wanted.machines, fitting.reducer, spec.workers, facts.compute.ps)
        saved_s, took_s = monotonic(), 0.0
        if not history.iterations:
            _evaluate(trainer, history)
        while trainer.steps < spec.steps and history.stopped is None:
            _step(trainer, history, clock, fitting)
            progress.advance()
            if trainer.steps % spec.evaluate_every and trainer.steps != spec.steps and history.stopped is None:
                continue
            if history.stopped is None:
                _evaluate(trainer, history)
            if path is not None and (monotonic() - saved_s >= _OF_SAVING * took_s or _over(trainer, history, spec)):
                saved_s = monotonic()
                save(path, {"history": history.state(), "trainer": trainer.state()}, key)
                took_s = monotonic() - saved_s
        self._growing = None
        return history.curve(fitting.option_string, self._seed)

    def unfinished(self) -> Curve | None:
        """Return the curve of the training that was interrupted; None where it had hardly begun."""
        if self._growing is None:
            return None
        name, history = self._growing
        # A step may have been half counted.
        steps = min(len(history.step_loss), len(history.step_s), len(history.step_bytes))
        del history.step_loss[steps:], history.step_s[steps:], history.step_bytes[steps:]
        points = min(len(history.iterations), len(history.eval_loss), len(history.accuracy))
        del history.iterations[points:], history.eval_loss[points:], history.accuracy[points:]
        return history.curve(name, self._seed) if steps and points else None

    def _prepared(self) -> Facts:
        wanted, spec = self._wanted, self._wanted.spec
        if self._task is None:
            text = [Path(path) for path in spec.text]
            with reproducible_torch():
                self._task = wanted.settings.prepare(workers=spec.workers, seed=self._seed, text=text)
            if self._task.evaluate is None:
                raise S2SimError(f"model {spec.model} holds no data out to evaluate it by: it cannot be trained here")
            keep_rows(self._task)
            self._start = weights_of(dict(self._task.module.named_parameters()))
        if wanted.facts is None:
            wanted.facts = facts_of(self._task, spec, wanted.machines.gpu)
        return wanted.facts


def _step(trainer: Trainer, history: History, clock: Clock, fitting: Fitting) -> None:
    """Take a step, or note why there is none; a first one that fails is a mistake."""
    try:
        # What grows beyond all bounds is told by its loss.
        with np.errstate(over="ignore", invalid="ignore"):
            found = trainer.step()
    except S2SimError as error:
        if trainer.steps == 0:
            raise S2SimError(f"{fitting.option_string} cannot train this model: {error}") from error
        history.stopped = f"after {trainer.steps} steps: {error}"
        return
    history.add_step(found.loss, clock.tick(found.recording))


def _evaluate(trainer: Trainer, history: History) -> None:
    """Add how the model does now, or note that nobody can tell any more."""
    found = trainer.evaluate()
    if isfinite(found.loss):
        history.add_evaluation(found)
    else:
        history.stopped = f"after {trainer.steps} steps: {DIVERGED}"


def _over(trainer: Trainer, history: History, spec: TrainSpec) -> bool:
    return history.stopped is not None or trainer.steps >= spec.steps
