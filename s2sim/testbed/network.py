"""Testbeds found and removed; a testbed is its namespaces, and nothing else remembers it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from s2sim.errors import OptionError, S2SimError, suggest_nearest
from s2sim.testbed import kernel
from s2sim.testbed.layout import INTERFACE, NetworkLayout, switch_of, testbed_of


def list_testbed_names() -> tuple[str, ...]:
    """Return the names of all testbeds, also of those that are half made or half removed."""
    return tuple(sorted({name for name in map(testbed_of, _all_namespaces()) if name is not None}))


def find_testbed(name: str) -> NetworkLayout | None:
    """Return the layout of a testbed, None if it is incomplete; `OptionError` if there is none of that name."""
    kernel.check_privileges()
    spaces = _namespaces_of(name)
    try:
        (shown,) = json.loads(kernel.run_tool("ip", "-json", "link", "show", kernel.CORE, namespace=switch_of(name)))
    except (S2SimError, ValueError):
        return None
    layout = kernel.layout_from(name, shown.get("ifalias", ""))
    return layout if layout is not None and set(layout.namespaces) == set(spaces) else None


def processes_in(name: str) -> tuple[int, ...]:
    """Return the numbers of the processes that run in a testbed."""
    return _processes(_namespaces_of(name))


def remove_testbed(name: str) -> int:
    """Remove a testbed and return the number of processes ended; `OptionError` if unknown, `S2SimError` on failure."""
    kernel.check_privileges()
    spaces = _namespaces_of(name)
    ended = _end_processes(name, spaces)
    # The namespace of the switches is the last, for as long as it is there nobody else takes the name.
    spaces = sorted(spaces, key=lambda space: space == switch_of(name))
    kernel.run_tool_batch("ip", [f"netns delete {space}" for space in spaces])
    return ended


def _all_namespaces() -> list[str]:
    return sorted(path.name for path in kernel.NAMESPACES.iterdir()) if kernel.NAMESPACES.is_dir() else []


def _namespaces_of(name: str) -> list[str]:
    spaces = [space for space in _all_namespaces() if testbed_of(space) == name]
    if not spaces:
        raise OptionError(f"there is no testbed {name!r}{suggest_nearest(name, list_testbed_names())}")
    return spaces


def _end_processes(name: str, spaces: list[str]) -> int:
    until_s = time.monotonic() + 10.0
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
        time.sleep(0.02)
    return len(ended)


def _processes(spaces: list[str]) -> tuple[int, ...]:
    within = set()
    for space in spaces:
        with suppress(FileNotFoundError):
            status = (kernel.NAMESPACES / space).stat()
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


def build_testbed(layout: NetworkLayout) -> None:
    """Create a testbed, removing its parts on failure; `OptionError` if it exists, `S2SimError` if not permitted."""
    kernel.check_privileges()
    if layout.name in list_testbed_names():
        raise OptionError(
            f"there is a testbed {layout.name}: take another --name, or remove it with s2sim dev testbed down "
            f"{layout.name}"
        )
    # Of two that make the same testbed at once, one alone gets this namespace, and the other leaves it be.
    kernel.run_tool("ip", "netns", "add", layout.switch)
    try:
        workers = range(layout.workers)
        kernel.run_tool_batch("ip", [f"netns add {layout.namespace(worker)}" for worker in workers])
        settings = {layout.namespace(worker): kernel.worker_settings(layout) for worker in workers}
        kernel.write_settings({layout.switch: kernel.switch_settings(), **settings})
        kernel.run_tool_batch("ip", kernel.switch_lines(layout), namespace=layout.switch)
        kernel.run_tool_batch("tc", kernel.switch_buckets(layout), namespace=layout.switch)
        own_buckets = kernel.bucket(INTERFACE, layout.rate_Bps, layout.shaping)
        for worker, namespace in enumerate(map(layout.namespace, workers)):
            kernel.run_tool_batch("ip", kernel.worker_lines(layout, worker), namespace=namespace)
            kernel.run_tool_batch("tc", own_buckets, namespace=namespace)
        # Last of all: a testbed without it was left half made.
        kernel.run_tool("ip", "link", "set", kernel.CORE, "alias", kernel.layout_text(layout), namespace=layout.switch)
    except BaseException:
        remove_testbed(layout.name)
        raise


@contextmanager
def temporary_testbed(layout: NetworkLayout) -> Iterator[NetworkLayout]:
    """Make a testbed for as long as a block runs, and remove it however that ends."""
    build_testbed(layout)
    try:
        yield layout
    finally:
        remove_testbed(layout.name)
