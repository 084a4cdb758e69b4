"""The graph of a cluster as arrays: builders, hardware catalogue, routing."""

from __future__ import annotations

from s2sim.topology.catalogue import load_shape, shipped_topologies
from s2sim.topology.cluster import Cluster, build_cluster
from s2sim.topology.cuts import CutFamily, Cuts
from s2sim.topology.describe import describe, first_line
from s2sim.topology.fabric import Fabric
from s2sim.topology.hardware import Gpu, list_hardware, load_gpu
from s2sim.topology.routes import Routes
from s2sim.topology.shape import ClusterShape

__all__ = [
    "Cluster",
    "ClusterShape",
    "CutFamily",
    "Cuts",
    "Fabric",
    "Gpu",
    "Routes",
    "build_cluster",
    "describe",
    "first_line",
    "list_hardware",
    "load_gpu",
    "load_shape",
    "shipped_topologies",
]
