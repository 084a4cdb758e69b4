"""Gradients that training holds in bf16: as the trace says, or as is asked for."""

import pytest

import s2sim
from s2sim.cli.main import main
from s2sim.errors import OptionError
from s2sim.experiment.spec import RunSpec
from s2sim.gradients.manifest import Origin
from s2sim.gradients.synthetic import SyntheticOptions, SyntheticTrace
from s2sim.gradients.write_trace import write_trace

OPTIONS = SyntheticOptions(density=0.05, overlap=0.5, rows=20000, width=8, dense=4000)
SMALL = "synthetic:density=0.05,overlap=0.5,rows=20000,width=8,dense=4000"
REDUCERS = ("dense", "union", "fp16", "topk:density=0.01")


def run(trace=SMALL, **options):
    return s2sim.run("fat-tree", workers=8, trace=str(trace), reducers=REDUCERS, **options)


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Write the same gradients as training in bf16 left them."""
    origin = Origin(data="drawn", licence="none", source="here", command="none", training="none")
    directory = tmp_path_factory.mktemp("traces") / "held"
    source = SyntheticTrace(OPTIONS, 8, 0)
    write_trace(directory, source, kind="imported", model="m", origin=origin, dtype="bf16", max_storage_error=0.0)
    return directory


@pytest.mark.slow
def test_everything_that_is_not_compressed_halves():
    whole, half = run().rows, run(dtype="bf16").rows
    for text, before, after in zip(REDUCERS, whole, half, strict=True):
        shrinks = {"dense": 0.5, "fp16": 1.0}.get(text)
        ratio = after.bytes_sent_per_rank / before.bytes_sent_per_rank
        assert ratio == shrinks if shrinks else 0.5 < ratio < 0.8
        assert before.lossless == after.lossless
    assert half[2].ratio == 1.0
    assert half[2].speedup_vs_dense < 1 < whole[2].speedup_vs_dense
    assert 1e-4 < half[0].error.relative_l2 < 4e-3


@pytest.mark.slow
def test_a_trace_says_how_training_held_it_and_an_option_wins(held):
    by_default, asked, full = run(held), run(held, dtype="bf16"), run(held, dtype="fp32")
    assert by_default.rows == asked.rows != full.rows
    assert by_default.rows[0].bytes_sent_per_rank * 2 == full.rows[0].bytes_sent_per_rank
    records = [result.provenance["spec_sha256"] for result in (by_default, asked, full)]
    assert records[0] == records[1] != records[2]
    assert (by_default.gradients.dtype, full.gradients.dtype) == ("bf16", "fp32")
    assert by_default.gradients.bytes * 2 == full.gradients.bytes


@pytest.mark.slow
def test_the_first_screen_says_so(capsys):
    command = f"run --topology fat-tree --workers 8 --trace {SMALL} --reducer union"
    assert main([*command.split(), "--dtype", "bf16"]) == 0
    out = capsys.readouterr().out
    assert "328 kB a rank in bf16" in out
    assert main([*command.split(), "--dtype", "bf16", "--show", "details"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "training holds gradients in bf16: what is not compressed travels so" in out
    assert main(command.split()) == 0
    assert "bf16" not in capsys.readouterr().out


@pytest.mark.slow
def test_steps_and_scaled_runs_hold_it_too():
    steps = s2sim.run("fat-tree", workers=4, trace=f"{SMALL},steps=2", reducers=["union"], steps=2, dtype="bf16")
    plain = s2sim.run("fat-tree", workers=4, trace=f"{SMALL},steps=2", reducers=["union"], steps=2)
    for half, whole in zip(steps.rows, plain.rows, strict=True):
        assert all(a.bytes_sent_per_rank < b.bytes_sent_per_rank for a, b in zip(half.steps, whole.steps, strict=True))
    scaled, full = (run(scale_to="1M", dtype=dtype).rows for dtype in ("bf16", "fp32"))
    assert scaled[0].bytes_sent_per_rank * 2 == full[0].bytes_sent_per_rank


def test_an_unknown_type_is_told():
    with pytest.raises(OptionError, match=r"--dtype bf32 is unknown.*did you mean"):
        RunSpec("fat-tree", (4,), dtype="bf32")
