"""``s2sim flows --network``: the packet network, and both beside each other."""

import json

import pytest


@pytest.fixture
def traffic(tmp_path):
    path = tmp_path / "traffic.csv"
    path.write_text("start_s,src,dst,bytes\n0,0,8,2e6\n1e-5,4,8,1234567\n1e-3,0,4,1e6\n")
    return path


def run(s2sim, traffic, *options):
    code, out, err = s2sim("flows", traffic, "--topology", "fat-tree", "--json", "-", *options)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_both_networks_and_what_lies_between_them(s2sim, traffic):
    fluid, packet = run(s2sim, traffic), run(s2sim, traffic, "--network", "packet")
    assert (fluid["network"], packet["network"]) == ("fluid", "packet")
    assert "cross_check" not in fluid
    checked = run(s2sim, traffic, "--cross-check")
    assert checked["flows"] == fluid["flows"]
    check = checked["cross_check"]
    assert check["other"] == "packet"
    assert check["finish_s"] == [flow["finish_s"] for flow in packet["flows"]]
    assert 0 <= check["median_difference"] <= check["largest_difference"] < 0.02
    assert check["largest_difference"] > 0
    # The last is alone: what it takes longer is its fill, and it is not slowed down.
    assert abs(check["difference"][2]) < 1e-6
    assert packet["flows"][2]["slowdown"] == pytest.approx(1, abs=1e-6)
    assert packet["flows"][2]["finish_s"] - fluid["flows"][2]["finish_s"] == pytest.approx(check["fill_s"][2])
    other_way = run(s2sim, traffic, "--network", "packet", "--cross-check")
    assert other_way["flows"] == packet["flows"]
    assert other_way["cross_check"]["other"] == "fluid"
    assert other_way["cross_check"]["difference"] == check["difference"]


def test_the_difference_is_told(s2sim, traffic):
    code, out, _ = s2sim("flows", traffic, "--topology", "fat-tree", "--cross-check", "--packet-bytes", "1kB")
    assert code == 0
    assert "fluid against packet, packets of 1 kB: times differ by at most" in out


def test_packets_and_buffers_matter(s2sim, traffic):
    small = run(s2sim, traffic, "--network", "packet", "--packet-bytes", "1KiB")
    large = run(s2sim, traffic, "--network", "packet", "--packet-bytes", "64KiB")
    assert small["flows"][0]["finish_s"] < large["flows"][0]["finish_s"]
    tight = run(s2sim, traffic, "--network", "packet", "--packet-bytes", "64KiB", "--buffer", "64KiB")
    assert tight["flows"][0]["finish_s"] > large["flows"][0]["finish_s"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--packet-bytes", "4KiB"), "packet size of 4096 bytes changes nothing in the fluid network"),
        (("--buffer", "1MB"), "buffer size of 1000000 bytes changes nothing in the fluid network"),
        (("--network", "packets"), "did you mean 'packet'"),
        (("--network", "fluit", "--cross-check"), "did you mean 'fluid'"),
        (("--network", "packet", "--packet-bytes", "4096"), "4096"),
        (("--network", "packet", "--packet-bytes", "0B"), "packets of 0 bytes"),
        (("--network", "packet", "--buffer", "1KiB"), "holds no packet of 4096"),
        (("--cross-check", "--packet-bytes", "1B"), "ask for larger packets (--packet-bytes)"),
    ],
)
def test_what_has_no_effect_or_no_end_is_refused(fails, traffic, options, message):
    assert message in fails("flows", traffic, "--topology", "fat-tree", *options)
