import re
from itertools import pairwise
from pathlib import Path
from string import Formatter
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

import s2sim
from s2sim.files import read_table
from s2sim.report.grid import _FORMS, Column, Grid, columns_of, fold_grid, minimum_width, split_grid, tabulate, width_of

texts = st.text("abcdefghij ", min_size=1, max_size=12)


@st.composite
def grids(draw):
    columns = draw(st.integers(2, 8))
    rows = draw(st.lists(st.tuples(*[texts] * columns), min_size=1, max_size=4))
    return Grid(draw(texts), tuple(Column(draw(texts)) for _ in range(columns)), tuple(rows))


def test_width_is_that_of_the_longest_line_of_each_column():
    grid = Grid("t", (Column("ab\nabcd"), Column("x")), (("a", "abcdef"),))
    assert grid.widths() == [4, 6]
    assert width_of(grid, 2) == 12


@given(grids(), st.integers(1, 80), st.integers(1, 2))
def test_split_keeps_every_column_once_and_fits(grid, width, gap):
    parts = split_grid(grid, width, gap)
    assert [column for part in parts for column in part.columns[1:]] == list(grid.columns[1:])
    for number, row in enumerate(grid.rows):
        assert [cell for part in parts for cell in part.rows[number][1:]] == list(row[1:])
    for part in parts:
        assert part.columns[0] == grid.columns[0]
        assert width_of(part, gap) <= width or len(part.columns) == 2


@given(grids(), st.integers(1, 80))
def test_split_opens_a_part_only_where_the_next_column_does_not_fit(grid, width):
    parts = split_grid(grid, width, 2)
    for part, following in pairwise(parts):
        rows = tuple((*left, right[1]) for left, right in zip(part.rows, following.rows, strict=True))
        wider = Grid("", (*part.columns, following.columns[1]), rows)
        assert width_of(wider, 2) > width


def test_a_table_too_wide_for_its_terminal_goes_on_in_further_rows():
    columns = (Column("reducer", numeric=False), Column("time"), Column("why", numeric=False))
    rows = (("s2:rows=3,cells=2,layers=all,bitmap=byte", "1.5 ms", "as fast " * 12), ("dense", "2 ms", "alone"))
    folded = fold_grid(Grid("reducers", columns, rows, strong=frozenset({0})), 60)
    assert minimum_width(folded) <= 60
    assert folded.rows[0][1] == "1.5 ms"
    assert len(folded.strong) == len(folded.rows) - 1 > 1
    assert " ".join(row[2] for row in folded.rows[:-1]).split() == ["as", "fast"] * 12
    assert fold_grid(folded, 60) is folded


SOURCE = "".join(path.read_text("utf-8") for path in Path(s2sim.__file__).parent.rglob("*.py"))
LISTED = [row for _, row in read_table(Path(s2sim.__file__).with_name("report") / "columns.csv", ["table", "cell"])]


def test_every_list_of_columns_is_of_a_table():
    assert {row["table"] for row in LISTED} == set(re.findall(r'columns_of\(\s*"([^"]+)"', SOURCE)) | {"answer"}


def test_every_form_is_a_known_one_or_that_of_a_call_or_a_format():
    forms = {spec.removesuffix("?") for row in LISTED for *_, spec, _ in Formatter().parse(row["cell"]) if spec}
    assert forms >= _FORMS.keys()
    formats = {form for form in forms if re.fullmatch(r"\+?(\.\d+)?[fg%]?", form)}
    assert [form for form in forms - _FORMS.keys() - formats if not re.search(rf"\b{form}=", SOURCE)] == []


def test_listed_columns_have_titles_of_their_own_and_dashes_where_asked():
    row = SimpleNamespace(name="x" * 40, predicted=1, curves=2, small=None)
    row.large = SimpleNamespace(median=0.123, p90=1.0, bias=0.5, off_by_half=0)
    grid = tabulate("t", [row], *columns_of("groups of curves", {"what": "source"}, where={"over\n0.5": False}))
    assert grid.columns[:2] == (Column("source", numeric=False), Column("pre-\ndicted"))
    assert grid.rows == (("x" * 38, "1/2", "0.12", "1.00", "+0.50", "-", "-", "-"),)
