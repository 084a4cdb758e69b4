"""Claims of sparse all-reduces and PowerSGD: arithmetic by closed forms, and what whole entries come to."""

from math import log2, prod

import pytest

from s2sim.claims.paper import PaperEffort
from s2sim.claims.papers import does_it_pay, published_times, sparse_sums
from s2sim.experiment.progress import SILENT


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_gtopk_goes_up_a_tree(ranks):
    assert sparse_sums.tree_rounds(ranks) == log2(ranks)


def test_gtopk_computes_what_a_worker_alone_takes():
    assert sparse_sums.MEASURED["VGG-16"].compute_s == pytest.approx(0.0972, abs=1e-4)


@pytest.mark.parametrize("ranks", [6, 8])
def test_spardl_sends_four_words_an_element_in_twice_the_logarithm_of_rounds(ranks):
    words, rounds = sparse_sums.measured_cost(ranks)
    assert words == pytest.approx(4 * (ranks - 1) / ranks, rel=0.02)
    assert (words <= sparse_sums.cost(ranks)[0], rounds) == (True, sparse_sums.cost(ranks)[1])


@pytest.mark.parametrize("skewed", [False, True])
def test_ok_topk_sends_less_than_six_words_an_element(skewed):
    assert sparse_sums.MIN_WORDS < sparse_sums.words_sent("ok-topk", 16, skewed=skewed) < sparse_sums.MAX_WORDS
    assert sparse_sums.words_sent("topk", 16, skewed=skewed) == pytest.approx(2 * 16)


@pytest.mark.parametrize("ranks", [4, 8])
def test_topka2a_sends_less_than_dense_below_one_half(ranks):
    below, above = (sparse_sums.sent_bytes(f"topka2a:density={density}", ranks) for density in (0.49, 0.51))
    assert below < sparse_sums.sent_bytes("dense", ranks) < above


def test_resnet_18_of_small_images():
    assert sum(map(prod, published_times.resnet18_shapes())) == 11_173_962


def test_published_figures_stand_in_falling_order():
    times = list(published_times.PUBLISHED_MS.values())
    assert times == sorted(times, reverse=True)


def test_the_share_of_wins_is_twice_the_published_one():
    assert pytest.approx(2 * 6 / 200) == does_it_pay.MAX_SHARE
    assert {place.name for place in does_it_pay.PLACES} > set(does_it_pay._DATA_CENTRE)


@pytest.mark.slow
def test_does_it_pay_over_clusters(monkeypatch):
    monkeypatch.setattr(does_it_pay, "_MODELS", does_it_pay._MODELS[:1])
    part = does_it_pay._over_clusters(PaperEffort(quick=True), SILENT)
    best, middle, chart = part.pictures
    assert best.columns == middle.columns == tuple(place.name for place in does_it_pay.PLACES)
    assert len(best.rows) == 3
    # Faster networks and larger mini-batches leave less to gain.
    assert [row[0] for row in best.values] == sorted((row[0] for row in best.values), reverse=True)
    assert best.values[0][0] > best.values[0][-1]
    shares = chart.lines[0].y
    assert list(shares) == sorted(shares, reverse=True)
    assert [claim.judgement for claim in part.claims][-1] in ("reproduced", "not reproduced")
