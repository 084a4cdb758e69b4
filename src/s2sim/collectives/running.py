"""A schedule in execution on a network, beside whatever else is in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import simpy
    from numpy.typing import NDArray

    from s2sim.collectives.schedule import Round, Schedule
    from s2sim.network.fluid import FluidNetwork
    from s2sim.topology.routes import Routes

# A transfer's tag holds its round and its place in the round.
_ROUND_SHIFT = 32
_PLACE = (1 << _ROUND_SHIFT) - 1


class Running:
    """One collective in flight.

    Attributes
    ----------
    finish_ps : int64 array, shape (ranks,)
        When each rank was done, in simulated picoseconds.
    """

    def __init__(
        self,
        env: simpy.Environment,
        network: FluidNetwork,
        schedule: Schedule,
        routes: Routes,
        on_complete: Callable[[], None],
    ) -> None:
        self._env = env
        self._network = network
        self._schedule = schedule
        self._on_complete = on_complete
        self._route = network.add_routes(routes)
        self._owner = network.add_owner(self._delivered)
        self._round_of_rank = np.zeros(schedule.demand.ranks, np.int64)
        self._unfinished = schedule.demand.ranks
        # Rounds that some rank is in: their transfers, and how many of its transfers each rank still waits for.
        self._open: dict[int, tuple[Round, NDArray[np.int64]]] = {}
        self.finish_ps = np.zeros(schedule.demand.ranks, np.int64)

    def start(self) -> None:
        """Let all ranks enter the first round now."""
        self._enter(np.arange(self._schedule.demand.ranks))

    def _round(self, k: int) -> tuple[Round, NDArray[np.int64]]:
        if k not in self._open:
            transfers = self._schedule.round_at(k)
            ends = np.concatenate([self._schedule.src[transfers.pair], self._schedule.dst[transfers.pair]])
            self._open[k] = transfers, np.bincount(ends, minlength=self._schedule.demand.ranks)
        return self._open[k]

    def _enter(self, ranks: NDArray[np.int64]) -> None:
        """Let ranks start their sends in their present round, and go on while a round asks nothing of them."""
        while len(ranks):
            entered = self._round_of_rank[ranks]
            done = entered == self._schedule.rounds
            if done.any():
                self.finish_ps[ranks[done]] = self._env.now
                self._unfinished -= int(np.count_nonzero(done))
                ranks, entered = ranks[~done], entered[~done]
                if self._unfinished == 0:
                    self._on_complete()
            idle = []
            for k in np.unique(entered).tolist():
                members = ranks[entered == k]
                self._send(k, members)
                idle.append(members[self._round(k)[1][members] == 0])
            ranks = np.concatenate(idle) if idle else ranks[:0]
            self._round_of_rank[ranks] += 1
        self._close()

    def _send(self, k: int, ranks: NDArray[np.int64]) -> None:
        transfers, _ = self._round(k)
        sends = np.zeros(self._schedule.demand.ranks, bool)
        sends[ranks] = True
        chosen = np.flatnonzero(sends[self._schedule.src[transfers.pair]])
        if len(chosen):
            sizes = self._schedule.sizes_bytes(transfers)[chosen]
            self._network.send(self._route[transfers.pair[chosen]], sizes, self._owner, (k << _ROUND_SHIFT) + chosen)

    def _delivered(self, tags: NDArray[np.int64]) -> None:
        ready = []
        rounds = tags >> _ROUND_SHIFT
        for k in np.unique(rounds).tolist():
            transfers, waiting = self._round(k)
            pairs = transfers.pair[tags[rounds == k] & _PLACE]
            ends = np.concatenate([self._schedule.src[pairs], self._schedule.dst[pairs]])
            np.subtract.at(waiting, ends, 1)
            ends = np.unique(ends)
            ready.append(ends[(waiting[ends] == 0) & (self._round_of_rank[ends] == k)])
        ranks = np.concatenate(ready)
        self._round_of_rank[ranks] += 1
        self._enter(ranks)

    def _close(self) -> None:
        """Forget rounds that every rank has left."""
        oldest = int(self._round_of_rank.min())
        for k in [k for k in self._open if k < oldest]:
            del self._open[k]
