"""The result of a simulated collective."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from s2sim.experiment.json_form import left_out
from s2sim.experiment.scenario.cluster import FaultedForm, load_effects
from s2sim.simulation.faults.fault import Effect
from s2sim.traffic.networks import CollectiveCheck, LinkLoad
from s2sim.traffic.spec import CollectiveSpec
from s2sim.uncertainty.interval import Band


@dataclass(frozen=True, slots=True)
class TermRow:
    """A part of a time: all rows of a collective add up to it."""

    # kind, of: ``"launch"``, ``"hop"``, ``"fill"``, ``"wire latency"``, ``"bytes"``, ``"limit"`` ..., and of which
    # constant or class of link
    kind: str
    of: str
    count: float  # How often; of bytes and limits how many bytes
    time_s: float  # In seconds
    constants: dict[str, int]  # Constants of the library that it is proportional to, with their powers


@dataclass(frozen=True, slots=True)
class BesideRow:
    """Groups that did the same at once."""

    # tp, pp, dp: ranks that share a layer, stages, and ranks that hold the same: those of one group
    tp: int
    pp: int
    dp: int
    groups: int  # How many there are
    alone_s: float  # What one group takes with no other, the first
    contention: float | None  # How many times as long it takes beside the others; None where no time passes


@dataclass(frozen=True, slots=True)
class OtherAlgorithm:
    """An algorithm that ``auto`` did not choose."""

    algorithm: str
    protocol: str | None  # Of the library, as LL128; None where it is not modelled
    time_s: float


@dataclass(frozen=True, slots=True, repr=False)
class CollectiveResult(FaultedForm):
    """What `s2sim.run_collective` returns."""

    more_json: ClassVar[tuple[str, ...]] = (
        *("faults?", "fault_effects?", "clocked_s?", "cross_check?", "terms?", "band?", "notes?", "groups?"),
        *("protocol?", "faster?", "alternatives?", "provenance?"),
    )

    spec: CollectiveSpec
    spec_sha256: str
    # kind, algorithm, why, cluster: what ran, why that algorithm, and where
    kind: str
    algorithm: str
    why: str
    cluster: str
    # workers, size_bytes: ranks, with groups beside each other those of one, and the size as nccl-tests counts it
    workers: int
    size_bytes: int
    network: str  # ``"fluid"`` or ``"packet"``
    time_s: float  # Of the last rank
    # lower_bound_s, lower_bound_why: no schedule is faster, and the cut or partition that forces it
    lower_bound_s: float
    lower_bound_why: str
    # What the algorithm's closed form gives; None where messages share links, so that none holds
    closed_form_s: float | None
    # algbw_Bps, busbw_Bps: size over time, and that times the factor by which links see it; None where no time passes
    algbw_Bps: float | None
    busbw_Bps: float | None
    bytes_per_rank: int  # Most bytes sent by a rank
    bottlenecks: tuple[LinkLoad, ...]  # The busiest links
    rank_finish_s: tuple[float, ...]  # When the last message from or to each rank has been delivered
    # The time where rounds are clocked for all ranks, where it was asked for without that
    clocked_s: float | None = None
    cross_check: CollectiveCheck | None = None  # What the other network makes of it, where that was asked for
    effects: tuple[Effect, ...] = field(default=(), metadata=left_out(load_effects))  # What each fault did
    terms: tuple[TermRow, ...] = ()  # What the time is the sum of, where that was asked for
    # Where nine of ten measured times lie that are predicted so; None where no library's measured constants made it
    band: Band | None = None
    notes: tuple[str, ...] = ()  # Where constants are used outside of what they were fitted to
    groups: BesideRow | None = None  # The groups that did the same at once; None for one group of all ranks
    protocol: str | None = None  # Of the library, as LL128; None where it is not modelled
    # The fastest algorithm if auto does not choose it and it takes less than nine tenths of the time; None without one
    faster: OtherAlgorithm | None = None
    # What the library may choose as well: its estimates lie within what they scatter
    alternatives: tuple[OtherAlgorithm, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)  # The run record

    def columns(self) -> dict[str, Any]:
        """Return the figures of a table's row, with units in their names."""
        names = "kind workers size_bytes time_s algbw_Bps busbw_Bps algorithm protocol lower_bound_s bytes_per_rank"
        return {name: getattr(self, name) for name in names.split()}
