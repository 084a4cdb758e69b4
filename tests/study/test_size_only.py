"""Reducers whose scripts follow from shapes alone: one rank runs, for as many as there are."""

import numpy as np
import pytest

import s2sim
from s2sim.errors import S2SimError
from s2sim.experiment.scenario import reducers as scenario_of_reducers
from s2sim.experiment.scenario.reducers import FEW_RANKS, resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import is_symmetric, run_symmetric

GRADIENT = Gradient(("w",), (np.random.default_rng(0).normal(size=1024).astype(np.float32),))
REDUCERS = ("fp16", "fp8", "int8", "qsgd", "powersgd", "topk:density=0.01,ef=true", "ef-signsgd", "random-k")


@pytest.mark.slow
def test_one_rank_alone_says_what_all_ranks_say(monkeypatch):
    workers = 20
    options = {"workers": workers, "profile": "resnet-18", "break_even": False, "thorough": False}
    few = s2sim.run("leaf-spine", reducers=REDUCERS, **options)
    monkeypatch.setattr(scenario_of_reducers, "FEW_RANKS", workers)
    every = s2sim.run("leaf-spine", reducers=REDUCERS, **options)
    for one, all_ran in zip(few.rows, every.rows, strict=True):
        assert one.bytes_sent_per_rank == pytest.approx(all_ran.bytes_sent_per_rank, rel=0.01), one.reducer
        assert one.time_s.total == pytest.approx(all_ran.time_s.total, rel=0.02), one.reducer
        assert one.iteration_s == pytest.approx(all_ran.iteration_s, rel=0.01), one.reducer
        if not one.exact:
            assert one.error.relative_l2 == pytest.approx(all_ran.error.relative_l2, rel=0.3), one.reducer
    assert few.verdict.best == every.verdict.best
    assert any("are those of 16 of 2" in note for note in few.notes)
    assert not any("are those of 16 of 2" in note for note in every.notes)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"profile": "resnet-18", "reducers": ("fp16", "powersgd")}, {FEW_RANKS: ["dense", "fp16", "powersgd"]}),
        ({"profile": "resnet-18", "reducers": ("fp16", "union")}, {FEW_RANKS: ["dense", "fp16"], 64: ["union"]}),
        ({"trace": "cnn", "reducers": ("fp16",)}, {64: ["dense", "fp16"]}),
        ({"model": "gnmt-8", "reducers": ("fp16",)}, {64: ["dense", "fp16"]}),
    ],
)
def test_a_few_ranks_run_where_all_that_is_sent_follows_from_shapes(options, expected):
    found = resolve_run(RunSpec("fat-tree", (64,), **options)).by_recorded_ranks(64)
    assert {few: [item.option_string for item in items] for few, items in found.items()} == expected


@pytest.mark.parametrize("reducer", ["qsgd:aggregate=server", "local-sgd", "s2-exact", "topk:hierarchical=true"])
def test_what_differs_from_rank_to_rank_or_step_to_step_is_not_symmetric(reducer):
    assert not is_symmetric(make_reducer(reducer), GRADIENT)


def test_a_program_that_treats_ranks_differently_is_refused():
    with pytest.raises(S2SimError, match="not the same on all ranks"):
        run_symmetric(make_reducer("qsgd:aggregate=server"), GRADIENT, 4)


def test_a_thousand_ranks_share_one_script():
    recording = run_symmetric(make_reducer("fp8"), GRADIENT, 1024)
    assert len({id(script) for script in recording.scripts}) == 1
    assert recording.workers == 1024
