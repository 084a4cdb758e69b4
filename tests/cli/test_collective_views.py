"""Listing, picture, GOAL, timeline, unequal sizes and the other network, through the command line."""

import json
from itertools import pairwise

import pytest

from s2sim.collectives import KINDS

RING = ("collective", "all_reduce", "--topology", "ring", "--workers", "4", "--size", "4KiB", "--algorithm", "ring")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_every_kind_runs_by_what_libraries_choose(s2sim, kind, workers):
    size = () if kind == "barrier" else ("--size", "100kB")
    asked = ("collective", kind, "--topology", "fat-tree", "--workers", workers)
    code, out, err = s2sim(*asked, *size, "--json", "-")
    assert (code, err) == (0, "")
    value = json.loads(out)
    assert len(value["rank_finish_s"]) == workers
    assert max(value["rank_finish_s"]) == pytest.approx(value["time_s"], rel=1e-12)
    assert value["time_s"] >= value["lower_bound_s"]


def test_a_listing_shows_every_message_of_a_round(s2sim):
    _, out, _ = s2sim(*RING, "--show")
    assert "rounds 1 to 3 (x3)" in out
    assert "  3 -> 0  1.024 kB  add" in out


def test_a_listing_of_many_ranks_is_refused(s2sim):
    code, _, err = s2sim(
        "collective", "all_reduce", "--topology", "ring", "--workers", "64", "--size", "4KiB", "--show"
    )
    assert code == 2
    assert "at most" in err


@pytest.mark.parametrize("suffix", ["svg", *(pytest.param(each, marks=pytest.mark.slow) for each in ("png", "pdf"))])
def test_a_picture_is_written_in_the_format_of_its_name(s2sim, tmp_path, suffix):
    path = tmp_path / f"ring.{suffix}"
    assert s2sim(*RING, "--png", path)[0] == 0
    assert path.stat().st_size > 1000


def test_goal_text_goes_to_standard_output_alone(s2sim):
    code, out, _ = s2sim(*RING, "--goal", "-")
    assert code == 0
    assert "num_ranks 4" in out
    assert "algbw" not in out
    assert out.count("send 1024b") == 4 * 6


def test_a_timeline_has_a_span_a_message_and_a_counter_a_link(s2sim, tmp_path):
    path = tmp_path / "timeline.json"
    assert s2sim(*RING, "--timeline", path)[0] == 0
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == 4 * 6
    time_us = json.loads(s2sim(*RING, "--json", "-")[1])["time_s"] * 1e6
    assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(time_us)
    counters = {}
    for event in events:
        if event["ph"] == "C":
            counters.setdefault(event["name"], []).append((event["ts"], event["args"]["GB/s"]))
    assert set(counters) >= {"node0.nic0.out", "node3.nic0.in", "node2.clockwise"}
    for changes in counters.values():
        # What a link carried in all is what the schedule sends over it: six chunks.
        carried = sum((after - at) * 1e-6 * rate * 1e9 for (at, rate), (after, _) in pairwise(changes))
        assert carried == pytest.approx(6 * 1024, rel=1e-4)
        assert changes[-1][1] == 0


def test_tracks_of_a_rank_never_overlap(s2sim, tmp_path):
    path = tmp_path / "timeline.json"
    asked = ("collective", "all_to_all", "--topology", "fat-tree", "--workers", "6", "--size", "1MB")
    assert s2sim(*asked, "--timeline", path)[0] == 0
    tracks = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X":
            tracks.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    assert len(tracks) == 6 * 5
    for spans in tracks.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_unequal_sizes_come_from_a_file(s2sim, tmp_path):
    path = tmp_path / "sizes.txt"
    path.write_text("1kB # the first rank\n\n3kB\n0B\n4000B\n")
    asked = ("collective", "all_gather", "--topology", "single-switch", "--workers", "4", "--sizes", path)
    value = json.loads(s2sim(*asked, "--algorithm", "ring", "--json", "-")[1])
    assert value["size_bytes"] == 8000
    assert value["bytes_per_rank"] == 8000
    code, _, err = s2sim(*asked[:-3], "5", "--sizes", path)
    assert (code, "4 sizes were given for 5 workers" in err) == (2, True)
    path.write_text("1kB\n12\n")
    assert "line 2" in s2sim(*asked)[2]


@pytest.mark.slow
def test_cross_check_says_how_far_packets_are(s2sim):
    asked = ("collective", "all_reduce", "--topology", "leaf-spine", "--workers", "8", "--size", "1MiB")
    value = json.loads(s2sim(*asked, "--cross-check", "--json", "-")[1])
    check = value["cross_check"]
    assert check["other"] == "packet"
    assert check["time_s"] > value["time_s"]
    assert abs(check["difference"]) < 0.02
    packets = json.loads(s2sim(*asked, "--network", "packet", "--json", "-")[1])
    assert packets["time_s"] == check["time_s"]
    assert "cross-check" in s2sim(*asked, "--cross-check")[1]


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--packet-bytes", "1KiB"), "changes nothing in the fluid network"),
        (("--network", "ns3"), "unknown network 'ns3'"),
        (("--png", "ring.bmp"), ".png"),
        (("--sizes", "sizes.txt"), "cannot be given together"),
        (("--root", "2"), "has no root"),
        (("--goal", "-", "--json", "-"), "standard output takes one thing"),
        (("--algorithm", "in-network"), "no switch"),
        (("--algorithm", "hierarchical:mode=scater"), "mode"),
        (("--network", "packet", "--packet-bytes", "1B", "--size", "1GiB"), "fluid network"),
    ],
)
def test_refusals_are_one_line(s2sim, more, complaint):
    code, out, err = s2sim(*RING, *more)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1


def test_servers_stand_on_nodes_of_their_own(s2sim):
    asked = (
        "collective",
        "all_reduce",
        "--topology",
        "single-switch",
        "--workers",
        "4",
        "--size",
        "4MB",
        "--json",
        "-",
    )
    on_nodes = json.loads(s2sim(*asked, "--algorithm", "parameter-server:servers=2,on=nodes")[1])
    assert on_nodes["workers"] == 4
    assert len(on_nodes["rank_finish_s"]) == 4
    # Four workers push 2 MB to each of two servers, and pull as much.
    rate_Bps = json.loads(s2sim("topology", "show", "single-switch", "--json", "-")[1])["nic_rate_Bps"]
    assert on_nodes["time_s"] == pytest.approx(2 * 4 * 2e6 / rate_Bps, rel=0.02)


def test_a_listing_of_two_trees_shows_both_messages_of_a_pair(s2sim):
    asked = ("collective", "all_reduce", "--topology", "fat-tree", "--workers", "16", "--size", "1MiB")
    code, out, err = s2sim(*asked, "--algorithm", "double-binary-tree:chunks=8", "--show")
    assert (code, err) == (0, "")
    assert "replace" in out


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--algorithm", "ring:channels=99999999999999999999"), "out of range"),
        (("--algorithm", "ring:chunks=100000000"), "take fewer"),
        (("--algorithm", "double-binary-tree:chunks=1000000000"), "take fewer chunks"),
        (("--algorithm", "direct", "--workers", "16384"), "take ring or halving-doubling"),
        (("--timeline", "-"), "name a file"),
        (("--size", ""), "size"),
    ],
)
def test_sizes_beyond_reason_are_refused(s2sim, more, complaint):
    code, out, err = s2sim(*RING, *more)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1


MEASURED = ("--topology", "dgx-h100", "--workers", "16", "--library", "nccl:timing=measured", "--terms")


def test_terms_are_shown_and_add_up_to_the_time(s2sim):
    asked = ("collective", "all_reduce", "--size", "64MiB", *MEASURED)
    code, out, err = s2sim(*asked, "--json", "-")
    assert (code, err) == (0, "")
    value = json.loads(out)
    assert sum(term["time_s"] for term in value["terms"]) == pytest.approx(value["time_s"], rel=1e-12)
    network = next(term for term in value["terms"] if term["of"] == "network ib-verbs")
    assert network["constants"] == {"network.ib-verbs.latency": 1}
    for quiet in ((), ("--quiet",)):
        shown = s2sim(*asked, *quiet)[1]
        assert "hop, network ib-verbs" in shown
        assert "launch collective" in shown


def test_terms_are_of_one_collective_alone_on_the_fluid_network(s2sim):
    fails = ("--fault", "fail-link:link=node0.nic0.out,at=1us")
    for more, words in (
        (("--network", "packet"), "fluid network"),
        (fails, "fluid network"),
        (("--goal", "-"), "standard output"),
    ):
        code, _, err = s2sim("collective", "all_gather", "--size", "1MiB", *MEASURED, *more)
        assert code == 2
        assert words in err
