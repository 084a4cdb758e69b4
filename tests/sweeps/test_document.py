"""The page on sweeps: its study and its commands, those of batch systems too, run as they are written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from s2sim.sweeps.store import SweepResult

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def shell(text, folder, **variables):
    command = ["bash", "-e", "-c", f's2sim() {{ "{sys.executable}" -m s2sim "$@"; }}\n{text}']
    return subprocess.run(command, check=False, cwd=folder, env=os.environ | variables, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "study.toml").write_text(blocks("toml")[0])
    return tmp_path


def test_the_commands_run(folder):
    elsewhere = ("#!/bin/bash", "--dask", "merge")
    commands = [block for block in blocks("bash") if not any(word in block for word in elsewhere)]
    for block in commands:
        ran = shell(block, folder)
        assert ran.returncode == 0, ran.stderr
    result = SweepResult.load(folder / "rates")
    assert result.counts == {"done": 9}
    assert len((folder / "rates.csv").read_text().splitlines()) == 1 + 9 * 4


def test_shards_of_batch_systems_make_the_whole(folder):
    (array,) = [block for block in blocks("bash") if "SLURM_ARRAY" in block]
    count = int(re.search(r"--array=1-(\d+)", array)[1])
    # Two tasks instead of as many show the same.
    tasks = 2
    assert f"/{count}\n" in array
    for number in range(1, tasks + 1):
        part = array.replace(f"/{count}\n", f"/{tasks}\n")
        assert shell(part, folder, SLURM_ARRAY_TASK_ID=str(number)).returncode == 0
    assert shell("s2sim sweep merge rates", folder).returncode == 0
    (pod,) = blocks("yaml")
    assert int(re.search(r"completions: (\d+)", pod)[1]) == count
    command = re.search(r'command: \["sh", "-c", "(.*)"\]', pod)[1].replace("/results", "results")
    assert command.endswith(f"/{count}")
    command = command.removesuffix(str(count)) + str(tasks)
    for number in range(tasks):
        assert shell(command, folder, JOB_COMPLETION_INDEX=str(number)).returncode == 0
    assert shell("s2sim sweep merge results", folder).returncode == 0
    assert SweepResult.load(folder / "rates").to_csv() == SweepResult.load(folder / "results").to_csv()


@pytest.mark.skipif(not __import__("importlib.util").util.find_spec("distributed"), reason="needs the extra cluster")
def test_the_slurm_job_with_dask_runs(folder):
    (job,) = [block for block in blocks("bash") if "dask scheduler" in block]
    tools = f'srun() {{ "$@"; }}\ndask() {{ exec "{sys.executable}" -m dask "$@"; }}\nuntil_there() {{ :; }}\n'
    ran = shell(tools + job + "\nkill $(jobs -p) || true\n", folder)
    assert ran.returncode == 0, ran.stderr
    assert SweepResult.load(folder / "rates").counts == {"done": 9}
