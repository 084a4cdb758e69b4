"""Reads what nccl-tests and rccl-tests print, as people keep it: among the lines of launchers and of the library."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.study.measured_logs.columns import Columns, Figures, is_figure, number, read_columns
from s2sim.study.measured_logs.debug_lines import Said
from s2sim.study.measured_logs.table import Device, MeasuredRow, MeasuredTable
from s2sim.text_files import read_text

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 2**26
"""Of a log: with NCCL_DEBUG=INFO many ranks fill megabytes."""

COLLECTIVES = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
"""What s2sim calls otherwise than nccl-tests."""

_TYPES = (
    "int8|char|uint8|int32|int|uint32|uint|int64|uint64|half|float16|fp16|float32|float|float64|double|bfloat16|bf16|"
    "f8e4m3|f8e5m2|fp8_e4m3|fp8_e5m2|float8e4m3|float8e5m2"
)
_KNOWN_TYPE = re.compile(_TYPES)
# Launchers write a rank, a time or the name of a pod before a line.
_ROW = re.compile(r"(?:^|[\s:>|\]])(\d+)\s+(\d+)\s+([a-z]\w*)(?=\s|$)(.*)")
_MOST_PREFIX_WORDS = 3
_LIBRARY_SAYS = re.compile(r"\bNCCL (?:INFO|WARN|TRACE|CALL)\b")
_DEVICE = re.compile(
    r"\bRank\s+(\d{1,8})\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s*(?:\[[^\]]*\])?(.*)"
)
_BEGINS = re.compile(r"\bnThread \d{1,8} nGpus (\d{1,8})\b")
# Some packages have programs of two names, one of them for MPI.
_NAMED = re.compile(r"Collective test (starting|concluded):\s*(\w+)_perf(?:_mpi)?\b")
_COMMAND = re.compile(r"\b(\w+)_perf(?:_mpi)?\s+-")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*(\S+)")
_LIBRARY = re.compile(r"\b([NR]CCL) version\s*:?\s*(\d\S*)")
_LIBRARY_CODE = re.compile(r"\bnccl-library=(\d{5,6})\b")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d")
_MOST_SIZE_BYTES = 2**60
_MOST_LINE = 10_000


def read_nccl_tests(path: Path, *, in_place: bool = False) -> tuple[MeasuredTable, ...]:
    """Return the tables of a log of nccl-tests or rccl-tests, in its order.

    Parameters
    ----------
    path : Path
        A text file of at most 64 MiB. Lines that belong to no table may stand anywhere.
    in_place : bool
        Whether to take the times in place; else those out of place.

    Returns
    -------
    tuple of MeasuredTable
        At least one, each with at least one row.

    Raises
    ------
    S2SimError
        Where there is no table, or a row that cannot be read; the text has its line.
    """
    text = read_text(path, noun="the log", most_bytes=MOST_BYTES)
    return parse_nccl_tests(text, str(path), in_place=in_place)


def parse_nccl_tests(text: str, origin: str, *, in_place: bool = False) -> tuple[MeasuredTable, ...]:
    """Return the tables of a log's text, see `read_nccl_tests`; ``origin`` names it in messages."""
    reading = _Reading(in_place)
    for line_number, line in enumerate(text.split("\n"), start=1):
        try:
            reading.take(line_number, line[:_MOST_LINE])
        except S2SimError as error:
            raise S2SimError(f"{origin}, line {line_number}: {error}") from None
    tables = reading.finished()
    if tables:
        return tables
    if reading.header is not None:
        way = "in-place" if in_place else "out-of-place"
        raise S2SimError(f"{origin}, line {reading.header}: no row with an {way} time follows this header")
    raise S2SimError(f"{origin} holds no table of nccl-tests: its header has size, count, type, time, algbw and busbw")


@dataclass(slots=True)
class _Run:
    """What lines before a table say of it."""

    named: str | None = None
    command: str | None = None
    said: Said = field(default_factory=Said)
    gpus_per_thread: int | None = None
    library: str | None = None
    devices: dict[int, Device] = field(default_factory=dict)

    @property
    def collective(self) -> str | None:
        name = self.named or self.command
        return None if name is None else COLLECTIVES.get(name, name)

    @property
    def ranks(self) -> int | None:
        # A list may be cut short in the middle, and its last rank still be there.
        return max(self.devices) + 1 if self.devices else self.said.nranks

    def ran(self, row: MeasuredRow) -> MeasuredRow:
        """Return a row with how it ran, where the library says so."""
        return replace(row, **self.said.choice(row.size_bytes)._asdict())

    def note(self, line: str) -> None:
        """Take what a line says that is none of the table."""
        if found := _BEGINS.search(line):
            self.devices.clear()
            self.gpus_per_thread = int(found[1])
        elif found := _DEVICE.search(line):
            rank = int(found[1])
            self.devices[rank] = Device(rank, found[2], found[3].strip())
        elif found := _NAMED.search(line):
            self.named = found[2]
        elif found := _COMMAND.search(line):
            self.command = found[1]
        if found := _LIBRARY.search(line):
            self.library = f"{found[1]} {found[2]}"
        elif found := _LIBRARY_CODE.search(line):
            code = int(found[1])
            self.library = f"NCCL {code // 10_000}.{code // 100 % 100}.{code % 100}"


@dataclass(slots=True)
class _Begun:
    """A row of which the library's own lines cut off the figures."""

    line: int
    size_bytes: int
    dtype: str


class _Reading:
    """The tables so far, and the one that lines go to."""

    def __init__(self, in_place: bool) -> None:
        self.header: int | None = None
        self._group = int(in_place)
        self._tables: list[MeasuredTable] = []
        self._run = _Run()
        self._columns: Columns | None = None
        self._rows: list[MeasuredRow] = []
        self._begun: _Begun | None = None
        self._unfinished: list[int] = []

    def finished(self) -> tuple[MeasuredTable, ...]:
        """Return all tables once the last line was taken."""
        self._close()
        return tuple(self._tables)

    def take(self, line_number: int, line: str) -> None:
        """Take the next line; `S2SimError` for a row that cannot be read."""
        said = _LIBRARY_SAYS.search(line)
        if said is not None:
            self._run.said.note(line[said.end() :])
            # Its line may come after the first half of a row, without a break.
            if self._columns is not None and (row := _ROW.search(line[: said.start()])):
                self._begin(line_number, row)
            return
        columns = read_columns(line.replace("#wrong", " #wrong ").split())
        if columns is not None:
            self._close()
            self.header, self._columns = line_number, columns
        elif self._columns is None or not self._take_row(line_number, line, self._columns):
            self._take_other(line)

    def _take_other(self, line: str) -> None:
        if (found := _AVERAGE.search(line)) and self._columns is not None:
            self._close(number(found[1]))
            return
        found = _NAMED.search(line)
        if found and found[1] == "concluded":
            self._close()
            if self._tables and self._tables[-1].collective is None:
                self._tables[-1] = replace(self._tables[-1], collective=COLLECTIVES.get(found[2], found[2]))
            return
        if self._rows and (found or _BEGINS.search(line)):
            self._close()
        self._run.note(line)

    def _take_row(self, line_number: int, line: str, columns: Columns) -> bool:
        """Return whether a line is a row, or the second half of one, and keep it."""
        row = _ROW.search(line)
        if row is None:
            words = line.split()
            cells = words[-columns.count :]
            before = len(words) - columns.count
            if self._begun is None or not 0 <= before <= _MOST_PREFIX_WORDS or not all(map(is_figure, cells)):
                return False
            self._keep(self._begun, columns.figures(cells))
            self._begun = None
            return True
        cells = row[4].split()
        if cells and cells[0].isalpha() and not is_figure(cells[0]):
            del cells[0]
        while cells and _STAMP.fullmatch(cells[-1]):
            del cells[-1]
        known = _KNOWN_TYPE.fullmatch(row[3]) is not None
        if len(cells) <= 1 and known:
            self._begin(line_number, row)
            return True
        if not known and not all(map(is_figure, cells)):
            return False
        figures = columns.figures(cells)
        if figures is None and known:
            raise S2SimError(
                f"a row of {len(cells)} figures under a header of {columns.count}: mend the line or take it out"
            )
        if figures is not None:
            self._drop_begun()
            self._keep(_Begun(line_number, _size(row[1]), row[3]), figures)
        return figures is not None

    def _begin(self, line_number: int, row: re.Match[str]) -> None:
        self._drop_begun()
        self._begun = _Begun(line_number, _size(row[1]), row[3])

    def _drop_begun(self) -> None:
        if self._begun is not None:
            self._unfinished.append(self._begun.line)
            self._begun = None

    def _keep(self, row: _Begun, figures: list[Figures] | None) -> None:
        if figures is None or len(figures) <= self._group:
            self._unfinished.append(row.line)
            return
        found = figures[self._group]
        if found.time_s is not None:
            self._rows.append(MeasuredRow(row.line, row.size_bytes, row.dtype, found.time_s, *found[1:]))

    def _close(self, average_GBps: float | None = None) -> None:
        """End the table that is open; what was said of it holds for no other, unless it has no rows."""
        self._drop_begun()
        if self._rows and self.header is not None:
            run, ranks = self._run, self._run.ranks or 0
            table = MeasuredTable(
                line=self.header,
                collective=run.collective,
                ranks=run.ranks,
                devices=tuple(run.devices[rank] for rank in sorted(run.devices)),
                gpus_per_thread=run.gpus_per_thread,
                library=run.library,
                channels=run.said.channels,
                rows=tuple(map(run.ran, self._rows)),
                average_busbw_Bps=None if average_GBps is None else average_GBps * 1e9,
                unfinished=tuple(self._unfinished),
                rings=run.said.rings(ranks),
                trees=run.said.trees(ranks),
                transports=run.said.transports,
            )
            self._tables.append(table)
            self._run = _Run()
        self._rows, self._unfinished, self._columns = [], [], None


def _size(digits: str) -> int:
    if len(digits) > 19 or int(digits) > _MOST_SIZE_BYTES:
        raise S2SimError("its size is above 2^60 bytes: mend the line or take it out")
    return int(digits)
