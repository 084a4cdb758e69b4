"""A small transformer language model: a row-sparse input embedding and a dense full-softmax output layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from s2sim.errors import OptionError
from s2sim.pytorch.data import evaluate_next_words, read_corpus, shard_windows, split_tokens
from s2sim.pytorch.task import ModelSettings, Task, device_of, initialise

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Transformer(ModelSettings):
    """Settings of the transformer language model."""

    needs_text: ClassVar[bool] = True
    samples: ClassVar[str] = "sequences"

    # Width of the model, attention heads (a divisor of it), and layers
    width: int = 64
    heads: int = 4
    blocks: int = 2
    vocabulary: int = 8000  # Most frequent words kept; all others become one
    # sequences, length: one rank's mini-batch: so many sequences of so many words
    sequences: int = 16
    length: int = 32
    warmup_steps: int = 40

    def __post_init__(self) -> None:
        ModelSettings.__post_init__(self)
        if self.width % self.heads:
            raise OptionError(f"model transformer: width={self.width} is no multiple of heads={self.heads}")
        if self.vocabulary < 2:
            raise OptionError(f"model transformer: vocabulary={self.vocabulary} is less than 2")

    @property
    def sample(self) -> str:
        """What one sample of a mini-batch is."""
        return f"sequence of {self.length} words"

    def prepare(self, *, workers: int, seed: int, text: Sequence[Path]) -> Task:
        """Read the text, give each rank a contiguous shard, and build the model."""
        import torch

        corpus = read_corpus(text, vocabulary=self.vocabulary)
        words = corpus.vocabulary_size
        tokens, held = split_tokens(corpus.tokens, self.held_out, self.length)
        windows = torch.from_numpy(shard_windows(tokens, workers=workers, sequences=self.sequences, length=self.length))
        blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(
                self.width, self.heads, 4 * self.width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(self.blocks)
        )
        module = torch.nn.ModuleDict(
            {
                "encoder": torch.nn.Embedding(words, self.width),
                "position": torch.nn.Embedding(self.length, self.width),
                "blocks": blocks,
                "norm": torch.nn.LayerNorm(self.width),
                "decoder": torch.nn.Linear(self.width, words),
            }
        )
        sparse = frozenset({"encoder.weight"})
        initialise(module, sparse, seed, embedding_scale=0.1)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(self.length)

        def logits(inputs: torch.Tensor) -> torch.Tensor:
            hidden = module["encoder"](inputs) + module["position"].weight
            for block in blocks:
                hidden = block(hidden, src_mask=mask.to(inputs.device), is_causal=True)
            found: torch.Tensor = module["decoder"](module["norm"](hidden)).reshape(-1, words)
            return found

        def loss(step: int, rank: int) -> torch.Tensor:
            window = windows[rank, step % windows.shape[1]].to(device_of(module))
            return torch.nn.functional.cross_entropy(logits(window[:, :-1]), window[:, 1:].reshape(-1))

        return Task(
            module=module,
            sparse=sparse,
            loss=loss,
            batch=self.sequences * self.length,
            model=f"transformer language model, {words} words, width {self.width}, {self.blocks} layers, full softmax",
            origin=corpus.origin,
            evaluate=None if held is None else partial(evaluate_next_words, module, logits, held),
            score="next words",
        )
