"""The notebook says what ``s2sim run`` says, of any cluster, gradients and library, and draws its pictures."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from s2sim.cli.main import main

# It is imported by what runs alone: the quick tests need not wait for it.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("marimo") is None, reason="needs the extra notebook"),
]

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "does_s2_pay.py"
ASKED = {"topology": "leaf-spine", "workers": "4,8", "trace": "ncf", "library": "nccl:or=owners", "nic": "10Gbps"}


@pytest.fixture(scope="module")
def app():
    spec = importlib.util.spec_from_file_location("does_s2_pay", NOTEBOOK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


@pytest.fixture(scope="module")
def ran(app):
    """Return what the cells show, and what they define."""
    return app.run()


def shown(outputs):
    from marimo import Html

    return " ".join(output.text for output in outputs if isinstance(output, Html))


def as_script(**fields):
    words = [f"--{name}={value}" for name, value in fields.items()]
    return subprocess.run([sys.executable, str(NOTEBOOK), *words], capture_output=True, text=True, check=False)


def test_the_bars_are_the_rows_of_the_run(ran):
    defined = ran[1]
    (axes,) = defined["bars"].axes
    rows = sorted(defined["result"].rows, key=lambda row: row.time_s.total)
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.option_string for row in rows]
    lengths = [sum(bars.patches[number].get_width() for bars in axes.containers) for number in range(len(rows))]
    assert lengths == pytest.approx([row.time_s.total for row in rows])


def test_the_curves_pass_through_the_rows(ran):
    defined = ran[1]
    curves = defined["curves"][16]
    after = next(number for number, rate in enumerate(curves.rates_Bps) if rate > curves.own_Bps)
    for row in defined["result"].rows:
        if row.reducer != "dense":
            low, high = sorted(curves.speedups[row.option_string][after - 1 : after + 1])
            assert low * 0.98 <= row.speedup_vs_dense <= high * 1.02
    assert curves.crossings == defined["result"].verdict.break_even


def test_all_pictures_are_shown(ran):
    outputs, defined = ran
    for name in ("bars", "break_even", "error_picture"):
        assert any(output is defined[name] for output in outputs)
    assert len(defined["error_picture"].axes) == 4


def test_its_command_gives_its_verdict(ran, capsys):
    outputs, defined = ran
    lines = defined["result"].verdict.lines
    assert all(line in shown(outputs) for line in lines[:1])
    assert main([*defined["command"].split()[1:], "--quiet"]) == 0
    assert capsys.readouterr().out.split() == " ".join(lines).split()


def test_as_a_script_it_prints_the_verdict_of_the_same_run(capsys):
    found = as_script(**ASKED)
    assert (found.returncode, found.stderr) == (0, "")
    words = ["--topology", ASKED["topology"], "--workers", ASKED["workers"], "--trace", ASKED["trace"], "--quiet"]
    assert main(["run", *words, "--library", ASKED["library"], "--set", f"nic.rate={ASKED['nic']}"]) == 0
    # Lines are broken where a terminal ends.
    assert found.stdout.split() == capsys.readouterr().out.split()


@pytest.mark.parametrize("path", ["/etc/passwd", "../elsewhere", "synthetic:law=/etc/law.json"])
def test_a_field_reads_no_file_outside_the_folder(ran, app, path, capsys):
    """What the command names may be anywhere; what is typed into the page may not."""
    from marimo import ui

    names = ("choose", "given", "library", "library_options", "nic", "topology", "topology_file", "trace", "workers")
    fields = {name: ran[1][name] for name in names}
    with pytest.raises(SystemExit):
        app.run(defs={**fields, "trace_path": ui.text(value=path)})
    assert f"{path} is outside {Path.cwd()}" in capsys.readouterr().err


def test_a_mistake_is_one_line():
    found = as_script(topology="nowhere")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("s2sim: error: ")
    assert "nowhere" in found.stderr
    assert found.stderr.count("\n") == 1
