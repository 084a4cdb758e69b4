"""Pairwise exchange: in each round every rank swaps blocks with another (Thakur et al., IJHPCA 19(1), 2005)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.doubling import require_one_way
from s2sim.collectives.groups import schedule_of
from s2sim.collectives.schedule import LazySteps, Pattern, Pieces, Round, Stage, Step
from s2sim.errors import OptionError
from s2sim.options import join_option_string, non_default

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.collectives.demand import Demand
    from s2sim.collectives.hops import Hops
    from s2sim.collectives.schedule import Schedule
    from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Pairwise:
    """One partner a round, P - 1 rounds: every port carries one block at a time.

    Attributes
    ----------
    partners : {"shift", "xor"}
        Whom rank r sends to in round k: (r + k) mod P, or r XOR k, which needs a power of two and lets the two ranks
        of a pair send to each other.
    release : {"delivered", "sent"}
        When a round starts: once the one before has arrived, or once its last byte has left.
    """

    name: ClassVar[str] = "pairwise"
    source: ClassVar[str] = "Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005"
    kinds: ClassVar[tuple[str, ...]] = ("all_to_all",)
    auto: ClassVar[tuple[str, ...]] = ()
    partners: str = "shift"
    release: str = "delivered"

    def __post_init__(self) -> None:
        if self.partners not in ("shift", "xor"):
            raise OptionError(f"pairwise: partners={self.partners} must be shift or xor")
        if self.release not in ("delivered", "sent"):
            raise OptionError(f"pairwise: release={self.release} must be delivered or sent")

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:  # noqa: ARG002  (a tree needs it)
        """Return the schedule; rounds are made when asked for, because there are P - 1 of P pairs each."""
        ranks = demand.ranks
        if self.partners == "xor" and ranks & (ranks - 1):
            raise OptionError(
                f"pairwise: partners=xor needs a power of two of ranks, found {ranks}: take partners=shift"
            )
        source = np.arange(ranks)
        sizes_bytes = block_bytes(demand)

        def targets(k: int) -> NDArray[np.int64]:
            return source ^ k if self.partners == "xor" else (source + k) % ranks

        def step(index: int) -> Step:
            sent = Round(Pattern(source, targets(index + 1)), sizes_bytes)
            if self.release == "delivered" or index == 0:
                return Step(sent)
            return Step(sent, after=(), after_sent=(index - 1,))

        def pieces(index: int, _time: int) -> Pieces:
            return block_pieces(demand, source, targets(index + 1))

        stage = Stage(LazySteps(ranks - 1, step), pieces, chain=self.release == "delivered")
        return schedule_of(demand, join_option_string(self.name, non_default(self)), stage)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time on a fabric where messages share nothing, b the largest contribution over P.

        (P - 1)(L + b/B), or L + (P - 1)·b/B where a round follows the last byte of the one before.
        """
        if demand.ranks == 1:
            return 0.0
        require_one_way(self.name, hops)
        size = float(block_bytes(demand).max())
        clocked_s = hops.round_s(size) if self.release == "delivered" else hops.sending_s(size)
        return (demand.ranks - 2) * clocked_s + hops.round_s(size)


def block_bytes(demand: Demand) -> NDArray[np.float64]:
    """Return what each rank's blocks count on the network, float64 of shape (ranks,): its contribution over P."""
    return np.asarray(demand.elements, np.float64) * demand.itemsize / demand.ranks


def block_pieces(demand: Demand, source: NDArray[np.int64], target: NDArray[np.int64]) -> Pieces:
    """Return one message from each ``source`` with its block for ``target``, both int64 of shape (m,)."""
    begin, end = (side[source] for side in demand.stretches())
    size = end - begin
    return Pieces(
        np.arange(len(source)),
        begin + target * size // demand.ranks,
        begin + (target + 1) * size // demand.ranks,
        np.zeros(len(source), bool),
    )
