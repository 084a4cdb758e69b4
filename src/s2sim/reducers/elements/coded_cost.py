"""Costs of largest elements whose positions are a stream of codes, which one core writes and reads bit after bit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.reducers import gpu_cost as cost

if TYPE_CHECKING:
    from s2sim.reducers.scripts.script import Work


def encode_positions(values: int, kept: int, *, selections: int = 1) -> Work:
    """Return the cost of selecting on the GPU, copying the pairs to the host, and coding them there one by one."""
    work = cost.select(values, kept)
    return replace(
        work,
        bytes_moved=selections * work.bytes_moved,
        launches=selections * work.launches,
        host_steps=kept,
        copied_bytes=kept * (cost.INDEX_BYTES + cost.VALUE_BYTES),
    )


def decode_positions(values: int, messages: int, kept: int) -> Work:
    """Return the cost of reading all messages' codes on the host and adding each pair where it belongs on the GPU."""
    pairs = messages * kept
    work = cost.add_pairs(cost.VALUE_BYTES * values, pairs)
    return replace(work, host_steps=pairs, copied_bytes=pairs * (cost.INDEX_BYTES + cost.VALUE_BYTES))
