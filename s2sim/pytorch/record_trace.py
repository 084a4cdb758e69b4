"""Trains a real model on real data with W shards and records every rank's gradient at the same weights."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path

from s2sim.errors import OptionError
from s2sim.gradients import manifest, read_trace, statistics
from s2sim.gradients.write_trace import check_target, write_trace
from s2sim.options import build, split_option_string
from s2sim.pytorch.model_updates import backward, gradient_of
from s2sim.pytorch.task import ModelSettings, Task, check_texts, make_optimizer, missing_extra, reproducible_torch
from s2sim.registry import Registry

MODELS = Registry(
    "model",
    "s2sim.models",
    {
        "lstm": "s2sim.pytorch.models.language:Lstm",
        "lstm-lm": "s2sim.pytorch.models.language:Lstm",  # as the shipped trace is called
        "ncf": "s2sim.pytorch.models.ncf:Ncf",
        "cnn": "s2sim.pytorch.models.cnn:Cnn",
        "transformer": "s2sim.pytorch.models.language:Transformer",
    },
)


def _train(
    task: Task, model: ModelSettings, *, workers: int, steps: int, progress: Callable[[int, int], None] | None
) -> statistics.GradientTable:
    import torch

    parameters = dict(task.module.named_parameters())
    total_steps = model.warmup_steps + steps
    optimizer = make_optimizer(model, parameters.values())
    recorded = []
    for step in range(total_steps):
        sums = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
        captured = []
        for rank in range(workers):
            backward(task, step, rank)
            if step >= model.warmup_steps:
                captured.append(gradient_of(parameters, task.sparse))
            for name, parameter in parameters.items():
                if parameter.grad is not None:
                    sums[name] += parameter.grad
            if progress is not None:
                progress(step * workers + rank + 1, total_steps * workers)
        if captured:
            recorded.append(captured)
        for name, parameter in parameters.items():
            parameter.grad = sums[name] / workers
        optimizer.step()
    return statistics.GradientTable(steps, workers, lambda step, rank: recorded[step][rank])


def model_settings(model: str, texts: Sequence[Path]) -> ModelSettings:
    """Return the settings of a model by its option string; refuse what cannot be read as its text."""
    name, options = split_option_string(model)
    settings: ModelSettings = build(MODELS.get(name), options, f"model {name}")
    if settings.needs_text and not texts:
        raise OptionError(f"model {name} learns from text: name a file with --text")
    if texts and not settings.needs_text:
        raise OptionError(f"model {name} reads no text: leave --text out")
    check_texts(texts)
    return settings


def record(
    model: str,
    *,
    workers: int,
    steps: int,
    out: str | Path,
    text: str | Path | Sequence[str | Path] | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> read_trace.Trace:
    """Train ``model`` on ``workers`` shards and write every rank's mini-batch gradient of ``steps`` steps.

    All ranks' gradients of a step are taken at the same weights; between steps the model's optimizer applies their
    mean, warm-up steps first. ``model`` is an option string such as ``lstm:width=32``; ``text`` is UTF-8 for language
    models; ``seed`` is the root of weights, shards and samples; ``progress`` is called with (mini-batches done,
    mini-batches in all).
    """
    paths = [Path(path) for path in ([text] if isinstance(text, str | Path) else text or [])]
    settings = model_settings(model, paths)
    for what, number, least in (("workers", workers, 1), ("steps", steps, 1), ("seed", seed, 0)):
        if number < least:
            raise OptionError(f"{what}={number} is less than {least}")
    target = Path(out)
    check_target(target, overwrite=overwrite)
    try:
        with reproducible_torch():
            task = settings.prepare(workers=workers, seed=seed, text=paths)
            gradients = _train(task, settings, workers=workers, steps=steps, progress=progress)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    momentum = f", momentum {settings.momentum:g}" if settings.momentum else ""
    # Absolute paths are cut to their names.
    texts = [("--text", path.name if path.is_absolute() else path.as_posix()) for path in paths]
    numbers = ["--workers", str(workers), "--steps", str(steps), "--seed", str(seed)]
    return write_trace(
        target,
        gradients,
        kind="recorded",
        model=task.model,
        origin=manifest.Origin(
            **asdict(task.origin),
            command=shlex.join(["s2sim", "trace", "record", model, *numbers, *chain(*texts), "--out", target.name]),
            training=(
                f"{settings.warmup_steps} warm-up steps, then the recorded ones; after each step {settings.optimizer} "
                f"(learning rate {settings.learning_rate:g}{momentum}) applies the mean gradient of all ranks"
            ),
        ),
        batch=task.batch,
        warmup_steps=settings.warmup_steps,
        seed=seed,
        overwrite=overwrite,
    )
