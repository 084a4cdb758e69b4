"""The kit against description files and clusters that break its rules."""

import dataclasses

import numpy as np
import pytest

from s2sim.errors import S2SimError
from s2sim.testing import topologies as kit
from s2sim.testing.topologies import check_topology
from s2sim.topology.cluster import PLACEMENTS, Cluster, build_cluster
from s2sim.topology.kinds.tree import TreeLayout
from s2sim.topology.read_file import load_shape

GOOD = """
description = "eight nodes, two spines"
routing = "spray"
[node]
gpus = 1
[nic]
rate = { value = "100Gbps", kind = "datasheet", source = "the data sheet" }
latency = "1us"
[fabric]
kind = "leaf-spine"
hosts_per_leaf = 2
uplinks_per_leaf = 2
nodes = 8
[fabric.link]
latency = "200ns"
"""


@pytest.fixture
def file(tmp_path):
    def write(old="", new=""):
        path = tmp_path / "mine.toml"
        assert old in GOOD
        path.write_text(GOOD.replace(old, new))
        return str(path)

    return write


def test_a_fabric_of_eight_nodes_is_tried_no_larger(file, monkeypatch):
    built = []
    monkeypatch.setattr(
        kit, "build_cluster", lambda *args, **options: built.append(args[1]) or build_cluster(*args, **options)
    )
    check_topology(file())
    assert built == [count for count in (1, 2, 3, 7) for _ in PLACEMENTS]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (', source = "the data sheet"', "", "nic.rate is datasheet and names no source"),
        ("datasheet", "guess", "nic.rate has the kind 'guess'"),
        ("gpus = 1", "gpus = 2", "needs"),
        ('"200ns"', '"200"', "has no unit"),
        ("uplinks_per_leaf = 2", "uplinks_per_leaf = 90000000", "links, more than"),
        ("[node]", "[node", "not valid TOML"),
    ],
)
def test_the_kit_finds_a_bad_file(file, old, new, complaint):
    with pytest.raises(S2SimError, match=complaint) as caught:
        check_topology(file(old, new))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["no-such-topology", "no/such/file.toml"])
def test_the_kit_finds_a_missing_file(name):
    with pytest.raises(S2SimError, match="no"):
        check_topology(name)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [({"source": " "}, "nic.rate of mine is datasheet and names no source"), ({"kind": "guess"}, "has the kind 'gue")],
)
def test_the_kit_finds_a_number_without_source_even_if_the_reader_does_not(file, monkeypatch, change, complaint):
    def careless(path):
        shape = load_shape(path)
        quantities = tuple(
            dataclasses.replace(quantity, **change) if quantity.field == "nic.rate" else quantity
            for quantity in shape.quantities
        )
        return dataclasses.replace(shape, quantities=quantities)

    monkeypatch.setattr(kit, "load_shape", careless)
    with pytest.raises(AssertionError, match=complaint):
        check_topology(file())


class Longer(Cluster):
    def routes(self, src_rank, dst_rank):
        routes = super().routes(src_rank, dst_rank)
        return dataclasses.replace(routes, latency_ps=routes.latency_ps + 1)


class Heavy(Cluster):
    """All of it on each way."""

    def routes(self, src_rank, dst_rank):
        routes = super().routes(src_rank, dst_rank)
        return dataclasses.replace(routes, weights=np.ones(len(routes.weights)))


class Uneven(Cluster):
    """A little more on each way than there is."""

    def routes(self, src_rank, dst_rank):
        routes = super().routes(src_rank, dst_rank)
        return dataclasses.replace(routes, weights=np.where(routes.weights < 1, 0.6, 1.0))


class Weightless(Cluster):
    def routes(self, src_rank, dst_rank):
        routes = super().routes(src_rank, dst_rank)
        return dataclasses.replace(routes, weights=routes.weights * 0)


class Backwards(Cluster):
    def routes(self, src_rank, dst_rank):
        return super().routes(dst_rank, src_rank)


class Stutters(Cluster):
    """The first way crosses its first link twice."""

    def routes(self, src_rank, dst_rank):
        routes = super().routes(src_rank, dst_rank)
        links = routes.links.copy()
        links[1:2] = links[:1]
        return dataclasses.replace(routes, links=links)


class Empty(Cluster):
    def routes(self, src_rank, dst_rank):
        none = np.zeros(0, np.int64)
        routes = super().routes(src_rank, dst_rank)
        return dataclasses.replace(routes, offsets=routes.offsets * 0, links=none, weights=np.zeros(0))


class Cut(Cluster):
    def cuts(self):
        cuts = super().cuts()
        families = (dataclasses.replace(family, ingress_Bps=family.ingress_Bps * 0) for family in cuts.families)
        return dataclasses.replace(cuts, families=tuple(families))


class Gap(Cluster):
    """One more group than there are ranks."""

    def cuts(self):
        cuts = super().cuts()
        families = (
            dataclasses.replace(
                family, egress_Bps=np.append(family.egress_Bps, 1.0), ingress_Bps=np.append(family.ingress_Bps, 1.0)
            )
            for family in cuts.families
        )
        return dataclasses.replace(cuts, families=tuple(families))


class Flat(TreeLayout):
    """Knows nothing of its spines when it is described."""

    def hops(self):
        return 0, 0


class Direct(Cluster):
    def __init__(self, *, layout, **fields):
        super().__init__(
            layout=Flat(**{each.name: getattr(layout, each.name) for each in dataclasses.fields(layout)}), **fields
        )


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Longer, "the way from rank 0 to 1 has a latency that is not the sum"),
        (Heavy, "breaks between two links"),
        (Uneven, "not spread to a whole sum"),
        (Weightless, "crosses a link with nothing"),
        (Backwards, "does not lead from end to end in mine with 2 workers placed linear"),
        (Stutters, "breaks between two links"),
        (Empty, "crosses no link"),
        (Cut, "nothing leads into a gpu"),
        (Gap, "a gpu has no rank in mine with 2 workers placed linear"),
        (Direct, "the way from rank 0 to 2 is longer than the description says"),
    ],
)
def test_the_kit_finds(file, monkeypatch, broken, complaint):
    def build(*args, **options):
        cluster = build_cluster(*args, **options)
        return broken(**{field.name: getattr(cluster, field.name) for field in dataclasses.fields(cluster)})

    monkeypatch.setattr(kit, "build_cluster", build)
    with pytest.raises(AssertionError, match=complaint) as caught:
        check_topology(file())
    assert "\n" not in str(caught.value)


def test_the_kit_finds_two_ranks_on_a_gpu(file, monkeypatch):
    def build(*args, **options):
        cluster = build_cluster(*args, **options)
        return dataclasses.replace(cluster, gpu_of_rank=cluster.gpu_of_rank * 0)

    monkeypatch.setattr(kit, "build_cluster", build)
    with pytest.raises(AssertionError, match="not one a GPU in mine with 2 workers"):
        check_topology(file())
