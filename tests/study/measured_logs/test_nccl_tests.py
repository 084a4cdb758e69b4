import random
import re
import time

import pytest

from s2sim.errors import S2SimError
from s2sim.traffic.measured_files import read_measured
from s2sim.traffic.nccl_tests import parse_nccl_tests

from . import logs


def one(text, **options):
    (table,) = parse_nccl_tests(text, "a.log", **options)
    return table


def points(table):
    return [(row.size_bytes, row.time_s) for row in table.rows]


def test_a_log_of_today():
    table = one(logs.OF_TODAY)
    assert (table.collective, table.ranks, table.hosts, table.gpus) == ("all_reduce", 16, 2, ("NVIDIA H100 80GB HBM3",))
    assert (table.gpus_per_thread, table.library) == (1, "NCCL 2.27.5+cuda12.9")
    assert points(table) == [
        (2**20, pytest.approx(60.27e-6)),
        (2**21, pytest.approx(82e-6)),
        (2**22, pytest.approx(0.09033)),
    ]
    assert [row.line for row in table.rows] == [16, 18, 19]
    assert table.unfinished == ()


def test_times_in_place_are_the_second_group():
    table = one(logs.OF_TODAY, in_place=True)
    assert [row.time_s for row in table.rows] == [pytest.approx(us * 1e-6) for us in (59.31, 81.02, 91945)]
    assert [row.wrong for row in table.rows] == [0, None, 0]


def test_old_logs_have_no_root_and_an_error_instead_of_a_count():
    table = one(logs.OF_2019)
    assert (table.collective, table.ranks, table.gpus_per_thread) == (None, 4, 4)
    assert points(table) == [(8, pytest.approx(158.3e-6)), (16, pytest.approx(160.4e-6))]
    assert {row.wrong for row in table.rows} == {None}
    assert points(one(logs.GATHER_2019)) == [(2**20, pytest.approx(47.38e-6))]


def test_an_empty_column_of_operations_shifts_nothing():
    table = one(logs.BLANK_OPERATION)
    assert table.collective == "send_recv"
    assert points(table) == [(2**20, pytest.approx(90e-6))]
    with pytest.raises(S2SimError, match=r"a\.log, line 2: no row with an in-place time"):
        one(logs.BLANK_OPERATION, in_place=True)


def test_a_log_of_rccl_is_named_by_its_command():
    table = one(logs.OF_RCCL)
    assert (table.collective, table.ranks) == ("all_to_all", 2)
    assert (table.library, table.gpus) == ("RCCL 2.18.6-HEAD:2f6d59e", ("AMD Instinct MI100",))
    assert points(table) == [(2**20, pytest.approx(187.9e-6)), (2**21, pytest.approx(351.9e-6))]


@pytest.mark.parametrize("prefix", logs.LAUNCHERS)
def test_what_launchers_write_before_lines_is_left_out(prefix):
    table = one(logs.launched_by(prefix))
    assert points(table) == [(2**20, pytest.approx(107.5e-6))]


def test_a_row_cut_by_the_library_is_put_together_and_one_without_figures_is_told():
    table = one(logs.CUT)
    assert (table.collective, table.ranks) == ("broadcast", 2)
    assert points(table) == [(2**20, pytest.approx(107.5e-6)), (2**21, pytest.approx(201e-6))]
    assert [row.line for row in table.rows] == [4, 7]
    assert table.unfinished == (8,)


def test_algorithm_protocol_and_channels_are_those_that_the_library_names():
    table = one(logs.CHOSEN)
    assert (table.channels, table.rows[0].time_s) == (16, pytest.approx(281.5e-6))
    assert [(row.algorithm, row.protocol) for row in table.rows] == [
        ("tree", "LL128"),
        ("nvls-tree", "Simple"),
        (None, None),
    ]


def test_the_version_of_the_library_may_be_a_number():
    version = "NCCL version 2.27.5+cuda12.9\n"
    assert version in logs.OF_TODAY
    assert one(logs.OF_TODAY.replace(version, "")).library == "NCCL 2.27.5"


def test_columns_of_single_iterations_and_times_of_day_are_left_out():
    assert points(one(logs.PER_ITERATION)) == [(2**20, pytest.approx(50e-6))]
    assert points(one(logs.PER_ITERATION, in_place=True)) == [(2**20, pytest.approx(49e-6))]


def test_a_program_that_was_stopped_leaves_half_a_row():
    text = logs.OF_TODAY.split("       0    91945")[0] + "       0"
    assert len(one(text).rows) == 3
    inside = one(text, in_place=True)
    assert len(inside.rows) == 2
    assert inside.unfinished == (19,)


def test_each_table_of_a_log_has_what_is_said_before_it():
    tables = parse_nccl_tests(logs.OF_TODAY + logs.OF_RCCL + logs.OF_2019 + logs.CUT, "a.log")
    assert [table.collective for table in tables] == ["all_reduce", "all_to_all", None, "broadcast"]
    assert [table.ranks for table in tables] == [16, 2, 4, 2]
    assert [len(table.rows) for table in tables] == [3, 2, 2, 2]


def test_a_table_may_be_named_below_it():
    text = logs.GATHER_2019 + "# Avg bus bandwidth    : 11.1\n#\n# Collective test concluded: all_gather_perf\n"
    assert one(text).collective == "all_gather"


@pytest.mark.parametrize(
    "line", ["$ mpirun -np 2 all_gather_perf_mpi -b 8\n", "# Collective test starting: all_gather_perf_mpi\n"]
)
def test_programs_of_packages_for_mpi_have_a_name_of_their_own(line):
    assert one(line + logs.GATHER_2019).collective == "all_gather"


def test_processes_that_know_nothing_of_each_other_are_one_rank_each():
    header = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n# Using devices\n#   Rank  0 Pid 1 on {} device  0 [0x00] T4\n"
    assert one(header.format("a") + header.format("b") + logs.GATHER_2019).ranks == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("60.27", "60.2x", "line 16: '60.2x' is no figure"),
        ("60.27", "-60.27", "line 16: '-60.27' is no figure"),
        ("60.27", "9" * 400, "line 16: '9999"),
        ("60.27", "1e17", "line 16: a time of 1e17 us is more than a day"),
        ("60.27", "", "line 16: '-1' is no figure"),
        ("17.40   32.62", "17.40", "line 16: '-1' is no figure"),
        ("0    59.31", "0    59.31  3 4", "line 16: a row of 11 figures under a header of 8"),
        ("  1048576        262144", "99999999999999999999        262144", "line 16: its size is above"),
        (": 55.9900", ": 5x", "line 21: '5x' is no figure"),
    ],
)
def test_a_damaged_line_is_named(old, new, said):
    text = logs.OF_TODAY.replace(old, new, 1)
    assert text != logs.OF_TODAY
    with pytest.raises(S2SimError, match=re.escape("a.log, ") + f"({said})"):
        one(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no table of nccl-tests"),
        ("size_bytes,time_us\n8,1\n", "holds no table of nccl-tests"),
        ("\n".join(logs.OF_TODAY.splitlines()[:15]), "line 14: no row with an out-of-place time"),
    ],
)
def test_a_log_without_rows_says_what_is_missing(text, said):
    with pytest.raises(S2SimError, match=said):
        one(text)


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(S2SimError, match="cannot read the log"):
        read_measured(tmp_path / "none.log")
    (tmp_path / "binary.log").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(S2SimError, match="it is not text"):
        read_measured(tmp_path / "binary.log")
    (tmp_path / "windows.log").write_bytes(logs.OF_TODAY.replace("\n", "\r\n").encode())
    assert len(read_measured(tmp_path / "windows.log")[0].rows) == 3


def rows_or_error(text, *, in_place):
    """Return the rows of all tables and no text, or none and the error's; any other error is one of the test."""
    try:
        tables = parse_nccl_tests(text, "a.log", in_place=in_place)
    except S2SimError as error:
        return [], str(error)
    return [row for table in tables for row in table.rows], ""


@pytest.mark.parametrize("count", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_damaged_logs_are_read_or_refused_in_one_line(count):
    draw = random.Random(12)
    refused = 0
    for number in range(count):
        text = logs.damaged(draw.choice(logs.ALL), draw)
        before = time.process_time()
        rows, said = rows_or_error(text, in_place=bool(number % 2))
        assert time.process_time() - before < 1
        refused += bool(said)
        assert bool(rows) != bool(said)
        assert all(row.size_bytes >= 0 and 0 <= row.time_s <= 86_400 for row in rows)
        assert not said or (said.startswith("a.log") and "\n" not in said and len(said) < 300)
    assert 0 < refused < count
