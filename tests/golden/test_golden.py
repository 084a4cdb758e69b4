"""Numbers, names and errors of the commands in ``commands.txt``, as they were when last looked at.

``S2SIM_RENEW_GOLDEN=1 pytest -m '' tests/golden`` writes what commands say now over what was expected. Look at what
differs first: without the variable the tests say so. A new command is a new line at the end.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import shlex
import shutil
from pathlib import Path

import pytest

from s2sim.cli.main import main

HERE = Path(__file__).parent
WITHIN = 1e-9
# What was read and with what, and sentences made of the numbers that are compared.
LEFT_OUT = frozenset(
    (
        "schema_version",
        "provenance",
        "spec_sha256",
        "cluster",
        "gradients",
        "notes",
        "why",
        "lower_bound_why",
        "bottleneck",
        "text",
        "summary",
        "description",
        "source",
        "law",
        "hold_out",
        "did",
        "machines",
    )
)


def case(number, command):
    takes_seconds = command.startswith(("run ", "codec ")) or "--workers 256" in command
    return pytest.param(number, command, marks=[pytest.mark.slow] if takes_seconds else [])


COMMANDS = (HERE / "commands.txt").read_text("utf-8").splitlines()
CASES = [case(number, command) for number, command in enumerate(COMMANDS, start=1)]


def kept(value):
    """Return a JSON value without what is left out."""
    if isinstance(value, dict):
        return {key: kept(item) for key, item in value.items() if key not in LEFT_OUT}
    return [kept(item) for item in value] if isinstance(value, list) else value


def differences(expected, found, at="result"):
    """Yield where two JSON values differ: numbers by more than they may, the rest at all."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        for key, item in expected.items():
            yield from differences(item, found[key], f"{at}.{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, pair in enumerate(zip(expected, found, strict=True)):
            yield from differences(*pair, f"{at}[{number}]")
    elif not same(expected, found):
        yield f"{at}: {expected!r:.200} was expected, found {found!r:.200}"


def same(expected, found):
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (expected, found))
    if numbers:
        return math.isclose(expected, found, rel_tol=WITHIN, abs_tol=1e-12)
    return expected == found


@pytest.mark.parametrize(("number", "command"), CASES)
def test_a_command_says_what_it_said(number, command, tmp_path, monkeypatch, capsys):
    shutil.copy(HERE / "transfers.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main([*shlex.split(command), "--json", "found.json"]) == 0, capsys.readouterr().err
    found = kept(json.loads(Path("found.json").read_text("utf-8")))
    path = HERE / "expected" / f"{number:02}.json.gz"
    if os.environ.get("S2SIM_RENEW_GOLDEN"):
        path.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
        return
    assert list(differences(json.loads(gzip.decompress(path.read_bytes())), found)) == []


def test_a_difference_is_found():
    expected = {"time_s": [1.0, 2], "algorithm": "ring", "assisted": False, "closed_form_s": None}
    assert list(differences(expected, {**expected, "time_s": [1 + 1e-10, 2.0]})) == []
    for changed in (
        {"time_s": [1 + 1e-8, 2]},
        {"time_s": [1.0]},
        {"algorithm": "pat"},
        {"assisted": 0.5},
        {"closed_form_s": 0.0},
    ):
        assert len(list(differences(expected, {**expected, **changed}))) == 1
    assert len(list(differences(expected, {"algorithm": "ring"}))) == 1
