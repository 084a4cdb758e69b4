"""Ring bytes against rings that are walked step by step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.bitmap import Bitmap
from s2sim.codecs.count_sketch import CountSketch
from s2sim.codecs.exact_sketch import PeeledSketchCodec
from s2sim.codecs.floats import HalfCodec
from s2sim.codecs.payload import FRAME_BYTES
from s2sim.codecs.top_k import TopKCodec
from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.demand import Demand
from s2sim.gradients.gradient import Gradient, as_row_sparse, to_dense
from s2sim.reducers.reduction import leaves_of, rebuild
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.script import Call, Recording, chunk_bounds, payload_bytes, recording_bytes, ring_bytes
from s2sim.seeds import named_generator
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape


def all_reduce_by_steps(elements, ranks, itemsize):
    """Reduce-scatter, then all-gather: in step s rank r sends one chunk to rank r + 1."""
    chunks = [(i + 1) * elements // ranks - i * elements // ranks for i in range(ranks)]
    sent, received = [0] * ranks, [0] * ranks
    for first in (0, 1):
        for step in range(ranks - 1):
            for rank in range(ranks):
                size = chunks[(rank + first - step) % ranks] * itemsize
                sent[rank] += size
                received[(rank + 1) % ranks] += size
    return sent, received


def all_gather_by_steps(sizes):
    ranks = len(sizes)
    sent, received = [0] * ranks, [0] * ranks
    for step in range(ranks - 1):
        for rank in range(ranks):
            size = sizes[(rank - step) % ranks]
            sent[rank] += size
            received[(rank + 1) % ranks] += size
    return sent, received


@given(st.integers(0, 200), st.integers(1, 9), st.sampled_from([1, 4]))
def test_all_reduce(elements, ranks, itemsize):
    call = Call("all_reduce", "sum", "float32", itemsize, (elements,) * ranks, False, "x")
    sent, received = ring_bytes(call)
    assert (sent.tolist(), received.tolist()) == all_reduce_by_steps(elements, ranks, itemsize)
    # The reduced scattered sums alone: every rank ends with one whole copy, less its own part, twice.
    assert sent.sum() == 2 * (ranks - 1) * elements * itemsize


@given(st.lists(st.integers(0, 100), min_size=1, max_size=9))
def test_all_gather(elements):
    call = Call("all_gather", "gather", "float32", 4, tuple(elements), False, "x")
    sent, received = ring_bytes(call)
    assert (sent.tolist(), received.tolist()) == all_gather_by_steps([4 * count for count in elements])


@given(st.lists(st.integers(0, 100), min_size=1, max_size=9))
def test_reduce_scatter(parts):
    call = Call("reduce_scatter", "sum", "float32", 4, tuple(parts), False, "x")
    ranks = len(parts)
    sent, received = np.zeros((2, ranks), np.int64)
    # Part i starts behind its owner and ends there, one rank further in every step.
    for step in range(ranks - 1):
        for part, size in enumerate(parts):
            sent[(part + 1 + step) % ranks] += 4 * size
            received[(part + 2 + step) % ranks] += 4 * size
    assert [side.tolist() for side in ring_bytes(call)] == [sent.tolist(), received.tolist()]


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("root", [0, 1, 4])
def test_broadcast_and_reduce_go_around_once_each_way(ranks, root):
    if root >= ranks:
        pytest.skip("no such root")
    out, back = np.zeros((2, 2, ranks), np.int64)
    for step in range(ranks - 1):
        out[0, (root + step) % ranks] += 28
        out[1, (root + step + 1) % ranks] += 28
        back[0, (root + step + 1) % ranks] += 28
        back[1, (root + step) % ranks] += 28
    for kind, expected in (("broadcast", out), ("reduce", back)):
        call = Call(kind, "copy", "float32", 4, (7,) * ranks, False, "x", root=root)
        assert [side.tolist() for side in ring_bytes(call)] == expected.tolist()


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [("reduce_scatter", "ring"), ("broadcast", "chain"), ("reduce", "chain"), ("all_reduce", "ring")],
)
def test_the_pinned_bytes_are_those_of_the_schedules_that_run(kind, algorithm, ranks):
    cluster = build_cluster(load_shape("fat-tree"), ranks)
    for root in {0, ranks - 1} if kind in ("broadcast", "reduce") else {0}:
        demand = Demand(kind, (1000,) * ranks, 4, root)
        schedule = make_algorithm(algorithm, kind).schedule(demand, cluster)
        call = Call(kind, "sum", "float32", 4, demand.elements, False, "x", root=root)
        assert [side.tolist() for side in ring_bytes(call)] == [side.tolist() for side in schedule.traffic()]


def test_what_a_group_sends_counts_for_its_members():
    of_all = Call("all_gather", "gather", "uint8", 1, (1, 2, 3), False, "x")
    of_some = Call("broadcast", "copy", "uint8", 1, (5, 5), False, "x", root=1, ranks=(0, 2))
    recording = Recording((of_all, of_some), ((),) * 3)
    assert [side.tolist() for side in recording_bytes(recording)] == [[4, 3, 5 + 5], [5 + 5, 4, 3]]
    assert payload_bytes(recording).tolist() == [1, 2, 3 + 5]


@given(st.integers(1, 9), st.integers(0, 1000))
def test_all_to_all(ranks, seed):
    blocks = np.random.default_rng(seed).integers(0, 100, (ranks, ranks)).tolist()
    call = Call("all_to_all", "exchange", "float32", 4, tuple(map(sum, blocks)), True, "x", tuple(map(tuple, blocks)))
    sent, received = [0] * ranks, [0] * ranks
    for source in range(ranks):
        for target in range(ranks):
            if source != target:
                sent[source] += 4 * blocks[source][target]
                received[target] += 4 * blocks[source][target]
    found = ring_bytes(call)
    assert (found[0].tolist(), found[1].tolist()) == (sent, received)


def test_chunks_are_the_pinned_ones():
    assert chunk_bounds(10, 4).tolist() == [0, 2, 5, 7, 10]


def test_a_recording_adds_its_calls_up():
    calls = tuple(Call("all_reduce", "sum", "float32", 4, (n,) * 3, False, "x") for n in (7, 11))
    sent, received = recording_bytes(Recording(calls, ((),) * 3))
    parts = [all_reduce_by_steps(n, 3, 4) for n in (7, 11)]
    assert sent.tolist() == np.add(parts[0][0], parts[1][0]).tolist()
    assert received.tolist() == np.add(parts[0][1], parts[1][1]).tolist()


class Done:
    def __init__(self, value):
        self.value = value

    def __iter__(self):
        yield self
        return self.value

    def __and__(self, _):
        return self


class Alone:
    """A group of one rank, which keeps what it posts."""

    index, size, step, seed = 0, 1, 0, 0

    def __init__(self):
        self.posted = {}

    def all_reduce(self, payload, op="sum", *, label, **_):
        leaves = [to_dense(leaf) for leaf in leaves_of(payload)]
        self.posted[label] = [(op, leaf) for leaf in leaves]
        return Done(rebuild(payload, leaves))

    def all_gather(self, payload, *, label, **_):
        self.posted[label] = [("gather", leaf) for leaf in leaves_of(payload)]
        return Done((payload,))

    def work(self, _):
        pass

    def synchronise(self):
        pass

    def replicated(self, compute):
        return compute()


GENERATOR = np.random.default_rng(3)
VECTOR = (GENERATOR.standard_normal(999) * (GENERATOR.random(999) < 0.2)).astype(np.float32)
LARGEST = float(np.abs(VECTOR).max())
SEED = int(named_generator(0, "count sketch", 0).integers(2**63))


@pytest.mark.parametrize(
    ("reducer", "codec", "arrays"),
    [
        ("topk:density=0.05", TopKCodec(0.05), {"largest elements": ["indices", "values"]}),
        ("fp16", HalfCodec(), {"gradient": ["values"]}),
        ("union", Bitmap(), {"support": ["support"]}),
        ("s2:rows=3,columns=40", CountSketch(3, 40, SEED), {"cells": ["cells"], "support": ["support"]}),
        ("s2-exact:margin=99", PeeledSketchCodec(999, LARGEST), {"cells": ["cells"], "support": ["support"]}),
        ("s2-exact:margin=99,dtype=int64", PeeledSketchCodec(999, LARGEST, dtype="int64"), {"cells": ["cells"]}),
    ],
)
def test_what_a_reducer_sends_are_the_arrays_of_its_codec(reducer, codec, arrays):
    """Law 5: the same arrays, combined in the same way; their bytes are those of the payload without its frame."""
    rank = Alone()
    for _ in make_reducer(reducer).reduce(rank, Gradient(("g",), (as_row_sparse(VECTOR),))):
        pass
    payload = codec.encode(VECTOR)
    for label, names in arrays.items():
        for (operation, sent), name in zip(rank.posted[label], names, strict=True):
            assert operation == codec.combine[name]
            assert sent.dtype == payload.arrays[name].dtype
            assert np.array_equal(sent.reshape(-1), payload.arrays[name].reshape(-1))
    assert payload.body_bytes == len(payload.to_bytes()) - FRAME_BYTES
