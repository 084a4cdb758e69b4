"""The results of a run so far."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from s2sim.experiment.break_even import BreakEvenScan
from s2sim.experiment.choice import candidates_of, choose
from s2sim.experiment.prediction import Prediction
from s2sim.experiment.record import RecordedReducer
from s2sim.experiment.row_parts import Alternative, CountPays, Refused
from s2sim.experiment.rows import Row
from s2sim.experiment.run_extrapolation import RunExtrapolation


def mark(predictions: list[Prediction], law: RunExtrapolation | None) -> list[Prediction]:
    """Return predictions with a mark in extrapolated rows."""
    if law is None:
        return predictions
    return [replace(each, row=replace(each.row, extrapolated=law.mark(each.row))) for each in predictions]


@dataclass(slots=True)
class RunState:
    """The results of a run so far."""

    # By number of workers, for those that are finished
    predictions: dict[int, list[Prediction]] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)  # Optional reducers that did not run
    # Rates at which reducers break even, for the largest number of workers
    scan: BreakEvenScan = field(default_factory=lambda: BreakEvenScan(None))
    search_ended: str | None = None  # The error by which the search for these rates and mini-batches ended, if one did
    over_batches: tuple[CountPays, ...] = ()  # Mini-batches with which reducers that the verdict names pay
    alternatives: tuple[Alternative, ...] = ()  # The same on clusters that differ
    # By number of ranks that exchange gradients, None where all of these were recorded
    extrapolations: dict[int, RunExtrapolation | None] = field(default_factory=dict)

    def add(self, predictions: list[Prediction], refused: list[Refused], workers: int, ranks: int) -> None:
        """Add the predictions of a number of workers, ``ranks`` of which exchange gradients; mark extrapolated rows."""
        self.predictions[workers] = mark(predictions, self.extrapolations.get(ranks))
        self.refused += refused

    def of_reducers(self, names: Collection[str]) -> "RunState":
        """Return the state of a run of some of the reducers alone, which always has dense."""
        kept = {
            workers: sorted(
                (each for each in predictions if each.row.reducer in names or each.row.baseline),
                key=lambda each: [*names].index(each.row.reducer) if each.row.reducer in names else -1,
            )
            for workers, predictions in self.predictions.items()
        }
        rows = {each.row.reducer for predictions in kept.values() for each in predictions}
        laws = self.extrapolations.items()
        return replace(
            self,
            predictions=kept,
            refused=[item for item in self.refused if item.reducer in names],
            extrapolations={ranks: None if law is None else law.of_reducers(rows) for ranks, law in laws},
        )

    @property
    def extrapolated(self) -> RunExtrapolation | None:
        """That of the most ranks, which is the last."""
        return next(reversed(self.extrapolations.values()), None)

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
        """Return dense and the reducers that a verdict on the largest number of workers names."""
        predictions = self.predictions[self.largest]
        choice = choose(candidates_of([each.row for each in predictions], max_error), max_error)
        names = {each.name for each in choice.named()}
        return [each for each in predictions if each.row.baseline or each.row.option_string in names]
