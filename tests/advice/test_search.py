"""The search for the cheapest combination finds what trying all of them finds."""

from itertools import product
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.advice.search import Changes, CheapestSearch, changed_spec, last_that_holds, pareto
from s2sim.errors import OptionError
from s2sim.experiment.choice import WORTHWHILE
from s2sim.experiment.spec import RunSpec

STEPS = st.lists(st.integers(0, 5), min_size=1, max_size=5)


@pytest.mark.parametrize("sets", ["nic.count = 4", ["nic.count=4", "routing=ecmp"]])
def test_an_option_with_set_is_one_with_its_fields(sets):
    base = RunSpec.of("leaf-spine", workers=(8,), overrides=("nic.rate=10Gbps", "nic.count=2"))
    change = {"name": "interfaces", "options": [{"set": sets, "price": "90 USD/node"}]}
    known = Changes.load({"change": [change]}, nodes=2, workers=8)
    option = known.changes[0].options[1]
    assert (option.fields["nic.count"], option.price) == ("4", 180)
    rest = () if isinstance(sets, str) else ("routing=ecmp",)
    assert set(changed_spec(base, option.fields).overrides) == {"nic.rate=10Gbps", "nic.count=4", *rest}
    with pytest.raises(OptionError, match=r"two changes have nic\.count"):
        Changes.load({"change": [change, {"name": "again", "options": [{"nic.count": 8}]}]}, nodes=2, workers=8)


def cheapest_of_all(prices, times, target):
    points = product(*(range(len(axis)) for axis in prices))
    priced = [(sum(axis[i] for axis, i in zip(prices, point, strict=True)), times(point), point) for point in points]
    return min((item for item in priced if item[1] <= target), default=None)


@given(
    axes=st.lists(STEPS, min_size=1, max_size=3),
    others=st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=3), max_size=2),
    target=st.integers(0, 30),
    data=st.data(),
)
def test_it_finds_what_trying_all_finds(axes, others, target, data):
    """Along some axes times fall with the price, along others they are anything; some combinations are refused."""
    prices = [[sum(axis[:level]) + level for level in range(len(axis) + 1)] for axis in axes]
    prices += [
        [0, *data.draw(st.lists(st.integers(0, 3), min_size=len(axis) - 1, max_size=len(axis) - 1))] for axis in others
    ]
    falls = [[sum(axis[level:]) for level in range(len(axis) + 1)] for axis in axes] + others
    corners = [(0, len(axis) - 1) for axis in prices]
    refused = data.draw(st.sets(st.tuples(*map(st.sampled_from, corners)), max_size=2))

    def times(point):
        return inf if point in refused else sum(axis[level] for axis, level in zip(falls, point, strict=True))

    search = CheapestSearch(prices, times, target)
    found, best = search.run(), cheapest_of_all(prices, times, target)
    assert (found is None) == (best is None)
    if found is not None:
        assert (search.price(found), times(found)) == best[:2]


@given(st.lists(st.lists(st.sampled_from([1, 2, 3, inf]), min_size=3, max_size=3), min_size=3, max_size=3))
def test_an_axis_that_is_contradicted_is_searched_whole(table):
    """All is monotone along the first row and column, and anything beyond."""
    table[0] = table[0][:1] + [min(table[0][0], 2)] * 2
    for row in table[1:]:
        row[0] = table[0][0]
    prices = [[0, 1, 2], [0, 1, 2]]
    search = CheapestSearch(prices, lambda point: table[point[0]][point[1]], 1.5)
    found = search.run()
    for low, high in product(search.tried, search.tried):
        axes = {axis for axis in (0, 1) if low[axis] != high[axis]}
        if axes and axes <= search.monotone and low[0] <= high[0] and low[1] <= high[1]:
            assert search.tried[high] <= search.tried[low]
    if found is not None:
        assert search.tried[found] <= 1.5


def test_few_of_many_are_tried():
    prices = [[0, 1, 2, 4, 8, 16, 32, 64, 128, 256]] * 3
    search = CheapestSearch(prices, lambda point: 30.0 - sum(point), 12.0)
    found = search.run()
    assert sum(found) == 18
    assert search.price(found) == cheapest_of_all(prices, lambda point: 30.0 - sum(point), 12.0)[0]
    assert len(search.tried) < 200


@given(st.integers(0, 40), st.integers(1, 40))
def test_the_last_that_holds_is_found_by_doubling_and_halving(last, most):
    asked = []
    found = last_that_holds(lambda number: asked.append(number) or number <= last, most)
    assert found == (min(last, most) or None)
    assert max(asked) <= most
    assert len(asked) <= 13


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=12))
def test_the_front_has_what_no_other_betters(points):
    kept = {points[place] for place in pareto(points)}
    for point in points:
        bettered = any(other != point and all(a <= b for a, b in zip(other, point, strict=True)) for other in points)
        assert (point in kept) != bettered


@given(st.lists(st.tuples(st.integers(1000, 1050), st.integers(0, 3), st.integers(0, 3)), max_size=12))
def test_times_that_no_model_can_tell_apart_are_equal_on_the_front(points):
    kept = pareto(points)
    assert [points[place][0] for place in kept] == sorted(points[place][0] for place in kept)

    def no_worse(one, other):
        return one[0] <= other[0] * WORTHWHILE and one[1] <= other[1] and one[2] <= other[2]

    for place, point in enumerate(points):
        betters = [other for other in kept if no_worse(points[other], point) and other != place]
        assert (place in kept) != bool(betters)
        alike = [at for at, other in enumerate(points) if other == point]
        assert place not in kept or place == alike[0]
