"""What a calibration gives: constants of one machine, how far off predictions were and are, what to measure next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from s2sim.study.result_form import ResultForm

if TYPE_CHECKING:
    from s2sim.study.calibrate.spec import CalibrateSpec


@dataclass(frozen=True, slots=True)
class FittedConstant:
    """A constant of the library, as shipped and as fitted; in 90 % of cases it lies between ``low`` and ``high``.

    ``unit`` is ``us``, ``GB/s``, or empty for a share.
    """

    name: str
    unit: str
    shipped: float
    fitted: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CalibratedPoint:
    """One measured time beside what is predicted of it.

    With the shipped constants, with the fitted ones, and with those fitted without it (None where it is the only one).
    """

    log: str
    line: int
    collective: str
    workers: int
    size_bytes: int
    measured_s: float
    before_s: float
    after_s: float
    held_out_s: float | None


@dataclass(frozen=True, slots=True)
class MedianError:
    """Median over points of |ln(predicted/measured)|, from 1 MiB on and below; None where there are none."""

    large: float | None
    small: float | None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What to measure next, and how nccl-tests does.

    ``band_now`` and ``band_after`` are the shares by which 90 % of predicted times differ at most from those that
    nccl-tests would measure, on the mean over collectives and sizes: as it is, and once that is measured.
    """

    collective: str
    workers: int
    size_bytes: int
    band_now: float
    band_after: float
    command: str


@dataclass(frozen=True, slots=True, repr=False)
class CalibrationResult(ResultForm):
    """What `s2sim.study.calibrate.run.run_calibration` returns.

    ``before``, ``after`` and ``held_out`` are errors with the shipped constants, with the fitted ones, and of each
    point with those fitted without it. ``profile`` is the text of a file for ``--library``; empty where nothing was
    measured.
    """

    answers: ClassVar[str] = "calibrate"

    spec: CalibrateSpec
    cluster: str
    constants: tuple[FittedConstant, ...]
    points: tuple[CalibratedPoint, ...]
    before: MedianError
    after: MedianError
    held_out: MedianError
    library: str
    versions: tuple[str, ...]
    suggestion: Suggestion | None
    profile: str
    notes: tuple[str, ...]
    provenance: dict[str, Any]
