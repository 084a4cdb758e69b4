"""Terms that were taken at several values of constants, of times that wait for the slowest of two links."""

import numpy as np
import pytest

from s2sim.uncertainty.constant_fit import CandidateSchedule
from s2sim.validation.calibrate_runs import MeasuredRun, Sample, ScheduleLinearisations

SAMPLE = Sample("a.log", 1, MeasuredRun("all_reduce", 2, False), 1024, 1e-6)
NAMES = ("launch", "near", "far")


def told(launch, near, far):
    """Return two schedules where constants are so many times as large: one waits for the slower of two links."""
    first, second = (1e6 / near, (("near", -1),)), (2e6 / far, (("far", -1),))
    start = (3e5 * launch, (("launch", 1),))
    return {"both": CandidateSchedule((start, max(first, second))), "one": CandidateSchedule((start, (1.5e6, ())))}


def time_s(launch, near, far):
    return min(contender.duration_ps for contender in told(launch, near, far).values()) / 1e12


@pytest.fixture
def model():
    cuts = ScheduleLinearisations()
    for times in ((1, 1, 1), (1, 1, 4), (2, 0.5, 4)):
        cuts.add(SAMPLE.key, told(*times), dict(zip(NAMES, np.log(times).tolist(), strict=True)))
    return cuts.model([SAMPLE, SAMPLE], NAMES)


def test_times_are_exact_where_both_links_have_been_busiest(model):
    for times in ((1, 1, 1), (1, 1, 4), (2, 0.5, 4), (1, 1, 2.1), (3, 2, 3), (1, 0.9, 1.5)):
        assert model.predicted_s(np.log(times)) == pytest.approx([time_s(*times)] * 2, rel=1e-12)


def test_a_schedule_is_as_slow_as_its_slowest_cut_and_a_point_as_fast_as_its_fastest_schedule(model):
    # Of the link nearby alone it would be 0.3 + 0.25 us.
    assert model.predicted_s(np.log([1, 4, 2])) == pytest.approx([1.3e-6] * 2)
    assert model.predicted_s(np.log([1, 0.1, 4])) == pytest.approx([1.8e-6] * 2)


def test_slopes_are_those_of_what_is_busiest(model):
    logs = np.log([1, 1.2, 2.6])
    slopes = model.slopes(logs)
    for column in range(3):
        step = np.eye(3)[column] * 1e-6
        found = np.log(model.predicted_s(logs + step) / model.predicted_s(logs - step)) / 2e-6
        assert slopes[:, column] == pytest.approx(found, abs=1e-6)
