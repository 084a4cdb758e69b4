"""The busiest links of a simulated time, and the pairs of ranks that share them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.timing.rounds import Wanted
from s2sim.topology.graph import Fabric, Routes

_BUSIEST_LINKS = 8
_NAMED_FLOWS = 8


@dataclass(frozen=True, slots=True)
class FlowShare:
    """Bytes that one pair of ranks sent over a link; of a flow that is split over several links, the part on it."""

    src: int
    dst: int
    bytes: float


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """What one link direction carried."""

    link: str
    bytes: float  # Bytes; a flow that is split over several links leaves a part on each
    utilisation: float  # Bytes over what it could have carried in the whole time
    flows: int = 0  # Pairs of ranks that sent over it
    shared_by: tuple[FlowShare, ...] = ()  # Those that sent most, at most eight


@dataclass(frozen=True, slots=True, eq=False)
class RoutedBytes:
    """Bytes of pairs of ranks along their routes, in arrays of shape (m,).

    Ranks are int64, bytes float64; a message through a reducing switch names the first of its ranks.
    """

    routes: Routes
    src: Ints
    dst: Ints
    bytes: Floats

    def on_links(self) -> Floats:
        """Return the bytes of each crossing, float64 of the shape of ``routes.links``."""
        return np.repeat(self.bytes, np.diff(self.routes.offsets)) * self.routes.weights


def _rank_bit(ranks: Ints, fabric: Fabric) -> NDArray[np.uint64]:
    """Return one of 64 bits for each rank: that of its part of all ranks."""
    return np.uint64(1) << (ranks * 64 // fabric.gpus).astype(np.uint64)


def busiest_links(
    fabric: Fabric, traffic: Callable[[Wanted | None], Iterable[RoutedBytes]], seconds: float
) -> tuple[LinkLoad, ...]:
    """Return the busiest links of ``seconds`` seconds, the busiest first, in order of links on ties.

    ``traffic`` returns all bytes sent; it is called twice, as they may not fit in memory, the second time only for
    pairs of ranks with ``wanted(src, dst)``.
    """
    if seconds == 0:
        return ()
    carried = np.zeros(len(fabric))
    # Which parts of the ranks each link has bytes from, and which it has bytes for.
    parts = np.zeros((2, len(fabric)), np.uint64)
    for sent in traffic(None):
        carried += np.bincount(sent.routes.links, sent.on_links(), len(carried))
        for side, ranks in zip(parts, (sent.src, sent.dst), strict=True):
            part = _rank_bit(ranks[: len(sent.bytes)], fabric)
            np.bitwise_or.at(side, sent.routes.links, np.repeat(part, np.diff(sent.routes.offsets)))
    utilisation = carried / (fabric.rate_Bps * seconds)
    order = np.lexsort((np.arange(len(utilisation)), -utilisation))[:_BUSIEST_LINKS]
    busiest = [int(link) for link in order if carried[link]]

    def wanted(src: Ints, dst: Ints) -> Mask:
        from_part, to_part = (
            parts[side, busiest, None] & _rank_bit(ranks, fabric) for side, ranks in enumerate((src, dst))
        )
        found: Mask = ((from_part != 0) & (to_part != 0)).any(axis=0)
        return found

    users = _flows_on_links(busiest, traffic(wanted))
    return tuple(
        LinkLoad(
            fabric.link_names[link],
            float(carried[link]),
            float(utilisation[link]),
            len(users[link]),
            tuple(sorted(users[link], key=lambda flow: (-flow.bytes, flow.src, flow.dst))[:_NAMED_FLOWS]),
        )
        for link in busiest
    )


def _flows_on_links(links: Sequence[int], traffic: Iterable[RoutedBytes]) -> dict[int, list[FlowShare]]:
    shares: dict[int, dict[tuple[int, int], float]] = {link: {} for link in links}
    for sent in traffic:
        on_links = sent.on_links()
        for crossing in np.flatnonzero(np.isin(sent.routes.links, links)).tolist():
            message = int(np.searchsorted(sent.routes.offsets, crossing, side="right")) - 1
            pairs = shares[int(sent.routes.links[crossing])]
            pair = int(sent.src[message]), int(sent.dst[message])
            pairs[pair] = pairs.get(pair, 0.0) + float(on_links[crossing])
    return {link: [FlowShare(*pair, size) for pair, size in pairs.items()] for link, pairs in shares.items()}
