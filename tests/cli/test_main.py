import json
import os
import shlex
import subprocess
import sys
import warnings

import numpy as np
import pytest
from typer.main import get_command

from s2sim.cli import main as main_module
from s2sim.cli.main import app
from s2sim.cli.output import Bar, Log
from s2sim.errors import S2SimWarning


def walk(command, name="s2sim"):
    yield name, command
    for child, below in getattr(command, "commands", {}).items():
        yield from walk(below, f"{name} {child}")


COMMANDS = dict(walk(get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_examples_that_can_be_copied(s2sim, name):
    code, out, err = s2sim(*name.split()[1:], "--help")
    assert (code, err) == (0, "")
    lines = [line.strip() for line in out[out.index("Examples:") :].splitlines() if name in line]
    assert lines
    assert set(lines) <= set(COMMANDS[name].epilog.splitlines())


@pytest.mark.parametrize("command", [("list", "[KIND]"), ("run", "N[,N...]", "NAME[:KEY=VALUE,...]")])
def test_a_help_shows_brackets_as_they_are(s2sim, command):
    _, out, _ = s2sim(command[0], "--help")
    assert all(text in out for text in command[1:])
    assert "[[" not in out


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if hasattr(command, "commands")])
def test_a_list_of_commands_cuts_no_sentence(s2sim, name):
    out = s2sim(*name.split()[1:], "--help")[1]
    listed = out[out.index("Commands:") : out.index("Examples:")].split("\n")
    assert not any(line.endswith("...") for line in listed)


@pytest.mark.parametrize("command", [(), ("trace",), ("topology",)])
def test_a_group_without_a_command_shows_its_help_and_is_a_mistake(s2sim, command):
    code, out, _ = s2sim(*command)
    assert code == 2
    assert "Examples" in out


def test_version(s2sim):
    assert s2sim("--version") == (0, "s2sim 0.1.0\n", "")


@pytest.mark.parametrize("module", ["s2sim", pytest.param("s2sim.cli.main", marks=pytest.mark.slow)])
def test_runs_as_a_module(process, module):
    done = process("--version", module=module)
    assert (done.returncode, done.stdout, done.stderr) == (0, "s2sim 0.1.0\n", "")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("bogus",), "bogus"),
        (("--bogus",), "--bogus"),
        (("colective",), "collective"),
        (("run", "--seed", "x"), "--seed"),
        (("run", "--seed"), "--seed"),
        (("collective",), "KIND"),
        (("collective", "all_reduce", "--topology", "fat-tree", "--workers", "8"), "--size"),
    ],
)
def test_wrong_usage_is_told_in_one_line(fails, arguments, part):
    assert part in fails(*arguments)


def test_an_interruption_is_told_in_one_line(s2sim, monkeypatch, tiny):
    def interrupt(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr("s2sim.experiment.run.run", interrupt)
    assert s2sim(*tiny) == (130, "", "s2sim: interrupted\n")


def test_running_out_of_memory_is_told_in_one_line(fails, monkeypatch, tiny):
    def exhaust(**_):
        raise MemoryError

    monkeypatch.setattr("s2sim.experiment.run.run", exhaust)
    assert "out of memory" in fails(*tiny)


def test_own_warnings_are_one_line_and_others_stay_as_they_are(s2sim, monkeypatch):
    def warn(*_, **__):
        warnings.warn("routing has\nno effect", S2SimWarning, stacklevel=2)
        warnings.warn("something else", RuntimeWarning, stacklevel=2)
        return []

    monkeypatch.setattr("s2sim.topology.read_file.list_parts", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        _, _, err = s2sim("list", "gpus")
    assert err.startswith("s2sim: warning: routing has no effect\n")
    assert "RuntimeWarning: something else" in err


def test_an_error_text_is_never_wrapped(s2sim, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    _, _, err = s2sim("run", "--topology", "x" * 300 + ".toml", "--workers", "4")
    assert err.count("\n") == 1


def test_mistakes_of_the_program_itself_are_not_hidden(s2sim, monkeypatch, tiny):
    def fail(**_):
        raise ZeroDivisionError

    monkeypatch.setattr("s2sim.experiment.run.run", fail)
    with pytest.raises(ZeroDivisionError):
        s2sim(*tiny)


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes streams")
@pytest.mark.parametrize(
    ("closed", "code", "out", "err"),
    [
        (">&-", 2, "", "s2sim: error: standard output is closed: send it to a file, a pipe or /dev/null\n"),
        ("2>&-", 0, "s2sim 0.1.0\n", ""),
        (">&- 2>&-", 2, "", ""),
    ],
)
def test_closed_streams_do_no_harm(closed, code, out, err):
    command = f"exec {shlex.quote(sys.executable)} -m s2sim --version {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_news():
    # The pipe is closed before anything is written to it.
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "s2sim", "list", "gpus"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.slow
def test_letters_that_a_terminal_lacks_do_no_harm(process):
    done = process("list", "collectives", env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 0
    assert "double-binary-tree" in done.stdout


def test_exit_codes_are_the_documented_ones():
    assert (main_module.BAD_INPUT, main_module.INTERRUPTED) == (2, 130)


# A colour, a line of its own, a bell, and text that runs backwards.
UNPRINTABLE = "\x1b[31m\r\n\a\u202e"


def test_control_characters_of_a_file_reach_no_terminal(s2sim, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        f"description = {json.dumps(UNPRINTABLE)}\n[node]\ngpus = 1\n"
        f'[nic]\nrate = {{value = "100Gbps", source = {json.dumps(UNPRINTABLE)}, kind = "user"}}\n'
        '[fabric]\nkind = "single-switch"\n'
    )
    code, out, err = s2sim("topology", "show", path, "--workers", "2")
    assert (code, err) == (0, "")
    assert out.count(r"\x1b[31m\r\n\x07\u202e") == 2
    assert all(line.isprintable() for line in out.split("\n"))


def test_control_characters_reach_no_table_and_no_bar(s2sim, tmp_path, capsys):
    np.savez(tmp_path / "rank0.npz", **{f"layer{UNPRINTABLE}": np.ones((2, 2), np.float32)})
    assert s2sim("trace", "import", tmp_path / "rank0.npz", "--out", tmp_path / "mine", "--quiet")[0] == 0
    code, out, err = s2sim("trace", "show", tmp_path / "mine")
    assert (code, err) == (0, "")
    assert r"layer\x1b[31m\r\n\x07\u202e" in out
    assert all(line.isprintable() for line in out.split("\n"))
    bar = Bar()
    bar.start(1, f"running{UNPRINTABLE}")
    bar.stop()
    assert "\u202e" not in capsys.readouterr().err


def test_finished_results_stand_above_a_bar_of_long_work(capsys, monkeypatch):
    now_s = 0.0
    monkeypatch.setattr("s2sim.cli.output.monotonic", lambda: now_s)
    bar = Bar()
    bar.start(2, "running")
    bar.tell("8 workers, dense: 1 ms")
    assert "dense" not in capsys.readouterr().err
    now_s = 1.5
    bar.tell(f"8 workers, fp16{UNPRINTABLE}: 1 ms")
    bar.stop()
    told = capsys.readouterr().err
    assert "8 workers, dense: 1 ms\n" in told
    assert "8 workers, fp16\\x1b[31m" in told


def test_a_line_every_ten_seconds_tells_what_is_left(capsys, monkeypatch):
    now_s = 0.0
    monkeypatch.setattr("s2sim.cli.output.monotonic", lambda: now_s)
    monkeypatch.setattr("s2sim.cli.output.LOG_EVERY_S", 10.0)
    log = Log()
    log.start(40, "computing cells")
    now_s = 12.0
    log.advance(10)
    log.advance(1)
    assert capsys.readouterr().err == "s2sim: computing cells, 10 of 40, 36 s left\n"


def test_control_characters_of_a_warning_reach_no_terminal(s2sim, monkeypatch):
    def warn(*_, **__):
        warnings.warn(UNPRINTABLE, S2SimWarning, stacklevel=2)
        return []

    monkeypatch.setattr("s2sim.topology.read_file.list_parts", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert s2sim("list", "gpus")[2] == "s2sim: warning: \\x1b[31m\\r \\x07\\u202e\n"
