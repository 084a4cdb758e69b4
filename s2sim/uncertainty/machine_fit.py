"""Constants of a library for one machine: what a fit pulls to the shipped ones, and how sure it makes them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from math import exp, inf, isinf, log
from typing import Any

import numpy as np

from s2sim import __version__
from s2sim.arrays import Floats
from s2sim.errors import UnitError
from s2sim.files import toml_text
from s2sim.libraries.constants import ConstantOverrides, load_constants
from s2sim.libraries.library import FittedRange
from s2sim.topology.quantity import Quantity
from s2sim.units import PS_PER_S, parse_rate_Bps, parse_time_ps

# A median of absolute values, to a standard deviation.
_MEDIAN_TO_DEVIATION = 1.4826


def covariance_of(slopes: Floats, spread: Floats, errors: Floats, noise: float) -> Floats:
    """Return the posterior covariance of the constants' logarithms, float64 of shape (n, n).

    ``slopes``, of shape (m, n), are derivatives of the logarithms of times; ``spread``, of shape (n,), the prior
    standard deviations; ``errors``, of shape (m,), ln(predicted/measured). ``noise`` is the standard deviation of a
    measured time's logarithm, at least as large as the errors that no constants explain.
    """
    noise = max(noise, _MEDIAN_TO_DEVIATION * float(np.median(np.abs(errors))))
    return np.asarray(np.linalg.inv(slopes.T @ slopes / noise**2 + np.diag(spread**-2.0)), np.float64)


WITHIN_90 = 1.645
"""Standard deviations within which 90 % of a normal distribution lie."""


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


# How far constants of one machine lie from the shipped ones, which are those of a class: standard deviations of the
# logarithm. Rates are written on the box; what software takes, and what a protocol leaves of its ceiling, is not.
_SPREAD_OF_LINKS, _SPREAD_OF_SOFTWARE = 0.2, 0.5
_HEAD = """\
# Constants of one machine, fitted by s2sim dev calibrate; --library {base}:timing=THIS_FILE simulates with them.
# All others are those of {base}. A use outside of [fitted] is named where it happens.
"""


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


def profile_text(
    base: str, constants: Sequence[tuple[FittedConstant, str | float]], fitted: FittedRange, origin: str
) -> str:
    """Return a TOML file that `read_calibration` reads: ``constants`` as it has them, all others of ``base``."""
    values: dict[str, Any] = {"name": f"{base} on {fitted.topology}", "base": base, "source": origin}
    points = f"fitted to {fitted.points} measured points with s2sim {__version__}"
    for constant, written in constants:
        shipped = f"{constant.shipped:.5g}{constant.unit}"
        between = f"90 % from {constant.low:.4g} to {constant.high:.4g}{' ' * bool(constant.unit)}{constant.unit}"
        source = f"{points}, {between}; {shipped} in {base}"
        values[constant.name] = {"value": written, "kind": "measured", "source": source}
    values |= {f"fitted.{name}": value for name, value in asdict(fitted).items() if value is not None}
    return toml_text(values, _HEAD.format(base=base))


# Standard deviation of the logarithm of a median time, were nothing but chance between it and its prediction.
_NOISE = 0.05
_STEP = 0.02
HOST_FIT_STEPS = 15
# What is fitted of a library between hosts, with the standard deviation of its logarithm before anything is measured.
_SPREADS = {
    "call.latency": 0.7,
    "network.any.latency": 0.7,
    "network.any.share": 0.03,
    "processor.message": 0.7,
    "processor.packet": 0.7,
    "processor.rate": 0.5,
    "processor.overlap": 0.3,
}


@dataclass(frozen=True, slots=True)
class HostFit:
    """Constants of a library between hosts, fitted to times of collectives."""

    constants: tuple[FittedConstant, ...]
    own: ConstantOverrides  # The same as a library's file has them
    # Medians of |ln(predicted/measured)|, with the shipped constants and with these
    before: float
    after: float


def fit_host_constants(
    library: str,
    predict_s: Callable[[ConstantOverrides], Sequence[float]],
    measured_s: Sequence[float],
    on_step: Callable[[], None] = lambda: None,
    steps: int = HOST_FIT_STEPS,
) -> HostFit:
    """Return the best constants, by least squares of logarithms pulled to the shipped.

    ``predict_s`` returns the seconds of what was measured with overrides of the library's constants.
    """
    from scipy.optimize import least_squares

    given, fittable = {quantity.field: quantity for quantity in load_constants(library).quantities}, []
    for name, prior in _SPREADS.items():
        number = number_of(given[name])
        assert number is not None
        fittable.append(FittableConstant(name, *number, prior, -log(number[0]) if name.endswith(".share") else inf))
    spread = np.array([constant.spread for constant in fittable])
    highest = np.array([constant.highest for constant in fittable])

    def errors(logs: Floats) -> Floats:
        found: Floats = np.log(np.array(predict_s(_to_overrides(fittable, logs))) / np.array(measured_s))
        return found

    def pulled(logs: Floats) -> Floats:
        return np.concatenate([errors(logs) / _NOISE, logs / spread])

    def slopes(logs: Floats) -> Floats:
        on_step()
        here = pulled(logs)
        sides = [-_STEP if log_ + _STEP > most else _STEP for log_, most in zip(logs, highest, strict=True)]
        moved = zip(sides, np.diag(sides), strict=True)
        return np.stack([(pulled(logs + move) - here) / step for step, move in moved], axis=1)

    start = np.zeros(len(fittable))
    bounds = (np.full(len(start), -inf), highest)
    # Several medians are far from any law; they count less than in proportion.
    fitted = least_squares(pulled, start, jac=slopes, bounds=bounds, loss="soft_l1", max_nfev=steps)
    logs = np.asarray(fitted.x, np.float64)
    left = errors(logs)
    deviation = np.sqrt(np.diag(covariance_of(slopes(logs)[: len(left)] * _NOISE, spread, left, _NOISE)))
    before, after = (float(np.median(np.abs(each))) for each in (errors(start), left))
    found = zip(fittable, logs.tolist(), deviation.tolist(), strict=True)
    constants = tuple(each.fitted(map(exp, each.interval(log_, sure))) for each, log_, sure in found)
    return HostFit(constants, _to_overrides(fittable, logs), before, after)


def _to_overrides(fittable: Sequence[FittableConstant], logs: Floats) -> ConstantOverrides:
    values = [(each, each.value * exp(log_)) for each, log_ in zip(fittable, logs.tolist(), strict=True)]
    return tuple(
        (each.name, f"{value:.6g}{each.unit}" if each.unit else value if isinf(each.highest) else min(value, 1.0))
        for each, value in values
    )
