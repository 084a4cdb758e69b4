"""Transfers solved component by component against the event-driven network."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from s2sim.network.together import Together
from s2sim.network.transfers import deliver_ps
from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.catalogue import load_shape
from s2sim.units import PS_PER_S


@given(
    topology=st.sampled_from(["fat-tree", "leaf-spine", "single-switch", "ring"]),
    routing=st.sampled_from(["d-mod-k", "ecmp", "spray"]),
    pairs=st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15), st.floats(0, 1e6)), min_size=1, max_size=40),
)
def test_each_delivery_is_that_of_the_network_to_the_picosecond(topology, routing, pairs):
    overrides = [f"routing={routing}"] if topology in ("fat-tree", "leaf-spine") else []
    cluster = build_cluster(load_shape(topology, overrides), 16)
    src, dst, sizes = (np.array(side) for side in zip(*pairs, strict=True))
    apart = src != dst
    if not apart.any():
        return
    routes = cluster.routes(src[apart], dst[apart])
    found = Together(routes, cluster.fabric.rate_Bps / PS_PER_S).deliver_ps(sizes[apart])
    starts = np.zeros(len(found), np.int64)
    np.testing.assert_array_equal(found, deliver_ps(cluster.fabric, routes, starts, sizes[apart]))
