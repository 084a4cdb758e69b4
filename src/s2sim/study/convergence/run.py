"""Trains a model with several reducers and seeds, the simulated cluster's clock beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.bridge.task import missing_extra
from s2sim.study.convergence.answer import answer
from s2sim.study.convergence.one_seed import OneSeed
from s2sim.study.convergence.resolve import prepare
from s2sim.study.progress import SILENT

if TYPE_CHECKING:
    from pathlib import Path

    from s2sim.study.convergence.curve import Curve
    from s2sim.study.convergence.result import Trained
    from s2sim.study.convergence.spec import TrainSpec
    from s2sim.study.progress import Progress


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
