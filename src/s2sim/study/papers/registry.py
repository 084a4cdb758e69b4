"""The papers there are, by name."""

from __future__ import annotations

from s2sim.registry import Registry

_ENTRIES = "s2sim.study.papers.entries"

PAPERS = Registry(
    "paper",
    "s2sim.papers",
    {
        "does-it-pay": f"{_ENTRIES}.does_it_pay:PAPER",
        "gtopk": f"{_ENTRIES}.gtopk:PAPER",
        "ok-topk": f"{_ENTRIES}.ok_topk:PAPER",
        "omnireduce": f"{_ENTRIES}.omnireduce:PAPER",
        "powersgd": f"{_ENTRIES}.powersgd:PAPER",
        "spardl": f"{_ENTRIES}.spardl:PAPER",
        "topka2a": f"{_ENTRIES}.topka2a:PAPER",
        "dgc": f"{_ENTRIES}.dgc:PAPER",
    },
)
"""Names, and the `Paper` that each stands for."""
