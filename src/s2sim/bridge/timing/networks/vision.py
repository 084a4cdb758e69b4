"""Networks that classify images of 224 x 224, as torchvision builds them."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    Made: TypeAlias = tuple[torch.nn.Module, Callable[[int], torch.Tensor], torch.optim.Optimizer]

_CLASSES = 1000
_PIXELS = 224
# Output channels of the 3 x 3 convolutions; 0 halves the image.
_VGG_16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
_VGG_19 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512, 512, 512, 512, 0)


def resnet_18(*, batch: int, device: str) -> Made:
    """Return ResNet-18 (He et al., arXiv:1512.03385, table 1)."""
    return _resnet((2, 2, 2, 2), 1, batch, device)


def resnet_50(*, batch: int, device: str) -> Made:
    """Return ResNet-50, strides in its 3 x 3 convolutions."""
    return _resnet((3, 4, 6, 3), 4, batch, device)


def resnet_101(*, batch: int, device: str) -> Made:
    """Return ResNet-101."""
    return _resnet((3, 4, 23, 3), 4, batch, device)


def resnet_152(*, batch: int, device: str) -> Made:
    """Return ResNet-152."""
    return _resnet((3, 8, 36, 3), 4, batch, device)


def vgg_16(*, batch: int, device: str) -> Made:
    """Return VGG-16 without normalisation (Simonyan and Zisserman, arXiv:1409.1556, table 1)."""
    return _vgg(_VGG_16, batch, device)


def vgg_19(*, batch: int, device: str) -> Made:
    """Return VGG-19."""
    return _vgg(_VGG_19, batch, device)


def _resnet(blocks: tuple[int, int, int, int], expansion: int, batch: int, device: str) -> Made:
    from torch import nn

    width = 64
    parts: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False, device=device),
        "bn1": nn.BatchNorm2d(width, device=device),
        "maxpool": nn.MaxPool2d(3, stride=2, padding=1),
    }
    for stage, count in enumerate(blocks):
        inner = 64 * 2**stage
        layer = []
        for place in range(count):
            stride = 2 if stage and not place else 1
            layer.append(_block(width, inner, expansion, stride, device))
            width = inner * expansion
        parts[f"layer{stage + 1}"] = nn.ModuleList(layer)
    parts["fc"] = nn.Linear(width, _CLASSES, device=device)
    module = nn.ModuleDict(parts)

    def forward(images: torch.Tensor) -> torch.Tensor:
        hidden = module["maxpool"](module["bn1"](module["conv1"](images)).relu_())
        for stage in range(1, 5):
            for block in module[f"layer{stage}"].children():
                hidden = _through(block, hidden)
        scores: torch.Tensor = module["fc"](hidden.mean(dim=(2, 3)))
        return scores

    return _classifying(module, forward, batch, device)


def _block(width: int, inner: int, expansion: int, stride: int, device: str) -> torch.nn.Module:
    """Return two 3 x 3 convolutions, or one between two of 1 x 1 that narrow and widen."""
    from torch import nn

    convolution = partial(nn.Conv2d, bias=False, device=device)
    outer = inner * expansion
    if expansion == 1:
        convolutions = [convolution(width, inner, 3, stride=stride, padding=1), convolution(inner, inner, 3, padding=1)]
    else:
        middle = convolution(inner, inner, 3, stride=stride, padding=1)
        convolutions = [convolution(width, inner, 1), middle, convolution(inner, outer, 1)]
    block = nn.ModuleDict()
    for number, each in enumerate(convolutions, 1):
        block[f"conv{number}"] = each
        block[f"bn{number}"] = nn.BatchNorm2d(each.out_channels, device=device)
    if stride > 1 or width != outer:
        shortcut = convolution(width, outer, 1, stride=stride)
        block["downsample"] = nn.Sequential(shortcut, nn.BatchNorm2d(outer, device=device))
    return block


def _through(block: torch.nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    parts = dict(block.named_children())
    last = sum(name.startswith("conv") for name in parts)
    out = hidden
    for number in range(1, last + 1):
        out = parts[f"bn{number}"](parts[f"conv{number}"](out))
        if number < last:
            out = out.relu_()
    return (out + (parts["downsample"](hidden) if "downsample" in parts else hidden)).relu_()


def _vgg(channels: tuple[int, ...], batch: int, device: str) -> Made:
    from torch import nn

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
    module = nn.ModuleDict({"features": nn.Sequential(*layers), "classifier": classifier})

    def forward(images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = module["classifier"](module["features"](images).flatten(1))
        return scores

    return _classifying(module, forward, batch, device)


def _classifying(
    module: torch.nn.Module, forward: Callable[[torch.Tensor], torch.Tensor], batch: int, device: str
) -> Made:
    """Return a network with its loss on one mini-batch of drawn images, and SGD with momentum."""
    import torch

    images = torch.randn(batch, 3, _PIXELS, _PIXELS, device=device)
    labels = torch.randint(_CLASSES, (batch,), device=device)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    return module, lambda _: torch.nn.functional.cross_entropy(forward(images), labels), optimizer
