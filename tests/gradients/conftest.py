"""A small source of gradients and the trace written from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.gradients.manifest import Origin
from s2sim.gradients.write_trace import write_trace

ORIGIN = Origin(data="random numbers", licence="none", source="this test", command="none", training="none")


@dataclass
class Source:
    """Heavy-tailed random gradients: one row-sparse layer, one sparse vector, two dense layers."""

    world_size: int = 3
    steps: int = 2
    scale: float = 1e-9

    def gradient(self, step, rank):
        rng = np.random.default_rng([step, rank])

        def draw(*shape):
            return (rng.standard_t(2, shape) * self.scale).astype(np.float32)

        rows = np.sort(rng.choice(50, 6 + rank, replace=False))
        keys = np.sort(rng.choice(1000, 11, replace=False))
        table = RowSparse(rows, draw(len(rows), 4), (50, 4))
        vector = RowSparse(keys, draw(11), (1000,))
        return Gradient(("table", "vector", "a/b", "bias"), (table, vector, draw(3, 5, 2), draw(7)))


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def written(tmp_path, source):
    return write_trace(tmp_path / "trace", source, kind="recorded", model="random", origin=ORIGIN, batch=8, seed=3)
