"""What result rows are made of."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from s2sim.study.json_form import MayBeInfinite


class Times(NamedTuple):
    """Seconds of the slowest rank.

    Attributes
    ----------
    encode, communication, decode, total : float
        Communication is the rest of the total, waiting included.
    iteration : float or None
        From the beginning of forward until the next may begin, where compute was given: compute plus total, unless
        parts of it overlapped; of several iterations, the median.
    """

    encode: float
    communication: float
    decode: float
    total: float
    iteration: float | None


class Distance(NamedTuple):
    """Relative L2 distance to the exact mean, and cosine of the angle between them; None where undefined."""

    relative_l2: float | None
    cosine: float | None


class WorstLayer(NamedTuple):
    """The layer with the largest relative L2 error."""

    layer: str | None
    relative_l2: float | None


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One collective of a reduction, as it ran.

    Attributes
    ----------
    kind, algorithm, label, why : str
        What ran, what it carried, and why that algorithm.
    bytes : int
        Largest contribution of a rank; of several groups of ranks that post it alike, of any.
    time_s : float
        From its launch to its end on the last rank, of the group where that takes longest.
    size_from_data : bool
        Whether the host had to wait for the GPU to know its size.
    """

    kind: str
    algorithm: str
    label: str
    bytes: int
    time_s: float
    size_from_data: bool
    why: str


@dataclass(frozen=True, slots=True)
class LoweringRow:
    """One collective as a reducer asks for it, and as the communication library executes it.

    Attributes
    ----------
    call : str
        What it carries.
    asked, executes : str
        For people.
    bytes_ideal, bytes_sent : int
        Sent by the rank that sends most, by ring algorithms: as asked, and as executed.
    time_ideal_s, time_s : float
        From its last post to its end on the last rank: if all ran as asked, and with this library.
    gap_s : float
        Time of the whole communication phase less its time if this collective alone were executed as asked.
    why : str
        What the library executes, why, and the source for it.
    """

    call: str
    asked: str
    executes: str
    bytes_ideal: int
    bytes_sent: int
    time_ideal_s: float
    time_s: float
    gap_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A reducer that was asked for together with others, by its option string, and why it did not run."""

    reducer: str
    workers: int
    why: str


@dataclass(frozen=True, slots=True)
class BoundRow:
    """A published bound on the error of one element, beside what was found.

    Attributes
    ----------
    element : float
        The bound, as a share of the L2 norm of the compressed layers' exact mean; that of the layer with the largest.
    share, share_found : float
        Share of these layers' elements for which it holds: in expectation at least, and as measured.
    relative_l2 : float or None
        Relative L2 error of all of them that a law predicts, as RMS over hash seeds, where one is known.
    source : str
        Whose theorem it is.
    """

    element: float
    share: float
    share_found: float
    relative_l2: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """How far off the statistics of a trace are for another model, whose own gradients are recorded.

    Attributes
    ----------
    to : str
        Name of the trace of the other model.
    workers : int
        Ranks that ran.
    error_bytes, error_time : float
        Predicted over recorded less 1, for one reducer: bytes of the rank that sends most, and total time.
    error_l2 : float or None
        The same of the relative L2 error of a lossy reducer.
    """

    to: str
    workers: int
    error_bytes: float
    error_time: float
    error_l2: float | None


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """The mark of a row that goes beyond what was recorded.

    Attributes
    ----------
    law : str
        By what law.
    from_workers, to_workers : int
        Ranks recorded and asked for.
    from_parameters, to_parameters : int
        Parameters recorded and asked for.
    model : str or None
        Model whose layers were asked for.
    hold_out : str
        What the law was made to predict from what.
    hold_out_error_bytes, hold_out_error_time : float
        Predicted over recorded less 1 there, for this reducer: bytes of the rank that sends most, and total time.
    transfer : tuple of Transfer
        What statistics scaled like this are worth for other models, where sizes were scaled.
    """

    law: str
    from_workers: int
    to_workers: int
    from_parameters: int
    to_parameters: int
    model: str | None
    hold_out: str
    hold_out_error_bytes: float
    hold_out_error_time: float
    transfer: tuple[Transfer, ...]

    @property
    def doubt(self) -> float:
        """By which factor the time may be off, by the worst that was found where it could be checked; 1 or more.

        Other gradients may be off the other way than those that were checked.
        """
        errors = [self.hold_out_error_time, *(item.error_time for item in self.transfer)]
        return max(max(1 + error, 1 / (1 + error)) if error > -1 else inf for error in errors)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is thought of a row beside the others of its number of workers.

    Attributes
    ----------
    time_s : float
        What is compared: the phase or, where compute was given, the iteration; of the median step where several ran.
    speedup : float
        Dense's over it.
    rejected : str or None
        Why it cannot be recommended, however fast.
    dominated_by : str or None
        Option string of one that takes no longer and is no further from the exact mean.
    as_dense : bool
        Whether it does what dense does, in the same time.
    """

    time_s: float
    speedup: MayBeInfinite
    rejected: str | None
    dominated_by: str | None
    as_dense: bool


@dataclass(frozen=True, slots=True)
class StepRow:
    """One of successive steps.

    Attributes
    ----------
    step : int
        From 0.
    error : float or None
        Relative L2 error of this step's aggregate, in which residuals of earlier steps arrive late.
    error_so_far : float or None
        The same of the sum of all steps so far.
    residual : float or None
        L2 norm of all ranks' residuals over that of their gradients in the first step; None without error feedback.
    total_s : float
        Of the communication phase.
    bytes_sent_per_rank : int
        Largest over ranks.
    """

    step: int
    error: float | None
    error_so_far: float | None
    residual: float | None
    total_s: float
    bytes_sent_per_rank: int
