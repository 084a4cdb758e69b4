"""Finds the gradients that a run asks for: a shipped name, a path, or an option string for synthetic ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from s2sim.errors import TraceError
from s2sim.gradients.synthetic import SyntheticOptions, SyntheticTrace
from s2sim.gradients.trace import Trace, open_trace
from s2sim.options import build, split_option_string

if TYPE_CHECKING:
    from pathlib import Path

AnyTrace: TypeAlias = Trace | SyntheticTrace


def load_trace(spec: str | Path, *, workers: int, seed: int = 0) -> AnyTrace:
    """Return the trace that ``spec`` names, after checking that it has ``workers`` ranks.

    Parameters
    ----------
    spec : str or Path
        Name of a shipped trace, path of a trace directory, or ``synthetic:density=...,overlap=...,tail=...``.
    workers : int
        Ranks needed.
    seed : int
        Root seed of a synthetic trace.

    Raises
    ------
    UnknownNameError, TraceError, OptionError
        If there is no such trace, it has too few ranks, or an option is wrong.
    """
    if workers < 1:
        raise TraceError(f"{workers} workers were asked for; there must be at least 1")
    if isinstance(spec, str) and spec.partition(":")[0].strip() == "synthetic":
        if seed < 0:
            raise TraceError(f"seed={seed} is negative; use 0 or more")
        _, options = split_option_string(spec)
        return SyntheticTrace(build(SyntheticOptions, options, "synthetic"), workers, seed)
    trace = open_trace(spec)
    if workers > trace.world_size:
        raise TraceError(
            f"trace {trace.name} has {trace.world_size} recorded ranks; {workers} workers were asked for; "
            f"use --workers {trace.world_size} or fewer"
        )
    return trace
