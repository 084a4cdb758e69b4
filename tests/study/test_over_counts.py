"""With which mini-batches and numbers of workers reducers pay in iterations."""

import json

import pytest

import s2sim
from s2sim.cli.main import main
from s2sim.experiment.choice import WORTHWHILE
from s2sim.experiment.robustness import HIGHEST_BATCH, over_workers
from s2sim.experiment.row_parts import CountPays

SPEC = {"topology": "leaf-spine", "profile": "resnet-18", "discipline": "ddp", "trace": "cnn"}


def gain(reducer, **more):
    asked = {**SPEC, "workers": 16, **more}
    rows = s2sim.run(**asked, reducers=[reducer], break_even=False, thorough=False).rows
    return rows[0].iteration_s / rows[1].iteration_s


def over(result, field):
    return next(each for each in result.verdict.pays_over if each.field == field)


@pytest.mark.slow
def test_a_reducer_gains_up_to_the_batch_that_is_told_and_not_beyond():
    result = s2sim.run(**SPEC, workers=16, reducers=["fp16"], thorough=False)
    found = over(result, "batch")
    ((first, last),) = found.spans
    assert (found.reducer, found.lowest, found.highest, first) == ("fp16", 1, HIGHEST_BATCH, 1)
    assert 1 < last < HIGHEST_BATCH
    assert f"up to a batch of {last}" in result.verdict.lines[2]
    # Nothing was recorded anew for these: a run that records says the same.
    assert gain("fp16", batch=last) >= WORTHWHILE > gain("fp16", batch=last + 1)


@pytest.mark.slow
def test_measured_compute_times_are_of_one_batch(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("100,120\n")
    result = s2sim.run(**SPEC, workers=2, reducers=["fp16"], thorough=False, compute_times=str(path))
    assert result.verdict.break_even or result.verdict.pays
    assert result.verdict.pays_over == ()
    assert "batch of" not in " ".join(result.verdict.lines)


@pytest.mark.slow
def test_numbers_of_workers_that_ran_tell_from_which_on_it_gains():
    result = s2sim.run(**SPEC, workers=[4, 8, 16], reducers=["fp16"], break_even=False, thorough=False)
    found = over(result, "workers")
    gains = {
        row.workers: dense.iteration_s / row.iteration_s
        for dense, row in zip(result.rows[::2], result.rows[1::2], strict=True)
    }
    assert {count for first, last in found.spans for count in gains if first <= count <= last} == {
        count for count, each in gains.items() if each >= WORTHWHILE
    }
    assert over_workers(result.rows[:2], None) == ()


@pytest.mark.parametrize(
    ("field", "spans", "text"),
    [
        ("batch", (), "nowhere from a batch of 1 to 64"),
        ("batch", ((1, 64),), "everywhere from a batch of 1 to 64"),
        ("batch", ((8, 64),), "from a batch of 8 on"),
        ("batch", ((8, 16),), "from a batch of 8 to 16"),
        ("batch", ((1, 2), (16, 64)), "up to a batch of 2 and from a batch of 16 on"),
    ],
)
def test_in_words(field, spans, text):
    assert CountPays("fp16", field, spans, 1, 64).text == text


@pytest.mark.parametrize(
    ("spans", "text"),
    [
        ((), "with none of 4, 8 and 16 workers"),
        (((4, 16),), "with 4, 8 and 16 workers"),
        (((4, 4), (16, 16)), "with 4 and 16 workers, not with 8"),
    ],
)
def test_nothing_is_said_of_numbers_of_workers_that_did_not_run(spans, text):
    assert CountPays("fp16", "workers", spans, 4, 16, (4, 8, 16)).text == text


@pytest.mark.slow
def test_without_a_profile_nobody_looks(capsys):
    small = "synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400"
    assert main(["run", "--topology", "fat-tree", "--workers", "2,4", "--trace", small, "--json", "-"]) == 0
    assert "pays_over" not in json.loads(capsys.readouterr().out)["verdict"]
