"""What result rows are made of."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, NamedTuple

from s2sim.experiment.json_form import LEFT_OUT, JsonForm, MayBeInfinite
from s2sim.units import enumerate_words


@dataclass(frozen=True, slots=True)
class IterationRow:
    """The median iteration of the slowest rank in seconds; all but hidden communication add up to it."""

    # forward, backward, optimizer: while these run, what slows them down included
    forward: float
    backward: float
    codec: float  # Encode and decode while no compute runs
    # While nothing of the GPU runs and a collective of this rank is in flight, or its library prepares one
    exposed_communication: float
    hidden_communication: float  # While a collective of this rank is in flight beside compute or codec
    waiting: float  # While nothing of the GPU runs and this rank has posted what other ranks have not
    optimizer: float
    spread_s: float  # From the 5th to the 95th percentile over iterations; 0 where all take the same
    iterations: int  # How many ran
    # Samples that all workers together have done with in a second; None where the batch is not known
    samples_per_s: float | None
    discipline: str  # Option string of what exchanges which gradients when
    buckets: int  # Groups of tensors that are exchanged each as one
    streams: int  # Whether codec and compute run one after the other, or side by side
    lower_bound: float  # No iteration is shorter: the longest chain through compute and cuts
    waiting_mean: float  # Seconds that a rank waits for others, the mean over all ranks and iterations
    # Bytes of float32 parameters, optimizer states and gradients of a rank, of what its reducer keeps from step to step
    # and, where ranks divide states, of whole parameters at most and of a part of a copy in its node; no activations
    state_bytes: int = 0
    pipeline_wait: float = 0.0  # Part of waiting that is for other stages of a pipeline, whatever is sent
    parameter_bytes: int = 0  # Received of parameters in all-gathers, where ranks hold shards of them
    host: float = 0.0  # As a recorded job has it: its host, and ranks that waited for each other

    @property
    def total_s(self) -> float:
        """All of it, from the beginning of forward until the next may begin."""
        exposed = self.codec + self.exposed_communication + self.waiting
        return self.forward + self.backward + exposed + self.optimizer + self.host

    @property
    def hidden_share(self) -> float:
        """Share of communication that runs beside compute or codec; 1 where there is none."""
        communication = self.hidden_communication + self.exposed_communication
        return self.hidden_communication / communication if communication else 1.0


class Times(NamedTuple):
    """Seconds of the slowest rank."""

    # encode, communication, decode, total: communication is the rest of the total, waiting included
    encode: float
    communication: float
    decode: float
    total: float
    # From the beginning of forward until the next may begin, where compute was given: compute plus total, unless parts
    # of it overlapped; of several iterations, the median
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
    """One collective of a reduction, as it ran."""

    # kind, algorithm, label, why: what ran, what it carried, and why that algorithm
    kind: str
    algorithm: str
    label: str
    bytes: int  # Largest contribution of a rank; of several groups of ranks that post it alike, of any
    time_s: float  # From its launch to its end on the last rank, of the group where that takes longest
    size_from_data: bool  # Whether the host had to wait for the GPU to know its size
    why: str


@dataclass(frozen=True, slots=True)
class LoweringRow:
    """One collective as a reducer asks for it, and as the communication library executes it."""

    call: str  # What it carries
    # asked, executes: for people
    asked: str
    executes: str
    # bytes_ideal, bytes_sent: sent by the rank that sends most, by ring algorithms: as asked, and as executed
    bytes_ideal: int
    bytes_sent: int
    # time_ideal_s, time_s: from its last post to its end on the last rank: if all ran as asked, and with this library
    time_ideal_s: float
    time_s: float
    gap_s: float  # Time of the whole communication phase less its time if this collective alone were executed as asked
    why: str  # What the library executes, why, and the source for it


@dataclass(frozen=True, slots=True)
class Refused:
    """A reducer that was asked for together with others, by its option string, and why it did not run."""

    reducer: str
    workers: int
    why: str


@dataclass(frozen=True, slots=True)
class BoundRow:
    """A published bound on the error of one element, beside what was found."""

    # The bound, as a share of the L2 norm of the compressed layers' exact mean; that of the layer with the largest
    element: float
    # Share of these layers' elements for which it holds: in expectation at least, and as measured
    share: float
    share_found: float
    # Relative L2 error of all of them that a law predicts, as RMS over hash seeds, where one is known
    relative_l2: float | None
    source: str  # Whose theorem it is


@dataclass(frozen=True, slots=True)
class Transfer:
    """How far off the statistics of a trace are for another model, whose own gradients are recorded."""

    to: str  # Name of the trace of the other model
    workers: int  # Ranks that ran
    # error_bytes, error_time: predicted over recorded less 1, for one reducer: bytes of the rank that sends most, and
    # total time
    error_bytes: float
    error_time: float
    error_l2: float | None  # The same of the relative L2 error of a lossy reducer


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """The mark of a row that goes beyond what was recorded."""

    law: str  # By what law
    # from_workers, to_workers: ranks recorded and asked for
    from_workers: int
    to_workers: int
    # from_parameters, to_parameters: parameters recorded and asked for
    from_parameters: int
    to_parameters: int
    model: str | None  # Model whose layers were asked for
    hold_out: str  # What the law was made to predict from what
    # hold_out_error_bytes, hold_out_error_time: predicted over recorded less 1 there, for this reducer: bytes of the
    # rank that sends most, and total time
    hold_out_error_bytes: float
    hold_out_error_time: float
    # What statistics scaled like this are worth for other models, where sizes were scaled
    transfer: tuple[Transfer, ...]

    @property
    def doubt(self) -> float:
        """By which factor the time may be off, by the worst that was found where it could be checked; 1 or more.

        Other gradients may be off the other way than those that were checked.
        """
        return worst_factor([self.hold_out_error_time, *(item.error_time for item in self.transfer)])


def worst_factor(errors: Iterable[float]) -> float:
    """Return the largest factor, up or down, of relative errors; 1 of none.

    >>> worst_factor([0.25, -0.5])
    2.0
    """
    return max((max(1 + error, 1 / (1 + error)) if error > -1 else inf for error in errors), default=1.0)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is thought of a row beside the others of its number of workers."""

    # What is compared: the phase or, where compute was given, the iteration; of the median step where several ran
    time_s: float
    speedup: MayBeInfinite  # Dense's over it
    rejected: str | None  # Why it cannot be recommended, however fast
    dominated_by: str | None  # Option string of one that takes no longer and is no further from the exact mean
    as_dense: bool  # Whether it does what dense does, in the same time
    # What `choose` took of it, so that the choice can be made again from rows alone: whether all that is lost is
    # rounding, and by which factor the time may be longer, where it is extrapolated
    exact: bool = False
    doubt: float = 1.0
    rule: str = ""  # The rule of the choice that put it where it is
    # Of that rule: the speed-up over dense or, of those rejected, the error that it needs
    threshold: float | None = None
    change: str | None = None  # What would have to change for another rule to hold


@dataclass(frozen=True, slots=True)
class StepRow:
    """One of successive steps."""

    step: int  # From 0
    error: float | None  # Relative L2 error of this step's aggregate, in which residuals of earlier steps arrive late
    error_so_far: float | None  # The same of the sum of all steps so far
    # L2 norm of all ranks' residuals over that of their gradients in the first step; None without error feedback
    residual: float | None
    total_s: float  # Of the communication phase
    bytes_sent_per_rank: int  # Largest over ranks
    settled: bool = True  # Whether it is after those first steps that go otherwise, as in a warm-up


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where a reducer, faster than dense ``below`` or ``above`` it, and dense take the same time."""

    reducer: str
    field: str
    pays: str
    at_Bps: float


@dataclass(frozen=True, slots=True)
class CountPays:
    """With which numbers of workers, or samples of a GPU's mini-batch, a reducer's iterations gain 1 % or more."""

    reducer: str  # Option string
    field: str  # What was varied
    # First and last number of each stretch in which it gains that on dense: less is more than a model can tell
    spans: tuple[tuple[int, int], ...]
    # lowest, highest: between which it was tried
    lowest: int
    highest: int
    tried: tuple[int, ...] = ()  # The numbers that were, where those between are not known

    @property
    def text(self) -> str:
        """In words.

        >>> CountPays("fp16", "batch", ((1, 90),), 1, 4096).text
        'up to a batch of 90'
        >>> CountPays("fp16", "workers", ((16, 64),), 8, 64, (8, 16, 64)).text
        'with 16 and 64 workers, not with 8'
        """
        if self.tried:
            pay = [count for count in self.tried if any(first <= count <= last for first, last in self.spans)]
            others = [count for count in self.tried if count not in pay]
            rest = f", not with {enumerate_words(others)}" if pay and others else ""
            return f"with {enumerate_words(pay) if pay else f'none of {enumerate_words(others)}'} workers{rest}"
        if not self.spans:
            return f"nowhere from a batch of {self.lowest} to {self.highest}"
        if self.spans == ((self.lowest, self.highest),):
            return f"everywhere from a batch of {self.lowest} to {self.highest}"
        return " and ".join(self._span_text(first, last) for first, last in self.spans)

    def _span_text(self, first: int, last: int) -> str:
        if first == self.lowest:
            return f"up to a batch of {last}"
        return f"from a batch of {first} on" if last == self.highest else f"from a batch of {first} to {last}"


@dataclass(frozen=True, slots=True)
class Alternative:
    """The same reducers, on the largest number of workers, on a cluster that differs."""

    more_json: ClassVar[tuple[str, ...]] = ("batch?",)

    name: str  # How: ``without faults``, or the overrides
    overrides: tuple[str, ...]  # All overrides of the topology there
    decision: str  # The decision of its verdict
    best: str  # Option string of what to use there; ``dense`` where nothing is to be compressed
    # By reducer, the compared time: of the communication phase or, where compute was given, of the iteration
    time_s: dict[str, float]
    batch: int | None = None  # The mini-batch of this run, where one there has another by default


@dataclass(frozen=True, slots=True)
class Flip:
    """A constant of the hardware that is only estimated, and with which the choice were another one."""

    constant: str  # Field of the GPU's description
    # value, taken: the value with which it flips, within what is plausible, and the one that was taken
    value: str
    taken: str
    best: str  # Option string of the choice then; ``dense`` where it were not to compress


@dataclass(frozen=True, slots=True)
class Verdict(JsonForm):
    """The answer for one number of workers, and what it rests on."""

    more_json: ClassVar[tuple[str, ...]] = ("probability?", "pays_over?")

    workers: int  # Ranks
    decision: str  # Undecided: what is gained is less than the model can err
    lines: tuple[str, ...]  # What to do; how much it gains, on what; what would change it
    text: str  # All of it in one
    best: str  # Option string of what to use first; ``dense`` where nothing is to be compressed
    assumes: str | None  # On what that rests beside what is simulated
    without_assumption: str | None  # Option string of the best that does not, where the best rests on something
    best_exact: str  # Option string of the fastest exact reducer, which may be dense
    best_lossy: str | None  # Option string of the lossy one to use if its error is acceptable
    flips: tuple[Flip, ...]  # Estimated constants that decide
    pays: dict[str, str]  # At which rates each reducer that was looked at is faster than dense, in words
    break_even: tuple[Crossing, ...]  # Every crossing found in the scanned range
    bottleneck: str  # What dense waits for
    # Probability that ``best`` is first, by what predicted times are off by; None where no measured constants made them
    probability: float | None = None
    best_summary: str = ""  # What ``best`` does, in a line
    # How sure that is, in words; empty where no measured constants made it
    sureness: str = field(default="", compare=False, metadata=LEFT_OUT)
    # With which numbers of workers and which mini-batches reducers pay, where whole iterations were compared
    pays_over: tuple[CountPays, ...] = ()
