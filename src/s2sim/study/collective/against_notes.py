"""What else to know of a log and its simulation: what it does not say or says otherwise, and what is left out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.timing.timer import AUTO
from s2sim.study.collective.as_logged import ALGORITHMS
from s2sim.study.collective.many_sizes import launches_by_node
from s2sim.words import number_of, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s2sim.study.collective.against_result import ComparedRow
    from s2sim.study.collective.spec import CollectiveSpec
    from s2sim.study.measured_logs.table import MeasuredTable
    from s2sim.topology.cluster import Cluster


def notes_of(
    spec: CollectiveSpec, tables: Sequence[MeasuredTable], cluster: Cluster, rows: Sequence[ComparedRow]
) -> Iterator[str]:
    """Yield a note for all that the log does not say, or says otherwise than it is simulated."""
    if spec.library is None:
        yield "simulated is the wire alone: --library nccl adds launches, hops and protocols"
    if not any(row.terms for row in rows):
        yield "no terms explain the difference: they are of the fluid network with nothing else in flight"
    yield from _otherwise(spec, rows)
    compared = {row.line for row in rows}
    for table in tables:
        yield from _of_table(spec, table, cluster)
        yield from _of_ways(table, cluster)
        idle = [row.line for row in table.rows if row.line not in compared]
        if idle:
            yield f"{_lines(idle)} left out: no bytes, or no time"


def _otherwise(spec: CollectiveSpec, rows: Sequence[ComparedRow]) -> Iterator[str]:
    """Yield what ran by another algorithm or protocol than it is simulated by."""
    pairs: Counter[tuple[str, str]] = Counter()
    for row in rows:
        ran, simulated = row.measured_algorithm, row.algorithm.partition(":")[0]
        if ran is not None and ALGORITHMS.get(ran) != simulated:
            pairs[ran, simulated] += 1
        if row.measured_protocol is not None and row.protocol not in ("", row.measured_protocol):
            pairs[row.measured_protocol, row.protocol] += 1
    why = "as it is not known, or cannot be here" if spec.algorithm == AUTO else "as asked"
    for (ran, simulated), count in pairs.items():
        rows_that = f"{number_of(count, 'row')} that {'was' if count == 1 else 'were'}"
        yield f"{rows_that} measured by {ran[:40]} {'is' if count == 1 else 'are'} simulated by {simulated}, {why}"


def _of_table(spec: CollectiveSpec, table: MeasuredTable, cluster: Cluster) -> Iterator[str]:
    """Yield what a table lacks, and what of it does not fit what is simulated."""
    nodes = len(np.unique(cluster.host_of_rank[: spec.workers]))
    where = f"the table at line {table.line}"
    if table.collective is None:
        yield f"{where} names no collective and is taken for {spec.kind}"
    if table.ranks is None:
        yield f"{where} does not say how many ranks ran and is taken for {spec.workers}"
    if len(table.devices) == spec.workers and table.hosts != nodes:
        yield f"{where} ran on {number_of(table.hosts, 'host')}, simulated are {number_of(nodes, 'node')}"
    by_node = (table.gpus_per_thread or 1) > 1
    if by_node and spec.library is not None and not launches_by_node(spec.library):
        yield f"{where} launched on {table.gpus_per_thread} GPUs from one thread: launch=node charges that"
    wrong = [row.line for row in table.rows if row.wrong]
    if wrong:
        yield f"{_lines(wrong)} measured sums that came out wrong"
    if table.unfinished:
        yield f"{_lines(table.unfinished)} left out: no figures"


def _of_ways(table: MeasuredTable, cluster: Cluster) -> Iterator[str]:
    """Yield where the log connects ranks by other ways than the topology has."""
    spec = cluster.dims.node_set.specs[0]
    sockets = any(name.startswith("NET/Socket") for name in table.transports)
    verbs = [name for name in table.transports if name.startswith("NET/IB")]
    if sockets and spec.transport not in (None, "tcp"):
        yield f"nodes of the log are connected by sockets, those of the topology by {spec.transport} (nic.transport)"
    if verbs and not any("GDRDMA" in name for name in verbs) and spec.path != "staged":
        yield "nodes of the log are connected without GPUDirect: --set nic.path=staged charges the way by the host"
    if any(name.startswith("SHM") for name in table.transports) and spec.peer_to_peer:
        yield "GPUs of a node of the log are connected over host memory: pcie.peer_to_peer says so of a topology"


def _lines(numbers: Sequence[int]) -> str:
    shown = [str(number) for number in numbers[:8]]
    more = len(numbers) - len(shown)
    return f"{plural(len(numbers), 'line')} {', '.join(shown)}{f' and {more} more' if more else ''}"
