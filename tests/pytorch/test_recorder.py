"""The recorder that the documentation shows, in a training of two processes whose files are imported."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from s2sim.cli.main import main
from s2sim.gradients.gradient import RowSparse
from s2sim.gradients.read_trace import open_trace

DOCUMENT = Path(__file__).parents[2] / "docs" / "usage.md"
RANKS = 2
# Two steps that are recorded and, beside them, one model for all data whose gradient is the mean that DDP would make.
TRAINING = """
import os, sys
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(0)
make = lambda: nn.Sequential(nn.Embedding(40, 3), nn.Linear(3, 1))
model, alone = DistributedDataParallel(make()), make()
alone.load_state_dict(model.module.state_dict())
words = lambda step, rank: torch.tensor([step, 10 * rank + 5, 30])
for step in range(2):
    with model.no_sync():
        model(words(step, rank)).sum().backward()
    record(model, step)
    sum(alone(words(step, other)).sum() / 2 for other in range(2)).backward()
    for own, mean in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(own.grad, mean.grad)
    model.zero_grad(), alone.zero_grad()
dist.barrier()
dist.destroy_process_group()
# Threads of PyTorch's own now and then abort a process that ends in the usual way.
os._exit(0)
"""


def recorder():
    """Return the Python block of the document that defines ``record``."""
    blocks = DOCUMENT.read_text("utf-8").split("```python\n")[1:]
    (found,) = [block.split("```")[0] for block in blocks if "def record(" in block]
    return found


def test_the_recorder_is_ten_lines():
    lines = [line for line in recorder().splitlines() if line]
    assert len(lines) <= 10


@pytest.mark.slow
def test_what_the_recorder_saves_is_imported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # A machine without a network still has itself.
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    (tmp_path / "train.py").write_text(recorder() + TRAINING)
    started = [
        subprocess.Popen([sys.executable, "train.py", str(rank), str(tmp_path / "meeting")], stderr=subprocess.PIPE)
        for rank in range(RANKS)
    ]
    for process in started:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error.decode()
    files = sorted(map(str, tmp_path.glob("step*-rank*.pt")))
    assert main(["trace", "import", *files, "--out", "mine"]) == 0
    assert "wrote 2 ranks x 2 steps to mine" in capsys.readouterr().out
    trace = open_trace(tmp_path / "mine")
    assert trace.gradient(0, 0).names == ("0.weight", "1.weight", "1.bias")
    for step in range(2):
        for rank in range(RANKS):
            table, _, bias = trace.gradient(step, rank).layers
            assert isinstance(table, RowSparse)
            assert table.rows.tolist() == sorted([step, 10 * rank + 5, 30])
            np.testing.assert_array_equal(bias, [3.0])
