"""``s2sim testbed compare`` and ``topology``, and ``s2sim calibrate --testbed``, on times that known constants make."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from s2sim.study.testbed.predict import collective_s
from s2sim.study.testbed.reducers import exchange_s
from s2sim.testbed.measured import Setting, Timed
from s2sim.testbed.measured_folder import add_setting, add_timed

OWN = (
    ("call.latency", "100us"),
    ("network.any.latency", "60us"),
    ("network.any.share", 0.95),
    ("processor.message", "60us"),
    ("processor.overlap", 2.5),
    ("processor.packet", "20us"),
    ("processor.rate", "3GB/s"),
)
SIZES = (4096, 1 << 18, 1 << 22)


def setting(workers, rate_Mbps, nodes=None, uplink_Bps=math.inf):
    return Setting(
        name=f"w{workers}-{rate_Mbps}",
        workers=workers,
        nodes=nodes or workers,
        rate_Bps=rate_Mbps * 125e3,
        uplink_Bps=uplink_Bps,
        processors=2,
        machine="a machine",
        kernel="Linux",
        torch="2",
        date="2026-01-01",
        command="s2sim testbed run",
    )


def timed(where, what, size_bytes, seconds, **more):
    row = Timed(where.name, what, "", 0.0, size_bytes, 9, seconds, seconds * 0.9, seconds * 1.1, 0.0, size_bytes, 0.0)
    return replace(row, **more)


def simulated(where):
    return [
        timed(where, what, size, collective_s(where, what, size, OWN))
        for what in ("all_reduce", "all_to_all")
        for size in SIZES
    ]


@pytest.fixture
def folder(tmp_path):
    """Return a folder of two settings, whose times are those that the constants above make."""
    path = tmp_path / "measured"
    for where in (setting(2, 200), setting(4, 1000)):
        add_setting(path, where)
        for row in simulated(where):
            add_timed(path, "collectives", row)
        for what in ("dense", "union"):
            exchanged_s = exchange_s(where, what, "ncf", OWN)
            # Twice as many workers as processors code half as fast.
            codec_s = 0.002 * max(1, where.workers / 2) * (what == "union")
            row = timed(where, what, 2_411_200, exchanged_s + codec_s, trace="ncf", codec_s=codec_s)
            add_timed(path, "reducers", row)
    return path


def test_everything_of_a_folder_is_predicted(folder, s2sim):
    code, out, err = s2sim("testbed", "compare", str(folder), "--calibrate-on", "w2-200", "--json", "-")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["calibrated_on"] == "w2-200"
    assert len(found["points"]) == 16
    assert found["median_errors"]["reducers large"] < 0.25
    assert found["right_calls"] == 1
    code, out, _ = s2sim("testbed", "compare", str(folder))
    assert "10 times of 1 settings" not in out
    assert "8 times of 1 settings predicted with what w2-200 alone tells" in out
    assert "codecs are NumPy" in out


def test_a_setting_is_written_as_a_topology_and_constants_as_a_library(folder, s2sim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert s2sim("testbed", "topology", "w4-1000", "--folder", str(folder), "--out", "t.toml")[0] == 0
    code, out, _ = s2sim("calibrate", "--testbed", str(folder), "--setting", "w4-1000", "--out", "gloo-here.toml")
    assert code == 0
    assert "processor.message" in out
    run = ("collective", "all_reduce", "--topology", "t.toml", "--workers", "4", "--size", "4MiB", "--json", "-")
    code, out, _ = s2sim(*run, "--library", "gloo:timing=gloo-here.toml")
    assert code == 0
    truth = collective_s(setting(4, 1000), "all_reduce", 1 << 22, OWN)
    assert json.loads(out)["time_s"] == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("calibrate", "--setting", "w4"), "--setting w4 is one of a folder: give --testbed DIR"),
        (("calibrate", "--testbed", "x", "--topology", "dgx-h100"), "give --setting alone beside it"),
        (("testbed", "compare", "--calibrate-on", "w5"), "no setting 'w5' was measured"),
        (("testbed", "topology", "w5"), "no setting 'w5' was measured"),
    ],
)
def test_refusals(arguments, part, fails):
    assert part in fails(*arguments)
