"""Whole iterations in a run: what they rest on, what they compare, and what cannot be asked for."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import s2sim
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.lower_bounds import iteration_bound_s
from s2sim.experiment.notes import _memory_note
from s2sim.experiment.prediction import execute, record
from s2sim.experiment.run import resolve_checked
from s2sim.experiment.scenario.reducers import ReducerSpec, resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.reducers.registry import make_reducer

SMALL = "synthetic:rows=400,width=8,density=0.05"
REDUCERS = ("fp16", "topk:density=0.01")


def run(topology="leaf-spine", workers=8, reducers=REDUCERS, **options):
    options = {"profile": "resnet-50", "break_even": False, "thorough": False} | options
    return s2sim.run(topology, workers=workers, reducers=reducers, **options)


@pytest.fixture(scope="module")
def slow_network():
    return run(reducers=("fp16",), overrides=("nic.rate=10Gbps",))


def test_parts_add_up_to_the_iteration_which_is_compared(slow_network):
    dense = next(row for row in slow_network.rows if row.baseline)
    for row in slow_network.rows:
        assert row.time_s.iteration == row.iteration_s == pytest.approx(row.iteration.total_s, abs=1e-12)
        assert row.speedup_vs_dense == pytest.approx(dense.iteration_s / row.iteration_s)
        assert row.judgement.time_s == row.iteration_s
        assert row.iteration.samples_per_s == pytest.approx(8 * 32 / row.iteration_s)
        assert row.iteration.discipline == "ddp"
    assert dense.iteration.buckets > 3
    assert dense.iteration.hidden_communication > 0
    assert slow_network.verdict.lines[1].startswith("Iteration ")


def test_an_iteration_takes_no_less_than_its_compute_nor_than_what_is_left_to_exchange(slow_network):
    spec = slow_network.spec
    scenario = resolve_run(spec)
    compute = scenario.training.compute
    for row in slow_network.rows:
        alone_s = (compute.forward_ps.sum() + compute.backward_ps.sum() + compute.optimizer_ps) / 1e12
        assert row.iteration_s >= alone_s
        assert row.iteration_s <= alone_s + row.time_s.total + row.iteration.backward


@pytest.mark.slow
def test_with_a_fast_network_dense_hides_and_nothing_beats_it_clearly():
    result = run("dgx-h100", 8)
    dense = next(row for row in result.rows if row.baseline)
    assert dense.iteration.exposed_communication < 0.05 * dense.iteration_s
    assert result.verdict.decision != "use"


@pytest.mark.slow
def test_a_model_that_no_gpu_holds_is_said_to_be_none_that_runs():
    """Of 6.738 G parameters, 4 bytes each for themselves and their gradients, and 8 for Adam: not in 80 GB."""
    for options, fits in (({}, False), ({"discipline": "fsdp"}, True), ({"groups": "tp=8,dp=rest"}, True)):
        result = run("dgx-h100", 16, reducers=("fp16",), profile="llama-7b", **options)
        said = [caveat for caveat in result.caveats if "does not fit" in caveat]
        assert (not said) == fits, options
        assert fits or "take 107.8 GB of 80 GB of h100" in said[0]
        assert result.rows[0].iteration.state_bytes == pytest.approx(16 * 6.738e9, rel=1e-3) or fits
    whole, parts = (
        run("dgx-h100", 16, reducers=("fp16",), profile="llama-7b", discipline="fsdp", accumulate=count)
        for count in (4, 1)
    )
    # Gradients of several mini-batches are exchanged once, and are whole until then.
    more = whole.rows[0].iteration.state_bytes - parts.rows[0].iteration.state_bytes
    assert more == pytest.approx(4 * 6.738e9 * 15 / 16, rel=1e-3)


@pytest.mark.slow
def test_what_is_exchanged_after_backward_takes_compute_and_the_phase():
    for row in run(discipline="after-backward").rows:
        iteration = row.iteration
        compute_s = iteration.forward + iteration.backward + iteration.optimizer
        assert row.iteration_s == pytest.approx(compute_s + row.time_s.total, abs=1e-12)
        assert iteration.buckets == 1


def test_gradients_at_hand_are_those_of_a_profile_of_the_same_parameters():
    scaled = resolve_run(RunSpec("leaf-spine", (2,), profile="resnet-50"))
    assert scaled.target.parameters == scaled.training.profile.parameters


@pytest.mark.slow
def test_compute_that_varies_is_waited_for_and_drawn_by_the_seed():
    small = {"workers": 4, "profile": "vgg-16", "iterations": 6}
    first, again, other = (run(compute_cv=0.1, seed=seed, reducers=("fp16",), **small).rows for seed in (1, 1, 2))
    assert [row.iteration_s for row in first] == [row.iteration_s for row in again]
    assert [row.iteration_s for row in first] != [row.iteration_s for row in other]
    same = run(reducers=("fp16",), **small).rows
    for row, still in zip(first, same, strict=True):
        assert row.iteration_s > still.iteration_s
        assert row.iteration.spread_s > 0 == still.iteration.spread_s
        assert row.iteration.iterations == 6


@pytest.mark.slow
def test_two_streams_and_a_host_loop_change_what_a_codec_costs():
    plain, streams, loop = (
        next(row for row in run(reducers=("fp16",), **more).rows if row.reducer == "fp16")
        for more in ({}, {"streams": 2}, {"host_loop": "100us"})
    )
    assert loop.iteration.codec > plain.iteration.codec + 0.02
    assert streams.iteration_s != plain.iteration_s
    assert (streams.iteration.streams, plain.iteration.streams) == (2, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"profile": "resnet-5"}, "resnet-50"),
        ({"profile": None, "discipline": "ddp"}, "--profile"),
        ({"profile": None, "compute_cv": 0.1}, "--compute-cv needs"),
        ({"discipline": "dpp"}, "ddp"),
        ({"discipline": "ddp:bucket=0MiB"}, "bucket"),
        ({"compute": "10ms"}, "give one"),
        ({"streams": 3}, "--streams 3"),
        ({"batch": 0}, "--batch 0"),
        ({"accumulate": 0}, "--accumulate 0"),
        ({"accumulate": 4, "discipline": "zero2"}, "zero2 exchanges the gradients of each"),
        ({"compute_cv": -0.1}, "--compute-cv"),
        ({"compute_cv": float("nan")}, "--compute-cv"),
        ({"host_loop": "5"}, "--host-loop"),
        ({"steps": 2, "trace": "lstm-lm-steps"}, "--steps 2"),
        ({"scale_to": "1B"}, "--scale-to"),
        ({"model": "gpt2"}, "--model gpt2"),
        ({"profile": "no/such/file.toml"}, "no/such/file.toml"),
    ],
)
def test_what_cannot_be_asked_for_is_said_in_one_line(options, said):
    with pytest.raises(S2SimError, match=r"\w") as raised:
        run(**options)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_mini_batch_waits_for_the_parameters_that_the_step_before_makes():
    """At 1 Gbps an exchange is longer than compute, so that each further mini-batch adds all of its own."""
    options = {"profile": "resnet-18", "overrides": ("nic.rate=1Gbps",), "discipline": "two-priorities"}
    one, three = (run(reducers=("dense",), accumulate=count, **options).rows[0].iteration for count in (1, 3))
    compute_s = one.forward + one.backward
    assert three.total_s - one.total_s == pytest.approx(2 * compute_s, rel=0.02)
    assert three.hidden_communication == pytest.approx(one.hidden_communication, rel=0.02)


@pytest.mark.slow
def test_local_steps_cost_no_more_the_rarer_ranks_exchange():
    texts = ("dense", "dense:h=2", "dense:h=4", "dense:h=10")
    options = {"profile": "resnet-18", "overrides": ("nic.rate=1Gbps",), "discipline": "two-priorities"}
    rows = run(reducers=texts, **options).rows
    times_s = {row.reducer: row.iteration_s for row in rows}
    assert [times_s[text] for text in texts] == sorted(times_s.values(), reverse=True)
    # Every step has its optimizer.
    assert [row.iteration.optimizer for row in rows] == pytest.approx([rows[0].iteration.optimizer] * 4, rel=0.05)
    longer = run(reducers=texts, iterations=40, **options).rows
    assert {row.reducer: row.iteration_s for row in longer} == pytest.approx(times_s, rel=1e-3)


@pytest.mark.slow
def test_a_pipeline_that_waits_for_its_stages_is_nothing_that_a_reducer_gains():
    options = {"topology": "dgx-h100", "workers": 16, "profile": "gpt2", "batch": 8, "accumulate": 8}
    result = run(reducers=("fp16",), groups="pp=4,dp=rest", **options)
    dense = next(row for row in result.rows if row.baseline)
    assert 0.1 * dense.iteration_s < dense.iteration.pipeline_wait <= dense.iteration.waiting
    assert dense.iteration.exposed_communication < 0.01 * dense.iteration_s
    assert result.verdict.decision == "do not compress"


@pytest.mark.slow
def test_a_mini_batch_may_have_as_many_samples_as_profiles_have():
    assert run(profile="ncf", reducers=("union",), instead=["nic.rate=100Gbps"]).alternatives


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "most"), [("dlrm", True), ("ncf", True), ("gnmt-8", False)])
def test_tables_that_others_divide_among_ranks_are_said_to_be_whole(profile, most):
    result = run(profile=profile, reducers=("gather-rows",), workers=2)
    assert any("TorchRec divide tables among ranks" in caveat for caveat in result.caveats) == most
    assert ("Note: dense sends gradients of whole tables" in " ".join(str(result).split())) == most


@pytest.mark.slow
def test_constants_that_dense_pays_for_too_flip_no_more_than_they_do():
    options = {"topology": "dgx-h100", "workers": 16, "profile": "bert-large", "overrides": ("nic.rate=50Gbps",)}
    result = run(reducers=("int8",), discipline="fsdp", **options)
    assert "rule out" not in str(result)
    assert result.verdict.flips == ()


def test_a_model_names_its_profile_where_a_discipline_is_asked_for():
    spec = RunSpec("leaf-spine", (2,), model="gpt2", discipline="per-tensor")
    assert resolve_run(spec).training.profile.model == "gpt2"
    with pytest.raises(OptionError, match="--profile"):
        resolve_run(RunSpec("leaf-spine", (2,), model="deeplight-2", discipline="ddp"))


@pytest.mark.slow
def test_odd_numbers_of_workers():
    for workers in (1, 3, 7):
        for row in run("fat-tree", workers, reducers=("fp16",), profile="vgg-16").rows:
            assert np.isfinite(row.iteration_s)
            assert row.iteration_s > 0


@pytest.mark.slow
def test_an_iteration_is_never_under_its_bound():
    for discipline in ("ddp", "after-backward", "two-priorities"):
        spec = RunSpec("leaf-spine", (8,), reducers=REDUCERS, profile="resnet-50", discipline=discipline)
        scenario = resolve_checked(spec)
        recordings, _ = record(scenario, 8)
        for executed in execute(scenario, recordings):
            bound_s = iteration_bound_s(executed)
            assert 0 < bound_s <= executed.compared_ps / 1e12


@pytest.mark.slow
def test_every_row_shows_its_bound_and_how_long_ranks_wait():
    for options in ({}, {"compute_cv": 0.1}, {"discipline": "two-priorities"}, {"accumulate": 3}):
        for rate in ("10Gbps", "1Tbps"):
            overrides = (f"nic.rate={rate}",)
            for row in run(reducers=("fp16",), overrides=overrides, profile="resnet-18", **options).rows:
                assert 0 < row.iteration.lower_bound <= row.iteration_s
                waits = row.iteration.waiting_mean > 0
                assert not waits or "compute_cv" in options
                # On a slow network ranks may find it busy whenever they come.
                assert waits or "compute_cv" not in options or rate == "10Gbps"


@pytest.mark.slow
def test_measured_compute_times_take_the_place_of_stated_ones(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("100,100\n100,300\n\n")
    rows = run(workers=4, compute_times=str(path), reducers=("fp16",), iterations=4).rows
    for row in rows:
        assert row.iteration.iterations == 4
        # Ranks take the two columns in turn; the slower of them is waited for.
        assert row.iteration_s > 0.3
        assert row.iteration.forward + row.iteration.backward == pytest.approx(0.3, rel=0.05)
        assert row.iteration.waiting_mean > 0.01
    for text, said in (("", "no row"), ("1,x\n", "'x'"), ("1,-2\n", "'-2'"), ("1,2\n1\n", "row 2"), ("nan\n", "'nan'")):
        path.write_text(text)
        with pytest.raises(S2SimError, match=r"times\.csv") as raised:
            run(compute_times=str(path))
        assert said in str(raised.value)
    with pytest.raises(S2SimError, match="leave one"):
        run(compute_times=str(path), compute_cv=0.1)
    with pytest.raises(S2SimError, match=r"missing\.csv"):
        run(compute_times=str(tmp_path / "missing.csv"))


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 1024])
def test_measured_compute_times_leave_the_optimizer_as_it_is(tmp_path, batch):
    path = tmp_path / "times.csv"
    path.write_text("100,120\n100,100\n")
    result = run(workers=2, compute_times=str(path), reducers=("fp16",), batch=batch)
    for row in result.rows:
        parts = row.iteration
        assert parts.optimizer == pytest.approx(resolve_run(result.spec).training.profile.optimizer_ps / 1e12)
        assert parts.forward + parts.backward == pytest.approx(0.1, rel=0.01)
        assert 0.1 < parts.lower_bound <= row.iteration_s


@pytest.mark.slow
def test_what_a_fault_did_is_told_of_iterations_and_not_of_the_phase():
    late = run(reducers=("fp16",), faults=("slow-rank:rank=1,factor=2",))
    (note,) = (note for note in late.notes if note.startswith("slow-rank"))
    # Dense has no codec, but its compute takes twice as long.
    assert "dense: its work took 2 times as long" in note


@pytest.mark.slow
def test_one_worker_has_nobody_to_exchange_with():
    for row in run("dgx-a100", 1, reducers=("fp16",), profile="vgg-16").rows:
        assert row.iteration.exposed_communication == row.iteration.hidden_communication == 0


def test_states_that_reducers_keep_are_counted_and_named():
    scenario = resolve_run(RunSpec("dgx-h100", (8,), profile="gpt2", reducers=("fp16",)))
    elements = scenario.training.profile.parameters

    def ran(text):
        spec = ReducerSpec(text, make_reducer(text))
        work = scenario.training.on_ranks(scenario.timer(8), "fp32", scenario.gpu, spec.timed.traits)
        return spec, SimpleNamespace(rank_work=work)

    each = {"dense": 16, "topk": 20, "topk:ef=false": 16, "dgc": 24, "onebit-adam": 20, "demo": 12, "diloco": 24}
    kept = {text: ran(text)[1].rank_work.state_bytes / elements for text in each}
    assert kept == each

    def said(bytes_each):
        gpu = replace(scenario.gpu, memory_bytes=bytes_each)
        small = replace(scenario, machines=replace(scenario.machines, gpu=gpu))
        return _memory_note(small, [ran("dense"), ran("topk"), ran("dgc")])

    assert said(24 * elements) == []
    assert "does not fit with dgc: what these keep, float32" in said(20 * elements)[0]
    assert "does not fit with topk, dgc: what these keep, float32" in said(16 * elements)[0]
    assert "does not fit: float32 parameters, gradients and optimizer states of gpt2 take 1.991 GB" in said(elements)[0]


@pytest.mark.slow
def test_the_bound_of_zero2_has_the_gathers_that_follow_the_step():
    found = run(topology="tcp-10g", workers=16, profile="resnet-50", gpu="v100", batch=32, discipline="zero2")
    parts = found.rows[0].iteration
    reduce_s = parts.exposed_communication / 2  # As long as the gathers, after backward and after the step
    assert parts.lower_bound >= parts.forward + parts.backward + parts.optimizer + 1.4 * reduce_s
    assert parts.lower_bound <= found.rows[0].iteration_s
