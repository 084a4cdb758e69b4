"""DeepReduce: which elements each policy sends, bytes by the published formula, and its value codes."""

from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.top_k import elements_kept
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once, run_reducer

from .naive import top


def sent_of(text, vectors):
    ran = run_reducer(make_reducer(text), [Gradient(("all",), (vector,)) for vector in vectors])
    return [result.sent().layers[0] for result in ran.results], ran.results[0].mean.layers[0]


@given(st.integers(1, 5), st.integers(0, 60), st.floats(0.01, 1), st.integers(0, 2**32))
def test_p0_sends_what_top_k_keeps_and_true_values_of_a_few_others(ranks, n, density, seed):
    rng = np.random.default_rng(seed)
    vectors = [rng.integers(-4, 5, n).astype(np.float32) for _ in range(ranks)]
    sent, mean = sent_of(f"deepreduce:density={density},fpr=0.1", vectors)
    for own, vector in zip(sent, vectors, strict=True):
        kept = top(vector, elements_kept(n, density))
        assert np.array_equal(own[kept != 0], kept[kept != 0])
        assert np.all((own == 0) | (own == vector))
    assert np.array_equal(mean, np.sum(sent, axis=0, dtype=np.float32) / np.float32(ranks))


def test_with_indices_as_they_are_it_is_top_k():
    rng = np.random.default_rng(3)
    vectors = [rng.standard_normal(1000, np.float32) for _ in range(4)]
    found, wanted = (reduce_once(text, vectors) for text in ("deepreduce:index=raw", "topk"))
    assert np.array_equal(found.values[0], wanted.values[0])
    assert found.bytes_sent == wanted.bytes_sent


def test_p2_sends_more_of_top_k_than_p1_and_both_send_k():
    n, k = 50_000, 500
    vectors = [np.random.default_rng(5).standard_normal(n, np.float32)]
    kept = top(vectors[0], k) != 0
    hit = {}
    for policy in ("p1", "p2"):
        (own,), _ = sent_of(f"deepreduce:policy={policy},fpr=0.01", vectors)
        assert np.count_nonzero(own) == k
        hit[policy] = np.count_nonzero(own[kept])
    # Of k and 0.01 (n - k) that pass, P1 draws alike.
    assert abs(hit["p1"] - k * k / (k + 0.01 * (n - k))) < 60
    assert hit["p2"] > 1.4 * hit["p1"]


@pytest.mark.parametrize("fpr", [0.1, 0.004, 0.001])
@pytest.mark.parametrize("density", [0.01, pytest.param(0.1, marks=pytest.mark.slow)])
def test_bytes_are_those_of_the_published_formula(density, fpr):
    n, ranks = 200_000, 2
    k = elements_kept(n, density)
    vectors = [np.random.default_rng(seed).standard_normal(n, np.float32) for seed in range(ranks)]
    index = 0.1803 * k * log2(1 / fpr)
    for policy, passing in (("p0", k + fpr * (n - k)), ("p1", k), ("p2", k)):
        sent = reduce_once(f"deepreduce:density={density},policy={policy},fpr={fpr}", vectors).bytes_sent
        # Two filters of 10,000 bits let 1.4 % more or fewer keys pass, as one standard deviation.
        assert np.mean(sent) == pytest.approx(4 * passing + index, rel=0.04)


@pytest.mark.parametrize(("values", "loses", "least", "most"), [("qsgd", 0.2, 0.2, 0.25), ("poly", 0.02, 0.3, 0.4)])
def test_values_take_fewer_bytes_and_lose_little(values, loses, least, most):
    vectors = [np.random.default_rng(seed).standard_normal(100_000, np.float32) for seed in range(2)]
    plain, coded = (reduce_once(f"deepreduce:index=raw,values={code}", vectors) for code in ("raw", values))
    assert np.linalg.norm(coded.values[0] - plain.values[0]) < loses * np.linalg.norm(plain.values[0])
    index = 4 * 1000
    assert least < (coded.bytes_sent[0] - index) / (plain.bytes_sent[0] - index) < most


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("deepreduce:index=raw,policy=p1", "policy=p1 changes nothing with index=raw"),
        ("deepreduce:index=raw,fpr=0.1", "fpr=0.1 changes nothing with index=raw"),
        ("deepreduce:pieces=4", "pieces=4 changes nothing with values=raw"),
        ("deepreduce:fpr=1", "fpr=1.0 is not between"),
        ("deepreduce:values=poly,pieces=0", "pieces=0 must be at least 1"),
    ],
)
def test_idle_options_and_those_out_of_range_are_refused(text, complaint):
    with pytest.raises(OptionError, match=complaint):
        make_reducer(text)
