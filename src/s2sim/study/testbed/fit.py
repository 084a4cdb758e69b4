"""Fits what a library of processes on one machine takes to the collectives that one setting of a testbed measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import exp, inf, isinf, log
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.collectives.libraries.host_constants import load_host_constants
from s2sim.errors import S2SimError
from s2sim.study.calibrate.constants import Tellable, number_of
from s2sim.study.calibrate.fit import covariance_of
from s2sim.study.progress import SILENT
from s2sim.study.testbed.predict import LIBRARY, collective_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats
    from s2sim.collectives.libraries.constants import Own
    from s2sim.study.calibrate.result import FittedConstant
    from s2sim.study.progress import Progress
    from s2sim.testbed.measured import Setting, Timed

# Standard deviation of the logarithm of a median time, were nothing but chance between it and its prediction.
_NOISE = 0.05
_STEP = 0.02
_MOST_STEPS = 15


# What is fitted, with the standard deviation of its logarithm before anything is measured.
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
class SettingFit:
    """Constants fitted to ``rows``, the collectives of one setting; ``own`` has them as a library's file does.

    ``before`` and ``after`` are medians of |ln(predicted/measured)|, with the shipped constants and with these.
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
    tellable = _tellable()
    spread = np.array([constant.spread for constant in tellable])
    highest = np.array([constant.highest for constant in tellable])
    progress.start(_MOST_STEPS, f"fitting to {setting.name}")

    def errors(logs: Floats) -> Floats:
        own = _own(tellable, logs)
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

    start = np.zeros(len(tellable))
    bounds = (np.full(len(start), -inf), highest)
    # Several medians are far from any law; they count less than in proportion.
    fitted = least_squares(pulled, start, jac=slopes, bounds=bounds, loss="soft_l1", max_nfev=_MOST_STEPS)
    progress.stop()
    logs = np.asarray(fitted.x, np.float64)
    left = errors(logs)
    deviation = np.sqrt(np.diag(covariance_of(slopes(logs)[: len(own_rows)] * _NOISE, spread, left, _NOISE)))
    before, after = (float(np.median(np.abs(each))) for each in (errors(start), left))
    constants = tuple(
        constant.fitted(map(exp, constant.interval(log_, sure)))
        for constant, log_, sure in zip(tellable, logs.tolist(), deviation.tolist(), strict=True)
    )
    return SettingFit(setting, constants, _own(tellable, logs), own_rows, before, after)


def _tellable() -> tuple[Tellable, ...]:
    given = {quantity.field: quantity for quantity in load_host_constants(LIBRARY).quantities}
    found = []
    for name, spread in _SPREADS.items():
        number = number_of(given[name])
        assert number is not None
        value, unit = number
        found.append(Tellable(name, value, unit, spread, -log(value) if name.endswith(".share") else inf))
    return tuple(found)


def _own(tellable: Sequence[Tellable], logs: Floats) -> Own:
    """Return constants as a file has them, by the logarithms of how many times as large as shipped they are."""
    values = [(each, each.value * exp(log_)) for each, log_ in zip(tellable, logs.tolist(), strict=True)]
    return tuple(
        (each.name, f"{value:.6g}{each.unit}" if each.unit else value if isinf(each.highest) else min(value, 1.0))
        for each, value in values
    )
