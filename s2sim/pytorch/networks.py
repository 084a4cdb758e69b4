"""Networks on drawn inputs: Hugging Face's GPT-2 and BERT, with PyTorch's fused attention, ResNet and VGG."""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import nn

MadeNetwork: TypeAlias = tuple[nn.Module, Callable[[int], torch.Tensor], torch.optim.Optimizer]

_DROPOUT = 0.1


def gpt2(*, batch: int, device: str) -> MadeNetwork:
    """Return GPT-2 of 124 M parameters on sequences of 1,024 tokens; its head is the table of words."""
    words, length, width, heads, layers = 50257, 1024, 768, 12, 12
    norm, linear = partial(nn.LayerNorm, width, device=device), partial(_InputsFirst, device=device)
    blocks = []
    for _ in range(layers):
        attention = {"c_attn": linear(width, 3 * width), "c_proj": linear(width, width)}
        mlp = {"c_fc": linear(width, 4 * width), "c_proj": linear(4 * width, width)}
        blocks.append(_by_name({"ln_1": norm(), "attn": attention, "ln_2": norm(), "mlp": mlp}))
    tables = {name: nn.Embedding(rows, width, device=device) for name, rows in (("wte", words), ("wpe", length))}
    decoder = _by_name({**tables, "h": nn.ModuleList(blocks), "ln_f": norm()})
    head = nn.Linear(width, words, bias=False, device=device)
    head.weight = decoder["wte"].weight
    module = _by_name({"transformer": decoder, "lm_head": head})
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


def _bert(width: int, heads: int, layers: int, *, batch: int, device: str) -> MadeNetwork:
    """Return BERT without a language-modelling head, on sequences of 512 tokens."""
    words, length = 30522, 512

    norm, linear = partial(nn.LayerNorm, width, device=device), partial(nn.Linear, device=device)

    def added(inputs: int) -> dict[str, nn.Module]:
        return {"dense": linear(inputs, width), "LayerNorm": norm()}

    blocks = []
    for _ in range(layers):
        own = {name: linear(width, width) for name in ("query", "key", "value")}
        attention = {"self": own, "output": added(width)}
        inner = {"dense": linear(width, 4 * width)}
        blocks.append(_by_name({"attention": attention, "intermediate": inner, "output": added(4 * width)}))
    sizes = {"word_embeddings": words, "position_embeddings": length, "token_type_embeddings": 2}
    tables = {name: nn.Embedding(rows, width, device=device) for name, rows in sizes.items()}
    embeddings = _by_name({**tables, "LayerNorm": norm()})
    encoder = _by_name({"layer": nn.ModuleList(blocks)})
    pooler = _by_name({"dense": linear(width, width)})
    module = _by_name({"embeddings": embeddings, "encoder": encoder, "pooler": pooler})
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
            hidden = add(block["output"], nn.functional.gelu(block["intermediate"]["dense"](hidden)), hidden)
        pooled: torch.Tensor = pooler["dense"](hidden[:, 0])
        return pooled.tanh().square().mean()

    return module, loss, torch.optim.AdamW(module.parameters(), lr=1e-5)


def _by_name(parts: dict[str, Any]) -> Any:
    """Return modules by name, some of which are themselves given by name."""
    return nn.ModuleDict({name: _by_name(part) if isinstance(part, dict) else part for name, part in parts.items()})


class _InputsFirst(nn.Module):
    """A linear layer with weights of shape (inputs, outputs), as in GPT-2."""

    def __init__(self, inputs: int, outputs: int, device: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs, device=device) * 0.02)
        self.bias = nn.Parameter(torch.zeros(outputs, device=device))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, hidden.flatten(0, 1), self.weight).view(*hidden.shape[:2], len(self.bias))


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, heads: int, causal: bool
) -> torch.Tensor:
    """Return attention of tensors of shape (batch, length, width)."""
    batch, length, width = query.shape
    q, k, v = (each.view(batch, length, heads, width // heads).transpose(1, 2) for each in (query, key, value))
    mixed = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=_DROPOUT, is_causal=causal)
    return mixed.transpose(1, 2).flatten(2)


def _dropped(hidden: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(hidden, _DROPOUT)


_CLASSES, _PIXELS = 1000, 224


def _resnet(blocks: tuple[int, int, int, int], expansion: int, *, batch: int, device: str) -> MadeNetwork:
    """Return a ResNet (He et al., arXiv:1512.03385, table 1), strides in the 3 x 3 convolutions of its bottlenecks."""
    width = 64
    module = nn.Sequential()
    module.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False, device=device)
    module.bn1 = nn.BatchNorm2d(width, device=device)
    module.relu = nn.ReLU(inplace=True)
    module.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
    for stage, count in enumerate(blocks):
        inner = 64 * 2**stage
        layer = []
        for place in range(count):
            stride = 2 if stage and not place else 1
            layer.append(_block(width, inner, expansion, stride, device))
            width = inner * expansion
        module.add_module(f"layer{stage + 1}", nn.Sequential(*layer))
    module.avgpool, module.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    module.fc = nn.Linear(width, _CLASSES, device=device)
    return _with_classification_loss(module, batch, device)


class _Block(nn.Sequential):
    """Parts one after the other, to the result of which the last adds what leads past them."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        *parts, shortcut = self
        out = hidden
        for part in parts:
            out = part(out)
        summed: torch.Tensor = out + shortcut(hidden)
        return summed.relu_()


def _block(width: int, inner: int, expansion: int, stride: int, device: str) -> nn.Module:
    convolution = partial(nn.Conv2d, bias=False, device=device)
    outer = inner * expansion
    if expansion == 1:
        convolutions = [convolution(width, inner, 3, stride=stride, padding=1), convolution(inner, inner, 3, padding=1)]
    else:
        middle = convolution(inner, inner, 3, stride=stride, padding=1)
        convolutions = [convolution(width, inner, 1), middle, convolution(inner, outer, 1)]
    parts = OrderedDict[str, nn.Module]()
    for number, each in enumerate(convolutions, 1):
        parts |= {f"conv{number}": each, f"bn{number}": nn.BatchNorm2d(each.out_channels, device=device)}
        parts[f"relu{number}"] = nn.ReLU(inplace=True)
    parts.popitem()
    parts["downsample"] = nn.Sequential()
    if stride > 1 or width != outer:
        shortcut = convolution(width, outer, 1, stride=stride)
        parts["downsample"] = nn.Sequential(shortcut, nn.BatchNorm2d(outer, device=device))
    return _Block(parts)


def _vgg(channels: tuple[int, ...], *, batch: int, device: str) -> MadeNetwork:
    """Return plain VGG (arXiv:1409.1556, table 1); ``channels`` of its 3 x 3 convolutions, where 0 halves the image."""
    layers: list[nn.Module] = []
    widths = [3, *(each for each in channels if each)]
    convolutions = iter([nn.Conv2d(*pair, 3, padding=1, device=device) for pair in pairwise(widths)])
    for each in channels:
        layers += [next(convolutions), nn.ReLU(inplace=True)] if each else [nn.MaxPool2d(2)]
    hidden = 4096
    between = [nn.ReLU(inplace=True), nn.Dropout()]
    classifier = nn.Sequential(
        *(nn.Linear(512 * 7 * 7, hidden, device=device), *between),
        *(nn.Linear(hidden, hidden, device=device), *between),
        nn.Linear(hidden, _CLASSES, device=device),
    )
    module = nn.Sequential()
    module.features, module.flatten, module.classifier = nn.Sequential(*layers), nn.Flatten(), classifier
    return _with_classification_loss(module, batch, device)


def _with_classification_loss(module: nn.Module, batch: int, device: str) -> MadeNetwork:
    """Return a network with its loss on one mini-batch of drawn images, and SGD with momentum."""
    images = torch.randn(batch, 3, _PIXELS, _PIXELS, device=device)
    labels = torch.randint(_CLASSES, (batch,), device=device)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    return module, lambda _: nn.functional.cross_entropy(module(images), labels), optimizer


bert_base = partial(_bert, 768, 12, 12)
bert_large = partial(_bert, 1024, 16, 24)
resnet_18 = partial(_resnet, (2, 2, 2, 2), 1)
resnet_50 = partial(_resnet, (3, 4, 6, 3), 4)
resnet_101 = partial(_resnet, (3, 4, 23, 3), 4)
resnet_152 = partial(_resnet, (3, 8, 36, 3), 4)
vgg_16 = partial(_vgg, (64, 64, 0, 128, 128, 0, *(256,) * 3, 0, *(512,) * 3, 0, *(512,) * 3, 0))
vgg_19 = partial(_vgg, (64, 64, 0, 128, 128, 0, *(256,) * 4, 0, *(512,) * 4, 0, *(512,) * 4, 0))
