"""Texts, shards and interactions: what models learn from, without PyTorch."""

import sys
from itertools import pairwise

import numpy as np
import pytest

from s2sim.errors import OptionError, S2SimError, TraceError, UnknownNameError
from s2sim.pytorch.models.language import log_uniform_probability, log_uniform_sample
from s2sim.pytorch.record_trace import MODELS, record
from s2sim.pytorch.task import DataOrigin, identifiers, interactions_of, read_corpus, shard_windows

ORIGIN = DataOrigin("data", "licence", "source")


def test_words_are_numbered_by_frequency_then_spelling(tmp_path):
    (tmp_path / "a").write_text("b b b c\n")
    (tmp_path / "b").write_text("a c\n")
    corpus = read_corpus([tmp_path / "a", tmp_path / "b"])
    # b: 3; <eos> and c: 2 each; a: 1.
    assert corpus.tokens.tolist() == [0, 0, 0, 2, 1, 3, 2, 1]
    assert corpus.vocabulary_size == 4
    small = read_corpus([tmp_path / "a", tmp_path / "b"], vocabulary=3)
    # <unk> stands for c and a and is now as frequent as b.
    assert small.vocabulary_size == 3
    assert small.tokens.tolist() == [1, 1, 1, 0, 2, 0, 0, 2]


def test_origin_of_unknown_text_names_file_and_checksum_but_no_path(text):
    origin = read_corpus([text]).origin
    assert "generated.txt (SHA-256 " in origin.data
    assert str(text.parent) not in origin.data
    assert origin.licence == "not stated"


def test_unreadable_texts_are_named(tmp_path):
    with pytest.raises(S2SimError, match=r"none\.txt cannot be read"):
        read_corpus([tmp_path / "none.txt"])
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(S2SimError, match="not UTF-8"):
        read_corpus([tmp_path / "latin"])


@pytest.mark.parametrize(("workers", "sequences", "length", "count"), [(1, 1, 4, 5), (3, 2, 4, 100), (4, 3, 2, 59)])
def test_windows_are_consecutive_and_shards_disjoint(workers, sequences, length, count):
    windows = shard_windows(np.arange(count), workers=workers, sequences=sequences, length=length)
    assert windows.shape[0] == workers
    assert windows.shape[2:] == (sequences, length + 1)
    assert (np.diff(windows, axis=3) == 1).all()
    # The next window starts with the word that the last one predicted last.
    assert (windows[:, 1:, :, 0] == windows[:, :-1, :, -1]).all()
    ranges = sorted((shard[:, s].min(), shard[:, s].max()) for shard in windows for s in range(sequences))
    assert all(left[1] < right[0] for left, right in pairwise(ranges))


def test_text_too_short_for_the_workers_is_refused():
    with pytest.raises(S2SimError, match="has 59 words; 4 workers with 3 sequences of 5 need at least 72"):
        shard_windows(np.arange(59), workers=4, sequences=3, length=5)


def test_log_uniform_draws_follow_their_probability():
    probability = log_uniform_probability(np.arange(50), 50)
    assert probability.sum() == pytest.approx(1)
    seen = np.zeros(50)
    for seed in range(4000):
        seen[log_uniform_sample(np.random.default_rng(seed), 50, 20)] += 1
    expected = 1 - (1 - probability) ** 20
    # Five standard deviations of a binomial share.
    assert (np.abs(seen / 4000 - expected) < 5 * np.sqrt(expected * (1 - expected) / 4000) + 1e-9).all()


def test_identifiers_of_a_source():
    source = b"import a.b as c\nclass D(E):\n def f(self, x=1): return self.g(y=x)\n"
    assert identifiers(source) == {"a.b", "D", "E", "f", "self", "x", "g", "y"}
    assert identifiers(b"not python (") == set()


def test_interactions_keep_identifiers_of_two_files():
    found = interactions_of([{"a", "b"}, set(), {"b", "c"}, {"b", "c"}], ORIGIN)
    # Files without identifiers are no users; b is in three files, c in two, a in one.
    assert (found.user_count, found.item_count) == (3, 2)
    assert list(zip(found.users.tolist(), found.items.tolist(), strict=True)) == [
        (0, 0),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        ("lstn", {}, UnknownNameError, "did you mean 'lstm'"),
        ("lstm:widht=3", {}, OptionError, "did you mean 'width'"),
        ("lstm:width=0", {}, OptionError, "width=0 is not above 0"),
        ("lstm:learning_rate=nan", {}, OptionError, "learning_rate=nan"),
        ("lstm:warmup_steps=-1", {}, OptionError, "warmup_steps=-1 is negative"),
        ("transformer:heads=5", {}, OptionError, "no multiple of heads=5"),
        ("lstm", {}, OptionError, "name a file with --text"),
        ("cnn", {"text": "a.txt"}, OptionError, "leave --text out"),
        ("cnn", {"workers": 0}, OptionError, "workers=0"),
        ("cnn", {"steps": 0}, OptionError, "steps=0"),
        ("cnn", {"seed": -1}, OptionError, "seed=-1"),
    ],
)
def test_bad_requests_are_refused_before_any_training(tmp_path, model, options, error, message):
    with pytest.raises(error, match=message):
        record(model, **{"workers": 1, "steps": 1, "out": tmp_path / "t"} | options)


def test_used_target_is_refused_before_any_training(tmp_path):
    (tmp_path / "notes").touch()
    with pytest.raises(TraceError, match="not empty"):
        record("cnn", workers=1, steps=1, out=tmp_path)


@pytest.mark.parametrize("model", ["lstm", "ncf", "cnn", "transformer"])
def test_missing_pytorch_names_the_extra(tmp_path, monkeypatch, text, model):
    monkeypatch.setitem(sys.modules, "torch", None)
    needed = text if MODELS.get(model).needs_text else None
    with pytest.raises(S2SimError, match=r"needs torch: pip install 's2sim\[torch\]'"):
        record(model, workers=1, steps=1, out=tmp_path / "t", text=needed)
