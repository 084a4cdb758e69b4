"""Names of before work, with a line that says the new ones; the help shows few commands and options."""

import json
from pathlib import Path

import pytest
from typer.main import get_command

from s2sim.cli.main import app

COMMANDS = get_command(app).commands
USAGE = Path(__file__).parents[2] / "docs/usage.md"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("schema", "flows"), ("dev", "schema", "flows")),
        (("testbed", "list"), ("dev", "testbed", "list")),
        (("bridge", "check", "--help"), ("dev", "bridge", "check", "--help")),
        (("validate", "--help"), ("dev", "validate", "--help")),
        (("calibrate", "--help"), ("dev", "calibrate", "--help")),
        (("codec", "regimes", "--help"), ("regimes", "--help")),
        (("profile", "list"), ("list", "profiles")),
        (("notebook", "--help"), ("explore", "--help")),
        pytest.param(
            ("testbed", "compare", "--plot", "x.txt"),
            ("dev", "testbed", "compare", "--png", "x.txt"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_an_old_command_does_what_the_new_one_does(old, new, s2sim):
    code, out, err = s2sim(*old)
    known = s2sim(*new)
    assert (code, out) == known[:2]
    assert err.startswith(f"s2sim: note: {' '.join(old[: 1 + (old[0] in ('codec', 'profile'))])} is ")
    assert err.endswith(known[2])


def test_old_options_of_run_are_views_now(s2sim, tiny):
    code, out, err = s2sim(*tiny, "--no-break-even", "--details", "--per-layer")
    assert (code, err.count("s2sim: note: ")) == (0, 2)
    assert out == s2sim(*tiny, "--no-break-even", "--show", "details,layers")[1]


def test_codec_compare_is_a_view_of_run(s2sim, tiny):
    few = tiny[tiny.index("--trace") :]
    code, out, err = s2sim("codec", "compare", "--workers", "4", *few, "--json", "-")
    assert (code, err) == (
        0,
        "s2sim: note: codec compare is run --show pareto now; the old name goes in the next version\n",
    )
    value = json.loads(out)
    assert value["spec"]["topology"] == "fat-tree"
    assert {type(row["best_by_time"]) for row in value["results"]} == {bool}


def test_the_help_shows_few_commands_and_options():
    assert len([command for command in COMMANDS.values() if not command.hidden]) <= 12
    assert len([option for option in COMMANDS["run"].params if not getattr(option, "hidden", False)]) <= 30


@pytest.mark.parametrize(("command", "most"), [("collective", 25), ("collective table", 25), ("collective log", 25)])
def test_the_help_of_a_collective_is_a_page(command, most):
    assert len([option for option in COMMANDS[command].params if not getattr(option, "hidden", False)]) <= most


@pytest.mark.parametrize("command", ["run", "collective"])
def test_options_that_the_help_leaves_out_are_documented(command):
    text = USAGE.read_text("utf-8")
    hidden = [option.opts[0] for option in COMMANDS[command].params if getattr(option, "hidden", False)]
    assert hidden
    assert [option for option in hidden if f"`{option}" not in text] == []
