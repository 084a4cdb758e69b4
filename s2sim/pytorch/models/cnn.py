"""A small convolutional network on scikit-learn's digits: every layer dense."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.errors import S2SimError
from s2sim.pytorch.task import DataOrigin, ModelSettings, Task, device_of, evaluate_classes, initialise
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Cnn(ModelSettings):
    """Settings of the convolutional network; its second convolution has twice as many output channels as the first."""

    samples: ClassVar[str] = "images"
    sample: ClassVar[str] = "image of 8 x 8"

    channels: int = 16
    hidden: int = 64
    images: int = 32
    warmup_steps: int = 50

    def prepare(self, *, workers: int, seed: int, text: Sequence[Path]) -> Task:
        """Load the digits, deal them out to the ranks, and build the network."""
        assert not text
        import torch
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        held = round(len(labels) * self.held_out)
        per_rank = (len(labels) - held) // workers
        if per_rank < self.images:
            raise S2SimError(
                f"there are {len(labels) - held} digits to train on; {workers} workers with {self.images} images each "
                f"need {workers * self.images}: use fewer workers, or cnn:images={max(per_rank, 1)}"
            )
        order = named_generator(seed, "shards").permutation(len(labels))
        # Pixels are 0 to 16.
        inputs = torch.from_numpy((pixels[order] / 16).astype(np.float32).reshape(-1, 1, 8, 8))
        targets = torch.from_numpy(labels[order].astype(np.int64))
        module = torch.nn.Sequential(
            OrderedDict(
                conv1=torch.nn.Conv2d(1, self.channels, 3, padding=1),
                relu1=torch.nn.ReLU(),
                conv2=torch.nn.Conv2d(self.channels, 2 * self.channels, 3, padding=1),
                relu2=torch.nn.ReLU(),
                pool=torch.nn.MaxPool2d(2),
                flatten=torch.nn.Flatten(),
                fc1=torch.nn.Linear(2 * self.channels * 16, self.hidden),
                relu3=torch.nn.ReLU(),
                fc2=torch.nn.Linear(self.hidden, 10),
            )
        )
        initialise(module, frozenset(), seed, embedding_scale=0.0)
        batches = per_rank // self.images

        def loss(step: int, rank: int) -> torch.Tensor:
            start = rank * per_rank + (step % batches) * self.images
            part = slice(start, start + self.images)
            device = device_of(module)
            return torch.nn.functional.cross_entropy(module(inputs[part].to(device)), targets[part].to(device))

        return Task(
            module=module,
            sparse=frozenset(),
            loss=loss,
            batch=self.images,
            model=f"convolutional network on 8 x 8 digits, {self.channels} and {2 * self.channels} channels",
            evaluate=partial(evaluate_classes, module, module, inputs[-held:], targets[-held:]) if held else None,
            score="digits",
            origin=DataOrigin(
                data="handwritten digits (Alpaydin and Kaynak, 1998), the 1797 images that come with scikit-learn",
                licence="CC BY 4.0",
                source="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
            ),
        )
