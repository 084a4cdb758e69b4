"""Node union: exact however ranks are placed, bytes by hand, one wait of the host, and what prefetching hides."""

import numpy as np
import pytest

import s2sim
from s2sim.codecs.bitmap import bitmap_bytes
from s2sim.errors import OptionError, S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse, to_dense
from s2sim.reducers.measure import mean_float64, worst_error
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import AwaitGradient, Post, chunk_bounds, count_rounds, ring_bytes
from s2sim.reducers.shared.sparse_split import RowOwners
from s2sim.testing.reducer_properties import example_gradients


@pytest.mark.parametrize(
    "places", [(0,), (0, 0, 0, 0, 1, 1, 1, 1), (0, 0, 0, 1, 1, 1, 2), (0, 1, 2, 1, 0, 1), (5, 5), (0, 1, 2)]
)
@pytest.mark.parametrize("layers", ["sparse", "all"])
def test_all_end_with_the_mean_however_they_are_placed(places, layers):
    gradients = example_gradients(len(places))
    ran = run_reducer(make_reducer(f"node-union:layers={layers}").placed(places), gradients)
    assert worst_error(ran.results, mean_float64(gradients), ()).whole.relative_l2 < 1e-6
    assert len({id(result.mean) for result in ran.results}) == 1


def test_rows_that_no_rank_holds_stay_out():
    table = RowSparse(np.array([3]), np.array([[2.0]], np.float32), (9, 1))
    none = RowSparse(table.rows[:0], table.values[:0], table.shape)
    gradients = [Gradient(("table",), (each,)) for each in (table, none, none, table)]
    mean = run_reducer(make_reducer("node-union:node=2"), gradients).results[0].mean
    assert mean.layers[0].rows.tolist() == [3]
    np.testing.assert_array_equal(to_dense(mean.layers[0])[:, 0], [0, 0, 0, 1, 0, 0, 0, 0, 0])


def test_bytes_of_each_round():
    """Bitmaps of shards; held values to shards, a node's rows to owners, the union's back in both."""
    ranks, node, rows, width = 8, 4, 1000, 16
    generator = np.random.default_rng(1)
    held = [np.sort(generator.choice(rows, 90, replace=False)) for _ in range(ranks)]
    owners = RowOwners(rows, node)
    # The shard of every row, and its number in it.
    everything = owners.split(RowSparse(np.arange(rows), np.arange(rows, dtype=np.float32), (rows,)))
    shard_of, place = np.empty(rows, int), np.empty(rows, int)
    for shard, part in enumerate(everything):
        shard_of[part.values.astype(int)], place[part.values.astype(int)] = shard, part.rows
    sizes = [part.shape[0] for part in everything]
    owner_of = np.array([place[row] >= chunk_bounds(sizes[shard_of[row]], 2)[1] for row in range(rows)], int)
    of_node = [np.unique(np.concatenate(held[first : first + node])) for first in (0, node)]
    union = np.unique(np.concatenate(held))

    def tables():
        for own in held:
            yield RowSparse(own, generator.standard_normal((len(own), width), np.float32), (rows, width))

    gradients = [Gradient(("table",), (table,)) for table in tables()]
    recording = run_reducer(make_reducer("node-union:node=4"), gradients).recording
    for call in recording.calls:
        sent = dict(zip(call.ranks, ring_bytes(call)[0].tolist(), strict=True))
        for rank, found in sent.items():
            own, on = rank % node, rank // node
            others = [shard for shard in range(node) if shard != own]
            next_shard = (own + 1) % node
            # What a ring of two does not pass on is the other's own block.
            wanted = {
                "rows of ranks": sum(bitmap_bytes(sizes[shard]) for shard in others),
                "rows of nodes": bitmap_bytes(sizes[own]),
                "rows of the union": sum(bitmap_bytes(sizes[shard]) for shard in range(node) if shard != next_shard),
                "values to their shards in the node": 4 * width * int((shard_of[held[rank]] != own).sum()),
                "sums of nodes to their owners": 4
                * width
                * int(((shard_of[of_node[on]] == own) & (owner_of[of_node[on]] != on)).sum()),
                "sums": 4 * width * int(((shard_of[union] == own) & (owner_of[union] == on)).sum()),
                "sums of all shards": 4 * width * int((shard_of[union] != next_shard).sum()),
            }
            assert found == wanted[call.label], (call.label, rank)
    assert {len(call.ranks) for call in recording.calls} == {2, node}


def test_the_host_waits_once_and_prefetching_hides_the_bitmaps():
    gradients = example_gradients(6)
    plain, ahead = (
        run_reducer(make_reducer(f"node-union:node=3,prefetch={text}"), gradients).recording
        for text in ("false", "true")
    )
    assert count_rounds(plain) == (0, 7, 1)
    assert count_rounds(ahead) == (3, 4, 1)
    for script in ahead.scripts:
        before = script[: script.index(AwaitGradient())]
        labels = {ahead.calls[step.call].label for step in before if isinstance(step, Post)}
        assert labels == {"rows of ranks", "rows of nodes", "rows of the union"}


@pytest.mark.parametrize(
    ("places", "rounds", "ranks"),
    [((0, 1, 2), 3, set()), ((0, 0, 0), 4, set()), ((0,), 0, set()), ((0, 0, 1, 1), 7, {2})],
)
def test_nothing_is_posted_where_one_is_alone(places, rounds, ranks):
    gradients = [Gradient(each.names[:1], each.layers[:1]) for each in example_gradients(len(places))]
    recording = run_reducer(make_reducer("node-union").placed(places), gradients).recording
    assert count_rounds(recording).after_gradient == rounds
    assert {len(call.ranks) for call in recording.calls if call.ranks} == ranks


@pytest.mark.slow
def test_it_beats_the_best_flat_exact_one_between_nodes_of_several_gpus():
    """Where bytes between nodes rule; at 100 Gbit/s launches and peers leave little of that to small gradients."""
    rows = {
        row.option_string: row
        for row in s2sim.run(
            "fat-tree",
            workers=16,
            reducers=["union", "union:prefetch=true", "owner-reduce", "node-union", "node-union:prefetch=true"],
            overrides=["nic.rate=25Gbps"],
            break_even=False,
            thorough=False,
        ).rows
    }
    for row in rows.values():
        assert row.time_s.communication >= row.lower_bound_s > 0, row.option_string
    flat = min(rows["union"].time_s.total, rows["owner-reduce"].time_s.total)
    assert rows["node-union"].time_s.total < 0.8 * flat
    assert len(rows["node-union"].collectives) == 8
    assert rows["node-union:prefetch=true"].time_s.total < 0.8 * rows["union:prefetch=true"].time_s.total


def test_refuses():
    with pytest.raises(OptionError, match="layers=sparse"):
        make_reducer("node-union:prefetch=true,layers=all")
    with pytest.raises(OptionError, match="at least 1"):
        make_reducer("node-union:node=0")
    huge = [Gradient(("t",), (RowSparse(np.array([0]), np.array([3e38], np.float32), (1,)),))] * 4
    with pytest.raises(S2SimError, match="overflows float32"):
        run_reducer(make_reducer("node-union:node=2"), huge)
