"""A generated text with word frequencies like a real one's, and jobs of processes."""

import os
from pathlib import Path

import numpy as np
import pytest

from s2sim.pytorch.launch import ProcessPlace, run_job


@pytest.fixture
def text(tmp_path):
    words = np.minimum(np.random.default_rng(0).zipf(1.3, 3000), 400)
    path = tmp_path / "generated.txt"
    path.write_text("\n".join(" ".join(f"w{word}" for word in words[i : i + 20]) for i in range(0, 3000, 20)))
    return path


@pytest.fixture(scope="session")
def hook_job():
    """Run one of the jobs in hook_jobs.py in some processes."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])

    def run(job, *, ranks=2, hear=None, **arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", path)
            return run_job(f"hook_jobs:{job}", arguments, [ProcessPlace()] * ranks, timeout_s=120, hear=hear)

    return run
