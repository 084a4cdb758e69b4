import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.peeling import PeelTable, add_values, peel, peel_order, read_values, rounds_needed


def naive_rounds(columns):
    """Return the set of keys that each breadth-first round reads, from sets of keys a cell."""
    keys_of = {}
    for key, cells in enumerate(columns.T):
        for cell in cells:
            keys_of.setdefault(int(cell), set()).add(key)
    rounds = []
    while found := {next(iter(keys)) for keys in keys_of.values() if len(keys) == 1}:
        rounds.append(found)
        for keys in keys_of.values():
            keys.difference_update(found)
    return rounds


def random_columns(keys, columns, seed):
    generator = np.random.default_rng(seed)
    return generator.integers(0, columns, (3, keys)) + columns * np.arange(3)[:, None]


def read(columns, cells):
    order = peel_order(columns, len(cells))
    parts = []
    for sums in read_values(columns, cells):
        assert (sums.read, sums.rounds) == (len(order.keys), order.rounds)
        parts.append((sums.values.copy(), sums.clean))
    return np.concatenate([values for values, _ in parts], axis=1), all(clean for _, clean in parts)


@given(st.integers(0, 80), st.integers(1, 60), st.integers(0, 10_000))
def test_rounds_are_those_of_a_naive_peeling(keys, columns, seed):
    where = random_columns(keys, columns, seed)
    order = peel_order(where, 3 * columns)
    rounds = list(peel(where, 3 * columns))
    expected = naive_rounds(where)
    assert [set(each.keys.tolist()) for each in rounds] == expected
    assert order.rounds == len(expected)
    assert set(order.left(keys).tolist()) == set(range(keys)) - set().union(*expected)
    assert len(order.keys) == len(set(order.keys.tolist()))
    assert order.keys.tolist() == [key for each in rounds for key in each.keys.tolist()]
    for each in rounds:
        assert np.array_equal(each.columns, where[:, each.keys])
        assert (each.columns == each.cells).any(axis=0).all()


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 5), st.integers(0, 10_000))
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_integers_are_read_exactly_though_they_wrap_around(dtype, keys, columns, width, seed):
    where = random_columns(keys, columns, seed)
    limits = np.iinfo(dtype)
    generator = np.random.default_rng(seed)
    values = generator.integers(limits.min, limits.max, (keys, width), dtype, endpoint=True)
    cells = np.zeros((3 * columns, width), dtype)
    add_values(cells, where, values)
    kept = cells.copy()
    order = peel_order(where, len(cells))
    got, clean = read(where, cells)
    assert np.array_equal(cells, kept)
    assert np.array_equal(got[order.keys], values[order.keys])
    left = order.left(keys)
    assert not got[left].any()
    assert clean or len(left)


def test_wide_keys_are_read_in_parts(monkeypatch):
    where = random_columns(500, 300, 1)
    values = np.random.default_rng(1).integers(-1000, 1000, (500, 13)).astype(np.int32)
    cells = np.zeros((900, 13), np.int32)
    add_values(cells, where, values)
    monkeypatch.setattr("s2sim.codecs.peeling._SLICE_BYTES", 900 * 4 * 5)
    parts = [sums.part for sums in read_values(where, cells)]
    assert parts == [slice(0, 5), slice(5, 10), slice(10, 13)]
    got, clean = read(where, cells)
    assert clean
    assert np.array_equal(got, values)


def test_a_key_that_was_not_announced_is_noticed():
    where = random_columns(100, 60, 2)
    cells = np.zeros((180, 1), np.int32)
    add_values(cells, where, np.arange(100, dtype=np.int32)[:, None])
    order = peel_order(where[:, :-1], 180)
    assert len(order.keys) == 99
    assert not read(where[:, :-1], cells)[1]


def test_a_key_that_was_not_added_is_zero():
    where = random_columns(100, 60, 2)
    cells = np.zeros((180, 1), np.int32)
    add_values(cells, where[:, :-1], np.arange(1, 100, dtype=np.int32)[:, None])
    got, clean = read(where, cells)
    assert clean
    assert got[:, 0].tolist() == [*range(1, 100), 0]


def test_cells_of_ranks_add_up():
    where = random_columns(2000, 900, 3)
    generator = np.random.default_rng(3)
    cells, total = np.zeros((2700, 2), np.int32), np.zeros((2000, 2), np.int32)
    for _ in range(5):
        held = np.flatnonzero(generator.random(2000) < 0.4)
        values = generator.integers(-(2**28), 2**28, (len(held), 2)).astype(np.int32)
        add_values(cells, where[:, held], values)
        total[held] += values
    got, clean = read(where, cells)
    assert clean
    assert np.array_equal(got, total)


@pytest.mark.parametrize("width", [1, 3])
def test_float32_is_read_in_the_order_of_the_keys(width):
    """The same bits as one subtraction after the other gives; cells that stay, too, once nothing can be read."""
    where = random_columns(3000, 1250, 6)
    cells = np.zeros((3750, width), np.float32)
    add_values(cells, where, np.random.default_rng(6).standard_normal((3000, width), np.float32))
    rest, expected = cells.copy(), np.zeros((3000, width), np.float32)
    for together in peel(where, len(cells)):
        expected[together.keys] = rest[together.cells]
        for third in where:
            for key in together.keys:
                rest[third[key]] -= expected[key]
    got, clean = read(where, cells)
    assert np.array_equal(got, expected)
    assert clean == (not rest.any())


def test_float32_breadth_first_stays_accurate():
    where = random_columns(20_000, 8_700, 4)
    values = np.random.default_rng(4).standard_normal((20_000, 1), np.float32)
    cells = np.zeros((26_100, 1), np.float32)
    add_values(cells, where, values)
    order = peel_order(where, len(cells))
    assert not len(order.left(20_000))
    got, _ = read(where, cells)
    assert np.linalg.norm(got - values) <= 2e-6 * np.linalg.norm(values)


def test_far_more_keys_than_cells_are_all_left():
    """Their numbers would overflow: 2^32 and more in a cell."""
    columns = np.random.default_rng(0).integers(0, 3, (3, 200_000)) + np.array([[0], [3], [6]])
    order = peel_order(columns, 9)
    assert order.rounds == 0
    assert len(order.left(200_000)) == 200_000


@pytest.mark.parametrize(
    ("keys", "cells_per_key"), [(300, 1.8), (3_000, 1.43), (7_000, 1.43), (7_000, 1.7), (20_000, 1.3)]
)
def test_rounds_are_enough_nearly_always_and_not_many_more(keys, cells_per_key):
    table = PeelTable.for_keys(keys, cells_per_key=cells_per_key)
    assert table.blocks == 1
    enough = rounds_needed(keys, table.block_cells)
    generator = np.random.default_rng(0)
    rounds = []
    for _ in range(40):
        chosen = generator.choice(1 << 24, keys, replace=False).astype(np.uint32)
        rounds.append(peel_order(table.columns_of(chosen), table.block_cells).rounds)
    assert np.mean(np.array(rounds) <= enough) >= 0.9
    assert enough <= np.mean(rounds) + 2


def test_a_table_that_is_too_full_has_a_limit_of_rounds():
    assert rounds_needed(10_000, 11_000) == 64
