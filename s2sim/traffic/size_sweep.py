"""One collective at many sizes: the time of each, and the table that nccl-tests would print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from s2sim import __version__
from s2sim.collectives.schedules.demand import bus_factor
from s2sim.errors import OptionError
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.experiment.scenario.cluster import extrapolated_constants_notes
from s2sim.tables import Table, table_of
from s2sim.topology.cluster import Cluster
from s2sim.traffic.collective_run import plan_collective, simulate_collective
from s2sim.traffic.log_table import MeasuredRow, MeasuredTable, RankDevice
from s2sim.traffic.nccl_tests_writer import nccl_tests_lines
from s2sim.traffic.spec import CollectiveSpec
from s2sim.units import PS_PER_S


class SizeSweep(NamedTuple):
    """The times of many sizes, their cluster, and notes."""

    sizes: list[SizeTiming]
    cluster: Cluster
    notes: list[str]


@dataclass(frozen=True, slots=True)
class SizeTiming:
    """The time of one size, and what ran."""

    size_bytes: int
    time_s: float
    algorithm: str
    protocol: str | None  # Of the library; None where it is not modelled
    itemsize: int


def sweep_sizes(first: int, last: int, factor: int) -> list[int]:
    """Return the sizes in bytes from ``first`` to at most ``last``, each ``factor`` times the previous.

    >>> sweep_sizes(8, 100, 3)
    [8, 24, 72]
    """
    if factor < 2:
        raise OptionError(f"--factor {factor} reaches no larger size: give 2 or more")
    if first < 1 or last < first:
        raise OptionError(f"no size lies from {first} to {last} bytes: begin with 1B or more, and end above")
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return sizes


def time_sizes(spec: CollectiveSpec, sizes: Sequence[int], progress: ProgressWatcher = SILENT) -> SizeSweep:
    """Return the times of a spec's collective at one or more sizes in bytes; `S2SimError` if it has no size."""
    if spec.kind == "barrier":
        raise OptionError("a barrier has no size: ask for another collective")
    found: dict[int, SizeTiming] = {}
    progress.start(len(set(sizes)), "simulating sizes")
    for size in dict.fromkeys(sizes):
        planned = plan_collective(replace(spec, size_bytes=size))
        time_s = simulate_collective(planned).duration_ps / PS_PER_S
        ran = planned.timed.schedule
        found[size] = SizeTiming(size, time_s, ran.algorithm, ran.protocol or None, planned.demand.itemsize)
        progress.advance()
    progress.stop()
    sent = [(spec.kind, size) for size in found]
    notes = extrapolated_constants_notes(planned.library, planned.scenario, spec.workers, sent)
    return SizeSweep([found[size] for size in sizes], planned.cluster, notes)


def launches_by_node(library: str | None) -> bool:
    """Return whether a library's option string has one process launch on all GPUs of a node."""
    return library is not None and "launch=node" in library


def size_table(spec: CollectiveSpec, swept: SizeSweep) -> Table:
    """Return a row a size, with bandwidths as nccl-tests has them, and the algorithm and protocol that ran."""
    bus = bus_factor(spec.kind, spec.workers)
    rows = []
    for each in swept.sizes:
        algbw_Bps = each.size_bytes / each.time_s if each.time_s else None
        figures = {"size_bytes": each.size_bytes, "time_s": each.time_s, "algbw_Bps": algbw_Bps}
        figures["busbw_Bps"] = None if algbw_Bps is None else algbw_Bps * bus
        ran = {"algorithm": each.algorithm, "protocol": each.protocol}
        rows.append({"kind": spec.kind, "workers": spec.workers, **figures, **ran})
    return table_of(rows)


def simulated_table(spec: CollectiveSpec, swept: SizeSweep, factor: int) -> list[str]:
    """Return the lines that nccl-tests would print of simulated times, after remarks on the simulation."""
    timed, cluster, notes = swept
    gpu = f"{cluster.shape.gpu or 'GPU'} (simulated)"
    bus = bus_factor(spec.kind, spec.workers)
    rates = [size.size_bytes / size.time_s if size.time_s else None for size in timed]
    table = MeasuredTable(
        line=0,
        collective=spec.kind,
        ranks=spec.workers,
        devices=tuple(
            RankDevice(rank, f"node{node}", gpu)
            for rank, node in enumerate(cluster.host_of_rank[: spec.workers].tolist())
        ),
        gpus_per_thread=cluster.shape.gpus_per_node if launches_by_node(spec.library) else 1,
        library=None,
        channels=None,
        rows=tuple(
            MeasuredRow(
                line=0,
                size_bytes=size.size_bytes,
                dtype="float" if size.itemsize == 4 else "int8",
                time_s=size.time_s,
                algbw_Bps=rate,
                busbw_Bps=None if rate is None else rate * bus,
                wrong=None,
            )
            for size, rate in zip(timed, rates, strict=True)
        ),
        average_busbw_Bps=None,
        unfinished=(),
    )
    algorithms = ", ".join(dict.fromkeys(size.algorithm for size in timed))
    remarks = [
        f"simulated by s2sim {__version__}, not measured",
        f"topology: {' '.join([spec.topology, *(f'--set {each}' for each in spec.overrides)])}",
        f"library: {spec.library or 'none, the wire alone'}",
        f"algorithm: {spec.algorithm}, which ran {algorithms}"
        if spec.algorithm == "auto"
        else f"algorithm: {algorithms}",
        *(f"fault: {fault}" for fault in spec.faults),
        *notes,
        "in-place columns repeat the others, and nothing was checked: no data was moved",
    ]
    return nccl_tests_lines(table, factor=factor, root=spec.root, remarks=remarks)
