"""What a collective takes in simulation beside what a log measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from s2sim.study.result_form import ResultForm

if TYPE_CHECKING:
    from s2sim.study.collective.spec import CollectiveSpec

LARGE_BYTES = 2**20
"""From here on rates decide more than latencies do."""


@dataclass(frozen=True, slots=True)
class LogTable:
    """A table of the log, and what the log says of it; None and nothing where it does not.

    Attributes
    ----------
    line : int
        Where its header stands, from 1 on.
    hosts : int
        Hosts that are listed.
    gpus : tuple of str
        Names of GPUs that are listed, each once.
    library : str or None
        Which one ran, with its version.
    channels : int or None
        Channels that it has for collectives.
    rings, trees : int
        Channels whose ring or tree is told from end to end.
    transports : tuple of str
        What ranks are connected by, in the library's words.
    """

    line: int
    collective: str | None
    ranks: int | None
    hosts: int
    gpus: tuple[str, ...]
    library: str | None
    channels: int | None
    rings: int
    trees: int
    transports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TermDifference:
    """A term of one row.

    Attributes
    ----------
    kind, of : str
        Of which constant or class of link, as in `TermScale`.
    simulated_s : float
        What it takes in simulation.
    difference_s : float
        What of simulated minus measured time it stands for.
    """

    kind: str
    of: str
    simulated_s: float
    difference_s: float


@dataclass(frozen=True, slots=True)
class TermScale:
    """A term over all rows, and how long it takes as measured.

    Attributes
    ----------
    kind, of : str
        Of which constant or class of link; all latencies of wires are one.
    scale : float
        Measured over simulated, with a pull towards 1; 1 where rows do not tell.
    told_with : int
        Number of the first term of this list with which it goes up and down over all rows, so that both have one scale;
        its own where it is told alone.
    explains : float
        Sum over rows of what it stands for, over that of all differences, either without sign.
    """

    kind: str
    of: str
    scale: float
    told_with: int
    explains: float


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One row of the log beside its simulation.

    Attributes
    ----------
    line : int
        Where it stands in the log, from 1 on.
    size_bytes : int
        As nccl-tests counts it.
    measured_busbw_Bps, simulated_busbw_Bps : float
        Size over time, times the factor by which links see it.
    ratio : float
        Simulated over measured time.
    log_error : float
        Natural logarithm of that: above 0 the simulation is too slow.
    algorithm : str
        By which it was simulated.
    measured_algorithm, measured_protocol : str or None
        By which it ran, where the log has the library's word for it.
    protocol : str
        With which it was simulated, empty where there is only one.
    difference_s : float
        Simulated minus measured time: the sum of what its terms stand for and of what none explains.
    not_explained_s : float
        What no term explains, positive or negative.
    terms : tuple of TermDifference
        Those that take time; none where something else than the schedule decides how long it takes.
    """

    line: int
    size_bytes: int
    measured_s: float
    simulated_s: float
    measured_busbw_Bps: float
    simulated_busbw_Bps: float
    ratio: float
    log_error: float
    algorithm: str
    measured_algorithm: str | None
    measured_protocol: str | None
    protocol: str
    difference_s: float
    not_explained_s: float
    terms: tuple[TermDifference, ...]


@dataclass(frozen=True, slots=True, repr=False)
class AgainstResult(ResultForm):
    """What ``s2sim collective --against`` finds.

    Attributes
    ----------
    spec : CollectiveSpec
        What was simulated, at the largest size of the log.
    log : str
        Path of the log.
    tables : tuple of LogTable
        Its tables that were compared.
    rows : tuple of ComparedRow
        In the order of the log.
    median_abs_log_error_large, median_abs_log_error_small : float or None
        Median of ``|log_error|`` over rows from 1 MiB on, and below; None where there are none.
    signed_log_error_large, signed_log_error_small : float or None
        Median of ``log_error`` over the same rows.
    terms : tuple of TermScale
        What the simulated times are the sum of, and how long each takes as measured.
    notes : tuple of str
        What else to know, and what was left out.
    """

    answers: ClassVar[str] = "against"

    spec: CollectiveSpec
    cluster: str
    kind: str
    workers: int
    log: str
    tables: tuple[LogTable, ...]
    rows: tuple[ComparedRow, ...]
    median_abs_log_error_large: float | None
    median_abs_log_error_small: float | None
    signed_log_error_large: float | None
    signed_log_error_small: float | None
    terms: tuple[TermScale, ...]
    notes: tuple[str, ...]
