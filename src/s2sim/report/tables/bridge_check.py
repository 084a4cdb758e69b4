"""Reducers between real processes as a table: values and bytes beside those in memory."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from s2sim.report.tables.grid import Column, Grid

if TYPE_CHECKING:
    from s2sim.study.bridge_check.result import Checked, CheckRow

_COLUMNS = (
    "Values: of every rank in every step, relative L2; up to 1e-6 where sums are in the library's order. script B: "
    "what all ranks send by the lowered scripts; headers B: Gloo's, three of 48 bytes a message, and 8 bytes of each "
    "new connection; told B: shapes, and who sends, which programs know and processes have to be told; counted B: what "
    "the kernel counted on all TCP connections, less barriers and what was sent again."
)
_ok, _equal, _values_agree = map(attrgetter, ("ok", "equal", "values_agree"))
_NUMBERS = ("script B", "headers B", "told B", "counted B")


def check_grid(checked: Checked) -> Grid:
    """Return a row for each reducer; what does not agree stands out."""
    rows = tuple(_cells(row) for row in checked.rows)
    columns = (
        Column("reducer", numeric=False),
        Column("values", numeric=False),
        *(Column(title) for title in _NUMBERS),
        Column("bytes", numeric=False),
    )
    title = f"{checked.trace} between {checked.workers} processes of {checked.library}"
    return Grid(title, columns, rows, strong=frozenset(at for at, row in enumerate(checked.rows) if not row.ok))


def _cells(row: CheckRow) -> tuple[str, ...]:
    if row.refused:
        return (row.reducer, "not run", *[""] * len(_NUMBERS), "")
    values = "equal" if row.equal else ("undefined" if row.difference is None else f"off by {row.difference:.1e}")
    numbers = (row.payload_bytes, row.around_bytes, row.told_bytes, row.counted_bytes)
    return (row.reducer, values, *map(_grouped, numbers), "equal" if row.bytes_equal else "UNEQUAL")


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def check_lines(checked: Checked) -> list[str]:
    """Return what the table's columns are, what does not agree and why, and the sum of it."""
    rows = checked.rows
    agree, equal, alike = (sum(map(of, rows)) for of in (_ok, _equal, _values_agree))
    lines = [_COLUMNS]
    lines += [f"{row.reducer}: not run: {row.refused}" for row in rows if row.refused]
    lines += [f"{row.reducer}: {row.rounded}" for row in rows if row.rounded]
    lines += [
        f"{row.reducer}: {'' if row.values_agree else 'values '}"
        f"{'' if row.values_agree or row.bytes_equal else 'and '}{'' if row.bytes_equal else 'bytes '}disagree"
        for row in rows
        if not row.ok and not row.refused
    ]
    lines.append(_interface_line(checked))
    lines.append(
        f"{agree} of {len(rows)} reducers agree: {equal} with the same bits, {alike - equal} as far as the order and "
        f"the rounding of sums let them; {sum(row.bytes_equal for row in rows)} with equal bytes."
        + ("" if checked.complete else " Interrupted: what was not finished is missing.")
    )
    return lines


def _interface_line(checked: Checked) -> str:
    found = checked.interface
    if found is None:
        return (
            "The loopback interface is shared with whatever else runs on this machine, so that its own counter tells "
            "nothing: a network namespace of its own needs root."
        )
    text = (
        f"The interface, which nothing else uses: {_grouped(found.bytes)} bytes in {_grouped(found.packets)} packets; "
        f"connections sent {_grouped(found.connections_bytes)}, headers of IP and TCP (52 bytes a packet, 8 more of "
        "the first two of each connection, 12 more of what tells that something came twice) are "
        f"{_grouped(found.header_bytes)}"
    )
    if found.equal:
        return f"{text}: equal."
    apart = _grouped(abs(found.bytes - found.connections_bytes - found.header_bytes))
    why = ": acknowledgements of what was lost name more of what has come" if found.again_bytes else ""
    return f"{text}: {apart} apart{why}."
