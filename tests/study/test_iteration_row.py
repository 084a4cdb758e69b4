"""Where the time of an iteration went, in a row and its JSON."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import s2sim
from s2sim.experiment.row_parts import IterationRow
from s2sim.simulation.accounting import IterationParts
from s2sim.units import PS_PER_S

EXPOSED = ("forward", "backward", "codec", "exposed_communication", "waiting", "optimizer", "host")
HARD = {
    "lower_bound": 0.0,
    "waiting_mean": 0.0,
    "spread_s": 0.0,
    "samples_per_s": None,
    "iterations": 3,
    "discipline": "ddp:bucket=25MiB",
    "buckets": 4,
    "streams": 1,
}
part = st.integers(0, 100 * PS_PER_S)


def iteration_row(parts):
    return IterationRow(**{each.name: getattr(parts, each.name) / PS_PER_S for each in fields(parts)}, **HARD)


@given(st.lists(part, min_size=8, max_size=8))
def test_exposed_parts_in_json_are_the_iteration_to_the_picosecond(ps):
    parts = IterationParts(*ps)
    row = iteration_row(parts)
    assert sum(getattr(row, name) for name in EXPOSED) == pytest.approx(parts.iteration / PS_PER_S, rel=0, abs=1e-12)
    assert row.total_s == pytest.approx(parts.iteration / PS_PER_S, rel=0, abs=1e-12)


def test_hidden_communication_is_a_share_of_all():
    parts = IterationParts(PS_PER_S // 10, PS_PER_S // 5, 0, PS_PER_S // 5, 0, 0, 3 * PS_PER_S // 5)
    assert iteration_row(parts).hidden_share == pytest.approx(0.75)


def test_what_is_not_communicated_hides_wholly():
    assert iteration_row(IterationParts(1, 2, 0, 0, 0, 1, 0)).hidden_share == 1.0


def test_a_row_tells_the_iteration_in_json():
    small = "synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400"
    result = s2sim.run("fat-tree", workers=2, trace=small, reducers=["union"], compute="5ms", break_even=False)
    parts = IterationParts(1_600_000_000, 3_400_000_000, 20_000_000, 4_000_001, 7, 0, 55)
    found = iteration_row(parts)
    row = replace(result.rows[0], iteration=found)
    row = replace(row, time_s=row.time_s._replace(iteration=parts.iteration / PS_PER_S))
    value = row.to_json()
    assert value["time_s"]["iteration"] == value["iteration_s"] == row.time_s.iteration == parts.iteration / PS_PER_S
    assert sum(value["iteration"][name] for name in EXPOSED) == pytest.approx(row.iteration_s, rel=0, abs=1e-12)
    assert value["iteration"]["hidden_communication"] == 55 / PS_PER_S
    assert value["iteration"]["discipline"] == "ddp:bucket=25MiB"
