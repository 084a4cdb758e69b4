"""Writes a table as nccl-tests prints it, for programs that read that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from s2sim.traffic.log_table import MeasuredRow, MeasuredTable
from s2sim.traffic.nccl_tests import COLLECTIVES

_PROGRAMS = {ours: theirs for theirs, ours in COLLECTIVES.items()}
_SUMS = ("all_reduce", "reduce_scatter", "reduce")
_ROOTED = ("broadcast", "reduce")
# A rank's own part is counted, not the buffer of all.
_PARTS = ("all_gather", "reduce_scatter", "all_to_all")
_ITEM_BYTES = {"float": 4, "int8": 1}
_NO_ROOT = -1


def program_of(collective: str) -> str:
    """Return the program of nccl-tests that measures a collective.

    >>> program_of("all_to_all")
    'alltoall_perf'
    """
    return f"{_PROGRAMS.get(collective, collective)}_perf"


def nccl_tests_lines(table: MeasuredTable, *, factor: int, root: int, remarks: Sequence[str]) -> list[str]:
    """Return the lines of a table with known collective and ranks; in-place columns repeat the out-of-place ones.

    ``factor`` is the ratio of one size to the next, ``root`` the rank of a broadcast or reduce, ``remarks`` are
    lines before the table.
    """
    program = program_of(table.collective or "")
    rates = [row.busbw_Bps for row in table.rows if row.busbw_Bps is not None]
    return [
        *(f"# {remark}" for remark in remarks),
        f"# Collective test starting: {program}",
        _parameters(table, factor),
        "#",
        "# Using devices",
        *_devices(table),
        "#",
        f"# {'':10}  {'':12}  {'':8}  {'':6}  {'':6}           out-of-place                       in-place",
        _line("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2),
        _line("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2),
        *(_row(table, row, root) for row in table.rows),
        f"# Avg bus bandwidth    : {fmean(rates) / 1e9 if rates else 0:g}",
        "#",
        f"# Collective test concluded: {program}",
    ]


def _parameters(table: MeasuredTable, factor: int) -> str:
    sizes = [row.size_bytes for row in table.rows]
    return (
        f"# nThread 1 nGpus {table.gpus_per_thread or 1} minBytes {min(sizes)} maxBytes {max(sizes)} "
        f"step: {factor}(factor) warmup iters: 0 iters: 1 agg iters: 1 validation: 0 graph: 0"
    )


def _devices(table: MeasuredTable) -> Iterator[str]:
    places: dict[str, int] = {}
    for device in table.devices:
        place = places[device.host] = places.get(device.host, -1) + 1
        yield f"#  Rank {device.rank:2} Group  0 Pid      0 on {device.host:>10} device {place:2} [0x00] {device.gpu}"


def _line(*cells: str, begin: str = "#") -> str:
    size, count, dtype, redop, root, *figures = cells
    groups = "  ".join(
        f"{time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}"
        for time, algbw, busbw, wrong in (figures[at : at + 4] for at in range(0, len(figures), 4))
    )
    return f"{begin} {size:>10}  {count:>12}  {dtype:>8}  {redop:>6}  {root:>6}  {groups}".rstrip()


def _row(table: MeasuredTable, row: MeasuredRow, root: int) -> str:
    parts = (table.ranks or 1) if table.collective in _PARTS else 1
    bandwidths = ("N/A" if rate is None else _fitting(rate / 1e9, 6) for rate in (row.algbw_Bps, row.busbw_Bps))
    figures = (_fitting(row.time_s * 1e6, 7), *bandwidths, "N/A" if row.wrong is None else f"{row.wrong:g}")
    return _line(
        str(row.size_bytes),
        str(row.size_bytes // _ITEM_BYTES[row.dtype] // parts),
        row.dtype,
        "sum" if table.collective in _SUMS else "none",
        str(root if table.collective in _ROOTED else _NO_ROOT),
        *figures * 2,
        begin=" ",
    )


def _fitting(value: float, width: int) -> str:
    """Return a number with two decimals, or fewer if they do not fit."""
    texts = (f"{value:.{digits}f}" for digits in (2, 1))
    return next((text for text in texts if len(text) <= width), f"{value:.0f}")
