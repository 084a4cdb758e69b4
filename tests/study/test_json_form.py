"""Rows and results as JSON: a new figure is one field."""

from __future__ import annotations

import dataclasses
import json
from typing import ClassVar, NamedTuple

import numpy as np

import s2sim
from s2sim.experiment.json_form import LEFT_OUT, JsonForm, json_value
from s2sim.experiment.rows import Row

SMALL = "synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400"


@dataclasses.dataclass(frozen=True, slots=True)
class RowWithJoules(Row):
    joules: float = 0.0


def test_a_new_figure_of_a_row_is_one_field():
    result = s2sim.run("fat-tree", workers=2, trace=SMALL, reducers=["union"], break_even=False)
    rows = tuple(
        RowWithJoules(**{field.name: getattr(row, field.name) for field in dataclasses.fields(row)}, joules=2.5)
        for row in result.rows
    )
    value = json.loads(json.dumps(dataclasses.replace(result, results=rows).to_json()))
    assert [row.pop("joules") for row in value["results"]] == [2.5, 2.5]
    assert value == json.loads(json.dumps(result.to_json()))


def test_keys_nest_and_fields_may_be_left_out():
    @dataclasses.dataclass
    class Inner:
        values: np.ndarray

    class Times(NamedTuple):
        first: float
        last: float

    @dataclasses.dataclass
    class Outer(JsonForm):
        more_json: ClassVar[tuple[str, ...]] = ("sum", "none?")
        time_s: Times
        hidden: int = dataclasses.field(metadata=LEFT_OUT)
        inner: tuple[Inner, ...] = ()
        none: None = None

        @property
        def sum(self):
            return self.time_s.first + self.time_s.last

    value = Outer(Times(1.0, 2.0), 3, (Inner(np.arange(2)),))
    assert json_value({"it": value}) == {
        "it": {"time_s": {"first": 1.0, "last": 2.0}, "inner": [{"values": [0, 1]}], "sum": 3.0}
    }
