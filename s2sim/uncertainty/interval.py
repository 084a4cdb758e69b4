"""The distribution of measured times around predicted ones, from the errors of sources that were left out of the fit.

Of one collective it is that of ln(measured/predicted) over all points. A point is weighted by the similarity of its
GPU, network, collective, launch and size to those of the prediction, and each source equally. What collectives of one
machine are off by together follows from points of one source: the correlation of their normal scores falls off
exponentially with the octaves between sizes, and is lower between kinds. Draws of it are the same for all reducers of a
run, and give both the intervals of times and the probability of an answer.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from s2sim.arrays import Floats, Mask
from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile
from s2sim.errors import S2SimError
from s2sim.files import data_directory, read_text, validated
from s2sim.libraries.nccl import NcclProfile
from s2sim.seeds import named_generator
from s2sim.topology.cluster import Cluster
from s2sim.units import format_seconds


@dataclass(frozen=True, slots=True)
class Band:
    """Where nine of ten measured times lie that were predicted as one.

    ``of`` says which errors it is made of.
    """

    low_s: float
    high_s: float
    of: str


# Ends that differ by more are told apart by two digits.
_WIDE = 1.1


def format_interval(low_s: float, time_s: float, high_s: float) -> str:
    """Return the ends of a time's band for reading, in three digits where two are the same or leave the time outside.

    One end, where these are the same too.

    >>> format_interval(0.0036123, 0.004, 0.0049), format_interval(0.00065, 0.0007, 0.0011)
    ('3.6 to 4.9 ms', '650 us to 1.1 ms')
    >>> format_interval(0.2178, 0.218, 0.2192), format_interval(0.1378, 0.1379, 0.1907)
    ('218 to 219 ms', '138 to 190 ms')
    """
    digits = 2 if high_s > _WIDE * low_s else 3
    low_s, high_s = (
        float(f"{end:.{3 if sign * float(f'{end:.2g}') > sign * time_s else digits}g}")
        for end, sign in ((low_s, 1), (high_s, -1))
    )
    low, high = format_seconds(low_s), format_seconds(high_s)
    if low == high:
        return low
    number, _, unit = low.rpartition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


VERSION = 3

BETWEEN_KINDS = 0.4
"""What of the correlation of errors is left between two collectives of one source: .33 at sizes within 3 octaves."""

# What a point counts that has another GPU, network, collective or launch.
_DISTANCE_PER_FIELD = (0.25, 0.25, 0.5, 0.5)
# Powers of two between sizes that count e times less for each other.
_MAX_LOG_SIZE_DISTANCE = 3.0
_DRAWS = 400
# Octaves over which errors of one collective on one machine lose a factor e of their correlation: .86, .54, .29, .08
# are left after 1, 4, 8, 16.
_CORRELATED_OCTAVES = 6.4
_OCTAVES, _PER_OCTAVE = 48, 2
# Of so few sources the quantiles of 5 % and 95 % hold 87 % of what one of them measured that they have not seen.
_LOW, _HIGH = 0.04, 0.96


@dataclass(frozen=True, slots=True)
class CurveErrorSamples:
    """What one curve is off by without its source, ln(measured/predicted) of each size; ``alike``: of a `RunClass`."""

    id: str
    source: str
    alike: tuple[str, str, str, str]
    sizes_bytes: tuple[int, ...]
    errors: tuple[float, ...]
    doubtful: bool  # Whether its network may be slower than its row says, so that nothing is fitted to it


@dataclass(frozen=True)
class PredictionErrors:
    """What a bands file holds: errors of ``curves`` of sources that were left out one by one, and of doubtful ones."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    version: int
    made_by: str
    curves_sha256: str
    curves: tuple[CurveErrorSamples, ...]

    @property
    def sources(self) -> frozenset[str]:
        """Sources that it knows."""
        return frozenset(curve.source for curve in self.curves if not curve.doubtful)

    def around(self, run: "RunClass", size_bytes: float, without: Collection[str] = ()) -> tuple[float, float]:
        """Return the factors on a predicted time for its band of 90 %, at most and at least 1, without some sources."""
        low, high = interval_of(self.factors(run, size_bytes, without))
        return min(low, 1.0), max(high, 1.0)

    def factors(self, run: "RunClass", size_bytes: float, without: Collection[str] = ()) -> Floats:
        """Return the factor on a predicted time in each draw, float64 (draws,); draws are of the same machines."""
        source, alike, log_size, error, doubtful = self._points
        kept = np.flatnonzero(~np.isin(source, list(without)) & (bool(run.assumed) | ~doubtful))
        octave = np.log2(max(size_bytes, 1))
        weights = np.exp(-np.abs(log_size[kept] - octave) / _MAX_LOG_SIZE_DISTANCE)
        for column, unlike in enumerate(_DISTANCE_PER_FIELD):
            weights *= np.where(alike[kept, column] == run[column], 1.0, unlike)
        voices, voice = np.unique(source[kept], return_inverse=True)
        most = np.zeros(len(voices))
        np.maximum.at(most, voice, weights)
        weights *= (most / np.bincount(voice, weights))[voice]
        order = np.argsort(error[kept], kind="stable")
        passed = np.cumsum(weights[order])
        middle = (passed - weights[order] / 2) / passed[-1]
        place = min(round(octave * _PER_OCTAVE), _OCTAVES * _PER_OCTAVE - 1)
        drawn: Floats = np.exp(np.interp(_uniform_draws(run.collective)[place], middle, error[kept][order]))
        return drawn

    @cached_property
    def _points(self) -> tuple[Mask, Mask, Floats, Floats, Mask]:
        """Sources, classes (points, 4), logarithms of sizes, errors and doubts of the points of all curves."""
        lengths = [len(curve.errors) for curve in self.curves]
        return (
            np.repeat([curve.source for curve in self.curves], lengths),
            np.repeat([curve.alike for curve in self.curves], lengths, axis=0),
            np.log2(np.concatenate([curve.sizes_bytes for curve in self.curves])),
            np.concatenate([curve.errors for curve in self.curves]),
            np.repeat([curve.doubtful for curve in self.curves], lengths),
        )


def interval_of(draws: Floats) -> tuple[float, float]:
    """Return the ends between which nine of ten measured times lie, of draws of what is predicted."""
    low, high = np.quantile(draws, (_LOW, _HIGH), method="hazen")
    return float(low), float(high)


@cache
def _uniform_draws(collective: str) -> Floats:
    """Return ranks of draws by size, float64 of shape (octaves, draws): of each size evenly spread from 0 to 1."""
    step = np.exp(-1 / (_CORRELATED_OCTAVES * _PER_OCTAVE))
    scores = np.zeros((_OCTAVES * _PER_OCTAVE, _DRAWS))
    for name, share in (("all", BETWEEN_KINDS), (collective, 1 - BETWEEN_KINDS)):
        path = named_generator(0, "errors", name).standard_normal(scores.shape)
        for place in range(1, len(path)):
            path[place] = step * path[place - 1] + np.sqrt(1 - step**2) * path[place]
        scores += np.sqrt(share) * path
    return (scores.argsort(axis=1).argsort(axis=1) + 0.5) / _DRAWS


def error_model_path() -> Path:
    """Return where the shipped bands are."""
    return data_directory("libraries") / "fits" / "bands.json"


@cache
def shipped_error_model() -> PredictionErrors:
    """Return the bands that travel with the program."""
    path = error_model_path()
    refusal = f"{path.name}, which s2sim dev validate --write makes, is no error model"
    found = validated(PredictionErrors, read_text(path).encode(), refusal, most=1)
    if found.version != VERSION:
        raise S2SimError(f"{path.name} has version {found.version}, not {VERSION}: run s2sim dev validate --write")
    return found


_NO_VALUE = "none"


class RunClass(NamedTuple):
    """The class of a collective: names of the catalogue or ``none``, its kind, and a process a ``gpu`` or ``node``."""

    gpu: str
    network: str
    collective: str
    launch: str
    assumed: tuple[str, ...] = ()  # Fields of interfaces between nodes; doubtful curves count with some


def run_class(cluster: Cluster, profile: LibraryProfile, kind: str) -> RunClass | None:
    """Return the class of a collective that runs by a library's shipped constants; None for all others."""
    if profile == NO_OVERHEADS or (isinstance(profile, NcclProfile) and profile.own):
        return None
    several = cluster.nodes_used > 1
    transport = cluster.layout.node_set.specs[0].transport
    launch = "node" if isinstance(profile, NcclProfile) and profile.one_process else "gpu"
    assumed = tuple(each for each in cluster.assumed_fields if each.startswith("nic."))
    network = transport or _NO_VALUE if several else _NO_VALUE
    return RunClass(cluster.shape.gpu or _NO_VALUE, network, kind, launch, assumed)


@cache
def shipped_factors(run: RunClass, size_bytes: float) -> Floats:
    """Return `PredictionErrors.factors` of the shipped errors."""
    return shipped_error_model().factors(run, size_bytes)


def errors_known(profile: LibraryProfile) -> bool:
    """Return whether the errors of measured curves are a library's: nothing is fitted to curves of those of hosts."""
    return isinstance(profile, NcclProfile)


def band_of_draws(time_s: float, draws_s: Floats, assumed: Collection[str] = (), least_s: float = 0.0) -> Band:
    """Return the band of a predicted time, which it contains, from draws of the time by the shipped errors.

    ``assumed``: fields for which doubtful curves counted, as in `RunClass`; ``least_s``: a bound of the time.
    """
    bands = shipped_error_model()
    low_s, high_s = interval_of(draws_s)
    fitted = sum(not curve.doubtful for curve in bands.curves)
    of = f"errors of {fitted} measured curves of {len(bands.sources)} sources that were left out of the fit"
    if assumed:
        of += f", and of {len(bands.curves) - fitted} doubtful ones, as {' and '.join(assumed)} is assumed"
    return Band(min(max(low_s, least_s), time_s), max(high_s, time_s), of)


def interval_at(
    time_s: float, cluster: Cluster, profile: LibraryProfile, kind: str, size_bytes: float, least_s: float = 0.0
) -> Band | None:
    """Return the band around the time of a collective; None where no library's measured constants made that."""
    run = run_class(cluster, profile, kind)
    if run is None or not errors_known(profile):
        return None
    return band_of_draws(time_s, time_s * shipped_factors(run, size_bytes), run.assumed, least_s)
