"""Trains a model with several reducers and seeds, the simulated cluster's clock beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.bridge.record import MODELS
from s2sim.bridge.task import missing_extra
from s2sim.bridge.texts import check_texts
from s2sim.bridge.training.fits import fit
from s2sim.errors import OptionError, S2SimError
from s2sim.options import build, split_option_string
from s2sim.study.convergence.answer import answer
from s2sim.study.convergence.one_seed import OneSeed, Wanted
from s2sim.study.progress import SILENT
from s2sim.study.scenario.asked import reducers_asked
from s2sim.study.scenario.cluster import resolve_cluster
from s2sim.study.scenario.machines import resolve_machines

if TYPE_CHECKING:
    from s2sim.bridge.task import Model
    from s2sim.study.convergence.curve import Curve
    from s2sim.study.convergence.result import Trained
    from s2sim.study.convergence.spec import TrainSpec
    from s2sim.study.progress import Progress

HELD_OUT = 0.1
"""Share of the data that a model is evaluated by, unless its option held_out says another."""


def train(spec: TrainSpec, progress: Progress = SILENT, *, out: Path | None = None, resume: bool = False) -> Trained:
    """Train and return the curves; after Ctrl-C those of what was done by then.

    Parameters
    ----------
    out : Path, optional
        Folder for checkpoints, made where it is missing.
    resume : bool
        Whether to go on from those that are there. What comes out is bit for bit what it would have been without an
        interruption.

    Raises
    ------
    S2SimError
        For anything that cannot be done as asked.
    """
    wanted = prepare(spec, out=out, resume=resume)
    progress.start(spec.seeds * len(wanted.fittings) * spec.steps, "training (steps)")
    curves: list[Curve] = []
    seed = OneSeed(wanted, spec.seed)
    interrupted = False
    try:
        for number in range(spec.seeds):
            seed = OneSeed(wanted, spec.seed + number)
            # One by one, so that those before an interruption are there.
            curves.extend(seed.train(fitting, progress) for fitting in wanted.fittings)
    except KeyboardInterrupt:
        # Whoever does not want to wait any longer still gets what is done.
        unfinished = seed.unfinished()
        curves += [] if unfinished is None else [unfinished]
        if not curves:
            raise
        interrupted = True
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    progress.stop()
    return answer(wanted, curves, interrupted=interrupted)


def prepare(spec: TrainSpec, *, out: Path | None = None, resume: bool = False) -> Wanted:
    """Return all that a training needs; refuses what cannot be before anything long is computed."""
    settings = model_of(spec)
    asked = reducers_asked(spec.reducers)
    spec.check_learning_rates(tuple(item.option_string for item in asked))
    where = resolve_cluster(spec, spec.collective)
    machines = resolve_machines(where.shape, where.overrides, spec.library, spec.gpu)
    nodes = tuple(where.healthy(spec.workers).node_of_rank.tolist())
    where.cluster(spec.workers)
    where.warn_of_idle_overrides(spec.workers)
    fittings = []
    for item in asked:
        where.running(item.reducer.runs_by)
        found = fit(item.option_string, settings, spec.learning_rate(item.option_string))
        fittings.append(replace(found, reducer=found.reducer.placed(nodes)))
    # Dense is what all are compared with.
    fittings.sort(key=lambda each: not each.reducer.traits.baseline)
    _check_out(out, resume=resume)
    return Wanted(spec, settings, tuple(fittings), where, machines, out)


def model_of(spec: TrainSpec) -> Model:
    """Return the settings of the model, with a share of its data held out."""
    name, options = split_option_string(spec.model)
    settings: Model = build(MODELS.get(name), options, f"model {name}")
    paths = [Path(path) for path in spec.text]
    if settings.needs_text and not paths:
        raise OptionError(f"model {name} learns from text: name a file with --text")
    if paths and not settings.needs_text:
        raise OptionError(f"model {name} reads no text: leave --text out")
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
