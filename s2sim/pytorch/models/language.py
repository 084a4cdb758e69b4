"""Word-level language models: an LSTM with a sampled softmax, and a small transformer with a full one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.errors import OptionError
from s2sim.pytorch import task
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    import torch

# Sequences to evaluate by; a softmax over all words of more would take longer than to train.
_MAX_WINDOWS = 64


class _Network(NamedTuple):
    module: torch.nn.Module
    loss: Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]  # Of a step, inputs and next words
    logits: Callable[[torch.Tensor], torch.Tensor]
    model: str


@dataclass(frozen=True, slots=True)
class _LanguageModel(task.ModelSettings):
    """Settings of a language model; a rank's mini-batch has ``sequences`` of ``length`` words."""

    needs_text: ClassVar[bool] = True
    samples: ClassVar[str] = "sequences"
    sample: ClassVar[str] = "sequence of {0.length} words"
    sparse: ClassVar[frozenset[str]] = frozenset({"encoder.weight"})

    width: int = 64
    sequences: int = 16
    length: int = 32
    warmup_steps: int = 40

    @abstractmethod
    def network(self, words: int, seed: int) -> _Network:
        """Return the network for a vocabulary."""

    def prepare(self, *, workers: int, seed: int, text: Sequence[Path]) -> task.Task:
        """Read the text, give each rank a contiguous shard, and build the model."""
        import torch

        # A model without a limit keeps all words.
        corpus = task.read_corpus(text, vocabulary=getattr(self, "vocabulary", None))
        tokens, held = corpus.tokens, None
        if self.held_out:
            tokens, held = task.hold_out(tokens, self.held_out, length=self.length, most=_MAX_WINDOWS)
        windows = torch.from_numpy(
            task.shard_windows(tokens, workers=workers, sequences=self.sequences, length=self.length)
        )
        module, loss_of, logits, model = self.network(corpus.vocabulary_size, seed)
        task.initialise(module, self.sparse, seed, embedding_scale=0.1)

        def loss(step: int, rank: int) -> torch.Tensor:
            window = windows[rank, step % windows.shape[1]].to(task.device_of(module))
            return loss_of(step, window[:, :-1], window[:, 1:].reshape(-1))

        evaluate = None
        if held is not None:
            inputs, targets = torch.from_numpy(held[:, :-1]), torch.from_numpy(held[:, 1:].reshape(-1))
            evaluate = partial(task.evaluate_classes, module, logits, inputs, targets)
        return task.Task(
            module=module,
            sparse=self.sparse,
            loss=loss,
            batch=self.sequences * self.length,
            model=model,
            origin=corpus.origin,
            evaluate=evaluate,
            score="next words",
        )


@dataclass(frozen=True, slots=True)
class Lstm(_LanguageModel):
    """Settings of the LSTM, which starts every sequence with a hidden state of zeros."""

    # The two tables are called as in PyTorch's word language model example, whose names S2 Reducer looks for.
    sparse: ClassVar[frozenset[str]] = frozenset({"encoder.weight", "decoder.weight"})

    negatives: int = 512  # Words drawn for the sampled softmax, the same on all ranks of a step
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 4.0

    def network(self, words: int, seed: int) -> _Network:
        """Return the network for a vocabulary."""
        import torch

        encoder, decoder = (torch.nn.Embedding(words, self.width) for _ in range(2))
        lstm = torch.nn.LSTM(self.width, self.width, batch_first=True)

        def hidden(inputs: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = lstm(encoder(inputs))[0]
            return outputs.reshape(-1, self.width)

        def loss(step: int, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            negatives = log_uniform_sample(named_generator(seed, "negatives", step), words, self.negatives)
            return _sampled_softmax(hidden(inputs), targets, negatives, decoder, words=words, draws=self.negatives)

        def logits(inputs: torch.Tensor) -> torch.Tensor:
            # The sampled softmax is corrected, so that it estimates that of all words.
            return hidden(inputs) @ decoder.weight.T

        return _Network(
            torch.nn.ModuleDict({"encoder": encoder, "lstm": lstm, "decoder": decoder}),
            loss,
            logits,
            f"word-level LSTM language model, {words} words, width {self.width}, sampled softmax",
        )


@dataclass(frozen=True, slots=True)
class Transformer(_LanguageModel):
    """Settings of the transformer: ``heads`` divides ``width``; all but ``vocabulary`` words become one."""

    heads: int = 4
    blocks: int = 2
    vocabulary: int = 8000

    def __post_init__(self) -> None:
        task.ModelSettings.__post_init__(self)
        if self.width % self.heads:
            raise OptionError(f"model transformer: width={self.width} is no multiple of heads={self.heads}")
        if self.vocabulary < 2:
            raise OptionError(f"model transformer: vocabulary={self.vocabulary} is less than 2")

    def network(self, words: int, seed: int) -> _Network:
        """Return the network for a vocabulary."""
        from torch import nn

        blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                self.width, self.heads, 4 * self.width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(self.blocks)
        )
        module = nn.ModuleDict(
            {
                "encoder": nn.Embedding(words, self.width),
                "position": nn.Embedding(self.length, self.width),
                "blocks": blocks,
                "norm": nn.LayerNorm(self.width),
                "decoder": nn.Linear(self.width, words),
            }
        )
        mask = nn.Transformer.generate_square_subsequent_mask(self.length)

        def logits(inputs: torch.Tensor) -> torch.Tensor:
            hidden = module["encoder"](inputs) + module["position"].weight
            for block in blocks:
                hidden = block(hidden, src_mask=mask.to(inputs.device), is_causal=True)
            scores: torch.Tensor = module["decoder"](module["norm"](hidden)).reshape(-1, words)
            return scores

        def loss(_: int, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(logits(inputs), targets)

        return _Network(
            module,
            loss,
            logits,
            f"transformer language model, {words} words, width {self.width}, {self.blocks} layers, full softmax",
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
