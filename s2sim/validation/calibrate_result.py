"""Results and options of a calibration, and the constants of a library that it can fit."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import inf, log
from typing import Any, ClassVar

from s2sim import __version__
from s2sim.errors import UnitError
from s2sim.experiment.json_form import ResultForm
from s2sim.libraries.constants import load_constants
from s2sim.libraries.library import FittedRange
from s2sim.topology.quantity import Quantity
from s2sim.units import PS_PER_S, parse_rate_Bps, parse_time_ps
from s2sim.validation.calibrate_spec import CalibrateSpec

# How far constants of one machine lie from the shipped ones, which are those of a class: standard deviations of the
# logarithm. Rates are written on the box; what software takes, and what a protocol leaves of its ceiling, is not.
_SPREAD_OF_LINKS, _SPREAD_OF_SOFTWARE = 0.2, 0.5
WITHIN_90 = 1.645
"""Standard deviations within which 90 % of a normal distribution lie."""

_HEAD = """\
# Constants of one machine, fitted by s2sim dev calibrate; --library {base}:timing=THIS_FILE simulates with them.
# All others are those of {base}. A use outside of [fitted] is named where it happens.
"""


@dataclass(frozen=True, slots=True)
class FittedConstant:
    """A constant of the library, as shipped and as fitted; in 90 % of cases it lies between ``low`` and ``high``."""

    name: str
    unit: str  # ``us``, ``GB/s``, or empty for a share
    shipped: float
    fitted: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CalibratedPoint:
    """One measured time beside what is predicted of it."""

    log: str
    line: int
    collective: str
    workers: int
    size_bytes: int
    measured_s: float
    before_s: float  # With the shipped constants
    after_s: float  # With the fitted ones
    held_out_s: float | None  # With those fitted without it; None where it is the only one


@dataclass(frozen=True, slots=True)
class MedianError:
    """Median over points of |ln(predicted/measured)|, from 1 MiB on and below; None where there are none."""

    large: float | None
    small: float | None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What to measure next, and how nccl-tests does."""

    collective: str
    workers: int
    size_bytes: int
    # Shares by which 90 % of predicted times differ at most from those that nccl-tests would measure, on the mean over
    # collectives and sizes: as it is, and once that is measured
    band_now: float
    band_after: float
    command: str


@dataclass(frozen=True, slots=True, repr=False)
class CalibrationResult(ResultForm):
    """What `s2sim.validation.calibrate.run_calibration` returns."""

    answers: ClassVar[str] = "calibrate"
    tabulated: ClassVar[str] = "points"

    spec: CalibrateSpec
    cluster: str
    constants: tuple[FittedConstant, ...]
    points: tuple[CalibratedPoint, ...]
    before: MedianError  # With the shipped constants
    after: MedianError  # With the fitted ones
    held_out: MedianError  # Of each point with those fitted without it
    library: str
    versions: tuple[str, ...]
    suggestion: Suggestion | None
    profile: str  # Text of a file for ``--library``; empty where nothing was measured
    notes: tuple[str, ...]
    provenance: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FittableConstant:
    """A constant that is fitted."""

    name: str  # As in the library's file, with dots
    value: float  # What is shipped: a share, or in ``unit``
    unit: str  # ``us``, ``GB/s``, or empty for a share
    spread: float  # Standard deviation of the logarithm of what it may be, before anything is measured
    highest: float  # Logarithm of how many times as large it may be

    def as_written(self, value: float) -> str | float:
        """Return a value as a library's file has it.

        >>> FittableConstant("launch.collective", 5.0, "us", 0.5, inf).as_written(4.7654321)
        '4.7654us'
        """
        text = f"{value:.5g}"
        return f"{text}{self.unit}" if self.unit else min(1.0, float(text))

    def interval(self, log: float, deviation: float) -> tuple[float, ...]:
        """Return a fitted logarithm, and the ends of its 90 % interval."""
        return log, *(min(log + side * WITHIN_90 * deviation, self.highest) for side in (-1, 1))

    def fitted(self, times: Iterable[float]) -> FittedConstant:
        """Return it as many times as large as shipped: as fitted, at least and at most."""
        return FittedConstant(self.name, self.unit, self.value, *(float(self.value * each) for each in times))


def fittable_constants(library: str, names: Collection[str]) -> tuple[FittableConstant, ...]:
    """Return the constants of a library among ``names`` that can be fitted, by name.

    Those are left as they are that are chosen rather than found, because they would stand for what another one does,
    shares of all of a rate, and numbers of things. Shares end at 1, those of protocols as shipped.
    """
    found = []
    for quantity in sorted(load_constants(library).quantities, key=lambda each: each.field):
        number = None if quantity.field not in names or quantity.kind == "user" else number_of(quantity)
        value, unit = number or (0.0, "")
        if value > 0 and (unit or value < 1):
            of_protocol = quantity.field.startswith("protocol.")
            spread = _SPREAD_OF_SOFTWARE if unit or of_protocol else _SPREAD_OF_LINKS
            highest = inf if unit else 0.0 if of_protocol else -log(value)
            found.append(FittableConstant(quantity.field, value, unit, spread, highest))
    return tuple(found)


def number_of(quantity: Quantity) -> tuple[float, str] | None:
    """Return a value and its unit, ``us``, ``GB/s`` or none; None for a text that is neither time nor rate."""
    value = quantity.value
    if isinstance(value, float | int):
        return float(value), ""
    for parse, scale, unit in ((parse_time_ps, PS_PER_S / 1e6, "us"), (parse_rate_Bps, 1e9, "GB/s")):
        try:
            return float(parse(value)) / scale, unit
        except UnitError:
            continue
    return None


def profile_text(
    base: str, constants: Sequence[tuple[FittedConstant, str | float]], fitted: FittedRange, origin: str
) -> str:
    """Return the text of a TOML file that `s2sim.libraries.library.read_calibration` reads.

    ``base`` is the library of all other constants; ``constants`` have their values as written to the file.
    """
    header = {"name": f"{base} on {fitted.topology}", "base": base, "source": origin}
    lines = [_HEAD.format(base=base), *(f"{name} = {_text(value)}" for name, value in header.items()), ""]
    points = f"fitted to {fitted.points} measured points with s2sim {__version__}"
    tables: dict[str, list[str]] = {}
    for constant, written in constants:
        table, _, name = constant.name.rpartition(".")
        shipped = f"{constant.shipped:.5g}{constant.unit}"
        between = f"90 % from {constant.low:.4g} to {constant.high:.4g}{' ' * bool(constant.unit)}{constant.unit}"
        source = f"{points}, {between}; {shipped} in {base}"
        tables.setdefault(table, []).append(
            f'{name} = {{ value = {_text(written)}, kind = "measured", source = {_text(source)} }}'
        )
    for table, rows in tables.items():
        lines += [f"[{table}]", *rows, ""]
    rows = [f"{name} = {_text(value)}" for name, value in asdict(fitted).items() if value is not None]
    return "\n".join([*lines, "[fitted]", *rows, ""])


def _text(value: Any) -> str:
    """Return a value as TOML has it, which writes texts and numbers as JSON does, but for DEL."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return json.dumps(value).replace("\x7f", "\\u007f")
