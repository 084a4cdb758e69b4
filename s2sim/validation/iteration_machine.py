"""What a measured iteration's row stands for in s2sim: reducer and kernels, machine, tensors and compute times.

A paper's reducer and the code that was measured are at times not the same: code that frameworks run operation by
operation passes over the whole array in each, and starts several kernels a tensor from a loop of the host.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from math import isfinite, nan

import numpy as np

from s2sim.arrays import Ints
from s2sim.errors import S2SimError, suggest_nearest
from s2sim.experiment import codec_costs
from s2sim.files import data_directory, read_table
from s2sim.gradients.models import load_model, model_names
from s2sim.libraries.constants import Version, read_version
from s2sim.libraries.tuner import newest_version
from s2sim.profiles.compute import computed_profile
from s2sim.profiles.profile import ComputeProfile, TensorTiming
from s2sim.profiles.read import load_profile, open_profile, profile_names
from s2sim.reducers.registry import REDUCERS, reducer_names, resolved_options
from s2sim.simulation.device import Compute
from s2sim.topology.hardware import load_gpu
from s2sim.validation.curve import MeasuredMachine
from s2sim.validation.harness import normalise_name
from s2sim.validation.iteration_result import MeasuredIterationRow, parse_params

# Shortest name of a reducer that other names may begin with.
_MIN_LETTERS = 4
# Names of the kept share in published rows, and its value if they state none.
_COUNTS = ("k", "r", "ratio", "density", "compression", "compress_ratio", "compression_ratio")
_USUAL_DENSITY = 0.01

PACKING_OPERATIONS = 9
"""Operations a tensor where gradients are copied into one buffer and back: a slice, a copy, a view and a sum each way
(vineeths96/Gradient-Compression, trainer.py and reducer.py)."""

CALL_OPERATIONS = 10
"""What a framework's call of a collective takes of its host: Python, checks, a work object, events and waits of
streams; 0.14 ms for a few kilobytes over NVLink (vineeths96/Gradient-Compression, with two waits of the host)."""


def implementation_of(row: MeasuredIterationRow) -> codec_costs.Implementation:
    """Return the implementation that represents a row's reducer; `S2SimError` if there is none.

    What no code was read of is the registry's reducer of that name. A name with something behind it stands for the
    longest that it begins with.
    """
    read = codec_costs.implementations()
    found = {normalise_name(name): each for name, each in read.items()}
    registered = {normalise_name(name): codec_costs.usual_implementation(name) for name in reducer_names()}
    found = registered | found | {alias: each for each in read.values() for alias in each.aliases}
    asked = normalise_name(row.reducer)
    if begins := [name for name in found if asked.startswith(name) and (name == asked or len(name) >= _MIN_LETTERS)]:
        return found[max(begins, key=len)]
    known = [*read, *reducer_names()]
    raise S2SimError(f"the reducer {row.reducer!r} has no counterpart{suggest_nearest(row.reducer, known)}")


@dataclass(frozen=True, slots=True)
class Software:
    """What a source ran: when, and which NCCL, the newest of its year if it does not say; None, empty: not known."""

    year: int | None
    nccl: Version


@cache
def software_of(source: str) -> Software:
    """Return the software of a source, by the table of those whose code was read, or by a year in its name."""
    for _, cells in read_table(data_directory("measured/iterations") / "software.csv", ("source", "year", "nccl")):
        if cells["source"] == source:
            return Software(int(cells["year"]), read_version(cells["nccl"]) or newest_version(cells["year"]))
    year = re.search(r"\b(19|20)\d\d\b", source)
    return Software(int(year[0]) if year else None, newest_version(source))


def option_string_of(row: MeasuredIterationRow, elements: int) -> str:
    """Return the option string of a row's reducer on ``elements`` values; options that it has are those of the row."""
    template = implementation_of(row).template
    params = parse_params(row.reducer_params)
    if "{density}" in template:
        # The share of elements that is kept: of k, of a ratio or how many times less, or one per cent.
        density = _USUAL_DENSITY
        if (kept := next((name for name in _COUNTS if name in params), None)) is not None:
            density = _number(params[kept])
            if density > 1 and not params[kept].endswith("%"):
                density = density / elements if kept == "k" else 1 / density
            if not 0 < density <= 1:
                raise S2SimError(f"reducer_params keep a share of {density:.3g} of the elements")
        template = template.format(density=f"{density:.9g}")
    elif "{rank}" in template:
        template = template.format(rank=_rank(params))
    elif "{bits}" in template:
        template = template.format(bits=int(min(max(_number(params.get("bits", "8")), 2), 16)))
    name, _, given = template.partition(":")
    own = {field.name for field in fields(REDUCERS.get(resolved_options(name)[0])) if field.init}
    taken = {part.partition("=")[0] for part in given.split(",")} | set(_COUNTS)
    more = [f"{key}={value}" for key, value in params.items() if key in own - taken]
    return ",".join([template, *more]) if given else ":".join(filter(None, (template, ",".join(more))))


def codec_costs_of(row: MeasuredIterationRow) -> codec_costs.CodecCosts:
    """Return what a row's codec costs beside, or instead of, its idealised kernels."""
    implementation = implementation_of(row)
    columns = _rank(parse_params(row.reducer_params)) if implementation.operations_a_column else 0
    costs = codec_costs.implementation_costs(implementation, software_of(row.source).year, columns)
    return replace(costs, operations_ps=PACKING_OPERATIONS * codec_costs.OPERATION_PS // 2) if row.packs else costs


def assumed_latency(row: MeasuredIterationRow) -> str | None:
    """Return the start-up latency that MG-WFBP's program assumes; None for a number of workers not in its table."""
    fast = row.nic_rate_gbps is not None and row.nic_rate_gbps > _SLOW_GBPS
    return _BELIEVED_LATENCY[fast].get(row.workers)


def _rank(params: Mapping[str, str]) -> int:
    rank = _number(params.get("rank", params.get("r", "2")))
    if rank != int(rank) or not 1 <= rank <= 2**16:
        raise S2SimError(f"reducer_params: {rank:g} is no rank of a matrix")
    return int(rank)


def _number(text: str) -> float:
    """Return a number, or a share in per cent.

    >>> _number("1%"), _number("10000")
    (0.01, 10000.0)
    """
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = nan
    if not isfinite(value):
        raise S2SimError(f"reducer_params: {text[:40]!r} is not a number")
    return value


# By workers, on slow and on fast interfaces (HKBU-HPML/ddl-benchmarks, mgwfbp/hv_distributed_optimizer.py, read).
_SLOW_GBPS = 10
_BELIEVED_LATENCY = (
    {2: "2.55us", 4: "42us", 8: "523us", 16: "908us", 32: "4.04ms", 64: "7.04ms"},
    {2: "2.55us", 4: "42us", 8: "97.5us", 16: "708us", 32: "406us", 64: "806us"},
)
_NONE = "none"
# Running reducers on more takes longer than people wait for a row.
_MAX_WORKERS = 2**9
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
    inside = row.intra_interconnect.lower()
    two_sockets = gpus >= _TWO_SOCKETS and "pcie" in inside and "socket" not in inside
    on_cube_mesh = "nvlink" in inside and "no nvlink" not in inside and _ON_CUBE_MESH.search(row.gpu) is not None
    said_to_reach = "p2p" in inside or "switch" in inside or "pcie" not in inside
    reach = said_to_reach or (_BEFORE_SKYLAKE.search(row.gpu) is None and gpus <= _TWO_SOCKETS)
    return MeasuredMachine(
        id=row.id,
        gpu_model=re.sub(r"\([^)]*\)", "", row.gpu).strip(),
        gpus_per_node=gpus,
        nodes=-(-row.workers // gpus),
        ranks=row.workers,
        collective="all_reduce",
        intra_interconnect=f"{row.intra_interconnect}{', two sockets' * two_sockets}",
        nics_per_node=1 if several else 0,
        nic_rate_gbps=(row.nic_rate_gbps or 0.0) if several else 0.0,
        system=row.system or row.source,
        # None for what the catalogue says.
        nvlink_domain_gpus=_CUBE_MESH if on_cube_mesh and 1 < gpus <= _CUBE_MESH else None,
        transport=_transport(row) if several else _NONE,
        p2p="" if able and reach else "no",
        gdr="" if able else "no",
    )


def _transport(row: MeasuredIterationRow) -> str:
    if row.transport not in ("", _NONE):
        return row.transport
    if row.nic_rate_gbps is None:
        raise S2SimError("several nodes, and neither transport nor nic_rate_gbps is given")
    return "tcp" if row.nic_rate_gbps <= _ETHERNET_GBPS else "ib-verbs"


def row_profile(row: MeasuredIterationRow, gpu: str) -> ComputeProfile:
    """Return a row's compute profile, of like layers for an unknown model; `S2SimError` if it says too little."""
    names = dict.fromkeys([*profile_names(), *model_names()])
    known = {normalise_name(name): name for name in names}
    base = row.model.partition("/")[0]
    # After a slash: the data set.
    name = known.get(normalise_name(row.model), known.get(normalise_name(base)))
    if name is None:
        if row.n_params is None or row.computing_ms is None:
            known_as = f"the model {row.model!r} is not known{suggest_nearest(base, names)}"
            raise S2SimError(f"{known_as}, and n_params or times of compute are missing")
        if (count := row.n_tensors or _USUAL_TENSORS) > _MAX_TENSORS:
            raise S2SimError(f"{count} tensors are more than {_MAX_TENSORS}, which takes too long")
        shape = (max(1, round(row.n_params / count / _USUAL_WIDTH)), _USUAL_WIDTH)
        one = TensorTiming("", shape, sparse=False, forward_ps=1, backward_ps=2)
        tensors = tuple(replace(one, name=f"layer{number}") for number in range(count))
        batch = row.batch_per_gpu or 1
        return ComputeProfile(row.model, row.model, gpu, batch, "sample", tensors, 0, 0.0, "user", "the row")
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
        forward_ps = round(row.computing_ms * _PS_PER_MS * forward_ps / (forward_ps + backward_ps))
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
    """Return tensors scaled to a total of ``parameters``, fully connected matrices alone where they suffice."""
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
