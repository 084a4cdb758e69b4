"""What became of transfers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from s2sim.study.flows.transfers import Transfers
from s2sim.study.json_form import left_out
from s2sim.study.result_form import FaultedForm, load_effects
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s2sim.arrays import Floats
    from s2sim.replay.faults.fault import Effect
    from s2sim.study.collective.link_loads import LinkLoad
    from s2sim.study.flows.cross_check import CrossCheck
    from s2sim.study.flows.spec import FlowsSpec


class Flow(NamedTuple):
    """A transfer, when it was delivered, and its time over what it takes with nothing else in flight."""

    start_s: float
    src: int
    dst: int
    bytes: float
    finish_s: float
    slowdown: float


def _column(result: Mapping[str, Any], name: str) -> Floats:
    return np.array([flow[name] for flow in result["flows"]], np.float64)


def _load_transfers(result: Mapping[str, Any]) -> Transfers:
    start_ps = np.rint(_column(result, "start_s") * PS_PER_S).astype(np.int64)
    src, dst = (_column(result, name).astype(np.int64) for name in ("src", "dst"))
    return Transfers(start_ps, src, dst, _column(result, "bytes"))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FlowsResult(FaultedForm):
    """What became of the transfers, in the order of the file.

    Attributes
    ----------
    spec_sha256 : str
        The hash of the spec's content, transfers included.
    cluster : str
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
    more_json: ClassVar[tuple[str, ...]] = ("flows", "faults?", "fault_effects?", "cross_check?")

    spec: FlowsSpec
    spec_sha256: str
    transfers: Transfers = field(metadata=left_out(_load_transfers))
    cluster: str
    finish_s: Floats = field(metadata=left_out(lambda result: _column(result, "finish_s")))
    slowdown: Floats = field(metadata=left_out(lambda result: _column(result, "slowdown")))
    bottlenecks: tuple[LinkLoad, ...]
    network: str
    cross_check: CrossCheck | None = None
    effects: tuple[Effect, ...] = field(default=(), metadata=left_out(load_effects))

    @property
    def flows(self) -> list[Flow]:
        """The transfers one by one."""
        sent = self.transfers
        columns = (sent.start_ps / PS_PER_S, sent.src, sent.dst, sent.sizes_bytes, self.finish_s, self.slowdown)
        return list(map(Flow, *(column.tolist() for column in columns)))

    def to_csv(self) -> str:
        """Return the transfers as they were read, with two columns more."""
        lines = [",".join(Flow._fields), *(",".join(map(repr, flow)) for flow in self.flows)]
        return "\n".join(lines) + "\n"
