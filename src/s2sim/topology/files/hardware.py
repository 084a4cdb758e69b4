"""The hardware catalogue: the price of running kernels on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from s2sim.data import data_directory
from s2sim.errors import TopologyError, nearest, unknown_name
from s2sim.text_files import is_toml_path, read_toml, user_path
from s2sim.topology.files.catalogue import HARDWARE_FILE
from s2sim.topology.files.quantity import Fields, Quantity, read_quantity

if TYPE_CHECKING:
    from pathlib import Path

_TEXTS = ("description", "source")
_QUANTITIES = (
    "memory_bandwidth",
    "memory_efficiency",
    "kernel_launch",
    "host_sync",
    "dense_encode_passes",
    "dense_decode_passes",
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of the catalogue.

    Attributes
    ----------
    memory_efficiency : float
        Share of the datasheet's bandwidth that a streaming kernel reaches, in (0, 1].
    kernel_launch_ps, host_sync_ps : int
        Picoseconds that one more kernel on a stream costs, and until the host knows a value that the GPU computed.
    dense_encode_passes, dense_decode_passes : float
        The published PyTorch code of S2 Reducer: passes over the dense table, at the datasheet's bandwidth, that take
        as long as its encode and decode.
    """

    name: str
    description: str
    source: str
    memory_bandwidth_Bps: float
    memory_efficiency: float
    kernel_launch_ps: int
    host_sync_ps: int
    dense_encode_passes: float
    dense_decode_passes: float
    quantities: tuple[Quantity, ...]

    @property
    def stream_Bps(self) -> float:
        """Bytes per second that a streaming kernel reaches."""
        return self.memory_bandwidth_Bps * self.memory_efficiency


def read_hardware(path: Path) -> dict[str, Gpu]:
    """Return the GPUs of a catalogue file by name."""
    where = path.name
    tables = read_toml(path, TopologyError).get("gpu")
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise TopologyError(f"{where}: no [gpu.NAME] table was found")
    return {name: _read_gpu(name, table, where) for name, table in tables.items()}


def _read_gpu(name: str, table: dict[str, Any], where: str) -> Gpu:
    for key in table:
        if key not in (*_TEXTS, *_QUANTITIES):
            raise TopologyError(f"{where}: gpu.{name} has an unknown field {key!r}{nearest(key, _QUANTITIES)}")
    given = {key: read_quantity(value, f"gpu.{name}.{key}", where) for key, value in table.items()}
    for key in _QUANTITIES:
        if key not in table:
            raise TopologyError(f"{where}: gpu.{name}.{key} is missing")
    fields = Fields(given, where)
    efficiency = fields.number("memory_efficiency")
    if efficiency > 1:
        raise TopologyError(f"{where}: gpu.{name}.memory_efficiency = {efficiency} is a share: write at most 1")
    return Gpu(
        name=name,
        description=fields.text("description", ""),
        source=fields.text("source", ""),
        memory_bandwidth_Bps=fields.required_rate("memory_bandwidth"),
        memory_efficiency=efficiency,
        kernel_launch_ps=fields.latency("kernel_launch"),
        host_sync_ps=fields.latency("host_sync"),
        dense_encode_passes=fields.number("dense_encode_passes"),
        dense_decode_passes=fields.number("dense_decode_passes"),
        quantities=tuple(given[key] for key in _QUANTITIES),
    )


def _catalogue() -> dict[str, Gpu]:
    return read_hardware(data_directory("topologies") / HARDWARE_FILE)


def load_gpu(name_or_path: str) -> Gpu:
    """Return the GPU of the catalogue (a name) or of the user's own file of the same form (a path), which holds one.

    A text with a slash, or one that ends in ``.toml``, is a path; `UnknownNameError` names the nearest known GPU.
    """
    if not is_toml_path(name_or_path):
        gpus = _catalogue()
        if name_or_path not in gpus:
            raise unknown_name("GPU", name_or_path, gpus)
        return gpus[name_or_path]
    path = user_path(name_or_path, TopologyError)
    found = read_hardware(path)
    if len(found) != 1:
        raise TopologyError(f"{path.name}: {len(found)} [gpu.NAME] tables were found: leave one, the GPU to take")
    return next(iter(found.values()))


def list_hardware() -> list[tuple[str, str, str]]:
    """Return (name, one-line summary, source) of every GPU of the catalogue."""
    return [(gpu.name, gpu.description, gpu.source) for gpu in _catalogue().values()]
