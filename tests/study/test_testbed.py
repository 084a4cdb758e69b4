"""Testbeds predicted: the cluster that a setting is, constants recovered, calls and break-even rates."""

import math
import tomllib
from dataclasses import replace

import pytest

from s2sim.errors import S2SimError
from s2sim.libraries.lowering import choose_library
from s2sim.topology.read_file import load_shape
from s2sim.validation.testbed import ComparedTime, break_even_rates, win_predictions
from s2sim.validation.testbed_fit import (
    collective_s,
    fit_setting,
    profile_toml,
    setting_shape,
    setting_timer,
    setting_toml,
)

from .testbed_rows import OWN, SIZES, setting, simulated


@pytest.mark.parametrize("where", [setting(8, 1000), setting(8, 1000, nodes=2, uplink_Bps=62.5e6)])
def test_a_setting_is_the_same_cluster_in_memory_and_in_a_file(where, tmp_path):
    path = tmp_path / "testbed.toml"
    path.write_text(setting_toml(where))
    shape, read = setting_shape(where), load_shape(str(path))
    assert replace(shape, file="", quantities=()) == replace(read, file="", quantities=())
    assert (shape.processors, tomllib.loads(path.read_text())["machine"]["processors"]) == (2, 2)


def test_workers_of_a_node_share_its_uplink():
    """Four ranks of a node pass a ring's sums to the other node over one link, half as fast as an interface."""
    flat, joined = setting(8, 100), setting(8, 100, nodes=2, uplink_Bps=6.25e6)
    size = 1 << 22
    slow, quick = (collective_s(where, "all_reduce", size, OWN) for where in (joined, flat))
    assert slow == pytest.approx(2 * 7 * size / 8 / 0.95 / 6.25e6, rel=0.05)
    assert quick == pytest.approx(slow / 2, rel=0.05)


@pytest.mark.slow
def test_constants_come_back_from_times_that_they_were_made_of():
    """Of what is told well within a few per cent; and other settings are predicted as if all were known."""
    seen = setting(4, 200)
    fit = fit_setting(seen, simulated(seen))
    assert fit.after < 0.02 < fit.before
    found = {constant.name: constant.fitted for constant in fit.constants}
    assert found["network.any.share"] == pytest.approx(0.95, rel=0.02)
    for other in (setting(8, 200), setting(4, 1000)):
        for what in ("all_reduce", "all_gather"):
            for size in SIZES:
                truth = collective_s(other, what, size, OWN)
                assert collective_s(other, what, size, fit.own) == pytest.approx(truth, rel=0.25)
    with pytest.raises(S2SimError, match="no collective was measured of w8-200"):
        fit_setting(setting(8, 200), simulated(seen))


@pytest.mark.slow
def test_a_file_of_constants_is_a_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = setting(4, 200)
    fit = fit_setting(seen, simulated(seen)[:4])
    (tmp_path / "here.toml").write_text(profile_toml(fit))
    library = choose_library("gloo:timing=here.toml")
    assert sorted(library.profile.own) == sorted(fit.own)
    assert setting_timer(seen, fit.own).profile.own == fit.own
    with pytest.raises(S2SimError, match="was fitted for gloo: give --library gloo"):
        choose_library("mpi:timing=here.toml")


def point(rate_Mbps, what, measured_s, predicted_s, *, seen=False, undecided_below=0.0):
    where = f"w4-{rate_Mbps}"
    more = ("", 0.0, 1 << 20, measured_s, measured_s, measured_s, predicted_s, seen, undecided_below)
    return ComparedTime("reducers", where, 4, 4, rate_Mbps * 125e3, math.inf, what, *more)


def test_who_wins_and_where_that_turns():
    """Dense takes 100 ms at 100 Mbps and 10 at 1 Gbps, the reducer 30 always: it turns at 333 Mbps."""
    points = [
        *(point(rate, "dense", 10 / rate, 10 / rate, seen=rate == 100) for rate in (100, 1000)),
        *(point(rate, "union", 0.03, 0.02, seen=rate == 100) for rate in (1000, 100)),
        *(point(rate, "topk", 0.001, 0.05) for rate in (100, 1000)),
    ]
    calls = win_predictions(points)
    assert [(call.what, call.setting, call.right) for call in calls] == [
        ("union", "w4-1000", True),
        ("topk", "w4-100", True),
        ("topk", "w4-1000", False),
    ]
    assert all(call.decided for call in calls)
    (rate,) = break_even_rates(points)
    assert rate.what == "union"
    assert rate.measured_Bps == pytest.approx(333.3 * 125e3, rel=1e-3)
    assert rate.predicted_Bps == pytest.approx(500 * 125e3, rel=1e-3)
    assert rate.factor == pytest.approx(1.5, rel=1e-3)


@pytest.mark.parametrize(("predicted_s", "decided"), [(0.012, True), (0.0108, False), (0.0093, False), (0.008, True)])
def test_a_gain_that_the_prediction_may_be_off_by_is_undecided(predicted_s, decided):
    (call,) = win_predictions(
        [point(100, "dense", 0.01, 0.01), point(100, "fp16", 1, predicted_s, undecided_below=0.1)]
    )
    assert call.decided is decided
