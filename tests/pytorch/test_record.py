"""Recording: gradients against PyTorch's own at the same weights, on tiny settings."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from s2sim.errors import S2SimError
from s2sim.gradients.gradient import RowSparse, to_dense
from s2sim.gradients.read_trace import open_trace
from s2sim.pytorch.models.cnn import Cnn
from s2sim.pytorch.models.language import (
    Lstm,
    Transformer,
    _sampled_softmax,
    log_uniform_probability,
    log_uniform_sample,
)
from s2sim.pytorch.models.ncf import Ncf
from s2sim.pytorch.record_trace import _train, record
from s2sim.pytorch.task import DataOrigin, interactions_of, reproducible_torch
from s2sim.seeds import named_generator

TINY_LSTM = "lstm:width=6,sequences=2,length=5,negatives=20,warmup_steps=1"
TINY_TRANSFORMER = "transformer:width=8,heads=2,blocks=1,vocabulary=50,sequences=2,length=5,warmup_steps=1"


def _autograd(task, step, ranks):
    """Gradient of the mean loss of some ranks, by one backward pass over all of them."""
    task.module.zero_grad(set_to_none=True)
    sum(task.loss(step, rank) for rank in ranks).div(len(ranks)).backward()
    return {name: parameter.grad.numpy().copy() for name, parameter in task.module.named_parameters()}


def test_recorded_gradients_are_those_of_the_mini_batches_at_the_same_weights(text):
    settings = Lstm(width=6, sequences=2, length=5, negatives=20, warmup_steps=0, learning_rate=0.5)
    with reproducible_torch():
        recorded = _train(settings.prepare(workers=3, seed=4, text=[text]), settings, workers=3, steps=2, progress=None)
        task = settings.prepare(workers=3, seed=4, text=[text])
        for step in range(2):
            for rank in range(3):
                expected = _autograd(task, step, [rank])
                for name, layer in recorded.gradient(step, rank):
                    np.testing.assert_allclose(to_dense(layer), expected[name], rtol=1e-4, atol=1e-7)
            mean = _autograd(task, step, [0, 1, 2])
            with torch.no_grad():
                for name, parameter in task.module.named_parameters():
                    parameter.sub_(torch.from_numpy(mean[name]), alpha=0.5)


def test_language_model_trace(tmp_path, text):
    calls = []
    trace = record(
        TINY_LSTM, workers=4, steps=2, out=tmp_path / "t", text=text, seed=7, progress=lambda *done: calls.append(done)
    )
    assert calls == [(i, 12) for i in range(1, 13)]
    manifest = open_trace(tmp_path / "t").manifest
    assert (manifest.kind, manifest.batch, manifest.warmup_steps, manifest.seed) == ("recorded", 10, 1, 7)
    assert manifest.origin.command == (
        f"s2sim trace record {TINY_LSTM} --workers 4 --steps 2 --seed 7 --text generated.txt --out t"
    )
    assert str(tmp_path) not in (tmp_path / "t" / "manifest.json").read_text()
    trace.verify()
    words = json.loads((tmp_path / "t" / "manifest.json").read_text())["layers"][0]["shape"][0]
    for step in range(2):
        negatives = set(log_uniform_sample(named_generator(7, "negatives", step + 1), words, 20).tolist())
        for rank in range(4):
            gradient = dict(trace.gradient(step, rank))
            assert len(gradient["encoder.weight"].rows) <= 10
            # The negatives are shared, and with the targets they are all the output rows there are.
            output = set(gradient["decoder.weight"].rows.tolist())
            assert negatives <= output
            assert len(output) <= len(negatives) + 10


def test_sampled_softmax_equals_its_formula_written_out():
    rng = np.random.default_rng(3)
    words, draws, width = 30, 12, 4
    hidden, weight = rng.standard_normal((5, width)), rng.standard_normal((words, width))
    targets, negatives = np.array([0, 3, 3, 29, 7]), np.array([0, 1, 3, 9])
    table = torch.nn.Embedding.from_pretrained(torch.from_numpy(weight.astype(np.float32)))
    found = _sampled_softmax(
        torch.from_numpy(hidden.astype(np.float32)),
        torch.from_numpy(targets),
        negatives,
        table,
        words=words,
        draws=draws,
    )
    drawn = 1 - (1 - log_uniform_probability(np.arange(words), words)) ** draws
    losses = []
    for vector, target in zip(hidden, targets, strict=True):
        candidates = [target, *(n for n in negatives if n != target)]
        scores = np.array([np.exp(vector @ weight[c]) / drawn[c] for c in candidates])
        losses.append(-np.log(scores[0] / scores.sum()))
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-5)


def test_same_seed_same_trace_and_another_seed_another(tmp_path, text):
    first, again, other = (
        record(TINY_LSTM, workers=2, steps=1, out=tmp_path / name, text=[text], seed=seed).manifest.files
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == again
    assert set(first.values()).isdisjoint(other.values())


def test_transformer_trace(tmp_path, text):
    trace = record(TINY_TRANSFORMER, workers=2, steps=1, out=tmp_path / "t", text=text)
    assert [layer.name for layer in trace.manifest.layers if layer.sparse] == ["encoder.weight"]
    assert dict(trace.gradient(0, 0))["decoder.weight"].shape == (50, 8)
    trace.verify()


def test_transformer_does_not_look_ahead(text):
    settings = Transformer(width=8, heads=2, blocks=2, vocabulary=50, sequences=1, length=5)
    seen = {}
    with reproducible_torch():
        task = settings.prepare(workers=1, seed=0, text=[text])
        task.module["encoder"].register_forward_hook(lambda *call: seen.update(words=call[2]))
        task.module["norm"].register_forward_hook(lambda *call: seen.update(hidden=call[1][0]))
        task.loss(0, 0)
        (influence,) = torch.autograd.grad(seen["hidden"][0, 2].square().sum(), seen["words"])
    strength = influence[0].abs().sum(dim=1).numpy()
    assert (strength[:3] > 0).all()
    assert (strength[3:] == 0).all()


def test_ncf_on_given_interactions():
    rng = np.random.default_rng(0)
    files = [{f"i{number}" for number in rng.integers(0, 40, 12)} for _ in range(30)]
    interactions = interactions_of(files, DataOrigin("d", "l", "s"))
    observed = set(zip(interactions.users.tolist(), interactions.items.tolist(), strict=True))
    settings = Ncf(width=4, positives=16, warmup_steps=1)
    users, items, labels = settings._batch(
        interactions,
        interactions.users * interactions.item_count + interactions.items,
        np.arange(16),
        np.random.default_rng(1),
    )
    pairs = list(zip(users.tolist(), items.tolist(), strict=True))
    assert all((pair in observed) == (label == 1) for pair, label in zip(pairs, labels, strict=True))
    assert labels.sum() == 16
    assert len(labels) > 32
    with reproducible_torch():
        task = settings.prepare_from(interactions, workers=4, seed=0)
        recorded = _train(task, settings, workers=4, steps=1, progress=None)
    gradient = dict(recorded.gradient(0, 2))
    assert isinstance(gradient["embed_user.weight"], RowSparse)
    assert 0 < len(gradient["embed_user.weight"].rows) <= 16
    with pytest.raises(S2SimError, match="use fewer workers"):
        settings.prepare_from(interactions, workers=100, seed=0)


@pytest.mark.slow
def test_convolutional_network_learns(tmp_path):
    pytest.importorskip("sklearn")
    trace = record("cnn:channels=2,hidden=8,images=16,warmup_steps=2", workers=2, steps=1, out=tmp_path / "t")
    assert not any(layer.sparse for layer in trace.manifest.layers)
    trace.verify()
    settings = Cnn()
    with reproducible_torch():
        task = settings.prepare(workers=2, seed=0, text=[])
        before = float(task.loss(60, 0).detach())
        _train(task, settings, workers=2, steps=1, progress=None)
        assert float(task.loss(60, 0).detach()) < before / 2
    with pytest.raises(S2SimError, match="cnn:images=17"):
        settings.prepare(workers=100, seed=0, text=[])


def test_pytorch_settings_are_left_as_they_were():
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.get_rng_state()
    with reproducible_torch():
        assert torch.get_num_threads() == 1
        torch.rand(3)
    assert torch.get_num_threads() == before[0]
    assert torch.are_deterministic_algorithms_enabled() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])
