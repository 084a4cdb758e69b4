from __future__ import annotations

import json
from math import log

import pytest

from s2sim.errors import S2SimError
from s2sim.report.tables.against import against_grid
from s2sim.study.collective.against import choose_tables, compare
from s2sim.study.collective.spec import CollectiveSpec
from s2sim.study.measured_logs.nccl_tests import parse_nccl_tests

TITLES = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"


def table(name, ranks, times_us, hosts=1, gpus=1):
    """Return the text of a log with a row for each size, in bytes."""
    lines = [] if name is None else [f"# Collective test starting: {name}_perf\n"]
    lines += [f"# nThread 1 nGpus {gpus} minBytes 8 maxBytes 8\n"]
    lines += [f"#  Rank {rank} Pid 1 on host{rank % hosts} device 0 [0x18] H100\n" for rank in range(ranks)]
    rows = [f"{size} 0 float sum -1 {time} 1 1 0 {time} 1 1 0\n" for size, time in times_us.items()]
    return "".join([*lines, TITLES, *rows, "# Avg bus bandwidth    : 1\n"])


def chosen(text, kind=None, workers=None):
    return choose_tables(parse_nccl_tests(text, "a.log"), "a.log", kind, workers)


def against(text, topology="single-switch", **options):
    tables = chosen(text)
    spec = CollectiveSpec(topology, tables.kind, tables.workers, tables.largest_bytes, algorithm="ring", **options)
    return compare(spec, tables)


def test_each_row_has_both_times_their_ratio_and_its_logarithm():
    from s2sim import run_collective

    text = table("all_reduce", 4, {2**16: 100, 2**20: 200, 2**21: 300, 2**22: 1000})
    result = against(text)
    assert [row.size_bytes for row in result.rows] == [2**16, 2**20, 2**21, 2**22]
    for row in result.rows:
        alone = run_collective("all_reduce", "single-switch", workers=4, size_bytes=row.size_bytes, algorithm="ring")
        assert row.simulated_s == alone.time_s
        assert row.simulated_busbw_Bps == pytest.approx(alone.busbw_Bps)
        assert row.ratio == pytest.approx(alone.time_s / row.measured_s)
        assert row.log_error == pytest.approx(log(row.ratio))
        assert row.measured_busbw_Bps == pytest.approx(1.5 * row.size_bytes / row.measured_s)
    small, *large = (row.log_error for row in result.rows)
    assert result.signed_log_error_small == small
    assert result.median_abs_log_error_small == abs(small)
    assert result.signed_log_error_large == sorted(large)[1]
    assert result.median_abs_log_error_large == sorted(map(abs, large))[1]


def test_medians_without_rows_are_null_in_json():
    result = against(table("all_reduce", 4, {2**10: 100}))
    value = json.loads(json.dumps(result.to_json()))
    assert value["median_abs_log_error_large"] is None
    assert value["signed_log_error_small"] == result.rows[0].log_error
    assert value["tables"] == [
        {
            "line": 7,
            "collective": "all_reduce",
            "ranks": 4,
            "hosts": 1,
            "gpus": ["H100"],
            "library": None,
            "channels": None,
        }
    ]
    assert "no row" in repr(result)


def test_what_the_library_took_stands_beside_what_was_simulated():
    said = (
        "a:1:2 [0] NCCL INFO 8 coll channels, 0 nvls channels\na:1:2 [0] NCCL INFO 8 Bytes -> Algo 1 proto 0 time 5\n"
    )
    text = table("all_reduce", 4, {8: 100, 16: 90})
    result = against(text.replace(TITLES, TITLES + said))
    assert [(row.measured_algorithm, row.measured_protocol) for row in result.rows] == [("ring", "LL"), (None, None)]
    assert result.tables[0].channels == 8
    assert "ring LL" in repr(result)
    titles = [
        "measured\nby" in [column.title for column in against_grid(each).columns] for each in (result, against(text))
    ]
    assert titles == [True, False]


def test_all_tables_of_the_collective_and_the_ranks_are_compared():
    three = [table("all_reduce", 4, {8: 9}), table("all_gather", 4, {8: 9}), table("all_reduce", 4, {8: 10, 16: 11})]
    found = chosen("".join(three), "all_reduce")
    assert [len(each.rows) for each in found.tables] == [1, 2]
    both = table("all_reduce", 4, {8: 9}) + table("all_reduce", 8, {8: 9})
    assert [each.ranks for each in chosen(both, workers=8).tables] == [8]


def test_what_the_log_does_not_say_is_taken_as_asked_and_noted():
    found = chosen(table(None, 0, {2**20: 90}), "all_gather", 4)
    result = compare(CollectiveSpec("single-switch", "all_gather", 4, 2**20), found)
    assert any("names no collective and is taken for all_gather" in note for note in result.notes)
    assert any("is taken for 4" in note for note in result.notes)


@pytest.mark.parametrize(
    ("text", "kind", "workers", "said"),
    [
        (table("all_reduce", 4, {8: 9}), "all_gather", None, "no table of all_gather but of all_reduce"),
        (table("all_reduce", 4, {8: 9}), None, 8, "is of 4 ranks, not of 8"),
        (table("all_reduce", 4, {8: 9}), "all_reduc", None, "did you mean 'all_reduce'"),
        (table("all_reduce", 0, {8: 9}), None, None, "does not say how many ranks ran: give --workers"),
        (table(None, 4, {8: 9}), None, None, "names no collective: say which with KIND"),
        (table("hypercube", 4, {8: 9}), None, None, "is of hypercube, which s2sim does not simulate"),
        (
            table("all_reduce", 4, {8: 9}) + table("reduce", 4, {8: 9}),
            None,
            None,
            "has tables of all_reduce, reduce: say which",
        ),
        (
            table("reduce", 4, {8: 9}) + table("reduce", 2, {8: 9}),
            None,
            None,
            "has tables of 2, 4 ranks: give --workers",
        ),
    ],
)
def test_a_log_that_does_not_fit_is_refused(text, kind, workers, said):
    with pytest.raises(S2SimError, match=said):
        chosen(text, kind, workers)


def test_rows_without_bytes_or_time_are_left_out_and_told():
    result = against(table("all_reduce", 4, {0: 5, 8: 0, 16: 9}))
    assert [row.size_bytes for row in result.rows] == [16]
    assert "lines 8, 9 left out: no bytes, or no time" in result.notes
    for text in (table("all_reduce", 4, {0: 5}), table("all_reduce", 1, {8: 5})):
        with pytest.raises(S2SimError, match=r"a\.log: nothing to compare"):
            against(text)


def test_other_machines_and_launches_are_noted():
    text = table("all_reduce", 4, {8: 9}, hosts=2, gpus=2).replace(" 1 1 0 9", " 1 1 3 9")
    notes = against(text, "dgx-h100", library="nccl:timing=measured").notes
    assert "the table at line 7 ran on 2 hosts, simulated are 1 node" in notes
    assert any("launched on 2 GPUs from one thread: launch=node" in note for note in notes)
    assert "line 8 measured sums that came out wrong" in notes
    charged = against(text, "dgx-h100", library="nccl:timing=measured,launch=node")
    assert not any("launch=node" in note for note in charged.notes)
    assert any("the wire alone" in note for note in against(text, "dgx-h100").notes)
