"""Testbeds come up, are found again without a file, and go down without a trace, whatever was killed meanwhile."""

import json
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest

from s2sim.cli.options import examples

from .conftest import MAIN

pytestmark = pytest.mark.slow

# In an order in which each finds what it needs.
EXAMPLES = [
    "s2sim dev testbed up --workers 8 --rate 1Gbps",
    "s2sim dev testbed show",
    "s2sim dev testbed up --nodes 2x4 --rate 1Gbps --uplink 500Mbps --name two-nodes",
    "s2sim dev testbed list",
    "s2sim dev testbed list --json -",
    "s2sim dev testbed show two-nodes --json -",
    "s2sim dev testbed down two-nodes",
    "s2sim dev testbed down",
    "s2sim dev testbed down --all",
]
BUILD = (
    "from s2sim.testbed.layout import NetworkLayout; "
    "from s2sim.testbed.network import build_testbed, temporary_testbed\n"
)
FOUND = (
    "from s2sim.testbed.network import find_testbed, list_testbed_names\n"
    "print([*map(find_testbed, list_testbed_names())])"
)


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_examples_run_as_printed(apart):
    printed = {
        line
        for command in ("up", "show", "list", "down")
        for line in examples(f"dev testbed {command}").splitlines()
        if line.startswith("s2sim ")
    }
    assert set(EXAMPLES) == printed
    done = apart.s2sim(*(line.removeprefix("s2sim ") for line in EXAMPLES))
    assert [(code, error) for code, _, error in done] == [(0, "")] * len(EXAMPLES)
    assert apart.namespaces() == []


def test_what_is_up_is_found_as_it_was_made_and_goes_without_a_trace(apart):
    host = apart.run("ip", "-oneline", "link").stdout
    up, quiet, listed, shown = apart.s2sim(
        "dev testbed up --nodes 2x2 --rate 300Mbps --uplink 0.1Gbps --name a-1",
        "dev testbed up --workers 3 -q",
        "dev testbed list",
        "dev testbed show a-1 --json -",
    )
    assert up[1].splitlines() == [
        "a-1: 4 workers, 2 nodes of 2; workers 300 Mbps each way, uplinks 100 Mbps each way",
        "A command of worker 0: ip netns exec s2sim-a-1-w0 COMMAND",
    ]
    assert quiet == (0, "", "")
    assert listed[1].splitlines() == [
        "a-1: 4 workers, 2 nodes of 2; workers 300 Mbps each way, uplinks 100 Mbps each way",
        "testbed: 3 workers on one switch, as fast as the machine",
    ]
    layout = {"workers": 4, "nodes": 2, "rate_Bps": 37.5e6, "uplink_Bps": 12.5e6}
    assert json.loads(shown[1]) == {"name": "a-1", "whole": True, **layout, "processes": []}
    assert len(apart.namespaces()) == 5 + 4
    assert apart.run("ip", "-oneline", "link").stdout == host
    assert apart.s2sim("dev testbed down a-1", "dev testbed list", "dev testbed down --all", "dev testbed list") == [
        (0, "a-1 is removed\n", ""),
        (0, "testbed: 3 workers on one switch, as fast as the machine\n", ""),
        (0, "testbed is removed\n", ""),
        (0, "no testbed\n", ""),
    ]
    assert apart.namespaces() == []
    assert apart.run("ip", "-oneline", "link").stdout == host


@pytest.mark.skipif(find_spec("torch") is None, reason="needs the extra torch")
def test_one_that_is_up_is_written_as_a_cluster(apart, tmp_path):
    up, written, collective, missing = apart.s2sim(
        "dev testbed up --workers 2 --rate 300Mbps --name mine -q",
        f"dev testbed topology mine --out {tmp_path}/mine.toml",
        f"collective all_reduce --topology {tmp_path}/mine.toml --workers 2 --size 16MiB --json -",
        "dev testbed topology mina",
    )
    assert (up[0], written[0]) == (0, 0), written[2]
    # Each of two sends half of the buffer twice; headers and the host's share come on top.
    least_s = 2**24 / 37.5e6
    assert least_s < json.loads(collective[1])["time_s"] < 1.3 * least_s
    assert (missing[0], missing[2].count("\n")) == (2, 1)


def test_every_link_has_its_token_bucket_at_both_ends_and_nothing_else(apart):
    apart.python(f"{BUILD}build_testbed(NetworkLayout('a', 4, 2, 37.5e6, 12.5e6))")
    rates = {}
    for space in apart.namespaces():
        for queue in json.loads(apart.run("tc", "-json", "-netns", space, "qdisc").stdout):
            if queue["kind"] != "noqueue":
                assert queue["kind"] == "tbf"
                rates[space, queue["dev"]] = queue["options"]["rate"]
    ports = {("s2sim-a-switch", f"w{worker}"): 37.5e6 for worker in range(4)}
    interfaces = {(f"s2sim-a-w{worker}", "eth0"): 37.5e6 for worker in range(4)}
    uplinks = {("s2sim-a-switch", f"{way}{node}"): 12.5e6 for way in ("up", "down") for node in range(2)}
    assert rates == {**ports, **interfaces, **uplinks}


@pytest.mark.parametrize("namespaces", [1, 12, 41])
def test_up_killed_midway_is_found_and_removed(apart, namespaces):
    command = [sys.executable, "-c", MAIN, "dev", "testbed", "up", "--workers", "40", "--rate", "1Gbps"]
    process = subprocess.Popen(apart.command(*command))
    wait_for(lambda: len(apart.namespaces()) >= namespaces or process.poll() is not None)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    listed, again, removed = apart.s2sim("dev testbed list", "dev testbed up --workers 2", "dev testbed down")
    assert listed[1] == "testbed: half made; remove it with s2sim dev testbed down testbed\n"
    assert again[0] == 2
    assert "there is a testbed testbed" in again[2]
    assert removed == (0, "testbed is removed\n", "")
    assert apart.namespaces() == []


def test_down_ends_the_processes_inside_and_no_others(apart):
    apart.python(f"{BUILD}build_testbed(NetworkLayout('a', 2, 2)); build_testbed(NetworkLayout('b', 2, 2))")
    inside = [
        subprocess.Popen(apart.command("ip", "netns", "exec", f"s2sim-{name}-w1", "sleep", "600"))
        for name in ("a", "b")
    ]
    try:
        wait_for(lambda: all(apart.run("ip", "netns", "pids", f"s2sim-{name}-w1").stdout for name in ("a", "b")))
        shown, removed = apart.s2sim("dev testbed show a", "dev testbed down a")
        assert shown[1].splitlines()[1] == f"processes: {inside[0].pid}"
        assert removed[1] == "a is removed, and 1 process in it was ended\n"
        assert inside[0].wait(timeout=10) == -signal.SIGKILL
        assert inside[1].poll() is None
    finally:
        for process in inside:
            process.kill()
            process.wait()
    assert [name for name in apart.namespaces() if name.startswith("s2sim-a-")] == []


def test_a_process_inside_does_not_remove_what_it_stands_on(apart):
    apart.python(f"{BUILD}build_testbed(NetworkLayout('a', 2, 2))")
    done = apart.run("ip", "netns", "exec", "s2sim-a-w0", sys.executable, "-c", MAIN, "dev", "testbed", "down", "a")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "runs in testbed a itself" in done.stderr
    assert len(apart.namespaces()) == 3


# In the background of a shell without job control, processes begin with Ctrl-C ignored.
INTERRUPT = "signal.signal(signal.SIGINT, signal.default_int_handler); signal.raise_signal(signal.SIGINT)"


@pytest.mark.parametrize("ending", ["raise ValueError", INTERRUPT])
def test_a_temporary_testbed_goes_however_its_block_ends(apart, ending):
    program = (
        f"import signal\n{BUILD}{FOUND}\nwith temporary_testbed(NetworkLayout('a', 2, 2)):\n"
        f"    print([*map(find_testbed, list_testbed_names())])\n    {ending}"
    )
    done = apart.run(sys.executable, "-c", program)
    assert done.returncode != 0
    assert done.stdout.splitlines()[1].startswith("[NetworkLayout(name='a', workers=2, nodes=2,")
    assert apart.namespaces() == []


def test_the_temporary_testbed_of_a_killed_process_is_made_anew(apart):
    program = (
        f"import os\n{BUILD}with temporary_testbed(NetworkLayout('a', 2, 2)):\n"
        "    print(os.getpid(), flush=True)\n    input()"
    )
    command = apart.command(sys.executable, "-c", program)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        process = int(first.stdout.readline())
        # It runs, and nobody else takes its testbed.
        second = apart.run(sys.executable, "-c", program, input="\n")
        assert f"process {process} measures on testbed a: wait until it has ended" in second.stderr
        first.kill()
    assert len(apart.namespaces()) == 3
    third = apart.run(sys.executable, "-c", program, input="\n")
    assert third.returncode == 0, third.stderr
    assert apart.namespaces() == []
    # What `up` made belongs to no process.
    apart.python(f"{BUILD}build_testbed(NetworkLayout('a', 2, 2))")
    assert "there is a testbed a" in apart.run(sys.executable, "-c", program, input="\n").stderr


def test_what_fails_midway_is_undone(apart):
    # The address plan has no such worker, so that the last lines of making it fail.
    program = (
        f"{BUILD}from s2sim.testbed import network\n"
        "network.worker_lines = lambda layout, worker: ['address add 10.77.0.999/24 dev eth0']\n"
        "build_testbed(NetworkLayout('a', 3, 3))"
    )
    done = apart.run(sys.executable, "-c", program)
    assert "S2SimError: ip failed" in done.stderr
    assert "10.77.0.999" in done.stderr
    assert apart.namespaces() == []


def test_two_that_make_the_same_at_once_leave_one_whole(apart):
    command = apart.command(sys.executable, "-c", MAIN, "dev", "testbed", "up", "--workers", "4")
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate()[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 2]
    assert sorted(error.count("\n") for error in errors) == [0, 1]
    assert apart.s2sim("dev testbed list")[0][1] == "testbed: 4 workers on one switch, as fast as the machine\n"
