"""What a version of a library has, and protocols that somebody asked for."""

import pytest

from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import TopologyError
from s2sim.files import data_directory
from s2sim.libraries.constants import load_constants, read_constants, read_version
from s2sim.libraries.nccl import NcclProfile
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape


def timed(profile, workers=8, kind="all_reduce", size_bytes=1 << 16, topology="dgx-h100", algorithm="auto"):
    cluster = build_cluster(load_shape(topology), workers)
    elements = size_bytes // 4 if kind == "all_reduce" else size_bytes // 4 // workers
    return Timer(cluster, algorithm, profile=profile).time(Demand(kind, (elements,) * workers, 4))


def protocols(profile, **asked):
    cluster = build_cluster(load_shape("dgx-h100"), 8)
    schedule = timed(profile, **asked).schedule
    return [each.protocol for each in profile.protocols(schedule, cluster)]


@pytest.mark.parametrize(
    ("version", "expected"),
    [((2, 4, 8), ["LL", "Simple"]), ((2, 5), ["LL", "LL128", "Simple"]), ((), ["LL", "LL128", "Simple"])],
)
def test_lines_of_128_bytes_came_with_a_version(version, expected):
    assert protocols(NcclProfile("nccl", version=version), algorithm="ring") == expected


@pytest.mark.parametrize(
    ("version", "workers", "expected"),
    [
        ((2, 16), 8, {"ring"}),
        ((2, 17), 8, {"ring", "in-network"}),
        ((2, 3, 7), 16, {"ring"}),
        ((2, 4), 16, {"ring", "double-binary-tree"}),
        ((2, 17), 16, {"ring", "double-binary-tree"}),
        ((2, 18, 1), 16, {"ring", "double-binary-tree", "nvls-tree"}),
        ((), 16, {"ring", "double-binary-tree", "nvls-tree"}),
    ],
)
def test_a_version_has_the_algorithms_that_came_before_it(version, workers, expected):
    cluster = build_cluster(load_shape("dgx-h100"), workers)
    found = NcclProfile("nccl", version=version).candidates(Demand("all_reduce", (1 << 20,) * workers, 4), cluster)
    assert {each.partition(":")[0] for each in found} == expected


@pytest.mark.parametrize("protocol", ["LL", "LL128", "Simple"])
def test_a_protocol_that_was_asked_for_is_the_only_one(protocol):
    profile = NcclProfile("nccl", only=protocol)
    assert protocols(profile, algorithm="ring") == [protocol]
    assert timed(profile, workers=16, size_bytes=64).schedule.protocol == protocol
    # Switches reduce plain data alone.
    large = timed(profile, size_bytes=1 << 28).schedule.algorithm
    assert (large == "in-network") == (protocol == "Simple")


@pytest.mark.parametrize(
    ("version", "message_bytes", "expected"),
    [((), 16 << 10, "LL"), ((), (16 << 10) + 4, "Simple"), ((2, 14), 8, "LL"), ((2, 13, 4), 8, "Simple")],
)
def test_small_messages_between_two_ranks_have_a_protocol_of_their_own(version, message_bytes, expected):
    profile = NcclProfile("nccl", version=version)
    found = timed(profile, kind="send_recv", size_bytes=8 * message_bytes)
    assert found.schedule.protocol == expected


def test_more_channels_through_switches_have_more_in_flight():
    """Three stages of 64 KiB for each of 8 heads: 8 channels more hold three times 4 MiB more."""
    few, more = (timed(NcclProfile("nccl", min_channels=count), size_bytes=1 << 28).duration_ps for count in (16, 24))
    rate = 370.8e9 * load_constants("nccl")["in-network.hopper.share"]
    assert (more - few) / 1e12 == pytest.approx(3 * 9 / 8 * (8 * 8 << 16) / rate, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.18.3", (2, 18, 3)),
        ("2.4.x", (2, 4)),
        ("2.5 or 2.6", (2, 5)),
        ("2.4-2.8", (2, 4)),
        ("NCCL 2.21.5+cuda12.4", (2, 21, 5)),
        ("CUDA 12.2, NCCL 2.19", (2, 19)),
        ("", ()),
        ("Intel MPI 2021.6", ()),
        ("2" * 5000, ()),
    ],
)
def test_versions_are_read_as_people_write_them(text, expected):
    assert read_version(text) == expected


def test_a_version_of_a_file_has_numbers(tmp_path):
    text = (data_directory("libraries") / "nccl.toml").read_text()
    path = tmp_path / "own.toml"
    path.write_text(text.replace('tree = { value = "2.4"', 'tree = { value = "new"', 1))
    with pytest.raises(TopologyError, match=r"since.tree is no version: write for example '2.18'"):
        read_constants(path)
