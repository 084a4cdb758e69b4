"""What PowerSGD's authors say it sends for ResNet-18 on CIFAR-10 (NeurIPS 2019, table 4; recalled, to whole MiB)."""

from math import prod

import numpy as np
import pytest

from s2sim.gradients.gradient import Gradient
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.script import payload_bytes

STEPS_PER_EPOCH = 50_000 // (16 * 128)
"""Of 16 workers with 128 images each."""


def resnet18_shapes():
    """Return the shapes of ResNet-18's parameters with a stem for images of 32 x 32 (K. He et al., CVPR 2016)."""
    shapes, width = [(64, 3, 3, 3), (64,), (64,)], 64
    for channels in (64, 128, 256, 512):
        for _ in range(2):
            shapes += [(channels, width, 3, 3), (channels, channels, 3, 3), *[(channels,)] * 4]
            if width != channels:
                shapes += [(channels, width, 1, 1), (channels,), (channels,)]
            width = channels
    return [*shapes, (10, 512), (10,)]


@pytest.mark.parametrize(("text", "published"), [("dense", 1023), ("powersgd:rank=2", 8), ("powersgd:rank=7", 24)])
def test_mebibytes_an_epoch(text, published):
    shapes = resnet18_shapes()
    assert sum(map(prod, shapes)) == 11_173_962
    layers = tuple(np.broadcast_to(np.float32(0), shape) for shape in shapes)
    gradient = Gradient(tuple(map(str, range(len(layers)))), layers)
    _, recording = run_group(make_instances(make_reducer(text), 1), [gradient])
    assert round(int(payload_bytes(recording)[0]) * STEPS_PER_EPOCH / 2**20) == published
