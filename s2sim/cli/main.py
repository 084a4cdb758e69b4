"""The command ``s2sim``: its subcommands, and the handling of errors, warnings and interruptions."""

import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress

import typer

from s2sim import __version__
from s2sim.cli import INTERRUPTED, collective, dev, listing, more, recorded, run, sweep, testbed
from s2sim.cli.options import LINE, command, examples, group, help_texts, help_without_command
from s2sim.cli.output import printable, printable_lines
from s2sim.errors import S2SimError, S2SimWarning

BAD_INPUT = 2

app = typer.Typer(
    name="s2sim",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"{examples('s2sim')}\n\nMore: s2sim import, regimes, diff, flows, explore, cache: docs/usage.md.",
)
developers = group("dev")
_COMMANDS: dict[str, Callable[..., None]] = {
    "run": run.run_command,
    "sweep": sweep.sweep_command,
    "results": sweep.results_command,
    "advise": run.advise_command,
    "train": run.train_command,
    "collective": collective.collective_command,
    # Typer has no command that takes arguments and has others below it: these have names of two words.
    "collective table": collective.table_command,
    "collective log": collective.log_command,
    "paper": more.paper_command,
    "list": listing.list_command,
    # What is used once in a while; the last line of the help names these.
    "regimes": more.regimes_command,
    "flows": more.flows_command,
    "explore": sweep.explore_command,
    "diff": more.diff_command,
    "import": more.import_command,
    "cache": more.cache_command,
}
_WORDS: dict[str, dict[str, object]] = {"list": {"kinds": ", ".join(listing.KINDS), "parts": len(listing.HARDWARE)}}
for _name, _command in _COMMANDS.items():
    command(app, _name, **_WORDS.get(_name, {}))(_command)
command(developers, "dev validate")(dev.validate_command)
command(developers, "dev calibrate")(dev.calibrate_command)
command(developers, "dev calibrate codecs")(dev.codecs_command)
command(developers, "dev schema")(listing.schema_command)
for _group in (recorded.traces, recorded.profiles, listing.topologies, developers, more.new):
    app.add_typer(_group)
developers.add_typer(testbed.app, name="testbed")
developers.add_typer(dev.bridge, name="bridge")

# What ``codec compare`` did unless it was said.
_COMPARED = {"--topology": ["fat-tree"], "--workers": ["1,8,64"], "--no-break-even": []}


def with_new_names(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the names of today; each that it replaces is a line on standard error.

    >>> with_new_names(["list", "reducers"])
    ['list', 'reducers']
    """
    line = list(arguments)
    for old, new in help_texts()["renamed commands"].items():
        words = old.split()
        if line[: len(words)] == words:
            _say(old, new)
            rest = line[len(words) :]
            if old == "codec compare":
                given = {part.partition("=")[0] for part in rest}
                rest += [part for name, value in _COMPARED.items() if name not in given for part in (name, *value)]
            line = [*new.split(), *rest]
    line = _collective(line)
    whole = " ".join(line)
    every = help_texts()["renamed options"].items()
    options: dict[str, str] = next((of for each, of in every if whole.startswith(f"{each} ")), {})
    found: list[str] = []
    for part in line:
        name, sign, value = part.partition("=")
        renamed = options.get(name)
        if renamed is None:
            found.append(part)
            continue
        _say(name, renamed)
        *first, last = renamed.split()
        found += [*first, f"{last}{sign}{value}"]
    return found


def _collective(line: list[str]) -> list[str]:
    """Return a line of ``collective`` with many sizes, or with a log, as one of its sub-command."""
    given = {part.partition("=")[0] for part in line}
    if line[:1] != ["collective"] or line[1:2] in (["table"], ["log"]):
        return line
    if "--against" in given:
        _say("collective --against LOG", "collective log LOG")
        log, rest = _taken(line[1:], "--against")
        return ["collective", "log", *log, *rest]
    if given.isdisjoint(("--format", "--from", "--to", "--factor")):
        return line
    _say("collective --format nccl-tests", "collective table")
    return ["collective", "table", *_taken(line[1:], "--format")[1]]


def _taken(line: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    """Return the value of an option, and a line without it."""
    for place, part in enumerate(line):
        found, sign, value = part.partition("=")
        if found == name:
            end = place + (1 if sign else 2)
            return [value] if sign else list(line[place + 1 : end]), [*line[:place], *line[end:]]
    return [], list(line)


def _say(old: str, new: str) -> None:
    sys.stderr.write(f"s2sim: note: {old} is {new} now; the old name goes in the next version\n")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"s2sim {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Tell whether a gradient compressor would make training faster on a cluster, by how much, why, at what cost.

    Real gradients are reduced by real compressors; what they send is replayed over a simulated cluster.
    """
    help_without_command(context)


def _fail(text: str) -> int:
    sys.stderr.write("s2sim: error: " + printable(text.replace("\n", " ")) + "\n")
    return BAD_INPUT


def _show_each_once() -> Callable[..., None]:
    """Return what shows warnings that have not been shown."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
        if str(message) in shown:
            return
        shown.add(str(message))
        text = "s2sim: warning: " + printable(str(message).replace("\n", " ")) + "\n"
        if not issubclass(category, S2SimWarning):
            text = printable_lines(warnings.formatwarning(message, category, filename, lineno))
        sys.stderr.write(text)

    return show


def _prepare_streams() -> None:
    if sys.stderr is None:
        # Closed by the parent process; the answer is still of use.
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        # Terminals show a question mark for letters that they lack.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _os_error(error: OSError) -> int:
    # A broken stream goes to the null device, so that Python can exit.
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    if error.errno == errno.EPIPE:
        return 1
    where = f"{error.filename}: " if error.filename else "cannot write the output: "
    return _fail(f"{where}{error.strerror or error}")


def _usage_text(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "s2sim"
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    return f"{text.rstrip('.')}: see {command} --help"


# The class of all usage errors, which typer does not export.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process, and return its exit code.

    That is 0; 2 for an error of the user (one line on standard error); 130 after Ctrl-C; 1 for a broken pipe.
    """
    _prepare_streams()
    if sys.stdout is None:
        return _fail("standard output is closed: send it to a file, a pipe or /dev/null")
    command = typer.main.get_command(app)
    with warnings.catch_warnings():
        warnings.showwarning = _show_each_once()
        try:
            line = with_new_names(sys.argv[1:] if arguments is None else arguments)
            LINE.set(line)
            if " ".join(line[:2]) in ("collective table", "collective log"):
                line[:2] = [" ".join(line[:2])]
            elif line[:3] == ["dev", "calibrate", "codecs"]:
                line[1:3] = ["calibrate codecs"]
            code = command.main(args=line, prog_name="s2sim", standalone_mode=False)
            sys.stdout.flush()
        except S2SimError as error:
            return _fail(str(error))
        except _USAGE_ERROR as error:
            return _fail(_usage_text(error))
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except MemoryError:
            return _fail("out of memory: ask for fewer workers or a smaller size or trace")
        except OSError as error:
            return _os_error(error)
    if code == INTERRUPTED:
        sys.stderr.write("s2sim: interrupted\n")
    return code or 0


if __name__ == "__main__":
    sys.exit(main())
