"""``s2sim notebook`` starts the shipped notebook, or says what is missing."""

import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

from s2sim.files import data_directory


@pytest.fixture
def started(monkeypatch):
    """Return the commands that were started, none of which runs."""
    commands = []

    def run(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(util, "find_spec", lambda _: object())
    return commands


def test_the_notebook_is_started_with_what_was_asked(s2sim, started):
    code, out, err = s2sim(
        "notebook", "--topology", "ring", "--library", "nccl:or=owners", "--headless", "--port", "4321"
    )
    assert (code, out, err) == (0, "", "")
    ((python, *words),) = started
    assert python == sys.executable
    assert words[:4] == ["-m", "marimo", "run", "--token"]
    assert Path(words[4]) == data_directory("notebooks") / "does_s2_pay.py"
    assert Path(words[4]).is_file()
    assert words[5:9] == ["--headless", "--port", "4321", "--"]
    assert words[9:] == ["--topology=ring", "--workers=16", "--trace=lstm-lm", "--library=nccl:or=owners"]


def test_without_marimo_the_extra_is_named(s2sim, monkeypatch):
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "marimo" else object())
    code, out, err = s2sim("notebook")
    assert (code, out) == (2, "")
    assert err == "s2sim: error: the notebook needs marimo: pip install 's2sim[notebook]'\n"
