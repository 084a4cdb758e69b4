"""What a spec names is looked up once, and travels as a value."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

import s2sim
from s2sim.experiment.run import resolve_checked
from s2sim.experiment.scenario.reducers import ReducerSpec, resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.reducers.systems.dense import Dense
from s2sim.regimes.map import RegimeSpec
from s2sim.regimes.run import run_regimes
from s2sim.simulation.faults.registry import make_faults
from s2sim.traffic.flows import simulate_transfers
from s2sim.traffic.networks import Transfers
from s2sim.traffic.spec import FlowsSpec

SMALL = "synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400"
FAULTS = ("slow-link:link=node0.nic0.out,factor=0.5", "slow-rank:rank=1,factor=2")
SPEC = RunSpec(
    "leaf-spine",
    (9, 16),
    ("dense", "union", "s2:rows=3,cells=2"),
    SMALL,
    collective="ring:chunks=2",
    library="nccl:or=owners",
    compute="1ms",
    overrides=("nic.rate=25Gbps",),
    faults=FAULTS,
)

PARSERS = {
    "topology": "s2sim.experiment.scenario.cluster.load_shape",
    "fault": "s2sim.simulation.faults.registry.make_fault",
    "library": "s2sim.experiment.scenario.cluster.choose_library",
    "gpu": "s2sim.experiment.scenario.cluster.load_gpu",
    "trace": "s2sim.experiment.scenario.reducers.load_trace",
    "reducer": "s2sim.experiment.scenario.reducers.make_reducer",
    "algorithm": "s2sim.collectives.algorithms.registry.read_algorithm",
    "cluster": "s2sim.experiment.scenario.cluster.build_cluster",
}


@pytest.fixture
def parses(monkeypatch):
    """Count how often each thing that a spec names is looked up or built, anywhere."""
    import importlib
    import sys

    counts = Counter()
    for what, path in PARSERS.items():
        module, _, name = path.rpartition(".")
        real = getattr(importlib.import_module(module), name)

        def counted(*arguments, _what=what, _real=real, **options):
            # Names that auto tries are no option strings.
            counts[_what] += _what != "algorithm" or ":" in arguments[0]
            return _real(*arguments, **options)

        for each in [each for key, each in sys.modules.items() if key.startswith("s2sim.")]:
            if getattr(each, name, None) is real:
                monkeypatch.setattr(each, name, counted)
    return counts


def test_a_run_looks_everything_up_once(parses):
    s2sim.run(spec=SPEC, break_even=False)
    assert +parses == {
        "topology": 1,
        "fault": len(FAULTS),
        "library": 1,
        "gpu": 1,
        "trace": 1,
        "reducer": len(SPEC.reducers),
        "algorithm": 1,
        "cluster": len(SPEC.workers),
    }


@pytest.mark.slow
def test_break_even_builds_clusters_and_looks_nothing_up(parses):
    s2sim.run(spec=SPEC)
    assert parses.pop("cluster") > len(SPEC.workers)
    assert set((+parses).values()) == {1, len(FAULTS), len(SPEC.reducers)}


def test_a_collective_and_flows_look_everything_up_once(parses):
    faults = (*FAULTS[:1], "slow-rank:rank=1,delay=1ms")
    s2sim.run_collective(
        "all_reduce", "leaf-spine", workers=16, size_bytes=4096, algorithm="ring:chunks=2", faults=faults
    )
    assert +parses == {"topology": 1, "fault": 2, "algorithm": 1, "cluster": 1}
    parses.clear()
    transfers = Transfers(*(np.array([value]) for value in (0, 0, 9, 1e6)))
    simulate_transfers(FlowsSpec("leaf-spine", workers=16, faults=faults[:1]), transfers)
    assert +parses == {"topology": 1, "fault": 1, "cluster": 1}


def test_a_map_looks_everything_up_once_and_the_topology_once_a_network(parses):
    axes = {"densities": (0.01, 0.05), "overlaps": (1.0,), "rates": ("10Gbps", "100Gbps"), "latencies": ("1us",)}
    reducers = ("dense", "union")
    run_regimes(RegimeSpec("fat-tree", 8, rows=600, width=4, reducers=reducers, library="nccl", **axes))
    assert +parses == {"topology": 2, "library": 1, "gpu": 1, "reducer": 2, "cluster": 2}


def test_a_scenario_pickles():
    scenario = resolve_checked(SPEC)
    again = pickle.loads(pickle.dumps(scenario))
    assert again.shape == scenario.shape
    assert again.faults == scenario.faults == make_faults(FAULTS)
    assert again.reducers == scenario.reducers
    assert (again.cluster(16).fabric.rate_Bps == scenario.cluster(16).fabric.rate_Bps).all()
    assert (again.trace.gradient(0, 3).layers[1] == scenario.trace.gradient(0, 3).layers[1]).all()


@dataclass(slots=True)
class Neighbours(Dense):
    """Knows the nodes of all ranks."""

    nodes: tuple[int, ...] = field(init=False, default=())

    def placed(self, nodes):
        again = self.fresh()
        again.nodes = tuple(nodes)
        return again


def test_reducers_know_which_ranks_share_a_node():
    for placement in ("linear", "random"):
        scenario = resolve_run(RunSpec("fat-tree", (6,), ("dense",), SMALL, placement=placement))
        scenario = replace(scenario, reducers=(ReducerSpec("dense", Neighbours()),))
        for workers in (6, 3):
            (asked,) = scenario.reducers_on(workers)
            assert asked.reducer.nodes == tuple(scenario.cluster(workers).node_of_rank)
    assert Neighbours().nodes == (), "placing one changes another"
