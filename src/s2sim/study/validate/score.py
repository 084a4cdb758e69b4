"""Errors of one curve, and of many: over curves, and with one voice a source."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from s2sim.study.validate.curve import is_large
from s2sim.study.validate.harness import error_statistics
from s2sim.study.validate.result import Apart, Class, Errors, Group, OneVoice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from s2sim.study.validate.result import CurveErrors, Point

_DRAWS, _LOW, _HIGH = 2000, 0.05, 0.95
_HALF = 0.5
NOT_KNOWN = "not known"
_CLASSES = ("gpu", "transport", "collective", "launch")


def errors_of(points: Sequence[Point]) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Return the medians of |ln(predicted/measured)| and of ln(predicted/measured), of large and of small sizes.

    Predictions of no time, of sizes too small for every rank to have a part, are left out.
    """
    absolute: dict[str, float | None] = {}
    signed: dict[str, float | None] = {}
    for name, large in (("large", True), ("small", False)):
        chosen = [p for p in points if is_large(p.size_bytes) == large and p.predicted_s > 0]
        errors = np.log([point.predicted_s / point.measured_s for point in chosen])
        absolute[name] = float(np.median(np.abs(errors))) if chosen else None
        signed[name] = float(np.median(errors)) if chosen else None
    return absolute, signed


def scored(curve: CurveErrors, points: Sequence[Point]) -> CurveErrors:
    """Return a curve as predicted, with what that is off by."""
    absolute, signed = errors_of(points)
    return replace(
        curve,
        predicted=True,
        reason=None,
        median_abs_log_error_large=absolute["large"],
        median_abs_log_error_small=absolute["small"],
        signed_log_error_large=signed["large"],
        signed_log_error_small=signed["small"],
        points=tuple(points),
    )


def group_of(name: str, curves: Sequence[CurveErrors]) -> Group:
    """Return what the errors of some curves come to."""
    predicted = [curve for curve in curves if curve.predicted]
    large = [(c.source, c.median_abs_log_error_large, c.signed_log_error_large) for c in predicted]
    small = [(c.source, c.median_abs_log_error_small, c.signed_log_error_small) for c in predicted]
    return Group(name, len(curves), len(predicted), _errors(large), _errors(small))


def _errors(found: Iterable[tuple[str, float | None, float | None]]) -> Errors | None:
    known = [(source, size, sign) for source, size, sign in found if size is not None and sign is not None]
    if not known:
        return None
    sizes = [size for _, size, _ in known]
    voices: dict[str, list[float]] = {}
    for source, size, _ in known:
        voices.setdefault(source, []).append(size)
    return Errors(
        *error_statistics(sizes, [sign for _, _, sign in known]),
        off_by_half=sum(size > _HALF for size in sizes),
        one_voice=_one_voice([float(np.median(voice)) for voice in voices.values()]),
    )


def _one_voice(medians: Sequence[float]) -> OneVoice:
    """Return the median of sources, and where it lies in 90 % of draws of as many of them."""
    low = high = None
    if len(medians) > 1:
        drawn = np.random.default_rng(0).choice(medians, (_DRAWS, len(medians)))
        low, high = map(float, np.quantile(np.median(drawn, axis=1), (_LOW, _HIGH)))
    return OneVoice(len(medians), float(np.median(medians)), low, high)


def apart(curves: Sequence[CurveErrors]) -> Apart:
    """Return those that the model is not judged by."""
    return Apart(
        doubtful=group_of("doubtful", [curve for curve in curves if curve.quality == "good" and curve.doubt]),
        suspect=group_of("suspect", [curve for curve in curves if curve.quality != "good"]),
    )


def by_source(curves: Sequence[CurveErrors]) -> tuple[Group, ...]:
    """Return the curves of each source."""
    return _grouped(curves, attrgetter("source"))


def by_class(curves: Sequence[CurveErrors], sources: int = 1) -> tuple[Class, ...]:
    """Return the curves of each GPU, transport, collective and launch of which there are so many sources."""
    return tuple(Class(kind, group) for kind in _CLASSES for group in _grouped(curves, attrgetter(kind), sources))


def _grouped(
    curves: Sequence[CurveErrors], name_of: Callable[[CurveErrors], str], sources: int = 1
) -> tuple[Group, ...]:
    found: dict[str, list[CurveErrors]] = {}
    for curve in curves:
        found.setdefault(name_of(curve) or NOT_KNOWN, []).append(curve)
    return tuple(
        group_of(name, found[name]) for name in sorted(found) if len({each.source for each in found[name]}) >= sources
    )
