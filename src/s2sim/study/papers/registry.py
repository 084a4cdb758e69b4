"""The papers there are, by name."""

from __future__ import annotations

from s2sim.registry import Registry

_ENTRIES = "s2sim.study.papers.entries"

PAPERS = Registry(
    "paper",
    "s2sim.papers",
    {
        "s2-reducer": f"{_ENTRIES}.s2_reducer.paper:PAPER",
        "does-it-pay": f"{_ENTRIES}.does_it_pay:PAPER",
        "deepreduce": f"{_ENTRIES}.deepreduce:PAPER",
        "dgc": f"{_ENTRIES}.dgc:PAPER",
        "gtopk": f"{_ENTRIES}.gtopk:PAPER",
        "ok-topk": f"{_ENTRIES}.ok_topk:PAPER",
        "omnireduce": f"{_ENTRIES}.omnireduce:PAPER",
        "powersgd": f"{_ENTRIES}.powersgd:PAPER",
        "random-block": f"{_ENTRIES}.random_block:PAPER",
        "sbc": f"{_ENTRIES}.sbc:PAPER",
        "spardl": f"{_ENTRIES}.spardl:PAPER",
        "topka2a": f"{_ENTRIES}.topka2a:PAPER",
    },
)
"""Names, and the `Paper` that each stands for."""
