"""What a computation takes is said or refused before it begins."""

from __future__ import annotations

import pytest

from s2sim.cli.main import main
from s2sim.experiment import costs
from s2sim.experiment.costs import Cost, TooLargeError, collective_features, cost_of, make_gate, run_cost
from s2sim.experiment.scenario.reducers import resolve_run
from s2sim.experiment.spec import RunSpec


def cost(workers, **options):
    scenario = resolve_run(RunSpec("fat-tree", (workers,), trace="ncf", **options))
    return run_cost(scenario, [scenario.ranks_of(workers)])


def test_more_ranks_and_reducers_take_more():
    small, more_ranks = cost(8, reducers=("union",)), cost(4096, reducers=("union",))
    assert 0.1 < small.seconds < 5
    assert 3e7 < small.bytes < 3e8
    assert small < more_ranks < cost(4096, reducers=("union", "fp16", "topk"))
    exchange = cost_of("collective", collective_features("all_to_all", "pairwise", 4096))
    assert exchange.seconds > cost_of("collective", collective_features("all_reduce", "ring", 4096)).seconds


def test_what_is_long_or_large_is_said_and_what_is_too_large_refused(monkeypatch):
    monkeypatch.setattr(costs, "free_memory_bytes", lambda: 4e9)
    said = []
    gate = make_gate(said.append, force=False)
    gate(Cost(1.0, 1e9))
    assert said == []
    gate(Cost(100.0, 1e9))
    gate(Cost(1.0, 3e9))
    assert said == [
        "this takes about 100 s of CPU and 1 GB of memory",
        "this takes about 1 s of CPU and 3 GB of memory",
    ]
    with pytest.raises(TooLargeError, match=r"takes about 1 s of CPU and 5 GB of memory, and 4 GB are free: .*--force"):
        gate(Cost(1.0, 5e9))
    make_gate(said.append, force=True)(Cost(1.0, 5e9))
    assert len(said) == 3


def test_a_command_refuses_before_it_begins(monkeypatch, capsys):
    monkeypatch.setattr(costs, "free_memory_bytes", lambda: 1e6)
    assert main(["collective", "all_reduce", "--topology", "fat-tree", "--workers", "8", "--size", "1MiB"]) == 2
    assert "are free" in capsys.readouterr().err
    assert main(["run", "--topology", "fat-tree", "--workers", "8", "--reducer", "union"]) == 2
    assert "are free" in capsys.readouterr().err
