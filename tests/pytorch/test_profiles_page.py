"""What the page on profiles shows of one's own training: recorded, and traced by PyTorch's profiler."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from s2sim.cli.main import main
from s2sim.profiles.read import load_profile

DOCUMENT = Path(__file__).parents[2] / "docs" / "profiles.md"


@pytest.fixture
def blocks(tmp_path, monkeypatch):
    """Return the page's Python blocks but that of a job; the first is a file that the second can use."""
    monkeypatch.chdir(tmp_path)
    found = [block.split("```")[0] for block in DOCUMENT.read_text("utf-8").split("```python\n")[1:]]
    found = [block for block in found if "JobRecorder" not in block]
    (tmp_path / "train.py").write_text(found[0])
    return found


@pytest.mark.usefixtures("blocks")
def test_the_function_that_the_page_shows_is_recorded(capsys):
    words = ["--module", "train.py:make", "--batch", "32", "--steps", "2", "--out", "mine.toml"]
    assert main(["profile", "record", *words]) == 0
    capsys.readouterr()
    tensors = load_profile("mine.toml").tensors
    assert {tensor.name: tensor.sparse for tensor in tensors} == {"0.weight": True, "2.weight": False, "2.bias": False}


@pytest.mark.slow
def test_the_trace_that_the_page_shows_is_imported(blocks, tmp_path, capsys):
    first = "from train import make\n_, loss, optimizer = make(32, 'cpu')\n"
    (tmp_path / "trace.py").write_text(first + blocks[1])
    subprocess.run([sys.executable, "trace.py"], check=True, capture_output=True, timeout=120)
    assert main(["profile", "import", "trace.json.gz", "--batch", "32", "--out", "mine.toml"]) == 0
    assert "3 tensors" in capsys.readouterr().out
    assert sorted((tensor.shape, tensor.sparse) for tensor in load_profile("mine.toml").tensors) == [
        ((10,), False),
        ((10, 64), False),
        ((1000, 16), True),
    ]
