"""The communication libraries, each with its table of rules by kind, operation and type."""

from __future__ import annotations

from dataclasses import replace

from s2sim.collectives.timing.library_profile import NO_OVERHEADS, LibraryProfile
from s2sim.errors import OptionError, suggest_nearest, unknown_name
from s2sim.files import is_toml_path
from s2sim.libraries.constants import HOST_LIBRARIES, load_constants
from s2sim.libraries.gloo import HostLibraryProfile
from s2sim.libraries.library import TIMING, TIMINGS, Library, LoweringRule, read_calibration
from s2sim.libraries.nccl import NcclProfile
from s2sim.options import split_option_string
from s2sim.topology.quantity import Quantity

_INTEGERS = "int8 int16 int32 int64 bool uint8 uint16 uint32 uint64"
_FLOATS, _NARROW = "float32 float64", "float16 bfloat16"
_NCCL_WHOLE, _GLOO_WHOLE = "int8 int32 int64 uint8 uint32 uint64", "int8 int32 int64 uint8"
_GLOO_INTEGERS = "int8 int32 int64 bool uint8"
_EQUAL_PARTS, _REDUCING = "all_reduce reduce", "all_reduce reduce reduce_scatter"
_SUM_MAX, _SUM_MAX_V = "sum max", "sum max sumv maxv"


def _rule(
    kinds: str, ops: str, dtypes: str, does: str, why: str, when: tuple[str, str] | None = None, carrier: str = ""
) -> LoweringRule:
    return LoweringRule(tuple(kinds.split()), tuple(ops.split()), tuple(dtypes.split()), does, why, when, carrier)


_NCCL, _C10D = "NCCL user guide", "PyTorch torch/csrc/distributed/c10d"
_HALF_HOPS = "rounded to two bytes at every hop, while the error shown is that of a sum in float32 rounded once"

IDEAL = Library(
    name="ideal",
    summary="executes everything as asked: OR of bits, exact unequal sizes, any number in flight",
    source="none: what a library could do at best",
    groups=True,
    in_flight=None,
    table=(
        _rule(_REDUCING, f"{_SUM_MAX_V} or orv", "", "as_asked", "as asked"),
        _rule("all_gather", "gather gatherv", "", "as_asked", "as asked"),
        _rule("all_to_all", "exchange exchangev peers peersv", "", "as_asked", "as asked"),
        _rule("broadcast", "copy copyv", "", "as_asked", "as asked"),
        _rule("send_recv", "pass passv", "", "as_asked", "as asked"),
    ),
)

_NO_16_BITS = "no 16-bit integers (ncclDataType_t)"
_NCCL_OR = f"{_NCCL}, ncclRedOp_t: sum, prod, max, min, avg and no bitwise operation"
_OR_AS_BYTES = f"bits become bytes, of which the largest is taken ({_NCCL_OR})"
_OR_GATHERED = f"everybody gets all bits and merges them itself ({_NCCL_OR})"
_OR_BY_OWNERS = (
    "each rank gets everybody's bits of its own stretch by grouped send and receive, merges them and shares "
    f"the result ({_NCCL_OR}; point-to-point communication)"
)
_NCCL_REDUCES = (
    "ncclReduceScatter takes one count for all ranks; parts of unequal sizes are one ncclReduce a rank in one "
    f"group, as {_C10D}/ProcessGroupNCCL.cpp reduce_scatter does"
)
_NCCL_COPY = f"ncclBroadcast takes the count on every rank: 8 bytes tell it first ({_NCCL}, ncclBroadcast)"
_NCCL_GATHER = (
    "ncclAllGather takes one count for all ranks; sizes that only data tells are exchanged first, 8 bytes a rank"
)
_NCCL_PADDED = f"{_NCCL_GATHER}; payloads are padded to the largest"
_NCCL_BROADCASTS = (
    f"{_NCCL_GATHER}; then one broadcast a rank in one group, as {_C10D}/ProcessGroupNCCL.cpp allgather does"
)
_NCCL_SENDS = (
    "ncclSend and ncclRecv of {} in one group, for which both must know the size: sizes that only data "
    f"tells are exchanged first, 8 bytes a pair ({_NCCL}, point-to-point communication)"
)
_NCCL_SEND_RECV = (
    "ncclSend to the next rank and ncclRecv from the one before in one group, of sizes that both know: "
    f"those that only data tells go first, 8 bytes each ({_NCCL}, point-to-point communication)"
)
_NCCL_NATIVE = f"native ({_NCCL}, ncclDataType_t and ncclRedOp_t)"
_NCCL_HALF = f"native: ncclFloat16, ncclBfloat16, {_HALF_HOPS} ({_NCCL}, ncclDataType_t)"
_NCCL_BOOL = "bool travels as ncclUint8 (ProcessGroupNCCL.cpp)"

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
        _rule(_REDUCING, _SUM_MAX, f"{_NCCL_WHOLE} {_FLOATS}", "as_asked", _NCCL_NATIVE),
        _rule(_REDUCING, _SUM_MAX, _NARROW, "as_asked", _NCCL_HALF),
        _rule(_REDUCING, _SUM_MAX, "int16", "carried", _NO_16_BITS, None, "int32"),
        _rule(_REDUCING, _SUM_MAX, "uint16", "carried", _NO_16_BITS, None, "uint32"),
        _rule(_REDUCING, "max", "bool", "carried", _NCCL_BOOL, None, "uint8"),
        _rule("all_reduce", "or", _INTEGERS, "or_as_bytes", _OR_AS_BYTES, ("or", "bytes")),
        _rule("all_reduce", "or", _INTEGERS, "or_gathered", _OR_GATHERED, ("or", "gather")),
        _rule("all_reduce", "or", _INTEGERS, "or_by_owners", _OR_BY_OWNERS, ("or", "owners")),
        _rule("reduce reduce_scatter", "or", _INTEGERS, "or_as_bytes", _OR_AS_BYTES),
        _rule("reduce_scatter", "sumv maxv", f"{_NCCL_WHOLE} {_NARROW} {_FLOATS}", "reduces", _NCCL_REDUCES),
        _rule("broadcast", "copy", "", "as_asked", f"native ({_NCCL}, ncclBroadcast)"),
        _rule("broadcast", "copyv", "", "told", _NCCL_COPY),
        _rule("all_gather", "gather", "", "as_asked", f"native ({_NCCL}, ncclAllGather)"),
        _rule("all_gather", "gatherv", "", "padded", _NCCL_PADDED, ("gather", "pad")),
        _rule("all_gather", "gatherv", "", "broadcasts", _NCCL_BROADCASTS, ("gather", "broadcast")),
        _rule("all_to_all", "exchange exchangev", "", "sends", _NCCL_SENDS.format("every pair")),
        _rule("all_to_all", "peers peersv", "", "sends", _NCCL_SENDS.format("those pairs")),
        _rule("send_recv", "pass passv", "", "sends", _NCCL_SEND_RECV),
    ),
)

_GENERATED = f"{_C10D}/ProcessGroupGlooDetail.hpp, GENERATE_ALL_TYPES"
_GLOO_OR = f"native: ReduceOp::BOR of integers ({_C10D}/ProcessGroupGlooDetail.hpp)"
_SAME_BITS = f"no such type; two's complement sums have the same bits ({_GENERATED})"
_ALL_REDUCED = f"a copy is all-reduced whole ({_C10D}/ProcessGroupGloo.cpp, reduce_scatter_tensor_coalesced)"
_EXCHANGE_RULES = "sizes that only data tells are exchanged first, 8 bytes a rank"
_PAIRWISE_RULES = "those that only data tells are exchanged first, 8 bytes a pair"
_PAIR_RULES = f"every block: {_PAIRWISE_RULES}"
_GLOO_GATHER = (
    f"allgather refuses tensors of unequal sizes ({_C10D}/ProcessGroupGloo.cpp): a send and a receive a pair; "
    f"{_EXCHANGE_RULES}"
)
_RECEIVER_COUNT = f"for which the receiver wants the count ({_C10D}/ProcessGroupGloo.cpp, recv)"
_GLOO_PAIRS = f"a send and a receive a pair ({_C10D}/ProcessGroupGloo.cpp)"
_GLOO_PEERS = f"a send and a receive a pair, {_RECEIVER_COUNT}: {_PAIRWISE_RULES}"

GLOO = Library(
    name="gloo",
    summary="in host memory: OR of integers, allgatherv after an exchange of sizes; no groups, two in flight",
    source=f"{_C10D}/ProcessGroupGloo.cpp (threads = 2), ProcessGroupGlooDetail.hpp; github.com/pytorch/gloo",
    groups=False,
    in_flight=2,
    staged=True,
    options=((TIMING, TIMINGS),),
    table=(
        _rule(_EQUAL_PARTS, _SUM_MAX, f"{_GLOO_WHOLE} {_FLOATS}", "as_asked", f"native ({_GENERATED})"),
        _rule(
            _EQUAL_PARTS, _SUM_MAX, _NARROW, "as_asked", f"native: c10::Half and BFloat16, {_HALF_HOPS} ({_GENERATED})"
        ),
        _rule(_EQUAL_PARTS, "max", "bool", "carried", f"bool travels as uint8 ({_GENERATED})", None, "uint8"),
        _rule(_EQUAL_PARTS, _SUM_MAX, "int16 uint16", "carried", f"no such type ({_GENERATED})", None, "int32"),
        _rule(_EQUAL_PARTS, "sum", "uint32", "carried", _SAME_BITS, None, "int32"),
        _rule(_EQUAL_PARTS, "sum", "uint64", "carried", _SAME_BITS, None, "int64"),
        _rule(_EQUAL_PARTS, "max", "uint32", "carried", f"no such type ({_GENERATED})", None, "int64"),
        _rule(_EQUAL_PARTS, "or", _GLOO_INTEGERS, "as_asked", _GLOO_OR),
        _rule("reduce_scatter", _SUM_MAX_V, f"{_GLOO_WHOLE} {_NARROW} {_FLOATS}", "all_reduced", _ALL_REDUCED),
        _rule("reduce_scatter", "or orv", _GLOO_INTEGERS, "all_reduced", _ALL_REDUCED),
        _rule("broadcast", "copy", "", "as_asked", "native (gloo/broadcast.h)"),
        _rule("broadcast", "copyv", "", "exact", "gloo/broadcast.h wants the count: 8 bytes tell it first"),
        _rule("all_gather", "gather", "", "as_asked", "native (gloo/allgather.h)"),
        _rule("all_gather", "gatherv", "", "exchanged", _GLOO_GATHER),
        _rule("all_to_all", "exchange", "", "as_asked", "native (gloo/alltoall.h)"),
        _rule("all_to_all", "exchangev", "", "exact", f"gloo/alltoallv.h wants the count of {_PAIR_RULES}"),
        _rule("all_to_all", "peers", "", "as_asked", _GLOO_PAIRS),
        _rule("all_to_all", "peersv", "", "exact", _GLOO_PEERS),
        _rule("send_recv", "pass", "", "as_asked", f"a send and a receive ({_C10D}/ProcessGroupGloo.cpp)"),
        _rule("send_recv", "passv", "", "exact", f"a send and a receive, {_RECEIVER_COUNT}"),
    ),
)

_MPI_OPS = "MPI 4.1 standard, section 6.9.2, predefined reduction operations"
_MPI_TYPES = f"int8 int16 int32 int64 uint8 uint16 uint32 uint64 {_FLOATS}"
_MPI_FLOAT32 = f"MPI has no half type: twice the bytes ({_MPI_OPS})"
_MPI_HALF = (
    "MPI has no half type, but takes an operation of the user's on two bytes, as Horovod defines it "
    f"(horovod/common/half.cc); {_HALF_HOPS}"
)
_MPI_PEERS = "MPI_Isend and MPI_Irecv of those pairs; MPI_Mprobe tells a receiver the size (MPI 4.1 standard, 3.8)"
_MPI_SEND_RECV = "MPI_Sendrecv; MPI_Mprobe tells a receiver the size (MPI 4.1 standard, 3.8 and 3.10)"

MPI = Library(
    name="mpi",
    summary="MPI_BOR and MPI_Allgatherv, no half type; host memory unless CUDA-aware; no groups, one after another",
    source=f"MPI 4.1 standard, chapter 6; one thread calls it in order ({_C10D}/ProcessGroupMPI.cpp, Horovod likewise)",
    groups=False,
    in_flight=1,
    staged=True,
    options=(("half", ("float32", "user-op")), ("buffers", ("host", "device")), (TIMING, TIMINGS)),
    table=(
        _rule(_REDUCING, _SUM_MAX_V, _MPI_TYPES, "as_asked", f"native ({_MPI_OPS})"),
        _rule(_REDUCING, "max", "bool", "carried", f"no maximum of logicals ({_MPI_OPS})", None, "uint8"),
        _rule(_REDUCING, _SUM_MAX_V, _NARROW, "carried", _MPI_FLOAT32, ("half", "float32"), "float32"),
        _rule(_REDUCING, _SUM_MAX_V, _NARROW, "as_asked", _MPI_HALF, ("half", "user-op")),
        _rule(_REDUCING, "or orv", _INTEGERS, "as_asked", f"native: MPI_BOR, MPI_LOR for bool ({_MPI_OPS})"),
        _rule("all_gather", "gather", "", "as_asked", "native (MPI_Allgather)"),
        _rule("all_gather", "gatherv", "", "exact", f"MPI_Allgatherv wants every rank's count: {_EXCHANGE_RULES}"),
        _rule("all_to_all", "exchange", "", "as_asked", "native (MPI_Alltoall)"),
        _rule("all_to_all", "exchangev", "", "exact", f"MPI_Alltoallv wants the count of {_PAIR_RULES}"),
        _rule("broadcast", "copy", "", "as_asked", "native (MPI_Bcast)"),
        _rule("broadcast", "copyv", "", "exact", "MPI_Bcast wants the count: 8 bytes tell it first"),
        _rule("all_to_all", "peers peersv", "", "as_asked", _MPI_PEERS),
        _rule("send_recv", "pass passv", "", "as_asked", _MPI_SEND_RECV),
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
    """Return the constants of a library for ``timing=measured``, every value with its origin."""
    if name not in LIBRARIES:
        raise unknown_name("library", name, LIBRARIES)
    if name not in (NCCL.name, RCCL.name, *HOST_LIBRARIES):
        raise OptionError(f"library {name} adds nothing to the wire: it has no constants")
    return load_constants(name).quantities


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
    values_of = dict(LIBRARIES[name].options)
    for key, value in options.items():
        if key not in values_of:
            raise OptionError(f"library {name} has no option {key!r}{suggest_nearest(key, values_of)}")
        if value not in values_of[key] and not (key == TIMING and is_toml_path(value)):
            raise OptionError(f"library {name}: {key}={value} is unknown{suggest_nearest(value, values_of[key])}")
    chosen = {key: options.get(key, values[0]) for key, values in values_of.items()}
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
