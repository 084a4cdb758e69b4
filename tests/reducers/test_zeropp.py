"""Quantised gradients of ZeRO++ beside a naive program, and their published bytes, replicated and sharded."""

from itertools import pairwise

import numpy as np
import pytest

import s2sim
from s2sim.errors import OptionError
from s2sim.experiment.scenario.reducers import ReducerSpec
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.registry import make_reducer, with_feedback
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import Post, Work, chunk_bounds, recording_bytes, ring_bytes
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.simulation.bucketing.sharded import shard_recording
from s2sim.testing.reducer_properties import example_gradients

TWO_NODES = (0,) * 4 + (1,) * 4


def gradients_of(ranks, elements):
    generator = np.random.default_rng(ranks)
    # Blocks differ in size, as layers do.
    values = generator.standard_normal((ranks, elements)) * np.geomspace(1e-3, 10, elements)
    return [Gradient(("layer",), (row,)) for row in values.astype(np.float32)]


def naive_quantised(vector, bits, block):
    """Return what a vector is decoded to after its blocks were quantised."""
    half, decoded = 2 ** (bits - 1), []
    for start in range(0, len(vector), block):
        part = [float(value) for value in vector[start : start + block]]
        step = max(map(abs, part)) / half or 1.0
        decoded += [step * min(np.floor(value / step + 0.5), half - 1) for value in part]
    return np.array(decoded, np.float32)


def naive_mean(vectors, nodes, bits, block):
    """Return the mean of parts that go to the rank of a node with the owner's place in its own, and to the owner."""
    ranks = len(vectors)
    parts = [
        [vector[start:stop] for start, stop in pairwise(chunk_bounds(len(vectors[0]), ranks))] for vector in vectors
    ]
    means = {}
    for place in range(len(nodes[0])):
        owners = sorted(node[place] for node in nodes)
        sums = []
        for node in nodes:
            sent = [
                naive_quantised(np.concatenate([parts[rank][owner] for owner in owners]), bits, block) for rank in node
            ]
            sums.append(np.split(sum(sent), np.cumsum([len(parts[0][owner]) for owner in owners])[:-1]))
        for number, owner in enumerate(owners):
            total = sums[0][0] if len(nodes) == 1 else sum(naive_quantised(each[number], bits, block) for each in sums)
            means[owner] = total / ranks
    return np.concatenate([means[rank] for rank in range(ranks)])


@pytest.mark.parametrize(
    ("places", "nodes"),
    [
        ((0,), [[0]]),
        ((5, 5), [[0, 1]]),
        ((0, 1, 2), [[0, 1, 2]]),
        ((0, 0, 1, 1, 2, 2), [[0, 1], [2, 3], [4, 5]]),
        ((0, 1, 1, 0), [[0, 3], [1, 2]]),
        ((0, 0, 0, 1, 1, 1, 1), [list(range(7))]),
        ((), [list(range(3))]),
        ((0,) * 8 + (1,) * 8, [list(range(8)), list(range(8, 16))]),
    ],
)
@pytest.mark.parametrize(("bits", "block"), [(4, 50), (8, 7), (4, 2048)])
def test_the_mean_is_that_of_a_naive_program(places, nodes, bits, block):
    gradients = gradients_of(sum(map(len, nodes)), 1003)
    ran = run_reducer(make_reducer(f"qgz:bits={bits},block={block}").placed(places), gradients)
    expected = naive_mean([each.layers[0] for each in gradients], nodes, bits, block)
    largest = np.abs(expected).max()
    for result in ran.results:
        np.testing.assert_allclose(result.mean.layers[0], expected, rtol=1e-6, atol=1e-6 * largest)


@pytest.mark.parametrize("node", [1, 2, 3, 6])
@pytest.mark.parametrize("held", ["fp32", "bf16"])
def test_what_is_lost_is_known_where_it_is_lost(node, held):
    gradients = example_gradients(6)
    ran = run_reducer(make_reducer(f"qgz:node={node},block=16").with_dtype(held), gradients)
    sent = sum(flat_vector(result.sent()).astype(np.float64) for result in ran.results)
    np.testing.assert_allclose(sent / 6, flat_vector(ran.results[0].mean), atol=1e-6)
    itemsize = {"fp32": 4, "bf16": 2}[held]
    gathered = [call for call in ran.recording.calls if call.kind == "all_gather"]
    assert [sum(call.bytes_by_rank) for call in gathered] == [itemsize * gradients[0].size]


def test_blocks_of_eight_bits_are_an_order_closer():
    gradients = gradients_of(8, 4000)
    exact = np.mean([each.layers[0].astype(np.float64) for each in gradients], axis=0)
    off = {}
    for bits in (4, 8):
        ran = run_reducer(make_reducer(f"qgz:bits={bits},block=100").placed(TWO_NODES), gradients)
        off[bits] = np.linalg.norm(ran.results[0].mean.layers[0] - exact) / np.linalg.norm(exact)
    assert off[8] < off[4] / 10
    assert off[4] < 0.2


@pytest.mark.parametrize("bits", [4, 8])
def test_published_bytes(bits):
    """ZeRO++, section 3.3.2: what leaves a node is a quarter of what it is in half precision, with bits=4."""
    local, nodes, block = 4, 2, 64
    ranks = local * nodes
    elements = 10 * block * ranks
    table = RowSparse(np.array([3]), np.ones((1, 16), np.float32), (elements // 16, 16))
    recording = run_reducer(
        make_reducer(f"qgz:bits={bits},block={block}").placed(TWO_NODES), [Gradient(("table",), (table,))] * ranks
    ).recording
    coded = elements * bits // 8 + 4 * elements // block
    wanted = {
        "parts in nodes": coded * (local - 1) // local,
        "parts between nodes": coded // local * (nodes - 1) // nodes,
        "means of parts": 4 * elements * (ranks - 1) // ranks,
    }
    for call in recording.calls:
        assert set(ring_bytes(call)[0].tolist()) == {wanted[call.label]}
        assert {call.label: len(call.ranks)}.items() <= {
            "parts in nodes": local,
            "parts between nodes": nodes,
            "means of parts": 0,
        }.items()
    assert len(recording.calls) == nodes + local + 1

    sharded = shard_recording(recording)
    assert [call.label for call in sharded.calls] == [call.label for call in recording.calls[:-1]]
    assert set(recording_bytes(sharded)[0].tolist()) == {wanted["parts in nodes"] + wanted["parts between nodes"]}
    assert all(sum(isinstance(step, Post) for step in script) == 2 for script in sharded.scripts)
    # Without scales, of the whole node.
    half_precision = 2 * elements * (nodes - 1) // nodes
    between = local * (wanted["parts between nodes"] - 4 * elements // block // local * (nodes - 1) // nodes)
    assert between == half_precision * bits // 16


def test_work_is_one_pass_a_hop_and_a_sum_over_nodes():
    elements, codes = 8 * 128, 8 * (64 + 8)
    gradients = gradients_of(8, elements)
    recording = run_reducer(make_reducer("qgz:block=64").placed(TWO_NODES), gradients).recording
    works = [step for step in recording.scripts[0] if isinstance(step, Work)]
    # All values become codes, a quarter of all codes those of sums; what comes from two nodes is an eighth each.
    moved = [4 * elements + codes, codes + codes // 4, codes // 4 + 2 * 2 * 4 * elements // 8]
    assert [work.bytes_moved for work in works] == moved
    assert [work.launches for work in works] == [1, 1, 2]
    single = run_reducer(make_reducer("qgz:block=64").placed((0,) * 8), gradients).recording.scripts[0]
    assert [step.launches for step in single if isinstance(step, Work)] == [1, 1]


def test_zeros_and_no_elements():
    for elements in (0, 5):
        gradients = [Gradient(("layer", "none"), (np.zeros(elements, np.float32), np.zeros((0, 4), np.float32)))] * 8
        ran = run_reducer(make_reducer("qgz").placed(TWO_NODES), gradients)
        assert not flat_vector(ran.results[0].mean).any()
        assert [layer.shape for layer in ran.results[0].mean.layers] == [(elements,), (0, 4)]


@pytest.mark.parametrize("factor", [2.0**-100, 2.0**100])
def test_scaled_gradients_give_the_scaled_mean(factor):
    gradients = gradients_of(8, 500)
    plain, scaled = (
        run_reducer(make_reducer("qgz:block=32").placed(TWO_NODES), each).results[0].mean.layers[0]
        for each in (gradients, [each.map(lambda values: values * np.float32(factor)) for each in gradients])
    )
    np.testing.assert_array_equal(plain * np.float32(factor), scaled)


def test_one_exchange_is_said_and_why():
    said = {
        "says otherwise": make_reducer("qgz"),
        "one rank": make_reducer("qgz").placed((0, 1, 2)),
        "unlike": make_reducer("qgz").placed((0, 0, 1)),
    }
    for text, reducer in said.items():
        (note,) = reducer.notes()
        assert text in note
    for reducer in (make_reducer("qgz:node=2"), make_reducer("qgz").placed(TWO_NODES)):
        assert reducer.notes() == ()


@pytest.mark.parametrize("option", ["bits=3", "block=0", "node=0"])
def test_refused_options(option):
    with pytest.raises(OptionError, match=option):
        make_reducer(f"qgz:{option}")


@pytest.mark.slow
def test_a_run_of_zero_plus_plus():
    rows = {}
    for discipline in ("ddp", "fsdp:weights=int8,secondary=true"):
        found = s2sim.run(
            "dgx-h100",
            workers=16,
            profile="gpt2",
            discipline=discipline,
            reducers=("qgz",),
            break_even=False,
            thorough=False,
        )
        rows[discipline] = next(row for row in found.rows if row.reducer == "qgz")
    elements = 124_439_808
    coded = elements * (1 / 2 + 4 / 2048) * (7 / 8 + 1 / 16)
    replicated, sharded = (row.bytes_sent_per_rank for row in rows.values())
    assert sharded == pytest.approx(coded, rel=5e-3)
    # Gradients of gpt2 are held in four bytes.
    assert replicated - sharded == pytest.approx(4 * elements * 15 / 16, rel=5e-3)


def test_its_rounding_leaves_no_residual_unless_asked_for():
    reducer = make_reducer("qgz")
    assert ReducerSpec("qgz", reducer).timed is with_feedback(reducer) is reducer
    assert make_reducer("qgz:ef=true").traits.feedback == "own"
