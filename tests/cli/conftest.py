import subprocess
import sys

import pytest

from s2sim.cli.main import main

# Small enough to run in a tenth of a second; row-sparse and dense layers, a lossless and a lossy reducer.
TINY = (
    "run",
    "--topology",
    "single-switch",
    "--workers",
    "4",
    "--trace",
    "synthetic:density=0.05,rows=300,width=8,dense=100",
    "--reducer",
    "union",
    "--reducer",
    "s2:rows=3,cells=2",
)


@pytest.fixture
def tiny():
    return TINY


@pytest.fixture
def s2sim(capsys):
    """Run the command line in this process; returns (exit code, standard output, standard error)."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def fails(s2sim):
    """Run the command line, check that it refuses in one line with exit code 2, and return the line."""

    def run(*arguments):
        code, out, err = s2sim(*arguments)
        assert code == 2
        assert out == ""
        assert err.startswith("s2sim: error: ")
        assert err.count("\n") == 1
        return err

    return run


@pytest.fixture
def process():
    """Run the command line in a process of its own."""

    def run(*arguments, module="s2sim", **options):
        command = [sys.executable, "-m", module, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)

    return run
