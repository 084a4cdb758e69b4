"""Dragonflies against the counts of their paper, and ways against the rules that they follow."""

from collections import Counter

import numpy as np
import pytest

from s2sim.topology.describe import describe_cluster, summary_line


def build(make, nodes, hosts, routers, links, *, routing="minimal", seed=0):
    counts = f"hosts_per_router = {hosts}\nrouters_per_group = {routers}\nglobal_links_per_router = {links}"
    text = make.toml(f'kind = "dragonfly"\n{counts}', top=f'routing = "{routing}"')
    return make.cluster(text, nodes, seed=seed)


def global_links(cluster):
    """Return (router, router) of every global link, one a direction."""
    block = cluster.fabric.blocks["global"]
    part = slice(block.start, block.start + block.count)
    first = cluster.layout.first_switch
    return (cluster.fabric.tail[part] - first).tolist(), (cluster.fabric.head[part] - first).tolist()


def routers_passed(cluster, source, target):
    """Return the routers that a way passes, from the links' ends, and the classes of the links between them."""
    links = cluster.routes([source], [target]).links
    first = cluster.layout.first_switch
    between = links[1:-1]
    routers = [int(cluster.fabric.head[links[0]]) - first, *(cluster.fabric.head[between] - first).tolist()]
    return routers, [cluster.fabric.class_names[code] for code in cluster.fabric.link_class[between]]


def test_the_example_of_the_paper(make):
    # Figure 5 of Kim et al.: p = h = 2, a = 4 give 9 groups, 36 routers and 72 hosts, all at most 3 hops apart.
    cluster = make.cluster(make.toml('kind = "dragonfly"'), 72)
    values = describe_cluster(cluster)
    assert (values["hosts_per_router"], values["routers_per_group"], values["global_links_per_router"]) == (2, 4, 2)
    assert (values["groups"], cluster.layout.switches) == (9, 36)
    assert values["links_by_class"] == {"nic": 144, "local": 36 * 3, "global": 36 * 2}
    assert values["diameter_hops"] == 3 + 2
    # 4 of 9 groups to the other 5, a link for each two.
    assert values["bisection_Bps"] == 20 * make.rate_Bps
    assert values["oversubscription"] is None
    assert "9 groups of 4 routers, 2 nodes and 2 global links a router, minimal routing" in summary_line(cluster)


@pytest.mark.parametrize(("nodes", "balance"), [(6, 1), (7, 2), (72, 2), (73, 3), (342, 3), (1056, 4)])
def test_the_smallest_balanced_one_is_taken(make, nodes, balance):
    dims = make.cluster(make.toml('kind = "dragonfly"'), nodes).layout
    assert (dims.hosts_per_leaf, dims.routers_per_group, dims.global_links_per_router) == (
        balance,
        2 * balance,
        balance,
    )


def test_interfaces_count_as_hosts_of_a_balanced_one(make):
    text = make.toml('kind = "dragonfly"', gpus=4, node='[nvlink]\nrate = "1GB/s"', nic="count = 4")
    dims = make.cluster(text, 64).layout
    assert (dims.hosts_per_leaf, dims.routers_per_group, dims.global_links_per_router, dims.groups) == (1, 8, 4, 2)


@pytest.mark.parametrize("routers", [1, 2, 3, 4])
@pytest.mark.parametrize("links", [1, 2, 3, 5])
def test_global_links_are_spread_evenly_and_lead_both_ways(make, routers, links):
    for groups in range(2, routers * links + 2):
        cluster = build(make, groups * routers, 1, routers, links)
        assert cluster.layout.groups == groups
        tail, head = global_links(cluster)
        ends = Counter(zip(tail, head, strict=True))
        assert ends == Counter(zip(head, tail, strict=True))
        # No router has more than its links; at most one of a group is left over.
        assert max(Counter(tail).values()) <= links
        assert len(tail) >= groups * (routers * links - 1)
        joined = Counter((a // routers, b // routers) for a, b in zip(tail, head, strict=True))
        assert len(joined) == groups * (groups - 1)
        assert max(joined.values()) - min(joined.values()) <= 1
        assert all(a != b for a, b in joined)


@pytest.mark.parametrize("groups", [2, 3, 4, 5, 8, 9])
def test_bisection_counts_the_links_between_halves(make, groups):
    cluster = build(make, groups * 4, 1, 4, 2)
    tail, head = (np.array(ends) // 4 for ends in global_links(cluster))
    between = np.count_nonzero((tail < groups // 2) & (head >= groups // 2))
    hosts = groups * 4 // 2
    assert describe_cluster(cluster)["bisection_Bps"] == min(between, hosts) * make.rate_Bps


@pytest.mark.parametrize("counts", [(2, 4, 2), (1, 3, 5), (2, 1, 8), (1, 2, 3)])
@pytest.mark.parametrize("nodes", [5, 12, 14])
def test_minimal_ways_cross_one_global_link(make, counts, nodes):
    cluster = build(make, nodes, *counts)
    hosts, routers, _ = counts
    for source in range(nodes):
        for target in set(range(nodes)) - {source}:
            passed, classes = routers_passed(cluster, source, target)
            assert (passed[0], passed[-1]) == (source // hosts, target // hosts)
            assert len(set(passed)) == len(passed)
            same = passed[0] // routers == passed[-1] // routers
            assert classes.count("global") == (0 if same else 1)
            assert len(classes) <= (1 if same else 3)
            assert [router // routers for router in passed] == sorted(
                (router // routers for router in passed), reverse=passed[0] > passed[-1]
            )


def test_parallel_links_are_drawn_evenly(make):
    cluster = build(make, 32, 1, 16, 1)
    source, target = np.repeat(np.arange(16), 16), np.tile(np.arange(16), 16) + 16
    block = cluster.fabric.blocks["global"]
    links = cluster.routes(source, target).links
    loads = np.bincount(links[(links >= block.start) & (links < block.start + block.count)] - block.start)[:16]
    assert loads.sum() == 256
    # Chi-square with 15 degrees of freedom: 37.7 is passed once in a thousand.
    assert ((loads - 16) ** 2 / 16).sum() < 37.7


def test_valiant_goes_by_way_of_a_third_group(make):
    middles = Counter()
    cluster = build(make, 40, 1, 4, 3, routing="valiant")
    for source in range(4):
        for target in range(40):
            if source == target:
                continue
            passed, classes = routers_passed(cluster, source, target)
            groups = list(dict.fromkeys(router // 4 for router in passed))
            if target < 4:
                assert (groups, classes) == ([0], ["local"])
                continue
            assert len(groups) == 3
            assert (groups[0], groups[2]) == (0, target // 4)
            assert groups[1] not in (0, target // 4)
            assert (classes.count("global"), len(classes) <= 5) == (2, True)
            middles[groups[1]] += 1
    assert set(middles) == set(range(1, 10))


def test_valiant_among_two_groups_is_minimal_and_says_so(make):
    one, other = (build(make, 12, 2, 3, 2, routing=routing) for routing in ("valiant", "minimal"))
    pairs = np.nonzero(~np.eye(12, dtype=bool))
    assert np.array_equal(one.routes(*pairs).links, other.routes(*pairs).links)
    assert "valiant routing (minimal among fewer than 3 groups)" in summary_line(one)
    assert summary_line(build(make, 18, 2, 3, 2, routing="valiant")).split(", up to")[0].endswith("valiant routing")


def test_routers_and_groups_bound_what_leaves_them(make):
    cuts = build(make, 30, 3, 2, 2).cuts()
    assert [family.name for family in cuts.families] == ["gpu", "node", "router", "group"]
    # Five groups: a router has 3 hosts, 1 local and 2 global links; a group 4 global ones.
    assert set(cuts["router"].egress_Bps) == {3 * make.rate_Bps}
    assert set(cuts["group"].egress_Bps) == {4 * make.rate_Bps}
