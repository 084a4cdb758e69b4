"""How many examples properties are tried on, and cluster files that many tests write for themselves."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.catalogue import load_shape

# The same examples at every run, so that whoever sees a failure can see it again; no deadline: how fast depends on who
# else uses the cores.
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=20)
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "quick"))

RATE = "50GiB/s"
RATE_BPS = 50 * 2**30


def pytest_configure():
    """Give each worker, and each process that a test starts, one thread: the workers fill the cores."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")


@pytest.fixture
def cluster_file(tmp_path):
    """Write a topology file from its fabric table; hosts have one GPU and one port of 50 GiB/s."""

    def write(fabric, *, node="gpus = 1", extra="", nic=f'rate = "{RATE}"', routing=""):
        path = tmp_path / f"cluster{len(list(tmp_path.iterdir()))}.toml"
        path.write_text(f"{routing}\n[node]\n{node}\n{extra}\n[nic]\n{nic}\n[fabric]\n{fabric}\n")
        return str(path)

    return write


@pytest.fixture
def make_cluster(cluster_file):
    """Build a cluster from the same arguments."""

    def build(workers, fabric, *, placement="linear", **tables):
        return build_cluster(load_shape(cluster_file(fabric, **tables)), workers, placement=placement)

    return build


@pytest.fixture
def switch_fabric():
    return 'kind = "single-switch"\n[fabric.link]\nlatency = "500ns"'


@pytest.fixture(scope="session")
def fair_rates():
    """Return the naive solver of max-min fair rates."""
    from .network.oracle import fair_rates

    return fair_rates
