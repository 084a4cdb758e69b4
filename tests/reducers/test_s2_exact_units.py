"""Units that are carried over: their groups, and which keys they did not serve."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.quantize import RANGE_PARTS
from s2sim.reducers.shared.exact_sketch import groups_to_resend, regroup_maxima


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 40))
def test_a_new_group_takes_the_largest_bound_of_those_it_meets(maxima, groups):
    found = len(maxima)

    def meet(old, new):
        return old * groups < (new + 1) * found and new * found < (old + 1) * groups

    expected = [max(maxima[old] for old in range(found) if meet(old, new)) for new in range(groups)]
    assert regroup_maxima(np.array(maxima, np.float64), groups).tolist() == expected


def test_units_are_judged_by_the_noise_of_all_groups():
    exponents = np.array([10, 10, 10], np.int16)

    def judge(*parts):
        return groups_to_resend(np.array(parts, np.int32), exponents).tolist()

    half = RANGE_PARTS // 2
    assert judge(half, half, half) == [False] * 3
    assert judge(half, RANGE_PARTS, half) == [False, True, False]
    # One group that has become small leaves no more noise than the others.
    assert judge(half, half, 1) == [False] * 3
    assert judge(100, 100, 100) == [True] * 3
    assert judge(RANGE_PARTS, 100, 0) == [True, True, False]
    assert judge(0, 0, 0) == [False] * 3
