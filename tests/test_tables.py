"""Tables that leave the tool."""

import csv
import io

import pytest

from s2sim.errors import OptionError
from s2sim.tables import table_of

ROWS = [
    {"reducer": "union", "workers": 8, "total_s": 0.5, "exact": True},
    {"reducer": "a_b&c", "workers": 8, "total_s": None, "exact": False},
    {"reducer": "union", "workers": 16, "total_s": 0.25, "exact": True},
]
TABLE = table_of(ROWS)


def test_csv_can_be_read_back():
    back = list(csv.DictReader(io.StringIO(TABLE.to_csv())))
    assert [row["reducer"] for row in back] == ["union", "a_b&c", "union"]
    assert [row["total_s"] for row in back] == ["0.5", "", "0.25"]


def test_latex_escapes_names_and_aligns_numbers():
    text = TABLE.to_latex()
    assert text.startswith("\\begin{tabular}{lrrr}\n\\toprule\n")
    assert r"a\_b\&c & 8 & -- & False \\" in text


def test_rows_are_selected_sorted_and_pivoted():
    assert len(TABLE.select("total_s < 0.4").rows) == 1
    assert [row["total_s"] for row in TABLE.select(sort="total_s").rows] == [0.25, 0.5, None]
    assert [row["total_s"] for row in TABLE.select(sort="-total_s").rows] == [0.5, 0.25, None]
    pivot = TABLE.pivot("workers", "reducer", "total_s")
    assert pivot.rows == ({"workers": 8, "union": 0.5, "a_b&c": None}, {"workers": 16, "union": 0.25, "a_b&c": None})


def test_quantities_are_compared_and_sorted_as_numbers():
    values = ("9Gbps", "b", 2, "10000Mbps", "1GiB", None, "8", "10Gbps", 10, "a")
    table = table_of({"x": value} for value in values)
    ordered = [row["x"] for row in table.select(sort="x").rows]
    assert ordered == [2, 10, "9Gbps", "10000Mbps", "10Gbps", "1GiB", "8", "a", "b", None]
    assert [row["x"] for row in table.select(sort="-x").rows][:2] == ["b", "a"]
    assert [row["x"] for row in table.select("x == '10Gbps'").rows] == ["10000Mbps", "10Gbps"]
    assert [row["x"] for row in table.select("x in ['1e4Mbps', 'a']").rows] == ["10000Mbps", "10Gbps", "a"]
    assert len(table.select("'10Gbps' != x").rows) == 8


def test_two_rows_in_one_place_and_unknown_columns_are_refused():
    with pytest.raises(OptionError, match="several rows"):
        TABLE.pivot("exact", "reducer", "workers")
    with pytest.raises(OptionError, match="did you mean 'workers'"):
        TABLE.select(sort="worker")
    with pytest.raises(OptionError, match="no name here"):
        TABLE.select("worker > 1")


def test_frames_have_the_same_columns():
    polars = pytest.importorskip("polars")
    frame = TABLE.to_frame()
    assert frame.columns == list(TABLE.columns)
    assert polars.read_parquet(io.BytesIO(TABLE.to_parquet())).equals(frame)
