"""``s2sim dev testbed run``: refusals of one line, and a network made, measured and removed where root may."""

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from s2sim.cli.main import main
from s2sim.testbed.measured import read_measured
from s2sim.testbed.series import choose_layouts

TRAINING = ["--workers", "2", "--what", "training", "--model", "cnn"]
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs the extra torch")
needs_a_testbed = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("tc") is None or find_spec("torch") is None,
    reason="needs root, iproute2 and the extra torch",
)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give the name of a testbed, or --workers, or --nodes"),
        (["--workers", "2", "--nodes", "2x4"], "give the name of a testbed, or --workers, or --nodes"),
        (["mine", "--rate", "1Gbps"], "--rate is of testbeds that are made, and mine is one that is up"),
        (["--workers", "2", "--rate", "1"], "--rate: rate '1' has no unit"),
        (["--workers", "2", "--uplink", "1Gbps"], "--uplink 1Gbps changes nothing without --nodes"),
        (["--nodes", "2,4"], "--nodes '2,4': write nodes x workers of each"),
        (["--workers", "2", "--sizes", "big"], "--sizes: 'big' is not a size"),
        (["--workers", "2", "--what", "all"], "--what 'all' is nothing that is measured"),
        (["--workers", "2", "--reducer", "unoin"], "did you mean 'union'"),
        (["--workers", "2", "--budget", "2"], "--budget: time '2' has no unit"),
        (["--workers", "2", "--what", "training"], "--what training needs --module FILE.py:FUNCTION or --model NAME"),
        (["--workers", "2", "--model", "cnn"], "--model and --module are of --what training: add that"),
        ([*TRAINING, "--reducer", "torch:fp32"], "PyTorch's own are torch:fp16 and torch:powersgd:rank=N"),
        ([*TRAINING, "--reducer", "torch:fp16:rank=2"], "--reducer torch:fp16:rank=2: PyTorch's own are"),
        ([*TRAINING, "--reducer", "torch:powersgd:rank=x"], "PyTorch's own are"),
        ([*TRAINING, "--reducer", "embrace"], "leaves every rank with its own part of the gradient"),
        ([*TRAINING, "--reducer", "torch:powersgd:rank=0"], "PyTorch's own are"),
        (["--workers", "2", "--batch", "8"], "--batch and --text are of --what training"),
        pytest.param(
            ["--workers", "2", "--what", "training", "--model", "lstm"], "name a file with --text", marks=needs_torch
        ),
        ([*TRAINING, "--bucket", "1"], "--bucket: size '1' has no unit"),
    ],
)
def test_what_cannot_be_is_one_line(arguments, told, tmp_path, capsys):
    assert main(["dev", "testbed", "run", *arguments, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert told in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out
    assert not (tmp_path / "out").exists()


def test_a_series_is_every_pair_of_counts_and_rates():
    found = choose_layouts(None, workers=(2, 4), rate="200Mbps,2.5Mbps", nodes=None, uplink=None)
    assert [(layout.name, layout.workers, layout.rate_Bps) for layout in found] == [
        ("w2-200mbps", 2, 25e6),
        ("w2-2-5mbps", 2, 312500.0),
        ("w4-200mbps", 4, 25e6),
        ("w4-2-5mbps", 4, 312500.0),
    ]
    (alike,) = choose_layouts(None, workers=(), rate="1Gbps", nodes="2x4", uplink=None)
    assert alike.uplink_Bps == alike.rate_Bps == 125e6
    (nodes,) = choose_layouts(None, workers=(), rate="1Gbps", nodes="2x4", uplink="500Mbps")
    assert (nodes.name, nodes.workers, nodes.nodes, nodes.uplink_Bps) == ("w8-n2-1000mbps-500mbps", 8, 2, 62.5e6)


def run_on(megabits):
    """Return the command for two workers at about a rate: another run of these tests has another testbed."""
    return ["dev", "testbed", "run", "--workers", "2", "--rate", f"{megabits}.{os.getpid() % 1000:03}Mbps"]


@pytest.mark.slow
@needs_a_testbed
def test_a_network_is_made_measured_and_removed(tmp_path, capsys):
    folder = tmp_path / "out"
    asked = [*run_on(77), "--collective", "all_reduce", "--sizes", "4KiB,1MiB"]
    asked += ["--repeats", "3", "--what", "collectives,iterations", "--reducer", "union", "--trace", "cnn"]
    asked += ["--compute", "20ms", "--out", str(folder)]
    assert main([*asked, "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = read_measured(folder)
    assert [row["median_s"] for row in told["collectives"]] == [row.median_s for row in found.collectives]
    (name,) = [setting.name for setting in found.settings]
    assert name.startswith("w2-77")
    small, large = found.collectives
    assert (small.payload_bytes, large.payload_bytes) == (4096, 2**20)
    # Each of two ranks sends half of the buffer twice; what is shaped is that and headers.
    assert 2**20 / 9.625e6 < large.low_s < 1.5 * 2**20 / 9.625e6
    (iteration,) = found.iterations
    assert iteration.low_s > iteration.compute_s == 0.02
    assert main(asked) == 0
    assert "0 new rows" in capsys.readouterr().out
    assert not [path for path in Path("/var/run/netns").iterdir() if name in path.name]


MODEL = """
from torch import nn, optim, randn

def make(batch, device):
    module = nn.Sequential(nn.Linear(64, 1000), nn.ReLU(), nn.Linear(1000, 64)).to(device)
    optimizer = optim.SGD(module.parameters(), 1e-3)
    return module, lambda step: module(randn(batch, 64, device=device)).square().mean(), optimizer
"""


@pytest.mark.slow
@needs_a_testbed
def test_training_is_recorded_measured_and_predicted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MODEL, "utf-8")
    asked = [*run_on(50), "--what", "training", "--module", "mine.py:make"]
    asked += ["--batch", "8", "--repeats", "3", "--out", "out"]
    hooks = ["dense", "fp16", "topk:density=0.01", "torch:fp16", "torch:powersgd:rank=2"]
    named = [word for hook in hooks for word in ("--reducer", hook)]
    assert main([*asked, *named, "-q"]) == 0
    measured = read_measured(Path("out"))
    dense, fp16, _, own, powersgd = measured.training
    assert [row.what for row in measured.training] == hooks
    parameters = 2 * 64 * 1000 + 1000 + 64
    assert {row.payload_bytes for row in measured.training} == {4 * parameters}
    # Of two ranks each sends a half twice; what Gloo frames it with is little.
    assert 4 * parameters <= dense.sent_bytes < 1.01 * 4 * parameters
    assert abs(fp16.sent_bytes / dense.sent_bytes - 0.5) < 0.01
    assert abs(own.sent_bytes / fp16.sent_bytes - 1) < 0.01
    assert powersgd.sent_bytes < 0.1 * dense.sent_bytes
    # A token bucket lets a burst through at once, and nothing more.
    assert dense.low_s > 0.9 * 4 * parameters / 6.3e6
    assert fp16.codec_s > dense.codec_s == own.codec_s == 0
    (job,) = Path("out/recorded").glob("*/mine-make-batch8-bucket26214400")
    before = (job / "job.json").read_bytes()
    capsys.readouterr()
    assert main([*asked, *named]) == 0
    assert "0 new rows in out." in capsys.readouterr().out
    assert (job / "job.json").read_bytes() == before
    assert "[codec.topk]" in (job / "codecs.toml").read_text("utf-8")
    assert main(["dev", "testbed", "compare", "out", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(point["what"], point["seen"]) for point in told["points"]] == [
        (hook, hook == "dense") for hook in hooks[:3]
    ]
    # Where the link decides, prediction and measurement are near whatever else the machine does.
    assert all(abs(point["predicted_s"] / point["measured_s"] - 1) < 0.4 for point in told["points"][:2])
    assert told["calls"][0]["measured"] > 1.3
    assert told["calls"][0]["predicted"] > 1.3
    shutil.rmtree("out/recorded")
    assert main(["dev", "testbed", "compare", "out"]) == 0
    assert "3 rows of training are left out, as no recording of them is in the folder" in capsys.readouterr().out
