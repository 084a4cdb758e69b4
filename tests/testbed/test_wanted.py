"""What somebody wants to have measured becomes tasks, and what cannot be measured is refused."""

import pytest

from s2sim.errors import S2SimError
from s2sim.testbed.measure import MeasurementTask, collective_task
from s2sim.testbed.series import RequestedMeasurements, parse_kinds, parse_sizes


def test_sizes_are_a_list_or_steps_of_four():
    assert parse_sizes("4MiB,1KiB, 1KiB") == (1024, 4 * 2**20)
    assert parse_sizes("1KiB-16MiB") == tuple(1024 * 4**step for step in range(8))
    assert parse_sizes("1KiB-1KiB") == (1024,)


@pytest.mark.parametrize("text", ["", "1KiB-", "16MiB-1KiB", "2B", "5GiB", "1KiB-4KiB-16KiB", "1024"])
def test_wrong_sizes_are_refused(text):
    with pytest.raises(S2SimError, match="--sizes"):
        parse_sizes(text)


def test_kinds_come_in_their_order():
    assert parse_kinds("reducers,collectives") == ("collectives", "reducers")
    with pytest.raises(S2SimError, match=r"--what 'reducer' is nothing that is measured \(did you mean 'reducers'"):
        parse_kinds("reducer")


def test_tasks_are_what_rows_will_be_of():
    wanted = RequestedMeasurements(
        ("collectives", "reducers", "iterations"),
        ("all_reduce", "all_to_all"),
        (1024, 4096),
        ("dense", "union", "dense"),
        "synthetic:density=0.1,rows=10,width=4,layers=1,dense=0",
        0.05,
    )
    tasks = wanted.tasks(3)
    assert tasks["collectives"] == [
        MeasurementTask("all_reduce", "", 0.0, 1024),
        MeasurementTask("all_reduce", "", 0.0, 4096),
        MeasurementTask("all_to_all", "", 0.0, 1020),
        MeasurementTask("all_to_all", "", 0.0, 4092),
    ]
    assert tasks["reducers"] == [MeasurementTask(name, wanted.trace, 0.0, 160) for name in ("dense", "union")]
    assert tasks["iterations"] == [MeasurementTask(name, wanted.trace, 0.05, 160) for name in ("dense", "union")]


def test_a_buffer_has_an_element_for_each_rank():
    assert collective_task("all_gather", 4, 8).payload_bytes == 32


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"collectives": ("all_redduce",)}, "did you mean 'all_reduce'"),
        ({"reducers": ("unoin",)}, "did you mean 'union'"),
        ({"reducers": ("union:h=4",)}, "what is measured is a step by itself"),
        ({"compute_s": 0.0}, "iterations compute before they exchange"),
    ],
)
def test_what_cannot_be_measured_is_refused(fields, told):
    with pytest.raises(S2SimError, match=told):
        RequestedMeasurements(("collectives", "reducers", "iterations"), **fields)
