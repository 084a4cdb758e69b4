"""The terms of one round: the latency of the message that clocks it, and what holds its last message up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.overheads import slowest_cycle
from s2sim.collectives.terms.term import BYTES, in_words

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.overheads import Overheads
    from s2sim.collectives.schedules.per_message import PerMessage, Powers
    from s2sim.collectives.schedules.schedule import Round
    from s2sim.collectives.terms.term import Terms
    from s2sim.collectives.timing.rounds import RoundTimes
    from s2sim.topology.cluster import Cluster


class RoundTerms:
    """Adds the terms of rounds of a schedule on a cluster.

    Parameters
    ----------
    terms : Terms
        Where to.
    cluster : Cluster
        Where they run.
    times : RoundTimes
        Which knows how long.
    """

    def __init__(self, terms: Terms, cluster: Cluster, times: RoundTimes) -> None:
        self._terms, self._cluster, self._times = terms, cluster, times

    def delivered(self, sent: Round, repeated: int) -> None:
        """Add the time until the last message of a round is delivered, so many times."""
        if sent.pattern.messages and repeated:
            last = self._times.last_delivered(sent)
            self.message(sent, last, self._times.time_ps(sent), repeated, with_latency=True)

    def left(self, sent: Round) -> None:
        """Add the time until the last byte of a round has left."""
        if sent.pattern.messages:
            self.message(sent, self._times.last_left(sent), self._times.left_ps(sent), 1, with_latency=False)

    def message(self, sent: Round, message: int, lasts_ps: int, repeated: int, *, with_latency: bool) -> None:
        """Add the time of one message, for which its round waits, so many times.

        Parameters
        ----------
        sent : Round
            Whose.
        message : int
            Which.
        lasts_ps : int
            Picoseconds from the start of its round.
        repeated : int
            How often.
        with_latency : bool
            Whether its latency is in that time.
        """
        latency_ps = int(self._times.routes(sent.pattern).latency_ps[message]) if with_latency else 0
        if latency_ps:
            self._latency(sent, message, latency_ps, repeated)
        self._bytes(sent, message, lasts_ps - latency_ps, repeated)

    def _latency(self, sent: Round, message: int, latency_ps: int, repeated: int) -> None:
        pattern, added = sent.pattern, sent.pattern.overheads
        if added is None:
            self._wire(sent, np.array([message]), latency_ps, repeated)
            return
        clocks = np.array([message])
        if added.clock_ps is not None:
            around = self._cluster.routes(pattern.src, pattern.dst).latency_ps + added.latency_ps
            slowest = slowest_cycle(pattern, around)
            clocks = clocks if slowest is None else slowest[1]
        told_ps = sum(self._made_of(each, clocks, repeated) for each in added.latencies)
        library_ps = float(added.latency_ps[clocks].mean())
        if not added.latencies and library_ps:
            self._terms.add("library", "each message", repeated, repeated * library_ps)
            told_ps = library_ps
        self._wire(sent, clocks, latency_ps - told_ps, repeated)

    def _made_of(self, made: PerMessage, clocks: Ints, repeated: int) -> float:
        """Add what some messages have on the mean of one kind of latency, and return it in picoseconds."""
        share = np.bincount(made.row[clocks], minlength=len(made.values)) / len(clocks) * made.times
        for row in np.flatnonzero(share):
            if made.powers[row]:
                of = in_words(made.powers[row][0][0])
                mean_ps = float(share[row] * made.values[row])
                self._terms.add(made.kind, of, repeated * float(share[row]), repeated * mean_ps, made.powers[row])
        return float(share @ made.values)

    def _wire(self, sent: Round, clocks: Ints, wire_ps: float, repeated: int) -> None:
        """Add the latency of links, by class, of some messages on the mean."""
        fabric, routes = self._cluster.fabric, self._times.routes(sent.pattern).take(clocks)
        passed_ps = routes.weights * fabric.latency_ps[routes.links]
        by_class = np.bincount(fabric.link_class[routes.links], passed_ps, len(fabric.class_names))
        crossed = np.bincount(fabric.link_class[routes.links], routes.weights, len(fabric.class_names)) / len(clocks)
        if not by_class.any():
            return
        part_ps = by_class / by_class.sum() * wire_ps
        for kind in np.flatnonzero(by_class):
            count = repeated * float(crossed[kind])
            self._terms.add("wire latency", fabric.class_names[kind], count, repeated * float(part_ps[kind]))

    def _bytes(self, sent: Round, message: int, lasts_ps: int, repeated: int) -> None:
        fabric, added = self._cluster.fabric, sent.pattern.overheads
        link, carried = self._times.held_up(sent, message)
        limited = link >= len(fabric)
        constants = () if added is None else _powers(added, message, limited=limited)
        if not limited:
            kind, of = BYTES, fabric.class_names[fabric.link_class[link]]
        else:
            known = [name for name, power in constants if power < 0]
            kind, of = "limit", in_words(known[-1]) if known else "library"
        self._terms.add(kind, of, repeated * carried, float(repeated * lasts_ps), constants)


def _powers(added: Overheads, message: int, *, limited: bool) -> Powers:
    """Return what the time of a message's bytes is proportional to."""
    powers: dict[str, int] = {}
    for made in (*added.shares, *(added.limits if limited else ())):
        for name, power in made.powers[made.row[message]]:
            powers[name] = powers.get(name, 0) + power
    return tuple((name, power) for name, power in powers.items() if power)
