"""What became of transfers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from s2sim.study.flows.transfers import COLUMNS
from s2sim.study.json_form import LEFT_OUT, JsonForm, key
from s2sim.study.scenario.faults import effects_json
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s2sim.arrays import Floats
    from s2sim.replay.faults.fault import Effect
    from s2sim.study.collective.link_loads import LinkLoad
    from s2sim.study.flows.cross_check import CrossCheck
    from s2sim.study.flows.transfers import FlowsSpec, Transfers

_RESULT_COLUMNS = (*COLUMNS, "finish_s", "slowdown")


@dataclass(frozen=True, slots=True, eq=False)
class FlowsResult(JsonForm):
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

    def _rows(self) -> Iterator[tuple[float | int, ...]]:
        asked = self.transfers
        columns = (asked.start_ps / PS_PER_S, asked.src, asked.dst, asked.sizes_bytes, self.finish_s, self.slowdown)
        return zip(*(column.tolist() for column in columns), strict=True)

    def to_csv(self) -> str:
        """Return the transfers as they were read, with two columns more."""
        lines = [",".join(_RESULT_COLUMNS), *(",".join(map(repr, row)) for row in self._rows())]
        return "\n".join(lines) + "\n"

    def more_json(self) -> dict[str, Any]:
        """Return the transfers one by one, and what was not always asked for."""
        check = {} if self.cross_check is None else {"cross_check": self.cross_check}
        flows = [dict(zip(_RESULT_COLUMNS, row, strict=True)) for row in self._rows()]
        return {"flows": flows, **check, **effects_json(self.effects)}
