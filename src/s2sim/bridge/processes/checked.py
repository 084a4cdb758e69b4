"""What one process does when reducers are checked: reduces, and tells what it ends with and what the kernel counted."""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.bridge.processes.kernel import Counted, count
from s2sim.bridge.processes.members import members_of
from s2sim.bridge.processes.rank import learn_here, reduce_here
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import to_dense
from s2sim.gradients.load import load_trace
from s2sim.reducers.registry import make_reducer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from s2sim.arrays import Floats32
    from s2sim.gradients.gradient import Gradient

# What is under way when a counter is read belongs to neither side; nothing is after so long.
_STILL_S = 0.05


def check_job(rank: int, ranks: int, arguments: Mapping[str, Any], tell: Callable[[Any], None]) -> dict[str, Any]:
    """Reduce by every reducer, for as many steps as it says, and tell of each; return what was counted in all.

    Parameters
    ----------
    arguments : mapping
        ``trace``, ``seed``, ``nodes`` (the node of each rank), ``folder`` for means, and ``reducers``, each with its
        ``text`` and ``steps``, pairs of the step's number and that of the trace's step.
    """
    trace = load_trace(arguments["trace"], workers=ranks, seed=arguments["seed"])
    begun = _still()
    for number, asked in enumerate(arguments["reducers"]):
        told: dict[str, Any] = {"reducer": number}
        try:
            told["steps"] = _steps(number, asked, trace.gradient, rank, arguments)
        except S2SimError as error:
            told["refused"] = str(error)
        tell(told)
    ended = _still()
    return {name: value - getattr(begun, name) for name, value in asdict(ended).items()}


def _steps(
    number: int,
    asked: Mapping[str, Any],
    gradient_of: Callable[[int, int], Gradient],
    rank: int,
    arguments: Mapping[str, Any],
) -> list[dict[str, Any]]:
    import torch.distributed as dist

    seed = arguments["seed"]
    reducer = make_reducer(asked["text"]).placed(arguments["nodes"])
    members = members_of()
    if reducer.traits.warm:
        learn_here(reducer, gradient_of(asked["steps"][0][1], rank), seed=seed)
    found = []
    for step, of_trace in asked["steps"]:
        gradient = gradient_of(of_trace, rank)
        members.told.clear()
        dist.barrier()
        before = count()
        here = reduce_here(reducer, gradient, seed=seed, step=step)
        dist.barrier()
        counted = _since(before)
        told = [asdict(each) for each in members.told]
        mean = _kept(here.reduced.mean, Path(arguments["folder"]), f"{number}-{step}")
        found.append({**counted, "told": told, "mean": mean, "waited_s": here.waited_s, "total_s": here.total_s})
    return found


def flat(gradient: Gradient) -> Floats32:
    """Return all values of a gradient, zeros included, float32 of shape (elements,)."""
    return np.concatenate([to_dense(layer).ravel() for layer in gradient.layers])


def _kept(mean: Gradient, folder: Path, prefix: str) -> str:
    """Write what a rank ends with, once for all that end with the same; return the file's name."""
    values = flat(mean)
    name = f"{prefix}-{hashlib.sha256(values.tobytes()).hexdigest()}.npy"
    if not (folder / name).exists():
        partial = folder / f"{name}.{time.monotonic_ns()}.npy"
        np.save(partial, values)
        partial.rename(folder / name)
    return name


def _since(before: Counted) -> dict[str, int]:
    now = count()
    return {name: getattr(now, name) - getattr(before, name) for name in ("sent_bytes", "again_bytes", "connections")}


def _still() -> Counted:
    """Return what is counted while nobody sends."""
    import torch.distributed as dist

    dist.barrier()
    time.sleep(_STILL_S)
    counted = count()
    time.sleep(_STILL_S)
    dist.barrier()
    return counted
