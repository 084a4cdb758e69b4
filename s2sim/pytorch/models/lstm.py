"""A word-level LSTM language model with a large input embedding and a sampled softmax over the output embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.pytorch.data import evaluate_next_words, read_corpus, shard_windows, split_tokens
from s2sim.pytorch.task import ModelSettings, Task, device_of, initialise
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    import torch


# The two tables are called as in PyTorch's word language model example, whose names S2 Reducer looks for.
_INPUT, _OUTPUT = "encoder.weight", "decoder.weight"


@dataclass(frozen=True, slots=True)
class Lstm(ModelSettings):
    """Settings of the LSTM language model."""

    needs_text: ClassVar[bool] = True
    samples: ClassVar[str] = "sequences"

    width: int = 64
    # sequences, length: one rank's mini-batch: so many sequences of so many words, hidden state zero at their start
    sequences: int = 16
    length: int = 32
    negatives: int = 512  # Words drawn for the sampled softmax, the same on all ranks of a step
    warmup_steps: int = 40
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 4.0

    @property
    def sample(self) -> str:
        """What one sample of a mini-batch is."""
        return f"sequence of {self.length} words"

    def prepare(self, *, workers: int, seed: int, text: Sequence[Path]) -> Task:
        """Read the text, give each rank a contiguous shard, and build the model."""
        import torch

        corpus = read_corpus(text)
        words = corpus.vocabulary_size
        tokens, held = split_tokens(corpus.tokens, self.held_out, self.length)
        windows = torch.from_numpy(shard_windows(tokens, workers=workers, sequences=self.sequences, length=self.length))
        module = torch.nn.ModuleDict(
            {
                "encoder": torch.nn.Embedding(words, self.width),
                "lstm": torch.nn.LSTM(self.width, self.width, batch_first=True),
                "decoder": torch.nn.Embedding(words, self.width),
            }
        )
        sparse = frozenset({_INPUT, _OUTPUT})
        initialise(module, sparse, seed, embedding_scale=0.1)
        draws = self.negatives

        def loss(step: int, rank: int) -> torch.Tensor:
            window = windows[rank, step % windows.shape[1]].to(device_of(module))
            negatives = log_uniform_sample(named_generator(seed, "negatives", step), words, draws)
            hidden, _ = module["lstm"](module["encoder"](window[:, :-1]))
            return _sampled_softmax(
                hidden.reshape(-1, self.width),
                window[:, 1:].reshape(-1),
                negatives,
                module["decoder"],
                words=words,
                draws=draws,
            )

        def logits(inputs: torch.Tensor) -> torch.Tensor:
            # The sampled softmax is corrected, so that it estimates that of all words.
            hidden, _ = module["lstm"](module["encoder"](inputs))
            found: torch.Tensor = hidden.reshape(-1, self.width) @ module["decoder"].weight.T
            return found

        return Task(
            module=module,
            sparse=sparse,
            loss=loss,
            batch=self.sequences * self.length,
            model=f"word-level LSTM language model, {words} words, width {self.width}, sampled softmax",
            origin=corpus.origin,
            evaluate=None if held is None else partial(evaluate_next_words, module, logits, held),
            score="next words",
        )


def log_uniform_probability(numbers: Ints, words: int) -> Floats:
    """Return P(k) = log((k + 2) / (k + 1)) / log(words + 1): Zipf's law for words numbered by frequency.

    >>> round(float(log_uniform_probability(np.arange(10), 10).sum()), 12)
    1.0
    """
    return np.asarray(np.log1p(1 / (numbers + 1.0)) / np.log1p(words))


def log_uniform_sample(generator: np.random.Generator, words: int, draws: int) -> Ints:
    """Return the distinct word numbers among ``draws`` log-uniform draws, increasing."""
    # Inverse transform of log_uniform_probability.
    drawn = np.floor(np.exp(generator.random(draws) * np.log1p(words))) - 1
    return np.unique(np.clip(drawn, 0, words - 1).astype(np.int64))


def _log_inclusion(numbers: Ints, words: int, draws: int) -> torch.Tensor:
    """Return log of the probability that a word is among the draws: log(1 - (1 - P)^draws)."""
    import torch

    missed = draws * np.log1p(-log_uniform_probability(numbers, words))
    return torch.from_numpy(np.log(-np.expm1(missed)).astype(np.float32))


def _sampled_softmax(
    hidden: torch.Tensor, targets: torch.Tensor, negatives: Ints, table: torch.nn.Module, *, words: int, draws: int
) -> torch.Tensor:
    """Return the mean sampled-softmax loss (Jean et al., 2015, arXiv:1412.2007, section 3).

    Logits are corrected by the log probability of a word to be drawn; a negative that is the target itself is left out.
    ``hidden`` is float32 of shape (n, width), ``targets`` int64 of shape (n,); the negatives, distinct words of
    ``draws``, are shared by all samples.
    """
    import torch

    device = hidden.device
    sampled = torch.from_numpy(negatives).to(device)
    rows = table(torch.cat([targets, sampled]))
    true_rows, negative_rows = rows[: len(targets)], rows[len(targets) :]
    true = (hidden * true_rows).sum(dim=1, keepdim=True)
    true = true - _log_inclusion(targets.cpu().numpy(), words, draws).to(device)[:, None]
    others = hidden @ negative_rows.T - _log_inclusion(negatives, words, draws).to(device)
    others = others.masked_fill(targets[:, None] == sampled, -torch.inf)
    return torch.nn.functional.cross_entropy(
        torch.cat([true, others], dim=1), torch.zeros(len(targets), dtype=torch.int64, device=device)
    )
