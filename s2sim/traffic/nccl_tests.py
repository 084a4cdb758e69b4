"""Reads the output of nccl-tests and rccl-tests, with lines of launchers and of the library in between."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from s2sim.collectives import KINDS
from s2sim.errors import S2SimError
from s2sim.traffic.log_table import MeasuredRow, MeasuredTable, NcclDebugInfo, RankDevice

_TIMES = ("time", "cputime")
_ERROR_TITLES = "#wrong"
NONE = ("n/a", "nan", "-nan")
# An asterisk marks errors that old versions find too large.
_FIGURE = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\*?")
_MICRO = 1e-6
# A day: beyond is damage.
MAX_S = 86_400.0

# The titles of each group of figures of a table; a group begins with its time, the first is out-of-place.
_Columns = tuple[tuple[str, ...], ...]
# Seconds, how many values were wrong, and busbw over algbw, of each group of a row; None where there is no number.
_Figures = list[tuple[float | None, float | None, tuple[float, float] | None]]


def _read_columns(words: Sequence[str]) -> _Columns | None:
    """Return the columns of a header's words; None if it is no header, or has a title twice in a group."""
    if "size" not in words or "type" not in words:
        return None
    groups: list[list[str]] = []
    for word in words[words.index("type") + 1 :]:
        if word in _TIMES:
            groups.append([])
        if groups and word != "timestamp":
            groups[-1].append("time" if word in _TIMES else word)
    whole = bool(groups) and all(
        {"time", "algbw", "busbw"} <= set(group) and len(set(group)) == len(group) for group in groups
    )
    return tuple(map(tuple, groups)) if whole else None


def _read_figures(columns: _Columns, cells: Sequence[str]) -> _Figures | None:
    """Return a row's figures, maybe of the first group alone; None if they do not fit, `S2SimError` if malformed."""
    for groups in (columns, columns[:1]):
        needed = sum(map(len, groups))
        if len(cells) - needed in (0, 1):
            left = iter(cells[len(cells) - needed :])
            return [_group_figures({title: next(left) for title in group}) for group in groups]
    return None


def _group_figures(cells: dict[str, str]) -> tuple[float | None, float | None, tuple[float, float] | None]:
    time_us, algbw, busbw = (number(cells[title]) for title in ("time", "algbw", "busbw"))
    if time_us is not None and time_us * _MICRO > MAX_S:
        raise S2SimError(f"a time of {cells['time']} us is more than a day: mend the line or take it out")
    # Half of the last digit of each, and one per cent.
    off, bus_off = (0.5 * 0.1 ** len(cells[title].partition(".")[2]) for title in ("algbw", "busbw"))
    factors = None
    if algbw is not None and busbw is not None and algbw > off:
        factors = 0.99 * (busbw - bus_off) / (algbw + off), 1.01 * (busbw + bus_off) / (algbw - off)
    return None if time_us is None else time_us * _MICRO, number(cells.get(_ERROR_TITLES, "n/a")), factors


def _is_figure(text: str) -> bool:
    return text.lower() in NONE or _FIGURE.fullmatch(text) is not None


def number(text: str) -> float | None:
    """Return the number of a cell, None if it states that there is none; else `S2SimError`."""
    if text.lower() in NONE:
        return None
    value = float(text.rstrip("*")) if _FIGURE.fullmatch(text) else math.inf
    if not 0 <= value < math.inf:
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        raise S2SimError(f"{shown!r} is no figure of a measured row: mend the line or take it out")
    return value


MAX_BYTES = 2**26
"""Of a log: with NCCL_DEBUG=INFO many ranks fill megabytes."""

_PROGRAMS = {"all_to_all": "alltoall", "send_recv": "sendrecv"}
_KINDS_BY_LETTERS = {kind.replace("_", ""): kind for kind in KINDS}


def kind_of(name: str) -> str:
    """Return what s2sim calls a collective; a name as it is if there is none.

    >>> kind_of("AlltoAll"), kind_of("all_reduce"), kind_of("hypercube")
    ('all_to_all', 'all_reduce', 'hypercube')
    """
    return _KINDS_BY_LETTERS.get(name.replace("_", "").lower(), name)


def program_of(collective: str) -> str:
    """Return the program of nccl-tests that measures a collective.

    >>> program_of("all_to_all")
    'alltoall_perf'
    """
    return f"{_PROGRAMS.get(collective, collective)}_perf"


def library_of_code(code: int) -> str:
    """Return the library of a version as NCCL numbers it.

    >>> library_of_code(22705)
    'NCCL 2.27.5'
    """
    return f"NCCL {code // 10_000}.{code // 100 % 100}.{code % 100}"


_KNOWN_TYPE = re.compile(
    "int8|char|uint8|int32|int|uint32|uint|int64|uint64|half|float16|fp16|float32|float|float64|double|bfloat16|bf16|"
    "f8e4m3|f8e5m2|fp8_e4m3|fp8_e5m2|float8e4m3|float8e5m2"
)
# Launchers write a rank, a time or the name of a pod before a line.
_ROW = re.compile(r"(?:^|[\s:>|\]])(\d+)\s+(\d+)\s+([a-z]\w*)(?=\s|$)(.*)")
_MAX_PREFIX_WORDS = 3
_LIBRARY_SAYS = re.compile(r"\bNCCL (?:INFO|WARN|TRACE|CALL)\b")
_DEVICE = re.compile(
    r"\bRank\s+(\d{1,8})\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s*(?:\[[^\]]*\])?(.*)"
)
_TABLE_START = re.compile(r"\bnThread \d{1,8} nGpus (\d{1,8})\b")
# Some packages have programs of two names, one of them for MPI.
_PROGRAM_NAME = re.compile(r"Collective test (starting|concluded):\s*(\w+)_perf(?:_mpi)?\b")
_COMMAND = re.compile(r"\b(\w+)_perf(?:_mpi)?\s+-")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*(\S+)")
_LIBRARY = re.compile(r"\b([NR]CCL) version\s*:?\s*(\d\S*)")
_LIBRARY_CODE = re.compile(r"\bnccl-library=(\d{5,6})\b")
_STAMP = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d")
MAX_SIZE_BYTES, _MAX_LINE = 2**60, 10_000


def parse_nccl_tests(text: str, origin: str, *, in_place: bool = False) -> tuple[MeasuredTable, ...]:
    """Return the tables of a log of nccl-tests or rccl-tests, at least one, each with at least one row.

    Lines outside of tables may be anywhere; ``origin`` names the log in messages. ``in_place`` selects the times in
    place. `S2SimError`, with the line, if there is no table, or a row that cannot be read.
    """
    reading = _LogReader(in_place)
    for line_number, line in enumerate(text.split("\n"), start=1):
        try:
            reading.take(line_number, line[:_MAX_LINE])
        except S2SimError as error:
            raise S2SimError(f"{origin}, line {line_number}: {error}") from None
    reading.close()
    if reading.tables:
        return tuple(reading.tables)
    if reading.header is not None:
        way = "in-place" if in_place else "out-of-place"
        raise S2SimError(f"{origin}, line {reading.header}: no row with an {way} time follows this header")
    raise S2SimError(f"{origin} holds no table of nccl-tests: its header has size, count, type, time, algbw and busbw")


@dataclass(slots=True)
class _TablePreamble:
    named: str | None = None
    command: str | None = None
    said: NcclDebugInfo = field(default_factory=NcclDebugInfo)
    gpus_per_thread: int | None = None
    library: str | None = None
    devices: dict[int, RankDevice] = field(default_factory=dict)

    @property
    def collective(self) -> str | None:
        name = self.named or self.command
        return None if name is None else kind_of(name)

    @property
    def ranks(self) -> int | None:
        # A list may be cut short in the middle, and its last rank still be there.
        return max(self.devices) + 1 if self.devices else self.said.nranks

    def note(self, line: str) -> None:
        """Take what a line says that is none of the table."""
        if found := _TABLE_START.search(line):
            self.devices.clear()
            self.gpus_per_thread = int(found[1])
        elif found := _DEVICE.search(line):
            rank = int(found[1])
            self.devices[rank] = RankDevice(rank, found[2], found[3].strip())
        elif found := _PROGRAM_NAME.search(line):
            self.named = found[2]
        elif found := _COMMAND.search(line):
            self.command = found[1]
        if found := _LIBRARY.search(line):
            self.library = f"{found[1]} {found[2]}"
        elif found := _LIBRARY_CODE.search(line):
            self.library = library_of_code(int(found[1]))


class _LogReader:
    def __init__(self, in_place: bool) -> None:
        self.header: int | None = None
        self._group = int(in_place)
        self.tables: list[MeasuredTable] = []
        self._run = _TablePreamble()
        self._columns: _Columns | None = None
        self._rows: list[MeasuredRow] = []
        # Line and size of a row of which the library's own lines cut off the figures.
        self._begun: tuple[int, int] | None = None
        self._unfinished: list[int] = []

    def take(self, line_number: int, line: str) -> None:
        """Take the next line; `S2SimError` for a row that cannot be read."""
        if (said := _LIBRARY_SAYS.search(line)) is not None:
            self._run.said.note(line[said.end() :])
            # Its line may come after the first half of a row, without a break.
            if self._columns is not None and (row := _ROW.search(line[: said.start()])):
                self._begin(line_number, row)
            return
        if (columns := _read_columns(line.replace("#wrong", " #wrong ").split())) is not None:
            self.close()
            self.header, self._columns = line_number, columns
        elif self._columns is None or not self._take_row(line_number, line, self._columns):
            self._take_other(line)

    def _take_other(self, line: str) -> None:
        if (found := _AVERAGE.search(line)) and self._columns is not None:
            number(found[1])
            self.close()
            return
        found = _PROGRAM_NAME.search(line)
        if found and found[1] == "concluded":
            self.close()
            if self.tables and self.tables[-1].collective is None:
                self.tables[-1] = replace(self.tables[-1], collective=kind_of(found[2]))
            return
        if self._rows and (found or _TABLE_START.search(line)):
            self.close()
        self._run.note(line)

    def _take_row(self, line_number: int, line: str, columns: _Columns) -> bool:
        """Return whether a line is a row, or the second half of one, and store it."""
        row, count = _ROW.search(line), sum(map(len, columns))
        if row is None:
            words = line.split()
            before, cells = len(words) - count, words[-count:]
            if self._begun is None or not 0 <= before <= _MAX_PREFIX_WORDS or not all(map(_is_figure, cells)):
                return False
            self._keep(*self._begun, _read_figures(columns, cells))
            self._begun = None
            return True
        cells = row[4].split()
        if cells and cells[0].isalpha() and not _is_figure(cells[0]):
            del cells[0]
        while cells and _STAMP.fullmatch(cells[-1]):
            del cells[-1]
        known = _KNOWN_TYPE.fullmatch(row[3]) is not None
        if len(cells) <= 1 and known:
            self._begin(line_number, row)
            return True
        if not known and not all(map(_is_figure, cells)):
            return False
        figures = _read_figures(columns, cells)
        if figures is None and known:
            raise S2SimError(f"a row of {len(cells)} figures under a header of {count}: mend the line or take it out")
        if figures is not None:
            self._drop_begun()
            self._keep(line_number, _size(row[1]), figures)
        return figures is not None

    def _begin(self, line_number: int, row: re.Match[str]) -> None:
        self._drop_begun()
        self._begun = line_number, _size(row[1])

    def _drop_begun(self) -> None:
        if self._begun is not None:
            self._unfinished.append(self._begun[0])
            self._begun = None

    def _keep(self, line: int, size_bytes: int, figures: _Figures | None) -> None:
        if figures is None or len(figures) <= self._group:
            self._unfinished.append(line)
        elif (time_s := figures[self._group][0]) is not None:
            _, wrong, factors = figures[self._group]
            self._rows.append(MeasuredRow(line, size_bytes, time_s, wrong, bus_factors=factors))

    def close(self) -> None:
        """End the open table; its preamble holds for no other, unless it has no rows."""
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
                rows=tuple(replace(row, **run.said.choice(row.size_bytes)._asdict()) for row in self._rows),
                unfinished=tuple(self._unfinished),
                rings=run.said.rings(ranks),
                trees=run.said.trees(ranks),
                transports=run.said.transports,
            )
            self.tables.append(table)
            self._run = _TablePreamble()
        self._rows, self._unfinished, self._columns = [], [], None


def _size(digits: str) -> int:
    if len(digits) > 19 or int(digits) > MAX_SIZE_BYTES:
        raise S2SimError("its size is above 2^60 bytes: mend the line or take it out")
    return int(digits)
