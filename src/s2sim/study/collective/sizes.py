"""Sizes of collectives as nccl-tests counts them, and the demands that they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.kinds import KINDS, Kind
from s2sim.collectives.schedules.demand import Demand, barrier
from s2sim.errors import OptionError, S2SimError, UnitError, unknown_name
from s2sim.text_files import read_text
from s2sim.units import parse_size_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_FLOAT32_BYTES = 4


def make_demand(kind: Kind, size_bytes: int | Sequence[int], workers: int, root: int = 0) -> Demand:
    """Return the demand of a size as nccl-tests counts it, or of a size for each rank.

    One size is a rank's buffer; of an all-gather the gathered one, of a reduce-scatter the one that is reduced. Several
    are what each rank contributes, or what it ends with in a reduce-scatter. Elements are float32 where sizes allow,
    else bytes; parts that do not divide by the ranks differ by one element.
    """
    if kind not in KINDS:
        raise unknown_name("collective", kind, KINDS)
    sizes = [size_bytes] if isinstance(size_bytes, int) else list(size_bytes)
    if not isinstance(size_bytes, int) and len(sizes) != workers:
        raise OptionError(f"{len(sizes)} sizes were given for {workers} workers: give one a rank")
    if kind == "barrier":
        if any(sizes):
            raise OptionError(f"a barrier moves nothing: leave the size of {max(sizes)} bytes out")
        return barrier(workers)
    itemsize = 1 if any(size % _FLOAT32_BYTES for size in sizes) else _FLOAT32_BYTES
    elements = [size // itemsize for size in sizes]
    if isinstance(size_bytes, int):
        whole = elements[0]
        if kind in ("all_gather", "reduce_scatter"):
            elements = np.diff(np.arange(workers + 1) * whole // workers).tolist()
        else:
            elements = [whole] * workers
    return Demand(kind, tuple(elements), itemsize, root)


def read_sizes(path: Path) -> list[int]:
    """Return the sizes of a text file with one a line, each with its unit; ``#`` begins a comment.

    `S2SimError` names the line that is wrong.
    """
    sizes = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if text:
            try:
                sizes.append(parse_size_bytes(text))
            except UnitError as error:
                raise UnitError(f"{path}, line {number}: {error}") from error
    if not sizes:
        raise S2SimError(f"{path} holds no size: write one a line, for example 3MiB")
    return sizes


def counted_bytes(demand: Demand) -> int:
    """Return the size of a demand as nccl-tests counts it, the inverse of `make_demand`."""
    own = demand.kind in ("all_to_all", "send_recv")
    return max(demand.elements) * demand.itemsize if own else demand.buffer_bytes
