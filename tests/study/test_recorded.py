"""A recorded job on its own network: closed forms of what is predicted and corrected, and what its error decides."""

import json
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.legend import Legend

from s2sim.advice.script import script_lines
from s2sim.cli.main import main
from s2sim.errors import OptionError, TopologyError
from s2sim.experiment.rows import Result
from s2sim.experiment.run import run
from s2sim.experiment.spec import RunSpec
from s2sim.gradients.gradient import Gradient
from s2sim.gradients.manifest import Origin
from s2sim.gradients.statistics import GradientTable
from s2sim.gradients.write_trace import write_trace
from s2sim.profiles.profile import ComputeProfile, tensor_timings
from s2sim.profiles.read import AllReduceTime, IterationSeconds, RecordedJob, profile_text
from s2sim.reducers.gpu_cost import cast, multiply_cost, select
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import Work
from s2sim.report.figures.reducers import iterations_figure
from s2sim.report.page_charts import row_charts
from s2sim.report.run_tables import iteration_grids
from s2sim.simulation.plan import work_ps
from s2sim.sweeps.compute import compute_jobs
from s2sim.sweeps.explore import Explorer
from s2sim.topology.hardware import load_gpu
from s2sim.validation.calibrate_codecs import _without_collectives_s, fit_codecs

NAMES, SIDE, ROWS = ("first.weight", "second.weight"), 512, 64  # Rows of the first that are not zero
BYTES = 4 * SIDE * SIDE
# Seconds of forward, of backward until each gradient, and of the optimizer; of an all-reduce, and of each of its bytes.
FORWARD_S, BACKWARD_S, OPTIMIZER_S = 0.004, (0.006, 0.012), 0.001
ALPHA_S, BETA_S = 1e-3, 1 / 50e6
STAR = """
name = "star"
description = "processes of one machine"
library = "gloo"
node.gpus = 1
nic.rate = "50MB/s"
nic.transport = "tcp"
fabric.kind = "single-switch"
machine.processors = 2
machine.packet = "64KiB"
"""


def all_reduce_s(size_bytes):
    return ALPHA_S + size_bytes * BETA_S


def parts(exposed_s, *, backward_s=BACKWARD_S[1], other_s=0.003):
    return IterationSeconds(FORWARD_S, backward_s, exposed_s, OPTIMIZER_S, other_s)


def total_s(parts):
    return sum(astuple(parts))


ONE_BUCKET = parts(all_reduce_s(2 * BYTES))
JOB = RecordedJob(
    iteration_s=total_s(ONE_BUCKET),
    ranks=2,
    host="here",
    device="CPU",
    torch="2",
    bucket_bytes=25 << 20,
    buckets=(NAMES[::-1],),
    parts=ONE_BUCKET,
    compute_alone=True,
    backend="gloo",
    hosts=("here", "here"),
    nodes=(0, 1),
    processors=2,
    all_reduces=tuple(AllReduceTime(4**power, all_reduce_s(4**power)) for power in range(5, 13)),
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return what writes a job with some other facts into ``mine``, beside a cluster."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "star.toml").write_text(STAR, "utf-8")
    random = np.random.default_rng(0)
    layers = tuple(random.standard_normal((SIDE, SIDE), np.float32) for _ in NAMES)
    layers[0][ROWS:] = 0
    table = GradientTable(1, 4, lambda *_: Gradient(NAMES, layers))
    origin = Origin("a", "b", "c", "d", "e")
    (tmp_path / "mine").mkdir()
    write_trace(tmp_path / "mine" / "gradients", table, kind="recorded", model="mine", origin=origin, batch=4)
    forward_us, ready_us = [1e6 * FORWARD_S / 2] * 2, [1e6 * each for each in BACKWARD_S]
    tensors = tensor_timings(list(NAMES[::-1]), [(SIDE, SIDE)] * 2, [False] * 2, forward_us, ready_us)
    optimizer_ps = round(OPTIMIZER_S * 1e12)
    profile = ComputeProfile("mine", "mine", "CPU", 4, "x", tensors, optimizer_ps, 0.0, "measured", "a test")
    text = profile_text(profile, description="d", batch_source="b", memory_bound_source="m")
    (tmp_path / "mine" / "profile.toml").write_text(text, "utf-8")

    def write(**changes):
        replace(JOB, **changes).write(tmp_path / "mine")
        return "mine"

    return write


def predicted(recorded, *, workers=2, reducers=("fp16",), **more):
    return run("star.toml", workers=workers, reducers=reducers, recorded=recorded, break_even=False, **more)


@pytest.mark.slow
def test_exposed_communication_is_alpha_and_beta(folder):
    """One bucket, so that nothing overlaps: what it takes follows from the times of other sizes."""
    found = predicted(folder()).recorded
    assert found.all_reduce_error < 0.05
    assert found.predicted.exposed_communication_s == pytest.approx(all_reduce_s(2 * BYTES), rel=0.06)
    assert found.rate_bytes_per_s == pytest.approx(1 / BETA_S / 0.93, rel=1e-6)
    for name in ("forward_s", "backward_s", "optimizer_s", "other_s"):
        assert getattr(found.predicted, name) == pytest.approx(getattr(ONE_BUCKET, name), rel=1e-6)
    assert found.predicted_iteration_s == pytest.approx(total_s(found.predicted), rel=1e-9)
    assert found.error >= found.predicted_iteration_s / JOB.iteration_s - 1
    # The network as it is known otherwise: a first guess of constants, and no time of the host.
    assert found.uncorrected_iteration_s < found.predicted_iteration_s - 0.9 * ONE_BUCKET.other_s


@pytest.mark.parametrize(("ranks", "hosts"), [(2, ("here", "here")), (4, ("a", "a", "b", "b"))])
def test_other_backends_are_a_ring_of_alpha_and_beta(folder, ranks, hosts):
    """Whatever joins the ranks: the least all-reduce is latency, and the rest is in proportion."""
    times = tuple(AllReduceTime(4**power, 1e-4 + 4**power / 2e9) for power in range(5, 13))
    there = {"ranks": ranks, "hosts": hosts, "nodes": tuple(range(ranks)), "backend": "nccl", "all_reduces": times}
    found = predicted(folder(**there)).recorded
    assert found.constants == ()
    assert found.predicted.exposed_communication_s - found.waiting_s == pytest.approx(1e-4 + 2 * BYTES / 2e9, rel=0.02)


@pytest.mark.slow
def test_the_same_cluster_takes_as_long_as_the_recorded_one(folder):
    """With its constants and the host's time; on twice the rate only what the wire takes is halved."""
    recorded, rate_Bps = folder(), 1 / BETA_S / 0.93
    same, fast = (predicted(recorded, overrides=(f"nic.rate={each:.0f}B/s",)) for each in (rate_Bps, 2 * rate_Bps))
    assert same.results[0].iteration_s == pytest.approx(same.recorded.predicted_iteration_s, rel=1e-9)
    gained_s = same.results[0].iteration_s - fast.results[0].iteration_s
    assert gained_s == pytest.approx(2 * BYTES * BETA_S / 2, rel=0.2)


@pytest.mark.slow
def test_ranks_wait_for_each_other_in_every_iteration(folder):
    """What all-reduces do not explain of exposed communication is added to all reducers, and stays in the error."""
    prompt = predicted(folder())
    late = replace(ONE_BUCKET, exposed_communication_s=ONE_BUCKET.exposed_communication_s + 0.02)
    found = predicted(folder(parts=late, iteration_s=total_s(late)))
    for row, before in zip(found.results, prompt.results, strict=True):
        added_s = 0.02 if prompt.recorded.waiting_s else found.recorded.waiting_s
        assert row.iteration_s - before.iteration_s == pytest.approx(added_s, rel=1e-6)
    assert found.recorded.waiting_s == pytest.approx(0.02, abs=0.003)
    prompt_s = found.recorded.predicted_iteration_s - found.recorded.waiting_s
    assert found.recorded.error == pytest.approx(total_s(late) / prompt_s - 1)
    (note,) = (each for each in found.caveats if "measured -> predicted" in each)
    assert "(20.17 ms of it unexplained by all-reduces), optimizer" in note
    assert "exposed communication is most off" in note


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_on_the_network_of_the_job_is_what_is_compared_with_it(folder, ranks):
    """With time between gradients and optimizer, which is communication where there are other ranks."""
    late = parts(0.07 if ranks > 1 else 0.005)
    there = {} if ranks > 1 else {"ranks": 1, "nodes": (), "backend": None, "all_reduces": ()}
    recorded = folder(**there, parts=late, iteration_s=total_s(late))
    same = (f"nic.rate={1 / BETA_S / 0.93:.0f}B/s", "nic.latency=0us") if ranks > 1 else ()
    found = predicted(recorded, workers=ranks, overrides=same, library="gloo" if ranks > 1 else "ideal")
    compared = found.recorded
    assert found.results[0].iteration_s == pytest.approx(compared.predicted_iteration_s, rel=1e-9)
    assert compared.predicted_iteration_s == pytest.approx(total_s(late), rel=1e-6)
    if ranks == 1:
        assert (compared.measured.exposed_communication_s, compared.waiting_s) == (0, 0)
        assert compared.measured.other_s == pytest.approx(late.other_s + 0.005)
        assert compared.error < 1e-6


def test_what_was_recorded_of_the_host_is_no_part_of_the_optimizer(folder):
    """It is a part of its own, which only runs of recorded jobs show."""
    late = replace(ONE_BUCKET, exposed_communication_s=ONE_BUCKET.exposed_communication_s + 0.02)
    found = predicted(folder(parts=late, iteration_s=total_s(late)))
    for row in found.results:
        assert row.iteration.optimizer == pytest.approx(OPTIMIZER_S, rel=1e-9)
        assert row.iteration.host == pytest.approx(ONE_BUCKET.other_s + found.recorded.waiting_s, rel=1e-9)
        assert row.iteration_s == pytest.approx(row.iteration.total_s, rel=1e-9)
    plain = run("star.toml", workers=2, reducers=("fp16",), profile="mine/profile.toml", break_even=False)
    assert {row.iteration.host for row in plain.results} == {0.0}
    for result, shown in ((found, True), (plain, False)):
        (grid,) = iteration_grids(result)
        assert ("host" in {column.title for column in grid.columns}) == shown
        chart, *_ = row_charts(result.results)
        assert ("host" in dict(chart["parts"])) == shown
        legend = iterations_figure({2: result.results}).findobj(Legend)
        assert any("host" in {text.get_text() for text in each.get_texts()} for each in legend) == shown


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_compute_beside_communication_is_as_slow_as_recorded(folder, share):
    slower_s = BACKWARD_S[1] * (1 + share)
    recorded = parts(0.03, backward_s=slower_s)
    found = predicted(
        folder(buckets=((NAMES[1],), (NAMES[0],)), parts=recorded, iteration_s=total_s(recorded))
    ).recorded
    assert found.predicted.backward_s == pytest.approx(slower_s, rel=2e-3)
    assert (found.processor_s_per_byte > 0) == (share > 0)
    alone = predicted(folder(buckets=((NAMES[1],), (NAMES[0],)), parts=recorded, compute_alone=False)).recorded
    assert (alone.processor_s_per_byte, alone.predicted.backward_s) == (0, pytest.approx(BACKWARD_S[1]))


@pytest.mark.slow
def test_mini_batches_before_the_last_are_no_time_of_the_host(folder):
    before_s = 2 * (FORWARD_S + BACKWARD_S[1])
    recorded = replace(ONE_BUCKET, other_s=ONE_BUCKET.other_s + before_s)
    found = predicted(folder(mini_batches=3, parts=recorded, iteration_s=total_s(recorded))).recorded
    assert found.measured.other_s == pytest.approx(ONE_BUCKET.other_s)
    assert found.predicted_iteration_s == pytest.approx(total_s(recorded), rel=0.06)


@pytest.mark.parametrize(("slower", "decision"), [(1.0, "use"), (2.0, "undecided")])
def test_a_gain_below_the_error_is_undecided(folder, slower, decision):
    """The same prediction of fp16, once of a job that is predicted well and once of one that takes twice as long."""
    found = predicted(folder(iteration_s=slower * JOB.iteration_s))
    assert found.verdict.decision == decision
    fp16 = found.results[1]
    assert 1.2 < fp16.speedup_vs_dense < 1.9
    assert (fp16.judgement.doubt > fp16.speedup_vs_dense) == (decision == "undecided")
    if decision == "undecided":
        assert "less than the prediction of the recorded job may be off" in found.verdict.text
    # Nine of ten times lie in the band, which the error alone makes here.
    factor = 1 + found.recorded.error
    assert fp16.band.high_s / fp16.iteration_s == pytest.approx(factor, rel=0.2)
    assert fp16.iteration_s / fp16.band.low_s == pytest.approx(factor, rel=0.2)


@pytest.mark.slow
def test_rates_agree_with_the_decision(folder):
    found = run("star.toml", workers=2, reducers=("fp16",), recorded=folder(iteration_s=1.2 * JOB.iteration_s))
    (crossing,) = found.verdict.break_even
    for rate_Bps, decision in ((0.9 * crossing.at_Bps, "use"), (1.1 * crossing.at_Bps, "undecided")):
        there = predicted("mine", overrides=(f"nic.rate={rate_Bps:.0f}B/s",))
        assert there.verdict.decision == decision


@pytest.mark.slow
def test_the_screen_and_json_have_measured_beside_predicted(folder, capsys):
    command = ["run", "--recorded", folder(), "--topology", "star.toml", "--workers", "2", "--reducer", "fp16"]
    assert main([*command, "--json", "-"]) == 0
    text = capsys.readouterr().out
    found = json.loads(text)
    assert found["recorded"]["measured_iteration_s"] == JOB.iteration_s
    assert found["recorded"]["measured"]["other_s"] == ONE_BUCKET.other_s
    assert Result.load(text).recorded.predicted == Result.load(text).recorded.predicted
    assert Result.load(text).recorded.error == found["results"][0]["recorded_error"]
    assert main(command) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "the recorded job on its own network of 430.1 Mbps, measured -> predicted:" in shown


@pytest.mark.parametrize(
    ("job", "asked", "library", "who"),
    [
        ({}, {}, "gloo", "library gloo (with its constants for tcp), as the recorded job has it; GPU"),
        ({}, {"library": "nccl"}, "nccl", "GPU a100, by default"),
        ({}, {"overrides": ("library=nccl",)}, "nccl", "library nccl"),
        ({"device": "a100"}, {}, "nccl", "library nccl (with its constants for tcp, one process a GPU), as star says"),
        ({"backend": None, "all_reduces": ()}, {}, "nccl", "library nccl"),
    ],
)
def test_a_job_of_processors_runs_its_own_library_by_default(folder, job, asked, library, who):
    recorded = folder(**job)
    Path("star.toml").write_text(STAR.replace('"gloo"', '"nccl"'), "utf-8")
    found = predicted(recorded, **asked)
    assert (found.library, {row.real_library for row in found.results}) == (library, {library})
    assert who in found.machines
    assert ("NCCL" in "\n".join(script_lines(found.spec, found.results[0]))) == (library == "nccl")


def test_without_times_of_the_network_a_line_says_how(folder):
    found = predicted(folder(all_reduces=()))
    assert found.recorded is None
    assert any("record it with network=True" in note for note in found.caveats)


@pytest.mark.slow
def test_buckets_are_those_that_were_recorded(folder):
    assert predicted(folder(buckets=((NAMES[1],), (NAMES[0],)))).results[0].iteration.buckets == 2
    assert predicted(folder()).results[0].iteration.buckets == 1
    # By the limits of DDP, of which the first is 1 MiB.
    assert predicted("mine", discipline="ddp").results[0].iteration.buckets == 2
    assert predicted(folder(buckets=())).results[0].iteration.buckets == 2


def test_tables_that_a_job_sends_by_rows_are_gathered_on_its_own_network(folder):
    """Rows of both ranks with their numbers, and not the whole table; other predictions stay those of dense."""
    apart = {"buckets": ((NAMES[1],), (NAMES[0],)), "parts": parts(0.0, backward_s=1.0), "iteration_s": 1.008}
    whole, by_rows = predicted(folder(**apart)), predicted(folder(**apart, by_rows=(NAMES[0],)))
    saved_s = whole.recorded.predicted.exposed_communication_s - by_rows.recorded.predicted.exposed_communication_s
    assert saved_s == pytest.approx((BYTES - ROWS * 4 * (SIDE + 1)) * BETA_S, rel=0.15)
    assert [row.iteration_s for row in by_rows.results] == [row.iteration_s for row in whole.results]
    assert any(note.startswith("the job sends gradients of first.weight by rows") for note in by_rows.caveats)
    assert not any("by rows" in note for note in whole.caveats)


@pytest.mark.slow
def test_ranks_that_share_the_model_have_buckets_of_their_part(folder):
    found = predicted(folder(), workers=4, groups="pp=2")
    assert found.results[0].iteration.buckets == 1
    assert found.recorded.predicted.forward_s == pytest.approx(FORWARD_S)


def test_processes_take_turns_on_processors(folder):
    """Four on two processors compute for twice as long as two, as recorded."""
    two, four = (predicted(folder(), workers=workers).results[0].iteration for workers in (2, 4))
    assert (four.forward, four.backward) == pytest.approx((2 * two.forward, 2 * two.backward))


CODECS = """
[gpu.cpu]
kind = "measured"
source = "a test"
memory_bandwidth = "1GB/s"
memory_efficiency = 1.0
kernel_launch = "1us"
host_sync = "0us"
dense_encode_passes = 2
dense_decode_passes = 2
hook_copy = "500MB/s"
[codec.fp16]
factor = {factor}
"""


@pytest.mark.parametrize("workers", [2, 4])
def test_codecs_are_charged_as_measured(folder, workers):
    """Casts of 6 bytes a value each way by their factor, and turns of processes that share processors; no copies."""
    recorded = folder()
    Path("mine/codecs.toml").write_text(CODECS.format(factor=3.0), "utf-8")
    found = predicted(recorded, workers=workers)
    assert found.gpu == "cpu"
    casts_s = 3.0 * 2 * (6 * 2 * BYTES / 4 / 1e9 + 1e-6)
    assert found.results[1].iteration.codec == pytest.approx(workers / 2 * casts_s, rel=1e-3)
    assert found.results[0].iteration.codec == 0


def test_error_feedback_is_charged_where_a_hook_adds_it(folder):
    """What the script of the reducer with a residual has: what was sent is decoded and taken out of their sum."""
    recorded = folder()
    Path("mine/codecs.toml").write_text(CODECS.format(factor=3.0), "utf-8")
    found = predicted(recorded, reducers=("topk:density=0.01",)).results[1]
    layer = np.random.default_rng(0).standard_normal((SIDE, SIDE), np.float32)
    reducer = make_reducer("topk:density=0.01,ef=true")
    script = run_reducer(reducer, [Gradient(NAMES, (layer, layer))] * 2).recording.scripts[0]
    works = [step for step in script if isinstance(step, Work)]
    own_s = sum(work.bytes_moved / 1e9 + 1e-6 * work.launches for work in works)
    assert found.iteration.codec == pytest.approx(own_s + 2 * BYTES / 500e6, rel=1e-3)


def test_what_has_a_codec_is_reduced_by_one_thread_of_a_hook(folder):
    """The second of two buckets begins when the first has ended, after ranks have agreed; sums go without it."""
    recorded = folder(buckets=((NAMES[1],), (NAMES[0],)), bucket_bytes=1)
    Path("mine/codecs.toml").write_text(CODECS.format(factor=30.0).replace("500MB/s", "1e15B/s"), "utf-8")
    reducers = ("fp16:ef=true", "fp16")
    hooked = predicted(recorded, reducers=reducers).results
    Path("mine/codecs.toml").write_text(CODECS.format(factor=30.0).replace('hook_copy = "500MB/s"', ""), "utf-8")
    free = predicted(recorded, reducers=reducers).results
    assert [hooked[place].iteration_s for place in (0, 2)] == [free[place].iteration_s for place in (0, 2)]
    assert hooked[1].iteration.codec == pytest.approx(free[1].iteration.codec, rel=1e-6)
    # Behind the codec of the other bucket hide neither both all-reduces, nor two more of a byte.
    longer_s = hooked[1].iteration_s - free[1].iteration_s
    assert 2 * all_reduce_s(BYTES / 2) < longer_s <= 2 * (all_reduce_s(BYTES / 2) + all_reduce_s(1))


def test_a_factor_of_no_number_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cpu.toml").write_text(CODECS.format(factor='"fast"'), "utf-8")
    with pytest.raises((TopologyError, OptionError), match=r"codec\.fp16\.factor|factor"):
        load_gpu("./cpu.toml")


def test_constants_and_factors_come_back_from_times_that_they_were_made_of():
    """Of casts that are slow, selections and products, each in five sizes, with copies."""
    kinds = {"fp16": lambda n: cast(n, "encode"), "topk": lambda n: select(n, n // 100)}
    kinds["powersgd"] = lambda n: multiply_cost(n // 64, 64, 4)
    factors, measured = {"fp16": 3.0, "topk": 1.0, "powersgd": 0.5}, []
    for name, cost in kinds.items():
        for values in (10**4, 10**5, 3 * 10**5, 10**6, 3 * 10**6):
            work = cost(values)
            own_s = work.bytes_moved / 2e9 + 5e-6 * work.launches
            copied = 0 if name == "fp16" else 4 * values
            measured.append((name, [work], factors[name] * own_s + copied / 800e6, 4 * values, copied))
    found = fit_codecs(measured)
    assert found.median_error < 0.05
    assert found.factors["fp16"] / found.factors["topk"] == pytest.approx(3, rel=0.3)


def test_after_each_piece_ranks_wait_for_the_slower_one():
    """Pieces of 5 and 2 ms on one rank, 1 and 4 ms on the other, with collectives of 1 and 3 ms: 9 ms of codec."""
    ranks = [(0.013, [0.001, 0.005]), (0.013, [0.005, 0.003])]
    assert _without_collectives_s(ranks) == pytest.approx(0.009)


def test_the_file_charges_what_was_fitted(tmp_path):
    """One reducer in one size: it takes what was measured, with conversions of tables and steps of the host."""
    work = replace(cast(10**6, "encode"), dense_encode_bytes=10**6, host_steps=10**4)
    found = fit_codecs([("fp16", [work], 0.02, 4 * 10**6, 4 * 10**6)])
    (tmp_path / "cpu.toml").write_text(found.text, "utf-8")
    cpu = load_gpu(str(tmp_path / "cpu.toml"))
    alone_s = work_ps(work, cpu.for_codec("fp16", 1.0)) / 1e12
    assert alone_s + 4e6 / cpu.hook_copy_Bps == pytest.approx(0.02, rel=1e-3)
    assert work_ps(work, cpu.for_codec("fp16", 2.0)) == pytest.approx(2 * 1e12 * alone_s, rel=1e-6)
    assert load_gpu("a100").for_codec("fp16", 2.0) == load_gpu("a100")


@pytest.mark.slow
def test_codecs_are_measured_between_processes(folder, capsys):
    pytest.importorskip("torch")
    folder()
    assert main(["dev", "calibrate", "codecs", "--recorded", "mine", "--reducer", "fp16", "-q"]) == 0
    gpu = load_gpu("./mine/codecs.toml")
    assert dict(gpu.codecs)["fp16"] > 0
    assert main(["dev", "calibrate", "codecs", "--reducer", "fp16", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["size_bytes"] for each in found["times"]] == [1024000, 2048000, 5024000]
    assert predicted("mine").results[1].iteration.codec > 0


@pytest.mark.slow
def test_the_explorer_answers_as_the_run(folder, tmp_path):
    spec = RunSpec.of("star.toml", workers=(2,), reducers=("fp16",), recorded=folder(iteration_s=1.2 * JOB.iteration_s))
    explorer = Explorer.of_spec(spec, tmp_path)
    (outcome,) = compute_jobs([explorer.job(explorer.cell({}))])
    explorer.store.close()
    asked = run(spec=spec, break_even=False)
    assert [line.iteration_s for line in outcome.lines] == [row.iteration_s for row in asked.results]
    plain = run(spec=replace(spec, recorded=None), break_even=False)
    assert outcome.lines[0].iteration_s > 1.1 * plain.results[0].iteration_s
