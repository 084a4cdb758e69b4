"""Finds the gradients that a run asks for: a shipped name, a path, or an option string for synthetic ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from s2sim.errors import TraceError
from s2sim.gradients.extrapolation.law import LEAST_RANKS, fit_law
from s2sim.gradients.extrapolation.law_ranks import MoreRanks
from s2sim.gradients.traces.read import Trace, open_trace
from s2sim.gradients.traces.synthetic import SyntheticOptions, SyntheticTrace
from s2sim.options import build, split_option_string

if TYPE_CHECKING:
    from pathlib import Path

AnyTrace: TypeAlias = Trace | SyntheticTrace | MoreRanks


def load_trace(spec: str | Path, *, workers: int, seed: int = 0, keep: bool = False) -> AnyTrace:
    """Return the trace that ``spec`` names, with ``workers`` ranks: beyond the recorded ones a fitted law draws them.

    It names a shipped trace, a trace directory, or is ``synthetic:density=...,overlap=...,tail=...``. ``seed`` is the
    root of a synthetic trace, and of ranks that were not recorded. With ``keep`` what was read is kept, see
    `s2sim.gradients.traces.read.Trace.keeping`.
    """
    if workers < 1:
        raise TraceError(f"{workers} workers were asked for; there must be at least 1")
    if isinstance(spec, str) and spec.partition(":")[0].strip() == "synthetic":
        if seed < 0:
            raise TraceError(f"seed={seed} is negative; use 0 or more")
        _, options = split_option_string(spec)
        return SyntheticTrace(build(SyntheticOptions, options, "synthetic"), workers, seed)
    trace = open_trace(spec).keeping() if keep else open_trace(spec)
    if workers <= trace.world_size:
        return trace
    if trace.world_size < LEAST_RANKS:
        raise TraceError(
            f"trace {trace.name} has too few recorded ranks, {trace.world_size}, to draw {workers} workers by a law "
            f"fitted to them: use --workers {trace.world_size} or fewer, or record {LEAST_RANKS} ranks"
        )
    return MoreRanks(trace.name, trace.manifest, trace, fit_law(trace), workers, seed)
