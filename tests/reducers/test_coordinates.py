"""ag-sparse and parallax: exact, and their bytes are those of the S2 authors' code and of owners."""

import numpy as np
import pytest

from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once, run_reducer
from s2sim.testing.reducer_properties import example_gradients

RANKS = 4


def tables():
    """Return a table of each rank with an unlike number of non-zeros."""
    rng = np.random.default_rng(3)
    return [(rng.integers(1, 5, (20, 6)) * (rng.random((20, 6)) < 0.1 * rank)).astype(np.float32) for rank in range(4)]


@pytest.mark.parametrize("text", ["ag-sparse", "parallax", "parallax:as_coded=true"])
def test_they_are_exact(text):
    arrays = tables()
    once = reduce_once(text, arrays)
    assert np.array_equal(once.values[0], np.mean(arrays, axis=0, dtype=np.float32))


def test_every_non_zero_takes_20_bytes_padded_to_the_longest():
    arrays = tables()
    most = max(np.count_nonzero(array) for array in arrays)
    once = reduce_once("ag-sparse", arrays)
    assert once.bytes_sent == [(RANKS - 1) * (8 + 20 * most)] * RANKS
    assert [(call.label, call.bytes_by_rank) for call in once.recording.calls] == [
        ("counts of non-zeros", (8,) * RANKS),
        ("coordinates", (16 * most,) * RANKS),
        ("values", (4 * most,) * RANKS),
    ]


def test_as_coded_parallax_gathers_at_rank_0_and_broadcasts_all():
    arrays = tables()
    most = max(np.count_nonzero(array) for array in arrays)
    once = reduce_once("parallax:as_coded=true", arrays)
    counts, to_root, back = once.recording.calls
    assert counts.bytes_by_rank == (8,) * RANKS
    assert to_root.bytes_by_rank == (0, *[20 * most] * (RANKS - 1))
    assert (back.kind, back.root, back.bytes_by_rank) == ("broadcast", 0, (RANKS * 20 * most, 0, 0, 0))


def test_parallax_is_rows_to_owners():
    arrays = tables()
    assert reduce_once("parallax", arrays).bytes_sent == reduce_once("owner-reduce", arrays).bytes_sent


@pytest.mark.parametrize("text", ["ag-sparse", "parallax:as_coded=true"])
def test_tables_travel_together_and_dense_layers_densely(text):
    gradients = example_gradients(3)
    recording = run_reducer(make_reducer(text), gradients).recording
    by_label = {call.label: call for call in recording.calls}
    held = [layer for layer in gradients[0].layers if isinstance(layer, RowSparse)]
    assert by_label["counts of non-zeros"].bytes_by_rank == (8 * len(held),) * 3
    dense = sum(layer.size for layer in gradients[0].layers if not isinstance(layer, RowSparse))
    assert by_label["dense layers"].bytes_by_rank == (4 * dense,) * 3
