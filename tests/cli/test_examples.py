"""The examples under every --help run as they are printed."""

import gzip
import importlib.util
import json
import shlex
from pathlib import Path
from shutil import copy

import numpy as np
import pytest
from typer.main import get_command

from s2sim.cli.main import app
from s2sim.files import data_directory


def examples(command, name="s2sim"):
    """Return (command, its example lines) of a command and of all below it."""
    lines = [line for line in (command.epilog or "").splitlines() if line.startswith("s2sim ")]
    found = [(name, lines)]
    for child, below in getattr(command, "commands", {}).items():
        found += examples(below, f"{name} {child}")
    return found


EXAMPLES = dict(examples(get_command(app)))
GOLDEN = (Path(__file__).parents[1] / "golden" / "commands.txt").read_text("utf-8").splitlines()
# Training takes its time and an extra.
RECORD = "s2sim trace record"
RECORD_PROFILE = "s2sim profile record"
TRAIN = "s2sim train"
# A minute and more each; tests/study/papers and tests/pytorch rebuild papers one by one.
PAPERS = ("s2sim paper s2-reducer", "s2sim paper dgc", "s2sim paper does-it-pay", "s2sim paper all")
# It serves until somebody stops it; tests/cli/test_explore.py asks what it serves.
EXPLORE = "s2sim explore"
# Seconds each, even without those that are slow one by one.
HEAVY = {"s2sim run", "s2sim dev validate", "s2sim dev calibrate", "s2sim regimes", "s2sim collective", "s2sim advise"}
# Rates and mini-batches at which iterations gain are looked for in tests/study.
NO_SCAN = "--no-break-even"
# What takes seconds runs with fewer ranks, steps and gradients: of an option that is given twice the last holds.
SMALLER = {
    "s2sim run --topology dgx-a100 --workers 64 --profile gpt2 --discipline ddp --reducer fp16 --reducer powersgd": (
        f"--workers 8 --profile resnet-18 {NO_SCAN}"
    ),
    "s2sim run --topology dgx-h100 --workers 64 --profile gpt2 --groups tp=8,dp=rest --accumulate 8 --reducer fp16": (
        f"--workers 16 --accumulate 2 {NO_SCAN}"
    ),
    "s2sim run --topology leaf-spine --workers 8,16,32 --profile resnet-50 --batch 64 --reducer fp16": (
        f"--workers 4,8 --profile resnet-18 {NO_SCAN}"
    ),
    "s2sim run --topology fat-tree,leaf-spine,dgx-h100 --workers 16": "--workers 8 --trace ncf",
    "s2sim run --topology leaf-spine --workers 32 --set nic.rate=25Gbps --max-error 0.1 --json result.json": (
        "--workers 8 --trace ncf"
    ),
    "s2sim run --topology single-switch --workers 16 --trace synthetic:density=0.01,overlap=0.5,tail=2.5 --json -": (
        "--workers 4"
    ),
    "s2sim run --topology fat-tree --workers 64 --library nccl:or=owners --show lowering": (
        f"--workers 8 --trace ncf {NO_SCAN}"
    ),
    "s2sim run --topology fat-tree --workers 8 --trace lstm-lm --show pareto --png pareto.png": (
        f"--trace ncf {NO_SCAN}"
    ),
    "s2sim run --topology fat-tree --workers 8 --trace lstm-lm --show pareto": f"--trace ncf {NO_SCAN}",
    "s2sim run --topology tcp-10g --workers 8,16,32 --reducer union --reducer s2:rows=3,cells=2": (
        "--workers 4,8 --trace ncf"
    ),
    "s2sim run --topology fat-tree --workers 128 --trace ncf --reducer union --scale-to 350M": "--workers 66",
    "s2sim run --topology fat-tree --workers 16 --fault slow-rank:rank=3,factor=2 --fault jitter:latency=5us": (
        "--workers 4 --trace ncf"
    ),
    "s2sim run --topology fat-tree --workers 4 --trace lstm-lm-steps --steps 12 --reducer topk --reducer s2:cells=2": (
        "--workers 2 --steps 3"
    ),
    # tests/study/test_all.py runs every reducer, tests/golden too.
    "s2sim run --topology fat-tree --workers 16 --reducer all": (
        f"--workers 2 --trace synthetic:density=0.1,rows=200,width=8,dense=100 {NO_SCAN}"
    ),
}
# They need root; tests/testbed runs them apart from the machine's own testbeds.
TESTBED = "s2sim dev testbed"
# They need an extra; tests/pytorch and tests/study/test_recorded.py run them.
BRIDGE, CODECS = "s2sim dev bridge", "s2sim dev calibrate codecs"
COMMANDS = [
    name
    for name in EXAMPLES
    if name not in {RECORD, RECORD_PROFILE, TRAIN, EXPLORE, CODECS} and not name.startswith((TESTBED, BRIDGE))
]
# These take over a third of a second each; no line but a slow one reads what they write.
SLOW = {
    "s2sim dev validate",
    "s2sim dev validate --iterations",
    "s2sim run --topology fat-tree --workers 64",
    "s2sim run --topology leaf-spine --workers 32 --set nic.rate=25Gbps --max-error 0.1 --json result.json",
    "s2sim run --topology fat-tree --workers 64 --library nccl:or=owners --show lowering",
    "s2sim run --topology fat-tree --workers 16 --fault slow-rank:rank=3,factor=2 --fault jitter:latency=5us",
    "s2sim run --topology fat-tree --workers 4 --trace lstm-lm-steps --steps 12 --reducer topk --reducer s2:cells=2",
    "s2sim run --spec result.json",
    "s2sim run --topology single-switch --workers 16 --trace synthetic:density=0.01,overlap=0.5,tail=2.5 --json -",
    "s2sim run --topology fat-tree --workers 8 --trace lstm-lm --show pareto",
    "s2sim run --topology fat-tree --workers 8 --trace lstm-lm --show pareto --png pareto.png",
    "s2sim run --topology tcp-10g --workers 8,16,32 --reducer union --reducer s2:rows=3,cells=2",
    "s2sim sweep study.toml --out rates",
    "s2sim collective table all_reduce --topology dgx-h100 --workers 16 --library nccl --from 8B --to 1GiB",
    (
        "s2sim collective table all_reduce --topology dgx-h100 --workers 16 --library nccl --from 1KiB --to 1GiB "
        "--tuner nccl_tuner.conf"
    ),
    "s2sim profile show vgg-16 --png vgg-16.png",
    "s2sim list reducers --table",
    "s2sim topology show fat-tree --workers 1024 --png fat-tree.png",
    (
        "s2sim regimes --workers 16 --density 0.01,0.1 --overlap 0.5 --reducer union --reducer owner-reduce "
        "--reducer fp16 --library nccl --png regimes.png"
    ),
}


def lines_of_its_own(name):
    """Return a command's examples without those of tests/golden; a group's help repeats some of its commands."""
    below = {line for other in EXAMPLES if other.startswith(f"{name} ") for line in EXAMPLES[other]}
    return [
        line
        for line in EXAMPLES[name]
        if line not in below
        and line.removeprefix("s2sim ").removesuffix(" --json -") not in GOLDEN
        and not line.startswith((RECORD, RECORD_PROFILE, TRAIN, EXPLORE, *PAPERS))
    ]


@pytest.fixture
def own_files(tmp_path, monkeypatch, profiler_step):
    """Change to a directory with the files of their own that users are told to name."""
    monkeypatch.chdir(tmp_path)
    for rank in range(2):
        for name in (f"rank{rank}", f"step0-rank{rank}", f"step1-rank{rank}"):
            np.save(tmp_path / f"{name}.npy", np.arange(6, dtype=np.float32) + rank)
    steps = json.dumps({"traceEvents": [event for number in range(3) for event in profiler_step(number)]})
    (tmp_path / "trace.json").write_text(steps)
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(steps.encode()))
    (tmp_path / "measured.log").write_text(
        "# Collective test starting: all_reduce_perf\n"
        "#   Rank  0 Pid 1 on a device  0 [0x18] H100\n#   Rank  1 Pid 2 on a device  1 [0x2a] H100\n"
        "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
        "1048576  262144  float  sum  -1  21.50  48.77  48.77  0  21.40  49.00  49.00  0\n"
    )
    (tmp_path / "study.toml").write_text(
        '[base]\ntopology = "leaf-spine"\nreducers = ["union", "fp16"]\n'
        'trace = "synthetic:density=0.05,rows=300,width=8,dense=100"\n[axes]\nworkers = [2, 4, 8, 16]\n'
    )
    (tmp_path / "changes.toml").write_text(
        '[[change]]\nname = "rate"\noptions = [{ "nic.rate" = "100Gbps", price = "500 USD/node" }]\n'
    )
    (tmp_path / "topo.xml").write_text(
        '<system version="1"><cpu><pci busid="1" device="0x2330"><gpu sm="90"/></pci>'
        '<nic><net name="mlx5_0" speed="400000"/></nic></cpu></system>'
    )
    (tmp_path / "topo.txt").write_text("GPU0 GPU1 NIC0\nGPU0 X NV18 PIX\nGPU1 NV18 X SYS\n")
    (tmp_path / "transfers.csv").write_text("start_s,src,dst,bytes\n0,0,4,1000000\n1e-5,0,8,500000\n")
    header, *rows = (data_directory("measured/curves") / "index.csv").read_text().splitlines()
    (line,) = [line for line in rows if line.startswith("hkbu_osu_latency_10gbe,")]
    (tmp_path / "my-curves").mkdir()
    (tmp_path / "my-curves" / "index.csv").write_text(f"{header}\n{line}\n")
    copy(data_directory("measured/curves") / "hkbu_osu_latency_10gbe.csv", tmp_path / "my-curves")


def commands():
    """Yield each command with the lines to leave out: those that take seconds, but in the slow tests none."""
    for name in COMMANDS:
        if name not in HEAVY:
            yield pytest.param(name, SLOW, id=f"{name}-quick")
            if SLOW.isdisjoint(lines_of_its_own(name)):
                continue
        yield pytest.param(name, set(), id=name, marks=pytest.mark.slow)


@pytest.mark.usefixtures("own_files", "one_validation")
@pytest.mark.parametrize(("name", "left_out"), list(commands()))
def test_examples_of_a_help_run(name, left_out, s2sim):
    assert EXAMPLES[name]
    if name == "s2sim diff":
        for path in ("before.json", "after.json"):
            s2sim("run", "--topology", "leaf-spine", "--workers", 2, "--reducer", "union", "-q", "--json", path)
    if name == "s2sim results":
        s2sim("sweep", "study.toml", "--out", "rates", "--jobs", 1)
    for line in lines_of_its_own(name):
        if line not in left_out:
            words = shlex.split(f"{line} {SMALLER.get(line, '')}")[1:]
            code, out, err = s2sim(*words)
            assert (code, err) == (0, ""), line
            assert out or "--quiet" in words, line


def test_slow_examples_stand_in_a_help():
    assert {line for lines in EXAMPLES.values() for line in lines} >= SLOW | SMALLER.keys()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra torch")
def test_the_examples_of_record_are_understood(s2sim, monkeypatch):
    seen = []

    def record(model, *, workers, text, out, **_):
        seen.append((model, workers, text, out))
        raise KeyboardInterrupt

    monkeypatch.setattr("s2sim.pytorch.record_trace.record", record)
    for line in EXAMPLES[RECORD]:
        assert s2sim(*shlex.split(line)[1:])[0] == 130
    assert seen == [("lstm", 64, ["my-text.txt"], "my-trace"), ("ncf", 8, [], "clicks")]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra torch")
def test_the_examples_of_train_are_understood(s2sim, monkeypatch):
    seen = []

    def train(spec, _, *, out, resume):
        seen.append((spec.model, spec.seeds, out and out.name, resume))
        raise KeyboardInterrupt

    monkeypatch.setattr("s2sim.training.run.train", train)
    for line in EXAMPLES[TRAIN]:
        assert s2sim(*shlex.split(line)[1:])[0] == 130
    runs = ("lstm", 3, "lstm-run", False), ("lstm", 3, "lstm-run", True)
    assert seen == [("cnn", 2, None, False), *runs, ("ncf", 3, None, False)]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra torch")
def test_the_examples_of_recording_profiles_are_understood(s2sim, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    seen = []

    def record(*, name, model, module, batch, device, precision, **_):
        seen.append((name, model, module, batch, device, precision))
        raise KeyboardInterrupt

    monkeypatch.setattr("s2sim.pytorch.record_profile.record_profile", record)
    for line in EXAMPLES[RECORD_PROFILE]:
        assert s2sim(*shlex.split(line)[1:])[0] == 130
    assert seen == [
        ("cnn", "cnn", None, None, "cpu", "fp32"),
        ("lstm", "lstm:width=512", None, 64, "cuda", "fp32"),
        ("resnet-50-here", "resnet-50", None, 64, "cuda", "bf16"),
        ("mine", None, "train.py:make", 32, "cuda", "fp32"),
    ]
