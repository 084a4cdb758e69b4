import dataclasses

import pytest

import s2sim
from s2sim.experiment.judgement import pareto_front
from s2sim.experiment.row_parts import Distance
from s2sim.experiment.spec import COMPARED

TRACE = "synthetic:density=0.02,overlap=0.5,rows=2000,width=16"


@pytest.fixture(scope="module")
def rows():
    found = s2sim.run("fat-tree", workers=8, trace=TRACE, reducers=COMPARED, break_even=False)
    assert found.verdict.break_even == ()
    return found.rows


@pytest.mark.slow
def test_a_fair_comparison_has_all_baselines_and_sketches_of_several_sizes(rows):
    names = [row.option_string for row in rows]
    assert tuple(names) == COMPARED
    assert {"dense", "fp16", "union", "union:prefetch=true", "owner-reduce", "gather-rows"} <= set(names)
    assert {"s2-exact", "s2-exact:warm=true"} <= set(names)
    assert sum(row.name == "s2" for row in rows) >= 8


@pytest.mark.parametrize("cost", [lambda row: row.bytes_sent_per_rank, lambda row: row.time_s.total])
def test_the_front_is_what_nothing_beats(rows, cost):
    def error(row):
        return 0.0 if row.lossless else row.error.relative_l2

    def beaten(row):
        return any(
            error(other) <= error(row)
            and cost(other) <= cost(row)
            and (error(other), cost(other)) != (error(row), cost(row))
            for other in rows
        )

    chosen = pareto_front(rows, cost)
    assert chosen == {row.option_string for row in rows if not beaten(row) and error(row) < 1}
    assert 0 < len(chosen) < len(rows)


def test_equals_are_all_on_the_front_and_useless_ones_never(rows):
    row = dataclasses.replace(rows[0], lossless=False)

    def make(name, error, sent):
        return dataclasses.replace(row, reducer=name, error=Distance(error, None), bytes_sent_per_rank=sent)

    made = [make("a", 0.5, 10), make("b", 0.5, 10), make("c", 0.5, 11), make("d", 1.0, 1), make("e", None, 0)]
    assert pareto_front(made, lambda row: row.bytes_sent_per_rank) == {"a", "b"}
    assert pareto_front([], lambda row: row.time_s.total) == frozenset()


def test_payload_is_what_a_rank_hands_in(rows):
    by_name = {row.option_string: row for row in rows}
    dense = by_name["dense"]
    assert dense.payload_bytes_per_rank == 2000 * 16 * 4
    assert dense.bytes_sent_per_rank == 2 * 7 * dense.payload_bytes_per_rank // 8
    # Index and value of the largest per cent of all elements.
    assert by_name["topk:density=0.01"].payload_bytes_per_rank == 320 * 8
    (alone,) = s2sim.run("fat-tree", workers=1, trace=TRACE, reducers=["dense"]).rows
    assert alone.judgement.speedup == 1
    assert (alone.payload_bytes_per_rank, alone.bytes_sent_per_rank) == (dense.payload_bytes_per_rank, 0)
