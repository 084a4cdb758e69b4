"""The inputs of a training, resolved once: code below does not parse options."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.scenario.cluster import Machines, Scenario, resolve_cluster, resolve_machines
from s2sim.pytorch import model_updates, record_trace
from s2sim.pytorch.task import ModelSettings, Task, reproducible_torch
from s2sim.reducers.registry import PRESETS, make_reducer, option_string
from s2sim.topology.hardware import Gpu
from s2sim.training.curve import compute_time
from s2sim.training.spec import TrainSpec

_PER_TRAINING = (
    *("topology", "overrides", "placement", "faults", "model", "workers", "text", "evaluate_every"),
    *("collective", "library", "gpu", "compute", "profile"),
)
"""Fields of a spec on which the training of one reducer with one seed depends."""


@dataclass(slots=True)
class ResolvedTraining:
    """A training with its spec resolved."""

    spec: TrainSpec
    settings: ModelSettings
    fittings: tuple[model_updates.TrainingSetup, ...]
    cluster_scenario: Scenario
    machines: Machines
    out: Path | None
    facts: "TaskFacts | None" = None  # They depend on the data, and are set when the first seed has been prepared

    def key(self, fitting: model_updates.TrainingSetup, seed: int) -> dict[str, Any]:
        """Return the settings that must be equal to resume a training."""
        same = {name: getattr(self.spec, name) for name in _PER_TRAINING}
        own = {"reducer": fitting.option_string, "learning_rate": fitting.learning_rate}
        return {**same, **own, "seed": seed, "root": self.spec.seed}


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """Facts of a model and its data."""

    model: str
    score: str  # What accuracy is the share of
    data: str
    parameters: int
    compute_ps: int  # Of a rank in a step
    compute_why: str  # Where that is from


def task_facts(task: Task, spec: TrainSpec, gpu: Gpu) -> TaskFacts:
    """Return the facts of a task."""
    with reproducible_torch():
        flops = model_updates.operations(task)
    sizes = [parameter.numel() for parameter in task.module.parameters()]
    return TaskFacts(task.model, task.score, task.origin.data, sum(sizes), *compute_time(spec, gpu, flops, len(sizes)))


def resolve_training_run(spec: TrainSpec, *, out: Path | None = None, resume: bool = False) -> ResolvedTraining:
    """Return the inputs of a training; refuse invalid ones before any long computation."""
    settings = record_trace.model_settings(spec.model, [Path(path) for path in spec.text])
    if not settings.held_out:
        # A tenth of the data evaluates the model, unless its option says another share.
        settings = replace(settings, held_out=0.1)
    has_dense = any(make_reducer(text).traits.baseline for text in spec.reducers)
    requested = spec.reducers if has_dense else ("dense", *spec.reducers)
    spec.check_learning_rates(requested)
    where = resolve_cluster(spec, spec.collective)
    machines = resolve_machines(where.shape, where.overrides, spec.library, spec.gpu)
    nodes = tuple(where.healthy(spec.workers).node_of_rank.tolist())
    where.cluster(spec.workers)
    where.warn_of_idle_overrides(spec.workers)
    fittings: list[model_updates.TrainingSetup] = []
    for text in requested:
        found = model_updates.make_training_setup(text, settings, spec.learning_rate(text))
        where.running(found.reducer.runs_by)
        for other in fittings:
            if _training_identity(found) == _training_identity(other):
                raise OptionError(f"the same reducer was asked for twice: {other.option_string} and {text}")
        fittings.append(replace(found, reducer=found.reducer.placed(nodes)))
    # Dense is what all are compared with.
    fittings.sort(key=lambda each: not each.reducer.traits.baseline)
    _check_out(out, resume=resume)
    return ResolvedTraining(spec, settings, tuple(fittings), where, machines, out)


def _training_identity(fitting: model_updates.TrainingSetup) -> object:
    """Return equal values for equal trainings; presets count as names of their own."""
    name = fitting.option_string.partition(":")[0]
    return name if name in PRESETS else "", option_string(fitting.reducer), fitting.learning_rate


def _check_out(out: Path | None, *, resume: bool) -> None:
    if out is None:
        if resume:
            raise OptionError("--resume goes on from checkpoints: add --out FOLDER, in which they are")
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = next(out.glob("*.npz"), None)
    except OSError as error:
        raise S2SimError(f"--out {out}: {error.strerror or error}") from error
    if there is not None and not resume:
        raise OptionError(f"--out {out} holds checkpoints of a training: go on with --resume, or name another folder")
