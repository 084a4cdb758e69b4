import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.peeling import _CHUNK_KEYS, BLOCK_KEYS, CELLS_PER_KEY, PeelTable, cells_for, peel_order
from s2sim.errors import OptionError


def unreadable(table, keys):
    return sum(
        len(peel_order(columns, table.block_cells).left(len(places))) for places, columns in table.by_block(keys)
    )


@pytest.mark.parametrize("count", [0, 1, 7, 5000, 2 * _CHUNK_KEYS + 9])
@pytest.mark.parametrize("blocks", [1, 2, 31])
def test_every_key_is_in_one_block_and_has_a_cell_in_each_third(count, blocks):
    keys = (np.arange(count) * 7).astype(np.uint32)
    table = PeelTable(blocks, 100, seed=blocks)
    seen = []
    for block, (places, columns) in enumerate(table.by_block(keys)):
        assert (np.diff(places) > 0).all()
        assert (table.parts(keys[places], blocks) == block).all()
        assert columns.shape == (3, len(places))
        assert (columns // 100 == np.arange(3)[:, None]).all()
        seen.append(places)
    assert len(seen) == blocks
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(count))


@pytest.mark.parametrize("count", [0, 1, 5000, 2 * _CHUNK_KEYS + 9])
def test_numbers_sorted_by_block_are_put_back_in_order(count):
    keys = np.random.default_rng(0).permutation(count).astype(np.uint32)
    table = PeelTable(13, 100)
    numbers = keys.copy()
    runs = table.sorted_runs(keys, numbers)
    for block in range(13):
        own = runs.take(block)
        assert np.array_equal(own, keys[table.parts(keys, 13) == block])
        runs.put(block, own + 7)
    table.restore(keys, numbers)
    assert np.array_equal(numbers, keys + 7)


@given(st.integers(1, 40), st.integers(1, 5000), st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_where_a_key_goes_depends_on_nothing_else(blocks, columns, keys):
    table = PeelTable(blocks, columns, seed=5)
    keys = np.array(keys, np.uint32)
    together = {
        int(keys[place]): tuple(cells)
        for places, cells_of in table.by_block(keys)
        for place, cells in zip(places, cells_of.T, strict=True)
    }
    for key in keys:
        alone = [cells_of[:, 0] for _, cells_of in table.by_block(np.array([key])) if cells_of.size]
        assert together[int(key)] == tuple(alone[0])


def test_parts_nest():
    keys = np.arange(10_000, dtype=np.uint32)
    table = PeelTable(7, 10)
    assert np.array_equal(table.parts(keys, 7 * 12) // 12, table.parts(keys, 7))


@pytest.mark.parametrize("step", [1, 64, 65_536])
def test_blocks_and_columns_fill_evenly_whatever_the_keys(step):
    keys = (np.arange(60_000) * step).astype(np.uint32)
    table = PeelTable(6, 500)
    for places, columns in table.by_block(keys):
        # Five standard deviations of a binomial.
        assert abs(len(places) - 10_000) < 5 * np.sqrt(10_000)
        counts = np.bincount(columns.ravel(), minlength=1500)
        assert abs(counts.var() / counts.mean() - 1) < 0.25


@pytest.mark.slow
def test_no_two_keys_of_a_large_block_share_all_their_cells():
    # Independent hashes would let more than a thousand pairs do so.
    keys = np.arange(5_000_000, dtype=np.uint32)
    table = PeelTable(1, 2300)
    ((_, columns),) = table.by_block(keys)
    triples = (columns[0] * 2300 + columns[1] - 2300) * 2300 + columns[2] - 4600
    triples.sort()
    assert (np.diff(triples) > 0).all()


@pytest.mark.parametrize("count", [1, 5, 40, 300, 1000])
def test_few_keys_can_be_read_with_99_percent_probability(count):
    keys = np.arange(count, dtype=np.uint32)
    stuck = sum(unreadable(PeelTable.for_keys(count, seed=seed), keys) > 0 for seed in range(300))
    # The law says 0.5 %; 3.6 standard deviations more than that.
    assert stuck <= 6


def test_at_1_3_cells_a_key_nearly_all_tables_can_be_read():
    table = PeelTable.for_keys(3000)
    assert table.cells / 3000 == pytest.approx(CELLS_PER_KEY, rel=1e-3)
    keys = np.arange(3000, dtype=np.uint32)
    assert sum(unreadable(PeelTable(1, table.columns, seed), keys) > 0 for seed in range(300)) <= 3
    large = 10 * BLOCK_KEYS
    keys = np.arange(large, dtype=np.uint32)
    assert not any(unreadable(PeelTable.for_keys(large, seed=seed), keys) for seed in range(3))


def test_below_the_threshold_most_keys_stay():
    keys = np.arange(BLOCK_KEYS, dtype=np.uint32)
    assert unreadable(PeelTable(1, int(BLOCK_KEYS * 1.13 / 3)), keys) > BLOCK_KEYS / 2


def test_sizes():
    assert PeelTable.for_keys(0) == PeelTable(1, 1)
    assert cells_for(1000) == 1400
    table = PeelTable.for_keys(1e7, cells_per_key=1.4, seed=2)
    assert (table.blocks, table.seed) == (306, 2)
    assert table.cells == pytest.approx(1.4e7, rel=1e-3)


@pytest.mark.parametrize(
    "options", [{"blocks": 0}, {"blocks": 65_537}, {"columns": 0}, {"columns": 65_537}, {"seed": -1}]
)
def test_impossible_shapes_are_refused(options):
    with pytest.raises(OptionError):
        PeelTable(**({"blocks": 1, "columns": 1} | options))


@pytest.mark.parametrize("cells", [1.2, 0, -1, float("inf"), float("nan")])
def test_too_few_cells_are_refused(cells):
    with pytest.raises(OptionError, match="cells a key"):
        PeelTable.for_keys(100, cells_per_key=cells)
