"""What errors of rows come to: by source, and over sources with one voice each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.study.validate.harness import error_statistics
from s2sim.study.validate.iterations.result import Calls, OverSources, SourceErrors, TimeErrors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s2sim.study.validate.iterations.result import IterationError


def by_source(rows: Sequence[IterationError]) -> tuple[SourceErrors, ...]:
    """Return what the scored rows of each source come to."""
    return tuple(
        _of_source(name, [row for row in rows if row.source == name]) for name in sorted({row.source for row in rows})
    )


def over_sources(rows: Sequence[IterationError], sources: Sequence[SourceErrors]) -> OverSources:
    """Return what sources come to, of which each has one voice."""
    shares = [source.calls.right_share for source in sources if source.calls is not None]
    return OverSources(
        sources=len(sources),
        rows=len(rows),
        predicted=sum(row.predicted for row in rows),
        scored=sum(row.scored for row in rows),
        iteration=_one_voice([source.iteration for source in sources]),
        communication=_one_voice([source.communication for source in sources]),
        calls_right_share=float(np.mean(shares)) if shares else None,
        calls=_calls(rows),
    )


def _of_source(name: str, rows: Sequence[IterationError]) -> SourceErrors:
    scored = [row for row in rows if row.scored]
    return SourceErrors(
        name=name,
        rows=len(rows),
        scored=len(scored),
        iteration=_errors(row.log_error for row in scored),
        communication=_errors(row.communication_log_error for row in scored),
        calls=_calls(rows),
    )


def _errors(found: Iterable[float | None]) -> TimeErrors | None:
    signed = [each for each in found if each is not None]
    if not signed:
        return None
    return TimeErrors(*error_statistics([abs(each) for each in signed], signed))


def _one_voice(sources: Iterable[TimeErrors | None]) -> TimeErrors | None:
    known = [source for source in sources if source is not None]
    if not known:
        return None
    return TimeErrors(
        rows=sum(source.rows for source in known),
        median=float(np.median([source.median for source in known])),
        p90=float(np.median([source.p90 for source in known])),
        bias=float(np.median([source.bias for source in known])),
    )


def _calls(rows: Iterable[IterationError]) -> Calls | None:
    """Return the calls of scored rows."""
    known = [(row.wins, row.measured_wins) for row in rows if row.scored and row.right_call is not None]
    if not known:
        return None
    return Calls(
        right_share=float(np.mean([called == was for called, was in known])),
        wins_as_predicted=known.count((True, True)),
        losses_as_predicted=known.count((False, False)),
        missed_wins=known.count((False, True)),
        false_wins=known.count((True, False)),
    )
