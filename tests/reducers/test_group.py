"""The in-memory group: what it computes, and what it refuses because a real cluster would hang."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from s2sim.errors import CodecError, S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.rank import Reduced, Reducer
from s2sim.reducers.script import AwaitGradient, Post, Wait

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


def awaited(post):
    """Return the program that waits for what ``post`` posts as a rank, and returns its value."""

    def body(rank):
        pending = post(rank)
        yield pending
        return pending.value

    return body


def reduced(payloads, op="sum"):
    program = awaited(lambda rank: rank.all_reduce(payloads[rank.index], op, label="x"))
    return run(program, len(payloads))[0][-1]


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
    def post(rank):
        own = np.full(rank.index, rank.index, np.uint32)
        return rank.all_gather((own, np.zeros(1, np.float32)), label="x", unequal=True)

    seen, recording = run(awaited(post))
    assert [part.tolist() for part, _ in seen[0]] == [[], [1], [2, 2]]
    assert recording.calls[0].bytes_by_rank == (4, 8, 12)


@pytest.mark.parametrize("kind", ["all_gather", "all_to_all"])
def test_sizes_that_differ_are_announced(kind):
    def body(rank):
        own = np.zeros(rank.index, np.uint32)
        yield getattr(rank, kind)(own if kind == "all_gather" else [own] * rank.size, label="x")

    with pytest.raises(S2SimError, match="'x' with another shape or type than others: give unequal=True where all"):
        run(body)


def test_an_exchange_gives_each_rank_what_all_have_for_it():
    def post(rank):
        blocks = [
            (np.full(rank.index * to, 10 * rank.index + to, np.uint32), np.ones(to, np.uint8))
            for to in range(rank.size)
        ]
        return rank.all_to_all(blocks, label="x", size_from_data=True)

    seen, recording = run(awaited(post))
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
    _, recording = run(awaited(lambda rank: rank.all_to_all([np.zeros(3, np.float32)] * rank.size, label="x")))
    assert (recording.calls[0].itemsize, recording.calls[0].blocks) == (4, ((3, 3, 3),) * 3)


def test_what_needs_no_gradient_comes_first_in_the_script():
    def body(rank):
        pending = rank.all_reduce(np.ones(1), label="x")
        yield pending
        rank.await_gradient()

    _, recording = run(body)
    assert recording.scripts == ((Post(0), Wait((0,)), AwaitGradient()),) * 3


def test_ranks_may_wait_in_another_order_than_they_post():
    def body(rank):
        pair = [rank.all_reduce(np.ones(1), label=label) for label in "ab"]
        yield pair[rank.index % 2]
        yield pair[0] & pair[1]

    _, recording = run(body)
    assert recording.scripts[1] == (Post(0), Post(1), Wait((1,)), Wait((0, 1)))


def test_a_reduce_leaves_the_sum_on_its_root_alone():
    seen, recording = run(awaited(lambda rank: rank.reduce(np.full(2, rank.index + 1, np.int32), root=1, label="x")))
    assert [value is None for value in seen] == [True, False, True]
    assert seen[1].tolist() == [6, 6]
    assert not seen[1].flags.writeable
    (call,) = recording.calls
    assert (call.kind, call.op, call.root, call.elements, call.ranks) == ("reduce", "sum", 1, (2, 2, 2), ())


def test_a_broadcast_gives_all_the_object_of_its_root():
    def post(rank):
        own = (np.arange(3, dtype=np.float32), np.ones(1, np.uint8)) if rank.index == 2 else None
        return rank.broadcast(own, root=2, label="x", size_from_data=True)

    seen, recording = run(awaited(post))
    assert seen[0] is seen[1] is seen[2]
    assert [part.tolist() for part in seen[0]] == [[0, 1, 2], [1]]
    assert not seen[0][0].flags.writeable
    (call,) = recording.calls
    assert (call.kind, call.op, call.root, call.elements, call.itemsize) == ("broadcast", "copy", 2, (13, 13, 13), 1)
    assert call.bytes_by_rank == (0, 0, 13)


def test_a_reduce_scatter_gives_each_its_part_of_the_sums():
    def post(rank):
        return rank.reduce_scatter([np.full(to, 10.0**rank.index, np.float32) for to in range(rank.size)], label="x")

    seen, recording = run(awaited(post))
    assert [value.tolist() for value in seen] == [[], [111], [111, 111]]
    assert not seen[2].flags.writeable
    (call,) = recording.calls
    assert (call.kind, call.op, call.elements, call.bytes_by_rank) == ("reduce_scatter", "sum", (0, 1, 2), (12,) * 3)


def test_peers_get_what_is_sent_to_them_and_nothing_else():
    def post(rank):
        # 0 sends to all, 1 to 2 alone, 2 to nobody.
        targets = {0: [2, 1], 1: [2], 2: []}[rank.index]
        return rank.exchange({to: np.full(to, rank.index, np.float32) for to in targets}, label="x")

    seen, recording = run(awaited(post))
    assert [{source: part.tolist() for source, part in value.items()} for value in seen] == [
        {},
        {0: [0]},
        {0: [0, 0], 1: [1, 1]},
    ]
    assert list(seen[2]) == [0, 1]
    assert not seen[1][0].flags.writeable
    (call,) = recording.calls
    assert (call.kind, call.op, call.dtype, call.blocks) == (
        "all_to_all",
        "peers",
        "float32",
        ((0, 1, 2), (0, 0, 2), (0, 0, 0)),
    )


def test_peers_that_send_nothing_at_all():
    seen, recording = run(awaited(lambda rank: rank.exchange({}, label="x")))
    assert seen == [{}, {}, {}]
    assert recording.calls[0].elements == (0, 0, 0)


def test_groups_post_by_themselves_and_count_their_own_places():
    computed = []

    def body(rank):
        own = rank.subgroup(range(rank.index // 3 * 3, min(rank.index // 3 * 3 + 3, rank.size)))
        again = rank.subgroup(range(rank.index // 3 * 3, min(rank.index // 3 * 3 + 3, rank.size)))
        total = own.all_reduce(np.array([rank.index]), label="own")
        yield total
        if own.index == 0 and rank.size > 3:
            # Of the leaders, each by its place in the first group.
            leaders = rank.subgroup(range(0, rank.size, 3))
            total = leaders.all_reduce(total.value, label="leaders")
            yield total
        shared = own.replicated(lambda: computed.append(rank.index) or rank.index // 3)
        everything = again.broadcast(total.value, root=0, label="back")
        yield everything
        return own.index, own.size, shared, everything.value[0]

    seen, recording = run(body, ranks=7)
    # In the order in which they end, so leaders last.
    assert sorted(seen) == sorted([(place, 3, group, 21) for place in range(3) for group in (0, 1)] + [(0, 1, 2, 21)])
    assert len(computed) == 3
    ranks = {call.label: set() for call in recording.calls}
    for call in recording.calls:
        ranks[call.label].add(call.ranks)
        assert len(call.elements) == len(call.ranks)
    groups = {(0, 1, 2), (3, 4, 5), (6,)}
    assert ranks == {"own": groups, "leaders": {(0, 3, 6)}, "back": groups}
    posted = [
        [recording.calls[step.call].label for step in script if isinstance(step, Post)] for script in recording.scripts
    ]
    assert posted[3] == ["own", "leaders", "back"]
    assert posted[4] == ["own", "back"]


def test_a_group_of_a_group_counts_by_the_places_in_it():
    def body(rank):
        if rank.index == 0:
            return None
        others = rank.subgroup([3, 1, 2])
        last = others.subgroup([1, 2]) if others.index else None
        if last is None:
            return None
        pending = last.all_gather(np.array([rank.index]), label="x")
        yield pending
        return [int(part[0]) for part in pending.value]

    seen, recording = run(body, ranks=4)
    assert seen == [None, None, [2, 3], [2, 3]]
    assert recording.calls[0].ranks == (2, 3)


def test_the_group_of_all_is_the_one_that_was_given():
    _, recording = run(awaited(lambda rank: rank.subgroup(range(rank.size)).all_reduce(np.ones(1), label="x")))
    assert recording.calls[0].ranks == ()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint64])
@pytest.mark.parametrize("sparse", [False, True])
def test_integers_that_overflow_in_a_sum_are_an_error(dtype, sparse):
    top = np.iinfo(dtype).max
    for values, fits in (([top - 2, 1, 1], True), ([top - 1, 1, 1], False), ([top, top, 3], False)):
        arrays = [np.array([0, value], dtype) for value in values]
        payloads = [RowSparse(np.array([1]), array[1:], (2,)) for array in arrays] if sparse else arrays
        if fits:
            assert reduced(payloads)[1] == top
        else:
            with pytest.raises(S2SimError, match=f"overflows {np.dtype(dtype)}: take a wider type"):
                reduced(payloads)


def test_the_sum_of_200_ones_is_no_negative_byte():
    with pytest.raises(S2SimError, match="overflows int8"):
        reduced([np.ones(3, np.int8)] * 200)


def test_negative_integers_overflow_too_and_opposite_ones_do_not():
    low = np.array([-100], np.int8)
    with pytest.raises(S2SimError, match="overflows int8"):
        reduced([low, low])
    assert reduced([low, -low, low])[0] == -100


def test_integers_may_wrap_where_that_is_meant():
    seen, _ = run(awaited(lambda rank: rank.all_reduce(np.array([100], np.int8), label="x", wraps=True)))
    assert seen[0][0] == 44


def test_results_are_one_read_only_object():
    seen, _ = run(awaited(lambda rank: rank.all_reduce(np.ones(2, np.float32), label="x")))
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


def some_never_post(rank):
    if rank.index not in (3, 4):
        yield rank.all_reduce(np.ones(1), label="x")


def wait_in_a_circle(rank):
    if rank.index < 2:
        first = "ab"[rank.index]
        groups = {"a": rank.subgroup([0, 1]), "b": rank.subgroup([0, 1, 2])}
        for label in (first, "ab".replace(first, "")):
            yield groups[label].all_reduce(np.ones(1), label=label)
    elif rank.index == 2:
        yield rank.subgroup([0, 1, 2]).all_reduce(np.ones(1), label="b")


def posts_more(rank):
    pending = rank.all_reduce(np.ones(1), label="x")
    if rank.index == 2:
        rank.all_reduce(np.ones(1), label="y")
    yield pending


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


def shares_with_some(rank):
    if rank.index:
        rank.replicated(lambda: 1)
    yield rank.all_reduce(np.ones(1), label="x")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (read_before_waiting, "before the program waited"),
        (never_waits, "without waiting for 'lost'"),
        (stops_early, "rank 1's program ends without waiting for 'x'"),
        (posts_more, "rank 2 has posted 'y', which ranks 0, 1, 3-5 have not posted: it would hang"),
        (some_never_post, "hang.*: ranks 0-2, 5 wait for 'x', which ranks 3, 4 have not posted$"),
        (wait_in_a_circle, "rank 0 waits for 'a', which rank 1 has not.*; ranks 1, 2 wait for 'b', which rank 0 "),
        (other_type_for_one, "another shape or type"),
        (some_await, "only some ranks await the gradient"),
        (awaits_twice, "awaits the gradient twice"),
        (shares_with_some, "different numbers of replicated"),
    ],
)
def test_programs_that_would_hang_or_disagree_are_refused(body, complaint):
    with pytest.raises(S2SimError, match=complaint):
        run(body, ranks=6)


@pytest.mark.parametrize(
    ("post", "complaint"),
    [
        (
            lambda rank: rank.all_reduce(np.ones(1), label="odd" if rank.index == 1 else "even"),
            "'odd' where rank 0 posts all_reduce 'even'",
        ),
        (lambda rank: rank.all_reduce(np.ones(1), "max" if rank.index == 1 else "sum", label="x"), "same collectives"),
        (lambda rank: rank.all_reduce(np.ones(1 + rank.index), label="x"), "another shape"),
        (
            lambda rank: rank.all_gather(np.ones(1, np.float32 if rank.index else np.float64), label="x"),
            "another shape or type",
        ),
        (
            lambda rank: rank.all_to_all([np.ones(1)] * (rank.size - 1), label="x"),
            "with 5 payloads: give one for each of 6",
        ),
        (
            lambda rank: rank.broadcast(np.ones(1), root=rank.size, label="x"),
            "names rank 6 as the root of 'x': there are 6",
        ),
        (lambda rank: rank.reduce(np.ones(1), root=int(rank.index == 2), label="x"), "all ranks must post the same"),
        (lambda rank: rank.broadcast(None, root=0, label="x"), "broadcasts nothing"),
        (lambda rank: rank.exchange({rank.index: np.ones(1)}, label="x"), "sends to itself"),
        (lambda rank: rank.exchange({rank.size: np.ones(1)}, label="x"), "a peer in 'x'"),
        (
            lambda rank: rank.subgroup([0, 1]).all_reduce(np.ones(1), label="x"),
            "rank 2 asks for a group of the ranks .0, 1., of which it is none",
        ),
        (lambda rank: rank.subgroup([0, 1, 2, 2]).all_reduce(np.ones(1), label="x"), "name each once"),
        (lambda rank: rank.reduce_scatter([np.ones(1 + (rank.index == 1))] * rank.size, label="x"), "another shape"),
        (lambda rank: rank.all_reduce(np.ones(1), "xor", label="x"), "known: sum, max, or"),
    ],
)
def test_posts_that_disagree_are_refused(post, complaint):
    with pytest.raises(S2SimError, match=complaint):
        run(awaited(post), ranks=6)
