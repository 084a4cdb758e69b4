"""One collective at many sizes: the time of each, as nccl-tests would print it, and what NCCL's tuner is told to run.

Lines of the tuner's file are ``collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks``, as
``plugins/tuner/example`` of NCCL v2.30.7-1 reads them: the first that matches counts, ends included; what none matches
stays NCCL's own choice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from statistics import fmean
from typing import NamedTuple

from s2sim import __version__
from s2sim.collectives.schedules.demand import bus_factor, nccl_tests_bytes
from s2sim.collectives.timing.timer import TimedSchedule
from s2sim.errors import OptionError
from s2sim.experiment.progress import SILENT, ProgressWatcher, watched
from s2sim.experiment.scenario.cluster import extrapolated_constants_notes
from s2sim.libraries.nccl import NcclProfile
from s2sim.tables import Table, table_of
from s2sim.topology.cluster import Cluster
from s2sim.traffic.collective_run import PlannedCollective, plan_collective, simulate_collective
from s2sim.traffic.nccl_tests import program_of
from s2sim.traffic.spec import CollectiveSpec
from s2sim.uncertainty.interval import format_interval, interval_at
from s2sim.units import PS_PER_S, format_bytes, format_seconds


class SizeSweep(NamedTuple):
    """The times of many sizes, their cluster, and notes."""

    sizes: "list[SizeTiming]"
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


# A rank's own part is counted, not the buffer of all.
_PARTS = ("all_gather", "reduce_scatter", "all_to_all")
_NO_ROOT = -1
_ONCE = "warmup iters: 0 iters: 1 agg iters: 1 validation: 0 graph: 0"


def simulated_table(spec: CollectiveSpec, swept: SizeSweep, factor: int) -> list[str]:
    """Return nccl-tests' lines of simulated times, after remarks on the simulation; ``factor`` is from size to size."""
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
        "sum" if spec.kind in ("all_reduce", "reduce_scatter", "reduce") else "none",
        str(spec.root if spec.kind in ("broadcast", "reduce") else _NO_ROOT),
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


_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
# By the algorithm here; NCCL calls a chain from a root a ring too.
NCCL_ALGORITHMS = {
    "ring": "ring",
    "chain": "ring",
    "double-binary-tree": "tree",
    "nvls-tree": "nvls_tree",
    "in-network": "nvls",
    "pat": "pat",
}
# The plug-in reads lines into 256 bytes; the rest of a longer one would be another line.
_LONGEST = 250


@dataclass(frozen=True, slots=True)
class TunerChoice:
    """What is to run at one size."""

    size_bytes: int
    algorithm: str  # As the plug-in calls it
    protocol: str
    channels: int
    time_s: float
    text: str  # The time with its band, and the choice of NCCL where that is another
    gain: float  # The time of NCCL's own choice over this one


@dataclass(frozen=True, slots=True)
class TunerFile:
    """The text of the file, and the choices that it is made of."""

    text: str
    choices: tuple[TunerChoice, ...]

    @property
    def summary(self) -> str:
        """What it changes, and what it has to be checked by."""
        if not (other := [each for each in self.choices if each.gain > 1]):
            return "NCCL's own choice is as good as any at every size: the file pins it down, and speeds nothing up"
        sizes = f"{format_bytes(other[0].size_bytes)} to {format_bytes(other[-1].size_bytes)}"
        return (
            f"predicted to be faster than NCCL's own choice at {len(other)} of {len(self.choices)} sizes, {sizes}, by "
            f"up to {max(each.gain for each in other):.2f}x: measure both with nccl-tests before you use it"
        )


def write_tuner(spec: CollectiveSpec, sizes: Sequence[int], progress: ProgressWatcher = SILENT) -> TunerFile:
    """Return the file for a spec's collective at growing sizes in bytes, each of which stands up to the next.

    Of what NCCL can run, another than its own choice is taken where that needs less than nine tenths of the time, as
    `s2sim collective` names it. `OptionError` for what no tuner is asked for, or another library.
    """
    if spec.kind not in _KINDS:
        raise OptionError(f"--tuner: NCCL asks a tuner for {', '.join(_KINDS)}, and not for {spec.kind}")
    if spec.algorithm != "auto" or spec.groups is not None or spec.faults:
        raise OptionError("--tuner chooses algorithms for one group on a healthy cluster: leave those options out")
    planned = [plan_collective(replace(spec, size_bytes=size)) for size in watched(progress, "choosing by size", sizes)]
    if not isinstance(planned[0].profile, NcclProfile):
        raise OptionError("--tuner is read by NCCL: add --library nccl, on GPUs that it has constants for")
    choices, called = tuple(map(_choose, planned)), spec.kind.replace("_", "")
    last = planned[-1]
    where = f"nodes {last.cluster.nodes_used}, ranks {last.cluster.workers}"
    topology = " ".join([spec.topology, *(f"--set {each}" for each in spec.overrides)])
    lines = [
        f"# {called} on {topology}: {where}; predicted by s2sim {__version__}, not measured",
        "# Measure it before use: NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE=this file",
        "# collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks",
        "# Channels are those that the prediction is for. -1 would be NCCL's own, but the plug-in of v2.30 makes it 1.",
    ]
    runs = [list(run) for _, run in groupby(choices, attrgetter("algorithm", "protocol", "channels"))]
    for run, end in zip(runs, [*(run[0].size_bytes - 1 for run in runs[1:]), choices[-1].size_bytes], strict=True):
        lines += [f"# {format_bytes(each.size_bytes)}: {each.text}" for each in run]
        row = called, run[0].size_bytes, end, run[0].algorithm, run[0].protocol, run[0].channels
        lines.append(",".join(map(str, (*row, last.cluster.nodes_used, last.cluster.workers))))
    return TunerFile("".join(f"{line[:_LONGEST]}\n" for line in lines), choices)


def _choose(planned: PlannedCollective) -> TunerChoice:
    own = planned.timed
    best = planned.timer.faster(own, library_only=True) or own
    schedule = best.schedule
    profile = next(
        each
        for each in planned.profile.protocols(schedule, planned.cluster)
        if isinstance(each, NcclProfile) and each.protocol == schedule.protocol
    )
    channels, _ = profile.channels(schedule, planned.cluster)
    name, own_name = (NCCL_ALGORITHMS[each.schedule.algorithm.partition(":")[0]] for each in (best, own))
    other = "" if best is own else f"; NCCL's own choice, {own_name} {own.schedule.protocol}, {_time(own, planned)}"
    return TunerChoice(
        nccl_tests_bytes(planned.demand),
        name,
        schedule.protocol.lower(),
        channels,
        best.duration_ps / PS_PER_S,
        f"{_time(best, planned)}{other}",
        own.duration_ps / best.duration_ps if best.duration_ps else 1.0,
    )


def _time(timed: TimedSchedule, planned: PlannedCollective) -> str:
    time_s, size = timed.duration_ps / PS_PER_S, nccl_tests_bytes(timed.schedule.demand)
    band = interval_at(time_s, planned.cluster, planned.profile, planned.demand.kind, size)
    between = "" if band is None else f" ({format_interval(band.low_s, time_s, band.high_s)})"
    return f"{format_seconds(time_s)}{between}"
