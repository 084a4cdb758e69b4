"""What published implementations send and compute, as option strings of reducers and counts of kernels.

A paper's reducer and the code that was measured are at times not the same: code that frameworks run operation by
operation passes over the whole array in each, and starts several kernels a tensor from a loop of the host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite, nan

from s2sim.errors import S2SimError, suggest_nearest
from s2sim.reducers.registry import REDUCERS, reducer_names, resolved_options
from s2sim.validation.iteration_result import MeasuredIterationRow, parse_params

_MAX_COLUMNS = 2**16
# Shortest name of a reducer that other names may begin with.
_MIN_LETTERS = 4
# Names of the kept share in published rows, and its value if they state none.
_COUNTS, _USUAL_DENSITY = ("k", "ratio", "density", "compression", "compress_ratio", "compression_ratio"), 0.01

OPERATION_PS = 10 * 10**6
"""What a framework's host takes to start one operation on a tensor: 7 to 12 us in published loops over tensors, see the
page on fidelity; kernels of the catalogue cost 5 us each on the GPU."""

PACKING_OPERATIONS = 9
"""Operations a tensor where gradients are copied into one buffer and back: a slice, a copy, a view and a sum each way
(vineeths96/Gradient-Compression, trainer.py and reducer.py)."""

CALL_OPERATIONS = 10
"""What a framework's call of a collective takes of its host: Python, checks, a work object, events and waits of
streams; 0.14 ms for a few kilobytes over NVLink (vineeths96/Gradient-Compression, with two waits of the host)."""


@dataclass(frozen=True, slots=True)
class Implementation:
    """How a published reducer is represented by one of the registry."""

    template: str  # Option string, with fields for the density, rank or bits of the row
    operations: int  # Of encode, feedback and decode per tensor
    origin: str
    one_stream: bool = False  # Whether codec and collectives share a stream of the GPU
    # Passes over the float32 values; None for those of the registry's reducer
    encode_passes: float | None = None
    decode_passes: float | None = None
    operations_a_column: int = 0  # In addition per column of a low-rank approximation


def implementation_of(row: MeasuredIterationRow) -> Implementation:
    """Return the implementation that represents a row's reducer; `S2SimError` if there is none.

    What no code was read of is the registry's reducer of that name, with as many operations as others of its kind. A
    name with something behind it stands for the longest that it begins with.
    """
    found = {normalise_name(name): each for name, each in IMPLEMENTATIONS.items()}
    registered = {
        normalise_name(name): Implementation(name, _USUAL_OPERATIONS, _SIMILAR_SYSTEMS) for name in reducer_names()
    }
    found = registered | found | {alias: found[name] for alias, name in _ALIASES.items()}
    asked = normalise_name(row.reducer)
    begins = [name for name in found if asked.startswith(name) and (name == asked or len(name) >= _MIN_LETTERS)]
    if begins:
        return found[max(begins, key=len)]
    known = [*IMPLEMENTATIONS, *reducer_names()]
    raise S2SimError(f"the reducer {row.reducer!r} has no counterpart{suggest_nearest(row.reducer, known)}")


def normalise_name(name: str) -> str:
    """Return a name in lower case, letters and digits alone, such as resnet50 of ResNet-50."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def option_string_of(row: MeasuredIterationRow, elements: int) -> str:
    """Return the option string of the registry's reducer that represents a row's on ``elements`` values.

    Options that this reducer has itself are taken as the row gives them.
    """
    template = implementation_of(row).template
    params = parse_params(row.reducer_params)
    if "{density}" in template:
        template = template.format(density=f"{_density(params, elements):.9g}")
    elif "{rank}" in template:
        template = template.format(rank=_rank(params))
    elif "{bits}" in template:
        template = template.format(bits=int(min(max(_number(params.get("bits", "8")), 2), 16)))
    name, _, given = template.partition(":")
    own = {field.name for field in fields(REDUCERS.get(resolved_options(name)[0])) if field.init}
    taken = {part.partition("=")[0] for part in given.split(",")} | set(_COUNTS)
    more = [f"{key}={value}" for key, value in params.items() if key in own - taken]
    return ",".join([template, *more]) if given else ":".join(filter(None, (template, ",".join(more))))


def host_loop_ps(row: MeasuredIterationRow) -> int:
    """Return the host's time to start one tensor's operations in encode, which is that in decode too."""
    if row.packs:
        return PACKING_OPERATIONS * OPERATION_PS // 2
    implementation = implementation_of(row)
    columns = _rank(parse_params(row.reducer_params)) if implementation.operations_a_column else 0
    return (implementation.operations + implementation.operations_a_column * columns) * OPERATION_PS // 2


def assumed_latency(row: MeasuredIterationRow) -> str | None:
    """Return the start-up latency that MG-WFBP's program assumes; None for a number of workers not in its table."""
    fast = row.nic_rate_gbps is not None and row.nic_rate_gbps > _SLOW_GBPS
    return _BELIEVED_LATENCY[fast].get(row.workers)


def _density(params: Mapping[str, str], elements: int) -> float:
    """Return the share of elements that is kept: of ``k``, of a ratio or how many times less, or one per cent."""
    given = next((name for name in _COUNTS if name in params), None)
    if given is None:
        return _USUAL_DENSITY
    number = _number(params[given])
    if number > 1 and not params[given].endswith("%"):
        number = number / elements if given == "k" else 1 / number
    if not 0 < number <= 1:
        raise S2SimError(f"reducer_params keep a share of {number:.3g} of the elements")
    return number


def _rank(params: Mapping[str, str]) -> int:
    rank = _number(params.get("rank", "2"))
    if rank != int(rank) or not 1 <= rank <= _MAX_COLUMNS:
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
_CUPCAKE = "zhuangwang93/Cupcake, mergeComp_dl/torch: compressor, memory and communicator, read in code"
_VINEETHS = "vineeths96/Gradient-Compression, reducer.py and compressors.py, read in code"
_HOOK = "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook; recalled"
_USUAL_OPERATIONS = 24
_ALIASES = {
    "none": "dense",
    "baseline": "dense",
    "allreduce": "dense",
    "eftopk": "topk",
    "randk": "randomk",
    "efsgd": "efsignsgd",
    "efsign": "efsignsgd",
    "onebitsgd": "onebit",
    "1bit": "onebit",
    "1bitsgd": "onebit",
    "signum": "signsgd",
    "half": "fp16",
}
_SIMILAR_SYSTEMS = "as what its paper says; operations as of those of its kind"

IMPLEMENTATIONS: dict[str, Implementation] = {
    "dense": Implementation("dense", 0, "one all-reduce"),
    "fp16": Implementation("fp16", 4, _SIMILAR_SYSTEMS),
    "randomk-shared-quantised": Implementation("random-k:granularity=global,density={density}", 16, _VINEETHS),
    # Levels of all ranks are added as int8, after the norm's largest was agreed on.
    "qsgd-maxnorm": Implementation("int8", 16, _VINEETHS, encode_passes=27, decode_passes=3),
    "randomk": Implementation("random-k:seed=own,density={density}", 24, _CUPCAKE, one_stream=True),
    "topk": Implementation("topk:granularity=layer,density={density}", 26, _CUPCAKE, one_stream=True),
    "dgc": Implementation("dgc-select:density={density}", 34, _CUPCAKE, one_stream=True),
    "ef-signsgd": Implementation("ef-signsgd", 40, _CUPCAKE, one_stream=True),
    "onebit": Implementation("onebit-sgd:aggregate=gather", 48, _CUPCAKE, one_stream=True),
    "powersgd": Implementation("powersgd:rank={rank}", 8, _HOOK, operations_a_column=10),
    "qsgd": Implementation("qsgd:bits={bits}", _USUAL_OPERATIONS, _SIMILAR_SYSTEMS),
    "signsgd": Implementation("signsgd-vote", _USUAL_OPERATIONS, _SIMILAR_SYSTEMS),
    "deepreduce": Implementation("deepreduce:density={density}", 40, _SIMILAR_SYSTEMS),
}
