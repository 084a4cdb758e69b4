"""Trains a model with several reducers and seeds, with the simulated cluster's clock."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from io import BytesIO
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.cluster_spec import accept_fields_of
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.files import replace_file
from s2sim.gradients.import_trace import DAMAGED
from s2sim.pytorch.model_updates import DIVERGED, Trainer, TrainingSetup, set_weights, weights_of
from s2sim.pytorch.task import Task, missing_extra, reproducible_torch, use_sparse_embeddings
from s2sim.reducers.script import Recording
from s2sim.training import resolve, result
from s2sim.training.curve import Curve, CurveHistory, StepTime, step_clock
from s2sim.training.spec import TrainSpec

_STRUCTURE, _ARRAY, _SCALAR = "structure", "array", "scalar"
_VERSION = 2


def checkpoint_path(folder: Path, reducer: str, seed: int) -> Path:
    """Return the file of one reducer with one seed."""
    name = "".join(letter if letter.isalnum() or letter in "-_=." else "-" for letter in reducer)[:60]
    return folder / f"{name}-{hashlib.sha256(reducer.encode()).hexdigest()[:8]}-seed{seed}.npz"


def save(path: Path, content: dict[str, Any], key: Any) -> None:
    """Write arrays and numbers in dicts and lists; ``key`` identifies the training."""
    arrays: list[Any] = []
    structure = json.dumps({"version": _VERSION, "key": key, "content": _without_arrays(content, arrays)})
    buffer = BytesIO()
    named = {f"{_ARRAY}{number}": array for number, array in enumerate(arrays)}
    np.savez(buffer, **{_STRUCTURE: np.array(structure), **named})
    try:
        replace_file(path, buffer.getvalue())
    except OSError as error:
        raise S2SimError(
            f"the checkpoint {path} cannot be written: {error.strerror or error}; free space or give another --out, "
            "and go on with --resume"
        ) from error


def load(path: Path, key: Any) -> dict[str, Any] | None:
    """Return the saved content; None without a file. `S2SimError` if it is of another training, or damaged."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            structure = json.loads(str(file[_STRUCTURE]))
            version, of = structure["version"], dict(structure["key"])
            content: dict[str, Any] = _with_arrays(structure["content"], file) if version == _VERSION else {}
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGED) as error:
        raise S2SimError(
            f"the checkpoint {path} cannot be read ({type(error).__name__}): delete it, and --resume trains this one "
            "anew"
        ) from error
    if version != _VERSION:
        raise S2SimError(f"the checkpoint {path} is of another version of s2sim: train anew in another --out")
    wanted = json.loads(json.dumps(key))
    if of != wanted:
        other = sorted(name for name in {*of, *wanted} if of.get(name) != wanted.get(name))
        raise S2SimError(
            f"the checkpoint {path} is of a training with another {', '.join(other)}: resume with the options that it "
            "was started with, or train in another --out"
        )
    return content


def _without_arrays(value: Any, arrays: list[Any]) -> Any:
    """Return a value as JSON, with arrays replaced by their indices."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {_ARRAY: len(arrays) - 1}
    if isinstance(value, np.generic):
        # Its type says in which precision the next step computes.
        arrays.append(np.asarray(value))
        return {_SCALAR: len(arrays) - 1}
    if isinstance(value, dict):
        # Keys may be numbers.
        return {"items": [[key, _without_arrays(item, arrays)] for key, item in value.items()]}
    return [_without_arrays(item, arrays) for item in value] if isinstance(value, list | tuple) else value


def _with_arrays(value: Any, file: Any) -> Any:
    if isinstance(value, list):
        return [_with_arrays(item, file) for item in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return file[f"{_ARRAY}{value[_ARRAY]}"]
    if _SCALAR in value:
        return file[f"{_ARRAY}{value[_SCALAR]}"][()]
    return {key: _with_arrays(item, file) for key, item in value["items"]}


class SeedTrainings:
    """The trainings of one seed; data are read when the first of them needs them."""

    def __init__(self, wanted: resolve.ResolvedTraining, seed: int) -> None:
        self._wanted, self._seed = wanted, seed
        self._task: Task | None = None
        self._start: dict[str, Any] = {}
        self._growing: tuple[str, CurveHistory] | None = None

    def train(self, fitting: TrainingSetup, progress: ProgressWatcher) -> Curve:
        """Return the curve of one reducer, from the end of its checkpoint."""
        wanted, spec = self._wanted, self._wanted.spec
        key = wanted.key(fitting, self._seed)
        path = None if wanted.out is None else checkpoint_path(wanted.out, fitting.option_string, self._seed)
        kept = None if path is None else load(path, key)
        facts = self._prepared()
        assert self._task is not None
        set_weights(dict(self._task.module.named_parameters()), self._start)
        trainer = Trainer(self._task, wanted.settings, fitting, workers=spec.workers, seed=self._seed)
        history = CurveHistory(**(kept["history"] if kept else {}))
        if kept is not None:
            trainer.restore(kept["trainer"])
            if trainer.steps > spec.steps:
                raise OptionError(
                    f"--steps {spec.steps}: the checkpoint {path} is of step {trainer.steps}: give as many or more, or "
                    "another --out"
                )
            progress.advance(trainer.steps)
        self._growing = (fitting.option_string, history)
        clock = step_clock(wanted.cluster_scenario, wanted.machines, fitting.reducer, spec.workers, facts.compute_ps)
        saved_s, took_s = monotonic(), 0.0
        if not history.iterations:
            _evaluate(trainer, history)
        while trainer.steps < spec.steps and history.stopped is None:
            _take_step(trainer, history, clock, fitting)
            progress.advance()
            last = trainer.steps == spec.steps
            if history.stopped is None:
                if trainer.steps % spec.evaluate_every and not last:
                    continue
                _evaluate(trainer, history)
            # Ten times as long as a checkpoint takes to write is trained before the next.
            due = last or history.stopped is not None or monotonic() - saved_s >= 10 * took_s
            if path is not None and due:
                saved_s = monotonic()
                save(path, {"history": asdict(history), "trainer": trainer.state()}, key)
                took_s = monotonic() - saved_s
        self._growing = None
        return history.curve(fitting.option_string, self._seed)

    def unfinished(self) -> Curve | None:
        """Return the curve of the interrupted training; None if it had hardly begun."""
        if self._growing is None:
            return None
        name, history = self._growing
        # A step may have been half counted.
        of_steps: tuple[list[Any], ...] = history.step_loss, history.step_s, history.step_bytes
        of_points: tuple[list[Any], ...] = history.iterations, history.eval_loss, history.accuracy
        for lists in (of_steps, of_points):
            counted = min(map(len, lists))
            for each in lists:
                del each[counted:]
        return history.curve(name, self._seed) if history.step_loss and history.iterations else None

    def _prepared(self) -> resolve.TaskFacts:
        wanted, spec = self._wanted, self._wanted.spec
        if self._task is None:
            text = [Path(path) for path in spec.text]
            with reproducible_torch():
                self._task = wanted.settings.prepare(workers=spec.workers, seed=self._seed, text=text)
            if self._task.evaluate is None:
                raise S2SimError(f"model {spec.model} holds no data out to evaluate it by: it cannot be trained here")
            use_sparse_embeddings(self._task)
            self._start = weights_of(dict(self._task.module.named_parameters()))
        if wanted.facts is None:
            wanted.facts = resolve.task_facts(self._task, spec, wanted.machines.gpu)
        return wanted.facts


def _take_step(
    trainer: Trainer, history: CurveHistory, clock: Callable[[Recording], StepTime], fitting: TrainingSetup
) -> None:
    try:
        # The loss shows an overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            found = trainer.step()
    except S2SimError as error:
        if trainer.steps == 0:
            raise S2SimError(f"{fitting.option_string} cannot train this model: {error}") from error
        history.stopped = f"after {trainer.steps} steps: {error}"
        return
    history.add_step(found.loss, clock(found.recording))


def _evaluate(trainer: Trainer, history: CurveHistory) -> None:
    found = trainer.evaluate()
    if isfinite(found.loss):
        history.add_evaluation(found)
    else:
        history.stopped = f"after {trainer.steps} steps: {DIVERGED}"


@accept_fields_of(TrainSpec)
def train(
    spec: TrainSpec | None = None,
    progress: ProgressWatcher = SILENT,
    *,
    out: Path | None = None,
    resume: bool = False,
    **options: Any,
) -> result.TrainResult:
    """Train and return the curves; after Ctrl-C those of the finished part.

    Parameters
    ----------
    out : Path, optional
        Folder of checkpoints, created if absent.
    resume : bool
        Whether training continues from these; the result is bit for bit that of an uninterrupted training.
    """
    spec = TrainSpec.from_keywords(spec, {"topology": "fat-tree"}, options)
    wanted = resolve.resolve_training_run(spec, out=out, resume=resume)
    progress.start(spec.seeds * len(wanted.fittings) * spec.steps, "training (steps)")
    curves: list[Curve] = []
    seed = SeedTrainings(wanted, spec.seed)
    interrupted = False
    try:
        for number in range(spec.seeds):
            seed = SeedTrainings(wanted, spec.seed + number)
            # Lazily, so that curves before an interruption are kept.
            curves.extend(seed.train(fitting, progress) for fitting in wanted.fittings)
    except KeyboardInterrupt:
        unfinished = seed.unfinished()
        curves += [] if unfinished is None else [unfinished]
        if not curves:
            raise
        interrupted = True
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    progress.stop()
    return result.make_train_result(wanted, curves, interrupted=interrupted)
