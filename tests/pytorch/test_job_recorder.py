"""A recorder inside somebody's own training loop."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from s2sim.cli.main import main
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.scenario.reducers import resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.gradients.gradient import RowSparse, to_dense
from s2sim.gradients.read_trace import open_trace
from s2sim.profiles.read import RecordedJob, load_profile
from s2sim.pytorch import JobRecorder
from s2sim.pytorch.timing import WARMUP_STEPS

pytestmark = pytest.mark.extra
STEPS = 2
ALL = WARMUP_STEPS + 3 * STEPS + 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(500, 4)
        self.body = nn.Linear(4, 3)
        self.frozen = nn.Linear(3, 3).requires_grad_(False)

    def forward(self, words):
        return self.frozen(torch.relu(self.body(self.table(words))))


class Slow(nn.Module):
    """A layer of two, of which the number decides, after some milliseconds of the host."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.head = nn.Linear(4, 1)

    def forward(self, number=0):
        time.sleep(FORWARD_S)
        return self.head(self.layers[number % 2](torch.ones(1, 4))).sum()


FORWARD_S = 0.002


def record(folder, step, most=ALL - 1, head=True):
    """Record a loop of ``step(model, optimizer, number)``, and return the job and its profile."""
    model, number = Slow(), 0
    model.head.requires_grad_(head)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with JobRecorder(model, folder, batch=1, steps=STEPS) as recorder:
        while recorder.steps_left:
            step(model, optimizer, number)
            recorder.step()
            number += 1
    assert number <= most
    return RecordedJob.read(str(folder)), load_profile(str(folder / "profile.toml"))


def train(model, optimizer, *numbers):
    optimizer.zero_grad()
    torch.stack([model(number) for number in numbers]).prod().backward()
    optimizer.step()


def loop(folder, steps=ALL, mini_batches=1, seed=0):
    """Train, and return the gradients of each step beside the model."""
    torch.manual_seed(seed)
    model, kept = Model(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with JobRecorder(model, folder, batch=8, steps=STEPS, gradient_steps=2) as recorder:
        for _ in range(steps):
            for _ in range(mini_batches):
                model(torch.randint(500, (8,))).square().sum().backward()
            kept.append({name: each.grad.clone() for name, each in model.named_parameters() if each.requires_grad})
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()
    return model, kept


@pytest.mark.parametrize("mini_batches", [1, 3])
def test_gradients_are_those_of_the_loop(tmp_path, mini_batches):
    _, kept = loop(tmp_path / "mine", mini_batches=mini_batches)
    trace = open_trace(tmp_path / "mine" / "gradients")
    assert (trace.steps, trace.world_size) == (2, 1)
    for step in range(2):
        gradient = trace.gradient(step, 0)
        assert gradient.names == ("table.weight", "body.weight", "body.bias")
        assert isinstance(gradient.layers[0], RowSparse)
        for name, layer in gradient:
            # Traces keep halves where these do.
            assert np.allclose(to_dense(layer), kept[step - 2][name].numpy(), rtol=2e-3, atol=1e-6)


def test_mini_batches_are_as_recorded_unless_given(tmp_path):
    loop(tmp_path / "mine", mini_batches=3)
    spec = RunSpec("tcp-10g", workers=(1,), recorded=str(tmp_path / "mine"))
    found = {given: resolve_run(replace(spec, accumulate=given)).training.accumulate for given in (None, 1, 2)}
    assert found == {None: 3, 1: 1, 2: 2}


def test_tables_whose_gradients_go_by_rows_are_named(tmp_path, monkeypatch):
    class ByRows(Model):
        def __init__(self):
            super().__init__()
            self.table.sparse = True

    loop(tmp_path / "whole")
    monkeypatch.setitem(globals(), "Model", ByRows)
    loop(tmp_path / "mine")
    found = [RecordedJob.read(str(tmp_path / name)).by_rows for name in ("whole", "mine")]
    assert found == [(), ("table.weight",)]


def test_a_folder_is_a_run(tmp_path, capsys):
    model, _ = loop(tmp_path / "mine", steps=ALL + 3)
    profile = load_profile(str(tmp_path / "mine" / "profile.toml"))
    assert {each.name for each in profile.tensors} == {"table.weight", "body.weight", "body.bias"}
    assert min(profile.forward_ps, profile.backward_ps, profile.optimizer_ps) > 0
    job = RecordedJob.read(str(tmp_path / "mine"))
    assert (job.ranks, job.device, job.bucket_bytes, job.discipline) == (1, "CPU", None, None)
    assert job.iteration_s > 0
    hooks = [module._forward_hooks or module._forward_pre_hooks for module in model.modules()]
    assert not any(hooks)
    assert not any(each._backward_hooks or each._post_accumulate_grad_hooks for each in model.parameters())
    asked = [
        "run",
        "--recorded",
        str(tmp_path / "mine"),
        "--topology",
        "tcp-10g",
        "--workers",
        "1",
        "--reducer",
        "fp16",
    ]
    assert main([*asked, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["spec"]["recorded"] == str(tmp_path / "mine")
    assert any("recorded on 1 rank" in note for note in found["notes"])


def test_a_loop_that_ends_early_says_what_is_missing(tmp_path):
    with pytest.raises(S2SimError, match=f"7 of the {ALL} steps"):
        loop(tmp_path / "mine", steps=7)


def test_steps_without_a_gradient_are_left_out_and_in_the_end_refused(tmp_path):
    recorder = JobRecorder(Model(), tmp_path / "mine", batch=1, steps=1)
    for _ in range(17):
        recorder.step()
    assert recorder.steps_left == 1
    with pytest.raises(S2SimError, match="3 of 18 steps had no forward of the module, no gradient"):
        recorder.step()


@pytest.mark.parametrize("period", [2, 3])
def test_a_model_may_run_other_layers_from_step_to_step(period, tmp_path):
    def step(model, optimizer, number):
        train(model, optimizer, int(number % period == 0))

    _, profile = record(tmp_path / "mine", step)
    assert len(profile.tensors) == 6


def test_a_step_without_the_gradient_that_is_watched_is_left_out(tmp_path):
    def step(model, optimizer, number):
        train(model, optimizer, int(number % 3 == 0))

    record(tmp_path / "mine", step, most=2 * ALL, head=False)


def test_evaluations_are_no_part_of_a_step(tmp_path):
    def step(model, optimizer, _):
        with torch.no_grad():
            model.layers[1](torch.ones(1, 4))
            model(1)
        train(model, optimizer, 0)
        with torch.no_grad():
            model(1)
        model(1)

    job, profile = record(tmp_path / "mine", step)
    assert job.mini_batches == 1
    assert job.parts.other_s > 2 * FORWARD_S
    assert not any(each.forward_ps for each in profile.tensors if "layers.1" in each.name)


def test_forward_ends_with_the_last_of_several_before_backward(tmp_path):
    job, _ = record(tmp_path / "mine", lambda model, optimizer, _: train(model, optimizer, 0, 0))
    assert job.parts.forward_s > 2 * FORWARD_S


def test_the_optimizer_of_a_closure_begins_after_backward(tmp_path):
    def step(model, optimizer, number):
        def closure():
            optimizer.zero_grad()
            loss = model(number)
            loss.backward()
            return loss

        optimizer.step(closure)

    job, _ = record(tmp_path / "mine", step)
    assert job.parts.forward_s > FORWARD_S
    assert job.parts.exposed_communication_s == 0
    assert 0 < job.parts.optimizer_s < job.iteration_s


def test_another_step_is_taken_for_a_gradient_that_is_not_finite(tmp_path):
    def step(model, optimizer, number):
        optimizer.zero_grad()
        (model(0) * (float("inf") if number == ALL - 2 else 1.0)).backward()
        if number != ALL - 2:
            optimizer.step()

    record(tmp_path / "mine", step, most=ALL)
    assert open_trace(tmp_path / "mine" / "gradients").steps == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_compiled_is_refused(tmp_path):
    in_place, part = Model(), Model()
    in_place.compile()
    part.body = torch.compile(part.body)
    for model in (torch.compile(Model()), in_place, part):
        with pytest.raises(OptionError, match=r"torch\.compile calls none of the hooks"):
            JobRecorder(model, tmp_path / "mine", batch=1)


@pytest.mark.slow
def test_the_group_of_rank_0_is_recorded_and_an_error_of_one_rank_is_one_of_all(hook_job, tmp_path):
    found = hook_job("recorder_job", ranks=4, folder=str(tmp_path))
    assert [rank["far"] for rank in found] == [0, 0, 0, 0]
    assert [len(rank["said"]) for rank in found] == [0, 0, 1, 0]
    assert "the group of rank 0 is recorded, not this one" in found[2]["said"][0]
    for name in ("alone", "poisoned"):
        job = RecordedJob.read(str(tmp_path / name))
        assert (job.ranks, job.nodes) == (2, (0, 0))
        assert open_trace(tmp_path / name / "gradients").world_size == 2
    early = "rank 0: 9 of the 10 steps that a recording takes have ended: let the loop run on"
    assert all(rank["early"].startswith(early) for rank in found[:2])
    assert [rank["poisoned"] for rank in found] == [None] * 4
    assert [rank["unwritten"] for rank in found] == ["rank 1: no space left\non device"] * 2 + [None] * 2


def test_gradients_are_of_the_type_of_their_parameters(tmp_path):
    """What is bfloat16 sends half the bytes, so that fp16 saves none; other types are refused before anything runs."""

    def recorded(dtype):
        model = nn.Linear(8, 4).to(dtype)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with JobRecorder(model, tmp_path / str(dtype), batch=2, steps=1) as recorder:
            for _ in range(ALL):
                model(torch.ones(2, 8, dtype=dtype)).sum().backward()
                optimizer.step()
                recorder.step()
        return open_trace(tmp_path / str(dtype) / "gradients").manifest.dtype

    assert (recorded(torch.bfloat16), recorded(torch.float32)) == ("bf16", "fp32")
    with pytest.raises(OptionError, match=r"is held in torch\.float64: the recorder takes"):
        recorded(torch.float64)


def test_a_parameter_without_elements_is_refused_before_anything_runs(tmp_path):
    model = nn.Linear(8, 4)
    model.nothing = nn.Parameter(torch.zeros(0, 3))
    with pytest.raises(OptionError, match="the parameter nothing has no element"):
        JobRecorder(model, tmp_path / "mine", batch=2)


def test_an_optimizer_that_sends_parameters_is_no_compute(tmp_path):
    class ZeroRedundancyOptimizer(torch.optim.SGD):
        """Stands for PyTorch's, which needs a process group."""

    model = Slow()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), 1e-3)
    recorder = JobRecorder(model, tmp_path / "mine", batch=2, steps=1)
    while recorder.steps_left:
        train(model, optimizer, 0)
        recorder.step()
    with pytest.raises(S2SimError, match="ZeroRedundancyOptimizer sends parameters in its step"):
        recorder.close()


@pytest.mark.parametrize("given", [{"batch": 0}, {"batch": 1, "steps": 0}, {"batch": 1, "gradient_steps": 0}])
def test_numbers_below_1_are_refused(tmp_path, given):
    with pytest.raises(OptionError, match="is less than 1"):
        JobRecorder(Model(), tmp_path / "mine", **given)


def test_a_folder_that_holds_something_stays(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine", "utf-8")
    with pytest.raises(S2SimError, match="is not empty"):
        JobRecorder(Model(), tmp_path / "mine", batch=1)


def test_both_a_trace_and_a_recorded_job_are_too_many(capsys):
    assert main(["run", "--recorded", "x", "--trace", "ncf", "--topology", "tcp-10g", "--workers", "2"]) == 2
    assert "both name a trace" in capsys.readouterr().err


@pytest.mark.parametrize(("size", "discipline"), [(None, None), (25 << 20, None), (1 << 20, "ddp:bucket=1048576B")])
def test_buckets_are_those_of_the_job(size, discipline):
    assert RecordedJob(0.1, 2, "h", "CPU", "2", size).discipline == discipline


# PyTorch alone, in a script without a recorder, sometimes aborts as the interpreter ends ("terminate called without an
# active exception"): programs end once all is checked and written.
PROGRAM = """
import os, sys, torch, torch.distributed as dist
from torch import nn
from s2sim.pytorch import JobRecorder
dist.init_process_group(*sys.argv[2:])
torch.manual_seed(0)
rank = dist.get_rank()
ddp = nn.parallel.DistributedDataParallel(nn.Linear(6, 2), bucket_cap_mb=1)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.0)
with JobRecorder(ddp, sys.argv[1], batch=3, steps=1) as recorder:
    for step in range(9):
        ddp(torch.full((3, 6), 1.0 + rank)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        recorder.step()
dist.destroy_process_group()
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", [[], ["gloo"], ["cpu:gloo"]])
def test_ranks_keep_what_they_had_before_it_was_reduced(tmp_path, backend):
    (tmp_path / "loop.py").write_text(PROGRAM, "utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", "loop.py", "mine"]
    subprocess.run([*launch, *backend], cwd=tmp_path, check=True, timeout=120, capture_output=True)
    trace = open_trace(tmp_path / "mine" / "gradients")
    assert sorted(each.name for each in (tmp_path / "mine").iterdir()) == ["gradients", "job.json", "profile.toml"]
    for rank in range(2):
        weight, bias = (to_dense(layer) for layer in trace.gradient(0, rank).layers)
        assert np.array_equal(weight, np.full((2, 6), 3.0 * (1 + rank), np.float32))
        assert np.array_equal(bias, [3, 3])
    job = RecordedJob.read(str(tmp_path / "mine"))
    assert (job.bucket_bytes, job.backend) == (1 << 20, "gloo")


WITH_BUFFERS = """
import os, sys, torch, torch.distributed as dist
from contextlib import nullcontext
from torch import nn
from s2sim.errors import S2SimError
from s2sim.pytorch import JobRecorder
dist.init_process_group("gloo")
rank, how = dist.get_rank(), sys.argv[2]
batches = [torch.randn(8, 16, generator=torch.Generator().manual_seed(2 * each + rank)) for each in range(40)]

def train(recorder):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    try:
        with recorder(ddp) as recording:
            for step in range(20):
                with ddp.no_sync() if how == "accumulated" else nullcontext():
                    ddp(batches[2 * step]).square().sum().backward()
                if how in ("accumulated", "alone, twice"):
                    ddp(batches[2 * step + 1]).square().sum().backward()
                nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                if recording is not None:
                    recording.step()
    except S2SimError as error:
        print(error)
    return [each.clone() for each in (*ddp.parameters(), *ddp.buffers())]

plain = train(lambda ddp: nullcontext())
alone = how.startswith("alone")
recorded = train(lambda ddp: JobRecorder(ddp, sys.argv[1], batch=8, steps=3, alone=alone, network=True))
assert all(map(torch.equal, plain, recorded)), how
dist.destroy_process_group()
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["alone", "alone, twice", "accumulated", "plain"])
def test_a_recorded_training_ends_with_the_same_bits(how, tmp_path):
    """Also of steps whose gradients the recorder averages, of the loop's own no_sync, and of buffers.

    Mini-batches of a step that were each all-reduced are refused in the end.
    """
    (tmp_path / "loop.py").write_text(WITH_BUFFERS, "utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", "loop.py"]
    ran = subprocess.run([*launch, "mine", how], check=False, cwd=tmp_path, timeout=120, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    if how == "alone, twice":
        refused = "2 mini-batches of a step were each all-reduced, and one alone would be predicted: use no_sync()"
        assert refused in ran.stdout
        assert not (tmp_path / "mine").exists()
        return
    assert not ran.stdout
    job = RecordedJob.read(str(tmp_path / "mine"))
    assert (job.compute_alone, job.backend, job.nodes) == (how != "plain", "gloo", (0, 0))
    assert [each.size_bytes for each in job.all_reduces[:3]] == [1024, 4096, 16384]
    assert job.parts.exposed_communication_s > 0


@pytest.mark.parametrize("module", [Model(), nn.Linear(2, 2)])
def test_steps_without_all_reduces_are_of_ddp(module, tmp_path):
    with pytest.raises(OptionError, match="alone=True is for a module in DistributedDataParallel"):
        JobRecorder(module, tmp_path / "mine", batch=1, alone=True)


def test_the_lines_of_the_document_record(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text("utf-8")
    (lines,) = [part.partition("```")[0] for part in page.split("```python\n") if "JobRecorder(" in part[:200]]
    model = nn.Linear(4, 3)
    batches = [(torch.randn(32, 4), torch.randint(3, (32,))) for _ in range(WARMUP_STEPS + 4 * 10 + 1)]
    names = {"model": model, "batches": batches, "loss": nn.functional.cross_entropy}
    exec(lines, names | {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1)})
    assert RecordedJob.read("mine").ranks == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 10**5, '{"iteration_s": 1'])
def test_a_damaged_job_is_one_line(tmp_path, text):
    (tmp_path / "job.json").write_text(text, "utf-8")
    with pytest.raises(S2SimError, match=r"job\.json"):
        RecordedJob.read(str(tmp_path))


@pytest.mark.parametrize("wrong", [{"iteration_s": float("nan")}, {"iteration_s": -1.0}, {"ranks": 0}, {"ranks": "2"}])
def test_a_job_of_no_time_or_ranks_is_refused(tmp_path, wrong):
    right = {"iteration_s": 0.1, "ranks": 2, "host": "h", "device": "CPU", "torch": "2", "bucket_bytes": None}
    (tmp_path / "job.json").write_text(json.dumps(right | wrong), "utf-8")
    with pytest.raises(S2SimError, match=r"job\.json"):
        RecordedJob.read(str(tmp_path))
