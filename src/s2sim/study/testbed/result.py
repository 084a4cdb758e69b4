"""What a comparison of a testbed with its prediction gives."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import inf, isfinite, log
from statistics import median
from typing import TYPE_CHECKING, Any

from s2sim.study.collective.against_result import LARGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s2sim.study.calibrate.result import FittedConstant
    from s2sim.testbed.measured_folder import Kind


@dataclass(frozen=True, slots=True)
class Point:
    """One measured time (the median, and its 10th and 90th percentile) beside its prediction.

    ``seen`` says whether it is of the calibrated setting; ``what`` to ``payload_bytes`` are as in
    `s2sim.testbed.measured.Timed`.
    """

    kind: Kind
    setting: str
    workers: int
    nodes: int
    rate_Bps: float
    uplink_Bps: float
    what: str
    trace: str
    compute_s: float
    payload_bytes: int
    measured_s: float
    low_s: float
    high_s: float
    predicted_s: float
    seen: bool

    @property
    def error(self) -> float:
        """ln(predicted/measured)."""
        return log(self.predicted_s / self.measured_s)

    @property
    def large(self) -> bool:
        """Whether the size is 1 MiB or more."""
        return self.payload_bytes >= LARGE_BYTES


@dataclass(frozen=True, slots=True)
class Call:
    """Whether a reducer wins or loses against dense on an unseen setting, as measured and as predicted.

    ``measured`` and ``predicted`` are dense's time over the reducer's.
    """

    kind: Kind
    setting: str
    what: str
    trace: str
    measured: float
    predicted: float

    @property
    def right(self) -> bool:
        """Whether both say the same."""
        return (self.measured > 1) == (self.predicted > 1)


@dataclass(frozen=True, slots=True)
class BreakEvenRate:
    """The rate at which a reducer and dense take equally long between so many workers.

    It lies between the measured rates ``low_Bps`` and ``high_Bps``, where the logarithm of the times' ratio is 0 on a
    straight line over that of the rate; predicted at all measured rates in the same way, None where these cross
    nowhere.
    """

    kind: Kind
    workers: int
    what: str
    trace: str
    payload_bytes: int
    low_Bps: float
    high_Bps: float
    measured_Bps: float
    predicted_Bps: float | None

    @property
    def factor(self) -> float:
        """How many times the one is the other, at least 1; infinite where none is predicted."""
        if self.predicted_Bps is None:
            return inf
        ratio = self.predicted_Bps / self.measured_Bps
        return max(ratio, 1 / ratio)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that a folder has, in its order, predicted with ``constants`` of the setting ``calibrated_on``.

    ``calls`` are of other settings; ``break_even`` is where measured times cross.
    """

    calibrated_on: str
    constants: tuple[FittedConstant, ...]
    points: tuple[Point, ...]
    calls: tuple[Call, ...]
    break_even: tuple[BreakEvenRate, ...]
    notes: tuple[str, ...] = ()

    @property
    def unseen(self) -> tuple[Point, ...]:
        """Points of other settings than the calibrated one."""
        return tuple(point for point in self.points if not point.seen)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it, infinite rates as null."""
        found: dict[str, Any] = _finite(asdict(self))
        found["median_errors"] = {
            f"{kind} {size}": median_error(p for p in self.unseen if (p.kind, p.large) == (kind, size == "large"))
            for kind in dict.fromkeys(point.kind for point in self.points)
            for size in ("large", "small")
        }
        found["right_calls"] = None if not self.calls else sum(call.right for call in self.calls) / len(self.calls)
        return found


def median_error(points: Iterable[Point]) -> float | None:
    """Return the median of |ln(predicted/measured)|; None of no points."""
    errors = [abs(point.error) for point in points]
    return median(errors) if errors else None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value
