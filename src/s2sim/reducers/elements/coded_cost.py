"""Costs of streams of codes of different lengths, which one core of the host writes and reads one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.reducers import gpu_cost as cost

if TYPE_CHECKING:
    from s2sim.reducers.scripts.script import Work

_PAIR_BYTES = cost.INDEX_BYTES + cost.VALUE_BYTES

_GOLOMB_STEPS = 2
"""Steps of a Golomb code: its run of zeros, which one instruction counts, and its low bits."""


def encode_positions(values: int, kept: int, *, selections: int = 1) -> Work:
    """Return the cost of selecting on the GPU, copying the pairs to the host, and coding their positions there."""
    work = cost.select(values, kept)
    return replace(
        work,
        bytes_moved=selections * work.bytes_moved,
        launches=selections * work.launches,
        host_steps=_GOLOMB_STEPS * kept,
        copied_bytes=kept * _PAIR_BYTES,
    )


def decode_positions(values: int, pairs: int) -> Work:
    """Return the cost of reading positions on the host, and adding each pair where it belongs on the GPU."""
    work = cost.add_pairs(cost.VALUE_BYTES * values, pairs)
    return replace(work, host_steps=_GOLOMB_STEPS * pairs, copied_bytes=pairs * _PAIR_BYTES)


def encode_levels(values: int, code_bytes: int) -> Work:
    """Return the cost of rounding to levels of a byte on the GPU, copying all to the host, and coding what is not 0.

    Elias codes are made of groups of a bit or few, so that each bit is a step.
    """
    return replace(cost.encode_values(values, values), host_steps=values + 8 * code_bytes, copied_bytes=values)


def decode_levels(values: int, messages: int, code_bytes: int) -> Work:
    """Return the cost of reading codes on the host, and adding up levels of a byte on the GPU."""
    levels = messages * values
    return replace(cost.add_codes(values, messages, levels), host_steps=8 * code_bytes, copied_bytes=levels)
