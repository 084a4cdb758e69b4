"""Testbeds found and removed; a testbed is its namespaces, and nothing else remembers it."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from s2sim.errors import OptionError, S2SimError, nearest
from s2sim.testbed.network.commands import CORE, layout_from
from s2sim.testbed.network.kernel import NAMESPACES, call, call_batch, check_allowed
from s2sim.testbed.network.layout import Layout, switch_of, testbed_of

_END_WITHIN_S = 10.0
_LOOK_AGAIN_S = 0.02


def names() -> tuple[str, ...]:
    """Return the names of all testbeds, also of those that are half made or half removed."""
    return tuple(sorted({name for name in map(testbed_of, _all_namespaces()) if name is not None}))


def found() -> tuple[Layout, ...]:
    """Return all testbeds that are whole, by name.

    Raises
    ------
    S2SimError
        If this process may not look.
    """
    return tuple(layout for layout in map(find, names()) if layout is not None)


def find(name: str) -> Layout | None:
    """Return the layout of a testbed, None of one that is half made or half removed.

    Raises
    ------
    OptionError
        If there is none of that name.
    S2SimError
        If this process may not look.
    """
    check_allowed()
    spaces = _namespaces_of(name)
    try:
        (shown,) = json.loads(call("ip", "-json", "link", "show", CORE, namespace=switch_of(name)))
    except (S2SimError, ValueError):
        return None
    layout = layout_from(name, shown.get("ifalias", ""))
    return layout if layout is not None and set(layout.namespaces) == set(spaces) else None


def processes_in(name: str) -> tuple[int, ...]:
    """Return the numbers of the processes that run in a testbed."""
    return _processes(_namespaces_of(name))


def remove(name: str) -> int:
    """Remove a testbed, whole or not, and return how many processes that ran in it were ended.

    Raises
    ------
    OptionError
        If there is none of that name.
    S2SimError
        If this process may not, or runs in the testbed, or another one there does not end.
    """
    check_allowed()
    spaces = _namespaces_of(name)
    ended = _end_processes(name, spaces)
    # The namespace of the switches is the last, for as long as it is there nobody else takes the name.
    spaces = sorted(spaces, key=lambda space: space == switch_of(name))
    call_batch("ip", [f"netns delete {space}" for space in spaces])
    return ended


def _all_namespaces() -> list[str]:
    return sorted(path.name for path in NAMESPACES.iterdir()) if NAMESPACES.is_dir() else []


def _namespaces_of(name: str) -> list[str]:
    spaces = [space for space in _all_namespaces() if testbed_of(space) == name]
    if not spaces:
        raise OptionError(f"there is no testbed {name!r}{nearest(name, names())}")
    return spaces


def _end_processes(name: str, spaces: list[str]) -> int:
    until_s = time.monotonic() + _END_WITHIN_S
    ended: set[int] = set()
    # What is ended may just have started another.
    while running := _processes(spaces):
        if os.getpid() in running:
            raise S2SimError(f"this process runs in testbed {name} itself: remove it from outside")
        if time.monotonic() > until_s:
            raise S2SimError(f"processes in testbed {name} do not end: {', '.join(map(str, running))}")
        for process in running:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        ended.update(running)
        time.sleep(_LOOK_AGAIN_S)
    return len(ended)


def _processes(spaces: list[str]) -> tuple[int, ...]:
    """Return the processes whose network namespace is one of these."""
    within = set()
    for space in spaces:
        with suppress(FileNotFoundError):
            status = (NAMESPACES / space).stat()
            within.add((status.st_dev, status.st_ino))
    running = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            # It may have ended meanwhile, or show nothing because it has.
            with suppress(OSError):
                status = (path / "ns" / "net").stat()
                if (status.st_dev, status.st_ino) in within:
                    running.append(int(path.name))
    return tuple(sorted(running))
