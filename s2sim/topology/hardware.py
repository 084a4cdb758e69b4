"""The hardware catalogue: GPUs, the links between them, and networks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from s2sim.errors import TopologyError, suggest_nearest, unknown_name
from s2sim.files import data_directory, is_toml_path, read_toml, user_path
from s2sim.topology.fields import HARDWARE_FILE
from s2sim.topology.quantity import FieldReader, Quantity, read_quantity
from s2sim.units import PS_PER_S, parse_time_ps

_DEFAULTS = "defaults"
Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HardwareEntry:
    """One table of a hardware file, with the values that it inherits."""

    section: str
    name: str
    description: str
    source: str
    names: tuple[str, ...]  # Other spellings of its name
    quantities: dict[str, Quantity]  # By field; their own names are ``SECTION.NAME.FIELD``

    def value(self, field: str) -> Any:
        """Return a value as it is written; None if absent."""
        return self.quantities[field].value if field in self.quantities else None


@dataclass(frozen=True, slots=True)
class HardwareTables:
    """A hardware file, by section and name; inherited values are looked up on demand."""

    where: str
    sections: dict[str, dict[str, Table]]

    def names(self, section: str) -> list[str]:
        """Return the names of a section's tables, in order."""
        return list(self.sections.get(section, {}))

    def part(self, section: str, name: str) -> HardwareEntry:
        """Return one table: plain values have its kind and source, missing ones are inherited."""
        own = self.sections[section][name]
        found: dict[str, Quantity] = {}
        for table in self._chain(section, name):
            for key, raw in table.items():
                if key in ("description", "source", "kind", "like", "names") or key in found:
                    continue
                plain = not isinstance(raw, dict) and "kind" in table
                stated = {"value": raw, "kind": table["kind"], "source": table.get("source", "")} if plain else raw
                found[key] = read_quantity(stated, f"{section}.{name}.{key}", self.where)
        return HardwareEntry(
            section=section,
            name=name,
            description=self._text(own, "description", f"{section}.{name}"),
            source=self._text(own, "source", f"{section}.{name}"),
            names=tuple(map(str, own.get("names", ()))),
            quantities=found,
        )

    def _chain(self, section: str, name: str) -> Iterator[Table]:
        """Yield a table, those that it is like, and the defaults of its section."""
        seen = [name]
        table = self.sections[section][name]
        while True:
            yield table
            if not (like := self._text(table, "like", f"{section}.{seen[-1]}")):
                break
            known = self.sections.get(_DEFAULTS, {}) | self.sections[section]
            if like in seen or like not in known:
                raise TopologyError(f"{self.where}: {section}.{name} is like {like!r}, which is no other table")
            seen.append(like)
            table = known[like]
        yield self.sections.get(_DEFAULTS, {}).get(section, {})

    def _text(self, table: Table, key: str, shown: str) -> str:
        value = table.get(key, "")
        if not isinstance(value, str):
            raise TopologyError(f"{self.where}: {shown}.{key} = {value!r} is not a text")
        return value


def read_tables(path: Path) -> HardwareTables:
    """Return the sections of tables in a hardware file."""
    sections = {
        section: tables
        for section, tables in read_toml(path, TopologyError).items()
        if isinstance(tables, dict) and all(isinstance(table, dict) for table in tables.values())
    }
    return HardwareTables(path.name, sections)


@cache
def shipped_tables() -> HardwareTables:
    """Return the catalogue that comes with s2sim."""
    return read_tables(data_directory("topologies") / HARDWARE_FILE)


def shipped_part(section: str, name: str, noun: str) -> HardwareEntry:
    """Return one table of the shipped catalogue; `UnknownNameError` names the nearest."""
    tables = shipped_tables()
    if name not in tables.names(section):
        raise unknown_name(noun, name, tables.names(section))
    return tables.part(section, name)


_QUANTITIES = (
    "memory_bandwidth",
    "memory_efficiency",
    "kernel_launch",
    "host_sync",
    "dense_encode_passes",
    "dense_decode_passes",
)
# Needed only for such work.
_OPTIONAL = ("fp32_flops", "flops_efficiency", "host_step", "hook_copy")
# Peaks of matrix products by the type of what is multiplied; only fp32 is not on tensor or matrix cores.
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
_MULTIPROCESSORS = "sms"

GPU_FACTS = (
    *("memory", "tf32_flops", "fp16_flops", "bf16_flops", "fp8_flops", "int8_ops", "sms"),
    *("nvlink", "links", "pcie", "boards"),
)
"""Fields of a GPU other than the costs of its kernels."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of the catalogue."""

    name: str
    description: str
    source: str
    memory_bandwidth_Bps: float
    memory_efficiency: float  # Share of the datasheet's bandwidth that a streaming kernel reaches, in (0, 1]
    # kernel_launch_ps, host_sync_ps: picoseconds that one more kernel on a stream costs, and until the host knows a
    # value that the GPU computed
    kernel_launch_ps: int
    host_sync_ps: int
    # dense_encode_passes, dense_decode_passes: the published PyTorch code of S2 Reducer: passes over the dense table,
    # at the datasheet's bandwidth, that take as long as its encode and decode
    dense_encode_passes: float
    dense_decode_passes: float
    # fp32_flop_per_s, flops_efficiency: float32 operations per second of the datasheet, outside of tensor cores, and
    # the share of them that matrix products reach, in (0, 1]
    fp32_flop_per_s: float | None
    flops_efficiency: float | None
    # Picoseconds that one core of the host's CPU takes for a value or bit of a code, one after the other
    host_step_ps: int | None
    # Operations per second of matrix products by precision, of those of `PRECISIONS` that are known
    peak_flop_per_s: tuple[tuple[str, float], ...]
    quantities: tuple[Quantity, ...]
    memory_bytes: float | None = None  # Of the board; None where its table does not say
    hook_copy_Bps: float | None = None  # At which a hook copies gradients to its codec and back; None where it does not
    # Of a machine's processors: by which factor the codec of each reducer takes longer there than these constants say
    codecs: tuple[tuple[str, float], ...] = ()

    @property
    def stream_Bps(self) -> float:
        """Bytes per second that a streaming kernel reaches."""
        return self.memory_bandwidth_Bps * self.memory_efficiency

    def for_codec(self, reducer: str, turns: float) -> Self:
        """Return what runs the codec of a reducer by its name, of ``turns`` processes that share each processor.

        A GPU of the catalogue is itself: it is of one rank, and its constants are of all codecs.
        """
        if not self.codecs:
            return self
        slower = dict(self.codecs).get(reducer, 1.0) * turns
        return replace(
            self,
            memory_bandwidth_Bps=self.memory_bandwidth_Bps / slower,
            hook_copy_Bps=self.hook_copy_Bps and self.hook_copy_Bps / turns,
            kernel_launch_ps=round(self.kernel_launch_ps * slower),
            fp32_flop_per_s=self.fp32_flop_per_s and self.fp32_flop_per_s / slower,
            host_step_ps=self.host_step_ps and round(self.host_step_ps * slower),
        )

    def multiplies(self, precision: str) -> bool:
        """Return whether a peak of matrix products in a precision of `PRECISIONS` is known."""
        return precision in dict(self.peak_flop_per_s)

    def peak(self, precision: str) -> float:
        """Return the operations per second of matrix products in a precision of `PRECISIONS`."""
        peaks = dict(self.peak_flop_per_s)
        if precision not in peaks:
            known = ", ".join(peaks) or "none"
            raise TopologyError(
                f"gpu {self.name} has no peak for {precision} in the catalogue (known: {known}): take one of these, or "
                f"a TOML file with {precision}_flops"
            )
        return peaks[precision]

    def flops_s(self, flops: int) -> float:
        """Return the seconds that matrix products take for float32 operations."""
        if not flops:
            return 0.0
        if self.fp32_flop_per_s is None:
            raise self._lacks("fp32_flops", "matrix products are", '"20TFLOP/s"')
        if self.flops_efficiency is None:
            raise self._lacks("flops_efficiency", "matrix products are", "0.8")
        return flops / (self.fp32_flop_per_s * self.flops_efficiency)

    def host_ps(self, steps: int) -> int:
        """Return the picoseconds that the host's CPU takes for values or bits, one after the other."""
        if not steps:
            return 0
        if self.host_step_ps is None:
            raise self._lacks("host_step", "codes of the host's CPU are", '"1ns"')
        return steps * self.host_step_ps

    @property
    def multiprocessors(self) -> int | None:
        """Multiprocessors or compute units, each taken by one thread block of a communication kernel."""
        return next((int(item.value) for item in self.quantities if item.field.endswith(f".{_MULTIPROCESSORS}")), None)

    def _lacks(self, field: str, work: str, example: str) -> TopologyError:
        return TopologyError(
            f"gpu.{self.name}.{field} is missing, and {work} to be timed: add for example {field} = {example}"
        )


def read_hardware(path: Path) -> dict[str, Gpu]:
    """Return the GPUs of a catalogue file by name."""
    tables = read_tables(path)
    if "gpu" not in tables.sections:
        raise TopologyError(f"{tables.where}: no [gpu.NAME] table was found")
    parts = [tables.part("codec", name) for name in tables.names("codec")]
    codecs = tuple((part.name, FieldReader(part.quantities, tables.where).number("factor")) for part in parts)
    gpus = {name: _read_gpu(tables.part("gpu", name), tables.where) for name in tables.names("gpu")}
    return {name: replace(gpu, codecs=codecs) for name, gpu in gpus.items()}


def _read_gpu(part: HardwareEntry, where: str) -> Gpu:
    given, fields = part.quantities, FieldReader(part.quantities, where)
    known = (*_QUANTITIES, *_OPTIONAL)
    for key in given:
        if key not in (*known, *GPU_FACTS):
            raise TopologyError(f"{where}: gpu.{part.name} has an unknown field {key!r}{suggest_nearest(key, known)}")
    for key in _QUANTITIES:
        if key not in given:
            raise TopologyError(f"{where}: gpu.{part.name}.{key} is missing")
    return Gpu(
        name=part.name,
        description=part.description,
        source=part.source,
        memory_bandwidth_Bps=fields.required_rate("memory_bandwidth"),
        memory_efficiency=fields.share("memory_efficiency"),
        kernel_launch_ps=fields.latency("kernel_launch"),
        host_sync_ps=fields.latency("host_sync"),
        dense_encode_passes=fields.number("dense_encode_passes"),
        dense_decode_passes=fields.number("dense_decode_passes"),
        fp32_flop_per_s=fields.work_rate("fp32_flops"),
        flops_efficiency=fields.share("flops_efficiency") if "flops_efficiency" in given else None,
        host_step_ps=fields.latency("host_step") if "host_step" in given else None,
        peak_flop_per_s=tuple(
            (precision, peak) for precision in PRECISIONS if (peak := fields.work_rate(f"{precision}_flops"))
        ),
        quantities=tuple(given[key] for key in (*known, _MULTIPROCESSORS) if key in given),
        memory_bytes=fields.bytes("memory"),
        hook_copy_Bps=fields.rate("hook_copy"),
    )


def load_gpu(name_or_path: str) -> Gpu:
    """Return the GPU of the catalogue (a name) or of the user's own file of the same form (a path), which holds one.

    A text with a slash, or one that ends in ``.toml``, is a path; `UnknownNameError` names the nearest known GPU.
    """
    if not is_toml_path(name_or_path):
        return _read_gpu(shipped_part("gpu", name_or_path, "GPU"), HARDWARE_FILE)
    path = user_path(name_or_path, TopologyError)
    found = read_hardware(path)
    if len(found) != 1:
        raise TopologyError(f"{path.name}: {len(found)} [gpu.NAME] tables were found: leave one, the GPU to take")
    return next(iter(found.values()))


_WORDS = re.compile(r"rtx(?=\d)|[a-z0-9]+")
# What indexes call the model where no GPU takes part.
_NOTE_PATTERN = re.compile(r"\([^)]*\)")
_NO_GPU = "none"
_PS_PER_NS = PS_PER_S // 10**9


@dataclass(frozen=True, slots=True)
class NetworkLinks:
    """Latencies of the hardware of a network, and the number of nodes that one of its switches joins."""

    nic: Quantity
    link: Quantity
    nodes_below_a_switch: Quantity


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """Links of one model of GPU."""

    names: tuple[str, ...]  # As users write them: words that all occur in the name of a GPU
    nvlink: str | None = None  # Generation, a table of the section ``nvlink``
    links: Quantity | None = None  # Number of NVLinks, or Infinity Fabric links, of a GPU
    # Generation of its PCIe x16, a table of the section ``pcie``; None if something faster joins it to its host
    pcie: Quantity | None = None
    # By GPUs in one NVLink domain: ``mesh``, ``switch``, ``rack`` or a table of the section ``board``
    boards: dict[int, str] = field(default_factory=dict)


@cache
def catalogue_values(section: str, name: str) -> dict[str, Quantity]:
    """Return the values of a table of the shipped catalogue by field; empty if there is no such table.

    ``nvlink`` has the ``rate`` of one link and direction; ``pcie`` the ``rate`` of one x16 and direction, and
    ``memory`` of one socket for GPUs; ``latency`` the ``value`` of a latency inside a node; ``board`` the ``pairs`` of
    GPUs that are joined, each as often as it has links, and ``host``: what joins each to its host, if not PCIe.
    """
    tables = shipped_tables()
    return tables.part(section, name).quantities if name in tables.names(section) else {}


@cache
def gpu_links() -> dict[str, GpuLinks]:
    """Return the links of all GPUs of the shipped catalogue by name."""
    tables, found = shipped_tables(), {}
    for name in tables.names("gpu"):
        part = tables.part("gpu", name)
        boards = [str(board).partition(" ") for board in part.value("boards") or ()]
        found[name] = GpuLinks(
            names=part.names,
            nvlink=part.value("nvlink"),
            links=part.quantities["links"] if part.value("links") else None,
            # What is no PCIe joins a GPU to its CPU without limiting other traffic.
            pcie=part.quantities["pcie"] if part.value("pcie") in tables.names("pcie") else None,
            boards={int(gpus): shape for gpus, _, shape in boards},
        )
    return found


def find_gpu_links(model: str) -> GpuLinks | None:
    """Return the links of a GPU by its model as users write it; None if it is not in the catalogue."""
    if _NOTE_PATTERN.sub(" ", model.lower()).strip() == _NO_GPU:
        return GpuLinks(names=(_NO_GPU,))
    name = find_gpu_name(model)
    return None if name is None else gpu_links()[name]


def usual_library(model: str) -> str:
    """Return ``rccl`` for GPUs of AMD, whose links are named after architectures, gfx and a number; else ``nccl``."""
    links = find_gpu_links(model)
    return "rccl" if links is not None and (links.nvlink or "").startswith("gfx") else "nccl"


def find_gpu_name(model: str) -> str | None:
    """Return the catalogue's name that most words of a model match (no remark in parentheses); None if not one."""
    written = set(_WORDS.findall(_NOTE_PATTERN.sub(" ", model.lower())))
    found = [
        (len(words), name)
        for name, gpu in gpu_links().items()
        for words in (set(_WORDS.findall(each)) for each in gpu.names)
        if words <= written
    ]
    best = {name for count, name in found if count == max(found)[0]}
    return best.pop() if len(best) == 1 else None


@cache
def find_network_links(transport: str) -> NetworkLinks | None:
    """Return the hardware below a transport; None if it is not in the catalogue, or leaves no host."""
    tables = shipped_tables()
    parts = (tables.part("transport", name) for name in tables.names("transport"))
    part = next((each for each in parts if transport in (each.name, *each.names) and each.value("nic")), None)
    if part is None:
        return None
    switch = tables.part("switch", part.value("switch"))
    through, cable = switch.quantities["latency"], catalogue_values("latency", "cable")["value"]
    # Two links make a route through one switch.
    link_ps = parse_time_ps(through.value) // 2 + parse_time_ps(cable.value)
    source = f"half of a switch ({switch.name}: {through.source}) and a cable ({cable.source})"
    return NetworkLinks(
        nic=catalogue_values("nic", part.value("nic"))["latency"],
        link=Quantity("latency", f"{link_ps / _PS_PER_NS:g}ns", through.kind, source),
        nodes_below_a_switch=switch.quantities["down"],
    )
