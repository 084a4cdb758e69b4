"""Stages one after another keep what each of them waits for."""

from __future__ import annotations

import dataclasses

import pytest

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.checker import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import group_of_all, joined
from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.catalogue import load_shape


@pytest.mark.parametrize("release", ["delivered", "sent"])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_reduce_scatter_and_an_all_gather_joined_are_an_all_reduce(release, ranks):
    cluster = build_cluster(load_shape("single-switch"), ranks)
    demand = Demand("all_reduce", (1000,) * ranks, 4)
    ring = make_algorithm(f"ring:chunks=2,release={release}" if release == "sent" else "ring:chunks=2", "all_reduce")
    whole = ring.schedule(demand, cluster)
    halves = [ring.stage(kind, group_of_all(demand), cluster) for kind in ("reduce_scatter", "all_gather")]
    both = dataclasses.replace(whole, stage=joined(halves))
    check_schedule(both)
    assert both.traffic()[0].sum() == whole.traffic()[0].sum()
