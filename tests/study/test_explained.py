"""Which terms explain a difference: scales that were put in come out, and what rows do not tell stays as it is."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.timing.terms import Term
from s2sim.validation.compare_log_result import attribute_errors, unattributed_s

US = 10**6
SIZES = [2**power for power in range(3, 31, 3)]


def terms_of(size_bytes, protocol="LL"):
    """Return the terms of a size: a launch, hops of a protocol, wires, and bytes."""
    return (
        Term("launch", "collective", 1, 5 * US, (("launch.collective", 1),)),
        Term("hop", f"{protocol} over nvlink", 14, (20 if protocol == "LL" else 60) * US, ()),
        Term("wire latency", "nvlink", 14, 1 * US, ()),
        Term("wire latency", "nic", 2, 2 * US, ()),
        Term("bytes", "nic", size_bytes, size_bytes * 20, ()),
        Term("hop", "path switch", 1, 0, ()),
    )


def measured(rows, **times):
    """Return the seconds of rows whose kinds of term take so many times as long."""
    return [sum(term.ps * times.get(term.kind, 1.0) for term in row) / 1e12 for row in rows]


def by_name(scales):
    return {(scale.kind, scale.of): scale for scale in scales}


def test_bytes_that_are_slower_are_told_from_latencies():
    rows = [terms_of(size) for size in SIZES]
    scales, _ = attribute_errors(rows, measured(rows, bytes=1.3))
    found = by_name(scales)
    assert found["bytes", "nic"].scale == pytest.approx(1.3, rel=0.01)
    assert found["launch", "collective"].scale == pytest.approx(1, abs=0.01)
    assert found["bytes", "nic"].explains == pytest.approx(1, abs=0.03)
    # A term that takes no time is none of a row.
    assert ("hop", "path switch") not in found


def test_what_is_the_same_at_all_sizes_is_told_together():
    rows = [terms_of(size) for size in SIZES]
    scales, _ = attribute_errors(rows, measured(rows, launch=3))
    launch, hop, wire, data = scales
    assert (launch.told_with, hop.told_with, wire.told_with, data.told_with) == (0, 0, 0, 3)
    assert launch.scale == hop.scale == wire.scale == pytest.approx(38 / 28, rel=0.02)
    assert (wire.kind, wire.of) == ("wire latency", "all links")


def test_protocols_tell_a_launch_from_hops():
    rows = [terms_of(size, protocol) for size in SIZES[:5] for protocol in ("LL", "Simple")]
    scales, _ = attribute_errors(rows, measured(rows, hop=1.5))
    found = by_name(scales)
    assert found["hop", "Simple over nvlink"].scale == pytest.approx(1.5, abs=0.05)
    assert found["launch", "collective"].scale < 1.3 < found["hop", "LL over nvlink"].scale


def test_a_row_that_something_disturbed_does_not_decide():
    rows = [terms_of(size) for size in SIZES]
    times_s = measured(rows, bytes=1.3)
    times_s[1] *= 4
    scales, parts = attribute_errors(rows, times_s)
    found = by_name(scales)
    assert found["bytes", "nic"].scale == pytest.approx(1.3, abs=0.03)
    assert found["launch", "collective"].scale == pytest.approx(1, abs=0.05)
    assert abs(unattributed_s(0.0, parts[1])) < times_s[1] / 10


def test_a_term_never_takes_less_than_nothing():
    rows = [terms_of(size) for size in SIZES]
    scales, parts = attribute_errors(rows, [1e-7] * len(rows))
    assert all(scale.scale >= 0 for scale in scales)
    assert all(0 <= term.difference_s <= term.simulated_s for row in parts for term in row)


def test_without_terms_there_is_nothing_to_tell():
    assert attribute_errors([(), ()], [1e-6, 2e-6]) == ([], [(), ()])


@given(st.lists(st.tuples(st.sampled_from(SIZES), st.floats(1e-9, 1e4)), min_size=1, max_size=8))
def test_terms_and_what_none_explains_are_the_difference_whatever_was_measured(rows):
    terms = [terms_of(size) for size, _ in rows]
    scales, parts = attribute_errors(terms, [time_s for _, time_s in rows])
    assert all(math.isfinite(scale.scale) and math.isfinite(scale.explains) for scale in scales)
    for (_, time_s), row, found in zip(rows, terms, parts, strict=True):
        simulated_s = sum(term.ps for term in row) / 1e12
        left_s = unattributed_s(simulated_s - time_s, found)
        total_s = math.fsum([*(term.difference_s for term in found), left_s])
        assert total_s == pytest.approx(simulated_s - time_s, rel=1e-9, abs=1e-18)
        assert sum(term.simulated_s for term in found) == pytest.approx(simulated_s, rel=1e-12)
