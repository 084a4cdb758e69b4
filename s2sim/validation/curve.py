"""Measured curves: the machine and collective of an index row, and times by size."""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from s2sim.collectives import Kind
from s2sim.collectives.schedules.demand import Demand, all_to_all_demand, make_demand
from s2sim.collectives.timing.timer import AUTO
from s2sim.errors import S2SimError, suggest_nearest
from s2sim.files import measured_folder, read_table
from s2sim.topology.shape import PATHS, usual_path
from s2sim.validation.compare_log_result import LARGE_BYTES
from s2sim.validation.harness import MAX_GPUS, Count, Transport, parse_row, read_index, word_of
from s2sim.validation.node_files import names

_KINDS: dict[str, Kind] = names()["collective"]
_ALGORITHMS: dict[str, str] = names()["algorithm"]
# Most ranks of gathers and scatters, which are matrices of pairs.
_MAX_ROOTED = 2**10
# Words that stand in messages and tables.
_Word = Annotated[str, Field(max_length=100)]
_Known = Annotated[_Word, Field(min_length=1)]
INDEX = "index.csv"


def collective_kind(machine: "MeasuredMachine") -> Kind:
    """Return the kind of a row's collective; `S2SimError` for one that is not known."""
    if (kind := _KINDS.get(machine.collective)) is None:
        raise S2SimError(f"collective {machine.collective!r}{suggest_nearest(machine.collective, _KINDS)}")
    return kind


def requested_algorithm(machine: "MeasuredMachine", kind: Kind) -> str:
    """Return the algorithm that a row says ran, `AUTO` where it leaves that open for a kind."""
    if (algorithm := _ALGORITHMS.get(machine.algorithm)) is None:
        nearest = suggest_nearest(machine.algorithm, filter(None, _ALGORITHMS))
        raise S2SimError(f"algorithm {machine.algorithm!r}{nearest}")
    return AUTO if kind in names()["unaffected"].get(algorithm, ()) else algorithm


def pipelined_messages(machine: "MeasuredMachine") -> int:
    """Return the number of messages in a row of which the mean was measured."""
    # Whoever measures a rate lets so many messages follow each other (osu_bw); one of all their bytes stands for them.
    return 64 if machine.collective in ("p2p_bandwidth", "bandwidth") else 1


def demand_of_row(machine: "MeasuredMachine", kind: Kind, size_bytes: int) -> Demand:
    """Return a row's demand; gathers and scatters are messages of equal parts."""
    size_bytes *= pipelined_messages(machine)
    if machine.collective not in ("gather", "scatter"):
        return make_demand(kind, size_bytes, machine.ranks)
    if machine.ranks > _MAX_ROOTED:
        raise S2SimError(f"a {machine.collective} of {machine.ranks} ranks is more than {_MAX_ROOTED} take")
    sizes = np.zeros((machine.ranks, machine.ranks), np.int64)
    sizes[1:, 0] = size_bytes // machine.ranks
    return all_to_all_demand(sizes if machine.collective == "gather" else sizes.T, 1)


_YES_OR_NO = word_of(("yes", "no"), {"0": "no", "false": "no", "1": "yes", "true": "yes"})


def _sizes(cell: str) -> list[str]:
    """Return sizes that commas, semicolons or spaces part; dots behind the last stand for some that are not listed."""
    return re.findall(r"[^\s,;]+", cell.rstrip(" .…"))


@dataclass(frozen=True, slots=True)
class MeasuredMachine:
    """One row of an index: a machine by its metadata, and its collective; empty: not known; other columns: ignored."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "ignore"}

    id: Annotated[str, Field(min_length=1)]
    gpu_model: _Known
    gpus_per_node: Count
    nodes: Count
    ranks: Count
    intra_interconnect: str
    collective: Annotated[_Known, word_of(_KINDS, {f"{name}_perf": name for name in _KINDS})]
    # From here to ``doubt`` an index has to have the columns, with or without something in them
    nics_per_node: Annotated[int, Field(ge=0, le=MAX_GPUS)] = 0
    nic_rate_gbps: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    outlier_sizes_bytes: Annotated[tuple[int, ...], BeforeValidator(_sizes)] = ()
    quality: Annotated[Literal["good", "suspect"], word_of(("good", "suspect"))] = "good"
    system: _Word = ""  # Curves of one count as one source
    launch: Annotated[Literal["", "gpu", "node"], word_of(("gpu", "node"))] = ""
    algorithm: Annotated[_Word, word_of(_ALGORITHMS)] = ""
    nvlink_domain_gpus: Annotated[int, Field(ge=0, le=MAX_GPUS)] | None = None
    transport: Transport = ""
    doubt: Annotated[str, word_of((), {"no": "", "none": ""})] = ""  # Why times cannot follow from this row
    # protocol, min_channels: what the library was set to
    protocol: Annotated[_Word, word_of(("LL", "LL128", "Simple"))] = ""
    nccl_version: str = ""
    date: str = ""
    min_channels: Annotated[int, Field(ge=1, le=2**10)] | None = None
    qps: Annotated[int, Field(ge=1, le=2**10)] | None = None
    path: Annotated[_Word, word_of(PATHS)] = ""
    p2p: Annotated[str, _YES_OR_NO] = ""
    gdr: Annotated[str, _YES_OR_NO] = ""
    source_url: str = ""

    @property
    def source(self) -> str:
        """Whose voice the curve is."""
        return self.system or self.id

    @property
    def nic_path(self) -> str:
        """The way from GPU to interface: as stated, else through host memory without GPUDirect, else by a switch."""
        usual = "switch" if self.in_host_memory else usual_path(self.transport)
        return self.path or ("staged" if self.gdr == "no" else usual)

    @property
    def in_host_memory(self) -> bool:
        """Whether buffers are those of hosts, without GPUs."""
        return self.gpu_model.lower().startswith("none")

    @property
    def has_nvswitch(self) -> bool:
        """Whether the text on a node's links says that an NVSwitch joins its GPUs."""
        text = self.intra_interconnect.lower()
        return "nvswitch" in text and "no nvswitch" not in text


@dataclass(frozen=True, slots=True)
class Point:
    """One message size: seconds as measured, and as predicted, 0 where they are not."""

    size_bytes: int
    measured_s: float
    predicted_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MeasuredCurve:
    """A row of an index, and its points by size; ``problem`` says why one of both cannot be read, else it is empty."""

    id: str
    machine: MeasuredMachine | None
    points: tuple[Point, ...]
    problem: str = ""


def resampled(points: tuple[Point, ...], dropped: tuple[int, ...] = ()) -> tuple[Point, ...]:
    """Return the nearest point to each power of two, within 20 %, so that tables count alike; ``dropped``: hiccups."""
    nearest: dict[int, Point] = {}
    for point in points:
        if point.size_bytes in dropped:
            continue
        below = 1 << (point.size_bytes.bit_length() - 1)
        for power in (below, 2 * below):
            off = abs(point.size_bytes - power)
            if 5 * off <= power and (power not in nearest or off < abs(nearest[power].size_bytes - power)):
                nearest[power] = point
    return tuple(nearest[power] for power in sorted(nearest))


def is_large(size_bytes: int) -> bool:
    """Return whether the power of two of a resampled size is large."""
    return 5 * size_bytes >= 4 * LARGE_BYTES


resolve_curves_folder = partial(measured_folder, "curves")


def read_folder(folder: Path) -> tuple[MeasuredCurve, ...]:
    """Return a folder's curves in order of its index, a wrong one with its ``problem``; `S2SimError` for the index."""
    if not folder.is_dir():
        raise S2SimError(f"{folder} is no directory: give one with an {INDEX}, or none for the public curves")

    def names_file(name: str) -> bool:
        return name == Path(name).name and not name.startswith(".")

    curves = []
    rows = read_index(folder / INDEX, MeasuredMachine, "curve", names_file, "names no file of the folder", "doubt")
    for cells, machine, problem in rows:
        try:
            points = () if machine is None else _points(folder / f"{machine.id}.csv")
            curves.append(MeasuredCurve(cells["id"], machine, points, problem))
        except S2SimError as error:
            curves.append(MeasuredCurve(cells["id"], machine, (), str(error)))
    return tuple(curves)


@dataclass(frozen=True, slots=True)
class _PointRow:
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "ignore"}

    # What is beyond is a slip of the pen.
    size_bytes: Annotated[float, Field(ge=0, le=2**46, multiple_of=1)]
    time_us: Annotated[float, Field(ge=1e-6, le=1e12, allow_inf_nan=False)]


def _points(path: Path) -> tuple[Point, ...]:
    rows = [
        parse_row(_PointRow, cells, f"{path.name}, row {number}")
        for number, cells in read_table(path, ("size_bytes", "time_us"), 2**20)
    ]
    if not (points := [Point(int(row.size_bytes), row.time_us / 1e6) for row in rows if row.size_bytes]):
        raise S2SimError(f"{path.name} has no point: write a row for each size")
    return tuple(sorted(points, key=lambda point: point.size_bytes))
