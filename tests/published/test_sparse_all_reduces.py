"""Bytes of sparse all-reduces beside what their papers and code say: bounds, and the order at 25.56 M elements.

What a rank sends of ResNet-50's elements is measured at a hundredth of them, at the same share kept and as many ranks.
"""

from functools import cache

import numpy as np
import pytest

from s2sim.codecs.top_k import elements_kept
from s2sim.reducers.run import reduce_once

pytestmark = pytest.mark.slow

N, DENSITY, RANKS = 25_560_000, 0.01, 32
SCALE = 100
K = elements_kept(N, DENSITY)


def millions(words_of_each_kept):
    """Return the bytes of so many words of four bytes for each element kept, in 10^6."""
    return 4 * words_of_each_kept * K / 1e6


@cache
def millions_of_bytes(text):
    """Return what the busiest rank sends, in 10^6 bytes, for gradients as large as ResNet-50's."""
    vectors = [np.random.default_rng(rank).standard_normal(N // SCALE, np.float32) for rank in range(RANKS)]
    return SCALE * max(reduce_once(text, vectors).bytes_sent) / 1e6


def test_spardl_sends_four_words_an_element():
    """16k(P-1)/P: 2 ceil(log2 P) rounds of 4k(P-1)/P words, Zhao et al., ICDE 2024, without teams."""
    assert millions(4 * 31 / 32) == pytest.approx(4.0, abs=0.05)
    # Blocks keep whole numbers of pairs, less than one too few each.
    assert 3.9 < millions_of_bytes("spardl") <= 4.0


def test_ok_topk_stays_between_its_bounds():
    """Li and Hoefler, PPoPP 2022: at most 6k(P-1)/P words, and no sparse all-reduce of pairs below 2k(P-1)/P."""
    least, most = millions(2 * 31 / 32), millions(6 * 31 / 32)
    assert most == pytest.approx(5.9, abs=0.05)
    assert least < millions_of_bytes("ok-topk") < most


def test_gtopk_has_the_longest_path_of_those():
    """4k log2(P) words up the tree and down again, by the authors' own model; no rank sends that much."""
    assert millions(4 * 5) == pytest.approx(20.4, abs=0.05)
    assert millions_of_bytes("gtopk") == pytest.approx(millions(4), rel=1e-3)


def test_scalecom_sends_what_random_k_does_and_the_leaders_indices():
    assert millions(2 * 31 / 32) == pytest.approx(2.0, abs=0.05)
    assert millions_of_bytes("scalecom") == pytest.approx(millions(2 * 31 / 32 + 1), rel=1e-3)


def test_sparse_all_reduces_come_in_the_published_order():
    sent = {name: millions_of_bytes(name) for name in ("scalecom", "spardl", "ok-topk", "deepreduce", "topk")}
    assert list(sent.values()) == sorted(sent.values())
    assert sent["topk"] == pytest.approx(63.4, abs=0.1)
    assert sent["deepreduce"] == pytest.approx(49, abs=1)
