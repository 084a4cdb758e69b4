"""Fits what a library of processes on one machine takes to the collectives that one setting of a testbed measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import exp, inf, log
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.collectives.libraries.host_constants import load_host_constants
from s2sim.errors import S2SimError
from s2sim.study.calibrate.fit import covariance_of
from s2sim.study.calibrate.result import FittedConstant
from s2sim.study.progress import SILENT
from s2sim.study.testbed.predict import LIBRARY, collective_s
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats
    from s2sim.collectives.libraries.constants import Own
    from s2sim.collectives.libraries.host_constants import HostConstants
    from s2sim.study.progress import Progress
    from s2sim.testbed.measured import Setting, Timed

# Standard deviation of the logarithm of a median time, were nothing but chance between it and its prediction.
_NOISE = 0.05
# 90 % of a normal distribution lie within so many standard deviations.
_BAND = 1.645
_STEP = 0.02
_MOST_STEPS = 15
_MEDIAN_TO_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True)
class _Tellable:
    """A constant that is fitted, with the standard deviation of its logarithm before anything is measured."""

    name: str
    unit: str
    spread: float


_TELLABLE = (
    _Tellable("call.latency", "us", 0.7),
    _Tellable("network.any.latency", "us", 0.7),
    _Tellable("network.any.share", "", 0.03),
    _Tellable("processor.message", "us", 0.7),
    _Tellable("processor.packet", "us", 0.7),
    _Tellable("processor.rate", "GB/s", 0.5),
    _Tellable("processor.overlap", "", 0.3),
)


@dataclass(frozen=True, slots=True)
class SettingFit:
    """Constants that one setting tells.

    Attributes
    ----------
    setting : Setting
        Which.
    constants : tuple of FittedConstant
        With the shipped value of each, and between what it lies.
    own : Own
        The same as a library's file has them.
    rows : tuple of Timed
        What they were fitted to.
    before, after : float
        Median of |ln(predicted/measured)| of these rows, with the shipped constants and with the fitted ones.
    """

    setting: Setting
    constants: tuple[FittedConstant, ...]
    own: Own
    rows: tuple[Timed, ...]
    before: float
    after: float

    def to_json(self) -> dict[str, Any]:
        """Return the constants and how far off predictions were and are."""
        return {
            "setting": self.setting.name,
            "constants": [asdict(constant) for constant in self.constants],
            "points": len(self.rows),
            "median_error_before": self.before,
            "median_error_after": self.after,
        }


def fit_setting(setting: Setting, rows: Sequence[Timed], progress: Progress = SILENT) -> SettingFit:
    """Return the constants that fit best, by least squares of logarithms with a pull to the shipped ones.

    Raises
    ------
    S2SimError
        If nothing was measured of the setting.
    """
    from scipy.optimize import least_squares

    own_rows = tuple(row for row in rows if row.setting == setting.name)
    if not own_rows:
        raise S2SimError(f"no collective was measured of {setting.name}: name another setting, or measure it")
    shipped = _shipped(load_host_constants(LIBRARY))
    spread = np.array([constant.spread for constant in _TELLABLE])
    highest = np.array([-log(shipped[c.name]) if _is_share(c) else inf for c in _TELLABLE])
    progress.start(_MOST_STEPS, f"fitting to {setting.name}")

    def errors(logs: Floats) -> Floats:
        own = _own(shipped, logs)
        return np.array([log(collective_s(setting, r.what, r.payload_bytes, own) / r.median_s) for r in own_rows])

    def pulled(logs: Floats) -> Floats:
        return np.concatenate([errors(logs) / _NOISE, logs / spread])

    def slopes(logs: Floats) -> Floats:
        progress.advance()
        here = pulled(logs)
        steps = [-_STEP if log_ + _STEP > most else _STEP for log_, most in zip(logs, highest, strict=True)]
        found = [
            (pulled(logs + step * axis) - here) / step for step, axis in zip(steps, np.eye(len(logs)), strict=True)
        ]
        return np.stack(found, axis=1)

    start = np.zeros(len(_TELLABLE))
    bounds = (np.full(len(start), -inf), highest)
    # Several medians are far from any law; they count less than in proportion.
    fitted = least_squares(pulled, start, jac=slopes, bounds=bounds, loss="soft_l1", max_nfev=_MOST_STEPS)
    progress.stop()
    logs = np.asarray(fitted.x, np.float64)
    left = np.abs(errors(logs))
    noise = max(_NOISE, _MEDIAN_TO_DEVIATION * float(np.median(left)))
    deviation = np.sqrt(np.diag(covariance_of(slopes(logs)[: len(own_rows)] * _NOISE, spread, noise)))
    before = float(np.median(np.abs(errors(start))))
    constants = tuple(
        FittedConstant(
            constant.name,
            constant.unit,
            shipped[constant.name],
            *(shipped[constant.name] * exp(min(log_ + side * _BAND * sure, most)) for side in (0, -1, 1)),
        )
        for constant, log_, sure, most in zip(_TELLABLE, logs.tolist(), deviation.tolist(), highest, strict=True)
    )
    return SettingFit(setting, constants, _own(shipped, logs), own_rows, before, float(np.median(left)))


def _is_share(constant: _Tellable) -> bool:
    return constant.name.endswith(".share")


def _own(shipped: dict[str, float], logs: Floats) -> Own:
    """Return constants as a file has them, by the logarithms of how many times as large as shipped they are."""
    values = [(each, shipped[each.name] * exp(log_)) for each, log_ in zip(_TELLABLE, logs.tolist(), strict=True)]
    return tuple(
        (each.name, f"{value:.6g}{each.unit}" if each.unit else min(value, 1.0) if _is_share(each) else value)
        for each, value in values
    )


def _shipped(constants: HostConstants) -> dict[str, float]:
    """Return the shipped values of what is fitted, in its units."""
    carrier = constants.carrier("any")[1]
    us = PS_PER_S / 1e6
    return {
        "call.latency": constants.call_ps / us,
        "network.any.latency": carrier.latency_ps / us,
        "network.any.share": carrier.share,
        "processor.message": constants.message_ps / us,
        "processor.packet": constants.packet_ps / us,
        "processor.rate": constants.pass_Bps / 1e9,
        "processor.overlap": constants.overlap,
    }
