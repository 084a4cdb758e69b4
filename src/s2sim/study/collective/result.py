"""What a simulated collective gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NotRequired, TypedDict

from s2sim.study.json_form import LEFT_OUT, key
from s2sim.study.result_form import FaultedForm

if TYPE_CHECKING:
    from s2sim.replay.faults.fault import Effect
    from s2sim.study.collective.beside import BesideRow
    from s2sim.study.collective.both_networks import CollectiveCheck
    from s2sim.study.collective.link_loads import LinkLoad
    from s2sim.study.collective.spec import CollectiveSpec
    from s2sim.study.collective.terms import TermRow
    from s2sim.study.fidelity.band import Band


class _More(TypedDict):
    faults: NotRequired[list[str]]
    fault_effects: NotRequired[list[str]]
    clocked_s: NotRequired[float]
    cross_check: NotRequired[CollectiveCheck]
    terms: NotRequired[tuple[TermRow, ...]]
    band: NotRequired[Band]
    notes: NotRequired[tuple[str, ...]]
    groups: NotRequired[BesideRow]


@dataclass(frozen=True, slots=True, repr=False)
class CollectiveResult(FaultedForm):
    """What `s2sim.run_collective` returns.

    Attributes
    ----------
    kind, algorithm, why, headline : str
        What ran, why that algorithm, and where.
    workers, size_bytes : int
        Ranks, with groups beside each other those of one, and the size as nccl-tests counts it.
    network : str
        ``"fluid"`` or ``"packet"``.
    time_s : float
        Of the last rank.
    lower_bound_s, lower_bound_why : float, str
        No schedule is faster, and the cut or partition that forces it.
    closed_form_s : float or None
        What the algorithm's closed form gives; None where messages share links, so that none holds.
    algbw_Bps, busbw_Bps : float or None
        Size over time, and that times the factor by which links see it; None where no time passes.
    bytes_per_rank : int
        Most bytes sent by a rank.
    bottlenecks : tuple of LinkLoad
        The busiest links.
    rank_finish_s : tuple of float
        When the last message from or to each rank has been delivered.
    clocked_s : float or None
        The time where rounds are clocked for all ranks, where it was asked for without that.
    cross_check : CollectiveCheck or None
        What the other network makes of it, where that was asked for.
    effects : tuple of Effect
        What each fault did.
    terms : tuple of TermRow
        What the time is the sum of, where that was asked for.
    band : Band or None
        Where nine of ten measured times lie that are predicted so; None where no library's measured constants made it.
    notes : tuple of str
        Where constants are used outside of what they were fitted to.
    beside : BesideRow or None
        The groups that did the same at once, ``groups`` in JSON; None for one group of all ranks.
    """

    answers: ClassVar[str] = "collective"

    spec: CollectiveSpec
    spec_sha256: str
    kind: str
    algorithm: str
    why: str
    headline: str = field(metadata=key("cluster"))
    workers: int
    size_bytes: int
    network: str
    time_s: float
    lower_bound_s: float
    lower_bound_why: str
    closed_form_s: float | None
    algbw_Bps: float | None
    busbw_Bps: float | None
    bytes_per_rank: int
    bottlenecks: tuple[LinkLoad, ...]
    rank_finish_s: tuple[float, ...]
    clocked_s: float | None = field(default=None, metadata=LEFT_OUT)
    cross_check: CollectiveCheck | None = field(default=None, metadata=LEFT_OUT)
    effects: tuple[Effect, ...] = field(default=(), metadata=LEFT_OUT)
    terms: tuple[TermRow, ...] = field(default=(), metadata=LEFT_OUT)
    band: Band | None = field(default=None, metadata=LEFT_OUT)
    notes: tuple[str, ...] = field(default=(), metadata=LEFT_OUT)
    beside: BesideRow | None = field(default=None, metadata=LEFT_OUT)

    def more_json(self) -> _More:
        """Return what is not always there: clocked rounds, the other network, terms, the band, notes and faults."""
        more: _More = {}
        if self.clocked_s is not None:
            more["clocked_s"] = self.clocked_s
        if self.cross_check is not None:
            more["cross_check"] = self.cross_check
        if self.terms:
            more["terms"] = self.terms
        if self.band is not None:
            more["band"] = self.band
        if self.notes:
            more["notes"] = self.notes
        if self.beside is not None:
            more["groups"] = self.beside
        if self.effects:
            more["faults"], more["fault_effects"] = self.faults, self.fault_effects
        return more
