"""What a run has found so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from s2sim.errors import OptionError
from s2sim.study.break_even.scan import Scan
from s2sim.study.compare.choice import choose
from s2sim.study.compare.judge import candidates_of
from s2sim.study.compare.over_counts import over_batches
from s2sim.study.measuring.record import baseline_of
from s2sim.study.measuring.timeline import watch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s2sim.study.break_even.rate_curve import RateCurves
    from s2sim.study.measuring.executed import Executed
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.measuring.result import Row
    from s2sim.study.measuring.row_parts import Refused
    from s2sim.study.measuring.streams import Streams
    from s2sim.study.measuring.timeline import Timeline
    from s2sim.study.measuring.verdict_row import CountPays
    from s2sim.study.scenario.reducers import ReducerScenario


@dataclass(slots=True)
class Wanted:
    """What a run is to find beside rows and a verdict.

    Attributes
    ----------
    timelines, curves : dict or None
        To be filled with what ranks and links do under each reducer, for the largest number of workers, or with what
        one rank does over whole iterations; and with the speed-ups over dense at other rates, by number of workers.
    break_even : bool
        Whether to look for the rates at which reducers break even with dense.
    thorough : bool
        Whether of all reducers, and with what other libraries would make of each.
    timeline_rank : int or None
        Which rank's iterations timelines show; None for the slowest.
    """

    timelines: dict[str, Timeline | Streams] | None
    curves: dict[int, RateCurves] | None
    break_even: bool
    thorough: bool
    timeline_rank: int | None = None

    def check(self, scenario: ReducerScenario, workers: int) -> None:
        """Refuse a rank that no timeline shows, with so many workers."""
        rank = self.timeline_rank
        if rank is None:
            return
        if scenario.training is None:
            raise OptionError("--timeline-rank changes nothing without --profile: a phase is shown with all its ranks")
        if not 0 <= rank < workers:
            raise OptionError(f"--timeline-rank {rank}: there are ranks 0 to {workers - 1}")


@dataclass(slots=True)
class Found:
    """What a run has found so far; recordings and their executions by number of workers."""

    recorded: dict[int, list[Recorded]] = field(default_factory=dict)
    executed: dict[int, list[Executed]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    scan: Scan = field(default_factory=lambda: Scan(None))
    over_batches: tuple[CountPays, ...] = ()

    @property
    def largest(self) -> int:
        """Largest number of workers that is finished."""
        return max(self.recorded)

    def pairs(self, workers: int) -> Iterable[tuple[Recorded, Executed]]:
        """Return each recording with its execution."""
        return zip(self.recorded[workers], self.executed[workers], strict=True)

    def rows_of(self, workers: int) -> list[Row]:
        """Return the rows of one number of workers."""
        return [row for row in self.rows if row.workers == workers]

    def refuse(self, refused: Refused) -> None:
        """Take out again a reducer that has refused a later step."""
        self.refused.append(refused)
        place = [item.option_string for item in self.recorded[refused.workers]].index(refused.reducer)
        del self.recorded[refused.workers][place], self.executed[refused.workers][place]
        self.rows.remove(self.rows_of(refused.workers)[place])

    def named(self, max_error: float | None) -> list[Recorded]:
        """Return the recordings of dense and of what a verdict on the largest number of workers names."""
        choice = choose(candidates_of(self.rows_of(self.largest), max_error), max_error)
        names = {each.name for each in choice.named()}
        recorded = self.recorded[self.largest]
        return [item for item in recorded if item.reducer.traits.baseline or item.option_string in names]

    def look_over_batches(self, max_error: float | None) -> None:
        """Find out with which mini-batches what the verdict on the largest number of workers names pays."""
        names = {item.option_string for item in self.named(max_error)}
        executed = {item.option_string: each for item, each in self.pairs(self.largest) if item.option_string in names}
        dense = executed.pop(baseline_of(self.recorded[self.largest]).option_string)
        self.over_batches = over_batches(dense, executed)

    def timelines(self, rank: int | None) -> dict[str, Timeline | Streams]:
        """Return what ranks and links do under each reducer, for the largest number of workers; or one rank does."""
        return {item.option_string: watch(each, rank) for item, each in self.pairs(self.largest)}
