"""Host memory that GPUs share: sums of what they write to it and read from it, and links between sockets."""

import numpy as np
import pytest

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.bounds import simulate_ps
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import TopologyError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe_cluster
from s2sim.topology.read_file import load_shape

SIZE = 1 << 24
NO_PEERS = "peer_to_peer = 'no'\nmemory.rate = '24GB/s'"
SOCKETS = "sockets = 2\nsocket.rate = '5GB/s'"


def box(tmp_path, workers, *, gpus, pcie="", nic="rate = '100GB/s'"):
    path = tmp_path / "box.toml"
    path.write_text(
        f"[node]\ngpus = {gpus}\n[pcie]\nrate = '20GB/s'\n{pcie}\n[nic]\n{nic}\n[fabric]\nkind = 'single-switch'\n"
    )
    return build_cluster(load_shape(path), workers)


@pytest.mark.parametrize(
    ("gpus", "pcie", "each_GBps"),
    [
        (2, NO_PEERS, 24 / 4),
        (4, NO_PEERS, 24 / 8),
        (4, f"{NO_PEERS}\nsockets = 2", 24 / 4),
        (8, f"{NO_PEERS}\nsockets = 2", 24 / 8),
        (8, f"{NO_PEERS}\nsockets = 2\ngpus_per_switch = 2", 24 / 8),
        (4, f"{NO_PEERS}\n{SOCKETS}", 5),
        (4, SOCKETS, 5),
        (4, "", 20),
        (2, "peer_to_peer = 'no'\nmemory.rate = '100GB/s'", 20),
    ],
)
def test_a_ring_writes_every_message_and_reads_it(tmp_path, gpus, pcie, each_GBps):
    """Of n GPUs in a socket each writes and reads at once: 2n accesses share its memory."""
    cluster = box(tmp_path, gpus, gpus=gpus, pcie=pcie)
    timed = Timer(cluster, "ring").time(Demand("all_reduce", (SIZE,) * gpus, 4))
    assert timed.duration_ps / 1e12 == pytest.approx(2 * (gpus - 1) / gpus * 4 * SIZE / each_GBps / 1e9, rel=1e-6)
    assert simulate_ps(timed.schedule, cluster) == timed.duration_ps


def test_one_message_alone_passes_memory_twice(tmp_path):
    cluster = box(tmp_path, 2, gpus=2, pcie=NO_PEERS)
    timed = Timer(cluster, "chain:chunks=1").time(Demand("broadcast", (SIZE,) * 2, 4))
    assert timed.duration_ps / 1e12 == pytest.approx(4 * SIZE / 12e9, rel=1e-6)


@pytest.mark.parametrize(("path", "each_GBps"), [("staged", 24 / 2), ("switch", 20)])
def test_what_is_staged_for_an_interface_passes_memory_once_at_each_end(tmp_path, path, each_GBps):
    pcie = "" if path == "switch" else "memory.rate = '24GB/s'"
    cluster = box(tmp_path, 2, gpus=1, pcie=pcie, nic=f"rate = '100GB/s'\npath = '{path}'")
    timed = Timer(cluster, "ring").time(Demand("all_reduce", (SIZE,) * 2, 4))
    assert timed.duration_ps / 1e12 == pytest.approx(4 * SIZE / each_GBps / 1e9, rel=1e-6)


def test_an_interface_at_the_other_socket_is_reached_over_the_link_between(tmp_path):
    pcie = "sockets = 2\nsocket = { rate = '5GB/s', latency = '1us' }"
    cluster = box(tmp_path, 4, gpus=2, pcie=pcie, nic="count = 2\nrate = '100GB/s'\npath = 'other-socket'")
    routes = cluster.routes([0], [3])
    assert [cluster.fabric.link_names[link] for link in routes.links] == [
        "node0.gpu0.pcie.out",
        "node0.socket0.out",
        "node0.nic0.out",
        "node1.nic1.in",
        "node1.socket0.out",
        "node1.gpu1.pcie.in",
    ]
    assert routes.latency_ps.tolist() == [2_000_000]


def test_memory_and_sockets_bound_the_halves_of_a_node(tmp_path):
    for pcie, halves_GBps in ((NO_PEERS, 12), (f"{NO_PEERS}\n{SOCKETS}", 5), (SOCKETS, 5), ("", 40)):
        assert describe_cluster(box(tmp_path, 4, gpus=4, pcie=pcie))["bisection_Bps"] == pytest.approx(
            halves_GBps * 1e9
        )


def test_memory_of_both_sockets_is_passed_where_gpus_are_apart(tmp_path):
    cluster = box(tmp_path, 4, gpus=4, pcie=f"{NO_PEERS}\n{SOCKETS}")
    beside, apart = (cluster.routes(np.array([0]), np.array([other])) for other in (1, 2))
    names = cluster.fabric.link_names
    assert ("node0.socket0.memory", 2.0) in [(names[link], beside.weights[at]) for at, link in enumerate(beside.links)]
    assert [names[link] for link in apart.links] == [
        "node0.gpu0.pcie.out",
        "node0.socket0.memory",
        "node0.socket0.out",
        "node0.socket1.memory",
        "node0.gpu2.pcie.in",
    ]


@pytest.mark.parametrize(
    ("pcie", "message"),
    [
        ("memory.rate = '1GB/s'", r"pcie\.memory has no effect"),
        ("socket.rate = '1GB/s'", r"pcie\.socket has no effect on one socket"),
        ("sockets = 2", r"without pcie\.socket\.rate or pcie\.memory\.rate"),
        ("sockets = 5\nsocket.rate = '1GB/s'", r"pcie\.sockets = 5 for node\.gpus = 4"),
        (f"{SOCKETS}\ngpus_per_switch = 2\nhost.rate = '9GB/s'", "bridge of one socket"),
    ],
)
def test_what_says_nothing_of_a_host_is_refused(tmp_path, pcie, message):
    with pytest.raises(TopologyError, match=message):
        box(tmp_path, 4, gpus=4, pcie=pcie)
