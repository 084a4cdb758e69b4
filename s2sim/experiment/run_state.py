"""What a run has found so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from s2sim.errors import OptionError
from s2sim.experiment.break_even import BreakEvenScan
from s2sim.experiment.choice import candidates_of, choose
from s2sim.experiment.prediction import Prediction
from s2sim.experiment.rate_curve import RateCurves
from s2sim.experiment.record import RecordedReducer, baseline_of
from s2sim.experiment.robustness import over_batches
from s2sim.experiment.row_parts import CountPays, Refused
from s2sim.experiment.rows import Row
from s2sim.experiment.run_extrapolation import RunExtrapolation
from s2sim.experiment.scenario.reducers import ReducerScenario
from s2sim.experiment.timeline import Streams, Timeline, record_timeline


@dataclass(slots=True)
class RequestedOutputs:
    """What a run is to find beside rows and a verdict."""

    # timelines, curves: to be filled with what ranks and links do under each reducer, for the largest number of
    # workers, or with what one rank does over whole iterations; and with the speed-ups over dense at other rates, by
    # number of workers
    timelines: dict[str, Timeline | Streams] | None
    curves: dict[int, RateCurves] | None
    break_even: bool  # Whether to look for the rates at which reducers break even with dense
    thorough: bool  # Whether of all reducers, and with what other libraries would make of each
    timeline_rank: int | None = None  # Which rank's iterations timelines show; None for the slowest

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
class RunState:
    """What a run has found so far."""

    # By number of workers, for those that are finished
    predictions: dict[int, list[Prediction]] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)  # Optional reducers that did not run
    # Rates at which reducers break even, for the largest number of workers
    scan: BreakEvenScan = field(default_factory=lambda: BreakEvenScan(None))
    over_batches: tuple[CountPays, ...] = ()  # Mini-batches with which reducers that the verdict names pay
    extrapolated: RunExtrapolation | None = None  # How far gradients go beyond what was recorded; None where all were

    @property
    def largest(self) -> int:
        """Largest number of workers that is finished."""
        return max(self.predictions)

    @property
    def rows(self) -> list[Row]:
        """Rows of all numbers of workers."""
        return [each.row for several in self.predictions.values() for each in several]

    def recorded(self, workers: int) -> list[RecordedReducer]:
        """Return the recordings of one number of workers."""
        return [each.recorded for each in self.predictions[workers]]

    def named(self, max_error: float | None) -> list[Prediction]:
        """Return dense and what a verdict on the largest number of workers names."""
        predictions = self.predictions[self.largest]
        choice = choose(candidates_of([each.row for each in predictions], max_error), max_error)
        names = {each.name for each in choice.named()}
        return [each for each in predictions if each.row.baseline or each.row.option_string in names]

    def find_worthwhile_batches(self, max_error: float | None) -> None:
        """Find out with which mini-batches what the verdict on the largest number of workers names pays."""
        executed = {each.row.option_string: each.executed for each in self.named(max_error)}
        dense = executed.pop(baseline_of(self.recorded(self.largest)).option_string)
        self.over_batches = over_batches(dense, executed)

    def timelines(self, rank: int | None) -> dict[str, Timeline | Streams]:
        """Return what ranks and links do under each reducer, for the largest number of workers; or one rank does."""
        return {each.row.option_string: record_timeline(each.executed, rank) for each in self.predictions[self.largest]}
