"""Links keep their rates by the law of a token bucket, count what they should, and lose nothing."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from s2sim.testbed.layout import FRAME_BYTES, MTU_BYTES, SEGMENT_BYTES, NetworkLayout, address, choose_shaping

TRANSFER = Path(__file__).with_name("transfer.py")
RATE_BPS = 2.5e6
SIZE = 500_000
# How late one is depends on who else uses the processors; what stalls is later still.
LATE_S = 60.0
BUILD = """
from math import inf
from s2sim.testbed.layout import NetworkLayout
from s2sim.testbed.network import build_testbed
build_testbed({})
"""


class Ends:
    """Processes in workers' namespaces."""

    def __init__(self, apart, layout):
        self.apart, self.layout, self.processes = apart, layout, []

    def start(self, worker, *arguments):
        command = ["ip", "netns", "exec", self.layout.namespace(worker), sys.executable, TRANSFER, *arguments]
        process = subprocess.Popen(
            self.apart.command(*command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    def transfer(self, pairs):
        """Let each pair (sender, receiver) move SIZE bytes, all at once; returns the seconds until the last has it."""
        receivers = {
            end: self.start(end, "receive", sum(each == end for _, each in pairs)) for end in {end for _, end in pairs}
        }
        senders = [self.start(start, "send", address(end), SIZE) for start, end in pairs]
        for sender in senders:
            sender.stdin.write("\n")
            sender.stdin.flush()
        began = min(float(sender.stdout.readline()) for sender in senders)
        ended = max(float(receiver.stdout.readline()) for receiver in receivers.values())
        assert [process.wait(timeout=LATE_S) for process in self.processes] == [0] * len(self.processes)
        return ended - began

    def kill(self):
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def moved(apart):
    """Make a testbed and move bytes there; returns seconds, and what every queue counted by (namespace, interface)."""
    begun = []

    def move(layout, pairs):
        apart.python(BUILD.format(layout))
        begun.append(Ends(apart, layout))
        seconds = begun[-1].transfer(pairs)
        queues = {}
        for space in layout.namespaces:
            for queue in json.loads(apart.run("tc", "-json", "-statistics", "-netns", space, "qdisc").stdout):
                queues[space, queue["dev"]] = queue
        return seconds, queues

    yield move
    for ends in begun:
        ends.kill()


def retransmitted(apart, layout):
    """Return the segments that workers have sent again."""
    total = 0
    for worker in range(layout.workers):
        lines = apart.run("ip", "netns", "exec", layout.namespace(worker), "cat", "/proc/net/snmp").stdout.splitlines()
        names, values = [line.split() for line in lines if line.startswith("Tcp:")]
        total += int(dict(zip(names, values, strict=True))["RetransSegs"])
    return total


FLAT = NetworkLayout("a", 4, 4, RATE_BPS)
JOINED = NetworkLayout("a", 6, 3, math.inf, RATE_BPS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "pairs", "busiest"),
    [
        pytest.param(FLAT, [(1, 0)], ("s2sim-a-w1", "eth0"), id="sender"),
        pytest.param(FLAT, [(1, 0), (2, 0), (3, 0)], ("s2sim-a-switch", "w0"), id="receiver"),
        pytest.param(JOINED, [(0, 2), (1, 4)], ("s2sim-a-switch", "up0"), id="uplink-out"),
        pytest.param(JOINED, [(2, 0), (4, 1)], ("s2sim-a-switch", "down0"), id="uplink-in"),
    ],
)
def test_the_busiest_link_keeps_its_rate_and_nothing_is_lost(apart, moved, layout, pairs, busiest):
    seconds, queues = moved(layout, pairs)
    counted = queues[busiest]["bytes"]
    # Headers of full segments, and little for what opens and closes connections or does not fill a segment.
    least = len(pairs) * SIZE * FRAME_BYTES / SEGMENT_BYTES
    assert least <= counted <= 1.01 * least
    burst = choose_shaping(layout.workers, RATE_BPS).burst_bytes(RATE_BPS)
    # No bucket gives more, ever.
    assert (least - burst) / RATE_BPS <= seconds <= LATE_S
    assert sum(queue["drops"] for queue in queues.values()) == 0
    assert retransmitted(apart, layout) == 0


@pytest.mark.slow
def test_ways_do_not_share_a_rate(moved):
    seconds, queues = moved(FLAT, [(0, 1), (1, 0)])
    least = SIZE * FRAME_BYTES / SEGMENT_BYTES
    # Data one way, and at most an acknowledgement for each of its segments the other way.
    most = 1.01 * SIZE * (FRAME_BYTES + FRAME_BYTES - MTU_BYTES + 52) / SEGMENT_BYTES
    for worker in range(2):
        for place in ((f"s2sim-a-w{worker}", "eth0"), ("s2sim-a-switch", f"w{worker}")):
            assert least <= queues[place]["bytes"] <= most
    assert seconds <= LATE_S
