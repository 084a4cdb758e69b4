"""The papers there are, by name."""

from __future__ import annotations

from s2sim.registry import Registry

PAPERS = Registry(
    "paper",
    "s2sim.papers",
    {
        "s2-reducer": "s2sim.study.papers.entries.s2_reducer.paper:PAPER",
        "does-it-pay": "s2sim.study.papers.entries.does_it_pay:PAPER",
        "deepreduce": "s2sim.study.papers.entries.deepreduce:PAPER",
        "dgc": "s2sim.study.papers.entries.dgc:PAPER",
        "gtopk": "s2sim.study.papers.entries.gtopk:PAPER",
        "ok-topk": "s2sim.study.papers.entries.ok_topk:PAPER",
        "omnireduce": "s2sim.study.papers.entries.omnireduce:PAPER",
        "powersgd": "s2sim.study.papers.entries.powersgd:PAPER",
        "random-block": "s2sim.study.papers.entries.random_block:PAPER",
        "sbc": "s2sim.study.papers.entries.sbc:PAPER",
        "spardl": "s2sim.study.papers.entries.spardl:PAPER",
        "topka2a": "s2sim.study.papers.entries.topka2a:PAPER",
    },
)
"""Names, and the `Paper` that each stands for."""
