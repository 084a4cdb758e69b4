"""``dev testbed compare`` and ``topology``, and ``dev calibrate --testbed``, on times that known constants make."""

import json

import pytest

from s2sim.testbed.measured import add_row
from s2sim.validation.testbed_fit import collective_s, exchange_s


@pytest.fixture
def folder(tmp_path, testbed_rows):
    """Return a folder of two settings, whose times are those that the constants above make."""
    path = tmp_path / "measured"
    for where in (testbed_rows.setting(2, 200), testbed_rows.setting(4, 1000)):
        add_row(path, None, where)
        for row in testbed_rows.simulated(where):
            add_row(path, "collectives", row)
        for what in ("dense", "union"):
            exchanged_s = exchange_s(where, what, "ncf", testbed_rows.OWN)
            # Twice as many workers as processors code half as fast.
            codec_s = 0.002 * max(1, where.workers / 2) * (what == "union")
            row = testbed_rows.timed(where, what, 2_411_200, exchanged_s + codec_s, trace="ncf", codec_s=codec_s)
            add_row(path, "reducers", row)
    return path


@pytest.mark.slow
def test_everything_of_a_folder_is_predicted(folder, s2sim):
    code, out, err = s2sim("dev", "testbed", "compare", str(folder), "--calibrate-on", "w2-200", "--json", "-")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["calibrated_on"] == "w2-200"
    assert len(found["points"]) == 16
    assert found["median_errors"]["reducers large"] < 0.25
    assert found["right_calls"] == 1
    code, out, _ = s2sim("dev", "testbed", "compare", str(folder))
    assert "10 times of 1 settings" not in out
    assert "8 times of 1 settings predicted with what w2-200 alone tells" in out
    assert "codecs are NumPy" in out


@pytest.mark.slow
def test_a_setting_is_written_as_a_topology_and_constants_as_a_library(
    folder, s2sim, tmp_path, monkeypatch, testbed_rows
):
    monkeypatch.chdir(tmp_path)
    assert s2sim("dev", "testbed", "topology", "w4-1000", "--folder", str(folder), "--out", "t.toml")[0] == 0
    code, out, _ = s2sim(
        "dev", "calibrate", "--testbed", str(folder), "--setting", "w4-1000", "--out", "gloo-here.toml"
    )
    assert code == 0
    assert "processor.message" in out
    run = ("collective", "all_reduce", "--topology", "t.toml", "--workers", "4", "--size", "4MiB", "--json", "-")
    code, out, _ = s2sim(*run, "--library", "gloo:timing=gloo-here.toml")
    assert code == 0
    truth = collective_s(testbed_rows.setting(4, 1000), "all_reduce", 1 << 22, testbed_rows.OWN)
    assert json.loads(out)["time_s"] == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("dev", "calibrate", "--setting", "w4"), "--setting w4 is one of a folder: give --testbed DIR"),
        (("dev", "calibrate", "--testbed", "x", "--topology", "dgx-h100"), "give --setting alone beside it"),
        (("dev", "testbed", "compare", "--calibrate-on", "w5"), "no setting 'w5' was measured"),
        (("dev", "testbed", "topology", "w5"), "no setting 'w5' was measured"),
    ],
)
def test_refusals(arguments, part, fails):
    assert part in fails(*arguments)
