"""Each plug-in keeps the laws of its kind, does what it is for, and is found by the name of its entry point."""

import numpy as np
import pytest
from s2sim_example.arrivals import LateRanks
from s2sim_example.cycles import FusionCycles
from s2sim_example.rows import TopRows
from s2sim_example.swing import Swing

import s2sim
from s2sim.gradients.gradient import Gradient, RowSparse, to_dense
from s2sim.options import Size, Time
from s2sim.reducers.run import run_reducer
from s2sim.simulation.bucketing.policy import ReadyTensors
from s2sim.testing.collectives import check_algorithm, check_discipline
from s2sim.testing.reducers import check_reducer
from s2sim.testing.topologies import check_topology


def test_all_keep_the_laws_of_their_kind():
    check_reducer(TopRows)
    check_algorithm(Swing())
    for discipline in (FusionCycles(), FusionCycles(Time("50us"), Size("4MiB"))):
        check_discipline(discipline)
    check_topology("cable-ring")


def test_the_largest_rows_of_a_table_arrive_and_the_others_wait():
    rows = np.array([1, 4, 5])
    tables = [RowSparse(rows, np.array([[1, 1], [9, 0], [scale, 0]], np.float32), (6, 2)) for scale in (0, 20)]
    result = run_reducer(TopRows(density=0.4), [Gradient(("table",), (table,)) for table in tables])
    # Two of three rows: 1 and 4 of the first rank, 4 and 5 of the second.
    assert to_dense(result.results[0].mean.layers[0])[rows].tolist() == [[0.5, 0.5], [9, 0], [10, 0]]
    assert to_dense(result.results[1].sent().layers[0])[rows].tolist() == [[0, 0], [9, 0], [20, 0]]


def test_cycles_and_sizes_close_buckets():
    ready_ps = np.array([1, 2, 3, 11, 12, 25], np.int64) * 10**8
    sparse = np.array([0, 1, 0, 0, 0, 0], bool)
    tensors = ReadyTensors(np.array([4, 4, 4, 6, 6, 4], np.int64), ready_ps, sparse)
    buckets = FusionCycles(Time("1ms"), Size("10B")).buckets(tensors, lambda _: 0)
    assert [bucket.tensors for bucket in buckets] == [(1,), (0, 2), (3,), (4,), (5,)]


def test_ranks_come_one_after_the_other():
    late_ps = np.zeros(5, np.int64)
    LateRanks(Time("4us"), "descending").hold_back(np.ones(5), late_ps)
    assert late_ps.tolist() == [4_000_000, 3_000_000, 2_000_000, 1_000_000, 0]
    spec = {"workers": 16, "size_bytes": 2**14, "algorithm": "ring"}
    alone, late = (
        s2sim.run_collective("all_reduce", "cable-ring", **spec, faults=faults)
        for faults in ((), ("late-ranks:last=1ms",))
    )
    assert alone.time_s + 0.001 >= late.time_s > 0.001


def test_swing_is_sooner_than_halving_where_links_of_a_ring_bind():
    def seconds(algorithm):
        ran = s2sim.run_collective("all_reduce", "cable-ring", workers=16, size_bytes=2**24, algorithm=algorithm)
        return ran.time_s

    # 12.8 ms and 21.5 ms: messages cross fewer links, of which each carries fewer at a time.
    assert seconds("swing") < 0.7 * seconds("halving-doubling")
    with pytest.raises(s2sim.S2SimError, match="12 ranks are no power of two"):
        s2sim.run_collective("all_reduce", "cable-ring", workers=12, size_bytes=2**24, algorithm="swing")


def test_runs_name_them():
    trace = "synthetic:density=0.05,rows=300,width=8,dense=100"
    result = s2sim.run("cable-ring", workers=4, trace=trace, reducers=["top-rows:density=0.5,ef=true"])
    assert [row.reducer for row in result.results] == ["dense", "top-rows:density=0.5,ef=true"]
    options = {"profile": "resnet-18", "discipline": "fusion-cycles:cycle=2ms", "reducers": ["fp16"]}
    dense, _ = s2sim.run("cable-ring", workers=4, **options).results
    assert dense.iteration.discipline == "fusion-cycles:cycle=2ms"
