"""A generated text with word frequencies like a real one's."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def text(tmp_path):
    words = np.minimum(np.random.default_rng(0).zipf(1.3, 3000), 400)
    path = tmp_path / "generated.txt"
    path.write_text("\n".join(" ".join(f"w{word}" for word in words[i : i + 20]) for i in range(0, 3000, 20)))
    return path
