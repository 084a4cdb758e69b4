"""Pieces of ways: links in series, links side by side, and the hash by which some are chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.mixing import splitmix64
from s2sim.topology.routes import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints, Mask
    from s2sim.topology.fabric import Fabric


def draw(source: Ints, target: Ints, seed: int, level: int, width: int | Ints) -> Ints:
    """Return a number below ``width`` for each pair, by a hash, int64 of shape (m,).

    Other pairs of seed and level, of which there are 4, draw independently; the width may differ from pair to pair.
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = np.full(len(source), (seed * 4 + level) % 2**64, np.uint64)
    for part in (source, target):
        state = splitmix64(state * golden + part.astype(np.uint64) + golden)
    return (state % np.asarray(width).astype(np.uint64)).astype(np.int64)


def series(fabric: Fabric, links: Ints, counts: Ints) -> Stage:
    """Return ``counts[i]`` of ``links`` (numbers of the graph), one after the other, for each transfer."""
    passed_ps = np.concatenate([np.zeros(1, np.int64), np.cumsum(fabric.latency_ps[links])])
    ends = np.cumsum(counts)
    return Stage(counts, links, 1.0, passed_ps[ends] - passed_ps[ends - counts])


def single(fabric: Fabric, key: str, index: Ints, mask: Mask) -> Stage:
    """Return one link of block ``key`` for each transfer in ``mask``."""
    links = fabric.blocks[key].start + index[mask]
    latency_ps = np.zeros(len(mask), np.int64)
    latency_ps[mask] = fabric.latency_ps[links]
    return Stage(mask.astype(np.int64), links, 1.0, latency_ps)


def side_by_side(ways: Sequence[Sequence[Stage]]) -> list[Stage]:
    """Return ways of as many stages, of which each takes an even part of every transfer, as one."""
    if len(ways) == 1:
        return list(ways[0])
    found = []
    for level in zip(*ways, strict=True):
        latency_ps = np.max([stage.latency_ps for stage in level], axis=0)
        # All of a level count its latency once.
        found += [
            replace(stage, weight=stage.weight / len(ways), latency_ps=np.zeros_like(latency_ps) if way else latency_ps)
            for way, stage in enumerate(level)
        ]
    return found


def fan(fabric: Fabric, key: str, first: Ints, width: int, mask: Mask) -> Stage:
    """Return ``width`` links of block ``key`` side by side for each transfer in ``mask``."""
    links = fabric.blocks[key].start + first[mask][:, None] + np.arange(width)
    latency_ps = np.zeros(len(mask), np.int64)
    latency_ps[mask] = fabric.latency_ps[links].max(axis=1)
    return Stage(mask * np.int64(width), links.ravel(), 1 / width, latency_ps)
