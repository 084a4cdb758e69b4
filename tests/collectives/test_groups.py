"""Groups of ranks at work at once, and stages one after another."""

import dataclasses

import numpy as np
import pytest

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.check import check_schedule, run_on_values
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import Groups, group_of_all, joined, schedule_of
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape


@pytest.mark.parametrize("release", ["delivered", "sent"])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_reduce_scatter_and_an_all_gather_joined_are_an_all_reduce(release, ranks):
    cluster = build_cluster(load_shape("single-switch"), ranks)
    demand = Demand("all_reduce", (1000,) * ranks, 4)
    ring = make_algorithm(f"ring:chunks=2,release={release}" if release == "sent" else "ring:chunks=2", "all_reduce")
    whole = ring.schedule(demand, cluster)
    halves = [ring.stage(kind, group_of_all(demand)) for kind in ("reduce_scatter", "all_gather")]
    both = dataclasses.replace(whole, stage=joined(halves))
    check_schedule(both)
    assert both.traffic()[0].sum() == whole.traffic()[0].sum()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("bruck", "all_gather"),
        ("pat", "all_gather"),
        ("pat:aggregation=1", "all_gather"),
        ("halving-doubling", "all_gather"),
        ("direct", "all_gather"),
        ("direct", "all_reduce"),
    ],
)
def test_chunks_of_a_group_need_not_lie_side_by_side(text, kind):
    """Ranks 0, 2, 4 and 1, 3, 5 gather, or add up, stretches that stand in turn."""
    ranks = np.array([[0, 2, 4], [1, 3, 5]])
    begin = ranks * 10
    groups = Groups(ranks, begin, begin + 10, np.full((2, 3), 40.0))
    cluster = build_cluster(load_shape("single-switch"), 6)
    held = np.kron(np.eye(6, dtype=np.int64), np.ones((1, 10), np.int64)) * (1 + np.arange(60))
    if kind == "all_reduce":
        held = np.random.default_rng(0).integers(0, 1000, held.shape)
    stage = make_algorithm(text, kind).fitted(groups, cluster).stage(kind, groups)
    result = run_on_values(schedule_of(Demand("all_gather", (10,) * 6, 4), "a part", stage), held)
    for group, own in zip(ranks, begin[:, :, None] + np.arange(10), strict=True):
        part = own.ravel()
        np.testing.assert_array_equal(result[group][:, part], np.tile(held[group][:, part].sum(axis=0), (3, 1)))
