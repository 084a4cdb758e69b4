"""What a rank pays for each other that it sends to or receives from, and what one interface gives a message."""

import numpy as np
import pytest

from s2sim.collectives.schedules.demand import Demand, all_to_all_demand, make_demand
from s2sim.collectives.timing.timer import Timer
from s2sim.libraries.constants import load_constants
from s2sim.libraries.message_latency import most_peers
from s2sim.libraries.nccl import NcclProfile
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

US = 10**6


@pytest.mark.parametrize(
    ("demand", "nodes", "expected"),
    [
        (Demand("all_to_all", (8,) * 8, 4), [0] * 8, (7, 0)),
        (Demand("all_to_all", (8,) * 8, 4), [0] * 4 + [1] * 4, (3, 4)),
        (Demand("send_recv", (8,) * 4, 4), [0, 0, 1, 1], (1, 1)),
        (Demand("send_recv", (8,) * 4, 4), [0, 1, 2, 3], (0, 1)),
        # A root that gathers from three, one of them beside it.
        (
            all_to_all_demand(np.array([[0, 0, 0, 0], [5, 0, 0, 0], [5, 0, 0, 0], [5, 0, 0, 0]]), 1),
            [0, 0, 1, 1],
            (1, 2),
        ),
        (
            all_to_all_demand(np.array([[0, 5, 5, 5], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]), 1),
            [0, 0, 1, 1],
            (1, 2),
        ),
        (all_to_all_demand(np.diag([9, 9, 9]), 1), [0, 1, 2], (0, 0)),
    ],
)
def test_peers_are_those_with_whom_something_is_exchanged(demand, nodes, expected):
    assert most_peers(demand, np.array(nodes)) == expected


def test_an_all_to_all_pays_for_each_peer():
    """Two nodes of eight: the host queues calls for fifteen, eight elsewhere; a gather of all to all pays for none."""
    constants = load_constants("nccl")
    cluster = build_cluster(load_shape("dgx-h100"), 16)
    profile = NcclProfile("nccl", protocol="LL")
    all_to_all, all_gather = (
        profile.launch_ps(Timer(cluster).time(Demand(kind, (16,) * 16, 4)).schedule, cluster)
        for kind in ("all_to_all", "all_gather")
    )
    assert all_gather == constants["launch.collective"]
    assert all_to_all - all_gather == 15 * constants["peer.message"] + 8 * constants["peer.network"]


@pytest.mark.parametrize("size_bytes", [1 << 13, 1 << 20])
def test_an_all_gather_of_messages_takes_what_an_all_to_all_of_them_does(size_bytes):
    """Both are the same calls between the same pairs; a message of LL128 there is none."""
    cluster = build_cluster(load_shape("dgx-h100", ("node.gpus=1", "nic.count=1")), 16)
    found = {}
    for kind, algorithm in (("all_to_all", "spread"), ("all_gather", "direct")):
        timer = Timer(cluster, algorithm, profile=NcclProfile("nccl"))
        found[kind] = timer.time(make_demand(kind, size_bytes, 16))
        assert found[kind].schedule.protocol in ("LL", "Simple")
    assert found["all_gather"].duration_ps == pytest.approx(found["all_to_all"].duration_ps, rel=1e-9)


def test_rounds_that_wait_for_each_other_are_calls_of_their_own():
    constants, cluster = load_constants("nccl"), build_cluster(load_shape("dgx-h100"), 16)
    timer = Timer(cluster, "halving-doubling", profile=NcclProfile("nccl"))
    launch_ps = timer.time(make_demand("all_reduce", 1 << 12, 16)).schedule.launch_ps
    # Four distances, there and back, of which one is between nodes.
    calls = 8 * (constants["launch.collective"] + constants["peer.message"])
    assert launch_ps == calls + 2 * constants["peer.network"]


@pytest.mark.parametrize("workers", [2, 8, 16, 64])
def test_a_barrier_takes_about_what_an_all_reduce_of_a_few_bytes_does(workers):
    cluster = build_cluster(load_shape("dgx-h100"), workers)
    sizes = {"barrier": 0, "all_reduce": 4}
    barrier, reduced = (
        Timer(cluster, profile=NcclProfile("nccl")).time(make_demand(kind, size, workers)).duration_ps
        for kind, size in sizes.items()
    )
    assert 0.5 * reduced < barrier < 1.3 * reduced


@pytest.mark.parametrize("kind", ["all_reduce", "barrier"])
def test_one_rank_has_nobody_to_send_to(kind):
    cluster, algorithm = build_cluster(load_shape("dgx-h100"), 1), "recursive-doubling"
    timer = Timer(cluster, algorithm, profile=NcclProfile("nccl", one_process=True))
    assert timer.time(make_demand(kind, 0 if kind == "barrier" else 64, 1)).duration_ps == 0


def test_one_process_queues_the_calls_of_all_its_gpus():
    constants = load_constants("nccl")
    cluster = build_cluster(load_shape("dgx-h100"), 8)
    profile = NcclProfile("nccl", one_process=True)
    found = Timer(cluster, profile=profile).time(Demand("all_to_all", (16,) * 8, 4))
    assert found.duration_ps == 8 * (constants["launch.gpu"] + 7 * constants["peer.message"])


@pytest.mark.parametrize(("rate", "expected_Bps"), [("10Gbps", 1.25e9), ("400Gbps", None)])
def test_sockets_of_an_interface_carry_so_much_and_no_more(rate, expected_Bps):
    constants = load_constants("nccl")
    cluster = build_cluster(
        load_shape(
            "dgx-a100", [f"nic.rate={rate}", "nic.transport=tcp", "nic.path=switch", "node.gpus=1", "nic.count=1"]
        ),
        2,
    )
    found = Timer(cluster, profile=NcclProfile("nccl")).time(Demand("send_recv", (1 << 28,) * 2, 4))
    share = constants["network.tcp.share"] * constants["path.switch.share"]
    carried = (expected_Bps or constants["network.tcp.stream"]) * share
    assert found.duration_ps / 1e12 == pytest.approx((1 << 30) / carried, rel=1e-3)
