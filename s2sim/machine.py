"""The memory and the cores that this process may use."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_CGROUP_FILES = Path("/sys/fs/cgroup/memory.max")


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


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
