"""Which testbeds are measured: one that is up, or a series that is made for it."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

from s2sim.errors import OptionError
from s2sim.units import parse_option, parse_rate_Bps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.testbed.network.layout import Layout


def layouts_of(
    up: str | None, *, workers: Sequence[int], rate: str | None, nodes: str | None, uplink: str | None
) -> list[Layout]:
    """Return the testbed that is up by a name, or one for each number of workers, rate and rate of uplinks.

    Parameters
    ----------
    up : str or None
        Of one that is up; nothing else is given then.
    workers : sequence of int
        Each with an interface of its own; none where nodes are given.
    rate, uplink : str or None
        Rates with their unit, parted by commas; without, nothing is shaped, and an uplink has the rate of interfaces.
    nodes : str or None
        Such as ``2x4``: two nodes of four workers.
    """
    from s2sim.testbed.network.layout import Layout

    given = {"--workers": workers, "--rate": rate, "--nodes": nodes, "--uplink": uplink}
    if up is not None:
        if taken := [option for option, value in given.items() if value]:
            raise OptionError(f"{taken[0]} is of testbeds that are made, and {up} is one that is up: leave one out")
        return [_existing(up)]
    if bool(workers) == (nodes is not None):
        raise OptionError("give the name of a testbed, or --workers, or --nodes, for example --workers 4 --rate 1Gbps")
    counts = [(each, each) for each in workers] if nodes is None else [_nodes(nodes)]
    if nodes is None and uplink is not None:
        raise OptionError(f"--uplink {uplink} changes nothing without --nodes: one switch joins all workers")
    found = {}
    for (count, among), rate_Bps in product(counts, _rates("--rate", rate)):
        for uplink_Bps in [math.inf] if nodes is None else _rates("--uplink", uplink, rate_Bps):
            name = _name(count, among, rate_Bps, uplink_Bps)
            found[name] = Layout(name, count, among, rate_Bps, uplink_Bps)
    return list(found.values())


def _existing(name: str) -> Layout:
    from s2sim.testbed.network.existing import find

    layout = find(name)
    if layout is None:
        raise OptionError(f"testbed {name} is not whole: remove it with s2sim testbed down {name}, and make it again")
    return layout


def _nodes(text: str) -> tuple[int, int]:
    """Return how many workers there are, and nodes.

    >>> _nodes("2x4")
    (8, 2)
    """
    nodes, _, each = text.partition("x")
    if not (nodes.isdecimal() and each.isdecimal()):
        raise OptionError(f"--nodes {text!r}: write nodes x workers of each, for example 2x4")
    return int(nodes) * int(each), int(nodes)


def _rates(option: str, text: str | None, default_Bps: float = math.inf) -> list[float]:
    parts = [] if text is None else text.split(",")
    return [parse_option(option, parse_rate_Bps, part.strip()) for part in parts] or [default_Bps]


def _name(workers: int, nodes: int, rate_Bps: float, uplink_Bps: float) -> str:
    """Return the name of one of a series.

    >>> _name(4, 4, 25e6, float("inf")), _name(8, 2, 125e6, 312500.0)
    ('w4-200mbps', 'w8-n2-1000mbps-2-5mbps')
    """
    parts = [f"w{workers}", *([f"n{nodes}"] if nodes != workers else []), _named(rate_Bps)]
    return "-".join(parts + ([_named(uplink_Bps)] if nodes != workers else []))


def _named(rate_Bps: float) -> str:
    return "unshaped" if rate_Bps == float("inf") else f"{rate_Bps * 8 / 1e6:g}mbps".replace(".", "-").replace("+", "")
