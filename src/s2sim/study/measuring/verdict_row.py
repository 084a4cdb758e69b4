"""What is answered for one number of workers, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from s2sim.study.json_form import JsonForm


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where a reducer, faster than dense ``below`` or ``above`` it, and dense take the same time."""

    reducer: str
    field: str
    pays: str
    at_Bps: float


@dataclass(frozen=True, slots=True)
class CountPays:
    """With which numbers of workers, or samples of a GPU's mini-batch, a reducer's iterations gain 1 % or more.

    Attributes
    ----------
    reducer : str
        Option string.
    field : {"workers", "batch"}
        What was varied.
    spans : tuple of (int, int)
        First and last number of each stretch in which it gains that on dense: less is more than a model can tell.
    lowest, highest : int
        Between which it was tried.
    """

    reducer: str
    field: str
    spans: tuple[tuple[int, int], ...]
    lowest: int
    highest: int

    @property
    def text(self) -> str:
        """In words.

        >>> CountPays("fp16", "batch", ((1, 90),), 1, 4096).text, CountPays("fp16", "workers", ((16, 64),), 8, 64).text
        ('up to a batch of 90', 'from 16 workers on')
        """
        if not self.spans:
            return f"nowhere from {self._many(self.lowest)} to {self.highest}"
        if self.spans == ((self.lowest, self.highest),):
            return f"everywhere from {self._many(self.lowest)} to {self.highest}"
        return " and ".join(self._span_text(first, last) for first, last in self.spans)

    def _many(self, number: int) -> str:
        return f"a batch of {number}" if self.field == "batch" else f"{number} workers"

    def _span_text(self, first: int, last: int) -> str:
        if first == self.lowest:
            return f"up to {self._many(last)}"
        return f"from {self._many(first)} on" if last == self.highest else f"from {self._many(first)} to {last}"


@dataclass(frozen=True, slots=True)
class Flip:
    """A constant of the hardware that is only estimated, and with which the choice were another one.

    Attributes
    ----------
    constant : str
        Field of the GPU's description.
    value, taken : str
        The value with which it flips, within what is plausible, and the one that was taken.
    best : str
        Option string of the choice then; ``dense`` where it were not to compress.
    """

    constant: str
    value: str
    taken: str
    best: str


@dataclass(frozen=True, slots=True)
class Verdict(JsonForm):
    """The answer for one number of workers, and what it rests on.

    Attributes
    ----------
    workers : int
        Ranks.
    decision : {"use", "undecided", "do not compress"}
        Undecided: what is gained is less than the model can err.
    lines : tuple of str
        What to do; how much it gains, on what; what would change it.
    text : str
        All of it in one.
    best : str
        Option string of what to use first; ``dense`` where nothing is to be compressed.
    assumes : str or None
        On what that rests beside what is simulated.
    without_assumption : str or None
        Option string of the best that does not, where the best rests on something.
    best_exact : str
        Option string of the fastest exact reducer, which may be dense.
    best_lossy : str or None
        Option string of the lossy one to use if its error is acceptable.
    flips : tuple of Flip
        Estimated constants that decide.
    pays : dict of str to str
        At which rates each reducer that was looked at is faster than dense, in words.
    break_even : tuple of Crossing
        Every crossing found in the scanned range.
    bottleneck : str
        What dense waits for.
    band_share : float or None
        Share of the draws of measured constants in which ``best`` stays; None where those made no times.
    pays_over : tuple of CountPays
        With which numbers of workers and which mini-batches reducers pay, where whole iterations were compared.
    """

    more_json: ClassVar[tuple[str, ...]] = ("band_share?", "pays_over?")

    workers: int
    decision: str
    lines: tuple[str, ...]
    text: str
    best: str
    assumes: str | None
    without_assumption: str | None
    best_exact: str
    best_lossy: str | None
    flips: tuple[Flip, ...]
    pays: dict[str, str]
    break_even: tuple[Crossing, ...]
    bottleneck: str
    band_share: float | None = None
    pays_over: tuple[CountPays, ...] = ()
