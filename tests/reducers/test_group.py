"""The in-memory group: what it computes, and what it refuses because a real cluster would hang."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from s2sim.errors import CodecError, S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.group.process_group import make_instances, run_group
from s2sim.reducers.rank import Reduced, Reducer
from s2sim.reducers.scripts.script import AwaitGradient, Post, Wait

EMPTY = Gradient((), ())


@dataclass
class Program(Reducer):
    """A reducer around a plain generator function; what it returns is kept in ``seen``."""

    body: Any
    seen: list

    def reduce(self, rank, gradient):
        self.seen.append((yield from self.body(rank)))
        return Reduced(gradient, lambda: gradient)


def run(body, ranks=3):
    seen = []
    _, recording = run_group(make_instances(Program(body, seen), ranks), [EMPTY] * ranks)
    return seen, recording


def reduced(payloads, op="sum"):
    def body(rank):
        pending = rank.all_reduce(payloads[rank.index], op, label="x")
        yield pending
        return pending.value

    return run(body, len(payloads))[0][-1]


def test_sums_are_in_rank_order():
    # 1e8 + 1 is 1e8 in float32: the order shows.
    values = [np.array([v], np.float32) for v in (1e8, 1.0, -1e8, 1.0)]
    assert reduced(values)[0] == 1.0


def test_max_knows_negative_values_and_zeros_of_missing_rows():
    dense = [np.array([-3, -1], np.int8), np.array([-2, -5], np.int8)]
    assert reduced(dense, "max").tolist() == [-2, -1]
    sparse = [RowSparse(np.array([0]), np.array([-3.0], np.float32), (2,)), np.array([-1.0, -1.0], np.float32)]
    assert reduced(sparse, "max").tolist() == [-1.0, 0.0]
    assert reduced(sparse[::-1], "max").tolist() == [-1.0, 0.0]


def test_or_joins_bits():
    assert reduced([np.array([1, 8], np.uint8), np.array([2, 8], np.uint8)], "or").tolist() == [3, 8]


def test_row_sparse_payloads_count_and_combine_as_dense_ones():
    rng = np.random.default_rng(0)
    tables = [
        RowSparse(np.sort(rng.choice(9, 4, replace=False)), rng.standard_normal((4, 3), np.float32), (9, 3))
        for _ in range(5)
    ]
    assert np.array_equal(reduced(tables), reduced([table.to_dense() for table in tables]))


def test_half_sums_round_once():
    # 2048 + 1 is 2048 in float16: summed in halves, the ones would vanish one by one.
    values = [np.array([v], np.float16) for v in (2048, 1, 1, 1, 1)]
    total = reduced(values)
    assert total.dtype == np.float16
    assert total[0] == 2052


def test_half_overflow_is_an_error():
    with pytest.raises(CodecError, match="half precision"):
        reduced([np.array([60000], np.float16)] * 2)


def test_gathers_keep_rank_order_and_unequal_sizes():
    def body(rank):
        pending = rank.all_gather((np.full(rank.index, rank.index, np.uint32), np.zeros(1, np.float32)), label="x")
        yield pending
        return [part.tolist() for part, _ in pending.value]

    seen, recording = run(body)
    assert seen[0] == [[], [1], [2, 2]]
    assert recording.calls[0].bytes_by_rank == (4, 8, 12)


def test_an_exchange_gives_each_rank_what_all_have_for_it():
    def body(rank):
        blocks = [
            (np.full(rank.index * to, 10 * rank.index + to, np.uint32), np.ones(to, np.uint8))
            for to in range(rank.size)
        ]
        pending = rank.all_to_all(blocks, label="x", size_from_data=True)
        yield pending
        return pending.value

    seen, recording = run(body)
    for rank, value in enumerate(seen):
        assert [part.tolist() for part, _ in value] == [[10 * source + rank] * source * rank for source in range(3)]
        assert [len(part) for _, part in value] == [rank] * 3
        with pytest.raises(ValueError, match="read-only"):
            value[0][1][:] = 5
    (call,) = recording.calls
    assert (call.kind, call.op, call.dtype, call.itemsize, call.size_from_data) == (
        "all_to_all",
        "exchange",
        "uint8",
        1,
        True,
    )
    assert call.blocks == ((0, 1, 2), (0, 5, 10), (0, 9, 18))
    assert call.elements == (3, 15, 27)
    assert call.bytes_by_rank == (3, 15, 27)


def test_an_exchange_of_one_type_counts_its_elements():
    def body(rank):
        pending = rank.all_to_all([np.zeros(3, np.float32)] * rank.size, label="x")
        yield pending

    _, recording = run(body)
    assert (recording.calls[0].itemsize, recording.calls[0].blocks) == (4, ((3, 3, 3),) * 3)


def test_what_needs_no_gradient_comes_first_in_the_script():
    def body(rank):
        pending = rank.all_reduce(np.ones(1), label="x")
        yield pending
        rank.await_gradient()

    _, recording = run(body)
    assert recording.scripts == ((Post(0), Wait((0,)), AwaitGradient()),) * 3


def test_results_are_one_read_only_object():
    def body(rank):
        pending = rank.all_reduce(np.ones(2, np.float32), label="x")
        yield pending
        return pending.value

    seen, _ = run(body)
    assert seen[0] is seen[1] is seen[2]
    with pytest.raises(ValueError, match="read-only"):
        seen[0][0] = 5


def test_replicated_runs_once():
    calls = []

    def body(rank):
        first, second = (rank.replicated(lambda key=key: calls.append(key) or key) for key in "ab")
        yield rank.all_reduce(np.ones(1), label="x")
        return first + second

    seen, _ = run(body)
    assert calls == ["a", "b"]
    assert seen == ["ab"] * 3


def test_the_script_says_what_was_posted_and_waited_for():
    def body(rank):
        a, b = (rank.all_reduce(np.ones(1), label=label) for label in "ab")
        yield a
        yield a & b
        return (a & b).value

    seen, recording = run(body)
    assert recording.scripts == ((Post(0), Post(1), Wait((0,)), Wait((0, 1))),) * 3
    assert [value[0] for value in seen[0]] == [3, 3]


def read_before_waiting(rank):
    other, pending = (rank.all_reduce(np.ones(1), label=label) for label in "ab")
    yield other
    return pending.value


def never_waits(rank):
    rank.all_reduce(np.ones(1), label="lost")
    yield rank.all_reduce(np.ones(1), label="found")


def stops_early(rank):
    pending = rank.all_reduce(np.ones(1), label="x")
    if rank.index != 1:
        yield pending


def waits_for_another(rank):
    pair = [rank.all_reduce(np.ones(1), label=label) for label in "ab"]
    yield pair[rank.index % 2]
    yield pair[0] & pair[1]


def posts_more(rank):
    pending = rank.all_reduce(np.ones(1), label="x")
    if rank.index == 2:
        rank.all_reduce(np.ones(1), label="y")
    yield pending


def other_label(rank):
    yield rank.all_reduce(np.ones(1), label="odd" if rank.index == 1 else "even")


def other_op(rank):
    yield rank.all_reduce(np.ones(1), "max" if rank.index == 1 else "sum", label="x")


def other_shape(rank):
    yield rank.all_reduce(np.ones(1 + rank.index), label="x")


def other_type(rank):
    yield rank.all_gather(np.ones(1, np.float32 if rank.index else np.float64), label="x")


def too_few_blocks(rank):
    yield rank.all_to_all([np.ones(1)] * (rank.size - 1), label="x")


def other_type_for_one(rank):
    dtypes = [np.float32] * rank.size
    if rank.index == 1:
        dtypes[2] = np.float64
    yield rank.all_to_all([np.ones(1, dtype) for dtype in dtypes], label="x")


def some_await(rank):
    if rank.index:
        rank.await_gradient()
    yield rank.all_reduce(np.ones(1), label="x")


def awaits_twice(rank):
    rank.await_gradient()
    rank.await_gradient()
    yield rank.all_reduce(np.ones(1), label="x")


def unknown_op(rank):
    yield rank.all_reduce(np.ones(1), "xor", label="x")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (read_before_waiting, "before the program waited"),
        (never_waits, "without waiting for 'lost'"),
        (stops_early, "would hang"),
        (waits_for_another, "would hang"),
        (posts_more, "would hang"),
        (other_label, "'odd' where rank 0 posts all_reduce 'even'"),
        (other_op, "same collectives"),
        (other_shape, "another shape"),
        (other_type, "another shape or type"),
        (too_few_blocks, "with 2 payloads: give one for each of 3"),
        (other_type_for_one, "another shape or type"),
        (some_await, "only some ranks await the gradient"),
        (awaits_twice, "awaits the gradient twice"),
        (unknown_op, "known: sum, max, or"),
    ],
)
def test_programs_that_would_hang_or_disagree_are_refused(body, complaint):
    with pytest.raises(S2SimError, match=complaint):
        run(body)
