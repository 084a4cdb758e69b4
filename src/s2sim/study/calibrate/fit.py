"""Fits constants of a library to what was measured of one machine, with a pull to those that are shipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import OptionError
from s2sim.study.calibrate.constants import own_constants, tellable_constants
from s2sim.study.calibrate.cuts import Cuts
from s2sim.study.fidelity.fit import FitRules, fit
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.arrays import Floats, Mask
    from s2sim.collectives.libraries.constants import Own
    from s2sim.study.calibrate.constants import Tellable
    from s2sim.study.calibrate.predict import MachinePredictor
    from s2sim.study.calibrate.runs import Key, Sample
    from s2sim.study.fidelity.told import Contender, TermModel
    from s2sim.study.progress import Progress

NOISE = 0.01
"""Standard deviation of the logarithm of a time that nccl-tests measures again, the mean of twenty iterations."""

# Times are taken apart anew where the constants have gone, so often, or until simulation says the same as the terms.
_PASSES = 5
_AS_TOLD = 0.003
# What samples tell has moved by more than that, or is surer than so much of what it was.
_MOVED, _SURER = 0.005, 0.9
# Points that are left out one by one; of more, some together.
_MOST_FOLDS = 24
# A median of absolute values, to a standard deviation.
_MEDIAN_TO_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """Constants of a library for one machine, n of them, fitted to m samples.

    Attributes
    ----------
    logs, covariance : float64 arrays, shapes (n,) and (n, n)
        Logarithms of how many times as large as shipped they are.
    told : bool array, shape (n,)
        Which of them the samples depend on: the others are as shipped.
    own : Own
        These, as a library's file has them.
    before_s, after_s, held_out_s : float64 arrays, shape (m,)
        Predicted seconds of every sample with the shipped constants, with these, and with constants fitted without
        its size; NaN where all are of one size.
    """

    samples: tuple[Sample, ...]
    constants: tuple[Tellable, ...]
    logs: Floats
    covariance: Floats
    told: Mask
    own: Own
    before_s: Floats
    after_s: Floats
    held_out_s: Floats

    @property
    def deviations(self) -> Floats:
        """Standard deviation of each logarithm, float64 of shape (n,)."""
        found: Floats = np.sqrt(np.diag(self.covariance))
        return found


def fit_samples(machine: MachinePredictor, measured: Sequence[Sample], progress: Progress) -> Fitted:
    """Return the constants that fit best to what was measured, of which something takes time in simulation."""
    progress.start((_PASSES + 1) * len(_keys(measured)), "taking predictions apart")
    told = _told(machine, measured, (), progress)
    samples = tuple(sample for sample in measured if _fastest_s(told[sample.key]))
    if not samples:
        raise OptionError("sizes are so small that nothing is sent: measure larger ones")
    parts = [part for sample in samples for contender in told[sample.key].values() for part in contender.parts]
    constants = tellable_constants(machine.library, {name for _, powers in parts for name, _ in powers})
    if not constants:
        raise OptionError(f"what was measured depends on no constant of {machine.library} that a fit could find")
    names = [constant.name for constant in constants]
    before_s = np.array([_fastest_s(told[sample.key]) for sample in samples])
    spread = np.array([constant.spread for constant in constants])
    highest = np.array([constant.highest for constant in constants])
    rules, weights = FitRules(np.zeros(len(names)), highest, 1 / spread), np.full(len(samples), NOISE**-2)
    cuts, logs = Cuts(), np.zeros(len(names))
    for _ in range(_PASSES):
        for key in _keys(samples):
            cuts.add(key, told[key], dict(zip(names, logs.tolist(), strict=True)))
        model = cuts.model(samples, names)
        logs = fit(model, rules, weights)
        own = own_constants(constants, np.exp(logs).tolist())
        told = _told(machine, samples, own, progress)
        simulated_s = np.array([_fastest_s(told[sample.key]) for sample in samples])
        if np.abs(np.log(simulated_s / model.predicted_s(logs))).max() < _AS_TOLD:
            break
    covariance = covariance_of(model.slopes(logs), spread, model.errors(logs), NOISE)
    known = (np.abs(logs) > _MOVED) | (np.sqrt(np.diag(covariance)) < _SURER * spread)
    own = tuple(each for each, telling in zip(own, known, strict=True) if telling)
    after = {key: machine.time_s(*key, own) for key in _keys(samples)}
    held_out_s = _held_out(model, rules, weights, samples)
    progress.stop()
    after_s = np.array([after[sample.key] for sample in samples])
    return Fitted(samples, constants, logs, covariance, known, own, before_s, after_s, held_out_s)


def _held_out(model: TermModel, rules: FitRules, weights: Floats, samples: Sequence[Sample]) -> Floats:
    """Return the seconds of every sample by constants that were fitted without all of its size."""
    found = np.full(len(samples), np.nan)
    fold = {key: place % _MOST_FOLDS for place, key in enumerate(_keys(samples))}
    folds = np.array([fold[sample.key] for sample in samples], np.int64)
    if len(fold) > 1:
        for number in np.unique(folds):
            left_out = folds == number
            found[left_out] = model.predicted_s(fit(model, rules, np.where(left_out, 0.0, weights)))[left_out]
    return found


def covariance_of(slopes: Floats, spread: Floats, errors: Floats, noise: float) -> Floats:
    """Return how sure constants are of which some points were measured, float64 of shape (n, n).

    Parameters
    ----------
    slopes : float64 array, shape (m, n)
        How the logarithm of each point's time grows with that of each constant.
    spread : float64 array, shape (n,)
        Standard deviation of the constants' logarithms before.
    errors : float64 array, shape (m,)
        Logarithms of predicted over measured times. Points that no constants explain are no surer than they are off.
    noise : float
        Standard deviation of the logarithm of a measured time.
    """
    noise = max(noise, _MEDIAN_TO_DEVIATION * float(np.median(np.abs(errors))))
    found: Floats = np.asarray(np.linalg.inv(slopes.T @ slopes / noise**2 + np.diag(spread**-2.0)), np.float64)
    return found


def _told(
    machine: MachinePredictor, samples: Sequence[Sample], own: Own, progress: Progress
) -> dict[Key, dict[str, Contender]]:
    found = {}
    for key in _keys(samples):
        found[key] = machine.contenders(*key, own)
        progress.advance()
    return found


def _keys(samples: Sequence[Sample]) -> list[Key]:
    """Return what was measured, each once."""
    return list(dict.fromkeys(sample.key for sample in samples))


def _fastest_s(contenders: Mapping[str, Contender]) -> float:
    return min(contender.duration_ps for contender in contenders.values()) / PS_PER_S
