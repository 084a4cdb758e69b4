"""A regime map as a value: which gradients, clusters and reducers it spans, and its JSON form."""

from __future__ import annotations

from dataclasses import dataclass

from s2sim.errors import OptionError
from s2sim.gradients.traces.synthetic import SyntheticOptions
from s2sim.study.json_form import JsonForm
from s2sim.study.spec import BASELINES, PREFETCH

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

_OPTIONS = {"densities": "--density", "overlaps": "--overlap", "rates": "--rate", "latencies": "--latency"}

# The fields of the topology that the map varies.
RATE_FIELD, LATENCY_FIELD = "nic.rate", "nic.latency"


def default_reducers(max_error: float = MAX_ERROR, *, prefetch: bool = False) -> tuple[str, ...]:
    """Return the option strings that are compared unless others are asked for.

    >>> default_reducers(0.05, prefetch=True)[-2:]
    ('s2:error=0.05,warm=true', 'union:prefetch=true')
    """
    texts = tuple(text.format(max_error=max_error) for text in _DEFAULTS)
    return (*texts, PREFETCH) if prefetch else texts


@dataclass(frozen=True, slots=True)
class RegimeSpec(JsonForm):
    """What `s2sim.study.regimes.run.run_regimes` computes: every density with every overlap, rate and latency.

    Attributes
    ----------
    topology : str
        Name of a shipped topology or path of a TOML file.
    densities, overlaps : tuple of float
        Of the synthetic gradients, see `s2sim.gradients.traces.synthetic.SyntheticOptions`.
    rates, latencies : tuple of str
        Of one network interface, with their units; a way between two nodes goes through two interfaces.
    reducers : tuple of str
        Option strings, ``dense`` among them.
    tail : str
        ``"gaussian"``, or the exponent of a power law.
    rows, width : int
        Shape of the gradient, of one row-sparse layer.
    overrides : tuple of str
        ``field=value`` on other fields of the topology.
    library, gpu : str or None
        Option string of a communication library, and a GPU by name or path; None for the topology's.
    max_error : float
        A lossy reducer with a larger relative L2 error wins nothing.
    """

    topology: str
    workers: int
    densities: tuple[float, ...] = DENSITIES
    overlaps: tuple[float, ...] = OVERLAPS
    rates: tuple[str, ...] = RATES
    latencies: tuple[str, ...] = LATENCIES
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
                f"--max-error {self.max_error} must lie between 0 and 1: an error of 1 or more never wins"
            )
        if self.seed < 0:
            raise OptionError(f"--seed {self.seed} must not be negative")
        for field, option in _OPTIONS.items():
            if not getattr(self, field):
                raise OptionError(f"{option} was given no value: give one or several, separated by commas")
        for override in self.overrides:
            field = override.partition("=")[0].strip()
            if field in (RATE_FIELD, LATENCY_FIELD):
                option = "--rate" if field == RATE_FIELD else "--latency"
                raise OptionError(f"--set {override} is what the map varies: give its values by {option}")
        if DENSE not in self.reducers:
            raise OptionError(f"dense, which the others are compared with, is missing from {', '.join(self.reducers)}")

    def gradients(self, density: float, overlap: float) -> SyntheticOptions:
        """Return what the gradients of one density and overlap look like: a step, and one to carry sizes over from."""
        return SyntheticOptions(
            density=density, overlap=overlap, tail=self.tail, rows=self.rows, width=self.width, steps=2
        )

    def network(self, rate: str, latency: str) -> tuple[str, ...]:
        """Return the overrides of the topology for one rate and latency, as `s2sim run --set` takes them."""
        return (*self.overrides, f"{RATE_FIELD}={rate}", f"{LATENCY_FIELD}={latency}")

    @property
    def cells(self) -> int:
        """Number of combinations."""
        return len(self.densities) * len(self.overlaps) * len(self.rates) * len(self.latencies)
