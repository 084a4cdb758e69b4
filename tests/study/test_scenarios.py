"""Scenarios S1 to S5, which other simulators were measured on, and their like, against closed forms."""

import math
from pathlib import Path

import pytest

from s2sim.traffic.collective_run import run_collective

SCENARIOS = Path(__file__).parents[1] / "scenarios"
SIZE = 104_857_600
RATE_BPS = 50 * 2**30
COUNTS = (16, 64, 256, 1024)
WITHIN = 1e-6  # a hundredth of what is promised


def time_s(scenario, workers, algorithm="ring", kind="all_reduce", size=SIZE, **options):
    path = str(SCENARIOS / f"{scenario}.toml")
    return run_collective(kind, path, workers=workers, size_bytes=size, algorithm=algorithm, **options).time_s


def ring_s(workers, latency_s, share=1.0):
    return 2 * (workers - 1) * (latency_s + share * SIZE / (workers * RATE_BPS))


def sides(workers, ratio=2):
    side = math.isqrt(workers)
    return [f"fabric.hosts_per_leaf={side}", f"fabric.uplinks_per_leaf={side // ratio}"]


@pytest.mark.parametrize("workers", COUNTS)
@pytest.mark.parametrize("scenario", ["s1-ring", "s1-crossbar"])
def test_s1(scenario, workers):
    assert time_s(scenario, workers) == pytest.approx(ring_s(workers, 500e-9), rel=WITHIN)


def test_s1_is_what_other_simulators_found():
    """Closed form of reference tables: 3677.109, 3908.215, 4145.991, 4925.435, 8000.296 us."""
    found = [time_s("s1-crossbar", workers) * 1e6 for workers in (*COUNTS, 4096)]
    assert found == pytest.approx([3677.109, 3908.215, 4145.991, 4925.435, 8000.296], rel=WITHIN)


@pytest.mark.parametrize("workers", COUNTS)
def test_s2(workers):
    assert time_s("s2-switch", workers) == pytest.approx(ring_s(workers, 1e-6), rel=WITHIN)


@pytest.mark.parametrize("workers", COUNTS)
@pytest.mark.parametrize("routing", ["d-mod-k", "spray"])
def test_s3_one_flow_leaves_each_leaf(workers, routing):
    overrides = [*sides(workers), f"routing={routing}"]
    assert time_s("s3-fat-tree", workers, overrides=overrides) == pytest.approx(ring_s(workers, 1e-6), rel=WITHIN)


@pytest.mark.parametrize("workers", [16, 64, *(pytest.param(count, marks=pytest.mark.slow) for count in COUNTS[2:])])
@pytest.mark.parametrize("routing", ["d-mod-k", "spray"])
@pytest.mark.parametrize("ratio", [1, 2, 4])
def test_s4_every_hop_crosses_the_oversubscribed_core(workers, routing, ratio):
    overrides = [*sides(workers, ratio), f"routing={routing}"]
    found = time_s("s3-fat-tree", workers, overrides=overrides, placement="round-robin")
    assert found == pytest.approx(ring_s(workers, 1e-6, share=ratio), rel=WITHIN)


@pytest.mark.parametrize("workers", COUNTS)
def test_s5_halving_doubling_in_any_order_of_distances(workers):
    expected = 2 * math.log2(workers) * 1e-6 + 2 * (workers - 1) / workers * SIZE / RATE_BPS
    for order in ("", ":distance=near-first", ":distance=far-first"):
        assert time_s("s2-switch", workers, f"halving-doubling{order}") == pytest.approx(expected, rel=WITHIN)


@pytest.mark.parametrize("workers", COUNTS)
@pytest.mark.parametrize(
    ("kind", "algorithm", "rounds", "share"),
    [
        ("all_gather", "ring", lambda n: n - 1, lambda n: 1 / n),
        ("reduce_scatter", "ring", lambda n: n - 1, lambda n: 1 / n),
        ("all_reduce", "recursive-doubling", math.log2, lambda _: 1),
        ("broadcast", "binomial", math.log2, lambda _: 1),
        ("reduce", "binomial", math.log2, lambda _: 1),
    ],
)
def test_alpha_beta_forms_on_one_switch(workers, kind, algorithm, rounds, share):
    expected = rounds(workers) * (1e-6 + share(workers) * SIZE / RATE_BPS)
    assert time_s("s2-switch", workers, algorithm, kind) == pytest.approx(expected, rel=WITHIN)


@pytest.mark.parametrize("workers", [16, 64, 256])
def test_pairwise_exchange_on_one_switch(workers):
    expected = (workers - 1) * (1e-6 + SIZE / workers / RATE_BPS)
    assert time_s("s2-switch", workers, "pairwise", "all_to_all") == pytest.approx(expected, rel=WITHIN)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("workers", [3, 1000, 1023])
@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "bruck", "pat"])
def test_parts_that_do_not_divide_count_their_nominal_share(kind, workers, algorithm):
    size = 2**20
    found = run_collective(
        kind, str(SCENARIOS / "s2-switch.toml"), workers=workers, size_bytes=size, algorithm=algorithm
    )
    assert found.time_s == pytest.approx(found.closed_form_s, rel=WITHIN, abs=3000e-12)
    if algorithm == "ring":
        assert found.time_s == pytest.approx((workers - 1) * (1e-6 + size / workers / RATE_BPS), rel=WITHIN)


@pytest.mark.parametrize("most_messages", [1000, pytest.param(None, marks=pytest.mark.slow)])
def test_many_ranks_exchange_pairwise_where_all_at_once_is_too_much(most_messages, monkeypatch):
    if most_messages:
        monkeypatch.setattr("s2sim.collectives.schedules.groups._MAX_AT_ONCE", most_messages)
    workers = 40 if most_messages else 1500
    found = run_collective("all_to_all", str(SCENARIOS / "s2-switch.toml"), workers=workers, size_bytes=workers)
    assert found.algorithm == "pairwise"
    assert "spread cannot run" in found.why
