"""PowerSGD and ACP-SGD against oracles written for reading, their bytes, and what low rank keeps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, RowSparse, as_row_sparse, to_dense
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once, reduce_steps
from s2sim.reducers.script import Work, recording_bytes
from s2sim.seeds import named_generator
from s2sim.testing.reducer_properties import example_gradients

BOTH = ("powersgd", "acp-sgd")


def orthogonalise(matrix):
    """Gram-Schmidt, a column after the other."""
    done = []
    for column in matrix.astype(np.float64).T:
        rest = column.copy()
        for before in done:
            rest -= (before @ rest) * before
        done.append(rest / np.sqrt(rest @ rest))
    return np.array(done).T


def powersgd(gradients, query):
    """Return the mean of one step, and the next step's query."""
    p = sum(gradient @ query for gradient in gradients)
    p = orthogonalise(p)
    q = sum(gradient.T @ p for gradient in gradients) / len(gradients)
    return p @ q.T, q


def acp_sgd(gradients, last, step):
    """Return the mean of one step, what it sends, and the products of each rank."""
    basis = orthogonalise(last)
    if step % 2 == 0:
        sent = [gradient @ basis for gradient in gradients]
        mean = sum(sent) / len(sent)
        return mean @ basis.T, mean, [p @ basis.T for p in sent]
    sent = [gradient.T @ basis for gradient in gradients]
    mean = sum(sent) / len(sent)
    return basis @ mean.T, mean, [basis @ q.T for q in sent]


def draw(ranks, shape, seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) for _ in range(ranks)]


def first_query(name, columns, rank, seed=0):
    return named_generator(seed, name, 0, 0).standard_normal((columns, rank), np.float32)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_powersgd_does_what_its_paper_says(ranks):
    query = first_query("powersgd", 9, 3)
    steps = [draw(ranks, (14, 9), seed) for seed in range(4)]
    for gradients, found in zip(steps, reduce_steps("powersgd:rank=3", steps), strict=True):
        mean, query = powersgd(gradients, query)
        np.testing.assert_allclose(found.values[0], mean, atol=1e-5)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_acp_sgd_does_what_its_paper_says(ranks):
    last = first_query("acp-sgd", 9, 3)
    instances = make_instances(make_reducer("acp-sgd:rank=3"), ranks)
    for step in range(4):
        gradients = draw(ranks, (14, 9), step)
        results, _ = run_group(instances, [Gradient(("m",), (each,)) for each in gradients], step=step)
        mean, last, products = acp_sgd(gradients, last, step)
        np.testing.assert_allclose(results[0].mean.layers[0], mean, atol=1e-5)
        for result, product in zip(results, products, strict=True):
            np.testing.assert_allclose(result.sent().layers[0], product, atol=1e-5)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("make", [np.asarray, as_row_sparse])
def test_arc_top_k_keeps_the_rows_that_its_sketch_says(ranks, make):
    memory = [np.zeros((21, 9)) for _ in range(ranks)]
    instances = make_instances(make_reducer("arc-topk:density=0.3,rank=3,ef=true"), ranks)
    for step in range(4):
        gradients = draw(ranks, (21, 9), step)
        for gradient in gradients:
            gradient[step::5] = 0
        results, recording = run_group(instances, [Gradient(("m",), (make(each),)) for each in gradients], step=step)
        memory = [left + gradient for left, gradient in zip(memory, gradients, strict=True)]
        sketch = sum(
            each @ named_generator(0, "arc-topk", step, 0).standard_normal((9, 3), np.float32) for each in memory
        )
        kept = np.argsort(-np.square(sketch).sum(axis=1))[:6]
        mean = np.zeros((21, 9))
        mean[kept] = np.mean([each[kept] for each in memory], axis=0)
        np.testing.assert_allclose(to_dense(results[0].mean.layers[0]), mean, atol=1e-5)
        for left in memory:
            left[kept] = 0
        assert [(call.kind, call.elements[0]) for call in recording.calls] == [("all_reduce", 63), ("all_reduce", 54)]


def test_arc_top_k_finds_large_rows():
    matrix = draw(1, (200, 64), 0)[0]
    matrix[::10] *= 5
    found = reduce_once("arc-topk:density=0.1", [matrix]).values[0]
    assert np.square(found[::10]).sum() > 0.85 * np.square(matrix[::10]).sum()


@given(st.sampled_from(BOTH), st.integers(1, 5), st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**32))
def test_no_more_is_lost_than_there_is(name, rank, rows, columns, seed):
    (matrix,) = draw(1, (rows, columns), seed)
    found = reduce_once(f"{name}:rank={rank}", [matrix]).values[0]
    # A projection: what is lost stands upright on what is kept.
    lost, kept, whole = (np.square(each.astype(np.float64)).sum() for each in (matrix - found, found, matrix))
    assert lost + kept == pytest.approx(whole, rel=1e-4)
    assert np.linalg.matrix_rank(found, tol=1e-4) <= rank


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2**32))
def test_what_has_so_few_dimensions_is_exact(ranks, rank, more, seed):
    """Up to float32's rounding, which matrices whose ``P`` has nearly dependent columns magnify: in the median."""
    rng = np.random.default_rng(seed)
    errors = []
    for _ in range(9):
        left = rng.standard_normal((12, rank)).astype(np.float32)
        matrices = [left @ rng.standard_normal((rank, 10)).astype(np.float32) for _ in range(ranks)]
        found = reduce_once(f"powersgd:rank={rank + more}", matrices).values[0]
        errors.append(np.abs(found - np.mean(matrices, axis=0)).max())
    assert np.median(errors) < 3e-5


def test_queries_that_are_kept_find_the_largest_dimensions():
    rng = np.random.default_rng(0)
    matrix = (rng.standard_normal((60, 40)) + np.outer(rng.standard_normal(60), rng.standard_normal(40))).astype("f4")
    values = np.linalg.svd(matrix, compute_uv=False)
    best = np.sqrt(np.square(values[2:]).sum())
    lost = [np.linalg.norm(matrix - each.values[0]) for each in reduce_steps("powersgd:rank=2", [[matrix]] * 40)]
    assert lost[0] > 1.05 * best
    assert lost[-1] < 1.005 * best
    again = reduce_steps("powersgd:rank=2,reuse_query=false", [[matrix]] * 40)
    assert min(np.linalg.norm(matrix - each.values[0]) for each in again) > 1.01 * best


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_steps_neither_vanish_nor_overflow(name, scale):
    matrix = draw(1, (20, 10), 0)[0] * np.float32(scale)
    found = [once.values[0] / scale for once in reduce_steps(f"{name}:rank=3", [[matrix] * 2] * 6)]
    usual = [once.values[0] for once in reduce_steps(f"{name}:rank=3", [draw(1, (20, 10), 0) * 2] * 6)]
    np.testing.assert_allclose(found, usual, atol=1e-4)


@pytest.mark.parametrize("name", BOTH)
def test_a_layer_that_was_zero_is_found_again(name):
    (matrix,) = draw(1, (6, 4), 0)
    zero = np.zeros_like(matrix)
    found = reduce_steps(f"{name}:rank=4", [[zero], [zero], [matrix], [matrix]])
    np.testing.assert_allclose(found[-1].values[0], matrix, atol=1e-5)


def ring_bytes(elements, ranks):
    return 2 * (ranks - 1) / ranks * 4 * elements


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_bytes_are_those_of_the_formula(ranks):
    gradients = example_gradients(ranks)
    matrices, others = [(203, 5), (13, 7)], 101 + 3
    both = sum(2 * sum(shape) for shape in matrices)
    left, right = (sum(2 * shape[side] for shape in matrices) for side in (0, 1))
    for name, expected in (("powersgd", [both, both]), ("acp-sgd", [left, right])):
        instances = make_instances(make_reducer(f"{name}:rank=2"), ranks)
        for step, elements in enumerate(expected):
            _, recording = run_group(instances, gradients, step=step)
            sent = sum(ring_bytes(call.elements[0], ranks) for call in recording.calls)
            assert sent == pytest.approx(ring_bytes(elements + others, ranks))
            assert not any(call.size_from_data for call in recording.calls)


def test_a_table_is_a_matrix_whose_rows_are_mostly_zero():
    rng = np.random.default_rng(0)
    tables = [
        RowSparse(np.sort(rng.choice(50, 8, replace=False)), rng.standard_normal((8, 2, 3), np.float32), (50, 2, 3))
        for _ in range(3)
    ]
    for name in BOTH:
        found = [
            run_group(make_instances(make_reducer(f"{name}:rank=2"), 3), [Gradient(("t",), (each,)) for each in layers])
            for layers in (tables, [table.to_dense() for table in tables])
        ]
        np.testing.assert_allclose(*(to_dense(results[0].mean.layers[0]) for results, _ in found), atol=1e-6)
        # GPUs hold tables densely, and are charged for that.
        assert found[0][1] == found[1][1]


def test_what_would_shrink_too_little_travels_as_it_is():
    gradient = Gradient(("square", "narrow"), tuple(np.ones(shape, np.float32) for shape in ((20, 20), (20, 3))))
    reducer = make_reducer("powersgd:rank=1,min_compression=2.7")
    assert reducer.compresses(gradient) == (0,)
    assert make_reducer("powersgd:rank=1").compresses(gradient) == (0, 1)
    _, recording = run_group(make_instances(reducer, 2), [gradient] * 2)
    assert [(call.label, call.elements[0]) for call in recording.calls] == [("P", 20), ("other layers", 60), ("Q", 20)]


def test_work_is_that_of_products_and_columns():
    gradient = Gradient(("m",), (np.ones((30, 20), np.float32),))
    _, recording = run_group(make_instances(make_reducer("powersgd:rank=2"), 2), [gradient] * 2)
    works = [step for step in recording.scripts[0] if isinstance(step, Work)]
    assert [(work.phase, work.flops) for work in works] == [
        ("encode", 2 * 30 * 20 * 2),
        ("encode", 30 * (3 * 2 + 4)),
        ("encode", 2 * 30 * 20 * 2),
        ("decode", 2 * 30 * 20 * 2),
    ]


@pytest.mark.parametrize("name", BOTH)
def test_values_travel_in_the_type_that_training_has_them_in(name):
    gradients = [Gradient(("m",), (each,)) for each in draw(2, (30, 20), 0)]
    reducer = make_reducer(f"{name}:rank=2")
    (narrow, halves), (_, wholes) = (
        run_group(make_instances(each, 2), gradients) for each in (reducer.with_dtype("bf16"), reducer)
    )
    assert 2 * recording_bytes(halves)[0].sum() == recording_bytes(wholes)[0].sum()
    sent = [result.sent().layers[0] for result in narrow]
    np.testing.assert_allclose(np.mean(sent, axis=0), narrow[0].mean.layers[0], atol=0.02)


@pytest.mark.parametrize(
    ("options", "message"), [("rank=0", "rank=0 must be at least 1"), ("min_compression=-1", "min_compression=-1")]
)
def test_refused(options, message):
    for name in BOTH:
        with pytest.raises(OptionError, match=message):
            make_reducer(f"{name}:{options}")
