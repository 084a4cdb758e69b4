"""Result rows: plain values that reports are functions of."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from s2sim.experiment import row_parts
from s2sim.experiment.json_form import INLINE, LEFT_OUT, JsonForm, MayBeInfinite, ResultForm
from s2sim.experiment.progress import INTERRUPTED_NOTE
from s2sim.experiment.record import Gradients
from s2sim.experiment.scenario.recorded import RecordedComparison
from s2sim.experiment.spec import RunSpec
from s2sim.topology.shape import HourlyCost
from s2sim.uncertainty.interval import Band

ROUNDING_ERROR = 1e-6
"""A relative L2 error up to this is what float32 rounds, whatever the reducer."""

_ROUGH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(JsonForm):
    """One reducer on one number of workers."""

    more_json: ClassVar[tuple[str, ...]] = (
        "band?",
        "recorded_error?",
        "option_string",
        "iteration_s",
        "error",
        "error_compressed",
        "error_largest",
        "error_compressed_largest",
        "error_worst_layer",
        "error_range",
        "error_per_layer",
    )

    # name, reducer: name of the system that runs, and the option string of the reducer
    name: str
    reducer: str
    options: dict[str, Any]  # Every option with its value
    workers: int  # Ranks
    baseline: bool  # Whether it is the ``dense`` that the others are compared with
    lossless: bool  # Whether the aggregate is exact but for rounding
    agrees: bool  # Whether all ranks end with the same; where they do not, errors are those of the worst
    # RMS over ranks of the distance of what each ends with to their average, over its L2 norm; None where
    # undefined
    consensus_distance: float | None
    estimates: str  # What ranks end with: the mean gradient, its signs, or the mean of models that have drifted apart
    feedback: str = "no"  # Whether training needs error feedback around it: ``no``, ``needed``, or ``own`` if it has it
    # Steps over which times and bytes are means; most reducers do the same in every one. Rounds, host
    # synchronisations, ``collectives`` and ``lowering`` are those of all these steps together.
    period: int
    time_s: row_parts.Times = field(metadata=INLINE)  # Seconds of the slowest rank
    # encode_work_s, decode_work_s: all of its GPU work, what hides behind communication or compute included
    encode_work_s: float
    decode_work_s: float
    # bytes_sent_per_rank, bytes_received_per_rank: largest over ranks
    bytes_sent_per_rank: int
    bytes_received_per_rank: int
    payload_bytes_per_rank: int  # What a rank hands to its collectives, whatever these make of it; largest over ranks
    ratio: float | None  # Dense bytes sent over bytes sent
    # error, error_compressed: of all layers, and of those that do not travel as plain float32
    error: row_parts.Distance
    error_compressed: row_parts.Distance
    # error_largest, error_compressed_largest: largest error of an element, as a share of the exact mean's L2
    # norm; None where undefined
    error_largest: float | None
    error_compressed_largest: float | None
    error_per_layer: dict[str, row_parts.Distance]  # By layer name
    error_bound: row_parts.BoundRow | None  # What theory says of the error of an element, where something is known
    # rounds, rounds_before_gradient: messages that wait for one another: once the gradient is there, and before
    rounds: int
    rounds_before_gradient: int
    # host_syncs, host_syncs_ideal, host_syncs_real: times that the host waits for the GPU: with the library
    # asked for, if all ran as asked, with ``real_library``
    host_syncs: int
    host_syncs_ideal: int
    host_syncs_real: int
    lower_bound_s: float  # No communication is faster
    lower_bound_why: str  # The cut or partition that forces it
    speedup_vs_dense: MayBeInfinite  # Ratio of totals, or of iterations where compute was given
    # In the order in which they were posted; those that several groups of ranks post alike are one
    collectives: tuple[row_parts.CollectiveRow, ...]
    bottleneck: str  # The phase and the link that the time goes to
    # What the communication library executes for each call, in the order in which they were posted; empty, and
    # the totals with other libraries None, where the run was not thorough
    lowering: tuple[row_parts.LoweringRow, ...]
    total_ideal_s: float | None  # Total if the library executed everything as asked, with what it adds to the wire
    order_gap_s: float | None  # Total less what it were if launches were grouped and overlapped as in the ideal library
    real_library: str  # The library that executed the collectives, or the topology's where that was the ideal one
    total_real_s: float | None  # Total with it
    bytes_sent_real_per_rank: int  # Largest over ranks, of ring algorithms, with it
    extrapolated: row_parts.Extrapolation | None = None  # How it goes beyond what was recorded, if it does
    # Successive steps, lossy reducers with error feedback; empty unless they were asked for
    steps: tuple[row_parts.StepRow, ...] = ()
    residual_trend: str | None = None  # Where residuals go over these steps; None without residuals
    assumes: str | None = None  # What its time rests on beside what is simulated
    # Where nine of ten measured times lie that were predicted as the compared one, where measured constants made it;
    # that is the iteration where there is one, else the total
    band: Band | None = None
    # By which share a prediction of the recorded job is off that its time follows from, if one does
    recorded_error: float | None = None
    # By how many seconds it were longer in each draw of what predictions are off by; not in JSON
    band_draws_s: tuple[float, ...] = field(default=(), compare=False, metadata=LEFT_OUT)
    iteration: row_parts.IterationRow | None = None  # Where the time of an iteration went, where one was simulated
    # What is thought of it beside the others; None as long as there are no others
    judgement: row_parts.Judgement | None = None

    @property
    def option_string(self) -> str:
        """``reducer``, under its name in earlier versions."""
        return self.reducer

    @property
    def iteration_s(self) -> float | None:
        """``time_s.iteration``, under its name in earlier versions."""
        return self.time_s.iteration

    @property
    def judged(self) -> row_parts.Judgement:
        """The judgement of a row of a result, all of which have one."""
        assert self.judgement is not None
        return self.judgement

    @property
    def error_worst_layer(self) -> row_parts.WorstLayer:
        """Name of the layer whose aggregate is furthest off, of those where that is defined, and its relative error."""
        defined = {name: error.relative_l2 for name, error in self.error_per_layer.items()}
        known = {name: error for name, error in defined.items() if error is not None}
        return row_parts.WorstLayer(*max(known.items(), key=lambda item: item[1], default=(None, None)))

    @property
    def error_range(self) -> tuple[float, float] | None:
        """Between what the relative L2 error lies, where it is extrapolated and may be off by a factor of 2 or more."""
        transfers = () if self.extrapolated is None else self.extrapolated.transfer
        factor = row_parts.worst_factor(item.error_l2 for item in transfers if item.error_l2 is not None)
        error = self.error.relative_l2
        return None if error is None or self.exact or factor < _ROUGH else (error / factor, error * factor)

    def columns(self) -> dict[str, Any]:
        """Return the figures of a table's row; seconds, bytes and ratios, units in their names."""
        judgement = self.judgement
        return {
            "workers": self.workers,
            "reducer": self.reducer,
            "total_s": self.time_s.total,
            "iteration_s": self.time_s.iteration,
            "speedup_vs_dense": self.speedup_vs_dense,
            "relative_l2": self.error.relative_l2,
            "bytes_sent_per_rank": self.bytes_sent_per_rank,
            "encode_s": self.time_s.encode,
            "communication_s": self.time_s.communication,
            "decode_s": self.time_s.decode,
            "lower_bound_s": self.lower_bound_s,
            "ratio": self.ratio,
            "rounds": self.rounds,
            "host_syncs": self.host_syncs,
            "exact": self.exact,
            "extrapolated": self.extrapolated is not None,
            "rule": None if judgement is None else judgement.rule,
        }

    @property
    def exact(self) -> bool:
        """Whether ranks end with the mean but for rounding: an error that float32 sums have too."""
        small = self.error.relative_l2 is not None and self.error.relative_l2 <= ROUNDING_ERROR
        return self.lossless or (small and self.estimates == "mean")


@dataclass(frozen=True, slots=True, repr=False)
class Result(ResultForm):
    """What `s2sim.run` returns."""

    more_json: ClassVar[tuple[str, ...]] = ("prices?", "recorded?")

    spec: RunSpec  # What was computed
    cluster: str  # The cluster in one line
    gradients: Gradients  # Whose gradients were reduced, how large and how sparse
    # library, gpu: option string of the library that executed the collectives, and name of the GPU that encoded and
    # decoded
    library: str
    gpu: str
    machines: str  # Both in words, and who chose them
    provenance: dict[str, Any]  # The run record
    results: tuple[Row, ...]  # One a reducer and number of workers
    verdict: row_parts.Verdict  # For the largest number of workers
    verdicts: tuple[row_parts.Verdict, ...] = ()  # One a number of workers; break-even was looked for with the largest
    # The same reducers on the cluster without its faults, and on other hardware, where there were any
    alternatives: tuple[row_parts.Alternative, ...] = ()
    refused: tuple[row_parts.Refused, ...] = ()  # What was asked for together with others, and did not run
    notes: tuple[str, ...] = ()  # What a reader must know to read the numbers rightly
    caveats: tuple[str, ...] = ()  # Those of them without which the verdict would mislead
    recorded: RecordedComparison | None = None  # A recorded job on its own network, as measured and as predicted
    prices: tuple[HourlyCost, ...] = ()  # One a number of workers, where the topology states a price

    @property
    def rows(self) -> tuple[Row, ...]:
        """``results``, under its name in earlier versions."""
        return self.results

    @property
    def interrupted(self) -> bool:
        """Whether somebody did not want to wait for all of it."""
        return INTERRUPTED_NOTE in self.notes
