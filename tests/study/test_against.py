import json
import random
import time
from math import log

import pytest

from s2sim.errors import S2SimError
from s2sim.report.log_comparison import log_comparison_grid
from s2sim.traffic.nccl_tests import parse_nccl_tests
from s2sim.traffic.spec import CollectiveSpec
from s2sim.validation.compare_log import choose_tables, compare_log

from .measured_logs import logs

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
    return compare_log(spec, tables)


def test_each_row_has_both_times_their_ratio_and_its_logarithm():
    from s2sim.traffic.collective_run import run_collective

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
            "rings": 0,
            "trees": 0,
            "transports": [],
        }
    ]
    assert "no row" in str(result)


def test_what_the_library_took_stands_beside_what_was_simulated():
    said = (
        "a:1:2 [0] NCCL INFO 8 coll channels, 0 nvls channels\na:1:2 [0] NCCL INFO 8 Bytes -> Algo 1 proto 0 time 5\n"
    )
    text = table("all_reduce", 4, {8: 100, 16: 90})
    result = against(text.replace(TITLES, TITLES + said))
    assert [(row.measured_algorithm, row.measured_protocol) for row in result.rows] == [("ring", "LL"), (None, None)]
    assert result.tables[0].channels == 8
    assert "ring LL" in str(result)
    titles = [
        "measured\nby" in [column.title for column in log_comparison_grid(each).columns]
        for each in (result, against(text))
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
    result = compare_log(CollectiveSpec("single-switch", "all_gather", 4, 2**20), found)
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
    assert "the table at line 7 ran on 2 hosts, simulated are 1 node: give --set node.gpus=2" in notes
    assert any("launched on 2 GPUs from one thread: launch=node" in note for note in notes)
    assert "line 8 measured sums that came out wrong" in notes
    charged = against(text, "dgx-h100", library="nccl:timing=measured,launch=node")
    assert not any("launch=node" in note for note in charged.notes)
    assert any("the wire alone" in note for note in against(text, "dgx-h100").notes)


MEASURED = "nccl:timing=measured"


def as_logged(text, topology="dgx-h100", **options):
    tables = chosen(text)
    spec = CollectiveSpec(topology, tables.kind, tables.workers, tables.largest_bytes, library=MEASURED, **options)
    return compare_log(spec, tables)


@pytest.mark.parametrize(
    ("model", "topology", "noted"),
    [
        ("NVIDIA A100-SXM4-80GB", "dgx-h100", True),
        ("NVIDIA H100 NVL", "dgx-h100", True),
        ("NVIDIA H100 80GB HBM3", "dgx-h100", False),
        ("NVIDIA A100-SXM4-80GB", "dgx-a100", False),
        ("Graphics Device", "dgx-h100", False),
    ],
)
def test_devices_of_another_gpu_are_noted(model, topology, noted):
    notes = as_logged(table("all_reduce", 4, {8: 9}).replace("H100", model), topology).notes
    assert [f"ran on {model}, simulated is h100" in note for note in notes] == [True] * noted


@pytest.mark.filterwarnings("error")
def test_the_gpu_that_a_note_names_can_be_given():
    text = table("all_reduce", 4, {2**20: 9}).replace("H100", "A100")
    other, same = as_logged(text), as_logged(text, overrides=("gpu=a100",))
    assert "--set gpu=a100" in other.notes[0]
    assert same.notes == ()
    assert same.rows[0].simulated_s != other.rows[0].simulated_s


def test_algorithms_protocols_rings_and_trees_are_those_of_the_log():
    result = as_logged(logs.GRAPHS)
    ran = [(row.algorithm.partition(",")[0], row.protocol) for row in result.rows]
    # A ring that visits the ranks otherwise is one of its own, and its twin would not be.
    assert ran == [("double-binary-tree:chunks=1", "LL"), ("ring:channels=2", "LL"), ("ring:channels=2", "Simple")]
    assert (result.tables[0].rings, result.tables[0].trees) == (2, 2)
    assert not any("simulated by" in note for note in result.notes)
    twins = as_logged(logs.GRAPHS.replace("0   2   1   3", "0   1   2   3"))
    assert [row.algorithm for row in twins.rows[1:]] == ["ring", "ring"]


def test_what_the_log_forces_counts_for_all_sizes_and_an_algorithm_that_is_asked_for_before_it():
    told = "a:1:2 [0] NCCL INFO NCCL_{} set by environment to {}\n"
    said = told.format("ALGO", "Tree") + told.format("PROTO", "LL128")
    text = said + table("all_reduce", 16, {8: 90, 2**26: 900})
    rows = as_logged(text).rows
    assert {(row.algorithm.partition(":")[0], row.protocol) for row in rows} == {("double-binary-tree", "LL128")}
    asked = as_logged(text, algorithm="ring")
    assert {row.algorithm.partition(":")[0] for row in asked.rows} == {"ring"}
    assert "2 rows that were measured by tree are simulated by ring, as asked" in asked.notes


def test_what_cannot_be_here_is_simulated_otherwise_and_told():
    result = as_logged(
        logs.GRAPHS.replace("Algo RING proto SIMPLE", "Algo NVLS_TREE proto SIMPLE").replace("H100", "A100")
    )
    assert any("measured by nvls-tree is simulated by" in note for note in result.notes)
    unknown = as_logged(logs.GRAPHS.replace("Algo RING proto LL ", "Algo WARP proto LL "))
    assert any("measured by WARP is simulated by ring" in note for note in unknown.notes)


def test_ways_that_the_topology_has_not_are_told():
    sockets = logs.GRAPHS.replace("via P2P/CUMEM", "via NET/Socket/0")
    assert any("connected by sockets" in note for note in as_logged(sockets).notes)
    staged = logs.GRAPHS.replace("via P2P/CUMEM", "via NET/IB/0")
    assert any("without GPUDirect" in note for note in as_logged(staged).notes)
    assert not any("connected" in note for note in as_logged(logs.GRAPHS).notes)


def test_terms_and_what_none_explains_are_the_difference():
    result = as_logged(logs.GRAPHS)
    for row in result.rows:
        assert row.difference_s == row.simulated_s - row.measured_s
        terms = sum(term.difference_s for term in row.terms)
        assert terms + row.not_explained_s == pytest.approx(row.difference_s, rel=1e-12)
        assert sum(term.simulated_s for term in row.terms) == pytest.approx(row.simulated_s, rel=1e-12)
    assert "measured against simulated, by term:" in str(result)
    assert "not explained" in str(result)


def test_no_terms_explain_what_packets_take():
    result = against(table("all_reduce", 2, {2**10: 100}), network="packet")
    assert (result.terms, result.rows[0].terms) == ((), ())
    assert result.rows[0].not_explained_s == result.rows[0].difference_s
    assert any("no terms explain" in note for note in result.notes)


@pytest.mark.parametrize("count", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_damaged_logs_are_explained_or_refused(count):
    draw = random.Random(13)
    explained, errors = 0, []
    for _ in range(count):
        text = logs.damaged(logs.GRAPHS, draw)
        before = time.process_time()
        try:
            if chosen(text).workers > 32:
                continue
            result = as_logged(text)
        except S2SimError as error:
            errors.append(str(error))
        else:
            json.dumps(result.to_json(), allow_nan=False)
            explained += bool(str(result))
        assert time.process_time() - before < 5
    assert explained
    assert errors
    assert not any("\n" in error for error in errors)
