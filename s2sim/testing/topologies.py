"""Conformance kit for topologies.

A plug-in's test is one line: ``check_topology("path/to/mine.toml")``, or the name of its entry point.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.testing.collectives import require
from s2sim.topology.cluster import PLACEMENTS, Cluster, build_cluster
from s2sim.topology.describe import describe_cluster
from s2sim.topology.graph import Routes
from s2sim.topology.kinds import most_workers
from s2sim.topology.quantity import KINDS
from s2sim.topology.read_file import load_shape
from s2sim.topology.shape import ClusterShape

WORKER_COUNTS = (1, 2, 3, 7, 16, 65)
"""One worker, a pair, odd counts with partial nodes, and enough for several leaves."""


def check_topology(name_or_path: str | Path) -> None:
    """Check that a topology, by name or path, can be read, built and routed at all sizes; `AssertionError` if not."""
    shape = load_shape(name_or_path)
    _check_sources(shape)
    places = most_workers(shape) or max(WORKER_COUNTS)
    for workers in (count for count in WORKER_COUNTS if count <= places):
        for placement in PLACEMENTS:
            cluster = build_cluster(shape, workers, placement=placement)
            where = f"in {shape.name} with {workers} workers placed {placement}"
            gpus = np.sort(cluster.gpu_of_rank)
            require(np.array_equal(gpus, np.arange(workers)), f"ranks are not one a GPU {where}")
            _check_routes(cluster, where)
            _check_cuts(cluster, where)


def _check_sources(shape: ClusterShape) -> None:
    for quantity in shape.quantities:
        what = f"{quantity.field} of {shape.name}"
        require(quantity.kind in KINDS, f"{what} has the kind {quantity.kind!r}, none of {', '.join(KINDS)}")
        require(quantity.kind == "user" or quantity.source.strip(), f"{what} is {quantity.kind} and names no source")


def _check_routes(cluster: Cluster, where: str) -> None:
    ranks = np.arange(cluster.workers)
    source, target = np.nonzero(ranks[:, None] != ranks)
    routes = cluster.routes(source, target)
    crossings = np.diff(routes.offsets)
    pair = np.repeat(np.arange(len(source)), crossings)

    def refuse(wrong: Mask, what: str) -> None:
        """Fail with ``what`` for the first pair that is wrong, bool of shape (pairs,)."""
        for first in np.flatnonzero(wrong)[:1]:
            raise AssertionError(f"the way from rank {source[first]} to {target[first]} {what} {where}")

    refuse(crossings == 0, "crosses no link")
    refuse(_any_by(pair, routes.weights <= 0, len(source)), "crosses a link with nothing")
    refuse(_any_by(pair, _breaks(cluster, routes, pair), len(source)), "breaks between two links")
    refuse(_wrong_levels(cluster, routes, pair, len(source)), "is not spread to a whole sum at each level")
    refuse(_wrong_flow(cluster, routes, pair, source, target), "does not lead from end to end")
    latency_ps = _latencies_ps(cluster, routes, pair, len(source))
    refuse(latency_ps != routes.latency_ps, "has a latency that is not the sum of its links'")
    described = describe_cluster(cluster)
    refuse(routes.latency_ps < (described["latency_min_ps"] or 0), "is shorter than the description says")
    refuse(routes.latency_ps > (described["latency_max_ps"] or 0), "is longer than the description says")


def _latencies_ps(cluster: Cluster, routes: Routes, pair: Ints, pairs: int) -> Ints:
    """Return the latency of each pair's route: of parallel links, all of one block, the longest counts."""
    link_ps = cluster.fabric.latency_ps[routes.links]
    parallel = routes.weights < 1
    total = np.zeros(pairs, np.int64)
    np.add.at(total, pair[~parallel], link_ps[~parallel])
    level, levels, spread = _levels(cluster, routes, pair, pairs)
    longest = np.zeros(pairs * levels, np.int64)
    np.maximum.at(longest, level[parallel], link_ps[parallel])
    # Times the number of levels in series: a route crosses several links of a torus.
    latencies: Ints = total + (longest * np.rint(spread).astype(np.int64)).reshape(pairs, levels).sum(axis=1)
    return latencies


def _levels(cluster: Cluster, routes: Routes, pair: Ints, pairs: int) -> tuple[Ints, int, Floats]:
    """Return the number of pair and block of each crossing, the number of blocks, and the flow spread over each."""
    starts = np.array([block.start for block in cluster.fabric.blocks.values() if block.count])
    level = (pair * len(starts) + np.searchsorted(starts, routes.links, side="right") - 1).astype(np.int64)
    parallel = routes.weights < 1
    spread = np.bincount(level[parallel], routes.weights[parallel], pairs * len(starts))
    return level, len(starts), spread.astype(np.float64)


def _any_by(pair: Ints, crossing: Mask, pairs: int) -> Mask:
    return np.bincount(pair[crossing], minlength=pairs) > 0


def _breaks(cluster: Cluster, routes: Routes, pair: Ints) -> Mask:
    """Return a mask of the crossings in series that do not start at the end of the previous one."""
    tail, head = cluster.fabric.tail[routes.links], cluster.fabric.head[routes.links]
    series = routes.weights == 1
    broken = np.zeros(len(pair), np.bool_)
    broken[1:] = (pair[1:] == pair[:-1]) & series[1:] & series[:-1] & (head[:-1] != tail[1:])
    return broken


def _wrong_levels(cluster: Cluster, routes: Routes, pair: Ints, pairs: int) -> Mask:
    """Return a mask of the pairs that are spread over a level, all links of one block, without a whole weight."""
    level, levels, total = _levels(cluster, routes, pair, pairs)
    used = np.bincount(level[routes.weights < 1], minlength=pairs * levels) > 0
    wrong = used & ((np.abs(total - np.rint(total)) > 1e-9) | (np.rint(total) < 1))
    wrong_pairs: Mask = np.count_nonzero(wrong.reshape(pairs, levels), axis=1) > 0
    return wrong_pairs


def _wrong_flow(cluster: Cluster, routes: Routes, pair: Ints, source: Ints, target: Ints) -> Mask:
    """Return a mask of the pairs with a flow from source to target (GPU, or node without a port) not conserved."""
    fabric = cluster.fabric
    tail, head = fabric.tail[routes.links], fabric.head[routes.links]
    vertices = int(max(fabric.tail.max(), fabric.head.max())) + 1
    out, into = (np.bincount(pair * vertices + end, routes.weights, len(source) * vertices) for end in (tail, head))
    net = (out - into).reshape(len(source), vertices)
    pairs = np.arange(len(source))
    wrong = np.zeros(len(source), np.bool_)
    for rank, sign in ((source, 1.0), (target, -1.0)):
        gpu, node = cluster.gpu_of_rank[rank], fabric.gpus + cluster.host_of_rank[rank]
        end = np.where(np.abs(net[pairs, gpu]) > 1e-9, gpu, node)
        wrong |= np.abs(net[pairs, end] - sign) > 1e-9
        net[pairs, end] = 0.0
    left_over: Mask = np.count_nonzero(np.abs(net) > 1e-9, axis=1) > 0
    return wrong | left_over


def _check_cuts(cluster: Cluster, where: str) -> None:
    for family in cluster.cuts().families:
        for way, rate_Bps in (("out of", family.egress_Bps), ("into", family.ingress_Bps)):
            # Written so that NaN fails.
            require((rate_Bps > 0).all(), f"nothing leads {way} a {family.name} {where}")
            members = np.bincount(family.group_of_rank, minlength=len(rate_Bps))
            require(len(members) == len(rate_Bps) and members.all(), f"a {family.name} has no rank {where}")
