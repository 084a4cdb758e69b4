"""Conformance kit for topologies: ``check_topology("path/to/mine.toml")``, or with the name of an entry point."""

from pathlib import Path

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.testing.collectives import require
from s2sim.topology.cluster import PLACEMENTS, Cluster, build_cluster
from s2sim.topology.describe import describe_cluster
from s2sim.topology.graph import Routes
from s2sim.topology.kinds import most_workers
from s2sim.topology.quantity import KINDS
from s2sim.topology.read_file import load_shape

WORKER_COUNTS = (1, 2, 3, 7, 16, 65)
"""One worker, a pair, odd counts with partial nodes, and enough for several leaves."""


def check_topology(name_or_path: str | Path) -> None:
    """Check that a topology, by name or path, can be read, built and routed at all sizes; `AssertionError` if not."""
    shape = load_shape(name_or_path)
    for quantity in shape.quantities:
        what = f"{quantity.field} of {shape.name}"
        require(quantity.kind in KINDS, f"{what} has the kind {quantity.kind!r}, none of {', '.join(KINDS)}")
        require(quantity.kind == "user" or quantity.source.strip(), f"{what} is {quantity.kind} and names no source")
    places = most_workers(shape) or max(WORKER_COUNTS)
    for workers in (count for count in WORKER_COUNTS if count <= places):
        for placement in PLACEMENTS:
            cluster = build_cluster(shape, workers, placement=placement)
            where = f"in {shape.name} with {workers} workers placed {placement}"
            gpus = np.sort(cluster.gpu_of_rank)
            require(np.array_equal(gpus, np.arange(workers)), f"ranks are not one a GPU {where}")
            _check_routes(cluster, where)
            _check_cuts(cluster, where)


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
    refuse(np.bincount(pair[routes.weights <= 0], minlength=len(source)) > 0, "crosses a link with nothing")
    # Crossings in series have to start at the end of the previous one.
    tail, head = cluster.fabric.tail[routes.links], cluster.fabric.head[routes.links]
    series = (routes.weights[1:] == 1) & (routes.weights[:-1] == 1) & (pair[1:] == pair[:-1])
    broken = pair[1:][series & (head[:-1] != tail[1:])]
    refuse(np.bincount(broken, minlength=len(source)) > 0, "breaks between two links")
    # Of parallel links, all of one block, each route's flow adds up to how many it crosses one after the other.
    starts = np.array([block.start for block in cluster.fabric.blocks.values() if block.count])
    level = (pair * len(starts) + np.searchsorted(starts, routes.links, side="right") - 1).astype(np.int64)
    parallel, levels = routes.weights < 1, (len(source), len(starts))
    spread = np.bincount(level[parallel], routes.weights[parallel], len(source) * len(starts))
    used = np.bincount(level[parallel], minlength=len(spread)) > 0
    crossed = np.rint(spread)
    unlike = used & ((np.abs(spread - crossed) > 1e-9) | (crossed < 1))
    refuse(np.count_nonzero(unlike.reshape(levels), axis=1) > 0, "is not spread to a whole sum at each level")
    refuse(_wrong_flow(cluster, routes, pair, source, target), "does not lead from end to end")
    link_ps = cluster.fabric.latency_ps[routes.links]
    # Of parallel links the longest counts, times the number of levels in series: a route crosses several of a torus.
    longest = np.zeros(len(spread), np.int64)
    np.maximum.at(longest, level[parallel], link_ps[parallel])
    latency_ps = (longest * crossed.astype(np.int64)).reshape(levels).sum(axis=1)
    np.add.at(latency_ps, pair[~parallel], link_ps[~parallel])
    refuse(latency_ps != routes.latency_ps, "has a latency that is not the sum of its links'")
    described = describe_cluster(cluster)
    refuse(routes.latency_ps < (described["latency_min_ps"] or 0), "is shorter than the description says")
    refuse(routes.latency_ps > (described["latency_max_ps"] or 0), "is longer than the description says")


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
