"""Tables that people keep as CSV files: read with the number of each line, and what is wrong in one line."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from s2sim.errors import S2SimError, nearest, plain_message
from s2sim.text_files import read_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pydantic import ValidationError

SHOWN = 40
"""Letters of a cell that a message quotes."""


def problem_of(error: ValidationError, where: str, cells: dict[str, str]) -> str:
    """Return in one line what is wrong with a row of a table."""
    first = error.errors()[0]
    column = str(first["loc"][0]) if first["loc"] else ""
    found = plain_message(first["msg"])
    return f"{where}, column {column}: {cells.get(column, '')[:SHOWN]!r}: {found[0].lower()}{found[1:]}"


def read_table(path: Path, needed: Sequence[str], most_bytes: int | None = None) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a CSV file that has all columns that are ``needed``.

    Each stands with the number of its line as editors count them, and its cells by column.
    """
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
            known = [each[:SHOWN] for each in header]
            raise S2SimError(f"{path.name} has no column {column!r}{nearest(column, known)}")
        if header.count(column) > 1:
            raise S2SimError(f"{path.name} has the column {column!r} twice: leave one out")
    rows = []
    for number, cells in found[1:]:
        if len(cells) != len(header):
            raise S2SimError(
                f"{path.name}, row {number}: it has {len(cells)} cells and the header {len(header)} columns"
            )
        rows.append((number, dict(zip(header, cells, strict=True))))
    return rows
