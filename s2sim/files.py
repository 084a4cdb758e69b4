"""Files of the user: paths, bounded readers and their error messages."""

import csv
import errno
import io
import json
import os
import re
import stat
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from s2sim.errors import S2SimError, describe_problems, strip_error_kind, suggest_nearest

if TYPE_CHECKING:
    from pydantic import ValidationError

T = TypeVar("T")

MAX_BYTES = 2**24
# Python's reader takes a second for two or three such files.
_MAX_TOML_BYTES = 2**20


def is_toml_path(text: str) -> bool:
    """Return whether a text is the path of a TOML file, and not the name of a shipped one."""
    return "/" in text or text.endswith(".toml")


def user_path(text: str, error: type[S2SimError]) -> Path:
    """Return a path given by the user, ``~`` being a home directory; ``error`` is raised if there is none."""
    try:
        return Path(text).expanduser()
    except RuntimeError as found:
        raise error(f"there is no file {text}: {found}") from found


def check_inside(texts: Iterable[str], given: Collection[str]) -> None:
    """Raise `S2SimError` for option strings that name a file outside of this process's folder, unless ``given``."""
    for text in texts:
        parts = [Path(os.path.expanduser(part)) for part in re.split("[:=,;]", text)]  # noqa: PTH111 # of any user
        if text not in given and not all(part.resolve().is_relative_to(Path.cwd()) for part in parts):
            raise S2SimError(f"{text} is outside {Path.cwd()}: name it in the command that starts this page")


def check_regular(path: Path, most_bytes: int = MAX_BYTES) -> None:
    """Raise `OSError` unless a path is a regular file of at most ``most_bytes``."""
    try:
        found = path.stat()
    except ValueError:
        raise OSError(errno.EINVAL, "its name holds a NUL character") from None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file: save what a pipe or a device holds as one first")
    _check_bytes(found.st_size, most_bytes)


def _check_bytes(size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise OSError(errno.EFBIG, f"it holds more than {most_bytes} bytes, which is too many for what it should be")


def read_bytes(path: Path, most_bytes: int = MAX_BYTES) -> bytes:
    """Return the bytes of a regular file, of which there are at most ``most_bytes``; `OSError` for everything else."""
    check_regular(path, most_bytes)
    # Files generated while they are read, as in /proc, have no size beforehand; room is made for what a file has, not
    # for what somebody claims of it.
    most_bytes = min(most_bytes, max(path.stat().st_size, MAX_BYTES))
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    _check_bytes(len(data), most_bytes)
    return data


def read_text(path: Path, *, noun: str = "", error: type[S2SimError] = S2SimError, most_bytes: int = MAX_BYTES) -> str:
    """Return a UTF-8 file's text without byte-order mark; ``error``, naming ``noun``, if missing, too large or none."""
    try:
        text = read_bytes(path, most_bytes).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as found:
        reason = getattr(found, "strerror", None) or "it is not text"
        raise error(f"cannot read {noun}{' ' * bool(noun)}{path}: {reason}") from None
    if "\0" in text:
        raise error(f"cannot read {noun}{' ' * bool(noun)}{path}: it is not text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


_READ_BY = {
    "system": ": a topology of NCCL is read by s2sim import",
    "algo": ": a program of MSCCL is read by s2sim collective KIND --algorithm ./FILE.xml",
    "platform": ": a platform of SimGrid is read by s2sim run --topology ./FILE.xml",
    "{http://graphml.graphdrawing.org/xmlns}graphml": ": GraphML is read from files that are called .graphml",
}


def parse_xml(text: str, path: object, tag: str, whose: str, error: type[S2SimError], *, dtd: bool = False) -> Any:
    """Return the root of an XML text without entities, called ``tag``; ``error`` for what is none of ``whose``.

    ``dtd`` says whether a document type may be named, which is not read.
    """
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    try:
        root = fromstring(text, forbid_dtd=not dtd)
    except (ParseError, DefusedXmlException, ValueError) as found:
        raise error(f"{path} is no XML of {whose}: {type(found).__name__} {found}".rstrip()) from None
    if root.tag != tag:
        begins = f"begins with <{root.tag.rpartition('}')[2][:MAX_SHOWN_CHARACTERS]}> and not with <{tag}>"
        raise error(f"{path} {begins}, as XML of {whose} does{_READ_BY.get(root.tag, '')}")
    return root


def read_toml(path: Path, error: type[S2SimError]) -> dict[str, Any]:
    """Return the tables of a TOML file; ``error`` is raised where there are none."""
    try:
        return tomllib.loads(read_bytes(path, _MAX_TOML_BYTES).decode())
    except FileNotFoundError as found:
        raise error(f"there is no file {path}") from found
    except IsADirectoryError as found:
        raise error(f"{path} is a directory: give a TOML file in it") from found
    except OSError as found:
        raise error(f"{path} cannot be read: {found.strerror or found}") from found
    except UnicodeDecodeError as found:
        raise error(f"{path} cannot be read: it is not UTF-8 text") from found
    except tomllib.TOMLDecodeError as found:
        raise error(f"{path} is not valid TOML: {found}") from found
    except (ValueError, RecursionError) as found:
        # A number of thousands of digits, or brackets in brackets.
        raise error(f"{path} is not a description: it holds a number or a list beyond reason") from found


@cache
def own_tables(module: str, name: str) -> dict[str, Any]:
    """Return the tables of a TOML file of the package, beside the file of a module."""
    return tomllib.loads(Path(module).with_name(name).read_text("utf-8"))


MAX_SHOWN_CHARACTERS = 40
"""Characters of a cell that a message quotes."""


def describe_problem(error: "ValidationError", where: str, cells: dict[str, str]) -> str:
    """Return the first problem of a row of a table in one line."""
    first = error.errors()[0]
    column = str(first["loc"][0]) if first["loc"] else ""
    found = strip_error_kind(first["msg"])
    return f"{where}, column {column}: {cells.get(column, '')[:MAX_SHOWN_CHARACTERS]!r}: {found[0].lower()}{found[1:]}"


def read_table(path: Path, needed: Sequence[str], most_bytes: int | None = None) -> list[tuple[int, dict[str, str]]]:
    """Return the line number and the cells by column of each row of a CSV file with the ``needed`` columns."""
    limits: dict[str, Any] = {} if most_bytes is None else {"most_bytes": most_bytes}
    reader = csv.reader(io.StringIO(read_text(path, **limits)), strict=True)
    found: list[tuple[int, list[str]]] = []
    try:
        found += ((reader.line_num, [cell.strip() for cell in row]) for row in reader if row)
    except csv.Error as error:
        raise S2SimError(f"{path.name}, row {reader.line_num}: {error}") from None
    if not found:
        raise S2SimError(f"{path.name} is empty: write a first row with the names of its columns")
    header = found[0][1]
    for column in needed:
        if column not in header:
            known = [each[:MAX_SHOWN_CHARACTERS] for each in header]
            raise S2SimError(f"{path.name} has no column {column!r}{suggest_nearest(column, known)}")
        if header.count(column) > 1:
            raise S2SimError(f"{path.name} has the column {column!r} twice: leave one out")
    rows = []
    for row, cells in found[1:]:
        if len(cells) != len(header):
            raise S2SimError(f"{path.name}, row {row}: it has {len(cells)} cells and the header {len(header)} columns")
        rows.append((row, dict(zip(header, cells, strict=True))))
    return rows


_PACKAGE = Path(__file__).resolve().parent

# Processes of other machines, whose folders may be shared, have numbers of their own.
_HOST = os.uname().nodename if os.name == "posix" else "here"


def partial_of(path: Path) -> Path:
    """Return the temporary file that replaces ``path``, or the target of its link, once it is complete."""
    target = path.resolve()
    return target.with_name(f".{target.name}.partial-{_HOST}-{os.getpid()}")


def remove_leftovers(path: Path) -> None:
    """Remove what processes of this machine that were killed have left of writing ``path``."""
    import shutil

    own = partial_of(path)
    start = own.name.removesuffix(str(os.getpid()))
    with suppress(OSError):
        for left in own.parent.iterdir() if os.name == "posix" else ():
            process = left.name.removeprefix(start)
            if process != left.name and process.isdecimal() and not _is_alive(int(process)):
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def replace_file(path: Path, data: bytes) -> None:
    """Write a file, which is there as a whole or not at all."""
    partial = partial_of(path)
    remove_leftovers(path)
    try:
        partial.write_bytes(data)
        partial.replace(path.resolve())
    finally:
        partial.unlink(missing_ok=True)


def toml_value(value: object) -> str:
    """Return a value as TOML has it, which writes texts, numbers and lists as JSON does, but for DEL."""
    return json.dumps(value).replace("\x7f", "\\u007f")


def toml_text(values: Mapping[str, Any], head: str) -> str:
    """Return a TOML file of values by name, with dots for tables in tables; a mapping stands in one line."""
    tables: dict[str, list[str]] = {"": [head]}
    for name, value in values.items():
        table, _, key = name.rpartition(".")
        text = toml_value(value)
        if isinstance(value, Mapping):
            text = f"{{ {', '.join(f'{each} = {toml_value(part)}' for each, part in value.items())} }}"
        tables.setdefault(table, [f"[{table}]"]).append(f"{key} = {text}")
    return "\n\n".join(map("\n".join, tables.values())) + "\n"


def data_directory(kind: str) -> Path:
    """Return the folder of shipped data, as ``topologies``: inside a wheel's package, next to it in a checkout."""
    installed = _PACKAGE / "_data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def shipped_tables(kind: str) -> dict[str, Path]:
    """Return the TOML files of shipped data, such as ``models``, by name in alphabetical order."""
    return {path.stem: path for path in sorted(data_directory(kind).glob("*.toml"))}


def measured_folder(kind: str, text: str | None) -> Path:
    """Return a folder of measurements; for None, or ``measured_KIND`` where there is none, that of the shipped ones."""
    path = None if text is None else user_path(text, S2SimError)
    shipped = path is None or (text == f"measured_{kind}" and not path.exists())
    return data_directory(f"measured/{kind}") if path is None or shipped else path


class StrictFields:
    """What a dataclass inherits that `check_tables` reads: an unknown key is an error, never dropped quietly."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


def validated(
    form: type[T], value: Any, refusal: str, error: type[S2SimError] = S2SimError, most: int | None = None
) -> T:
    """Return a value, or the bytes of JSON, as one of a type; else ``error`` with a refusal, which ends with a noun.

    The strict reading of JSON takes lists for tuples, and nothing else for numbers.
    """
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(form)
    try:
        return adapter.validate_json(value, strict=True) if isinstance(value, bytes) else adapter.validate_python(value)
    except ValidationError as found:
        problems = describe_problems(found.errors(include_url=False), refusal.rsplit(maxsplit=1)[-1], most)
        raise error(f"{refusal}: {problems}") from None
    except UnicodeEncodeError:
        raise error(f"{refusal}: it has half of a surrogate pair, which is no text") from None


def check_tables(tables: Mapping[str, Any], form: type[T], path: Path, called: str, most: int | None = None) -> T:
    """Return the content of a TOML file, a ``called`` such as "layer table", as a value; `S2SimError` if it is none."""
    return validated(form, json.dumps(tables, default=str).encode(), f"{path} is not a {called}", most=most)
