"""Sealed predictions: written before tables are there, compared when they are, refused when they were changed."""

import json
import math
from dataclasses import asdict, replace

import pytest

from s2sim.cli.main import main
from s2sim.errors import S2SimError
from s2sim.validation.curve import read_folder
from s2sim.validation.curve_files import SIZES_BYTES, read_sealed, score_sealed, seal
from s2sim.validation.validate_curves import CurvePredictor

from .validation_folder import row, write_folder

MIB = 2**20


@pytest.fixture
def sealed(tmp_path):
    """Two set-ups without a table, one of which nothing is known of, and their sealed predictions."""
    folder = write_folder(tmp_path / "curves", (row(id="a"), ()), (row(id="b", gpu_model="abacus"), ()))
    for table in ("a.csv", "b.csv"):
        (folder / table).unlink()
    file = tmp_path / "sealed.json"
    lines = seal(str(folder), file)
    assert "1 of 2 set-ups are predicted" in lines[0]
    assert "b: " in lines[2]
    return folder, file


def measure(folder, name, *points):
    text = "".join(f"{size},{time_us}\n" for size, time_us in points)
    (folder / f"{name}.csv").write_text(f"size_bytes,time_us\n{text}")


def test_what_is_sealed_is_what_is_predicted(sealed):
    folder, file = sealed
    found = read_sealed(file)
    machine = read_folder(folder)[0].machine
    first = found.curves[0]
    assert first.predicted_s == pytest.approx(CurvePredictor().times_s(machine, SIZES_BYTES))
    assert all(
        low <= time <= high for low, time, high in zip(first.low_s, first.predicted_s, first.high_s, strict=True)
    )
    assert found.digest() == found.sha256


def test_measured_since_they_are_compared_with_what_was_sealed(sealed):
    folder, file = sealed
    times_us = dict(zip(SIZES_BYTES, (time_s * 1e6 for time_s in read_sealed(file).curves[0].predicted_s), strict=True))
    measure(folder, "a", (MIB, 2 * times_us[MIB]), (1024, times_us[1024]), (2**40, 1e9))
    result = score_sealed(str(folder), file)
    curve, unknown = result.curves
    assert curve.signed_log_error_large == pytest.approx(-math.log(2))
    assert curve.signed_log_error_small == pytest.approx(0, abs=1e-9)
    assert curve.band_holds_share in (0.5, 1.0)
    assert "b.csv" in unknown.reason
    measure(folder, "b", (MIB, 1.0))
    assert "abacus" in score_sealed(str(folder), file).curves[1].reason
    assert f"SHA-256 {read_sealed(file).sha256}" in result.notes[0]
    assert result.notes[1] == "1 point left out: smaller or larger than the sizes that were sealed"


def test_large_messages_are_sealed_and_files_of_fewer_sizes_and_columns_still_hold(sealed):
    folder, file = sealed
    assert SIZES_BYTES[-1] > 2**34
    found = read_sealed(file)
    first = found.curves[0]
    times_us = [1e6 * time_s for time_s in first.predicted_s]
    measure(folder, "a", (2**34, times_us[31]), (2**30, times_us[27]))
    (large,) = [curve for curve in score_sealed(str(folder), file).curves if curve.id == "a"]
    assert [point.size_bytes for point in large.points] == [2**30, 2**34]
    assert large.median_abs_log_error_large == pytest.approx(0, abs=1e-9)
    shorter = {name: getattr(first, name)[:28] for name in ("predicted_s", "low_s", "high_s")}
    set_up = {name: value for name, value in first.set_up.items() if name != "gdr"}
    old = replace(found, curves=(replace(first, set_up=set_up, **shorter), *found.curves[1:]))
    file.write_text(json.dumps(asdict(replace(old, sha256=old.digest()))))
    result = score_sealed(str(folder), file)
    assert [point.size_bytes for point in result.curves[0].points] == [2**30]
    assert "1 point left out" in result.notes[1]


def test_between_sealed_sizes_a_time_is_on_the_line(sealed):
    folder, file = sealed
    times_s = dict(zip(SIZES_BYTES, read_sealed(file).curves[0].predicted_s, strict=True))
    size = round(MIB * 1.1)
    measure(folder, "a", (size, 1.0))
    (point,) = score_sealed(str(folder), file).curves[0].points
    slope = math.log(times_s[2 * MIB] / times_s[MIB]) / math.log(2)
    assert point.predicted_s == pytest.approx(times_s[MIB] * (size / MIB) ** slope)


def test_a_file_or_a_row_that_was_changed_is_refused(sealed):
    folder, file = sealed
    measure(folder, "a", (MIB, 100.0))
    index = folder / "index.csv"
    header, first, *others = index.read_text().splitlines()
    cells = dict(zip(header.split(","), first.split(","), strict=True)) | {"nic_rate_gbps": "400"}
    index.write_text("\n".join([header, ",".join(cells.values()), *others]) + "\n")
    assert "changed after it was sealed: nic_rate_gbps" in score_sealed(str(folder), file).curves[0].reason
    text = json.loads(file.read_text())
    text["curves"][0]["predicted_s"][0] *= 1.01
    file.write_text(json.dumps(text))
    with pytest.raises(S2SimError, match="changed after it was sealed"):
        read_sealed(file)
    file.write_text("{}")
    with pytest.raises(S2SimError, match="no file of sealed predictions"):
        read_sealed(file)


def test_the_command_seals_and_then_compares(sealed, capsys):
    folder, file = sealed
    before = file.read_text()
    measure(folder, "a", (MIB, 100.0))
    assert main(["dev", "validate", str(folder), "--sealed", str(file)]) == 0
    assert "SHA-256" in capsys.readouterr().out
    assert file.read_text() == before
    other = file.with_name("other.json")
    assert main(["dev", "validate", str(folder), "--sealed", str(other), "-q"]) == 0
    assert read_sealed(other).curves == read_sealed(file).curves
