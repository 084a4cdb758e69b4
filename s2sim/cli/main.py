"""The command ``s2sim``: its subcommands, and the handling of errors, warnings and interruptions."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

import typer

from s2sim import __version__
from s2sim.cli import (
    INTERRUPTED,
    advise,
    bridge,
    cache,
    calibrate,
    collective,
    diff,
    flows,
    import_file,
    listing,
    new,
    notebook,
    paper,
    profile,
    regimes,
    results,
    run,
    sweep,
    testbed,
    topology,
    trace,
    train,
    validate,
)
from s2sim.cli.options import examples, group, help_without_command
from s2sim.cli.output import printable, printable_lines
from s2sim.cli.renamed import with_new_names
from s2sim.errors import S2SimError, S2SimWarning

BAD_INPUT = 2

app = typer.Typer(
    name="s2sim",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "s2sim run --topology fat-tree --workers 64",
        "s2sim run --topology tcp-10g --workers 8,16,32 --reducer union --reducer s2:rows=3,cells=2",
        "s2sim run --topology fat-tree --workers 8 --trace lstm-lm --show pareto",
        "s2sim collective all_reduce --topology fat-tree --workers 64 --size 100MiB --algorithm ring",
        "s2sim list reducers",
        "",
        "More: s2sim import, regimes, diff, flows, notebook, cache: docs/usage.md.",
    ),
)
dev = group(
    help="Measure networks, validate and calibrate predictions, print schemas: for developers of s2sim.",
    epilog=examples(
        "s2sim dev validate --iterations",
        "s2sim dev calibrate --suggest --topology dgx-h100 --workers 16",
        "s2sim dev testbed list",
        "s2sim dev schema collective",
    ),
)


def _add(
    place: typer.Typer, name: str, command: Callable[..., None], epilog: str, short_help: str, *, hidden: bool = False
) -> None:
    place.command(name, epilog=epilog, short_help=short_help, hidden=hidden)(command)


_add(app, "run", run.run_command, run.EXAMPLES, "Compare gradient compressors (reducers) on a cluster.")
_add(app, "sweep", sweep.sweep_command, sweep.EXAMPLES, "Compute thousands of cells of a study.")
_add(app, "results", results.results_command, results.EXAMPLES, "Show, pivot and write what a sweep has found.")
_add(app, "advise", advise.advise_command, advise.EXAMPLES, "Ask what to change on a cluster, and what that costs.")
_add(app, "train", train.train_command, train.EXAMPLES, "Train a model with compressors in the loop.")
_add(app, "collective", collective.collective_command, collective.EXAMPLES, "Time one collective, as an all-reduce.")
# Typer has no command that takes arguments and has others below it: these have names of two words.
app.command("collective table", epilog=collective.TABLE_EXAMPLES, hidden=True)(collective.table_command)
app.command("collective log", epilog=collective.LOG_EXAMPLES, hidden=True)(collective.log_command)
_add(app, "paper", paper.paper_command, paper.EXAMPLES, "Rebuild published claims and judge them.")
_add(app, "list", listing.list_command, listing.LIST_EXAMPLES, "List what there is to choose from.")
app.add_typer(trace.app, name="trace")
app.add_typer(profile.app, name="profile", short_help="Look at, record and import compute profiles.")
app.add_typer(topology.app, name="topology")
app.add_typer(dev, name="dev", short_help="Validate, calibrate, measure; for developers of s2sim.")
_add(dev, "validate", validate.validate_command, validate.EXAMPLES, "Compare predictions with measured curves.")
_add(dev, "calibrate", calibrate.calibrate_command, calibrate.EXAMPLES, "Fit a library's constants to one's machine.")
_add(dev, "schema", listing.schema_command, listing.SCHEMA_EXAMPLES, "Print the JSON schema of what --json writes.")
dev.add_typer(testbed.app, name="testbed", short_help="Make a network on this machine whose rates one sets.")
dev.add_typer(bridge.app, name="bridge", short_help="Run reducers between real processes.")
# What is used once in a while; the last line of the help names these.
_add(app, "regimes", regimes.regimes_command, regimes.EXAMPLES, "Map who wins on which network.", hidden=True)
_add(app, "flows", flows.flows_command, flows.EXAMPLES, "Replay any traffic on a cluster.", hidden=True)
_add(app, "notebook", notebook.notebook_command, notebook.EXAMPLES, "Ask in a browser.", hidden=True)
_add(app, "diff", diff.diff_command, diff.EXAMPLES, "Show what differs between two results.", hidden=True)
_add(app, "import", import_file.import_command, import_file.EXAMPLES, "Read files of other tools.", hidden=True)
_add(app, "cache", cache.cache_command, cache.EXAMPLES, "Show or empty the store of recordings.", hidden=True)
# For those who extend s2sim; CONTRIBUTING has it.
app.add_typer(new.app, name="new", hidden=True)


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


def _one_line(text: str) -> str:
    return printable(" ".join(text.split("\n")))


def _fail(text: str) -> int:
    sys.stderr.write(f"s2sim: error: {_one_line(text)}\n")
    return BAD_INPUT


def _show_each_once() -> Callable[..., None]:
    """Return what shows warnings that have not been shown."""
    shown: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if str(message) in shown:
            return
        shown.add(str(message))
        text = f"s2sim: warning: {_one_line(str(message))}\n"
        if not issubclass(category, S2SimWarning):
            text = printable_lines(warnings.formatwarning(message, category, filename, lineno, line))
        (file or sys.stderr).write(text)

    return show


def _silence(stream: TextIO) -> None:
    """Redirect a broken stream to the null device, so that Python can exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _prepare_streams() -> None:
    if sys.stderr is None:
        # Closed by the parent process; the answer is still of use.
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        # Terminals show a question mark for letters that they lack.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _os_error(error: OSError) -> int:
    _silence(sys.stdout)
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

    Returns
    -------
    int
        0; 2 for an error of the user (one line on standard error); 130 after Ctrl-C; 1 for a broken pipe.
    """
    _prepare_streams()
    if sys.stdout is None:
        return _fail("standard output is closed: send it to a file, a pipe or /dev/null")
    command = typer.main.get_command(app)
    with warnings.catch_warnings():
        warnings.showwarning = _show_each_once()
        try:
            line = with_new_names(sys.argv[1:] if arguments is None else arguments)
            if " ".join(line[:2]) in ("collective table", "collective log"):
                line[:2] = [" ".join(line[:2])]
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
