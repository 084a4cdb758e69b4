"""``all``: every reducer there is on one trace and cluster, and what becomes of those that refuse."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

import s2sim
from s2sim.cli.main import main
from s2sim.errors import OptionError, S2SimError, UnknownNameError
from s2sim.reducers import registry
from s2sim.reducers.rank import Traits
from s2sim.reducers.registry import REDUCERS, reducer_names
from s2sim.reducers.systems.dense import Dense

SMALL = "synthetic:rows=200,width=4,density=0.1,overlap=0.5,dense=300,steps=2"


@dataclass(slots=True)
class Fussy(Dense):
    """Runs on 2 and 3 ranks in its first step."""

    about = Traits("fussy", "", "", estimates="mean")

    def reduce(self, rank, gradient):
        if rank.size > 3:
            raise S2SimError(f"{rank.size} ranks are too many: take 3")
        if rank.step:
            raise S2SimError("a second step is too many: take 1")
        return (yield from Dense.reduce(self, rank, gradient))


@dataclass(slots=True)
class Needy(Dense):
    """Has no default for what it needs."""

    about = Traits("needy", "", "")
    mask: str = ""

    def __post_init__(self):
        if not self.mask:
            raise OptionError("needy: mask= names a file")


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(sys.modules, "plug_ins", SimpleNamespace(Fussy=Fussy, Needy=Needy))
    monkeypatch.setattr(registry, "PRESETS", {})
    few = {name: REDUCERS.builtin[name] for name in ("dense", "topk", "union", "s2")}
    monkeypatch.setitem(REDUCERS.__dict__, "_targets", few | {"fussy": "plug_ins:Fussy", "needy": "plug_ins:Needy"})


def run_all(workers, *reducers, **options):
    return s2sim.run("fat-tree", workers=workers, trace=SMALL, reducers=["all", *reducers], **options)


def names(result):
    return [row.option_string for row in result.rows]


@pytest.mark.usefixtures("registered")
def test_all_but_those_that_refuse_have_a_row():
    result = run_all([2, 4], break_even=False)
    assert names(result) == ["dense", "topk", "union", "s2", "fussy", "dense", "topk", "union", "s2"]
    assert [(each.reducer, each.workers, each.why) for each in result.refused] == [
        ("needy", 2, "needy: mask= names a file"),
        ("needy", 4, "needy: mask= names a file"),
        ("fussy", 4, "4 ranks are too many: take 3"),
    ]
    assert "fussy did not run with 4 workers: 4 ranks are too many: take 3" in result.notes
    text = str(result)
    assert "Refused: fussy, 4 ranks are too many: take 3." in text
    assert [line.split()[-1] for line in text.splitlines() if line.startswith(("fussy", "needy"))] == ["refused"] * 2


@pytest.mark.usefixtures("registered")
def test_the_table_of_one_number_of_workers_names_those_that_refuse():
    result = run_all(4)
    assert {each.reducer for each in result.refused} == {"fussy", "needy"}
    table = str(result).partition("Refused")[0].splitlines()
    assert [line.split() for line in table if "fussy" in line] == [["fussy", "refused"]]
    assert max(map(len, table)) <= 80


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_one_that_is_named_leaves_the_others_their_rows():
    for workers, name, why in ((4, "fussy", "4 ranks are too many"), (2, "needy", "names a file")):
        result = run_all(workers, name)
        assert len(result.rows) > 2
        assert [each.why for each in result.refused if each.reducer == name and why in each.why]
        with pytest.raises(S2SimError, match=why):
            s2sim.run("fat-tree", workers=workers, reducers=(name,))


@pytest.mark.usefixtures("registered")
def test_one_that_refuses_a_later_step_loses_its_row():
    result = run_all(2, steps=2, break_even=False)
    assert "fussy" not in names(result)
    assert [each.why for each in result.refused if each.reducer == "fussy"] == ["a second step is too many: take 1"]
    assert all(row.steps for row in result.rows)


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_one_that_cannot_be_checked_is_not_extrapolated():
    result = s2sim.run("fat-tree", workers=6, trace="lstm-lm-steps", reducers=["all"], break_even=False)
    assert "fussy" not in names(result)
    assert "fussy" in {each.reducer for each in result.refused}


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_one_whose_scripts_cannot_be_scaled_is_left_out():
    result = run_all(4, scale_to="5M", break_even=False)
    assert names(result) == ["dense", "topk", "union", "s2"]
    assert "fussy" in {each.reducer for each in result.refused}


@pytest.mark.usefixtures("registered")
def test_what_is_named_beside_all_stands_once():
    assert names(run_all(2, "s2:cells=1", "topk:density=0.01", break_even=False)) == [
        "dense", "s2:cells=1", "topk:density=0.01", "union", "s2", "fussy",
    ]  # fmt: skip


def test_all_takes_no_options_and_stands_once():
    with pytest.raises(OptionError, match="name a reducer to set its options"):
        s2sim.run("fat-tree", workers=2, trace=SMALL, reducers=["all:density=0.1"])
    with pytest.raises(OptionError, match="asked for twice"):
        run_all(2, "all")
    with pytest.raises(UnknownNameError):
        s2sim.run_collective("all_reduce", "fat-tree", workers=2, size_bytes=8, algorithm="all")


@pytest.mark.slow
def test_every_registered_reducer_runs_or_is_refused(capsys):
    assert (
        main(f"run --topology fat-tree --workers 3 --reducer all --no-break-even --json - --trace {SMALL}".split()) == 0
    )
    result = json.loads(capsys.readouterr().out)
    found = [row["reducer"] for row in result["results"]]
    assert sorted([*found, *(each["reducer"] for each in result["refused"])]) == sorted(reducer_names())
