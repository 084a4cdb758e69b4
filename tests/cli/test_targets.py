import itertools
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
RUN = ("run", "--topology", "single-switch", "--workers", "4")
COLLECTIVE = ("collective", "barrier", "--topology", "single-switch", "--workers", "4")
OUTPUTS = {
    RUN: ("--json", "--png", "--timeline"),
    COLLECTIVE: ("--json", "--png", "--timeline", "--goal"),
    ("flows", "transfers.csv", "--topology", "single-switch"): ("--json", "--out"),
    ("regimes",): ("--json", "--png"),
    ("topology", "show", "single-switch"): ("--json", "--png"),
}
SINGLE = {**OUTPUTS, ("list",): ("--json",), ("trace", "show", "ncf"): ("--json",)}


@pytest.mark.parametrize(
    ("command", "first", "second"),
    [(command, *pair) for command, options in OUTPUTS.items() for pair in itertools.combinations(options, 2)],
)
def test_two_outputs_of_one_path_are_refused(command, first, second, fails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The same file, by two names.
    found = fails(*command, first, "both.svg", second, tmp_path / "both.svg")
    assert "would be written twice" in found
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "option"), [(command, option) for command, options in SINGLE.items() for option in options]
)
@pytest.mark.parametrize(
    ("target", "reason"),
    [("", "names no file"), ("here", "is a directory"), ("no/x.svg", "there is no directory"), ("/proc/x.svg", "")],
)
def test_what_cannot_be_written_is_refused_before_anything_is_computed(
    command, option, target, reason, fails, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    found = fails(*command, option, target)
    assert option in found
    assert reason in found
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_file_that_is_there_already_is_tried_and_left_as_it_is(s2sim, tmp_path):
    target = tmp_path / "there.json"
    target.write_text("before")
    assert s2sim("topology", "show", "none", "--json", target)[0] == 2
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "arguments",
    [(*COLLECTIVE, "--json", "/dev/full"), (*COLLECTIVE, "--goal", "/dev/full"), ("list", "--json", "/dev/full")],
)
def test_a_full_disk_is_told_in_one_line(arguments, s2sim):
    code, _, err = s2sim(*arguments)
    assert (code, err) == (2, "s2sim: error: cannot write /dev/full: No space left on device\n")


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "arguments", [("list", "gpus"), pytest.param(("list", "gpus", "--json", "-"), marks=pytest.mark.slow)]
)
def test_a_full_standard_output_is_told_in_one_line(arguments):
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "s2sim", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "s2sim: error: cannot write the output: No space left on device\n"
