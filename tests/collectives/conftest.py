"""Clusters whose ranks share no link, of every size that tests of algorithms try."""

import pytest

from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape


@pytest.fixture(scope="session")
def clusters():
    return {ranks: build_cluster(load_shape("single-switch"), ranks) for ranks in range(1, 34)}
