"""Numbers, texts and errors of the commands in ``commands.txt``, as they were when last looked at.

``S2SIM_RENEW_GOLDEN=1 pytest -m '' tests/golden`` writes what commands say now over what was expected. Look at what
differs first: without the variable the tests say so. A new command is a new line at the end.
"""

import gzip
import importlib.util
import json
import math
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from s2sim import __version__
from s2sim.cli.main import main

HERE = Path(__file__).parent
WITHIN = 1e-9
# Errors of compressed gradients, which float32 products of a processor's own BLAS kernels make.
ERRORS, ERRORS_WITHIN = re.compile(r"(relative_l2|cosine|error_l2|error_(compressed_)?largest)$"), 1e-5
# Which program ran, and the hashes of what it read.
LEFT_OUT = frozenset(("schema_version", "provenance", "spec_sha256"))
# What is measured on the machine of the test: times, and bytes on its interface.
MEASURED_HERE = {"dev bridge check": frozenset(("waited_s", "total_s", "interface"))}
# What a library says of a damaged file depends on its version.
OF_A_LIBRARY = re.compile(r" \(Error while deserializing.*?\)")
# These print text, not JSON.
TEXT = ("dev schema", "trace ", "collective table")
NEEDS_TORCH = ("dev bridge ",)
# A few of each kind, at most .3 s each; the others are slow tests.
QUICK = frozenset((11, 12, 25, 35, 38, 41, 54, 55, 60, 62, 70, 71, 74, 75, 77, 78, 79))
COMMANDS = (HERE / "commands.txt").read_text("utf-8").splitlines()


def case(number, command):
    without_torch = command.startswith(NEEDS_TORCH) and importlib.util.find_spec("torch") is None
    marks = [pytest.mark.skipif(without_torch, reason="needs the extra torch")]
    marks += [] if number in QUICK else [pytest.mark.slow]
    return pytest.param(number, command, marks=marks, id=f"{number:02} {command}")


def kept(value, left_out):
    """Return a JSON value without the keys that are left out."""
    if isinstance(value, dict):
        return {key: kept(item, left_out) for key, item in value.items() if key not in left_out}
    return [kept(item, left_out) for item in value] if isinstance(value, list) else value


def differences(expected, found, at="result"):
    """Yield where two JSON values differ: numbers by more than they may, the rest at all."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        for key, item in expected.items():
            yield from differences(item, found[key], f"{at}.{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, pair in enumerate(zip(expected, found, strict=True)):
            yield from differences(*pair, f"{at}[{number}]")
    elif not same(expected, found, ERRORS_WITHIN if ERRORS.search(at) else WITHIN):
        yield f"{at}: {expected!r:.200} was expected, found {found!r:.200}"


def same(expected, found, within):
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=within, abs_tol=1e-12)
    return type(expected) is type(found) and expected == found


def outcome(command, capsys):
    """Run a command in this folder and return its exit code, what it prints about errors, and its result."""
    text = command.startswith(TEXT)
    code = main([*shlex.split(command), *([] if text else ["--json", "found.json"])])
    printed = capsys.readouterr()
    result = printed.out if text else None
    if not text and code == 0:
        left_out = LEFT_OUT.union(*(keys for start, keys in MEASURED_HERE.items() if command.startswith(start)))
        result = kept(json.loads(Path("found.json").read_text("utf-8")), left_out)
    found = json.dumps({"code": code, "stderr": OF_A_LIBRARY.sub("", printed.err), "result": result})
    return json.loads(found.replace(f"s2sim {__version__}", "s2sim"))


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(("number", "command"), [case(*numbered) for numbered in enumerate(COMMANDS, start=1)])
def test_a_command_says_what_it_said(number, command, tmp_path, monkeypatch, capsys):
    shutil.copytree(HERE / "input", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    found = outcome(command, capsys)
    path = HERE / "expected" / f"{number:02}.json.gz"
    if os.environ.get("S2SIM_RENEW_GOLDEN"):
        path.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
        return
    assert list(differences(json.loads(gzip.decompress(path.read_bytes())), found, "")) == []


def test_a_difference_is_found():
    expected = {"time_s": [1.0, 2], "algorithm": "ring", "assisted": False, "closed_form_s": None}
    assert list(differences(expected, {**expected, "time_s": [1 + 1e-10, 2]})) == []
    assert list(differences({"relative_l2": 0.3}, {"relative_l2": 0.3 + 1e-7})) == []
    assert len(list(differences({"relative_l2": 0.3}, {"relative_l2": 0.3 + 1e-4}))) == 1
    for changed in (
        {"time_s": [1 + 1e-8, 2]},
        {"time_s": [1.0, 2.0]},
        {"time_s": [1.0]},
        {"algorithm": "pat"},
        {"assisted": 0},
        {"closed_form_s": 0.0},
    ):
        assert len(list(differences(expected, {**expected, **changed}))) == 1
    assert len(list(differences(expected, {"algorithm": "ring"}))) == 1
