"""Reducers inside nodes first: the same means, what goes where, and whose loss is whose."""

import warnings

import numpy as np
import pytest

import s2sim
from s2sim.codecs.bitmap import bitmap_bytes
from s2sim.errors import OptionError, S2SimWarning
from s2sim.gradients.gradient import Gradient, RowSparse, to_dense
from s2sim.reducers.measure import mean_float64, worst_error
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer, option_string
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import ring_bytes
from s2sim.reducers.shared.layers import cut_shards, group_by_node, join_shards, single_shard
from s2sim.reducers.shared.row_sparse import COUNT_BYTES, key_bytes
from s2sim.reducers.shared.sparse_split import RowOwners
from s2sim.testing.reducer_properties import example_gradients
from s2sim.testing.reducers import check_reducer

EXACT = ("union", "owner-reduce", "gather-rows", "s2-exact:dtype=int64", "union:layers=all")
PLACES = ((0, 0, 0, 0, 1, 1, 1, 1), (0, 0, 0, 1, 1, 1, 2), (0, 1, 2, 1, 0, 1), (5, 5), (0, 1, 2))


def hierarchical(text, node=None):
    given = "" if node is None else f",node={node}"
    return make_reducer(f"{text}{',' if ':' in text else ':'}hierarchical=true{given}")


@pytest.mark.slow
@pytest.mark.parametrize("node", [2, 4])
@pytest.mark.parametrize("text", [*EXACT, "topk:density=0.2", "topk:density=0.2,ef=true", "fp16", "s2:rows=3,cells=2"])
def test_hierarchical_reducers_conform(text, node):
    check_reducer(lambda: hierarchical(text, node), exhaustive=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "powersgd",
        "qsgd",
        "sbc:ef=true",
        "topk:density=0.2,ef=ef21",
        "topk:density=0.2,momentum=0.9,h=2",
        "topk:density=0.2,warmup=2",
    ],
)
def test_others_and_what_goes_around_them_conform(text):
    check_reducer(lambda: hierarchical(text, 2), exhaustive=False)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["owner-reduce", "topk:density=0.2"])
def test_hierarchical_reducers_conform_with_any_number_of_ranks(text):
    check_reducer(lambda: hierarchical(text, 4))


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("text", EXACT)
def test_exact_ones_end_with_the_mean_however_ranks_are_placed(text, places):
    gradients = example_gradients(len(places))
    ran = run_reducer(hierarchical(text).placed(places), gradients)
    compressed = range(len(gradients[0].layers))
    assert worst_error(ran.results, mean_float64(gradients), compressed).whole.relative_l2 < 1e-6
    if ran.instances[0].traits.lossless:
        assert all(result.sent() is gradient for result, gradient in zip(ran.results, gradients, strict=True))


@pytest.mark.parametrize("places", PLACES[:3])
def test_what_all_have_sent_is_what_has_arrived(places):
    gradients = example_gradients(len(places))
    ran = run_reducer(hierarchical("topk:density=0.1").placed(places), gradients)
    for index, layer in enumerate(ran.results[0].mean.layers):
        sent = sum(to_dense(result.sent().layers[index]).astype(np.float64) for result in ran.results)
        np.testing.assert_allclose(sent / len(places), to_dense(layer), atol=2e-6)


def test_losses_stay_with_those_who_hold_the_shard():
    places = (0, 0, 0, 1, 1, 1)
    gradients = example_gradients(6)
    instances = make_instances(hierarchical("topk:density=0.1,ef=true").placed(places), 6)
    run_group(instances, gradients)
    for rank, instance in enumerate(instances):
        like = gradients[0]
        ones = Gradient(like.names, tuple(_full(layer) for layer in like.layers))
        held = single_shard({rank % 3: cut_shards(ones, 3)[rank % 3]}, ones, 3)
        for name, residual, own in zip(like.names, instance.residual.layers, held.layers, strict=True):
            lost = np.abs(to_dense(residual)) > 1e-6
            assert not (lost & (to_dense(own) == 0)).any(), f"rank {rank} keeps what others have lost of {name}"


def _full(layer):
    if isinstance(layer, RowSparse):
        return RowSparse(np.arange(layer.shape[0]), np.ones(layer.shape, np.float32), layer.shape)
    return np.ones_like(layer)


def test_bytes_inside_and_between_nodes():
    """Inside: rows to their shards, and all sums but one's own. Between: bitmaps and the union's values, by shard."""
    ranks, node, rows, width = 8, 4, 1000, 16
    generator = np.random.default_rng(1)
    held = [np.sort(generator.choice(rows, 90, replace=False)) for _ in range(ranks)]
    tables = [RowSparse(each, generator.standard_normal((90, width), np.float32), (rows, width)) for each in held]
    gradients = [Gradient(("table",), (table,)) for table in tables]
    recording = run_reducer(hierarchical("union", node), gradients).recording
    owners = RowOwners(rows, node)
    sizes = np.diff(owners.cuts)
    shard_of = np.empty(rows, int)
    for shard, part in enumerate(owners.split(_full(tables[0]))):
        shard_of[owners.join([part if s == shard else _none(part, n) for s, n in enumerate(sizes)]).rows] = shard
    union = np.unique(np.concatenate(held))
    in_union = np.bincount(shard_of[union], minlength=node)

    def message(count, size):
        return COUNT_BYTES + key_bytes(count, size) + 4 * width * count

    for call in recording.calls:
        inside = len({rank // node for rank in call.ranks}) == 1
        assert inside or len({rank % node for rank in call.ranks}) == 1
        sent = ring_bytes(call)[0]
        if call.label == "rows to their shards in the node":
            for rank, found in zip(call.ranks, sent, strict=True):
                counts = np.bincount(shard_of[held[rank]], minlength=node)
                assert found == sum(message(counts[s], sizes[s]) for s in range(node) if s != rank % node)
        elif call.label == "rows of all shards":
            assert sent.sum() == (node - 1) * sum(map(message, in_union, sizes))
        else:
            assert not inside
            shard = call.ranks[0] % node
            payload = {"support": bitmap_bytes(int(sizes[shard])), "values": 4 * width * in_union[shard]}[call.label]
            assert set(call.bytes_by_rank) == {payload}
    assert {call.label for call in recording.calls} == {
        "rows to their shards in the node",
        "support",
        "values",
        "rows of all shards",
    }


def _none(part, size):
    return RowSparse(part.rows[:0], part.values[:0], (int(size), *part.shape[1:]))


def test_one_rank_a_node_is_the_reducer_itself():
    gradients = example_gradients(3)
    plain, single = (run_reducer(make_reducer(text), gradients) for text in ("union", "union:hierarchical=true"))
    assert single.recording == plain.recording
    assert run_reducer(hierarchical("union").placed((0, 1, 2)), gradients).recording == plain.recording
    assert "node of its own" in hierarchical("union").notes()[0]
    assert "every node holds one rank" in hierarchical("union").placed((0, 1)).notes()[0]
    assert hierarchical("union").placed((0, 0)).notes() == hierarchical("union", 2).notes() == ()


def test_one_node_compresses_nothing():
    gradients = example_gradients(4)
    ran = run_reducer(hierarchical("topk:density=0.01", 4), gradients)
    assert worst_error(ran.results, mean_float64(gradients), ()).whole.relative_l2 < 1e-6
    assert {call.label for call in ran.recording.calls} == {
        "rows to their shards in the node",
        "dense layers in the node",
        "dense layers of all shards",
        "rows of all shards",
    }


def test_without_row_sparse_layers_all_goes_as_dense_does():
    gradients = [Gradient(("weight",), (np.full((3, 4), rank, np.float32),)) for rank in range(4)]
    with pytest.warns(S2SimWarning, match="no row-sparse layer"):
        ran = run_reducer(hierarchical("union", 2), gradients)
    assert [call.kind for call in ran.recording.calls] == ["all_reduce"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dense:hierarchical=true", "dense:collective=hierarchical"),
        ("union:prefetch=true,hierarchical=true", "before the gradient"),
        ("union:hierarchical=true,node=0", "at least 1"),
        ("union:node=4", "hierarchical=true"),
        ("union:hierarchical=yes", "not one of false, true"),
    ],
)
def test_refuses(text, reason):
    with pytest.raises(OptionError, match=reason):
        make_reducer(text)


def test_options_stand_in_any_order():
    text = "topk:density=0.02,hierarchical=true,node=4,ef=true"
    assert option_string(make_reducer("topk:node=4,ef=true,hierarchical=true,density=0.02")) == text
    assert option_string(make_reducer(text)) == text


def test_what_is_carried_over_belongs_to_shards():
    """A later step of an exact sketch knows sizes and units of the sums of nodes: fewer rounds, the same mean."""
    gradients = example_gradients(6)
    first, later = (hierarchical(text, 3) for text in ("s2-exact:dtype=int64", "s2-exact:dtype=int64,warm=true"))
    cold, warm = run_reducer(first, gradients), run_reducer(later, gradients)
    assert len(warm.recording.calls) < len(cold.recording.calls)
    assert worst_error(warm.results, mean_float64(gradients), ()).whole.relative_l2 < 1e-6


def test_the_state_of_shards_is_saved_and_restored():
    gradients = [example_gradients(5, seed=step) for step in range(3)]
    going = make_instances(hierarchical("s2-exact", 2), 5)
    run_group(going, gradients[0])
    again = make_instances(hierarchical("s2-exact", 2), 5)
    for instance, old in zip(again, going, strict=True):
        instance.restore(old.state())
    ended = [run_group(each, gradients[1], step=1) for each in (going, again)]
    assert ended[0][1] == ended[1][1]
    for one, other in zip(ended[0][0][0].mean.layers, ended[1][0][0].mean.layers, strict=True):
        np.testing.assert_array_equal(to_dense(one), to_dense(other))


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["linear", "random"])
def test_topologies_say_which_ranks_share_a_node(placement):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", S2SimWarning)
        result = s2sim.run(
            "fat-tree",
            workers=[3, 7, 8],
            reducers=["owner-reduce:hierarchical=true"],
            trace="synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=40",
            placement=placement,
            break_even=False,
            thorough=False,
        )
    rows = [row for row in result.rows if row.name == "owner-reduce"]
    assert [row.workers for row in rows] == [3, 7, 8]
    assert all(row.error.relative_l2 < 1e-6 for row in rows)
    # Four exchanges, each of sizes that only data tells; a rank takes part in one between nodes at a time.
    assert rows[2].host_syncs == 8
    # What every node does, and every shard, is told once: sizes and payload of four exchanges, and the dense layers.
    assert len(rows[2].collectives) == 9
    # Three share a node: nothing goes between nodes.
    assert {each.label for each in rows[0].collectives} == {
        "rows to their shards in the node: sizes",
        "rows to their shards in the node",
        "rows of all shards: sizes",
        "rows of all shards",
        "dense layers",
    }


def test_shards_are_put_together_again():
    gradient = example_gradients(1)[0]
    for shards in (1, 3, 8):
        again = join_shards(cut_shards(gradient, shards), gradient)
        for before, after in zip(gradient.layers, again.layers, strict=True):
            np.testing.assert_array_equal(to_dense(before), to_dense(after))
        dense = [Gradient(part.names, tuple(map(to_dense, part.layers))) for part in cut_shards(gradient, shards)]
        for before, after in zip(gradient.layers, join_shards(dense, gradient).layers, strict=True):
            np.testing.assert_array_equal(to_dense(before), to_dense(after))


def test_small_nodes_hold_several_shards_a_rank():
    nodes = group_by_node((0, 0, 0, 1, 1))
    assert list(map(list, nodes.holders(2))) == [[0, 2], [1]]
    assert [nodes.peers(shard) for shard in range(3)] == [(0, 3), (1, 4), (2, 3)]


@pytest.mark.parametrize("text", ["union", "owner-reduce", "gather-rows", "s2-exact", "topk:density=1", "omnireduce"])
def test_shards_may_be_empty(text):
    arrays = [np.array([rank + 1], np.float32) for rank in range(5)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in s2sim.reduce_once(hierarchical(text, 3), arrays).values:
            assert value.tolist() == [3]
