"""Shipped machines and clusters: they run, and are what follows from the rows of indexes that describe them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import s2sim
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import summary_line
from s2sim.topology.fields import shipped_topologies, topology_group
from s2sim.topology.hardware import find_gpu_links, gpu_links
from s2sim.topology.read_file import load_shape
from s2sim.validation.curve import read_folder
from s2sim.validation.curve_machine import machine_shape

from .validation_folder import row, write_folder

MEASURED = Path(__file__).parents[2] / "measured" / "curves"
SMALL = "synthetic:density=0.05,overlap=0.5,rows=200,width=4,dense=100"
NAMES = [name for name in shipped_topologies() if topology_group(name) != "fabrics"]
# What an index calls its system, where that is a shipped cluster.
SYSTEMS = {
    "alps": "alps",
    "aws-p3dn": "aws-p3dn",
    "aws-p4de": "aws-p4de",
    "aws-p5": "aws-p5",
    "coreweave-gb200": "coreweave-gb200",
    "dgx-2": "dgx-2",
    "epyc7542-4090x8": "rtx-4090-8-two-sockets",
    "gcp-a3-high": "gcp-a3-high",
    "gcp-a3-mega": "gcp-a3-mega",
    "gcp-a3-ultra": "gcp-a3-ultra",
    "gcp-a4": "gcp-a4",
    "konnase-v100": "dgx-1-v100",
    "oci-bm-gpu-mi300x-8": "oci-mi300x",
    "polaris": "polaris",
    "snellius": "snellius",
    "superbench-a100": "hgx-a100-8",
    "xe9680-h100-i309": "hgx-h100-8",
}
# GPUs a node, and what else an index would say of clusters of which no public curve is here.
ROWS = {
    "perlmutter": ("A100-SXM4-40GB", 4, 4, 4, 200, "slingshot", "host-bridge"),
    "kestrel": ("H100 SXM5", 4, 4, 2, 200, "slingshot", "host-bridge"),
    "leonardo": ("A100-SXM-64GB", 4, 4, 4, 100, "ib-verbs", "switch"),
    "frontier": ("AMD Instinct MI250X", 8, 8, 4, 200, "slingshot", "switch"),
    "lumi": ("MI250X", 8, 8, 4, 200, "slingshot", "switch"),
    "summit": ("V100-SXM2-16GB", 6, 6, 2, 100, "ib-verbs", "host-bridge"),
    "coreweave-gb200": ("GB200", 4, 72, 4, 400, "none", ""),
    "azure-nd-a100-v4": ("A100-SXM4-40GB", 8, 8, 8, 200, "ib-verbs", "switch"),
    "azure-nd-h100-v5": ("NVIDIA H100 80GB HBM3", 8, 8, 8, 400, "ib-verbs", "switch"),
    "azure-nd-mi300x-v5": ("MI300X", 8, 8, 8, 400, "ib-verbs", "switch"),
    "aws-p4d": ("A100-SXM4-40GB", 8, 8, 4, 100, "efa", "switch"),
    "aws-p5en": ("H200", 8, 8, 16, 200, "efa", "switch"),
    "aws-g5": ("NVIDIA A10G", 8, 0, 1, 100, "efa", "staged"),
    "nebius-h100": ("H100", 8, 8, 8, 400, "ib-verbs", "switch"),
    "lambda-b200": ("B200", 8, 8, 8, 400, "ib-verbs", "switch"),
    "dgx-1-p100": ("Tesla P100-SXM2-16GB", 8, 8, 4, 100, "ib-verbs", "switch"),
    "dgx-a100": ("A100-SXM4-40GB", 8, 8, 8, 200, "ib-verbs", "switch"),
    "dgx-h100": ("H100-80GB-HBM3", 8, 8, 8, 400, "ib-verbs", "switch"),
    "h100-nvl-8": ("NVIDIA H100 NVL", 8, 2, 4, 400, "ib-verbs", "switch"),
    "a100-pcie-8": ("A100-PCIE-80GB", 8, 2, 2, 200, "ib-verbs", "switch"),
    "rtx-3090-2": ("GeForce RTX 3090", 2, 2, 1, 100, "roce", "staged"),
    "dgx-h200": ("H200", 8, 8, 8, 400, "ib-verbs", "switch"),
    "dgx-b200": ("B200", 8, 8, 8, 400, "ib-verbs", "switch"),
    "rtx-4090-8-two-sockets": ("RTX 4090", 8, 0, 1, 100, "roce", "staged"),
}


def assert_same(machine, name):
    """Check that what follows from a row is the shipped node, and its way to others where the row leaves a node."""
    derived, shipped = machine_shape(machine), load_shape(name)
    (one,), (other,) = derived.nodes, shipped.nodes
    if one.transport is None:
        one = replace(one, nics=other.nics, nic=other.nic, transport=other.transport, path=other.path)
    else:
        assert derived.link.latency_ps == shipped.link.latency_ps
    assert one == other
    assert find_gpu_links(machine.gpu_model) is gpu_links()[shipped.gpu]


def whole_rows():
    """Yield the rows of the public index that use whole nodes of a shipped cluster as it is shipped."""
    for curve in read_folder(MEASURED):
        machine = curve.machine
        if machine is None or machine.system not in SYSTEMS:
            continue
        name = SYSTEMS[machine.system]
        node = load_shape(name).nodes[0]
        whole = machine.ranks in (node.gpus, machine.gpus_per_node * machine.nodes) and machine.ranks >= node.gpus
        few = machine.nodes <= 16 and (machine.p2p != "yes" or node.peer_to_peer)
        same_way = machine.ranks <= node.gpus or (machine.transport == node.transport and machine.path)
        if whole and few and same_way and machine.gpus_per_node in (node.gpus, 4):
            yield curve.id, machine, name


@pytest.mark.parametrize(("machine", "name"), [pytest.param(*rest, id=curve) for curve, *rest in whole_rows()])
def test_what_follows_from_a_public_row_is_the_shipped_cluster(machine, name):
    assert_same(machine, name)


def test_public_rows_are_of_many_clusters():
    assert len({name for _, _, name in whole_rows()}) >= 12


def machine_of(name, folder, nodes=2):
    """Return what a row of an index says of so many nodes of a cluster."""
    gpu, gpus, domain, nics, rate, transport, path = ROWS[name]
    cells = {
        "gpu_model": gpu,
        "gpus_per_node": str(gpus),
        "nodes": str(nodes),
        "ranks": str(nodes * gpus),
        "nics_per_node": str(nics),
        "nic_rate_gbps": str(rate),
        "transport": transport,
        "path": path,
        "nvlink_domain_gpus": str(domain),
        "p2p": "yes" if domain else "no",
    }
    (curve,) = read_folder(write_folder(folder / "one", (row(**cells), [(1024, 1)])))
    return curve.machine


@pytest.mark.parametrize("name", ROWS)
def test_what_follows_from_its_row_is_the_shipped_cluster(name, tmp_path):
    assert_same(machine_of(name, tmp_path), name)


@pytest.mark.parametrize("name", ["perlmutter", "azure-nd-h100-v5", "aws-p5en"])
def test_the_longest_way_between_many_nodes_is_that_of_the_row(name, tmp_path):
    machine = machine_of(name, tmp_path, nodes=40)
    last = machine.ranks - 1
    longest_ps = [
        int(build_cluster(shape, machine.ranks).routes(np.array([0]), np.array([last])).latency_ps[0])
        for shape in (machine_shape(machine), load_shape(name))
    ]
    assert longest_ps[0] == longest_ps[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_machine_and_cluster_runs(name):
    result = s2sim.run(name, workers=[1, 3, 8, 64], reducers=["union"], trace=SMALL, break_even=False)
    assert [row.workers for row in result.rows if row.reducer == "union"] == [1, 3, 8, 64]
    assert all(row.time_s.total >= row.lower_bound_s >= 0 for row in result.rows)
    # The largest of these does not fit into one node but a rack.
    assert result.rows[-1].time_s.communication > 0


@pytest.mark.parametrize("name", NAMES)
def test_shipped_machines_have_latencies_of_hardware_alone_and_say_what_touched_them(name):
    shape = load_shape(name)
    (node,) = shape.nodes
    assert node.transport is not None
    assert shape.library in ("nccl", "rccl")
    assert node.nic.latency_ps <= 1_000_000
    touched = [item for item in shape.quantities if item.kind == "measured"]
    assert {item.field for item in touched} <= {"pcie.memory.rate", "nic.count"}
    assert ("no measured curve touched it" in shape.source) == (not touched)
    # What a curve told is said with its name, so that nothing is judged by it.
    curves = shape.source.rpartition(" is what ")[2].removesuffix(" told")
    assert all(item.source.endswith(curves) for item in touched)


def test_what_no_document_backs_is_said_with_the_cluster():
    """Fields of interfaces and fabric whose source is an assumption, unless they are given."""
    line = summary_line(build_cluster(load_shape("kestrel"), 16))
    assert line.endswith("; assumed: nic.path, fabric.kind")
    given = load_shape("kestrel", ["nic.path=switch"])
    assert summary_line(build_cluster(given, 16)).endswith("; assumed: fabric.kind")
    assert "assumed" not in summary_line(build_cluster(load_shape("fat-tree"), 16))
