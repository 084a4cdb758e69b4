"""Cluster descriptions that come with s2sim, and files that extend them."""

import pytest

from s2sim.errors import TopologyError, UnknownNameError
from s2sim.topology.fields import GROUPS, shipped_topologies, topology_group
from s2sim.topology.read_file import list_topologies, load_shape


def test_every_kind_of_description_is_found_by_name():
    found = {group: [name for name in shipped_topologies() if topology_group(name) == group] for group in GROUPS}
    assert "fat-tree" in found["fabrics"]
    assert {"dgx-1-v100", "dgx-2", "dgx-h200", "gh200-4", "mi300x-8", "nvl72"} <= set(found["machines"])
    assert {"perlmutter", "polaris", "alps", "aws-p5", "gcp-a3-mega"} <= set(found["clusters"])
    assert topology_group("hardware") is topology_group("mine") is None
    names = [name for name, _, _ in list_topologies()]
    assert len(names) == len(set(names)) == sum(map(len, found.values()))


def test_a_file_has_what_it_leaves_out_from_the_one_that_it_extends(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = "hgx-a100-8"\n[nic]\ncount = 2\n')
    shape, base = load_shape(path), load_shape("hgx-a100-8")
    assert (shape.name, shape.description, shape.source) == ("mine", "", "")
    assert (shape.gpu, shape.library, shape.link) == (base.gpu, base.library, base.link)
    (node,), (other,) = shape.nodes, base.nodes
    assert (node.nics, node.nvlink, node.nic) == (2, other.nvlink, other.nic)
    of = {item.field: item for item in shape.quantities}
    assert of["nvlink.rate"].source == {item.field: item for item in base.quantities}["nvlink.rate"].source
    assert load_shape(path, ["nic.count=4"]).nodes[0].nics == 4


def test_kinds_of_nodes_are_described_together(tmp_path):
    path, other = tmp_path / "mine.toml", tmp_path / "other.toml"
    path.write_text('extends = "hgx-a100-8"\n[[nodes]]\ncount = 1\n[[nodes]]\nnic.count = 4\n')
    first, second = load_shape(path).nodes
    assert (first.gpus, first.nics, second.nics) == (8, 8, 4)
    assert load_shape(path, ["nodes.1.nic.count=2"]).nodes[1].nics == 2
    other.write_text('extends = "./mine.toml"\n')
    with pytest.raises(UnknownNameError, match=r"unknown topology './mine.toml'"):
        load_shape(other)


def test_what_cannot_be_extended_is_told(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = "hgx-a100"\n')
    with pytest.raises(UnknownNameError, match=r"'hgx-a100'.*did you mean 'hgx-a100-[48]'"):
        load_shape(path)
    path.write_text("extends = 3\n")
    with pytest.raises(TopologyError, match=r"mine.toml: extends = 3 is not a text"):
        load_shape(path)
    path.write_text('extends = "hgx-a100-8"\n[fabric]\nhosts_per_leaf = 3\n')
    with pytest.raises(TopologyError, match=r"mine.toml: fabric.hosts_per_leaf has no effect on a single-switch"):
        load_shape(path)
