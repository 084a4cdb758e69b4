"""A regime map: cells with the time, bytes and error of every reducer, and the winner."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from s2sim.errors import OptionError
from s2sim.experiment import cluster_spec
from s2sim.experiment.json_form import JsonForm, ResultForm, left_out
from s2sim.experiment.spec import BASELINES, PREFETCH
from s2sim.units import PS_PER_S

DENSE = "dense"

# Reducers that carry a size over stand as they run in all steps but the first; exact S2 as in its first step too.
_DEFAULTS = (
    DENSE,
    "fp16",
    "topk:density=0.01",
    *BASELINES,
    "s2-exact",
    "s2-exact:warm=true",
    "s2:error={max_error:g},warm=true",
)

DENSITIES = (0.001, 0.01, 0.05, 0.2)
OVERLAPS = (0.0, 0.5, 1.0)
RATES = ("1Gbps", "10Gbps", "100Gbps", "400Gbps")
LATENCIES = ("1us", "10us", "50us")
MAX_ERROR = 0.1
ROWS, WIDTH = 37500, 16

# The fields of the topology that the map varies.
RATE_FIELD, LATENCY_FIELD = "nic.rate", "nic.latency"
_VARIED = {RATE_FIELD: "--rate", LATENCY_FIELD: "--latency"}


def default_reducers(max_error: float = MAX_ERROR, *, prefetch: bool = False) -> tuple[str, ...]:
    """Return the option strings that are compared by default.

    >>> default_reducers(0.05, prefetch=True)[-2:]
    ('s2:error=0.05,warm=true', 'union:prefetch=true')
    """
    texts = tuple(text.format(max_error=max_error) for text in _DEFAULTS)
    return (*texts, PREFETCH) if prefetch else texts


def _axis(flag: str, values: tuple[Any, ...], example: str) -> Any:
    """Return the field of an axis: numbers, or texts with units, between commas."""
    parse = cluster_spec.parse_list if isinstance(values[0], str) else cluster_spec.parse_numbers
    return cluster_spec.parsed(partial(parse, flag, example), values)


@cluster_spec.document_options
@dataclass(frozen=True, slots=True)
class RegimeSpec(JsonForm):
    """What `s2sim.regimes.run.run_regimes` computes: every density with every overlap, rate and latency."""

    topology: str
    workers: int = cluster_spec.parsed(cluster_spec.parse_workers)
    densities: tuple[float, ...] = _axis("--density", DENSITIES, "0.01,0.1")
    overlaps: tuple[float, ...] = _axis("--overlap", OVERLAPS, "0,0.5")
    rates: tuple[str, ...] = _axis("--rate", RATES, "1Gbps,100Gbps")
    latencies: tuple[str, ...] = _axis("--latency", LATENCIES, "1us,50us")
    reducers: tuple[str, ...] = default_reducers()
    tail: str = "gaussian"
    rows: int = ROWS
    width: int = WIDTH
    overrides: tuple[str, ...] = ()
    library: str | None = None
    gpu: str | None = None
    max_error: float = MAX_ERROR
    seed: int = 0

    def __post_init__(self) -> None:
        if self.workers < 2:
            raise OptionError(f"--workers {self.workers}: a regime map needs at least 2 that exchange")
        if not 0 < self.max_error < 1:
            raise OptionError(
                f"--max-error {self.max_error} must lie above 0 and below 1: an error of 1 or more never wins"
            )
        if self.seed < 0:
            raise OptionError(f"--seed {self.seed} must not be negative")
        flags = {"densities": "--density", "overlaps": "--overlap", "rates": "--rate", "latencies": "--latency"}
        for name, flag in flags.items():
            if not getattr(self, name):
                raise OptionError(f"{flag} was given no value: give one or several, separated by commas")
        for override in self.overrides:
            if varied := _VARIED.get(cluster_spec.overridden_field(override)):
                raise OptionError(f"--set {override} is what the map varies: give its values by {varied}")
        if DENSE not in self.reducers:
            raise OptionError(f"dense, which the others are compared with, is missing from {', '.join(self.reducers)}")

    def network(self, rate: str, latency: str) -> tuple[str, ...]:
        """Return the overrides of the topology for one rate and latency, as `s2sim run --set` takes them."""
        return (*self.overrides, f"{RATE_FIELD}={rate}", f"{LATENCY_FIELD}={latency}")

    @property
    def cells(self) -> int:
        """Number of combinations."""
        return len(self.densities) * len(self.overlaps) * len(self.rates) * len(self.latencies)


# Models of this kind cannot tell times apart that differ by less.
_TIE_MARGIN = 1.01


@dataclass(frozen=True, slots=True)
class Contender(JsonForm):
    """One reducer in one cell."""

    more_json: ClassVar[tuple[str, ...]] = ("total_s",)

    reducer: str
    # Communication phase of the slowest rank, in picoseconds
    total_ps: int = field(metadata=left_out(lambda row: round(row["total_s"] * PS_PER_S)))
    error_relative_l2: float | None  # Of the whole aggregate against the exact mean; None where that is zero
    bytes_sent_per_rank: int  # Most bytes that a rank sends, by ring algorithms
    acceptable: bool  # Whether the error allows it to win

    @property
    def total_s(self) -> float:
        """The same time in seconds."""
        return self.total_ps / PS_PER_S


@dataclass(frozen=True, slots=True)
class Cell(JsonForm):
    """One density and overlap of the gradients, rate and latency of a network interface.

    ``reducers`` stand in the order of those that were asked for, ``dense`` among them; those that refuse these
    gradients are missing.
    """

    more_json: ClassVar[tuple[str, ...]] = ("winner", "ties", "runner_up", "margin", "speedup_vs_dense")

    density: float
    overlap: float
    rate_Bps: float
    latency_s: float
    reducers: tuple[Contender, ...]

    @property
    def ranking(self) -> tuple[Contender, ...]:
        """Those whose error is acceptable, the fastest first; of equals ``dense``, then as they were asked for."""
        allowed = (each for each in self.reducers if each.acceptable)
        return tuple(sorted(allowed, key=lambda each: (each.total_ps, each.reducer != DENSE)))

    @property
    def fastest(self) -> Contender:
        """The fastest with an acceptable error."""
        return self.ranking[0]

    @property
    def winner(self) -> str:
        """Option string of the fastest."""
        return self.fastest.reducer

    @property
    def runner_up(self) -> str | None:
        """Option string of the second; None where nothing else is acceptable."""
        return self.ranking[1].reducer if len(self.ranking) > 1 else None

    @property
    def ties(self) -> tuple[str, ...]:
        """Option strings of those that take less than 1 % longer than the winner."""
        first, *others = self.ranking
        return tuple(each.reducer for each in others if each.total_ps < _TIE_MARGIN * first.total_ps)

    @property
    def compress(self) -> bool:
        """Whether anything gains 1 % or more over dense."""
        return DENSE not in (self.winner, *self.ties)

    @property
    def margin(self) -> float | None:
        """By which share the runner-up takes longer than the winner."""
        return self.slower(self.ranking[1]) - 1 if len(self.ranking) > 1 else None

    @property
    def speedup_vs_dense(self) -> float:
        """The winner's over dense."""
        return self.slower(next(each for each in self.reducers if each.reducer == DENSE))

    def slower(self, contender: Contender) -> float:
        """Return how many times as long as the winner a contender takes."""
        return contender.total_ps / self.fastest.total_ps


@dataclass(frozen=True, slots=True)
class Wins:
    """How many cells a reducer wins."""

    cells: int  # With the constants of the GPU as they were taken
    # least, most: With each choice of the ends of what those may be that are only estimated, and as taken.
    least: int
    most: int


@dataclass(frozen=True, slots=True, repr=False)
class RegimeMap(ResultForm):
    """What `s2sim.regimes.run.run_regimes` returns."""

    more_json: ClassVar[tuple[str, ...]] = ("complete",)

    spec: RegimeSpec
    cluster: str  # The cluster and the gradient in one line
    # By density, overlap, rate and latency, the last changing fastest; fewer than asked for after an interruption
    cells: tuple[Cell, ...]
    wins: dict[str, Wins]  # How many cells each reducer wins
    summary: str  # Who wins where, in words
    notes: tuple[str, ...]  # What a reader must know to read the map rightly
    provenance: dict[str, Any]  # The run record

    @property
    def complete(self) -> bool:
        """Whether no cell is missing."""
        return len(self.cells) == self.spec.cells
