"""The trainings that README and the page on hooks show."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]


def blocks(document):
    return [block.split("```")[0] for block in (ROOT / document).read_text("utf-8").split("```python\n")[1:]]


def test_the_trainings_that_are_shown_learn_go_on_and_refuse_what_does_not_fit(hook_job, tmp_path):
    page, own_loop = blocks("docs/hook.md")
    scripts = [([], page), ([], f"{page}\n{own_loop}"), (["topk:density=0.01"], page)]
    ranks = hook_job("pages_job", folder=str(tmp_path), scripts=scripts)
    losses = [float(text) for out, _ in ranks[0] for text in re.findall(r"loss ([\d.]+)", out)]
    assert len(losses) == 2
    # Guessing the more frequent answer costs about 0.64.
    assert losses[1] < losses[0] < 0.62
    assert {path.name for path in tmp_path.glob("*.pt")} == {"rank0.pt", "rank1.pt"}
    for rank in ranks:
        assert [said for _, said in rank[:-1]] == [None] * 2
        assert "the saved state is of reducer s2:rows=3,cells=4,ef=true" in rank[-1][1]


def test_the_lines_of_the_readme_run_as_it_says(tmp_path):
    (script,) = [block for block in blocks("README.md") if "register_comm_hook" in block]
    assert len([line for line in script.splitlines() if line]) <= 10
    # Both processes write to one pipe, each in one piece.
    line = "f'norm {model.module[1].bias.grad.item()} {state.reducer}\\n'"
    (tmp_path / "train.py").write_text(f"{script}\nprint({line}, end='')\n")
    found = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    # Both ranks have the same gradient.
    lines = re.findall(r"norm (.*)", found.stdout)
    assert len(lines) == 2
    assert len(set(lines)) == 1
    assert lines[0].endswith("s2:rows=3,cells=4,ef=true")
