"""owner-reduce and gather-rows: values against naive sums, bytes against counting, owners against their promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import OptionError, S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse, to_dense
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once
from s2sim.reducers.script import Work, chunk_bounds
from s2sim.reducers.shared import row_sparse as cost
from s2sim.reducers.shared.row_sparse import key_bytes, pack_tables, sum_tables, unpack_tables
from s2sim.reducers.shared.sparse_split import RowOwners

EXACT = ["union", "union:prefetch=true", "owner-reduce", "gather-rows"]


def reduce(text, gradients):
    return run_group(make_instances(make_reducer(text), len(gradients)), gradients)


def table(rows, values, shape):
    return RowSparse(np.asarray(rows, np.int64), np.asarray(values, np.float32), shape)


def random_table(generator, shape, *, shared, own):
    """Return a table of which ``shared`` rows are everybody's and ``own`` are drawn."""
    rows = np.union1d(np.arange(shared), generator.choice(shape[0], own, replace=False))
    return RowSparse(rows, generator.standard_normal((len(rows), *shape[1:]), np.float32), shape)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("shared", "own"), [(0, 0), (0, 3), (40, 0), (7, 20), (150, 0)])
def test_any_overlap_on_any_number_of_ranks(ranks, shared, own):
    """Sums are in rank order everywhere, so that the exact reducers agree to the bit."""
    generator = np.random.default_rng(ranks + shared + own)
    gradients = [
        Gradient(
            ("rows", "elements", "dense"),
            (
                random_table(generator, (150, 6), shared=shared, own=own),
                random_table(generator, (999,), shared=shared, own=own),
                generator.standard_normal(5, np.float32),
            ),
        )
        for _ in range(ranks)
    ]
    exact = [np.mean([to_dense(g.layers[i]) for g in gradients], axis=0, dtype=np.float64) for i in range(3)]
    means = [reduce(text, gradients)[0][0].mean for text in EXACT]
    for mean in means:
        for found, first, truth in zip(mean.layers, means[0].layers, exact, strict=True):
            assert np.array_equal(to_dense(found), to_dense(first))
            assert np.linalg.norm(to_dense(found) - truth) <= 1e-6 * np.linalg.norm(truth)


def test_gathered_rows_take_four_bytes_each_beside_their_values():
    held = [[0, 5, 90], [5], [], [1, 2, 3, 4]]
    gradients = [
        Gradient(("e", "b"), (table(rows, np.ones((len(rows), 7)), (1000, 7)), np.ones(3, np.float32))) for rows in held
    ]
    _, recording = reduce("gather-rows", gradients)
    rows, dense = recording.calls
    # 4 bytes for the number of rows, then for each row its number and seven values.
    assert rows.bytes_by_rank == tuple(4 + len(each) * (4 + 28) for each in held)
    assert (rows.kind, rows.size_from_data) == ("all_gather", True)
    assert (dense.label, dense.size_from_data) == ("dense layers", False)


def test_many_rows_are_named_by_a_bitmap():
    arrays = [np.zeros(1000, np.float32) for _ in range(3)]
    arrays[0][:200] = 1
    arrays[1][:32] = 1
    arrays[2][:31] = 1
    call = reduce_once("gather-rows", arrays).recording.calls[0]
    # 125 bytes of bits are fewer than 4 bytes for each of 32 elements, and more than for each of 31.
    assert call.bytes_by_rank == (4 + 800 + 125, 4 + 128 + 125, 4 + 124 + 124)


def test_owners_get_the_rows_they_own_and_send_their_sums():
    ranks, count, width = 3, 600, 2
    held = [[0, 5, 90, 400], [5, 90], [5, 599]]
    gradients = [Gradient(("e",), (table(rows, np.ones((len(rows), width)), (count, width)),)) for rows in held]
    _, recording = reduce("owner-reduce", gradients)
    exchange, gather = recording.calls
    assert (exchange.kind, exchange.size_from_data) == ("all_to_all", True)
    assert (gather.kind, gather.size_from_data) == ("all_gather", True)
    multiplier = RowOwners(count, ranks).multiplier
    owner = {row: row * multiplier % count * ranks // count for row in range(count)}
    row_bytes = 4 + 4 * width
    for source, rows in enumerate(held):
        assert exchange.blocks[source] == tuple(
            4 + row_bytes * sum(owner[row] == to for row in rows) for to in range(ranks)
        )
    union = {row for rows in held for row in rows}
    assert gather.bytes_by_rank == tuple(4 + row_bytes * sum(owner[row] == to for row in union) for to in range(ranks))


def test_bytes_of_ranks_that_share_nothing_and_everything():
    """n rows a rank: the exchange sends them once, the gather all P n of them, or n where all are shared."""
    ranks, count, width = 4, 40_000, 16
    row_bytes, headers = 4 + 4 * width, 4 * ranks
    for shared, union in ((False, 400), (True, 100)):
        arrays = [np.zeros((count, width), np.float32) for _ in range(ranks)]
        for rank, array in enumerate(arrays):
            array[(0 if shared else 100 * rank) :][:100] = rank + 1
        exchange, gather = reduce_once("owner-reduce", arrays).recording.calls
        assert sum(exchange.elements) == ranks * (100 * row_bytes + headers)
        assert sum(gather.elements) == union * row_bytes + headers
        gathered = reduce_once("gather-rows", arrays).recording.calls[0]
        assert sum(gathered.elements) == ranks * 100 * row_bytes + headers


@given(count=st.integers(0, 300), ranks=st.integers(1, 40), seed=st.integers(0, 1000))
def test_owners_share_a_table_out_and_put_it_together_again(count, ranks, seed):
    generator = np.random.default_rng(seed)
    whole = random_table(generator, (count, 3), shared=0, own=generator.integers(0, count + 1))
    owners = RowOwners(count, ranks)
    parts = owners.split(whole)
    assert [part.shape for part in parts] == [((i + 1) * count // ranks - i * count // ranks, 3) for i in range(ranks)]
    for part in parts:
        assert (np.diff(part.rows) > 0).all()
        assert not len(part.rows) or (part.rows[0] >= 0 and part.rows[-1] < part.shape[0])
    again = owners.join(parts)
    assert np.array_equal(again.rows, whole.rows)
    assert np.array_equal(again.values, whole.values)
    assert again.shape == whole.shape


@pytest.mark.parametrize(
    "rows",
    [
        np.arange(3000),
        np.arange(10_000, 13_000),
        np.arange(0, 50_000, 16),
        np.arange(0, 50_000, 64),
        np.unique(np.random.default_rng(0).zipf(1.3, 20_000)),
    ],
    ids=["first", "middle", "every 16th", "every 64th", "zipf"],
)
def test_owners_hold_about_as_many_rows_each(rows):
    rows = rows[rows < 50_000]
    parts = RowOwners(50_000, 16).split(RowSparse(rows, np.zeros((len(rows), 1), np.float32), (50_000, 1)))
    held = np.array([len(part.rows) for part in parts])
    assert held.max() < 1.2 * held.mean()


@given(held=st.lists(st.integers(0, 90), max_size=4), count=st.integers(90, 2000))
def test_messages_come_back(held, count):
    generator = np.random.default_rng(count)
    tables = [random_table(generator, (count, 2), shared=0, own=rows) for rows in held]
    message = pack_tables(tables)
    header, *values = message
    shorter = [min(4 * rows, (count + 7) // 8) for rows in held]
    assert shorter == [key_bytes(rows, count) for rows in held]
    assert header.nbytes == 4 * len(held) + sum(shorter)
    assert sum(each.nbytes for each in values) == sum(8 * rows for rows in held)
    for found, original in zip(unpack_tables(message, [(count, 2)] * len(held)), tables, strict=True):
        assert np.array_equal(found.rows, original.rows)
        assert np.array_equal(found.values, original.values)


@given(held=st.lists(st.integers(0, 90), min_size=1, max_size=3), count=st.integers(90, 2000), parts=st.integers(1, 40))
def test_messages_of_parts_are_those_of_each_part_and_all_come_back(held, count, parts):
    generator = np.random.default_rng(count)
    # The first rows are held by most, so that some parts are lists and some are bitmaps.
    tables = [random_table(generator, (count, 2), shared=0, own=rows) for rows in held]
    tables[0] = table(np.arange(count // 3), np.ones((count // 3, 2)), (count, 2))
    cuts = chunk_bounds(count, parts)
    split = list(zip(*(cost.split_table(each, cuts) for each in tables), strict=True))
    messages = cost.pack_parts(tables, [cuts] * len(tables), "fp16")
    for message, own in zip(messages, split, strict=True):
        assert all(map(np.array_equal, message, pack_tables(own, "fp16")))
    found = cost.unpack_messages(messages, [[each.shape for each in own] for own in split])
    for own, expected in zip(found, split, strict=True):
        for each, original in zip(own, expected, strict=True):
            assert np.array_equal(each.rows, original.rows)
            assert np.array_equal(each.values, original.values.astype(np.float16))


def test_sums_are_in_rank_order_and_overflow_is_an_error():
    # 1e8 + 1 is 1e8 in float32: the order shows.
    parts = [table([3], [value], (9,)) for value in (1e8, 1.0, -1e8, 1.0)]
    assert sum_tables(parts).values.tolist() == [1.0]
    for text in EXACT:
        with pytest.raises(S2SimError, match="overflows float32"):
            reduce(text, [Gradient(("e",), (table([1], [3e38], (9,)),))] * 2)


@pytest.mark.parametrize("text", EXACT)
def test_a_value_that_is_no_number_stays_where_it_is(text):
    gradients = [Gradient(("e",), (table([rank, 5], [1, np.nan if rank else 2], (9,)),)) for rank in range(3)]
    mean = reduce(text, gradients)[0][0].mean.layers[0].to_dense()
    assert np.isnan(mean[5])
    assert np.isfinite(np.delete(mean, 5)).all()


def test_too_many_rows_for_four_bytes_are_refused():
    huge = RowSparse(np.array([2**31]), np.ones((1, 1), np.float32), (2**31 + 1, 1))
    for text in ("owner-reduce", "gather-rows"):
        with pytest.raises(S2SimError, match="split it into several layers"):
            reduce(text, [Gradient(("e",), (huge,))] * 2)


def test_prefetch_posts_the_support_before_the_gradient_and_knows_its_size_in_time():
    gradients = [Gradient(("e",), (table([rank], [[1, 2]], (9, 2)),)) for rank in range(3)]
    (plain_support, plain), (support, values) = (
        reduce(text, gradients)[1].calls for text in ("union", "union:prefetch=true")
    )
    assert support.bytes_by_rank == plain_support.bytes_by_rank
    assert values.bytes_by_rank == plain.bytes_by_rank
    assert (plain.size_from_data, values.size_from_data) == (True, False)
    script = reduce("union:prefetch=true", gradients)[1].scripts[0]
    kinds = [type(step).__name__ for step in script]
    assert kinds == ["Work", "Post", "Wait", "Work", "AwaitGradient", "Work", "Post", "Wait"]


def test_prefetch_needs_layers_whose_rows_the_batch_tells():
    with pytest.raises(OptionError, match="needs layers=sparse"):
        make_reducer("union:prefetch=true,layers=all")


LISTED = table(range(10), np.ones((10, 5)), (10_000, 5))
MARKED = table(range(100), np.ones(100), (1000,))


def test_work_of_packing():
    # Numbers of 8 bytes and keys of 4, values read and written.
    assert cost.pack_rows_cost([LISTED]) == Work("encode", 10 * (8 + 4) + 2 * 200, 1)
    assert cost.write_keys_cost([LISTED]) == Work("encode", 10 * (8 + 4), 1)
    # 125 bytes of bitmap are cleared, 100 bits set.
    assert cost.pack_rows_cost([LISTED, MARKED]) == Work("encode", 520 + 100 * (8 + 64) + 125 + 800, 3)


def test_work_of_splitting():
    # One kernel sorts pairs of 8 bytes; rows of 20 bytes are read from anywhere, 32 bytes at a time.
    assert cost.sort_by_owner_cost([LISTED], 4) == Work("encode", 10 * 16 + 10 * 12, 1)
    assert cost.sort_by_owner_cost([LISTED], 1) == Work("encode", 0, 0)
    many = table(range(5000), np.ones((5000, 16)), (10_000, 16))
    # A histogram, then two digits of 8 bits.
    assert cost.sort_by_owner_cost([many], 4) == Work("encode", 5000 * (4 + 2 * 16), 3)


def test_work_of_adding_up():
    parts = [[LISTED], [LISTED]]
    marks = 2 * 40 + 20 * (8 + 64) + 1250
    select = 2 * 1250 + 10 * 8
    adds = 10 * 20 + 20 * (8 + 32 + 20 + 64)
    assert cost.add_rows_cost(parts, [LISTED], "decode") == Work("decode", marks + select + adds, 6)
    assert cost.join_rows_cost([LISTED]) == Work("decode", 10 * (4 + 8 + 40), 2)
