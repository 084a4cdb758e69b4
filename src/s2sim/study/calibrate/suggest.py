"""Which measurement would make predictions surest: the one after which they vary least, by how they grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.study.calibrate.constants import WITHIN_90, tellable_constants
from s2sim.study.calibrate.fit import NOISE
from s2sim.study.calibrate.result import Suggestion
from s2sim.study.calibrate.runs import Run
from s2sim.study.fidelity.told import TermModel, ToldPoint
from s2sim.study.measured_logs.nccl_form import program_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats
    from s2sim.collectives.kinds import Kind
    from s2sim.collectives.libraries.constants import Own
    from s2sim.study.calibrate.fit import Fitted
    from s2sim.study.calibrate.predict import MachinePredictor
    from s2sim.study.progress import Progress

SIZES_BYTES = tuple(2**power for power in range(10, 31, 2))
"""Sizes of which predictions are to be sure, and out of which one is suggested: 1 KiB to 1 GiB."""

KINDS: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter")
"""Collectives likewise; those of the logs count beside them."""


def suggest(
    machine: MachinePredictor, runs: Sequence[Run], fitted: Fitted | None, workers: int, progress: Progress
) -> Suggestion:
    """Return the measurement after which predictions over ``workers`` ranks vary least.

    Parameters
    ----------
    runs : sequence of Run
        What was measured so far.
    fitted : Fitted or None
        What came of it; None before anything was measured.
    """
    one_process = bool(runs) and all(run.one_process for run in runs)
    kinds = tuple(dict.fromkeys([*(run.kind for run in runs), *KINDS]))
    counts = dict.fromkeys([workers, *(run.workers for run in runs)])
    in_node = int(np.bincount(machine.cluster(workers).node_of_rank).max())
    if in_node > 1:
        counts[in_node] = None
    choices = [(Run(kind, count, one_process), size) for kind in kinds for count in counts for size in SIZES_BYTES]
    slopes, covariance = _growth(machine, choices, fitted, progress)
    wanted = slopes[[run.workers == workers for run, _ in choices]]
    # What each constant's uncertainty adds to each choice, and what measuring one tells of the others.
    shared = slopes @ covariance
    own = np.einsum("ij,ij->i", shared, slopes)
    now = np.einsum("ij,jk,ik->i", wanted, covariance, wanted)
    told = (wanted @ shared.T) ** 2 / (own + NOISE**2)
    after = (now[:, None] - told).mean(axis=0)
    best = int(after.argmin())
    run, size_bytes = choices[best]
    return Suggestion(
        collective=run.kind,
        workers=run.workers,
        size_bytes=size_bytes,
        band_now=_band(float(now.mean())),
        band_after=_band(max(0.0, float(after[best]))),
        command=_command(machine, run, size_bytes),
    )


def _growth(
    machine: MachinePredictor, choices: Sequence[tuple[Run, int]], fitted: Fitted | None, progress: Progress
) -> tuple[Floats, Floats]:
    """Return how the logarithm of each choice's time grows with each constant's, and how these vary."""
    own: Own = () if fitted is None else fitted.own
    points = []
    progress.start(len(choices), "looking for what to measure")
    for run, size_bytes in choices:
        points.append(
            ToldPoint("", "", size_bytes, 1.0, False, tuple(machine.contenders(run, size_bytes, own).values()))
        )
        progress.advance()
    progress.stop()
    names = {name for each in points for way in each.contenders for _, powers in way.parts for name, _ in powers}
    constants = tellable_constants(machine.library, names)
    slopes = TermModel(points, [constant.name for constant in constants]).slopes(np.zeros(len(constants)))
    covariance = np.diag([constant.spread**2 for constant in constants])
    if fitted is not None:
        # What no measurement told is as unsure as it was.
        place = {constant.name: number for number, constant in enumerate(constants)}
        known = [(place[each.name], number) for number, each in enumerate(fitted.constants) if each.name in place]
        if known:
            into, out_of = np.array(known).T
            covariance[np.ix_(into, into)] = fitted.covariance[np.ix_(out_of, out_of)]
    return slopes, covariance


def _band(variance: float) -> float:
    """Return by how much 90 % of times differ at most, as a share.

    >>> round(_band(0.01), 3)
    0.179
    """
    return float(np.expm1(WITHIN_90 * np.sqrt(variance)))


def _command(machine: MachinePredictor, run: Run, size_bytes: int) -> str:
    """Return how nccl-tests measures it."""
    nodes = machine.nodes(run.workers)
    gpus = -(-run.workers // nodes)
    processes = nodes if run.one_process else run.workers
    launcher = "" if processes == 1 else f"mpirun -np {processes} --map-by ppr:{processes // nodes or 1}:node "
    threads = gpus if run.one_process else 1
    size = next(
        f"{size_bytes >> shift}{unit}" for shift, unit in ((30, "G"), (20, "M"), (10, "K")) if size_bytes >> shift
    )
    return f"{launcher}{program_of(run.kind)} -b {size} -e {size} -g {threads} -w 20 -n 100"
