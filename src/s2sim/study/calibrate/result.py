"""What a calibration gives: constants of one machine, how far off predictions were and are, what to measure next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from s2sim.study.result_form import ResultForm

if TYPE_CHECKING:
    from s2sim.study.calibrate.spec import CalibrateSpec


@dataclass(frozen=True, slots=True)
class FittedConstant:
    """A constant of the library.

    Attributes
    ----------
    name : str
        As in the library's file.
    unit : str
        ``us``, ``GB/s``, or empty for a share.
    shipped, fitted : float
        Its values.
    low, high : float
        Between which the fitted one lies in 90 % of cases.
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

    Attributes
    ----------
    log, line : str, int
        Where it stands.
    before_s, after_s : float
        Predicted with the shipped constants and with the fitted ones.
    held_out_s : float or None
        Predicted with constants that were fitted without it; None where it is the only one.
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
    """What to measure next.

    Attributes
    ----------
    band_now, band_after : float
        By what share 90 % of predicted times differ at most from those that nccl-tests would measure, on the mean over
        collectives and sizes: as it is, and once that is measured.
    command : str
        How nccl-tests measures it.
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

    Attributes
    ----------
    constants : tuple of FittedConstant
        Those that the measurements tell.
    points : tuple of CalibratedPoint
        In the order of the logs.
    before, after, held_out : MedianError
        With the shipped constants, with the fitted ones, and of each point with those fitted without it.
    library : str
        Whose constants these are.
    versions : tuple of str
        Libraries that the logs name.
    suggestion : Suggestion or None
        Where one was asked for.
    profile : str
        Text of a file for ``--library``; empty where nothing was measured.
    notes : tuple of str
        What else to know.
    provenance : dict
        The run record.
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
