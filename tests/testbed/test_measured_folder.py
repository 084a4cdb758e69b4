"""What was measured on testbeds goes to a folder and comes back; what is wrong with one is told in one line."""

from dataclasses import replace

import pytest

from s2sim.errors import S2SimError
from s2sim.testbed.measured import (
    MeasuredSetting,
    MeasuredTestbeds,
    MeasuredTiming,
    add_row,
    read_measured,
    resolve_testbeds_folder,
)

SETTING = MeasuredSetting(
    "w4-25", 4, 4, 25e6, float("inf"), 2, "a CPU, of some kind", "6.1", "2.6", "2026-01-01", "s2sim x"
)
ALL_REDUCE = MeasuredTiming("w4-25", "all_reduce", "", 0.0, 4096, 9, 1.5e-3, 0.1 + 0.2, 2e-3, 0.0, 6200, 1e-4)
S2 = MeasuredTiming("w4-25", "s2:rows=3,cells=1.5", "ncf", 0.0, 4096, 9, 1.5e-3, 1.25e-3, 2e-3, 1e-4, 6200, 1e-4)


def test_what_is_written_is_read(tmp_path):
    folder = tmp_path / "new" / "folder"
    add_row(folder, None, SETTING)
    add_row(folder, None, replace(SETTING, name="other"))
    add_row(folder, "collectives", ALL_REDUCE)
    add_row(folder, "collectives", replace(ALL_REDUCE, setting="other"))
    add_row(folder, "reducers", S2)
    assert read_measured(folder) == MeasuredTestbeds(
        settings=(SETTING, replace(SETTING, name="other")),
        collectives=(ALL_REDUCE, replace(ALL_REDUCE, setting="other")),
        reducers=(S2,),
    )
    assert sorted(path.name for path in folder.iterdir()) == ["collectives.csv", "reducers.csv", "settings.csv"]


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("settings", "w4-25", "another", "tells of 'w4-25', which settings.csv has not"),
        ("settings", "workers", "wrokers", "has no column 'workers'"),
        ("collectives", "0.0015", "-0.0015", "row 2, column median_s: '-0.0015': input should be greater than or"),
        ("collectives", ",9,", ",0,", "column repeats"),
        ("collectives", "0.0015", "nan", "column median_s"),
    ],
)
def test_a_wrong_row_is_told_in_one_line(tmp_path, name, old, new, told):
    add_row(tmp_path, None, SETTING)
    add_row(tmp_path, "collectives", ALL_REDUCE)
    path = tmp_path / f"{name}.csv"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(S2SimError, match=told) as caught:
        read_measured(tmp_path)
    assert "\n" not in str(caught.value)


def test_two_settings_of_one_name_are_refused(tmp_path):
    add_row(tmp_path, None, SETTING)
    add_row(tmp_path, None, SETTING)
    with pytest.raises(S2SimError, match="'w4-25' twice"):
        read_measured(tmp_path)


def test_a_row_that_cannot_be_written_leaves_the_others(tmp_path, monkeypatch):
    add_row(tmp_path, None, SETTING)
    before = (tmp_path / "settings.csv").read_text()

    def full(path, data):
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(S2SimError, match=r"cannot write .*settings\.csv: No space left on device"):
        add_row(tmp_path, None, replace(SETTING, name="other"))
    assert [path.name for path in tmp_path.iterdir()] == ["settings.csv"]
    assert (tmp_path / "settings.csv").read_text() == before


def test_a_folder_without_settings_is_refused(tmp_path):
    with pytest.raises(S2SimError, match=r"cannot read .*settings\.csv: No such file"):
        read_measured(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(S2SimError, match="cannot make the folder"):
        add_row(tmp_path / "file", None, SETTING)


def test_the_shipped_folder_goes_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_testbeds_folder(None) == resolve_testbeds_folder("measured_testbed")
    (tmp_path / "measured_testbed").mkdir()
    assert resolve_testbeds_folder("measured_testbed").resolve() == tmp_path / "measured_testbed"
