"""Published rates of gradient dropping, local SGD and pruning, against lengths of real messages."""

import numpy as np
import pytest

from s2sim.reducers.run import reduce_once, reduce_steps

N, P = 100_000, 4


@pytest.fixture(scope="module")
def gradients():
    generator = np.random.default_rng(0)
    return [generator.standard_normal(N).astype(np.float32) for _ in range(P)]


@pytest.mark.parametrize(("coding", "bits"), [("distance16", 48), ("int64", 96), ("int32", 64)])
def test_bits_of_a_kept_element(coding, bits, gradients):
    """32 bits of value and 16 of distance as SBC's authors count DGC; 64-bit indices in its authors' repository."""
    sent = reduce_once(f"dgc-select:coding={coding}", gradients).bytes_sent[0]
    assert 8 * sent / (P - 1) / (N // 1000) == bits


def test_gradient_dropping_saves_as_much_as_is_reported(gradients):
    """SBC's authors give it a rate of 600 to 720 at a density of 0.001, recalled; an upload is a message here."""
    upload = reduce_once("dgc-select:coding=distance16", gradients).bytes_sent[0] / (P - 1)
    assert 600 <= 4 * N / upload <= 720


def test_local_sgd_divides_by_its_steps(gradients):
    """8n(P-1)/(P H) a step."""
    n = N // 100
    found = reduce_steps("local-sgd", [[gradient[:n] for gradient in gradients]] * 10)
    assert sum(step.bytes_sent[0] for step in found) / 10 == 8 * n * (P - 1) / P / 10


def test_pruning_divides_by_what_is_left(gradients):
    """0.2 of dense at a pruned share of 0.8."""
    found, dense = (reduce_once(text, gradients).bytes_sent[0] for text in ("pactrain", "dense"))
    assert found / dense == pytest.approx(0.2)
