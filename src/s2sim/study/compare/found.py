"""What a run has found so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from s2sim.study.break_even.scan import Scan
from s2sim.study.measuring.timeline import watch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s2sim.study.measuring.executed import Executed
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.measuring.result import Row
    from s2sim.study.measuring.timeline import Timeline


@dataclass(slots=True)
class Found:
    """What a run has found so far; recordings and their executions by number of workers."""

    recorded: dict[int, list[Recorded]] = field(default_factory=dict)
    executed: dict[int, list[Executed]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    scan: Scan = field(default_factory=lambda: Scan(None))

    @property
    def largest(self) -> int:
        """Largest number of workers that is finished."""
        return max(self.recorded)

    def pairs(self, workers: int) -> Iterable[tuple[Recorded, Executed]]:
        """Return each recording with its execution."""
        return zip(self.recorded[workers], self.executed[workers], strict=True)

    def timelines(self) -> dict[str, Timeline]:
        """Return what ranks and links do under each reducer, for the largest number of workers."""
        return {item.option_string: watch(each) for item, each in self.pairs(self.largest)}
