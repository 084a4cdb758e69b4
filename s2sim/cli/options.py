"""Options of commands: from the fields of specs, and of output."""

import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import MISSING, Field, dataclass
from functools import cache
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import NoneType
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

from s2sim.cli.output import STDOUT, TABLES
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.cluster_spec import Option, flag_of, options_of
from s2sim.files import own_tables, partial_of

S = TypeVar("S")
Command = Callable[..., None]

# Options of output, which are no part of an experiment.
_FILES = ("--spec", "--json", "--png", "--plot", "--timeline", "--timeline-rank", "--goal", "--out")


@cache
def _examples() -> dict[str, str]:
    blocks = Path(__file__).with_name("examples.txt").read_text("utf-8").strip().split("\n\n")
    return {command: lines for command, _, lines in (block.partition("\n") for block in blocks)}


def help_texts() -> dict[str, dict[str, Any]]:
    """Return what ``commands.toml`` says, by command."""
    return own_tables(__file__, "commands.toml")


def examples(command: str) -> str:
    """Return the epilog of a command, such as ``trace show``: its examples, a line each."""
    return f"Examples:\n\n\b\n{_examples()[command]}"


def example_of(command: str) -> str:
    """Return the first example of a command."""
    return _examples()[command].partition("\n")[0]


def group(name: str) -> typer.Typer:
    """Return the group of commands ``name``, such as ``dev testbed``, which alone shows its help with exit code 2."""
    texts = help_texts()[name]
    epilog = examples(texts.get("examples", name))
    shown = {"short_help": texts.get("summary"), "hidden": texts.get("hidden", False)}
    app = typer.Typer(name=name, rich_markup_mode=None, help=texts["help"], epilog=epilog, **shown)
    app.callback(invoke_without_command=True)(help_without_command)
    return app


def command(place: typer.Typer, name: str, **words: object) -> Callable[[Command], Command]:
    """Return a decorator that adds the command ``name``, such as ``trace show``, to its group.

    What the help says of it and of its own options stands in ``commands.toml``, with ``words`` in braces; its examples
    in ``examples.txt``.
    """
    texts = help_texts()[name]

    def decorate(function: Command) -> Command:
        def run(**values: Any) -> None:
            function(**values)

        parameters = [_described(each, texts, words) for each in signature(function, eval_str=True).parameters.values()]
        for each in parameters:
            if each.name in texts.get("rare", ()):
                each.default.hidden = True
        shown = {"short_help": texts.get("summary"), "hidden": texts.get("hidden", False)}
        command_name = name.removeprefix(f"{place.info.name} ")
        place.command(command_name, epilog=examples(name), **shown)(_with_parameters(run, function, parameters))
        return function

    return decorate


def _described(parameter: Parameter, texts: Mapping[str, Any], words: Mapping[str, object]) -> Parameter:
    """Return a command's own parameter as its option or argument; of specs they are that, maybe with other texts."""
    name, default = parameter.name, parameter.default
    if parameter.annotation is typer.Context:
        return parameter
    if isinstance(default, ParameterInfo):
        other = texts.get(name, {})
        default.help, default.metavar = other.get("text", default.help), other.get("form", default.metavar)
        default.show_default = other.get("none", default.show_default)
        return parameter
    shared = help_texts()["*"]
    found = texts.get(name, name)
    own = shared[found] if isinstance(found, str) else found
    info = _parameter_info(
        ... if default is Parameter.empty else default,
        own.get("flag", f"--{name.replace('_', '-')}"),
        argument=own.get("argument", False),
        metavar=own.get("form"),
        help=own["text"].format(**words) if words else own["text"],
        show_default=own.get("none", True),
        min=own.get("least"),
        max=own.get("most"),
        hidden=own.get("hidden", False),
    )
    return parameter.replace(default=info)


def _parameter_info(default: Any, flag: str, *, argument: bool, **texts: Any) -> Any:
    return typer.Argument(default, **texts) if argument else typer.Option(default, *flag.split(","), **texts)


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
    **defaults: str,
) -> Callable[[Command], Command]:
    """Return a decorator for commands whose first parameter is an `Experiment` of ``spec``: its fields become options.

    Fields that are ``needed`` are required without the option ``unless``; --spec is added automatically. ``only`` and
    ``leave_out`` choose fields, by default all. ``defaults`` are other defaults of the command, as text.
    """
    options, kinds = options_of(spec), get_type_hints(spec)
    shown = [name for name in only or options if name not in leave_out]
    flags = {name: each.metavar or "" if each.argument else flag_of(name, each) for name, (_, each) in options.items()}

    def parameter(name: str) -> Parameter:
        field, option = options[name]
        note = f" Required without {unless}." if name in needed else None
        return _parameter(flags[name], name, kinds[name], field, option, defaults.get(name), note)

    def decorate(command: Command) -> Command:
        def run(context: typer.Context, **values: Any) -> None:
            fields = {name: values.pop(name) for name in shown}
            path = values.pop("spec", None)
            required = tuple(flags[name] for name in needed)
            command(Experiment(spec, given_options(context), fields, path, required), **values)

        _, *own = signature(command, eval_str=True).parameters.values()
        before = [Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context), *map(parameter, shown)]
        if needed and unless == "--spec":
            before.append(Parameter("spec", Parameter.KEYWORD_ONLY, default=None, annotation=str | None))
        return _with_parameters(run, command, [*before, *own])

    return decorate


def _with_parameters(run: Command, command: Command, parameters: Sequence[Parameter]) -> Command:
    """Return ``run`` with the name and help of ``command``, and with keyword parameters."""
    run.__dict__["__signature__"] = Signature([each.replace(kind=Parameter.KEYWORD_ONLY) for each in parameters])
    run.__doc__, run.__name__ = command.__doc__, command.__name__
    return run


_TABLE_OPTIONS = ("csv", "parquet", "latex", "html")


def takes_tables(command: Command) -> Command:
    """Return a command with the options of a table: CSV, Parquet, LaTeX, HTML."""

    def run(**values: Any) -> None:
        targets = {name: values.pop(name) for name in _TABLE_OPTIONS}
        check_targets(json=values.get("json"), **targets)
        token = TABLES.set(targets)
        try:
            command(**values)
        finally:
            TABLES.reset(token)

    own = signature(command, eval_str=True).parameters.values()
    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=str | None) for name in _TABLE_OPTIONS]
    return _with_parameters(run, command, [*own, *added])


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
        several_values = value if isinstance(value, tuple) else (value,)
        value = ",".join(f"{each:g}" if isinstance(each, float) else str(each) for each in several_values)
        shown = True
    text, shown = f"{option.text}{needed or ''}", default is not None or shown
    info = _parameter_info(
        value, flag, argument=option.argument, metavar=option.metavar, help=text, show_default=shown, min=option.least
    )
    return Parameter(name, Parameter.KEYWORD_ONLY, default=info, annotation=kind | None if value is None else kind)


def given_options(context: typer.Context) -> tuple[str, ...]:
    """Return the options of the experiment on the command line, as --option or ARGUMENT."""
    given = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            option = parameter.opts[0]
            given.append(option if option.startswith("-") else str(getattr(parameter, "metavar", option)))
    return tuple(name for name in given if name not in (*_FILES, "--show", "--quiet"))


# Targets that may be standard output.
_OF_STDOUT = ("json", "goal", "csv", "latex")
# Options that name what is written; a spec may be the result that takes its place.
_FIGURES = ("png", "timeline", "graphml", "simgrid", "astra")
_WRITTEN = {f"--{name}" for name in (*_OF_STDOUT, *_TABLE_OPTIONS, *_FIGURES, "tuner", "out", "spec")}

LINE: ContextVar[Sequence[str]] = ContextVar("LINE", default=())
"""The command line that runs."""


def check_targets(**targets: str | None) -> None:
    """Raise `S2SimError` for files that cannot be written, and for equal ones; names are those of options."""
    taken: dict[Path | str, str] = {}
    inputs = set(_inputs())
    for name, target in targets.items():
        if target is None:
            continue
        option = f"--{name}"
        if target == STDOUT and name in _OF_STDOUT:
            place: Path | str = STDOUT
        else:
            _check_target(option, target)
            place = Path(target).resolve()
            if place in inputs:
                raise S2SimError(f"{option} {target} would replace what is read: name another file")
        if name == "png":
            from s2sim.report.figures.style import check_picture

            check_picture(target)
        if place in taken:
            what = "standard output takes one thing" if place == STDOUT else f"{target} would be written twice"
            raise S2SimError(f"{taken[place]} and {option}: {what}, name another file for one of them")
        taken[place] = option


def _inputs() -> Iterator[Path]:
    """Yield the files that the command line names but to write; a spec may be the result that takes its place."""
    option = ""
    for token in LINE.get():
        name, _, value = token.partition("=")
        if not token.startswith("--"):
            name, value = option, token
        option = "" if value else name
        if value and name not in _WRITTEN:
            with suppress(OSError):
                yield from (Path(part).resolve() for part in value.split(",") if Path(part).is_file())


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
