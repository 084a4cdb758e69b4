"""Reading cluster files: what is refused and how, overrides, defaults, provenance of shipped numbers."""

import pytest

from s2sim.errors import S2SimWarning, TopologyError, UnitError, UnknownNameError
from s2sim.topology.catalogue import list_topologies, load_shape
from s2sim.topology.cluster import build_cluster
from s2sim.topology.hardware import load_gpu

NVLINK = '[nvlink]\nrate = "240GB/s"'
SWITCH = 'kind = "single-switch"'


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (("gpus = 1", "gpu = 1"), TopologyError, "unknown field 'node.gpu'.*did you mean 'node.gpus'"),
        (("gpus = 1", "gpus = 0"), TopologyError, "mine.toml: node.gpus = 0 must be at least 1"),
        (("gpus = 1", "gpus = -2"), TopologyError, "node.gpus = -2"),
        (("gpus = 1", "gpus = 1.5"), TopologyError, "node.gpus = 1.5 is not a whole number"),
        (("gpus = 1", "gpus = true"), TopologyError, "node.gpus = True is not a whole number"),
        (("gpus = 1", ""), TopologyError, "node.gpus is missing"),
        (("gpus = 1", "gpus = 2"), TopologyError, r"needs \[nvlink\] or \[pcie\]"),
        (("gpus = 1", "gpus = 1\n[nvlnk]\nrate = '1GB/s'"), TopologyError, "'nvlnk'"),
        (("[nic]", "[nic]\ncount = 2"), TopologyError, "nic.count = 2 for node.gpus = 1"),
        (("[nic]", "[nic]\nrate = 100"), UnitError, "mine.toml: nic.rate: 100 is not a rate"),
        (("[nic]", "[nic]\nrate = '100'"), UnitError, "nic.rate: rate '100' has no unit"),
        (("[nic]", "[nic]\nrate = '5us'"), UnitError, "nic.rate: rate '5us' has the unit 'us'"),
        (("[nic]", "[nic]\nrate = '0Gbps'"), UnitError, "nic.rate: rate '0Gbps' is zero"),
        (("[nic]", "[nic]\nlatency = '-1us'"), UnitError, "nic.latency: time '-1us' is negative"),
        (("[nic]", "[nic]\nrate = {value = '1Gbps', kind = 'guess'}"), TopologyError, "kind 'guess'.*datasheet"),
        (("[nic]", "[nic]\nrate = {value = '1Gbps', kind = 'measured'}"), TopologyError, "names no source"),
        (("[nic]", "[nic]\nrate = {value = '1Gbps', knd = 'user'}"), TopologyError, "unknown key 'knd'.*'kind'"),
        (("[nic]", "[nic]\nrate = {kind = 'user'}"), TopologyError, "without a value"),
        (('rate = "50GiB/s"', ""), TopologyError, "nic.rate is missing"),
        ((SWITCH, "kind = 'fattree'"), TopologyError, "fabric.kind = 'fattree' is unknown.*'fat-tree'"),
        ((SWITCH, ""), TopologyError, "fabric.kind is missing"),
        ((SWITCH, SWITCH + "\nuplinks_per_leaf = 2"), TopologyError, "uplinks_per_leaf has no effect on a single-swi"),
        ((SWITCH, "kind = 'ring'\nhosts_per_leaf = 2"), TopologyError, "hosts_per_leaf has no effect on a ring"),
        ((SWITCH, "kind = 'fat-tree'\nleaves_per_pod = 2"), TopologyError, "no effect on a fat-tree of 2 levels"),
        ((SWITCH, "kind = 'fat-tree'\nlevels = 4"), TopologyError, "fabric.levels = 4 does not fit.*2 or 3"),
        ((SWITCH, "kind = 'ring'\nlevels = 2"), TopologyError, "does not fit a ring: it has none"),
        ((SWITCH, "kind = 'fat-tree'\nhosts_per_leaf = 0"), TopologyError, "hosts_per_leaf = 0"),
        ((SWITCH, "kind = "), TopologyError, "not valid TOML"),
    ],
)
def test_refused_files(make, change, error, message):
    text = make.toml(SWITCH)
    assert change[0] in text
    with pytest.raises(error, match=message) as caught:
        make.shape(text.replace(*change, 1))
    assert "\n" not in str(caught.value)


def test_a_node_is_a_table(make):
    with pytest.raises(TopologyError, match=r"unknown field 'node'"):
        make.shape(make.toml(SWITCH).replace("[node]\ngpus = 1", "node = 3"))


def test_routing_without_a_choice_warns(make):
    with pytest.warns(S2SimWarning, match=r"routing has no effect on a single-switch"):
        make.shape(make.toml(SWITCH, top='routing = "ecmp"'))
    with pytest.raises(TopologyError, match=r"routing = 'ecpm' is unknown.*'ecmp'"):
        make.shape(make.tree(2, 2, routing="ecpm"))


def test_missing_files_and_names(tmp_path):
    with pytest.raises(UnknownNameError, match=r"'fat-tre'.*did you mean 'fat-tree'"):
        load_shape("fat-tre")
    with pytest.raises(UnknownNameError, match=r"hardware"):
        load_shape("hardware")
    with pytest.raises(TopologyError, match=r"no file .*nowhere.toml"):
        load_shape(str(tmp_path / "nowhere.toml"))
    with pytest.raises(TopologyError, match=r"is a directory"):
        load_shape(f"{tmp_path}/")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TopologyError, match=r"cannot be read"):
        load_shape(str(tmp_path / "binary.toml"))


def test_overrides():
    shape = load_shape("fat-tree", ["nic.rate=400Gbps", "fabric.hosts_per_leaf=8", "routing=spray", "nic.count=1"])
    assert shape.nic.rate_Bps == shape.link.rate_Bps == shape.host_link.rate_Bps == 50e9
    assert (shape.hosts_per_leaf, shape.routing, shape.nics_per_node) == (8, "spray", 1)
    assert {q.field: q.kind for q in shape.quantities}["nic.rate"] == "user"
    assert load_shape("fat-tree", ["nic.rate=1Gbps", "nic.rate=2Gbps"]).nic.rate_Bps == 0.25e9
    with pytest.raises(TopologyError, match=r"unknown field 'nic.speed'.*nic.rate"):
        load_shape("fat-tree", ["nic.speed=1Gbps"])
    with pytest.raises(TopologyError, match=r"unknown field 'nic'"):
        load_shape("fat-tree", ["nic=1Gbps"])
    with pytest.raises(UnitError, match=r"nic.rate: rate '100' has no unit"):
        load_shape("fat-tree", ["nic.rate=100"])
    with pytest.raises(TopologyError, match=r"'nic.rate' is not field=value"):
        load_shape("fat-tree", ["nic.rate"])
    for value in ("four", "0", "-1", "2.5"):
        with pytest.raises(TopologyError, match=r"node.gpus"):
            load_shape("fat-tree", [f"node.gpus={value}"])


def test_one_rate_stands_for_both(make):
    only_link = make.shape(make.toml(SWITCH))
    only_nic = make.shape(make.toml(SWITCH, nic='rate = "10Gbps"', link=""))
    both = make.shape(make.toml(SWITCH, nic='rate = "10Gbps"\nlatency = "1us"'))
    assert only_link.nic.rate_Bps == make.rate_Bps
    assert only_nic.link.rate_Bps == 1.25e9
    assert (both.host_link.rate_Bps, both.host_link.latency_ps) == (1.25e9, 1_250_000)


@pytest.mark.parametrize("workers", [0, -1, 2.0, True, "4"])
def test_refused_worker_counts(workers):
    with pytest.raises(TopologyError, match=r"workers were asked for"):
        build_cluster(load_shape("fat-tree"), workers)


def test_nodes_limit(make):
    shape = make.shape(make.toml(SWITCH + "\nnodes = 3", gpus=2, node=NVLINK))
    assert build_cluster(shape, 6).dims.nodes == 3
    with pytest.raises(TopologyError, match=r"7 workers .* holds 6 .3 nodes x 2 GPUs.*raise fabric.nodes"):
        build_cluster(shape, 7)


def test_too_large_a_fabric_is_refused_before_it_is_built(make):
    with pytest.raises(TopologyError, match=r"links, more than"):
        make.cluster(make.tree(2, 10**9), 8)


def test_unknown_placement():
    with pytest.raises(UnknownNameError, match=r"'round_robin'.*'round-robin'"):
        build_cluster(load_shape("ring"), 4, placement="round_robin")


@pytest.mark.parametrize(
    ("levels", "nics", "nodes", "expected"),
    [
        (2, 1, 2, (1, 2)),
        (2, 1, 16, (3, 6)),
        (2, 1, 18, (3, 6)),
        (2, 1, 19, (4, 5)),
        (2, 2, 16, (2, 8)),
        (3, 1, 16, (2, 8)),
    ],
)
def test_smallest_k_ary_tree(make, levels, nics, nodes, expected):
    text = make.toml(f'kind = "fat-tree"\nlevels = {levels}', gpus=nics, node=NVLINK, nic=f"count = {nics}")
    dims = make.cluster(text, nodes * nics).dims
    assert (dims.hosts_per_leaf, dims.leaves) == expected
    assert dims.uplinks_per_leaf == dims.hosts_per_leaf * nics
    if levels == 3:
        # k = 4: 16 hosts, 4 pods of 2 leaves and 2 aggregation switches, 4 cores (Al-Fares et al., figure 3).
        assert (dims.leaves_per_pod, dims.pods, dims.aggregations, dims.cores) == (2, 4, 8, 4)


@pytest.mark.parametrize("name", [name for name, _, _ in list_topologies()])
@pytest.mark.parametrize("workers", [1, 3, 7, 65])
def test_list_topologies_fit_any_number_of_workers(name, workers):
    cluster = build_cluster(load_shape(name), workers)
    dims, shape = cluster.dims, cluster.shape
    assert (dims.nodes - 1) * shape.gpus_per_node < workers <= dims.nodes * shape.gpus_per_node
    assert (dims.leaves - 1) * dims.hosts_per_leaf < dims.nodes <= dims.leaves * dims.hosts_per_leaf
    assert cluster.gpu_of_rank.tolist() == list(range(workers))
    assert shape.name == name
    assert shape.description


def test_every_shipped_number_has_a_kind_and_a_source():
    texts = {"name", "description", "source", "routing", "fabric.kind"}
    names = [name for name, _, _ in list_topologies()]
    assert {"fat-tree", "leaf-spine", "single-switch", "ring", "tcp-10g"} <= set(names)
    for name in names:
        numbers = [quantity for quantity in load_shape(name).quantities if quantity.field not in texts]
        assert numbers
        for quantity in numbers:
            assert quantity.source, f"{name}: {quantity.field}"
    for gpu in ("a100", "rtx-2080"):
        assert all(quantity.source for quantity in load_gpu(gpu).quantities)
    assert all(summary and source for _, summary, source in list_topologies())
