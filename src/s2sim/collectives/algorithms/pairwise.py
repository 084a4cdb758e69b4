"""Pairwise exchange: in each round every rank swaps blocks with another (Thakur et al., IJHPCA 19(1), 2005)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from s2sim.collectives.schedules.blocks import Blocks, blocks_of
from s2sim.collectives.schedules.doubling import require_one_way
from s2sim.collectives.schedules.groups import schedule_of
from s2sim.collectives.schedules.schedule import LazySteps, Pattern, Pieces, Round, Stage, Step
from s2sim.errors import OptionError
from s2sim.options import check_options, option_text

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.hops import Hops
    from s2sim.collectives.schedules.schedule import Schedule
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
    partners: Literal["shift", "xor"] = "shift"
    release: Literal["delivered", "sent"] = "delivered"

    def __post_init__(self) -> None:
        check_options(self, self.name)

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule; rounds are made when asked for, because there are P - 1 of P pairs each."""
        ranks = demand.ranks
        if self.partners == "xor" and ranks & (ranks - 1):
            raise OptionError(
                f"pairwise: partners=xor needs a power of two of ranks, found {ranks}: take partners=shift"
            )
        source = np.arange(ranks)
        blocks = blocks_of(demand)

        def step(index: int) -> Step:
            target = self._targets(source, index + 1)
            sent = Round(Pattern(source, target), blocks.bytes(source, target))
            if self.release == "delivered" or index == 0:
                return Step(sent)
            return Step(sent, after=(), after_sent=(index - 1,))

        def pieces(index: int, _time: int) -> Pieces:
            return block_pieces(blocks, source, self._targets(source, index + 1))

        stage = Stage(LazySteps(ranks - 1, step), pieces, chain=self.release == "delivered")
        return schedule_of(demand, option_text(self), stage)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time on a fabric where messages share nothing, b_k the largest block of round k.

        The sum of L + b_k/B over the P - 1 rounds, or L + the sum of b_k/B where a round follows the last byte of the
        one before. Blocks that are cut evenly count their rank's contribution over P.
        """
        if demand.ranks == 1:
            return 0.0
        require_one_way(self.name, hops)
        source, blocks = np.arange(demand.ranks), blocks_of(demand)
        *others, last = (float(blocks.bytes(source, self._targets(source, k)).max()) for k in range(1, demand.ranks))
        clocked_s = hops.round_s if self.release == "delivered" else hops.sending_s
        return sum(map(clocked_s, others)) + hops.round_s(last)

    def _targets(self, source: Ints, k: int) -> Ints:
        """Return whom each rank sends to in round k, from 1 on."""
        return source ^ k if self.partners == "xor" else (source + k) % len(source)


def block_pieces(blocks: Blocks, source: Ints, target: Ints) -> Pieces:
    """Return one message from each ``source`` with its block for ``target``, both int64 of shape (m,)."""
    begin, end = blocks.bounds(source, target)
    return Pieces(np.arange(len(source)), begin, end, np.zeros(len(source), bool))
