"""What validations of curves and of iterations share: reading an index, predicting row by row, and statistics."""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from s2sim.errors import S2SimError
from s2sim.experiment.progress import ProgressWatcher
from s2sim.files import MAX_SHOWN_CHARACTERS, data_directory, describe_problem, read_bytes, read_table
from s2sim.provenance import run_record
from s2sim.topology.shape import TRANSPORTS
from s2sim.validation.node_files import names

_Row = TypeVar("_Row")
_Result = TypeVar("_Result")

MOST_LETTERS = 200
"""Of the name of a row."""

NOT_YET = "interrupted before it was its turn"
"""Why rows are not predicted that an interrupted validation did not reach."""

_MOST_ROWS, MAX_GPUS = 4096, 2**24
Count: TypeAlias = Annotated[int, Field(ge=1, le=MAX_GPUS)]
# What people write where they do not know.
_NOT_KNOWN = ("", "unknown", "not known", "n/a", "na", "-", "?")


def normalise_name(name: str) -> str:
    """Return a name in lower case, letters and digits alone, such as resnet50 of ResNet-50."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def word_of(known: Collection[str], others: Mapping[str, str] = {}) -> BeforeValidator:
    """Return what makes a cell the known word of its letters and digits, or the one that another word stands for."""
    by_letters = {normalise_name(word): meant for word, meant in [*others.items(), *zip(known, known, strict=True)]}
    return BeforeValidator(lambda cell: cell if cell in known else by_letters.get(normalise_name(cell), cell))


Transport: TypeAlias = Annotated[
    str, Field(max_length=100), word_of(("none", "verbs", *TRANSPORTS), names()["network"] | {"": ""})
]
"""What joins nodes, by its name in topologies; ``none`` for nothing, ``verbs`` for one of two, empty if not known."""

_adapter_of = cache(TypeAdapter)


def parse_row(row_type: type[_Row], cells: Mapping[str, str], where: str = "row") -> _Row:
    """Return cells as a value; those of fields with a default are not given where they say that nothing is known.

    `S2SimError` says what cannot be read, and ``where``.
    """
    optional = {field.name for field in fields(row_type) if field.default is not MISSING}  # type: ignore[arg-type]
    given = {name: cell for name, cell in cells.items() if name not in optional or cell.lower() not in _NOT_KNOWN}
    adapter: TypeAdapter[_Row] = _adapter_of(row_type)  # type: ignore[arg-type]
    try:
        return adapter.validate_python(given)
    except ValidationError as error:
        raise S2SimError(describe_problem(error, where, dict(cells))) from None


def folder_name(folder: Path) -> str:
    """Return the name of a folder of measurements; those that are shipped are known by one name each."""
    shipped = {"measured/curves": "measured", "measured/iterations": "measured_iterations"}
    known = {data_directory(path).resolve(): name for path, name in shipped.items()}
    return known.get(folder.resolve(), folder.resolve().name)


def read_index(
    path: Path, row_type: type[_Row], each: str, is_name: Callable[[str], bool], no_name: str, last: str
) -> Iterator[tuple[dict[str, str], _Row | None, str]]:
    """Yield each row of a CSV file as cells and as a value, or with None and its problem.

    Columns of ``row_type``, a dataclass with an ``id``, are required up to ``last``, see `parse_row`. A row whose id an
    earlier one has, or for which ``is_name`` is false (``no_name`` is the message), has its place for an id.
    `S2SimError` if the file cannot be read or has no row.
    """
    columns = [field.name for field in fields(row_type)]  # type: ignore[arg-type]
    if not (rows := read_table(path, columns[: columns.index(last) + 1])):
        raise S2SimError(f"{path} has no row: write one for each {each}")
    if len(rows) > _MOST_ROWS:
        raise S2SimError(f"{path} has {len(rows)} rows, more than {_MOST_ROWS}: split the folder")
    numbers: dict[str, int] = {}
    for number, cells in rows:
        name, where = cells["id"], f"{path.name}, row {number}"
        wrong = not name or len(name) > MOST_LETTERS or not is_name(name)
        if wrong or numbers.setdefault(name, number) != number:
            problem = no_name if wrong else f"stands in row {numbers[name]} too"
            yield cells | {"id": where}, None, f"column id: {name[:MAX_SHOWN_CHARACTERS]!r} {problem}"
            continue
        try:
            yield cells, parse_row(row_type, cells, where), ""
        except S2SimError as error:
            yield cells, None, str(error)


def in_turn(results: Iterable[_Result], count: int, what: str, progress: ProgressWatcher) -> list[_Result]:
    """Return the results in order; after Ctrl-C the finished ones, if there are any."""
    found: list[_Result] = []
    progress.start(count, f"predicting {what}")
    try:
        for each in results:
            found.append(each)
            progress.advance()
    except KeyboardInterrupt:
        if not found:
            raise
    progress.stop()
    return found


def origin_of(name: str, key: str, file: Path, measured: str, **spec: Any) -> dict[str, object]:
    """Return the record of predictions of a file's ``measured`` times, with its SHA-256 by ``key``, and ``spec``."""
    digest = hashlib.sha256(read_bytes(file)).hexdigest()
    return run_record(
        spec={key if key.startswith("index") else f"{name}_{key}": digest, **spec},
        inputs={name: {"folder": file.parent.resolve().name, key: digest}, "links": "topologies/hardware.toml"},
        measured=[f"times of {measured}, as published"],
        assumed=["times predicted: simulated on the machine that each row describes, by the hardware catalogue"],
    )


def error_statistics(sizes: Sequence[float], signed: Sequence[float]) -> tuple[int, float, float, float]:
    """Return the number, median and 90 % quantile of |ln(predicted/measured)|, and the median with its sign."""
    return len(sizes), float(np.median(sizes)), float(np.quantile(sizes, 0.9)), float(np.median(signed))
