"""Parts of machines for people to look at: GPUs, network interfaces, switches and transports of the catalogue."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from s2sim.topology.files.hardware_tables import shipped_part, shipped_tables

if TYPE_CHECKING:
    from s2sim.topology.files.hardware_tables import Part

PARTS = {
    "gpus": ("gpu", "GPU"),
    "nics": ("nic", "network interface"),
    "switches": ("switch", "switch"),
    "transports": ("transport", "transport"),
}
"""Lists of parts: the section of the catalogue, and what one of them is called."""

# What stands in a line of a list, field by field.
_SHOWN = {
    "gpu": {
        "memory": "{}",
        "memory_bandwidth": "{} of memory bandwidth",
        "fp32_flops": "fp32 {}",
        "fp16_flops": "fp16 {}",
        "links": "{} links",
        "pcie": "PCIe {}",
    },
    "nic": {"rate": "{}", "pcie": "PCIe {}", "latency": "{} of latency"},
    "switch": {"ports": "{} ports", "rate": "{} each", "latency": "{} from port to port"},
    "transport": {"header": "{} beside", "payload": "{} of payload", "gpu_memory": "GPU memory reached: {}"},
}
_UNIT = re.compile(r"(?<=\d)(?=[A-Za-z])")


def value_text(value: object) -> str:
    """Return a value of the catalogue for reading.

    >>> value_text("1555GB/s"), value_text("gen4"), value_text(["4 mesh", "8 switch"])
    ('1555 GB/s', 'gen4', '4 mesh, 8 switch')
    """
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return _UNIT.sub(" ", value, count=1) if isinstance(value, str) and value[:1].isdigit() else str(value)


def find_part(kind: str, name: str) -> Part:
    """Return one part of the catalogue; ``kind`` is a key of `PARTS`, and `UnknownNameError` names the nearest."""
    section, noun = PARTS[kind]
    return shipped_part(section, name, noun)


def list_parts(kind: str) -> list[tuple[str, str, str]]:
    """Return (name, one-line summary with units, source) of every part of a kind, a key of `PARTS`."""
    names = shipped_tables().names(PARTS[kind][0])
    return [(part.name, summary_of(part), part.source) for part in (find_part(kind, name) for name in names)]


def summary_of(part: Part) -> str:
    """Return what a part is, and what is known of it that matters most."""
    shown = [
        text.format(value_text(part.value(field)))
        for field, text in _SHOWN[part.section].items()
        if part.value(field) is not None
    ]
    return f"{part.description}: {', '.join(shown)}"
