"""Fits of constants to points that are told by them: recovered where they are known, and blind to what is left out."""

from dataclasses import replace

import numpy as np
import pytest

from s2sim.uncertainty.constant_fit import (
    CalibrationPoint,
    CandidateSchedule,
    FitRules,
    TermModel,
    each_at_prior,
    fit,
    fit_rules,
    fittable_library_constants,
    leave_one_out,
    point_weights,
)
from s2sim.validation.curve import read_folder, resolve_curves_folder
from s2sim.validation.validate_curves import fit_constants, fitted_parameters, leave_one_out_errors, predict_curves

US = 10**6
NAMES = ("latency", "share")
NO_PULL = FitRules(prior=np.zeros(2), highest=np.array([np.inf, 0.0]), pull=np.full(2, 1e-6))


def point(source, size_bytes, times=(1.0, 1.0), curve="c"):
    """Return a point that takes 5 us and a picosecond a byte, measured with other constants; or always 1 ms."""
    parts = ((5 * US, (("latency", 1),)), (size_bytes, (("share", -1),)))
    measured_ps = 5 * US * times[0] + size_bytes / times[1]
    large = size_bytes >= 2**20
    contenders = (CandidateSchedule(parts), CandidateSchedule(((1000 * US, ()),)))
    return CalibrationPoint(f"{source} {curve}", source, size_bytes, measured_ps / 1e12, large, contenders)


def points(source, times, curve="c"):
    return [point(source, 4**power, times, curve) for power in range(3, 15)]


def test_constants_are_recovered():
    model = TermModel([*points("a", (2.0, 0.5)), *points("b", (2.0, 0.5))], NAMES)
    found = np.exp(fit(model, NO_PULL, point_weights(model)))
    assert found == pytest.approx([2.0, 0.5], rel=1e-4)
    assert model.errors(np.log(found)) == pytest.approx(np.zeros(24), abs=1e-3)
    assert model.predicted_s(np.zeros(2))[0] == pytest.approx((5 * US + 64) / 1e12)


def test_the_fastest_contender_counts():
    model = TermModel([point("a", 2**40)], NAMES)
    assert model.predicted_s(np.zeros(2)) == pytest.approx([1e-3])
    assert model.slopes(np.zeros(2)) == pytest.approx(np.zeros((1, 2)))


def test_slopes_are_those_of_the_predictions():
    model = TermModel(points("a", (1.0, 1.0)), NAMES)
    logs, small = np.array([0.3, -0.2]), 1e-6
    for number in range(2):
        step = np.eye(2)[number] * small
        rise = (model.errors(logs + step) - model.errors(logs - step)) / (2 * small)
        assert model.slopes(logs)[:, number] == pytest.approx(rise, abs=1e-6)


def test_a_source_has_one_voice_however_many_sizes_it_has():
    many = [point("b", 2**power + offset) for power in range(4, 28, 4) for offset in range(3)]
    model = TermModel([*points("a", (1, 1)), *many], NAMES)
    weights = point_weights(model)
    assert weights[model.of_source("a")].sum() == pytest.approx(weights[model.of_source("b")].sum())
    twice = TermModel([*points("a", (1, 1)), *points("a", (1, 1), "d"), *many], NAMES)
    assert point_weights(twice)[twice.of_source("a")].sum() == pytest.approx(2**0.5)


def test_what_is_left_out_tells_nothing():
    apart = TermModel([*points("a", (2.0, 0.5)), *points("b", (1.0, 0.9))], NAMES)
    without = leave_one_out(apart, NO_PULL, point_weights(apart), ["a", "b"])
    assert np.exp(without["a"]) == pytest.approx([1.0, 0.9], rel=1e-4)
    assert np.exp(without["b"]) == pytest.approx([2.0, 0.5], rel=1e-4)


def test_what_nothing_tells_goes_to_its_prior():
    rules = FitRules(prior=np.array([np.log(3), np.log(0.7)]), highest=np.array([np.inf, 0.0]), pull=np.ones(2))
    model = TermModel([point("a", 2**40)], NAMES)
    assert np.exp(fit(model, rules, np.zeros(1))) == pytest.approx([3, 0.7])


def test_what_one_source_alone_tells_is_at_its_prior_without_it():
    """Small sizes of one source tell the latency, and large ones of the other the share."""
    small = [point("a", 4**power, (2.0, 1.0)) for power in range(2, 5)]
    large = [point("b", 2**29, (1.0, 0.5))]
    model = TermModel([*small, *large], NAMES)
    rules = FitRules(prior=np.log([1.5, 0.8]), highest=np.array([np.inf, 0.0]), pull=np.full(2, 0.1))
    without = leave_one_out(model, rules, point_weights(model), ["a", "b"])
    assert np.exp(without["a"][0]) == pytest.approx(1.5, rel=0.03)
    assert np.exp(without["b"][1]) == pytest.approx(0.8, rel=0.01)


def test_constants_and_priors_are_those_of_the_files():
    told = {f"nccl:{name}" for name in ("launch.collective", "network.slingshot.share", "protocol.LL.share", "no.such")}
    found = {each.name: each for each in fittable_library_constants(told)}
    assert "protocol.LL.share" not in found
    launch, share = found["launch.collective"], found["network.slingshot.share"]
    assert (launch.unit, launch.prior, launch.is_share) == ("s", pytest.approx(6.6e-6), False)
    assert share.is_share
    assert fit_rules([launch]).prior == pytest.approx(np.log(6.6e-6 / launch.value))
    assert fit_rules([share]).highest == pytest.approx(-np.log(share.value))


@pytest.fixture(scope="module")
def superbench():
    """The fits to two sources of the public curves that take no time."""
    wanted = ("superbench-a100", "dgx-h100", "snellius")
    curves = [
        c for c in read_folder(resolve_curves_folder(None)) if c.machine.source in wanted and c.machine.nodes == 1
    ]
    found = list(predict_curves(curves, tell=True))
    return [errors for errors, _ in found], fit_constants([each for _, told in found for each in told], wanted)


@pytest.mark.slow
def test_points_of_curves_are_told_as_they_are_predicted(superbench):
    curves, fits = superbench
    predicted = [point.predicted_s for curve in curves for point in curve.points]
    assert fits.model.predicted_s(np.zeros(len(fits.constants))) == pytest.approx(predicted, rel=1e-9)
    assert len(predicted) > 100


def test_parameters_say_who_tells_them(superbench):
    _, fits = superbench
    found = {each.name: each for each in fitted_parameters(fits)}
    assert set(found["launch.collective"].fitted_on) == {"superbench-a100", "snellius"}
    launch = found["launch.gpu"]
    assert set(launch.fitted_on) == {"superbench-a100", "snellius"}
    # With one process a GPU nobody waits for the others: without the one source the other tells it.
    assert set(launch.drift.by_source) == set(launch.fitted_on)
    assert all(each.drift.low <= each.drift.high for each in found.values() if each.fitted_on)


def test_a_constant_at_its_prior_moves_the_others_as_a_fit_would(superbench):
    """To first order of what a fit with a pull that nothing moves finds."""
    _, fits = superbench
    model, rules, weights = fits.model, fits.rules, point_weights(fits.model)
    for number, moved in enumerate(each_at_prior(model, rules, weights, fits.whole)):
        held = replace(rules, pull=np.where(np.arange(len(rules.pull)) == number, 1e3, rules.pull))
        refitted = fit(model, held, weights)
        assert moved[number] == pytest.approx(rules.prior[number])
        errors = [float(weights @ np.abs(model.errors(logs))) / weights.sum() for logs in (moved, refitted)]
        assert errors[0] == pytest.approx(errors[1], abs=0.01)
    found = {each.name: each for each in fitted_parameters(fits)}
    assert found["launch.gpu"].worth > 0.02


def test_left_out_errors_are_worse_than_fitted_ones(superbench):
    curves, fits = superbench
    left = leave_one_out_errors(fits, curves)
    assert (left.overall.curves, left.overall.large.one_voice.sources) == (len(curves), 3)
    assert {(each.kind, each.group.name) for each in left.by_class} >= {("collective", "all_reduce")}
    fitted = np.abs(fits.model.errors(fits.whole))
    errors = [np.log(p.predicted_s / p.measured_s) for each in left.curves for p in each.points if p.predicted_s]
    assert np.median(np.abs(errors)) > np.median(fitted)
