"""Testbeds made, for good or for as long as a block runs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from s2sim.errors import OptionError
from s2sim.testbed.network import commands
from s2sim.testbed.network.existing import names, remove
from s2sim.testbed.network.kernel import call, call_batch, check_allowed, write_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s2sim.testbed.network.layout import Layout


def build(layout: Layout) -> None:
    """Make a testbed.

    Raises
    ------
    OptionError
        If there is one of its name.
    S2SimError
        If this process may not, or the kernel cannot; what was made until then is removed.
    """
    check_allowed()
    if layout.name in names():
        raise OptionError(
            f"there is a testbed {layout.name}: take another --name, or remove it with s2sim testbed down {layout.name}"
        )
    # Of two that make the same testbed at once, one alone gets this namespace, and the other leaves it be.
    call("ip", "netns", "add", layout.switch)
    try:
        workers = range(layout.workers)
        call_batch("ip", commands.namespace_lines(layout))
        write_settings(
            {
                layout.switch: commands.switch_settings(),
                **{layout.namespace(worker): commands.worker_settings(layout) for worker in workers},
            }
        )
        call_batch("ip", commands.switch_lines(layout), namespace=layout.switch)
        call_batch("tc", commands.switch_buckets(layout), namespace=layout.switch)
        for worker in workers:
            call_batch("ip", commands.worker_lines(layout, worker), namespace=layout.namespace(worker))
            call_batch("tc", commands.worker_buckets(layout), namespace=layout.namespace(worker))
        # Last of all: a testbed without it was left half made.
        call("ip", "link", "set", commands.CORE, "alias", commands.layout_text(layout), namespace=layout.switch)
    except BaseException:
        remove(layout.name)
        raise


@contextmanager
def temporary(layout: Layout) -> Iterator[Layout]:
    """Make a testbed for as long as a block runs, and remove it however that ends."""
    build(layout)
    try:
        yield layout
    finally:
        remove(layout.name)
