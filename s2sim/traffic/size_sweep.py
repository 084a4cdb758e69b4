"""One collective at many sizes: the time of each, and the table that nccl-tests would print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from s2sim import __version__
from s2sim.collectives.schedules.demand import bus_factor
from s2sim.errors import OptionError
from s2sim.experiment.progress import SILENT, ProgressWatcher, watched
from s2sim.experiment.scenario.cluster import extrapolated_constants_notes
from s2sim.tables import Table, table_of
from s2sim.topology.cluster import Cluster
from s2sim.traffic.collective_run import plan_collective, simulate_collective
from s2sim.traffic.nccl_tests import program_of
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

    @property
    def algbw_Bps(self) -> float | None:
        """Size over time; None where no time passes."""
        return self.size_bytes / self.time_s if self.time_s else None


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
    for size in watched(progress, "simulating sizes", dict.fromkeys(sizes)):
        planned = plan_collective(replace(spec, size_bytes=size))
        time_s = simulate_collective(planned).duration_ps / PS_PER_S
        ran = planned.timed.schedule
        found[size] = SizeTiming(size, time_s, ran.algorithm, ran.protocol or None, planned.demand.itemsize)
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
        figures = {name: getattr(each, name) for name in ("size_bytes", "time_s", "algbw_Bps")}
        figures["busbw_Bps"] = None if each.algbw_Bps is None else each.algbw_Bps * bus
        ran = {"algorithm": each.algorithm, "protocol": each.protocol}
        rows.append({"kind": spec.kind, "workers": spec.workers, **figures, **ran})
    return table_of(rows)


_SUMS = ("all_reduce", "reduce_scatter", "reduce")
_ROOTED = ("broadcast", "reduce")
# A rank's own part is counted, not the buffer of all.
_PARTS = ("all_gather", "reduce_scatter", "all_to_all")
_NO_ROOT = -1
_ONCE = "warmup iters: 0 iters: 1 agg iters: 1 validation: 0 graph: 0"


def simulated_table(spec: CollectiveSpec, swept: SizeSweep, factor: int) -> list[str]:
    """Return the lines that nccl-tests would print of simulated times, after remarks on the simulation.

    ``factor`` is the ratio of one size to the next.
    """
    timed, cluster, notes = swept
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
    gpus = cluster.shape.gpus_per_node if launches_by_node(spec.library) else 1
    sizes, program = [size.size_bytes for size in timed], program_of(spec.kind)
    bus = bus_factor(spec.kind, spec.workers)
    bus_rates = [size.algbw_Bps * bus for size in timed if size.algbw_Bps is not None]
    return [
        *(f"# {remark}" for remark in remarks),
        f"# Collective test starting: {program}",
        f"# nThread 1 nGpus {gpus} minBytes {min(sizes)} maxBytes {max(sizes)} step: {factor}(factor) {_ONCE}",
        "#",
        "# Using devices",
        *_device_lines(cluster, spec.workers),
        "#",
        f"# {'':10}  {'':12}  {'':8}  {'':6}  {'':6}           out-of-place                       in-place",
        _line("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2),
        _line("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2),
        *(_row(spec, size, bus) for size in timed),
        f"# Avg bus bandwidth    : {fmean(bus_rates) / 1e9 if bus_rates else 0:g}",
        "#",
        f"# Collective test concluded: {program}",
    ]


def _device_lines(cluster: Cluster, workers: int) -> Iterator[str]:
    gpu = f"{cluster.shape.gpu or 'GPU'} (simulated)"
    places: dict[int, int] = {}
    for rank, node in enumerate(cluster.host_of_rank[:workers].tolist()):
        place = places[node] = places.get(node, -1) + 1
        yield f"#  Rank {rank:2} Group  0 Pid      0 on {f'node{node}':>10} device {place:2} [0x00] {gpu}"


def _row(spec: CollectiveSpec, size: SizeTiming, bus: float) -> str:
    dtype, item_bytes = ("float", 4) if size.itemsize == 4 else ("int8", 1)
    rates_Bps = (None, None) if size.algbw_Bps is None else (size.algbw_Bps, size.algbw_Bps * bus)
    bandwidths = ["N/A" if rate_Bps is None else _fitting(rate_Bps / 1e9, 6) for rate_Bps in rates_Bps]
    return _line(
        str(size.size_bytes),
        str(size.size_bytes // item_bytes // (spec.workers if spec.kind in _PARTS else 1)),
        dtype,
        "sum" if spec.kind in _SUMS else "none",
        str(spec.root if spec.kind in _ROOTED else _NO_ROOT),
        *(_fitting(size.time_s * 1e6, 7), *bandwidths, "N/A") * 2,
        begin=" ",
    )


def _line(*cells: str, begin: str = "#") -> str:
    size, count, dtype, redop, root, *figures = cells
    groups = "  ".join(
        f"{time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}"
        for time, algbw, busbw, wrong in (figures[at : at + 4] for at in range(0, len(figures), 4))
    )
    return f"{begin} {size:>10}  {count:>12}  {dtype:>8}  {redop:>6}  {root:>6}  {groups}".rstrip()


def _fitting(value: float, width: int) -> str:
    """Return a number with two decimals, or fewer if they do not fit."""
    texts = (f"{value:.{digits}f}" for digits in (2, 1))
    return next((text for text in texts if len(text) <= width), f"{value:.0f}")
