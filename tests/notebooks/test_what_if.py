"""Every notebook runs from top to bottom, and what it shows is of the kind that it asks about."""

import importlib.util
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("marimo") is None, reason="needs the extra notebook"),
]

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def run(name):
    """Return what the cells of a notebook define."""
    spec = importlib.util.spec_from_file_location(name, NOTEBOOKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    began = time.process_time()
    defined = module.app.run()[1]
    assert time.process_time() - began < 20
    return defined


def test_more_rate_is_faster_and_more_latency_is_not():
    found = run("what_limits_my_fat_tree")["found"]
    dense = {change: result.results[0].time_s.total for change, result in found.items()}
    assert dense["nic.rate=200Gbps"] < dense[""] < dense["fabric.link.latency=1us"]


def test_every_reducer_has_its_error():
    defined = run("error_bytes_time")
    assert len(defined["rows"]) == len(defined["result"].results) == 11
    assert len(defined["picture"].axes) == 4


def test_no_all_reduce_is_faster_than_bandwidth_allows():
    defined = run("from_8_to_4096_gpus")
    times = [each.time_s for each in defined["timed"]["auto"]]
    assert times == sorted(times)
    assert all(each.time_s >= each.lower_bound_s for each in defined["timed"]["double-binary-tree"])
    assert {row.workers for row in defined["result"].results} == {8, 64, 256}


def test_the_reducer_obeys_the_laws():
    defined = run("your_own_reducer")
    assert defined["checked"] == "It obeys all laws of the conformance kit."
    own, dense = defined["rows"][:2]
    assert own["bytes sent by a rank"] < dense["bytes sent by a rank"] / 10
    assert dense["relative L2 error"] < 1e-6 < own["relative L2 error"]


def test_diloco_sends_least():
    rows = run("ddp_fsdp_or_diloco")["rows"]
    assert [row["way"] for row in rows] == ["DDP", "DDP, fp16", "FSDP", "diloco:h=4"]
    assert len({row["iteration"] for row in rows}) == 4
