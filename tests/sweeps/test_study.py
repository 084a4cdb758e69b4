"""Studies: the cells that axes, zips, conditions and samples make."""

from datetime import date

import pytest

from s2sim.errors import OptionError, S2SimError
from s2sim.sweeps.study import Study

BASE = {"topology": "leaf-spine", "trace": "ncf", "reducers": ["union"]}


def cells(**study):
    return Study.load({"base": BASE, **study}).cells()


def values(name, **study):
    return [cell.axes[name] for cell in cells(**study)]


def test_axes_are_combined_the_last_one_fastest():
    found = cells(axes={"workers": [2, 4], "nic.rate": ["10Gbps", "25Gbps"]})
    assert [tuple(cell.axes.values()) for cell in found] == [(2, "10Gbps"), (2, "25Gbps"), (4, "10Gbps"), (4, "25Gbps")]
    assert [cell.number for cell in found] == [0, 1, 2, 3]
    assert found[3].spec.workers == (4,)
    assert found[3].spec.overrides == ("nic.rate=25Gbps",)


def test_topology_fields_need_no_quotes():
    (cell,) = cells(axes={"nic": {"rate": ["10Gbps"]}, "workers": [2]})
    assert cell.spec.overrides == ("nic.rate=10Gbps",)


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ({"geometric": ["10Gbps", "1000Gbps", 3]}, ["10Gbps", "100Gbps", "1000Gbps"]),
        ({"geometric": ["100Mbps", "10Gbps", 3]}, ["100Mbps", "1000Mbps", "10000Mbps"]),
        ({"linear": ["1us", "3us", 3]}, ["1us", "2us", "3us"]),
        ({"range": [8, 32, 8]}, [8, 16, 24, 32]),
        ({"geometric": [8, 64, 4]}, [8, 16, 32, 64]),
        ({"linear": [0.0, 1.0, 3]}, [0.0, 0.5, 1.0]),
        ({"geometric": ["1KiB", "4KiB", 3]}, ["1024B", "2048B", "4096B"]),
        ({"linear": [1, 2, 5]}, [1, 1.25, 1.5, 1.75, 2]),
        ({"range": [1, 2, 0.5]}, [1, 1.5, 2]),
        ({"geometric": [1, 4, 2]}, [1, 4]),
        ({"geometric": ["10Gbps", "100Gbps", 3]}, ["10Gbps", "31.6228Gbps", "100Gbps"]),
        ({"linear": ["1us", "2us", 4]}, ["1us", "1.33333us", "1.66667us", "2us"]),
        ({"range": ["1234567us", "3234567us", "1000000us"]}, ["1234567us", "2234567us", "3234567us"]),
    ],
)
def test_values_are_spread_with_their_units(axis, expected):
    assert values("x.y", base=BASE | {"workers": 2}, axes={"x.y": axis}) == expected


@pytest.mark.parametrize(
    ("axis", "said"),
    [
        ([], "is a list"),
        ({"geometric": [0, 1, 3]}, "above 0"),
        ({"geometric": ["10Gbps", "1s", 3]}, "neither"),
        ({"range": [1, 2, 0]}, "no value"),
        ({"linear": [1, 2, 0]}, "no number of values"),
        ({"geometric": [1, 2]}, "write"),
        ({"linear": ["1B", "2B", 3]}, "are the same"),
    ],
)
def test_wrong_axes_are_refused(axis, said):
    with pytest.raises(OptionError, match=said):
        cells(axes={"x.y": axis})


def test_values_are_whole_where_the_field_is():
    assert values("max_error", base=BASE | {"workers": 2}, axes={"max_error": {"linear": [0, 1, 3]}}) == [0, 0.5, 1]
    assert values("workers", axes={"workers": {"geometric": [8, 32, 4]}}) == [8, 13, 20, 32]
    (count,) = values("node.gpus", base=BASE | {"workers": 2}, axes={"node.gpus": {"geometric": [4, 4, 1]}})
    assert isinstance(count, int)
    with pytest.raises(OptionError, match="are the same"):
        cells(axes={"workers": {"linear": [1, 3, 9]}})


def test_conditions_keep_cells():
    axes = {"workers": [2, 4, 8], "tp": [1, 2, 4], "nic.rate": ["9Gbps", "25Gbps"]}
    found = cells(axes=axes, where={"fits": "workers % tp == 0", "fast": "nic.rate > '10Gbps' and tp < 4"})
    assert [(cell.axes["workers"], cell.axes["tp"]) for cell in found] == [
        (2, 1),
        (2, 2),
        (4, 1),
        (4, 2),
        (8, 1),
        (8, 2),
    ]
    assert {cell.axes["nic.rate"] for cell in found} == {"25Gbps"}


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("__import__('os')", "Call is not allowed"),
        ("workers.__class__", "is no name"),
        ("wrokers > 1", "workers"),
        ("workers >", "no condition"),
        ("9**9", "Pow is not allowed"),
        ("'a' * 999999999999 == 'a'", "'a' is none"),
        ("[1] * 99999999999 == 1", "arithmetic is on numbers"),
        ("'%999999999999d' % workers == 1", "arithmetic is on numbers"),
        ("not " * 50_000 + "workers", "nested too deeply"),
        ("workers > '1Gbps'", "not supported"),
        ("topology > '1Gbps'", "no quantities"),
        (f"workers < {'9' * 400} / 1.5", "too large"),
    ],
)
def test_conditions_are_comparisons_and_nothing_else(condition, said):
    with pytest.raises(OptionError, match=said):
        cells(axes={"workers": [2]}, where={"keep": condition})


def test_fields_that_go_together():
    found = cells(axes={"seed": [0, 1]}, zip={"workers": [2, 4], "gpu": ["a100", "h100"]})
    assert [(cell.axes["workers"], cell.axes["gpu"], cell.axes["seed"]) for cell in found] == [
        (2, "a100", 0),
        (4, "h100", 0),
        (2, "a100", 1),
        (4, "h100", 1),
    ]
    with pytest.raises(OptionError, match="different lengths"):
        cells(zip={"workers": [2], "gpu": ["a100", "h100"]})


def test_a_sample_lies_within_the_axes_and_fills_them():
    axes = {"workers": [2, 4], "nic.rate": {"geometric": ["10Gbps", "1000Gbps", 2]}}
    found = cells(axes=axes, sample={"cells": 16, "seed": 3})
    assert len(found) == 16
    assert [cell.axes["workers"] for cell in found].count(2) == 8
    rates = sorted(float(cell.axes["nic.rate"].removesuffix("Gbps")) for cell in found)
    assert 10 <= rates[0] < 20
    assert 500 < rates[-1] <= 1000
    again = cells(axes=axes, sample={"cells": 16, "seed": 3})
    assert [cell.axes for cell in again] == [cell.axes for cell in found]


def test_a_sample_of_a_range_has_its_values():
    found = values("workers", axes={"workers": {"range": [8, 64, 8]}}, sample={"cells": 8})
    assert sorted(found) == list(range(8, 65, 8))


def test_fewer_cells_of_a_sequence_are_its_first_ones():
    found = [
        values("seed", axes={"seed": {"range": [0, 63, 1]}}, sample={"cells": n, "method": "sobol"}) for n in (3, 8)
    ]
    assert found[0] == found[1][:3]


def test_option_names_are_fields_too():
    (cell,) = cells(base={"topology": "leaf-spine", "workers": 2, "reducer": "union", "set": "nic.rate=10Gbps"})
    assert (cell.spec.reducers, cell.spec.overrides) == (("union",), ("nic.rate=10Gbps",))


def test_a_cell_that_makes_no_spec_has_the_reason():
    good, bad = cells(axes={"workers": [2, 0]})
    assert good.problem is None
    assert "at least 1" in bad.problem


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ({"axes": {"wrokers": [1]}}, "did you mean 'workers'"),
        ({"axes": {"trace": ["ncf"]}}, "given twice"),
        ({"axis": {}}, "axis"),
        ({"what": "flows"}, "what"),
        ({"axes": {"workers": [2]}, "where": {"keep": "workers > 2"}}, "no cell is left"),
        ({"axes": {"workers": {"range": [1, 2000, 1]}, "seed": {"range": [1, 2000, 1]}}}, "4,000,000 cells, above"),
        ({"axes": {"workers": [2, 4]}, "sample": {"cells": 2_000_000}}, "2,000,000 cells, above"),
        ({"axes": {"workers": [2]}, "where": {"date": date(2026, 1, 1)}}, "date"),
        ({"axes": {"workers": [2, 4]}, "sample": {"cells": 2, "seed": -1}}, "with a seed from 0"),
        ({"axes": {"workers": [2]}, "base": BASE | {"instead": ["nic.count=2"]}}, r"such as nic\.count, in \[axes\]"),
    ],
)
def test_wrong_studies_are_refused(study, said):
    with pytest.raises(S2SimError, match=said):
        cells(**study)


def test_groups_are_made_of_their_sizes():
    found = cells(axes={"tp": [1, 2]}, base=BASE | {"workers": 8, "profile": "gpt2"})
    assert [cell.spec.groups for cell in found] == [None, "dp=rest,tp=2"]
    found = cells(axes={"dp": [2, 8]}, base=BASE | {"workers": 8})
    assert [cell.spec.groups for cell in found] == ["dp=2", "dp=8"]


def test_parallel_ranks_are_whole_numbers():
    study = Study.load(
        {
            "what": "run",
            "base": {"topology": "dgx-h100", "workers": 8, "profile": "gpt2"},
            "axes": {"tp": {"linear": [1, 4, 3]}},
        }
    )
    assert [cell.spec.groups for cell in study.cells()] == [None, "dp=rest,tp=2", "dp=rest,tp=4"]
