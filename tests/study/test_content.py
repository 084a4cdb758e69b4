"""The hash of a spec: the same however it is written, another wherever another number may come out."""

import json
import shutil

import pytest

from s2sim.errors import OptionError
from s2sim.experiment.scenario.content_hash import make_provenance
from s2sim.experiment.scenario.reducers import resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.files import data_directory
from s2sim.traffic.collective_run import collective_result, plan_collective, run_collective
from s2sim.traffic.flows import simulate_transfers
from s2sim.traffic.spec import CollectiveSpec, FlowsSpec

SMALL = "synthetic:density=0.05,overlap=0.5,rows=600,width=4"
BASE = {
    "workers": (4, 16),
    "reducers": ("dense", "s2:rows=3,cells=2", "union"),
    "trace": SMALL,
    "overrides": ("nic.rate=100Gbps", "nic.latency=2us"),
    "library": "nccl:or=owners",
    "collective": "ring:chunks=4,release=sent",
    "compute": "120ms",
    "faults": ("slow-link:link=node0.nic0.out,factor=0.5,at=1ms", "slow-rank:rank=1,factor=2"),
}


def sha256(topology="fat-tree", **changes):
    spec = RunSpec(topology, **(BASE | changes))
    return make_provenance(spec, resolve_run(spec), None)["spec_sha256"]


@pytest.mark.parametrize(
    "changes",
    [
        {"overrides": ("nic.latency=2000ns", "nic.rate=12.5GB/s")},
        {"reducers": ("union:layers=sparse", "s2:cells=2.0,rows=3")},
        {"workers": (16, 4)},
        {"trace": "synthetic:width=4,rows=600,density=5e-2"},
        {"library": "nccl:gather=pad,or=owners"},
        {"collective": "ring:release=sent,chunks=4"},
        {"compute": "0.12s"},
        {"faults": ("slow-rank:factor=2.0,rank=1", "slow-link:factor=0.5,at=1000us,link=node0.nic0.out")},
    ],
)
def test_spelling_and_order_do_not_count(changes):
    assert sha256(**changes) == sha256()


def test_the_content_of_a_file_counts_and_not_its_path(tmp_path):
    path = tmp_path / "mine.toml"
    shutil.copy(data_directory("topologies") / "fat-tree.toml", path)
    assert sha256(str(path)) == sha256()
    path.write_text(f"# of my own\n{path.read_text()}".replace('description = "', 'description = "mine: '))
    assert sha256(str(path)) == sha256()
    text = path.read_text()
    path.write_text(text.replace('kind = "fat-tree"', 'kind = "leaf-spine"'))
    assert sha256(str(path)) != sha256()


def test_a_placement_counts_by_where_ranks_run(tmp_path):
    path = tmp_path / "places.txt"
    path.write_text("\n".join(map(str, range(4))))
    other = tmp_path / "others.txt"
    other.write_text("# the same\n0 0\n0 1\n0 2\n0 3\n")
    swapped = tmp_path / "swapped.txt"
    swapped.write_text("1\n0\n2\n3\n")
    hashes = [sha256(workers=(4,), placement=str(each), faults=()) for each in (path, other, swapped)]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    "changes",
    [
        {"overrides": ("nic.rate=100Gbps", "nic.latency=3us")},
        {"overrides": ("nic.rate=100Gbps", "nic.latency=2us", "fabric.link.rate=100Gbps")},
        {"reducers": ("dense", "s2:rows=3,cells=4", "union")},
        {"reducers": ("dense", "s2:rows=3,cells=2,warm=true", "union")},
        {"workers": (4,)},
        {"trace": f"{SMALL},steps=2"},
        {"library": "nccl"},
        {"collective": "ring:chunks=4"},
        {"compute": None},
        {"faults": BASE["faults"][:1]},
        {"faults": (*BASE["faults"], "jitter:latency=1us")},
        {"seed": 1},
        {"gpu": "rtx-2080"},
        {"max_error": 0.5},
        {"placement": "round-robin"},
        {"scale_to": "1M"},
        {"model": "ncf"},
    ],
)
def test_whatever_changes_a_number_counts(changes):
    assert sha256(**changes) != sha256()


def collective(**changes):
    asked = {"workers": 8, "size_bytes": 2**20, "overrides": ("nic.rate=100Gbps",)} | changes
    return run_collective("all_reduce", asked.pop("topology", "fat-tree"), **asked)


def test_a_collective_has_a_hash_and_runs_again():
    result = collective(algorithm="ring:chunks=4,release=sent")
    again = collective(algorithm="ring:release=sent,chunks=4", overrides=["nic.rate=12.5GB/s"])
    assert again.spec_sha256 == result.spec_sha256
    for changes in ({"size_bytes": 2**21}, {"algorithm": "ring"}, {"network": "packet"}, {"workers": 9}):
        assert collective(**changes).spec_sha256 != result.spec_sha256
    saved = json.loads(json.dumps(result.to_json()))
    rerun = collective_result(plan_collective(CollectiveSpec.from_json(saved, "it")))
    assert json.loads(json.dumps(rerun.to_json())) == saved


def test_flows_count_by_what_is_sent(tmp_path):
    texts = (
        "start_s,src,dst,bytes\n0,0,4,1e6\n",
        "start_s, src, dst, bytes\n0.0,0,4,1000000\n",
        "start_s,src,dst,bytes\n",
    )
    hashes = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.csv"
        path.write_text(text)
        result = simulate_transfers(FlowsSpec("fat-tree", file=str(path), workers=8))
        hashes.append(result.spec_sha256)
        again = FlowsSpec.from_json(json.loads(json.dumps(result.to_json())), "it")
        assert simulate_transfers(again).to_json() == result.to_json()
    assert hashes[0] == hashes[1] != hashes[2]
    with pytest.raises(OptionError, match="names no file"):
        simulate_transfers(FlowsSpec("fat-tree"))
