"""Gains in many settings are those of runs, counts of them are right, and one recording serves all clusters."""

import pytest

import s2sim
from s2sim.claims.grid import (
    ClusterSetting,
    GridRecorder,
    SettingGain,
    best_map,
    best_of,
    filter_table,
    median_map,
    table_by,
    winning_gains,
)

REDUCERS = ("dense", "fp16", "topk:density=0.01")
SLOW = ClusterSetting("slow", "tcp-10g", ("node.gpus=1", "nic.rate=1Gbps"))
FAST = ClusterSetting("fast", "single-switch", gpu="h100")


def gain(reducer, time_s, where="here", batch=1, error=0.0, rejected=None):
    return SettingGain("model", where, reducer, batch, 8, 1.0, time_s, error, rejected)


GAINS = (
    gain("a", 0.5, error=0.4),
    gain("b", 0.96, error=1e-4),
    gain("a", 2.0, where="there", error=0.4),
    gain("b", 0.999, where="there", error=1e-4),
    gain("c", 0.1, where="there", error=1.2, rejected="worse than zeros"),
)


def test_wins_are_over_a_margin():
    assert [each.reducer for each in winning_gains(GAINS, 0.01)] == ["a", "b", "c"]
    assert [each.reducer for each in winning_gains(GAINS, 0.05)] == ["a", "c"]


def test_the_best_of_a_setting_is_the_fastest():
    best = best_of(GAINS)
    assert {where: each.reducer for (_, _, where, _), each in best.items()} == {"here": "a", "there": "c"}


def test_what_is_rejected_is_never_trusted():
    assert [each.trusted() for each in GAINS] == [True, True, True, True, False]
    assert [each.trusted(0.1) for each in GAINS] == [False, True, False, True, False]


def test_the_filter_counts_setups_and_settings():
    table = filter_table(GAINS)
    by_name = {row[0]: row[1:] for row in table.rows}
    assert by_name["whatever the error"] == ("3 of 5 (60%)", "2 of 5 (40%)", "2 of 5 (40%)", "2 of 2 (100%)")
    assert by_name["errors that verdicts trust"][0] == "2 of 5 (40%)"
    assert by_name["error at most 0.1"] == ("1 of 5 (20%)", "0 of 5 (0%)", "0 of 5 (0%)", "1 of 2 (50%)")


def test_tables_and_maps_keep_the_order():
    assert [row[0] for row in table_by("reducer", lambda each: each.reducer, GAINS).rows] == ["a", "b", "c"]
    best, middle = best_map("best", GAINS), median_map("median", GAINS)
    assert best.columns == middle.columns == ("here", "there")
    assert best.values == ((2.0, 10.0),)
    assert middle.rows == ("a", "b", "c")
    assert middle.values[2] == (None, 10.0)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [8, 32])
def test_gains_are_those_of_runs(batch):
    recorder = GridRecorder(REDUCERS, 4)
    for where in (SLOW, FAST):
        found = {each.reducer: each for each in recorder.gains("resnet-18", where, batch)}
        result = s2sim.run(
            where.topology,
            workers=4,
            reducers=list(REDUCERS),
            overrides=where.overrides,
            gpu=where.gpu,
            profile="resnet-18:precision=fp32",
            batch=batch,
            break_even=False,
            thorough=False,
        )
        rows = {row.option_string: row for row in result.rows}
        assert set(found) == set(REDUCERS[1:])
        for name, each in found.items():
            assert each.time_s == rows[name].iteration_s
            assert each.dense_s == rows["dense"].iteration_s
            assert each.error == rows[name].error.relative_l2
            assert each.rejected == rows[name].judgement.rejected
    assert len(recorder._known) == 1


@pytest.mark.slow
def test_a_loop_of_the_host_costs_compressors_alone():
    recorder = GridRecorder(REDUCERS, 4)
    (plain, *_), (slower, *_) = (recorder.gains("resnet-18", SLOW, 8, host) for host in (None, "300us"))
    assert slower.dense_s == plain.dense_s
    assert slower.time_s > plain.time_s
