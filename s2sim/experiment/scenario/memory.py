"""The most ranks of a run: each one runs every reducer's program, and memory stores all gradients."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from s2sim.errors import OptionError
from s2sim.gradients.gradient import RowSparse
from s2sim.gradients.law import ExtrapolatedRanks
from s2sim.gradients.synthetic import AnyTrace, SyntheticTrace
from s2sim.units import format_bytes

# Every rank runs every reducer's program, a millisecond or so each.
_MAX_RANKS = 2**17
_CGROUP_FILES = Path("/sys/fs/cgroup/memory.max")


def check_ranks(workers: int, trace: AnyTrace) -> None:
    """Refuse more ranks than can be run, or than memory can store the gradients of."""
    if workers > _MAX_RANKS:
        raise OptionError(
            f"--workers {workers}: each one runs every reducer on its own gradient, and at most {_MAX_RANKS} are run: "
            "ask for fewer, or time one collective of them with s2sim collective"
        )
    needed, there = workers * held_bytes(trace), memory_bytes()
    if there is not None and needed > there:
        raise OptionError(
            f"--workers {workers}: the gradients of {trace.name} take about {format_bytes(needed)}, and there are "
            f"{format_bytes(there)} of memory: ask for fewer workers or smaller gradients"
        )


def held_bytes(trace: AnyTrace) -> int:
    """Return the bytes that the gradient of one rank takes in memory."""
    if isinstance(trace, SyntheticTrace):
        return trace.options.held_bytes
    layers = trace.gradient(0, 0).layers
    # Drawn ranks have the dense layers of a recorded one.
    dense = (
        0
        if isinstance(trace, ExtrapolatedRanks)
        else sum(each.nbytes for each in layers if not isinstance(each, RowSparse))
    )
    return dense + sum(each.rows.nbytes + each.values.nbytes for each in layers if isinstance(each, RowSparse))


def memory_bytes() -> int | None:
    """Return the memory limit of this process, or None if it is not known."""
    sizes: list[int] = []
    with suppress(AttributeError, OSError, ValueError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):
        # The word "max" stands for none.
        sizes.append(int(_CGROUP_FILES.read_text(encoding="ascii")))
    return min(sizes, default=None)


def free_memory_bytes() -> int | None:
    """Return the memory that this process can still have, or None if it is not known."""
    limit = memory_bytes()
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
        return free if limit is None else min(free, limit)
    return limit
