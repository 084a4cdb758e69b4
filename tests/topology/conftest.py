"""Cluster files written for the tests."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

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


def names(cluster, source, target):
    return [cluster.fabric.link_names[link] for link in cluster.routes([source], [target]).links]


def throughput(cluster, inside):
    """Return the most that ranks inside can send to the others together over the ways of the routing, by a program."""
    source, target = (ends.ravel() for ends in np.meshgrid(np.flatnonzero(inside), np.flatnonzero(~inside)))
    routes = cluster.routes(source, target)
    use = csr_matrix((routes.weights, routes.links, routes.offsets), shape=(len(source), len(cluster.fabric)))
    solved = linprog(-np.ones(len(source)), A_ub=use.T, b_ub=cluster.fabric.rate_Bps / 1e9)
    return -solved.fun * 1e9


def check_cuts(cluster):
    """Check that no cut is below what the ways out of its groups, and into them, carry together."""
    for family in cluster.cuts().families:
        # The first, the last, which may be partial, and one between.
        for group in {0, family.groups // 2, family.groups - 1}:
            inside = family.group_of_rank == group
            assert family.egress_Bps[group] >= throughput(cluster, inside) * (1 - 1e-9)
            assert family.ingress_Bps[group] >= throughput(cluster, ~inside) * (1 - 1e-9)


@pytest.fixture
def make(tmp_path):
    """Write cluster files and build clusters of them."""

    def shape(text, overrides=()):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return load_shape(str(path), overrides)

    def cluster(text, workers, **options):
        return build_cluster(shape(text), workers, **options)

    return SimpleNamespace(
        shape=shape,
        cluster=cluster,
        toml=toml,
        tree=tree,
        route=route,
        names=names,
        throughput=throughput,
        check_cuts=check_cuts,
        rate_Bps=50 * 2**30,
    )
