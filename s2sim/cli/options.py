"""Options of commands: from the fields of specs, and of output."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import NoneType
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer

from s2sim.cli.output import STDOUT, TABLES
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.cluster_spec import Option, flag_of, options_of
from s2sim.files import partial_of

S = TypeVar("S")
Command = Callable[..., None]


def option(
    metavar: str | None,
    text: str,
    none: str | bool = True,
    *,
    default: Any = None,
    flag: str | None = None,
    minimum: int | None = None,
    hidden: bool = False,
) -> Any:
    """Return an option of a command; its flag is named for the parameter unless ``flag`` names it.

    ``metavar`` and ``text`` are its value and its description in the help, ``none`` describes the default (True shows
    the default itself, False none), ``minimum`` is the least number that it accepts. The help leaves out what is
    ``hidden``, as it is rarely used; docs/usage.md has it.
    """
    flags = () if flag is None else (flag,)
    return typer.Option(default, *flags, metavar=metavar, help=text, show_default=none, min=minimum, hidden=hidden)


def switch(flag: str, text: str, *, hidden: bool = False) -> Any:
    """Return an option without a value, which is off unless it is given."""
    return typer.Option(False, *flag.split(","), help=text, hidden=hidden)


def argument(metavar: str, text: str, none: str | bool = True, *, default: Any = None) -> Any:
    """Return an argument of a command, as `option` returns an option; the default ``...`` requires it."""
    return typer.Argument(default, metavar=metavar, help=text, show_default=none)


JSON = option(
    "FILE|-", "Write the result as JSON to a file; with - to standard output and nothing else there.", "no JSON"
)
PNG = option("FILE", "Draw it; the name ends in .png, .svg or .pdf. Needs matplotlib (the extra plot).", "no picture")
TIMELINE = option(
    "FILE.json",
    "Write every message and the load of every link over time, or with --profile a rank's streams, for "
    "ui.perfetto.dev.",
    "no file",
)
QUIET = switch("--quiet,-q", "Print the answer alone, and no progress bar.")
FORCE = switch("--force", "Begin even what takes more memory than is free.", hidden=True)
SILENT = switch("--quiet,-q", "Print nothing but errors, and no progress bar.")
ROOT_SEED = option("N", "Root of all randomness, a whole number from 0.", default=0)
TEXT = option("PATH", "UTF-8 text for a language model; repeatable, read in order.", "no text")

_SPEC = option("FILE", "Run a saved spec, or the spec of a saved result, again.", "no file")
# Options of output, which are no part of an experiment.
_FILES = ("--spec", "--json", "--png", "--plot", "--timeline", "--timeline-rank", "--goal", "--out")
_OUTPUT = (*_FILES, "--show", "--quiet")


def examples(*lines: str) -> str:
    """Return an epilog with a command per line."""
    return "\n".join(["Examples:", "", "\b", *lines])


def group(**settings: Any) -> typer.Typer:
    """Return a group of commands, which without a command shows its help with exit code 2."""
    app = typer.Typer(rich_markup_mode=None, **settings)
    app.callback(invoke_without_command=True)(help_without_command)
    return app


def help_without_command(context: typer.Context) -> None:
    """Print the help of a group that was called without a subcommand."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@dataclass(frozen=True, slots=True)
class Experiment(Generic[S]):
    """The options of a spec on a command line."""

    cls: type[S]
    given: tuple[str, ...]  # Given options of the experiment, as --option or ARGUMENT
    values: Mapping[str, Any]  # By field of the spec, unparsed; None for options that are not given
    path: str | None  # A saved spec that replaces them
    needed: tuple[str, ...]  # Required options

    def check_needed(self, needed: Sequence[str], example: str) -> None:
        """Raise `OptionError` if one of the options ``needed`` is missing; ``example`` has them all."""
        missing = [name for name in needed if name not in self.given]
        if missing:
            raise OptionError(f"{' and '.join(missing)} must be given, for example {example}")

    def saved_or(self, example: str, more: Callable[[], Mapping[str, Any]] = dict) -> S:
        """Return the spec of --spec, else that of the options with the fields of ``more``."""
        if self.path is None:
            self.check_needed(self.needed, example)
            return self.spec(**more())
        if self.given:
            raise OptionError(
                f"--spec {self.path} holds the whole experiment, so {', '.join(self.given)} cannot be given with it: "
                "leave them out or edit the file"
            )
        if not self.path:
            raise OptionError("--spec names no file: write --spec FILE")
        spec: S = self.cls.load(Path(self.path))  # type: ignore[attr-defined]  # every spec has it
        return spec

    def spec(self, **more: Any) -> S:
        """Return the spec of the options; ``more`` are additional fields, or replace them."""
        fields = dict(more)
        for name, (_, option) in options_of(self.cls).items():
            value = self.values.get(name)
            if name in more or value is None or value == []:
                continue
            if option.parse is not None:
                value = option.parse(value)
            fields[name] = tuple(value) if isinstance(value, list) else value
        return self.cls(**fields)


def options_from(
    spec: type[S],
    *,
    needed: Sequence[str] = (),
    unless: str = "--spec",
    only: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    hidden: Sequence[str] = (),
    **defaults: str,
) -> Callable[[Command], Command]:
    """Return a decorator for commands whose first parameter is an `Experiment` of ``spec``: its fields become options.

    Fields that are ``needed`` are required without the option ``unless``; --spec is added automatically. ``only`` and
    ``leave_out`` choose fields, by default all; the help leaves out ``hidden`` ones, which are rarely used.
    ``defaults`` are other defaults of the command, as text.
    """
    options, kinds = options_of(spec), get_type_hints(spec)
    shown = [name for name in only or options if name not in leave_out]
    flags = {name: each.metavar or "" if each.argument else flag_of(name, each) for name, (_, each) in options.items()}

    def parameter(name: str) -> Parameter:
        field, option = options[name]
        note = f" Required without {unless}." if name in needed else None
        made = _parameter(flags[name], name, kinds[name], field, option, defaults.get(name), note)
        made.default.hidden = name in hidden
        return made

    def decorate(command: Command) -> Command:
        def run(context: typer.Context, **values: Any) -> None:
            fields = {name: values.pop(name) for name in shown}
            path = values.pop("spec", None)
            required = tuple(flags[name] for name in needed)
            command(Experiment(spec, given_options(context), fields, path, required), **values)

        _, *own = signature(command, eval_str=True).parameters.values()
        before = [Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context), *map(parameter, shown)]
        if needed and unless == "--spec":
            before.append(Parameter("spec", Parameter.KEYWORD_ONLY, default=_SPEC, annotation=str | None))
        return _with_parameters(run, command, [*before, *own])

    return decorate


def _with_parameters(run: Command, command: Command, parameters: Sequence[Parameter]) -> Command:
    """Return ``run`` with the name and help of ``command``, and with keyword parameters."""
    named = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters]
    run.__dict__["__signature__"] = Signature(named)
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run


_TABLE_OPTIONS = {
    "csv": ("FILE|-", "Write the rows as CSV, with units in the names of columns.", "no CSV"),
    "parquet": ("FILE", "Write the rows as Parquet. Needs polars (the extra tables).", "no file"),
    "latex": ("FILE|-", "Write the rows as a LaTeX tabular.", "no file"),
    "html": ("FILE", "Write a page with the answer, tables and charts, which loads nothing.", "no page"),
}


def takes_tables(*, hidden: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Return a decorator for commands whose result has a table: options for CSV, Parquet, LaTeX and HTML are added.

    ``hidden`` are those that the help leaves out.
    """

    def decorate(command: Command) -> Command:
        def run(**values: Any) -> None:
            targets = {name: values.pop(name) for name in _TABLE_OPTIONS}
            check_targets(json=values.get("json"), **targets)
            token = TABLES.set(targets)
            try:
                command(**values)
            finally:
                TABLES.reset(token)

        own = signature(command, eval_str=True).parameters.values()
        added = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=option(*told, hidden=name in hidden), annotation=str | None)
            for name, told in _TABLE_OPTIONS.items()
        ]
        return _with_parameters(run, command, [*own, *added])

    return decorate


def _parameter(
    flag: str, name: str, kind: Any, field: Field[Any], option: Option, default: str | None, needed: str | None
) -> Parameter:
    if NoneType in get_args(kind):
        kind = next((part for part in get_args(kind) if part is not NoneType), kind)
    several = get_origin(kind) is tuple and option.parse is None
    if several:
        kind = list[str]
    elif option.parse is not None or get_origin(kind) is Literal:
        kind = str
    shown: str | bool = option.none or True
    value = default if default is not None else None if several else field.default
    if needed is not None:
        value, shown = None, False
    elif value is MISSING:
        value = ...
    elif option.parse is not None and value is not None:
        value, shown = _text(value), True
    texts: dict[str, Any] = {
        "metavar": option.metavar,
        "help": f"{option.text}{needed or ''}",
        "show_default": True if default is not None else shown,
    }
    info = (
        typer.Argument(value, **texts) if option.argument else typer.Option(value, flag, min=option.at_least, **texts)
    )
    return Parameter(name, Parameter.KEYWORD_ONLY, default=info, annotation=kind | None if value is None else kind)


def _text(value: Any) -> str:
    several = value if isinstance(value, tuple) else (value,)
    return ",".join(f"{each:g}" if isinstance(each, float) else str(each) for each in several)


def given_options(context: typer.Context) -> tuple[str, ...]:
    """Return the options of the experiment on the command line, as --option or ARGUMENT."""
    given = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            option = parameter.opts[0]
            given.append(option if option.startswith("-") else str(getattr(parameter, "metavar", option)))
    return tuple(name for name in given if name not in _OUTPUT)


# Targets that may be standard output.
_OF_STDOUT = ("json", "goal", "csv", "latex")


def check_targets(**targets: str | None) -> None:
    """Raise `S2SimError` for files that cannot be written, and for equal ones; names are those of options."""
    taken: dict[Path | str, str] = {}
    for name, target in targets.items():
        if target is None:
            continue
        option = f"--{name}"
        if target == STDOUT and name in _OF_STDOUT:
            place: Path | str = STDOUT
        else:
            _check_target(option, target)
            place = Path(target).resolve()
        if name == "png":
            from s2sim.report.figures.style import check_picture

            check_picture(target)
        if place in taken:
            what = "standard output takes one thing" if place == STDOUT else f"{target} would be written twice"
            raise S2SimError(f"{taken[place]} and {option}: {what}, name another file for one of them")
        taken[place] = option


def _check_target(option: str, target: str) -> None:
    if target == STDOUT:
        raise S2SimError(f"{option} - would mix with what is printed: name a file")
    if not target:
        raise S2SimError(f"{option} names no file: write {option} FILE")
    path = Path(target)
    if path.is_dir():
        raise S2SimError(f"{option} {target} is a directory: name a file in it")
    if not path.parent.is_dir():
        raise S2SimError(f"{option} {target}: there is no directory {path.parent}: create it first")
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            return
    # Permissions, read-only and virtual file systems and the length of names show only when a file is written.
    trial = partial_of(path)
    try:
        with suppress(FileNotFoundError), path.open("r+b"):
            pass
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise S2SimError(f"{option} {target} cannot be written: {error.strerror}") from None
