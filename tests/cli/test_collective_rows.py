import json

import pytest

from s2sim.traffic.nccl_tests import parse_nccl_tests

ALL_REDUCE = ("all_reduce", "--topology", "dgx-h100", "--workers", "16")
TABLE = ("collective", "table", *ALL_REDUCE)
RANGE = ("--from", "8B", "--to", "1MiB", "--factor", "8")


def cells(out, row):
    """Return the cells of a row as printed: size, count, type, redop, root, time, algbw, busbw and so on."""
    return out.splitlines()[row.line - 1].split()


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("all_reduce", 2**18),
        ("all_gather", 2**14),
        ("reduce_scatter", 2**14),
        ("all_to_all", 2**14),
        ("broadcast", 2**18),
        ("reduce", 2**18),
        ("send_recv", 2**18),
    ],
)
def test_what_is_printed_is_read_back(kind, count, s2sim):
    asked = ("collective", "table", kind, *TABLE[3:], "--library", "nccl:timing=measured")
    code, out, err = s2sim(*asked, "--from", "256B", "--to", "1MiB", "--factor", "8")
    assert (code, err) == (0, "")
    (table,) = parse_nccl_tests(out, "out")
    assert (table.collective, table.ranks, table.hosts, table.gpus) == (kind, 16, 2, ("h100 (simulated)",))
    assert [row.size_bytes for row in table.rows] == [256 * 8**step for step in range(5)]
    assert cells(out, table.rows[-1])[:2] == [str(2**20), str(count)]
    assert all(row.time_s > 0 and row.wrong is None for row in table.rows)
    for row in table.rows:
        algbw_GBps = float(cells(out, row)[6])
        assert algbw_GBps == pytest.approx(row.size_bytes / row.time_s / 1e9, rel=1e-3, abs=6e-3)
    average_GBps = float(out.partition("# Avg bus bandwidth    : ")[2].split()[0])
    assert average_GBps == pytest.approx(sum(float(cells(out, row)[7]) for row in table.rows) / 5, rel=1e-3, abs=6e-3)


def test_times_are_those_of_the_collective_alone(s2sim):
    _, out, _ = s2sim(*TABLE, *RANGE)
    rows = parse_nccl_tests(out, "out")[0].rows
    assert len(rows) == 6
    for row in (rows[0], rows[-1]):
        alone = json.loads(s2sim("collective", *ALL_REDUCE, "--size", f"{row.size_bytes}B", "--json", "-")[1])
        assert row.time_s == pytest.approx(alone["time_s"], abs=5.1e-9)
        assert float(cells(out, row)[7]) == pytest.approx(alone["busbw_Bps"] / 1e9, abs=5.1e-3)
    in_place = parse_nccl_tests(out, "out", in_place=True)[0].rows
    assert [row.time_s for row in in_place] == [row.time_s for row in rows]


def test_the_head_says_that_it_is_simulated_and_by_what(s2sim):
    library = ("--library", "nccl:timing=measured,launch=node")
    _, out, _ = s2sim(*TABLE, "--size", "64KiB", *library, "--set", "nic.rate=200Gbps")
    head = out.split("#\n")[0]
    assert out.startswith("# simulated by s2sim ")
    assert "not measured" in head
    assert "# topology: dgx-h100 --set nic.rate=200Gbps\n" in head
    assert "# library: nccl:timing=measured,launch=node\n" in head
    assert "# algorithm: auto, which ran " in head
    assert "nThread 1 nGpus 8 minBytes 65536 maxBytes 65536" in head
    assert len(parse_nccl_tests(out, "out")[0].rows) == 1


def test_long_times_and_odd_sizes_are_read_back(s2sim):
    slow = ("--topology", "single-switch", "--workers", "2", "--set", "nic.rate=1kbps")
    _, out, _ = s2sim("collective", "table", "all_reduce", *slow, "--size", "100001B", "--algorithm", "ring")
    (row,) = parse_nccl_tests(out, "out")[0].rows
    assert (row.size_bytes, cells(out, row)[2]) == (100_001, "int8")
    assert row.time_s == pytest.approx(800.016, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (TABLE, "needs sizes"),
        ((*TABLE, "--from", "8B"), "needs sizes"),
        ((*TABLE, "--from", "8", "--to", "1MiB"), "--from: size '8' has no unit"),
        ((*TABLE, "--from", "1MiB", "--to", "8B"), "no size lies from"),
        ((*TABLE, "--from", "0B", "--to", "8B"), "no size lies from"),
        ((*TABLE, *RANGE[:-1], "1"), "--factor 1"),
        ((*TABLE, *RANGE, "--size", "8B"), "--size is one size"),
        ((*TABLE, *RANGE, "--cross-check"), "No such option"),
        (("collective", "table", "barrier", *TABLE[3:], *RANGE), "a barrier has no size"),
        (("collective", "table", "all_reduc", *TABLE[3:], *RANGE), "did you mean 'all_reduce'"),
        (("collective", "table", *RANGE), "see s2sim collective table --help"),
    ],
)
def test_what_does_not_go_together_is_told(arguments, part, fails):
    assert part in fails(*arguments)


@pytest.fixture
def measured(s2sim, tmp_path):
    """A log that says what is simulated with 100 Gbit/s interfaces."""
    path = tmp_path / "a.log"
    first, others = s2sim(*TABLE, *RANGE, "--set", "nic.rate=100Gbps")[1].split("\n", 1)
    assert "simulated by s2sim" in first
    path.write_text(others)
    return path


def test_a_simulation_is_like_its_own_table(measured, s2sim):
    asked = ("collective", "log", measured, "--topology", "dgx-h100", "--json", "-")
    code, out, err = s2sim(*asked, "--set", "nic.rate=100Gbps")
    assert (code, err) == (0, "")
    value = json.loads(out)
    assert (value["kind"], value["workers"], value["tables"][0]["hosts"]) == ("all_reduce", 16, 2)
    assert len(value["rows"]) == 6
    assert all(row["simulated_s"] == pytest.approx(row["measured_s"], abs=5.1e-9) for row in value["rows"])
    faster = json.loads(s2sim(*asked)[1])
    assert faster["rows"][-1]["ratio"] < 0.95
    assert faster["signed_log_error_small"] <= 0


def test_the_table_and_its_summary(measured, s2sim, tmp_path):
    asked = ("collective", "log", measured, "all-reduce", "--workers", "16", "--topology", "dgx-h100")
    code, out, err = s2sim(*asked, "--json", tmp_path / "out.json")
    assert (code, err) == (0, "")
    for part in (
        "against",
        "2 hosts, h100 (simulated)",
        "from 1 MiB on",
        "median |ln|",
        "measured",
        "262144",
        "Note: ",
    ):
        assert part in out
    assert json.loads((tmp_path / "out.json").read_text())["schema_version"] == 1
    assert s2sim(*asked, "--quiet")[1] == out[: out.index("\n\n") + 1]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--size", "8B"), "No such option"),
        (("--workers", "8"), "is of 16 ranks, not of 8"),
        (("--algorithm", "rign"), "did you mean 'ring'"),
    ],
)
def test_what_does_not_go_with_a_log_is_told(arguments, part, measured, fails):
    assert part in fails("collective", "log", measured, "--topology", "dgx-h100", *arguments)


def test_a_log_needs_a_topology_and_a_table(measured, fails):
    assert "Missing option '--topology'" in fails("collective", "log", measured)
    measured.write_text("no table\n")
    assert "a.log holds no table" in fails("collective", "log", measured, "--topology", "dgx-h100")


@pytest.mark.slow
def test_names_of_before_give_the_same_with_a_line_that_says_the_new_one(measured, s2sim):
    note = "s2sim: note: {} now; the old name goes in the next version\n"
    old = s2sim("collective", *ALL_REDUCE, "--format", "nccl-tests", *RANGE)
    assert old == (*s2sim(*TABLE, *RANGE)[:2], note.format("collective --format nccl-tests is collective table"))
    known = s2sim("collective", "log", measured, "--topology", "dgx-h100", "--json", "-")
    for against in (("--against", measured), (f"--against={measured}",)):
        old = s2sim("collective", "--topology", "dgx-h100", *against, "--json", "-")
        assert old == (*known[:2], note.format("collective --against LOG is collective log LOG") + known[2])
    assert (
        s2sim("collective", "all_reduce", "--topology", "dgx-h100", "--against", measured, "--json", "-")[1] == known[1]
    )
