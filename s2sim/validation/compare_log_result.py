"""Simulated times beside a log's, and the terms that explain them: collinear ones share a scale, pulled towards 1."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import fsum
from statistics import median
from typing import Any

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.collectives import Kind
from s2sim.collectives.schedules.demand import make_demand
from s2sim.collectives.timing.bounds import lower_bound
from s2sim.collectives.timing.terms import WIRE_LATENCY, Term
from s2sim.collectives.timing.timer import AUTO
from s2sim.experiment.json_form import ResultForm
from s2sim.topology.cluster import Cluster
from s2sim.topology.hardware import find_gpu_name
from s2sim.traffic.log_table import MeasuredTable
from s2sim.traffic.size_sweep import launches_by_node
from s2sim.traffic.spec import CollectiveSpec
from s2sim.units import PS_PER_S, format_bytes, format_number_of, format_seconds, plural
from s2sim.validation.node_files import names

ALGORITHMS: dict[str, str] = names()["logged"]
"""What s2sim calls the algorithms of a log."""

LARGE_BYTES = 2**20
"""From here on rates decide more than latencies do."""

# Of names of GPUs: those that differ in the size of their memory alone have the same links.
_MEMORY = re.compile(r"-\d+gb$")
# Links of the catalogue have been measured to carry 2 % more than they are taken for.
_NOMINAL = 0.9
# A row is measured within a twentieth, and a term may well be half as long again.
_ROW_ERROR, _TERM_ERROR = 0.05, 0.5
_PASSES = 10
# Cosine of two terms over rows, in shares of the rows' times, from which on they share a scale.
_COLLINEAR = 0.995


def log_notes(
    spec: CollectiveSpec, tables: Sequence[MeasuredTable], cluster: Cluster, rows: "Sequence[ComparedRow]"
) -> Iterator[str]:
    """Yield a note for all that the log does not say, or says otherwise than it is simulated."""
    if spec.library is None:
        yield "simulated is the wire alone: --library nccl adds launches, hops and protocols"
    if not any(row.terms for row in rows):
        yield "no terms explain the difference: they are of the fluid network with nothing else in flight"
    pairs: Counter[tuple[str, str]] = Counter()
    for row in rows:
        ran, simulated = row.measured_algorithm, row.algorithm.partition(":")[0]
        if ran is not None and ALGORITHMS.get(ran) != simulated:
            pairs[ran, simulated] += 1
        if row.measured_protocol is not None and row.protocol not in ("", row.measured_protocol):
            pairs[row.measured_protocol, row.protocol] += 1
    why = "as it is not known, or cannot be here" if spec.algorithm == AUTO else "as asked"
    for (ran, simulated), count in pairs.items():
        rows_that = f"{format_number_of(count, 'row')} that {'was' if count == 1 else 'were'}"
        yield f"{rows_that} measured by {ran[:40]} {'is' if count == 1 else 'are'} simulated by {simulated}, {why}"
    compared = {row.line for row in rows}
    for table in tables:
        yield from contradictions(spec.kind, table, spec.workers, cluster)
        yield from table_notes(spec.kind, spec.workers, spec.library, table, cluster)
        if idle := [row.line for row in table.rows if row.line not in compared]:
            yield f"{_format_lines(idle)} left out: no bytes, or no time"


def contradictions(kind: Kind, table: MeasuredTable, workers: int, cluster: Cluster) -> Iterator[str]:
    """Yield in what a table cannot be of the first ``workers`` ranks of a cluster, and what to give."""
    where, nodes = f"the table at line {table.line} ran on", len(np.unique(cluster.host_of_rank[:workers]))
    if len(table.devices) == workers and table.hosts != nodes:
        ran, simulated = format_number_of(table.hosts, "host"), format_number_of(nodes, "node")
        gpus = max(Counter(device.host for device in table.devices).values())
        yield f"{where} {ran}, simulated are {simulated}: give --set node.gpus={gpus}"
    each_node = Counter(rank // cluster.shape.nodes[0].gpus for rank in table.members)
    if len(each_node) not in (0, nodes):
        of, gpus = format_number_of(len(each_node), "node"), max(each_node.values())
        numbers = f"ranks {', '.join(map(str, table.members[:4]))}{', ...' if len(table.members) > 4 else ''}"
        yield f"{where} {numbers} of a job, here in {of}, simulated are {nodes}: give --set node.gpus={gpus}"
    simulated_gpu = find_gpu_name(cluster.shape.gpu or "")
    for model in table.gpus:
        gpu = find_gpu_name(model)
        if gpu and simulated_gpu and _MEMORY.sub("", gpu) != _MEMORY.sub("", simulated_gpu):
            yield f"{where} {model[:40]}, simulated is {simulated_gpu}: give another --topology, or --set gpu={gpu}"
    if table.timed:
        row = max(table.timed, key=lambda row: row.size_bytes / row.time_s)
        # Switches may reduce.
        bound = lower_bound([make_demand(kind, row.size_bytes, workers)], cluster.cuts(), assisted=True)
        if row.time_s < _NOMINAL * bound.seconds:
            took, least = format_seconds(row.time_s), format_seconds(bound.seconds)
            yield (
                f"line {row.line} has {format_bytes(row.size_bytes)} in {took}, and the cluster takes {least} at least "
                f"({bound.derivation}): its times are in other units, or its links are faster"
            )


def table_notes(kind: Kind, workers: int, library: str | None, table: MeasuredTable, cluster: Cluster) -> Iterator[str]:
    """Yield a note for what a table lacks, and where its ranks do not go the ways of a cluster and library."""
    where = f"the table at line {table.line}"
    if table.collective is None:
        yield f"{where} names no collective and is taken for {kind}"
    if table.ranks is None:
        yield f"{where} does not say how many ranks ran and is taken for {workers}"
    if (table.gpus_per_thread or 1) > 1 and library is not None and not launches_by_node(library):
        yield f"{where} launched on {table.gpus_per_thread} GPUs from one thread: launch=node charges that"
    if wrong := [row.line for row in table.rows if row.wrong]:
        yield f"{_format_lines(wrong)} measured sums that came out wrong"
    if late := table.hiccups:
        yield f"{_format_lines(late)} took over 30 % longer than a larger message: dev calibrate fits nothing to that"
    if table.unfinished:
        yield f"{_format_lines(table.unfinished)} left out: no figures"
    node = cluster.layout.node_set.specs[0]
    sockets = any(name.startswith("NET/Socket") for name in table.transports)
    verbs = [name for name in table.transports if name.startswith("NET/IB")]
    if sockets and node.transport not in (None, "tcp"):
        yield f"nodes of the log are connected by sockets, those of the topology by {node.transport} (nic.transport)"
    if verbs and not any("GDRDMA" in name for name in verbs) and node.path != "staged":
        yield "nodes of the log are connected without GPUDirect: --set nic.path=staged charges the way by the host"
    if any(name.startswith("SHM") for name in table.transports) and node.peer_to_peer:
        yield "GPUs of a node of the log are connected over host memory: pcie.peer_to_peer says so of a topology"


def _format_lines(numbers: Sequence[int]) -> str:
    shown = [str(number) for number in numbers[:8]]
    more = len(numbers) - len(shown)
    return f"{plural(len(numbers), 'line')} {', '.join(shown)}{f' and {more} more' if more else ''}"


def median_log_errors(large: Sequence[bool], errors: Sequence[float]) -> dict[str, Any]:
    """Return the medians of errors and of their sizes, of large and of small messages, by the fields of results."""
    found: dict[str, float | None] = {}
    for size, wanted in (("large", True), ("small", False)):
        own = [error for is_large, error in zip(large, errors, strict=True) if is_large == wanted]
        found[f"median_abs_log_error_{size}"] = median(map(abs, own)) if own else None
        found[f"signed_log_error_{size}"] = median(own) if own else None
    return found


@dataclass(frozen=True, slots=True)
class LogTable:
    """A table of the log, and what the log says of it; None and nothing where it does not."""

    line: int  # Where its header stands, from 1 on
    collective: str | None
    ranks: int | None
    hosts: int  # Hosts that are listed
    gpus: tuple[str, ...]  # Names of GPUs that are listed, each once
    library: str | None  # Which one ran, with its version
    channels: int | None  # Channels that it has for collectives
    # rings, trees: channels whose ring or tree is told from end to end
    rings: int
    trees: int
    transports: tuple[str, ...]  # What ranks are connected by, in the library's words


@dataclass(frozen=True, slots=True)
class TermDifference:
    """A term of one row."""

    # kind, of: of which constant or class of link, as in `TermScale`
    kind: str
    of: str
    simulated_s: float  # What it takes in simulation
    difference_s: float  # What of simulated minus measured time it stands for


@dataclass(frozen=True, slots=True)
class TermScale:
    """A term over all rows, and how long it takes as measured."""

    # kind, of: of which constant or class of link; all latencies of wires are one
    kind: str
    of: str
    scale: float  # Measured over simulated, with a pull towards 1; 1 where rows do not tell
    # Number of the first term of this list with which it goes up and down over all rows, so that both have one scale;
    # its own where it is told alone
    told_with: int
    explains: float  # Sum over rows of what it stands for, over that of all differences, either without sign


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One row of the log beside its simulation."""

    line: int  # Where it stands in the log, from 1 on
    size_bytes: int  # As nccl-tests counts it
    measured_s: float
    simulated_s: float
    # measured_busbw_Bps, simulated_busbw_Bps: size over time, times the factor by which links see it
    measured_busbw_Bps: float
    simulated_busbw_Bps: float
    ratio: float  # Simulated over measured time
    log_error: float  # Natural logarithm of that: above 0 the simulation is too slow
    algorithm: str  # By which it was simulated
    # measured_algorithm, measured_protocol: by which it ran, where the log has the library's word for it
    measured_algorithm: str | None
    measured_protocol: str | None
    protocol: str  # With which it was simulated, empty where there is only one
    difference_s: float  # Simulated minus measured time: the sum of what its terms stand for and of what none explains
    not_explained_s: float  # What no term explains, positive or negative
    # Those that take time; none where something else than the schedule decides how long it takes
    terms: tuple[TermDifference, ...]


@dataclass(frozen=True, slots=True, repr=False)
class LogComparisonResult(ResultForm):
    """What ``s2sim collective log`` finds."""

    spec: CollectiveSpec  # What was simulated, at the largest size of the log
    cluster: str
    kind: str
    workers: int
    log: str  # Path of the log
    tables: tuple[LogTable, ...]  # Its tables that were compared
    rows: tuple[ComparedRow, ...]  # In the order of the log
    # median_abs_log_error_large, median_abs_log_error_small: median of ``|log_error|`` over rows from 1 MiB on, and
    # below; None where there are none
    median_abs_log_error_large: float | None
    median_abs_log_error_small: float | None
    # signed_log_error_large, signed_log_error_small: median of ``log_error`` over the same rows
    signed_log_error_large: float | None
    signed_log_error_small: float | None
    terms: tuple[TermScale, ...]  # What the simulated times are the sum of, and how long each takes as measured
    notes: tuple[str, ...]  # What else to know, and what was left out
    provenance: dict[str, Any] = field(default_factory=dict)  # The run record


def attribute_errors(
    terms: Sequence[Sequence[Term]], measured_s: Sequence[float]
) -> tuple[list[TermScale], list[tuple[TermDifference, ...]]]:
    """Return each term's scale, in order of occurrence, and each row's difference by term; ``measured_s`` above 0."""
    # All latencies of wires are one term.
    named = [
        ((term.kind, "all links" if term.kind == WIRE_LATENCY else term.of), row, term.ps / PS_PER_S)
        for row, found in enumerate(terms)
        for term in found
        if term.ps
    ]
    place = {name: at for at, name in enumerate(dict.fromkeys(name for name, *_ in named))}
    simulated_s = np.zeros((len(terms), len(place)))
    for name, row, time_s in named:
        simulated_s[row, place[name]] += time_s
    measured = np.array(measured_s)
    difference_s = simulated_s.sum(axis=1) - measured
    # Rows are weighted by the slower of both times, so that none outweighs the others.
    weight = 1 / np.maximum(measured, simulated_s.sum(axis=1))
    columns = simulated_s * weight[:, None]
    length = np.linalg.norm(columns, axis=0)
    alike = (columns.T @ columns) >= _COLLINEAR * np.outer(length, length)
    told_with = np.arange(len(place))
    for at in range(len(place)):
        told_with[at] = next((other for other in range(at) if told_with[other] == other and alike[at, other]), at)
    more = _scales(columns, -difference_s * weight, told_with) - 1
    stands_for_s = -more * simulated_s
    explains = np.abs(stands_for_s * weight[:, None]).sum(axis=0) / (float(np.abs(difference_s * weight).sum()) or 1.0)
    scales = [
        TermScale(*name, 1 + float(more[at]), int(told_with[at]), float(explains[at])) for name, at in place.items()
    ]
    rows = [
        tuple(
            TermDifference(*name, float(simulated_s[row, at]), float(stands_for_s[row, at]))
            for name, at in place.items()
            if simulated_s[row, at]
        )
        for row in range(len(terms))
    ]
    return scales, rows


def unattributed_s(difference_s: float, terms: Sequence[TermDifference]) -> float:
    """Return the seconds of a row's difference that no term explains."""
    return difference_s - fsum(term.difference_s for term in terms)


def _scales(columns: Floats, missing: Floats, told_with: Ints) -> Floats:
    """Return the scale of each term, at least 0, by least squares with a pull towards 1.

    Rows that stay further off than they are measured count by how far, not by its square (P. J. Huber, "Robust
    estimation of a location parameter", 1964), so that one that something else disturbed does not decide.
    ``columns`` has each row's terms in shares of its time, ``missing`` what they lack of the measured time.
    """
    from scipy.optimize import lsq_linear

    leads, group = np.unique(told_with, return_inverse=True)
    if not len(leads):
        return np.ones(0)
    together = np.zeros((len(columns), len(leads)))
    np.add.at(together.T, group, columns.T)
    pull, no_change = np.eye(len(leads)) * (_ROW_ERROR / _TERM_ERROR), np.zeros(len(leads))
    counts, found = np.ones(len(columns)), no_change
    for _ in range(_PASSES):
        weighed = np.concatenate([together * counts[:, None], pull])
        found = lsq_linear(weighed, np.concatenate([missing * counts, no_change]), bounds=(-1.0, np.inf)).x
        left = np.abs(missing - together @ found)
        counts = np.sqrt(np.minimum(1.0, _ROW_ERROR / np.maximum(left, _ROW_ERROR)))
    return 1 + found[group]
