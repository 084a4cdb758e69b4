"""The transfers of a traffic file."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import OptionError, S2SimError
from s2sim.text_files import read_text
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.arrays import Floats, Ints
    from s2sim.study.flows.spec import FlowsSpec

COLUMNS = ("start_s", "src", "dst", "bytes")
# A picosecond count of this many seconds still fits in 64 bits with room for what is simulated after it.
_LATEST_START_S = 1e6
_MOST_RANKS = 10**9
# About two million transfers.
_MOST_BYTES = 2**26


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """What a traffic file asks for, one entry a line, in arrays of shape (n,).

    Start times are int64 picoseconds, ranks int64, sizes float64 bytes.
    """

    start_ps: Ints
    src: Ints
    dst: Ints
    sizes_bytes: Floats

    @property
    def ranks(self) -> int:
        """How many ranks it takes to have all that are named."""
        return int(max(self.src.max(initial=0), self.dst.max(initial=0))) + 1


def transfers_of(spec: FlowsSpec) -> Transfers:
    """Return the transfers of the file that a spec names."""
    if spec.file is None:
        raise OptionError("there is nothing to send: the spec names no file of transfers")
    return read_transfers(Path(spec.file))


def read_transfers(path: Path) -> Transfers:
    """Return the transfers of a CSV file with the columns ``start_s``, ``src``, ``dst`` and ``bytes``.

    `S2SimError` names the line that is wrong.
    """
    text = read_text(path, most_bytes=_MOST_BYTES)
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    try:
        if reader.fieldnames is None or set(COLUMNS) - set(reader.fieldnames):
            raise S2SimError(f"{path}: the first line must name the columns {','.join(COLUMNS)}")
        rows = [_read_row(row, f"{path}, line {reader.line_num}") for row in reader]
    except csv.Error as error:
        raise S2SimError(f"{path}, line {reader.line_num}: {error}") from None
    start_s, src, dst, sizes = (np.array(column) for column in zip(*rows, strict=True)) if rows else (np.zeros(0),) * 4
    return Transfers(
        start_ps=np.rint(start_s * PS_PER_S).astype(np.int64),
        src=src.astype(np.int64),
        dst=dst.astype(np.int64),
        sizes_bytes=sizes.astype(np.float64),
    )


def _read_row(row: dict[str, str], where: str) -> tuple[float, int, int, float]:
    try:
        start_s, size_bytes = float(row["start_s"]), float(row["bytes"])
        src, dst = int(row["src"]), int(row["dst"])
    except (TypeError, ValueError):
        raise S2SimError(f"{where}: {','.join(COLUMNS)} must be numbers, ranks whole ones") from None
    if not 0 <= start_s <= _LATEST_START_S:
        raise S2SimError(f"{where}: start_s {start_s} must lie between 0 and {_LATEST_START_S:g} seconds")
    for name, rank in (("src", src), ("dst", dst)):
        if not 0 <= rank < _MOST_RANKS:
            raise S2SimError(f"{where}: {name} {str(rank)[:40]} is no rank: they count from 0")
    if src == dst:
        raise S2SimError(f"{where}: rank {src} sends to itself, which needs no network: leave the line out")
    if not 0 <= size_bytes < float("inf"):
        raise S2SimError(f"{where}: {size_bytes} bytes cannot be sent")
    return start_s, src, dst, size_bytes
