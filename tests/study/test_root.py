"""The search for a change of sign, beside SciPy's."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from scipy.optimize import brentq

from s2sim.experiment.break_even import find_root

SHAPES = {
    "cubic": lambda x, a, b, c: a * x**3 + b * x + c,
    "flat at both ends": lambda x, a, b, c: math.atan(a * x + b) + c / 3,
    "in steps": lambda x, a, b, _: round((a * x + b) * 50) / 7,
    "with a corner": lambda x, a, b, c: a * abs(x - b) + c,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_it_goes_where_scipy_goes(shape):
    generator = np.random.default_rng(1)
    found = 0
    while found < 200:
        (low, high), parts = generator.uniform(-4, 4, 2), generator.uniform(-3, 3, 3)
        tolerance = {"xtol": 1e-3 * abs(high), "rtol": 1e-3}
        ours: list[float] = []
        theirs: list[float] = []

        def function(x, parts=parts, to=theirs):
            to.append(x)
            return SHAPES[shape](x, *parts)

        ends = [(x, function(x, to=[])) for x in (low, high)]
        if ends[0][1] * ends[1][1] > 0:
            continue
        found += 1
        root = find_root(partial(function, to=ours), *ends, **tolerance)
        assert root == brentq(function, low, high, **tolerance)
        # SciPy asks at both ends first.
        assert ours == theirs[2:]
