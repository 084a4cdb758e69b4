"""What became of transfers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NotRequired, TypedDict

from s2sim.study.flows.transfers import COLUMNS
from s2sim.study.json_form import LEFT_OUT, key
from s2sim.study.result_form import FaultedForm
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.arrays import Floats
    from s2sim.replay.faults.fault import Effect
    from s2sim.study.collective.link_loads import LinkLoad
    from s2sim.study.flows.cross_check import CrossCheck
    from s2sim.study.flows.spec import FlowsSpec
    from s2sim.study.flows.transfers import Transfers

_RESULT_COLUMNS = (*COLUMNS, "finish_s", "slowdown")


class _Flow(TypedDict):
    start_s: float
    src: int
    dst: int
    bytes: float
    finish_s: float
    slowdown: float


class _More(TypedDict):
    flows: list[_Flow]
    faults: NotRequired[list[str]]
    fault_effects: NotRequired[list[str]]
    cross_check: NotRequired[CrossCheck]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FlowsResult(FaultedForm):
    """What became of the transfers, in the order of the file.

    Attributes
    ----------
    spec_sha256 : str
        The hash of the spec's content, transfers included.
    headline : str
        The cluster in one line.
    finish_s, slowdown : float64 array, shape (n,)
        When each was delivered, in seconds from time 0, and its time over what it would take with nothing else in
        flight.
    bottlenecks : tuple of LinkLoad
        The busiest links, over the time from the first start to the last delivery.
    cross_check : CrossCheck, optional
        What the other network says, where it was asked.
    effects : tuple of Effect
        What each fault did.
    """

    answers: ClassVar[str] = "flows"

    spec: FlowsSpec
    spec_sha256: str
    transfers: Transfers = field(metadata=LEFT_OUT)
    headline: str = field(metadata=key("cluster"))
    finish_s: Floats = field(metadata=LEFT_OUT)
    slowdown: Floats = field(metadata=LEFT_OUT)
    bottlenecks: tuple[LinkLoad, ...]
    network: str
    cross_check: CrossCheck | None = field(metadata=LEFT_OUT)
    effects: tuple[Effect, ...] = field(default=(), metadata=LEFT_OUT)

    @property
    def flows(self) -> list[_Flow]:
        """The transfers one by one, as in JSON: what was asked for, and what became of it."""
        asked = self.transfers
        columns = (asked.start_ps / PS_PER_S, asked.src, asked.dst, asked.sizes_bytes, self.finish_s, self.slowdown)
        return [
            {"start_s": start_s, "src": src, "dst": dst, "bytes": size, "finish_s": finish_s, "slowdown": slowdown}
            for start_s, src, dst, size, finish_s, slowdown in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]

    def to_csv(self) -> str:
        """Return the transfers as they were read, with two columns more."""
        lines = [",".join(_RESULT_COLUMNS), *(",".join(map(repr, flow.values())) for flow in self.flows)]
        return "\n".join(lines) + "\n"

    def more_json(self) -> _More:
        """Return the transfers one by one, and what was not always asked for."""
        more: _More = {"flows": self.flows}
        if self.cross_check is not None:
            more["cross_check"] = self.cross_check
        if self.effects:
            more["faults"], more["fault_effects"] = self.faults, self.fault_effects
        return more
