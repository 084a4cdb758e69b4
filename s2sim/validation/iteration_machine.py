"""The machine, the tensors and the compute times of a measured iteration's row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from s2sim.arrays import Ints
from s2sim.errors import S2SimError, suggest_nearest
from s2sim.gradients.models import load_model, model_names
from s2sim.profiles.compute import computed_profile
from s2sim.profiles.profile import ComputeProfile, TensorTiming
from s2sim.profiles.read import load_profile, open_profile, profile_names
from s2sim.simulation.device import Compute
from s2sim.topology.hardware import load_gpu
from s2sim.validation.curve import MeasuredMachine
from s2sim.validation.implementations import normalise_name
from s2sim.validation.iteration_result import MeasuredIterationRow

_NONE = "none"
# Running reducers on more takes longer than people wait for a row.
_MAX_WORKERS = 2**9
# Transports as others call them.
_GPU_NAMES = {
    "ib": "ib-verbs",
    "infiniband": "ib-verbs",
    "rdma": "ib-verbs",
    "verbs": "ib-verbs",
    "ethernet": "tcp",
    "socket": "tcp",
    "sockets": "tcp",
    "ipoib": "tcp",
}
# Cards of which the driver does not let one reach another's memory over PCIe, nor an interface reach it.
_NO_PEERS = re.compile(r"\b(rtx )?[2345]0[5-9]0\b", re.IGNORECASE)
# Cards that came before Skylake: on processors up to Broadwell NCCL lets cards reach each other below a PCIe switch
# alone, and on later ones below one processor (ncclTopoCheckP2p in src/graph/paths.cc, NCCL v2.7 to v2.30).
_BEFORE_SKYLAKE = re.compile(r"\b([km]\d0m?|p100|p40|p4|gtx|1080)\b", re.IGNORECASE)
# Most of these that NVLink joins are on boards of eight, as in a DGX-1 and in clouds, whichever part of it is used.
_CUBE_MESH, _ON_CUBE_MESH = 8, re.compile(r"\b(v100|p100)\b", re.IGNORECASE)
# Servers of so many cards have two processors, which share them; of more, rings pass from one to the other.
_TWO_SOCKETS = 4
# Interfaces up to this rate are Ethernet's, over the kernel's TCP if the row states no transport.
_ETHERNET_GBPS = 25
_NOTE_PATTERN = re.compile(r"\([^)]*\)")
_PS_PER_MS = 10**9
# Of fully connected layers, to what a row says that its model has: where it is more, all layers differ.
_MAX_GROWTH = 1.1
# Of models of which only the size is known.
_USUAL_TENSORS, _USUAL_WIDTH = 100, 256
_MAX_TENSORS = 2000
# Share of the peak that layers reach of which nobody measured any; only how they share out a row's time comes from it,
# where that says what all take.
_EFFICIENCY = 0.5


def row_machine(row: MeasuredIterationRow) -> MeasuredMachine:
    """Return the machine of a row; `S2SimError` where it does not say enough."""
    gpus = min(row.gpus_per_node, row.workers)
    if row.workers > row.nodes * row.gpus_per_node:
        raise S2SimError(f"{row.workers} workers do not fit on {row.nodes} nodes of {row.gpus_per_node} GPUs")
    if row.workers > _MAX_WORKERS:
        raise S2SimError(f"{row.workers} workers are more than {_MAX_WORKERS}, which takes too long")
    several = row.workers > gpus
    able = _NO_PEERS.search(row.gpu) is None
    transport = _transport(row) if several else _NONE
    inside = row.intra_interconnect.lower()
    two_sockets = gpus >= _TWO_SOCKETS and "pcie" in inside and "socket" not in inside
    on_cube_mesh = "nvlink" in inside and "no nvlink" not in inside and _ON_CUBE_MESH.search(row.gpu) is not None
    said_to_reach = "p2p" in inside or "switch" in inside or "pcie" not in inside
    reach = said_to_reach or (_BEFORE_SKYLAKE.search(row.gpu) is None and gpus <= _TWO_SOCKETS)
    return MeasuredMachine(
        id=row.id,
        gpu_model=_NOTE_PATTERN.sub("", row.gpu).strip(),
        gpus_per_node=gpus,
        nodes=-(-row.workers // gpus),
        ranks=row.workers,
        intra_interconnect=f"{row.intra_interconnect}{', two sockets' * two_sockets}",
        nics_per_node=1 if several else 0,
        nic_rate_gbps=(row.nic_rate_gbps or 0.0) if several else 0.0,
        collective="all_reduce",
        outlier_sizes_bytes=(),
        quality="good",
        system=row.system or row.source,
        launch="gpu",
        algorithm="",
        # None for what the catalogue says.
        nvlink_domain_gpus=_CUBE_MESH if on_cube_mesh and 1 < gpus <= _CUBE_MESH else None,
        transport=transport,
        doubt="",
        # The kernel's sockets read and write host memory.
        path="staged" if several and (transport == "tcp" or not able) else "",
        p2p="" if able and reach else "no",
    )


def _transport(row: MeasuredIterationRow) -> str:
    given = row.transport.lower()
    if given not in ("", _NONE):
        return _GPU_NAMES.get(given, given)
    if row.nic_rate_gbps is None:
        raise S2SimError("several nodes, and neither transport nor nic_rate_gbps is given")
    return "tcp" if row.nic_rate_gbps <= _ETHERNET_GBPS else "ib-verbs"


def row_profile(row: MeasuredIterationRow, gpu: str) -> ComputeProfile:
    """Return the compute profile of a row's model on its GPU, with as many parameters as that says.

    A model that is not known, of which a row says what it computes, has layers that are alike; `S2SimError`
    where it does not say enough.
    """
    names = dict.fromkeys([*profile_names(), *model_names()])
    known = {normalise_name(name): name for name in names}
    base = row.model.partition("/")[0]
    # After a slash: the data set.
    name = known.get(normalise_name(row.model), known.get(normalise_name(base)))
    if name is None:
        if row.n_params is None or row.computing_ms is None:
            known_as = f"the model {row.model!r} is not known{suggest_nearest(base, names)}"
            raise S2SimError(f"{known_as}, and n_params or times of compute are missing")
        count = row.n_tensors or _USUAL_TENSORS
        if count > _MAX_TENSORS:
            raise S2SimError(f"{count} tensors are more than {_MAX_TENSORS}, which takes too long")
        shape = (max(1, round(row.n_params / count / _USUAL_WIDTH)), _USUAL_WIDTH)
        one = TensorTiming("", shape, sparse=False, forward_ps=1, backward_ps=2)
        tensors = tuple(replace(one, name=f"layer{number}") for number in range(count))
        return ComputeProfile(
            row.model, row.model, gpu, row.batch_per_gpu or 1, "sample", tensors, 0, 0.0, "user", "the row"
        )
    if name in profile_names():
        file = open_profile(name).file
        batch = row.batch_per_gpu or int(file.batch.value)
        profile = load_profile(f"{name}:precision={file.precision}", gpu=gpu, batch=batch)
    else:
        profile = computed_profile(load_model(name), load_gpu(gpu), row.batch_per_gpu or 1, _EFFICIENCY)
    return replace(profile, tensors=_scale_parameters(profile.tensors, row.n_params))


def row_compute(row: MeasuredIterationRow, profile: ComputeProfile) -> Compute:
    """Return a row's compute: its stated times, spread over layers as in its profile, or the profile's times."""
    forward_ps, backward_ps, optimizer_ps = profile.forward_ps, profile.backward_ps, profile.optimizer_ps
    if row.computing_ms is not None:
        whole_ps = forward_ps + backward_ps
        forward_ps = round(row.computing_ms * _PS_PER_MS * forward_ps / whole_ps)
        backward_ps = round(row.computing_ms * _PS_PER_MS) - forward_ps
        optimizer_ps = round(row.step_ms * _PS_PER_MS)
    if row.forward_ms is not None and row.backward_ms is not None:
        forward_ps, backward_ps = round(row.forward_ms * _PS_PER_MS), round(row.backward_ms * _PS_PER_MS)
    return Compute(
        forward_ps=_spread([tensor.forward_ps for tensor in profile.tensors], forward_ps),
        backward_ps=_spread([tensor.backward_ps for tensor in profile.tensors], backward_ps),
        optimizer_ps=optimizer_ps,
        memory_bound=profile.memory_bound,
    )


def _scale_parameters(tensors: Sequence[TensorTiming], parameters: int | None) -> tuple[TensorTiming, ...]:
    """Return tensors scaled to a total of ``parameters``.

    Models for other data differ in their fully connected layers, so that these matrices take the difference; where they
    cannot, all tensors do.
    """
    counted = sum(tensor.size for tensor in tensors)
    if parameters is None or parameters == counted:
        return tuple(tensors)
    matrices = sum(tensor.size for tensor in tensors if len(tensor.shape) == 2)
    left = parameters - (counted - matrices)
    matrices_alone = 0 < left <= _MAX_GROWTH * matrices
    share = left / matrices if matrices_alone else parameters / counted
    return tuple(
        tensor
        if matrices_alone and len(tensor.shape) != 2
        else replace(tensor, shape=(max(1, round(tensor.shape[0] * share)), *tensor.shape[1:]))
        for tensor in tensors
    )


def _spread(weights: Sequence[int], whole_ps: int) -> Ints:
    """Return picoseconds in proportion to weights that sum to the whole, int64 of shape (t,)."""
    ends = np.cumsum(np.asarray(weights, np.float64))
    found: Ints = np.diff(np.rint(ends / ends[-1] * whole_ps).astype(np.int64), prepend=0)
    return found
