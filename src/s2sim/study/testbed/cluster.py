"""The cluster that a testbed is to the simulator, and its description as a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.testbed.network.shaping import SEGMENT_BYTES, shaping_of
from s2sim.topology.files.quantity import Quantity
from s2sim.topology.files.read import shape_of

if TYPE_CHECKING:
    from s2sim.testbed.measured import Setting
    from s2sim.topology.shape import ClusterShape

# What nothing shapes is limited by processors alone; a rate that none of them reaches stands for it.
_UNSHAPED_BPS = 1e12


def setting_shape(setting: Setting) -> ClusterShape:
    """Return the cluster that a setting is: a node for every worker, a leaf for every node of the testbed.

    All of it is one machine, whose processors the setting tells.
    """
    given = {
        field: Quantity(field, value, "user", f"testbed {setting.name}") for field, value in _fields(setting).items()
    }
    return shape_of(given, Path(f"{setting.name}.toml"))


def setting_toml(setting: Setting) -> str:
    """Return the same cluster as a topology file."""
    tables: dict[str, list[str]] = {}
    for field, value in _fields(setting).items():
        table, _, key = field.rpartition(".")
        text = f'"{value}"' if isinstance(value, str) else str(value)
        if table.startswith("link."):
            # One table each, whose name is the links'.
            tables[f"links {table}"] = [f'name = "{table.removeprefix("link.")}"', f"{key} = {text}"]
        else:
            tables.setdefault(table, []).append(f"{key} = {text}")
    parts = ["\n".join(tables.pop(""))]
    parts += ["\n".join(["[[links]]" if "links" in table else f"[{table}]", *rows]) for table, rows in tables.items()]
    return "\n\n".join([*parts, ""])


def _fields(setting: Setting) -> dict[str, str | int]:
    slowest_Bps = min(setting.rate_Bps, setting.uplink_Bps)
    joined = setting.nodes < setting.workers
    fields: dict[str, str | int] = {
        "name": f"testbed-{setting.name}",
        "description": f"{setting.workers} network namespaces of one machine, {setting.machine}",
        "library": "gloo",
        "node.gpus": 1,
        "nic.rate": _rate(setting.rate_Bps),
        "nic.transport": "tcp",
        "fabric.kind": "leaf-spine" if joined else "single-switch",
        "machine.processors": setting.processors,
        "machine.packet": f"{shaping_of(setting.workers, slowest_Bps).segments * SEGMENT_BYTES}B",
    }
    if joined:
        fields["fabric.hosts_per_leaf"] = setting.workers // setting.nodes
        fields["fabric.uplinks_per_leaf"] = 1
        fields["link.leaf*.up*.rate"] = _rate(setting.uplink_Bps)
        fields["link.leaf*.down*.rate"] = _rate(setting.uplink_Bps)
    return fields


def _rate(rate_Bps: float) -> str:
    return f"{(_UNSHAPED_BPS if math.isinf(rate_Bps) else rate_Bps):.0f}B/s"
