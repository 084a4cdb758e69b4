"""Transformers with the parameters of Hugging Face's GPT-2 and BERT; attention is PyTorch's own, in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    Made: TypeAlias = tuple[torch.nn.Module, Callable[[int], torch.Tensor], torch.optim.Optimizer]

_DROPOUT = 0.1


def gpt2(*, batch: int, device: str) -> Made:
    """Return GPT-2 of 124 M parameters on sequences of 1,024 tokens; its head is the table of words."""
    import torch
    from torch import nn

    words, length, width, heads, layers = 50257, 1024, 768, 12, 12
    blocks = []
    for _ in range(layers):
        attention = {"c_attn": _inputs_first(width, 3 * width, device), "c_proj": _inputs_first(width, width, device)}
        mlp = {"c_fc": _inputs_first(width, 4 * width, device), "c_proj": _inputs_first(4 * width, width, device)}
        block = {"ln_1": nn.LayerNorm(width, device=device), "attn": nn.ModuleDict(attention)}
        blocks.append(nn.ModuleDict({**block, "ln_2": nn.LayerNorm(width, device=device), "mlp": nn.ModuleDict(mlp)}))
    decoder: Any = nn.ModuleDict(
        {
            "wte": nn.Embedding(words, width, device=device),
            "wpe": nn.Embedding(length, width, device=device),
            "h": nn.ModuleList(blocks),
            "ln_f": nn.LayerNorm(width, device=device),
        }
    )
    head = nn.Linear(width, words, bias=False, device=device)
    head.weight = decoder["wte"].weight
    module = nn.ModuleDict({"transformer": decoder, "lm_head": head})
    tokens = torch.randint(words, (batch, length + 1), device=device)
    places = torch.arange(length, device=device)

    def forward(inputs: torch.Tensor) -> torch.Tensor:
        hidden = _dropped(decoder["wte"](inputs) + decoder["wpe"](places))
        for block in decoder["h"]:
            parts = block["attn"]["c_attn"](block["ln_1"](hidden)).split(width, dim=2)
            hidden = hidden + _dropped(block["attn"]["c_proj"](_attention(*parts, heads=heads, causal=True)))
            inner = nn.functional.gelu(block["mlp"]["c_fc"](block["ln_2"](hidden)), approximate="tanh")
            hidden = hidden + _dropped(block["mlp"]["c_proj"](inner))
        scores: torch.Tensor = head(decoder["ln_f"](hidden))
        return scores

    def loss(_: int) -> torch.Tensor:
        return nn.functional.cross_entropy(forward(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return module, loss, torch.optim.AdamW(module.parameters(), lr=1e-5)


def bert_base(*, batch: int, device: str) -> Made:
    """Return BERT-base without a language-modelling head, on sequences of 512 tokens."""
    return _bert(768, 12, 12, batch, device)


def bert_large(*, batch: int, device: str) -> Made:
    """Return BERT-large without a language-modelling head, on sequences of 512 tokens."""
    return _bert(1024, 16, 24, batch, device)


def _bert(width: int, heads: int, layers: int, batch: int, device: str) -> Made:
    import torch
    from torch import nn

    words, length = 30522, 512

    def linear(inputs: int, outputs: int) -> nn.Module:
        return nn.Linear(inputs, outputs, device=device)

    def added(inputs: int) -> nn.Module:
        return nn.ModuleDict({"dense": linear(inputs, width), "LayerNorm": nn.LayerNorm(width, device=device)})

    blocks = []
    for _ in range(layers):
        own = nn.ModuleDict({name: linear(width, width) for name in ("query", "key", "value")})
        attention = nn.ModuleDict({"self": own, "output": added(width)})
        inner = nn.ModuleDict({"dense": linear(width, 4 * width)})
        blocks.append(nn.ModuleDict({"attention": attention, "intermediate": inner, "output": added(4 * width)}))
    embeddings: Any = nn.ModuleDict(
        {
            "word_embeddings": nn.Embedding(words, width, device=device),
            "position_embeddings": nn.Embedding(length, width, device=device),
            "token_type_embeddings": nn.Embedding(2, width, device=device),
            "LayerNorm": nn.LayerNorm(width, device=device),
        }
    )
    encoder: Any = nn.ModuleDict({"layer": nn.ModuleList(blocks)})
    pooler: Any = nn.ModuleDict({"dense": linear(width, width)})
    module = nn.ModuleDict({"embeddings": embeddings, "encoder": encoder, "pooler": pooler})
    tokens = torch.randint(words, (batch, length), device=device)
    places = torch.arange(length, device=device)

    def add(part: Any, hidden: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        normal: torch.Tensor = part["LayerNorm"](_dropped(part["dense"](hidden)) + before)
        return normal

    def loss(_: int) -> torch.Tensor:
        hidden = embeddings["word_embeddings"](tokens) + embeddings["position_embeddings"](places)
        hidden = embeddings["LayerNorm"](hidden + embeddings["token_type_embeddings"](torch.zeros_like(tokens)))
        hidden = _dropped(hidden)
        for block in encoder["layer"]:
            parts = [block["attention"]["self"][name](hidden) for name in ("query", "key", "value")]
            hidden = add(block["attention"]["output"], _attention(*parts, heads=heads, causal=False), hidden)
            inner = nn.functional.gelu(block["intermediate"]["dense"](hidden))
            hidden = add(block["output"], inner, hidden)
        pooled: torch.Tensor = pooler["dense"](hidden[:, 0])
        return pooled.tanh().square().mean()

    return module, loss, torch.optim.AdamW(module.parameters(), lr=1e-5)


def _inputs_first(inputs: int, outputs: int, device: str) -> torch.nn.Module:
    """Return a linear layer whose weights stand inputs first, as GPT-2 has them."""
    import torch

    class InputsFirst(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(inputs, outputs, device=device) * 0.02)
            self.bias = torch.nn.Parameter(torch.zeros(outputs, device=device))

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return torch.addmm(self.bias, hidden.flatten(0, 1), self.weight).view(*hidden.shape[:2], outputs)

    return InputsFirst()


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, heads: int, causal: bool
) -> torch.Tensor:
    """Return attention of tensors of shape (batch, length, width)."""
    import torch

    batch, length, width = query.shape
    q, k, v = (each.view(batch, length, heads, width // heads).transpose(1, 2) for each in (query, key, value))
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=_DROPOUT, is_causal=causal)
    return mixed.transpose(1, 2).flatten(2)


def _dropped(hidden: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.nn.functional.dropout(hidden, _DROPOUT)
