"""Reading cluster files: what is refused and how, overrides, defaults, provenance of shipped numbers."""

from importlib.metadata import EntryPoint

import pytest

from s2sim.errors import S2SimWarning, TopologyError, UnitError, UnknownNameError
from s2sim.registry import Registry
from s2sim.topology.cluster import build_cluster
from s2sim.topology.hardware import load_gpu
from s2sim.topology.read_file import list_topologies, load_shape

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
    assert shape.nic.rate_Bps == shape.link.rate_Bps == 50e9
    assert (shape.hosts_per_leaf, shape.routing, shape.lanes_per_node) == (8, "spray", 1)
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
    fabric = build_cluster(both, 2).fabric
    links = fabric.blocks["nic.out"].part
    assert (set(fabric.rate_Bps[links]), set(fabric.latency_ps[links])) == ({1.25e9}, {1_250_000})


@pytest.mark.parametrize("workers", [0, -1, 2.0, True, "4"])
def test_refused_worker_counts(workers):
    with pytest.raises(TopologyError, match=r"workers were asked for"):
        build_cluster(load_shape("fat-tree"), workers)


def test_nodes_limit(make):
    shape = make.shape(make.toml(SWITCH + "\nnodes = 3", gpus=2, node=NVLINK))
    assert build_cluster(shape, 6).layout.nodes == 3
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
    dims = make.cluster(text, nodes * nics).layout
    assert (dims.hosts_per_leaf, dims.leaves) == expected
    assert dims.uplinks_per_leaf == dims.hosts_per_leaf * nics
    if levels == 3:
        # k = 4: 16 hosts, 4 pods of 2 leaves and 2 aggregation switches, 4 cores (Al-Fares et al., figure 3).
        assert (dims.leaves_per_pod, dims.pods, dims.aggregations, dims.cores) == (2, 4, 8, 4)


@pytest.mark.parametrize("name", [name for name, _, _ in list_topologies()])
def test_list_topologies_fit_any_number_of_workers(name):
    shape = load_shape(name)
    assert shape.name == name
    assert shape.description
    for workers in (1, 3, 7, 65):
        cluster = build_cluster(shape, workers)
        dims = cluster.layout
        assert (dims.nodes - 1) * shape.gpus_per_node < workers <= dims.nodes * shape.gpus_per_node
        assert (dims.leaves - 1) * dims.hosts_per_leaf < dims.nodes <= dims.leaves * dims.hosts_per_leaf
        assert cluster.gpu_of_rank.tolist() == list(range(workers))


def test_every_shipped_number_has_a_kind_and_a_source():
    texts = {"name", "description", "source", "routing", "fabric.kind"}
    names = [name for name, _, _ in list_topologies()]
    assert {"fat-tree", "leaf-spine", "single-switch", "ring", "tcp-10g"} <= set(names)
    assert {"torus", "dragonfly", "rail-optimised"} <= set(names)
    for name in names:
        numbers = [quantity for quantity in load_shape(name).quantities if quantity.field not in texts]
        assert numbers
        for quantity in numbers:
            assert quantity.source, f"{name}: {quantity.field}"
    for gpu in ("a100", "rtx-2080"):
        assert all(quantity.source for quantity in load_gpu(gpu).quantities)
    assert all(summary and source for _, summary, source in list_topologies())


@pytest.mark.parametrize("value", ["1" * 400, "1" * 5000, "-" + "1" * 400, "1000000001", "1e400", "x" * 400])
def test_a_count_beyond_reason_is_told_in_a_short_line(make, value):
    with pytest.raises(
        TopologyError, match=r"node\.gpus = .*(out of range: at most 1000000000|whole number)"
    ) as caught:
        make.shape(make.toml(SWITCH, node=NVLINK), [f"node.gpus={value}"])
    assert len(str(caught.value)) < 160


@pytest.mark.parametrize(
    ("override", "message"),
    [("nic.latency=1e30s", "at most 1e6 s"), ("nic.rate=1e400Gbps", "at most 1e18 B/s"), ("nic.rate=1bps", "1 B/s")],
)
def test_a_quantity_out_of_range_names_field_and_limit(override, message):
    with pytest.raises(UnitError, match=message) as caught:
        load_shape("fat-tree", [override])
    assert str(caught.value).startswith(f"fat-tree.toml: {override.partition('=')[0]}: ")


@pytest.mark.parametrize("value", ["1" * 5000, "[" * 5000])
def test_a_file_that_no_parser_takes_is_told_in_a_short_line(make, value):
    with pytest.raises(TopologyError, match=r"mine\.toml is not (a description|valid TOML)") as caught:
        make.shape(make.toml(SWITCH).replace("gpus = 1", f"gpus = {value}"))
    assert "\n" not in str(caught.value)


def test_a_directory_or_a_file_in_place_of_a_name_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("")
    (tmp_path / "fat-tree").mkdir()
    for name in (".", "..", "mine"):
        with pytest.raises(TopologyError, match="is a path and not a name: give a TOML file"):
            load_shape(name)
    for path in ("./", "./fat-tree", tmp_path):
        with pytest.raises(TopologyError, match="is a directory: give a TOML file in it"):
            load_shape(path)
    with pytest.raises(TopologyError, match="there is no file ~nobody-of-this-name/x"):
        load_shape("~nobody-of-this-name/x")
    assert load_shape("fat-tree").name == "fat-tree"


def test_installed_topologies_are_listed_and_found(tmp_path, monkeypatch):
    (tmp_path / "rack.toml").write_text(
        'description = "our rack"\nsource = "our cable list"\n[node]\ngpus = 1\n[nic]\nrate = "40Gbps"\n[fabric]\n'
        'kind = "single-switch"'
    )
    (tmp_path / "plugin_with_a_rack.py").write_text(f"RACK = {str(tmp_path / 'rack.toml')!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("rack", "plugin_with_a_rack:RACK", "s2sim.topologies")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda *, group: [point] if group == point.group else [])
    monkeypatch.setattr("s2sim.topology.read_file._PLUGINS", Registry("topology", "s2sim.topologies", {}))
    assert list_topologies()[-1] == ("rack", "our rack", "our cable list")
    assert load_shape("rack").nic.rate_Bps == 5e9
    with pytest.raises(UnknownNameError, match="did you mean 'rack'"):
        load_shape("rak")
