"""Rows stay however a measurement ends, and it goes on where it ended; its processes do not outlive it."""

import os
import signal
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from math import inf
from pathlib import Path

import pytest

from s2sim.errors import S2SimError
from s2sim.pytorch.launch import ProcessPlace
from s2sim.testbed import series as session
from s2sim.testbed.layout import NetworkLayout
from s2sim.testbed.measure import COLLECTIVES, Repetitions
from s2sim.testbed.measured import MeasuredSetting, add_row, read_measured
from s2sim.testbed.series import RequestedMeasurements, current_setting, measure_testbed, missing_tasks

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs the extra torch")
HERE = MeasuredSetting("lo", 2, 2, inf, inf, 2, "a CPU", "Linux", "2.6", "today", "s2sim")
LOOPBACK = (ProcessPlace(), ProcessPlace())


def collectives(effort):
    return RequestedMeasurements(("collectives",), COLLECTIVES, (4096,), effort=effort)


def children():
    """Return the processes that this one has started, each with its arguments."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                found |= {int(path.name): (path / "cmdline").read_bytes()} if parent == os.getpid() else {}
            except OSError:
                continue
    return [process for process, command in found.items() if b"s2sim.pytorch.launch" in command]


@pytest.mark.slow
@needs_torch
def test_rows_stay_and_what_is_missing_is_measured(tmp_path):
    plan = collectives(Repetitions(3, 0.01))

    def kill_one():
        os.kill(children()[-1], signal.SIGKILL)

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(S2SimError, match=r"the process of rank \d was ended by SIGKILL"):
        measure_testbed(tmp_path, HERE, LOOPBACK, missing_tasks(tmp_path, HERE, plan), plan, kill_one)
    first = read_measured(tmp_path).collectives
    assert first
    assert not children()
    with pytest.raises(KeyboardInterrupt):
        measure_testbed(tmp_path, HERE, LOOPBACK, missing_tasks(tmp_path, HERE, plan), plan, interrupt)
    second = read_measured(tmp_path).collectives
    assert second[: len(first)] == first
    assert len(second) == len(first) + 1
    assert not children()
    measure_testbed(tmp_path, HERE, LOOPBACK, missing_tasks(tmp_path, HERE, plan), plan)
    found = read_measured(tmp_path)
    assert missing_tasks(tmp_path, HERE, plan) == {}
    assert found.settings == (HERE,)
    assert sorted(row.what for row in found.collectives) == sorted(COLLECTIVES)
    for row in found.collectives:
        assert row.repeats == 3
        assert 0 < row.low_s <= row.median_s <= row.high_s
        assert row.codec_s == 0
        assert row.cpu_s > 0
    # Two ranks give each other half of what they have, and half of the sum.
    sent = {row.what: row.sent_bytes for row in found.collectives}
    assert 4096 <= sent["all_reduce"] < 4096 + 1024
    assert 2048 <= sent["all_to_all"] < 2048 + 512


def test_a_setting_of_another_network_is_refused(tmp_path):
    plan = collectives(Repetitions())
    add_row(tmp_path, None, HERE)
    assert len(missing_tasks(tmp_path, HERE, plan)["collectives"]) == len(COLLECTIVES)
    other = MeasuredSetting(
        "lo", 2, 2, 1e9, inf, 2, "a CPU", "Linux", "2.6", "another day", "s2sim, with other options"
    )
    with pytest.raises(S2SimError, match="has a setting 'lo' of another machine, network or version"):
        missing_tasks(tmp_path, other, plan)


def test_without_pytorch_nothing_is_begun(monkeypatch):
    def not_there(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(session, "version", not_there)
    with pytest.raises(S2SimError, match=r"pip install 's2sim\[torch\]'"):
        current_setting(NetworkLayout("mine", 2, 2), "s2sim")
