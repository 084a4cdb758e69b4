"""What lines of NCCL_DEBUG=INFO tell of channels, rings, trees, algorithms, protocols and transports."""

import pytest

from s2sim.traffic.log_table import NcclDebugInfo
from s2sim.traffic.nccl_tests import parse_nccl_tests

from .logs import OF_TODAY

CONNECTED = """\
Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/1/GDRDMA
Channel 00/0 : 1[1] -> 2[0] [receive] via NET/IB/1/GDRDMA
Channel 00/0 : 2[0] -> 3[1] via P2P/CUMEM/read
Channel 00/0 : 3[1] -> 0[0] [send] via NET/IB/1/GDRDMA
Connected all rings
Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM/read
Channel 00/0 : 3[1] -> 2[0] via P2P/CUMEM/read
Channel 00/1 : 0[0] -> 3[1] [send] via NET/IB/0/GDRDMA
"""


def said(text):
    found = NcclDebugInfo()
    for line in text.splitlines():
        found.note(f" {line}")
    return found


@pytest.mark.parametrize(
    "text",
    [
        "Channel 00/02 :    0   1   2   3\nChannel 01/02 :    0   1   2   3",
        "Ring 00 : 3 -> 0 -> 1\nRing 00 : 1 -> 2 -> 3\nRing 00 : 0 -> 1 -> 2\nRing 00 : 2 -> 3 -> 0",
        CONNECTED,
        # A line of many ranks is cut short, which connections mend.
        "Channel 00/01 :    0   1   2\n" + CONNECTED,
    ],
)
def test_a_ring_is_told_by_a_line_or_put_together_of_many(text):
    rings = said(text).rings(4)
    assert set(rings) == {(0, 1, 2, 3)}
    assert len(rings) == text.count("/02 :") or len(rings) == 1
    assert said(text).rings(5) == ()


@pytest.mark.parametrize(
    "text", ["Channel 00/01 : 0 1 2 2", "Channel 00/01 : 0 1 2", "Ring 00 : 3 -> 0 -> 1\nRing 00 : 0 -> 1 -> 0"]
)
def test_what_is_no_ring_through_all_ranks_counts_as_none(text):
    assert said(text).rings(4) == ()


def test_a_tree_is_put_together_of_what_ranks_say_of_their_parents():
    lines = [
        "Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->2",
        "Trees [0] -1/-1/-1->1->0 [1] -1/-1/-1->1->0",
        "Trees [0] 3/-1/-1->2->0 [1] 3/0/-1->2->-1",
        "Trees [0] -1/-1/-1->3->2 [1] -1/-1/-1->3->2",
    ]
    assert said("\n".join(lines)).trees(4) == ((-1, 0, 0, 2), (2, 0, -1, 2))
    assert said("\n".join(lines[:3])).trees(4) == ()
    around = "\n".join(lines).replace("1/-1/-1->0->-1", "1/-1/-1->0->2")
    assert said(around).trees(4) == ((2, 0, -1, 2),)


def test_ways_are_counted():
    assert said(CONNECTED).transports[:2] == ("P2P/CUMEM/read", "NET/IB/1/GDRDMA")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}", ("ring", "Simple", 16)),
        ("AllReduce: 1048576 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={2..3}", ("nvls-tree", "Simple", 2)),
        ("1048576 Bytes -> Algo 0 proto 1 time 5.0", ("tree", "LL128", None)),
        ("8 Bytes -> Algo 1 proto 0 time 5.0", (None, None, None)),
        ("NCCL_ALGO set by environment to Tree.", ("tree", None, None)),
        ("NCCL_PROTO set by environment to LL", (None, "LL", None)),
        ("NCCL_PROTO set by environment to ^LL128", (None, None, None)),
        ("NCCL_ALGO set by environment to Ring,Tree", (None, None, None)),
    ],
)
def test_what_the_library_took_for_a_size(line, expected):
    assert tuple(said(line).choice(1048576)) == expected


def test_a_table_has_what_was_said_before_and_among_its_rows():
    ring = "node-a:1:2 [0] NCCL INFO Channel 00/01 :" + "".join(f" {rank}" for rank in range(16))
    took = "node-a:1:2 [0] NCCL INFO AllReduce: 2097152 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..7}"
    log = "\n".join([ring, OF_TODAY.replace("     2097152", f"{took}\n     2097152")])
    (table,) = parse_nccl_tests(log, "a.log")
    assert table.rings == (tuple(range(16)),)
    assert table.transports == ("NET/IB/7/GDRDMA",)
    assert [(row.algorithm, row.protocol, row.channels) for row in table.rows] == [
        (None, None, None),
        ("ring", "LL128", 8),
        (None, None, None),
    ]
