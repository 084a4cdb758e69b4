"""The papers there are, by name."""

from __future__ import annotations

from s2sim.registry import Registry

_ENTRIES = "s2sim.study.papers.entries"

PAPERS = Registry(
    "paper",
    "s2sim.papers",
    {
        "dgc": f"{_ENTRIES}.dgc:PAPER",
    },
)
"""Names, and the `Paper` that each stands for."""
