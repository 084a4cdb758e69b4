"""Traffic that was replayed: a summary, and the transfers that waited most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.report.tables.grid import Grid, figures, tabulate
from s2sim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from s2sim.study.flows.result import FlowsResult

_SLOWEST = 10


def flows_lines(result: FlowsResult) -> list[str]:
    """Return the cluster, how far apart the networks are if that was asked, and the transfers in one line."""
    count = len(result.finish_s)
    if not count:
        return [result.cluster, "no transfer was asked for"]
    last = format_seconds(float(result.finish_s.max()))
    median, worst = (format(float(value), ".3g") for value in (np.median(result.slowdown), result.slowdown.max()))
    sent = format_bytes(float(result.transfers.sizes_bytes.sum()))
    slowdown = f"slowdown against an idle network: median {median}x, worst {worst}x"
    lines = [f"{count} transfers of {sent} together: the last is delivered at {last}; {slowdown}"]
    return [result.cluster, *_cross_check_lines(result), *lines]


def _cross_check_lines(result: FlowsResult) -> list[str]:
    check = result.cross_check
    if check is None:
        return []
    largest, median = (f"{share:.2%}" for share in (check.largest_difference, check.median_difference))
    packets = f"{result.network} against {check.other}, packets of {format_bytes(check.packet_bytes)}"
    differ = f"times differ by at most {largest}, median {median}"
    return [f"{packets}: {differ}, after what store and forward adds to each transfer alone"]


def flows_grid(result: FlowsResult) -> Grid:
    """Return the transfers that were slowed down most, in the order of the file where they tie."""
    asked = result.transfers
    order = np.argsort(-result.slowdown, kind="stable")[:_SLOWEST]
    return tabulate(
        f"the {len(order)} most slowed down",
        order.tolist(),
        figures("line", lambda index: str(index + 2)),
        figures("start", lambda index: format_seconds(float(asked.start_ps[index]) / 1e12)),
        figures("from", lambda index: str(asked.src[index])),
        figures("to", lambda index: str(asked.dst[index])),
        figures("size", lambda index: format_bytes(float(asked.sizes_bytes[index]))),
        figures("finish", lambda index: format_seconds(float(result.finish_s[index]))),
        figures("slowdown", lambda index: f"{result.slowdown[index]:.3g}x"),
    )
