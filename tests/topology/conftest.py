"""Cluster files written for the tests."""

from types import SimpleNamespace

import pytest

from s2sim.topology.catalogue import load_shape
from s2sim.topology.cluster import build_cluster

RATE = 'rate = "50GiB/s"'


def toml(fabric, *, gpus=1, node="", nic="", link=f'{RATE}\nlatency = "250ns"', top=""):
    return "\n".join([top, f"[node]\ngpus = {gpus}", node, "[nic]", nic, "[fabric]", fabric, "[fabric.link]", link])


def tree(leaf, up, *, pod=None, core=None, routing="d-mod-k", **options):
    fabric = f'kind = "fat-tree"\nhosts_per_leaf = {leaf}\nuplinks_per_leaf = {up}'
    if pod:
        fabric += f"\nlevels = 3\nleaves_per_pod = {pod}\nuplinks_per_aggregation = {core}"
    return toml(fabric, top=f'routing = "{routing}"', **options)


def route(routes, transfer):
    part = slice(routes.offsets[transfer], routes.offsets[transfer + 1])
    return routes.links[part], routes.weights[part]


@pytest.fixture
def make(tmp_path):
    """Write cluster files and build clusters of them."""

    def shape(text, overrides=()):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return load_shape(str(path), overrides)

    def cluster(text, workers, **options):
        return build_cluster(shape(text), workers, **options)

    return SimpleNamespace(shape=shape, cluster=cluster, toml=toml, tree=tree, route=route, rate_Bps=50 * 2**30)
