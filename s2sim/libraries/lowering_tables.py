"""The communication libraries: what each executes, as a table of kind x operation x type."""

from __future__ import annotations

from dataclasses import replace

from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile
from s2sim.errors import OptionError, suggest_nearest, unknown_name
from s2sim.files import is_toml_path
from s2sim.libraries.calibration import read_calibration
from s2sim.libraries.constants import load_constants
from s2sim.libraries.gloo import HOST_LIBRARIES, HostLibraryProfile, load_host_constants
from s2sim.libraries.library import TIMING, TIMINGS, Library, LoweringRule
from s2sim.libraries.nccl import NcclProfile
from s2sim.options import split_option_string
from s2sim.topology.quantity import Quantity

_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("bool", "uint8", "uint16", "uint32", "uint64")
_INTEGERS = (*_SIGNED, *_UNSIGNED)
_FLOATS = ("float32", "float64")
_WHOLE_TYPES = ("all_reduce", "reduce")
_REDUCING = (*_WHOLE_TYPES, "reduce_scatter")
_SUM_MAX = ("sum", "max")
_SUM_MAX_V = ("sum", "max", "sumv", "maxv")

_NCCL = "NCCL user guide"
_C10D = "PyTorch torch/csrc/distributed/c10d"
_NARROW = ("float16", "bfloat16")
_HALF_HOPS = "rounded to two bytes at every hop, while the error shown is that of a sum in float32 rounded once"

IDEAL = Library(
    name="ideal",
    summary="executes everything as asked: OR of bits, exact unequal sizes, any number in flight",
    source="none: what a library could do at best",
    groups=True,
    in_flight=None,
    table=(
        LoweringRule(_REDUCING, (*_SUM_MAX_V, "or", "orv"), (), "as_asked", "as asked"),
        LoweringRule(("all_gather",), ("gather", "gatherv"), (), "as_asked", "as asked"),
        LoweringRule(("all_to_all",), ("exchange", "exchangev", "peers", "peersv"), (), "as_asked", "as asked"),
        LoweringRule(("broadcast",), ("copy", "copyv"), (), "as_asked", "as asked"),
        LoweringRule(("send_recv",), ("pass", "passv"), (), "as_asked", "as asked"),
    ),
)

_NCCL_OR = f"{_NCCL}, ncclRedOp_t: sum, prod, max, min, avg and no bitwise operation"
_NCCL_GATHER = (
    "ncclAllGather takes one count for all ranks; sizes that only data tells are exchanged first, 8 bytes a rank"
)

NCCL = Library(
    name="nccl",
    summary="no OR, no all-gather of unequal sizes; groups are one launch; one launch after another",
    source=f"{_NCCL}: ncclDataType_t, ncclRedOp_t, group calls; {_C10D}/ProcessGroupNCCL.cpp",
    groups=True,
    in_flight=1,
    options=(
        ("or", ("bytes", "gather", "owners")),
        ("gather", ("pad", "broadcast")),
        (TIMING, TIMINGS),
        ("launch", ("gpu", "node")),
    ),
    table=(
        LoweringRule(
            _REDUCING,
            _SUM_MAX,
            ("int8", "int32", "int64", "uint8", "uint32", "uint64", *_FLOATS),
            "as_asked",
            f"native ({_NCCL}, ncclDataType_t and ncclRedOp_t)",
        ),
        LoweringRule(
            _REDUCING,
            _SUM_MAX,
            _NARROW,
            "as_asked",
            f"native: ncclFloat16, ncclBfloat16, {_HALF_HOPS} ({_NCCL}, ncclDataType_t)",
        ),
        LoweringRule(_REDUCING, _SUM_MAX, ("int16",), "carried", "no 16-bit integers (ncclDataType_t)", None, "int32"),
        LoweringRule(
            _REDUCING, _SUM_MAX, ("uint16",), "carried", "no 16-bit integers (ncclDataType_t)", None, "uint32"
        ),
        LoweringRule(
            _REDUCING, ("max",), ("bool",), "carried", "bool travels as ncclUint8 (ProcessGroupNCCL.cpp)", None, "uint8"
        ),
        LoweringRule(
            ("all_reduce",),
            ("or",),
            _INTEGERS,
            "or_as_bytes",
            f"bits become bytes, of which the largest is taken ({_NCCL_OR})",
            ("or", "bytes"),
        ),
        LoweringRule(
            ("all_reduce",),
            ("or",),
            _INTEGERS,
            "or_gathered",
            f"everybody gets all bits and merges them itself ({_NCCL_OR})",
            ("or", "gather"),
        ),
        LoweringRule(
            ("all_reduce",),
            ("or",),
            _INTEGERS,
            "or_by_owners",
            "each rank gets everybody's bits of its own stretch by grouped send and receive, merges them and shares "
            f"the result ({_NCCL_OR}; point-to-point communication)",
            ("or", "owners"),
        ),
        LoweringRule(
            ("reduce", "reduce_scatter"),
            ("or",),
            _INTEGERS,
            "or_as_bytes",
            f"bits become bytes, of which the largest is taken ({_NCCL_OR})",
        ),
        LoweringRule(
            ("reduce_scatter",),
            ("sumv", "maxv"),
            ("int8", "int32", "int64", "uint8", "uint32", "uint64", *_NARROW, *_FLOATS),
            "reduces",
            "ncclReduceScatter takes one count for all ranks; parts of unequal sizes are one ncclReduce a rank in one "
            f"group, as {_C10D}/ProcessGroupNCCL.cpp reduce_scatter does",
        ),
        LoweringRule(("broadcast",), ("copy",), (), "as_asked", f"native ({_NCCL}, ncclBroadcast)"),
        LoweringRule(
            ("broadcast",),
            ("copyv",),
            (),
            "told",
            f"ncclBroadcast takes the count on every rank: 8 bytes tell it first ({_NCCL}, ncclBroadcast)",
        ),
        LoweringRule(("all_gather",), ("gather",), (), "as_asked", f"native ({_NCCL}, ncclAllGather)"),
        LoweringRule(
            ("all_gather",),
            ("gatherv",),
            (),
            "padded",
            f"{_NCCL_GATHER}; payloads are padded to the largest",
            ("gather", "pad"),
        ),
        LoweringRule(
            ("all_gather",),
            ("gatherv",),
            (),
            "broadcasts",
            f"{_NCCL_GATHER}; then one broadcast a rank in one group, as {_C10D}/ProcessGroupNCCL.cpp allgather does",
            ("gather", "broadcast"),
        ),
        LoweringRule(
            ("all_to_all",),
            ("exchange", "exchangev"),
            (),
            "sends",
            "ncclSend and ncclRecv of every pair in one group, for which both must know the size: sizes that only data "
            f"tells are exchanged first, 8 bytes a pair ({_NCCL}, point-to-point communication)",
        ),
        LoweringRule(
            ("all_to_all",),
            ("peers", "peersv"),
            (),
            "sends",
            "ncclSend and ncclRecv of those pairs in one group, for which both must know the size: sizes that only "
            f"data tells are exchanged first, 8 bytes a pair ({_NCCL}, point-to-point communication)",
        ),
        LoweringRule(
            ("send_recv",),
            ("pass", "passv"),
            (),
            "sends",
            "ncclSend to the next rank and ncclRecv from the one before in one group, of sizes that both know: "
            f"those that only data tells go first, 8 bytes each ({_NCCL}, point-to-point communication)",
        ),
    ),
)

_GLOO_TYPES = f"{_C10D}/ProcessGroupGlooDetail.hpp, GENERATE_ALL_TYPES"
_EXCHANGE_RULES = "sizes that only data tells are exchanged first, 8 bytes a rank"
_PAIRWISE_RULES = "those that only data tells are exchanged first, 8 bytes a pair"
_PAIR_RULES = f"every block: {_PAIRWISE_RULES}"

GLOO = Library(
    name="gloo",
    summary="in host memory: OR of integers, allgatherv after an exchange of sizes; no groups, two in flight",
    source=f"{_C10D}/ProcessGroupGloo.cpp (threads = 2), ProcessGroupGlooDetail.hpp; github.com/pytorch/gloo",
    groups=False,
    in_flight=2,
    staged=True,
    options=((TIMING, TIMINGS),),
    table=(
        LoweringRule(
            _WHOLE_TYPES, _SUM_MAX, ("int8", "int32", "int64", "uint8", *_FLOATS), "as_asked", f"native ({_GLOO_TYPES})"
        ),
        LoweringRule(
            _WHOLE_TYPES, _SUM_MAX, _NARROW, "as_asked", f"native: c10::Half and BFloat16, {_HALF_HOPS} ({_GLOO_TYPES})"
        ),
        LoweringRule(
            _WHOLE_TYPES, ("max",), ("bool",), "carried", f"bool travels as uint8 ({_GLOO_TYPES})", None, "uint8"
        ),
        LoweringRule(
            _WHOLE_TYPES, _SUM_MAX, ("int16", "uint16"), "carried", f"no such type ({_GLOO_TYPES})", None, "int32"
        ),
        LoweringRule(
            _WHOLE_TYPES,
            ("sum",),
            ("uint32",),
            "carried",
            f"no such type; two's complement sums have the same bits ({_GLOO_TYPES})",
            None,
            "int32",
        ),
        LoweringRule(
            _WHOLE_TYPES,
            ("sum",),
            ("uint64",),
            "carried",
            f"no such type; two's complement sums have the same bits ({_GLOO_TYPES})",
            None,
            "int64",
        ),
        LoweringRule(_WHOLE_TYPES, ("max",), ("uint32",), "carried", f"no such type ({_GLOO_TYPES})", None, "int64"),
        LoweringRule(
            _WHOLE_TYPES,
            ("or",),
            ("int8", "int32", "int64", "bool", "uint8"),
            "as_asked",
            f"native: ReduceOp::BOR of integers ({_C10D}/ProcessGroupGlooDetail.hpp)",
        ),
        LoweringRule(
            ("reduce_scatter",),
            _SUM_MAX_V,
            ("int8", "int32", "int64", "uint8", *_NARROW, *_FLOATS),
            "all_reduced",
            f"a copy is all-reduced whole ({_C10D}/ProcessGroupGloo.cpp, reduce_scatter_tensor_coalesced)",
        ),
        LoweringRule(
            ("reduce_scatter",),
            ("or", "orv"),
            ("int8", "int32", "int64", "bool", "uint8"),
            "all_reduced",
            f"a copy is all-reduced whole ({_C10D}/ProcessGroupGloo.cpp, reduce_scatter_tensor_coalesced)",
        ),
        LoweringRule(("broadcast",), ("copy",), (), "as_asked", "native (gloo/broadcast.h)"),
        LoweringRule(
            ("broadcast",), ("copyv",), (), "exact", "gloo/broadcast.h wants the count: 8 bytes tell it first"
        ),
        LoweringRule(("all_gather",), ("gather",), (), "as_asked", "native (gloo/allgather.h)"),
        LoweringRule(
            ("all_gather",),
            ("gatherv",),
            (),
            "exchanged",
            f"allgather refuses tensors of unequal sizes ({_C10D}/ProcessGroupGloo.cpp): a send and a receive a pair; "
            f"{_EXCHANGE_RULES}",
        ),
        LoweringRule(("all_to_all",), ("exchange",), (), "as_asked", "native (gloo/alltoall.h)"),
        LoweringRule(
            ("all_to_all",), ("exchangev",), (), "exact", f"gloo/alltoallv.h wants the count of {_PAIR_RULES}"
        ),
        LoweringRule(
            ("all_to_all",), ("peers",), (), "as_asked", f"a send and a receive a pair ({_C10D}/ProcessGroupGloo.cpp)"
        ),
        LoweringRule(
            ("all_to_all",),
            ("peersv",),
            (),
            "exact",
            f"a send and a receive a pair, for which the receiver wants the count ({_C10D}/ProcessGroupGloo.cpp, "
            f"recv): {_PAIRWISE_RULES}",
        ),
        LoweringRule(("send_recv",), ("pass",), (), "as_asked", f"a send and a receive ({_C10D}/ProcessGroupGloo.cpp)"),
        LoweringRule(
            ("send_recv",),
            ("passv",),
            (),
            "exact",
            f"a send and a receive, for which the receiver wants the count ({_C10D}/ProcessGroupGloo.cpp, recv)",
        ),
    ),
)

_MPI_OPS = "MPI 4.1 standard, section 6.9.2, predefined reduction operations"

MPI = Library(
    name="mpi",
    summary="MPI_BOR and MPI_Allgatherv, no half type; host memory unless CUDA-aware; no groups, one after another",
    source=f"MPI 4.1 standard, chapter 6; one thread calls it in order ({_C10D}/ProcessGroupMPI.cpp, Horovod likewise)",
    groups=False,
    in_flight=1,
    staged=True,
    options=(("half", ("float32", "user-op")), ("buffers", ("host", "device")), (TIMING, TIMINGS)),
    table=(
        LoweringRule(
            _REDUCING, _SUM_MAX_V, (*_INTEGERS[:4], *_UNSIGNED[1:], *_FLOATS), "as_asked", f"native ({_MPI_OPS})"
        ),
        LoweringRule(_REDUCING, ("max",), ("bool",), "carried", f"no maximum of logicals ({_MPI_OPS})", None, "uint8"),
        LoweringRule(
            _REDUCING,
            _SUM_MAX_V,
            _NARROW,
            "carried",
            f"MPI has no half type: twice the bytes ({_MPI_OPS})",
            ("half", "float32"),
            "float32",
        ),
        LoweringRule(
            _REDUCING,
            _SUM_MAX_V,
            _NARROW,
            "as_asked",
            "MPI has no half type, but takes an operation of the user's on two bytes, as Horovod defines it "
            f"(horovod/common/half.cc); {_HALF_HOPS}",
            ("half", "user-op"),
        ),
        LoweringRule(
            _REDUCING, ("or", "orv"), _INTEGERS, "as_asked", f"native: MPI_BOR, MPI_LOR for bool ({_MPI_OPS})"
        ),
        LoweringRule(("all_gather",), ("gather",), (), "as_asked", "native (MPI_Allgather)"),
        LoweringRule(
            ("all_gather",), ("gatherv",), (), "exact", f"MPI_Allgatherv wants every rank's count: {_EXCHANGE_RULES}"
        ),
        LoweringRule(("all_to_all",), ("exchange",), (), "as_asked", "native (MPI_Alltoall)"),
        LoweringRule(("all_to_all",), ("exchangev",), (), "exact", f"MPI_Alltoallv wants the count of {_PAIR_RULES}"),
        LoweringRule(("broadcast",), ("copy",), (), "as_asked", "native (MPI_Bcast)"),
        LoweringRule(("broadcast",), ("copyv",), (), "exact", "MPI_Bcast wants the count: 8 bytes tell it first"),
        LoweringRule(
            ("all_to_all",),
            ("peers", "peersv"),
            (),
            "as_asked",
            "MPI_Isend and MPI_Irecv of those pairs; MPI_Mprobe tells a receiver the size (MPI 4.1 standard, 3.8)",
        ),
        LoweringRule(
            ("send_recv",),
            ("pass", "passv"),
            (),
            "as_asked",
            "MPI_Sendrecv; MPI_Mprobe tells a receiver the size (MPI 4.1 standard, 3.8 and 3.10)",
        ),
    ),
)

RCCL = replace(
    NCCL,
    name="rccl",
    summary="between AMD's GPUs, a descendant of NCCL: no OR, no all-gather of unequal sizes; groups are one launch",
    source="RCCL documentation: its interface is NCCL's",
)

LIBRARIES = {library.name: library for library in (IDEAL, NCCL, RCCL, GLOO, MPI)}


def library_quantities(name: str) -> tuple[Quantity, ...]:
    """Return what a library adds with ``timing=measured``, every value with its origin."""
    if name not in LIBRARIES:
        raise unknown_name("library", name, LIBRARIES)
    if name not in (NCCL.name, RCCL.name, *HOST_LIBRARIES):
        raise OptionError(f"library {name} adds nothing to the wire: it has no constants")
    return (load_host_constants(name) if name in HOST_LIBRARIES else load_constants(name)).quantities


def choose_library(text: str) -> Library:
    """Return the library of an option string.

    >>> choose_library("nccl:or=owners").chosen
    (('or', 'owners'), ('gather', 'pad'), ('timing', 'auto'), ('launch', 'gpu'))
    >>> choose_library("nccl:or=bytes").option_string
    'nccl'
    """
    name, options = split_option_string(text)
    if name not in LIBRARIES:
        raise unknown_name("library", name, LIBRARIES)
    known = dict(LIBRARIES[name].options)
    for key, value in options.items():
        if key not in known:
            raise OptionError(f"library {name} has no option {key!r}{suggest_nearest(key, known)}")
        if value not in known[key] and not (key == TIMING and is_toml_path(value)):
            raise OptionError(f"library {name}: {key}={value} is unknown{suggest_nearest(value, known[key])}")
    chosen = {key: options.get(key, values[0]) for key, values in known.items()}
    timing = chosen.get(TIMING)
    calibration = None if timing is None or not is_toml_path(timing) else read_calibration(timing)
    if calibration is not None and calibration.base != name:
        raise OptionError(
            f"{timing} was fitted for {calibration.base}: give --library {calibration.base}:timing={timing}"
        )
    if "launch" in options and timing == "wire":
        raise OptionError(f"library {name}: launch={options['launch']} changes nothing with timing=wire: leave one out")
    measured: LibraryProfile | None = None
    if name in HOST_LIBRARIES:
        measured = HostLibraryProfile(name, () if calibration is None else calibration.own)
    elif timing is not None:
        measured = NcclProfile(name, one_process=chosen["launch"] == "node")
        if calibration is not None:
            measured = replace(measured, own=calibration.own, version=calibration.version)
    return replace(
        LIBRARIES[name],
        chosen=tuple(chosen.items()),
        given_options=tuple(options),
        measured=measured,
        profile=NO_OVERHEADS if measured is None or timing in ("auto", "wire") else measured,
        calibration=calibration,
    )
