"""The terms of one round: the latency of the message that clocks it, and what holds its last message up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.terms.term import BYTES, WIRE_LATENCY, in_words

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.overheads import Overheads
    from s2sim.collectives.schedules.per_message import PerMessage, Powers
    from s2sim.collectives.schedules.schedule import Round
    from s2sim.collectives.terms.term import Terms
    from s2sim.collectives.timing.rounds import RoundTimes
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.routes import Routes


class RoundTerms:
    """Adds the terms of a schedule's rounds on a cluster, which take ``times``, to ``terms``."""

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
        """Add the picoseconds from the start of a round to the end of a message for which it waits, so many times."""
        latency_ps = int(self._times.routes(sent.pattern).latency_ps[message]) if with_latency else 0
        if latency_ps:
            self._latency(sent, message, latency_ps, repeated)
        self._bytes(sent, message, lasts_ps - latency_ps, repeated)

    def _latency(self, sent: Round, message: int, latency_ps: int, repeated: int) -> None:
        added = sent.pattern.overheads
        if added is not None and added.clock is not None:
            clock = added.clock
            told_ps = sum(self._made_of(each, clock.rounds, repeated) for each in clock.latencies)
            routes, over = self._cluster.routes(clock.src, clock.dst), clock.rounds
        else:
            clocks = np.array([message])
            routes, over = self._times.routes(sent.pattern).take(clocks), 1
            told_ps = 0.0 if added is None else self._library(added, clocks, repeated)
        self._wire(routes, over, latency_ps - told_ps, repeated)

    def _library(self, added: Overheads, clocks: Ints, repeated: int) -> float:
        """Add what a library adds to the latency of a message, and return it in picoseconds."""
        if added.latencies:
            return sum(self._made_of(each.take(clocks), 1, repeated) for each in added.latencies)
        library_ps = float(added.latency_ps[clocks[0]])
        if library_ps:
            self._terms.add("library", "each message", repeated, repeated * library_ps)
        return library_ps

    def _made_of(self, made: PerMessage, over: int, repeated: int) -> float:
        """Add what messages have of one kind of latency over so many rounds, and return it in picoseconds a round."""
        share = np.bincount(made.row, minlength=len(made.values)) / over * made.times
        for row in np.flatnonzero(share):
            if made.powers[row]:
                of = in_words(made.powers[row][0][0])
                mean_ps = float(share[row] * made.values[row])
                self._terms.add(made.kind, of, repeated * float(share[row]), repeated * mean_ps, made.powers[row])
        return float(share @ made.values)

    def _wire(self, routes: Routes, over: int, wire_ps: float, repeated: int) -> None:
        """Add the latency of links, by class, of the ways of some messages over so many rounds."""
        fabric = self._cluster.fabric
        passed_ps = routes.weights * fabric.latency_ps[routes.links]
        by_class = np.bincount(fabric.link_class[routes.links], passed_ps, len(fabric.class_names))
        crossed = np.bincount(fabric.link_class[routes.links], routes.weights, len(fabric.class_names)) / over
        if not by_class.any():
            return
        part_ps = by_class / by_class.sum() * wire_ps
        for kind in np.flatnonzero(by_class):
            count = repeated * float(crossed[kind])
            self._terms.add(WIRE_LATENCY, fabric.class_names[kind], count, repeated * float(part_ps[kind]))

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
