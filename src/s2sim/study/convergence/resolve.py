"""What a training is made of, looked up once: nothing below reads an option again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.bridge.record import check_needs_text, model_settings
from s2sim.bridge.texts import check_texts
from s2sim.bridge.training.fits import fit
from s2sim.errors import OptionError, S2SimError
from s2sim.reducers.registry import make_reducer, option_string
from s2sim.reducers.systems.presets import PRESETS
from s2sim.study.convergence.wanted import Wanted
from s2sim.study.scenario.cluster import resolve_cluster
from s2sim.study.scenario.machines import resolve_machines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.bridge.task import Model
    from s2sim.bridge.training.fits import Fitting
    from s2sim.study.convergence.spec import TrainSpec

HELD_OUT = 0.1
"""Share of the data that a model is evaluated by, unless its option held_out says another."""


def prepare(spec: TrainSpec, *, out: Path | None = None, resume: bool = False) -> Wanted:
    """Return all that a training needs; refuses what cannot be before anything long is computed."""
    settings = model_of(spec)
    asked = _asked(spec.reducers)
    spec.check_learning_rates(tuple(asked))
    where = resolve_cluster(spec, spec.collective)
    machines = resolve_machines(where.shape, where.overrides, spec.library, spec.gpu)
    nodes = tuple(where.healthy(spec.workers).node_of_rank.tolist())
    where.cluster(spec.workers)
    where.warn_of_idle_overrides(spec.workers)
    fittings: list[Fitting] = []
    for text in asked:
        found = fit(text, settings, spec.learning_rate(text))
        where.running(found.reducer.runs_by)
        for other in fittings:
            if _same(found) == _same(other):
                raise OptionError(f"the same reducer was asked for twice: {other.option_string} and {text}")
        fittings.append(replace(found, reducer=found.reducer.placed(nodes)))
    # Dense is what all are compared with.
    fittings.sort(key=lambda each: not each.reducer.traits.baseline)
    _check_out(out, resume=resume)
    return Wanted(spec, settings, tuple(fittings), where, machines, out)


def _asked(texts: Sequence[str]) -> list[str]:
    """Return option strings, dense among them."""
    there = any(make_reducer(text).traits.baseline for text in texts)
    return list(texts) if there else ["dense", *texts]


def _same(fitting: Fitting) -> object:
    """Return what two that train alike have in common; a preset stands beside what it is another name for."""
    name = fitting.option_string.partition(":")[0]
    return name if name in PRESETS else "", option_string(fitting.reducer), fitting.learning_rate


def model_of(spec: TrainSpec) -> Model:
    """Return the settings of the model, with a share of its data held out."""
    settings = model_settings(spec.model)
    paths = [Path(path) for path in spec.text]
    check_needs_text(spec.model, settings, paths)
    check_texts(paths)
    return settings if settings.held_out else replace(settings, held_out=HELD_OUT)


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
