"""Pipelines: chunks that follow each other along lines and trees of ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.collectives.schedules.groups import Groups, cut, pattern_of_members
from s2sim.collectives.schedules.schedule import CombinedRound, LazySteps, Pieces, Round, Stage, Step, traffic_between
from s2sim.topology.cluster import Cluster
from s2sim.units import PS_PER_S


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """Edges of lines or trees over the members of a group, int64 and bool arrays of shape (edges,).

    Chunk c crosses an edge in round c + ``delay``. Each line or tree has an even part of the group's buffer.
    """

    trees: int
    sender: Ints
    receiver: Ints
    tree: Ints  # Line or tree of each edge, from 0 on
    delay: Ints
    adds: Mask  # Whether the receiver adds the chunk to its own

    def rounds(self, chunks: int) -> int:
        """Return the number of rounds."""
        return chunks + int(self.delay.max()) if len(self.delay) else 0

    def stage(self, groups: Groups, chunks: int) -> Stage:
        """Return the rounds; consecutive rounds with the same active edges are one step, created on access."""
        rounds, count, edges = self.rounds(chunks), len(groups.ranks), len(self.delay)
        first, last = cut(groups.begin[:, :1], groups.end[:, -1:], np.arange(self.trees), self.trees)
        chunk_bytes = groups.bytes.sum(axis=1) / self.trees / chunks
        begins = np.unique(self.delay)
        starts: list[int] = np.union1d(begins, begins + chunks)[:-1].tolist()
        lengths = np.diff([*starts, rounds]).tolist()
        pattern = pattern_of_members(groups.ranks, self.sender, self.receiver)
        group = np.arange(count)[:, None]

        def active(step: int) -> Ints:
            return np.flatnonzero((self.delay <= starts[step]) & (self.delay > starts[step] - chunks))

        def make(step: int) -> Step:
            edge = active(step)
            part = pattern.part((group * edges + edge).reshape(-1))
            return Step(Round(part, np.repeat(chunk_bytes, len(edge))), lengths[step])

        def pieces(step: int, time: int) -> Pieces:
            edge = active(step)
            chunk = starts[step] + time - self.delay[edge]
            start, stop = cut(first[:, self.tree[edge]], last[:, self.tree[edge]], chunk, chunks)
            return Pieces.one_each(start, stop, np.tile(self.adds[edge], count))

        def volume(ranks: int) -> Ints:
            return traffic_between(ranks, pattern.src, pattern.dst, (last - first)[:, self.tree])

        whole = None
        if edges:
            sent, line = Round(pattern, np.repeat(chunk_bytes, edges)), self.trees * group + self.tree
            whole = CombinedRound(sent, np.tile(self.delay, count), chunks, line.reshape(-1))
        return Stage(LazySteps(len(starts), make), pieces, volume, whole=whole)

    def loads(self, groups: Groups, cluster: Cluster) -> tuple[float, float, float]:
        """Return the largest latency in seconds, and seconds per byte on the busiest link: of all edges, of one way.

        One way are the edges whose receivers add, or the others.
        """
        pattern = pattern_of_members(groups.ranks, self.sender, self.receiver)
        routes = cluster.routes(pattern.src, pattern.dst)
        adds = np.repeat(np.tile(self.adds, len(groups.ranks)), np.diff(routes.offsets))

        def busiest(crossings: Mask) -> float:
            load = np.bincount(routes.links[crossings], routes.weights[crossings], len(cluster.fabric))
            return float((load / cluster.fabric.rate_Bps).max())

        latency_s = float(routes.latency_ps.max()) / PS_PER_S
        return latency_s, busiest(adds | ~adds), max(busiest(adds), busiest(~adds))
