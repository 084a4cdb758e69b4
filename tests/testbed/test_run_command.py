"""``s2sim dev testbed run``: refusals of one line, and a network made, measured and removed where root may."""

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from s2sim.cli.main import main
from s2sim.testbed.measured import read_measured
from s2sim.testbed.settings import choose_layouts


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give the name of a testbed, or --workers, or --nodes"),
        (["--workers", "2", "--nodes", "2x4"], "give the name of a testbed, or --workers, or --nodes"),
        (["mine", "--rate", "1Gbps"], "--rate is of testbeds that are made, and mine is one that is up"),
        (["--workers", "2", "--rate", "1"], "--rate: rate '1' has no unit"),
        (["--workers", "2", "--uplink", "1Gbps"], "--uplink 1Gbps changes nothing without --nodes"),
        (["--nodes", "2,4"], "--nodes '2,4': write nodes x workers of each"),
        (["--workers", "2", "--sizes", "big"], "--sizes: 'big' is not a size"),
        (["--workers", "2", "--what", "all"], "--what 'all' is nothing that is measured"),
        (["--workers", "2", "--reducer", "unoin"], "did you mean 'union'"),
        (["--workers", "2", "--budget", "2"], "--budget: time '2' has no unit"),
    ],
)
def test_what_cannot_be_is_one_line(arguments, told, tmp_path, capsys):
    assert main(["dev", "testbed", "run", *arguments, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert told in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out
    assert not (tmp_path / "out").exists()


def test_a_series_is_every_pair_of_counts_and_rates():
    found = choose_layouts(None, workers=(2, 4), rate="200Mbps,2.5Mbps", nodes=None, uplink=None)
    assert [(layout.name, layout.workers, layout.rate_Bps) for layout in found] == [
        ("w2-200mbps", 2, 25e6),
        ("w2-2-5mbps", 2, 312500.0),
        ("w4-200mbps", 4, 25e6),
        ("w4-2-5mbps", 4, 312500.0),
    ]
    (alike,) = choose_layouts(None, workers=(), rate="1Gbps", nodes="2x4", uplink=None)
    assert alike.uplink_Bps == alike.rate_Bps == 125e6
    (nodes,) = choose_layouts(None, workers=(), rate="1Gbps", nodes="2x4", uplink="500Mbps")
    assert (nodes.name, nodes.workers, nodes.nodes, nodes.uplink_Bps) == ("w8-n2-1000mbps-500mbps", 8, 2, 62.5e6)


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("tc") is None or find_spec("torch") is None,
    reason="needs root, iproute2 and the extra torch",
)
def test_a_network_is_made_measured_and_removed(tmp_path, capsys):
    folder = tmp_path / "out"
    # Another run of these tests at the same time has another testbed.
    thousandths = os.getpid() % 1000
    asked = [
        "dev",
        "testbed",
        "run",
        "--workers",
        "2",
        "--rate",
        f"77.{thousandths:03}Mbps",
        "--collective",
        "all_reduce",
        "--sizes",
        "4KiB,1MiB",
    ]
    asked += ["--repeats", "3", "--what", "collectives,iterations", "--reducer", "union", "--trace", "cnn"]
    asked += ["--compute", "20ms", "--out", str(folder)]
    assert main([*asked, "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = read_measured(folder)
    assert [row["median_s"] for row in told["collectives"]] == [row.median_s for row in found.collectives]
    (name,) = [setting.name for setting in found.settings]
    assert name.startswith("w2-77")
    small, large = found.collectives
    assert (small.payload_bytes, large.payload_bytes) == (4096, 2**20)
    # Each of two ranks sends half of the buffer twice; what is shaped is that and headers.
    assert 2**20 / 9.625e6 < large.low_s < 1.5 * 2**20 / 9.625e6
    (iteration,) = found.iterations
    assert iteration.low_s > iteration.compute_s == 0.02
    assert main(asked) == 0
    assert "0 new rows" in capsys.readouterr().out
    assert not [path for path in Path("/var/run/netns").iterdir() if name in path.name]
