"""Rings through a mesh use its links as evenly as can be: against counts of links, and brute force on small graphs."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from s2sim.topology.nvlink_mesh import path_orders, ring_orders

# Links of a DGX-1 with V100, and with P100.
CUBE_6 = [
    *[(0, 1), (0, 2), (0, 3), (0, 3), (0, 4), (0, 4), (1, 2), (1, 2), (1, 3), (1, 5), (1, 5), (2, 3), (2, 3)],
    *[(2, 6), (3, 7), (4, 5), (4, 6), (4, 7), (4, 7), (5, 6), (5, 6), (5, 7), (6, 7), (6, 7)],
]
CUBE_4 = [
    *[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (4, 5), (4, 6), (4, 7), (5, 6), (5, 7), (6, 7)],
    *[(0, 4), (1, 5), (2, 6), (3, 7)],
]


def lines_of(pairs, places):
    lines = np.zeros((places, places), int)
    for one, other in pairs:
        lines[one, other] += 1
        lines[other, one] += 1
    return tuple(map(tuple, lines.tolist()))


def complete(places, links=1):
    return lines_of([pair for pair in itertools.combinations(range(places), 2) for _ in range(links)], places)


def rate(lines, found):
    """Return what rings carry together, in links, when the busiest link is full."""
    load = np.zeros((len(lines), len(lines)))
    for order, share in found:
        assert sorted(order) == list(range(len(lines)))
        for one, other in zip(order, (*order[1:], order[0]), strict=True):
            assert lines[one][other]
            load[one, other] += share
    return sum(share for _, share in found) / (load / np.maximum(np.array(lines), 1)).max()


@pytest.mark.parametrize("places", range(2, 17))
def test_complete_meshes_are_full(places):
    lines = complete(places, 3)
    found = ring_orders(lines)
    assert rate(lines, found) == pytest.approx(3 * (places - 1))
    assert len(found) <= max(1, 2 * places - 2)


@pytest.mark.parametrize(("pairs", "links"), [(CUBE_6, 6), (CUBE_4, 4)])
def test_cube_meshes_are_full(pairs, links):
    lines = lines_of(pairs, 8)
    assert rate(lines, ring_orders(lines)) == pytest.approx(links)
    assert len(ring_orders(lines)) == links


@pytest.mark.parametrize("pairs", [[(0, 1), (2, 3)], [(0, 1), (1, 2)], [(0, 1), (1, 2), (2, 0), (2, 3)], []])
def test_links_that_close_no_ring_have_none(pairs):
    assert ring_orders(lines_of(pairs, 4)) == ()


@given(st.integers(3, 6).flatmap(lambda n: st.lists(st.sampled_from(list(itertools.combinations(range(n), 2))))))
def test_rings_carry_three_quarters_of_the_best_at_least(pairs):
    places = max((max(pair) for pair in pairs), default=2) + 1
    lines = lines_of(pairs, places)
    cycles = [
        order
        for order in ((0, *rest) for rest in itertools.permutations(range(1, places)))
        if all(lines[order[i - 1]][order[i]] for i in range(places))
    ]
    if places < 3 or not cycles:
        assert places < 3 or ring_orders(lines) == ()
        return
    arcs = [(i, j) for i in range(places) for j in range(places) if lines[i][j]]
    use = [[(i, j) in zip(order, (*order[1:], order[0]), strict=True) for order in cycles] for i, j in arcs]
    best = -linprog(-np.ones(len(cycles)), np.array(use, float), [lines[i][j] for i, j in arcs]).fun
    assert 0.75 * best <= rate(lines, ring_orders(lines)) <= best * (1 + 1e-9)


def orders_load(lines, orders):
    load = np.zeros((len(lines), len(lines)))
    for order in orders:
        assert sorted(order) == list(range(len(lines)))
        for one, other in itertools.pairwise(order):
            assert lines[one][other]
            load[one, other] += 1
    return (load / np.maximum(np.array(lines), 1)).max()


@pytest.mark.parametrize("places", [2, 4, 6, 8])
def test_lines_through_a_complete_mesh_share_no_link(places):
    lines = complete(places)
    orders = path_orders(lines, tuple(range(places)), tuple(range(places)))
    assert orders_load(lines, orders) == 1
    assert [order[0] for order in orders] == list(range(places))
    assert sorted(order[-1] for order in orders) == list(range(places))


@pytest.mark.parametrize("channels", [1, 2, 4, 8])
def test_lines_through_a_cube_mesh_follow_links_and_leave_by_all_interfaces(channels):
    lines, end_of = lines_of(CUBE_6, 8), tuple(place * channels // 8 for place in range(8))
    orders = path_orders(lines, tuple(range(0, 8, 8 // channels)), end_of)
    assert orders_load(lines, orders) <= max(1, channels / 4)
    assert sorted(end_of[order[-1]] for order in orders) == list(range(channels))


def test_of_more_gpus_than_meshes_join_no_rings_are_looked_for():
    assert ring_orders(complete(17)) == ()
    assert path_orders(lines_of([(0, 1), (1, 2)], 17), (0,), (0,) * 17) == (None,)


def test_a_place_from_which_no_line_leads_has_none():
    lines = lines_of([(0, 1), (1, 2)], 3)
    assert path_orders(lines, (0, 1), (0, 0, 0)) == ((0, 1, 2), None)
