"""Gathers, exchanges and broadcasts between processes. Sizes known from data alone, and shapes, are exchanged first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Ints, split_sizes
from s2sim.codecs.floats import BFLOAT16, NARROW, narrow, widen
from s2sim.collectives import Kind
from s2sim.collectives.schedules.demand import Demand
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse, as_row_sparse, to_dense
from s2sim.libraries.lowering import CollectiveRequest, find_rule
from s2sim.pytorch.members import AsyncWork, Members
from s2sim.reducers.rank import Contribution
from s2sim.reducers.reduction import leaves_of, rebuild

Bytes: TypeAlias = NDArray[np.uint8]

WORD_BYTES = 8


def pack(payload: Contribution) -> Bytes:
    """Return the concatenated bytes of all arrays of a payload, row-sparse ones in dense form."""
    return np.concatenate([np.empty(0, np.uint8), *(_bytes_of(to_dense(leaf)) for leaf in leaves_of(payload))])


def unpack(like: Contribution, data: Bytes, shapes: Ints | None = None) -> Any:
    """Return a read-only payload of structure and types of ``like``; ``shapes`` (int64) where they differ."""
    leaves, at, axis = [], 0, 0
    for leaf in leaves_of(like):
        axes = len(leaf.shape)
        shape = leaf.shape if shapes is None else tuple(map(int, shapes[axis : axis + axes]))
        size = int(np.prod(shape, dtype=np.int64)) * leaf.dtype.itemsize
        # A copy is aligned.
        array = data[at : at + size].copy().view(leaf.dtype).reshape(shape)
        array.setflags(write=False)
        leaves.append(as_row_sparse(array) if isinstance(leaf, RowSparse) else array)
        at, axis = at + size, axis + axes
    return rebuild(like, leaves)


def envelope(payload: Contribution) -> Bytes:
    """Return the bytes of a payload after its description, for receivers that do not know it."""
    described = np.frombuffer(json.dumps(_describe_payload(payload)).encode(), np.uint8)
    return np.concatenate([_bytes_of(np.array([len(described)], np.int64)), described, pack(payload)])


def open_envelope(message: Bytes) -> Any:
    """Return the payload of an `envelope`."""
    end = WORD_BYTES + int(message[:WORD_BYTES].copy().view(np.int64)[0])
    return unpack(_payload_like(json.loads(message[WORD_BYTES:end].tobytes())), message[end:])


def _describe_payload(payload: Contribution) -> Any:
    if isinstance(payload, tuple):
        return ["tuple", *map(_describe_payload, payload)]
    if isinstance(payload, Gradient):
        return ["gradient", payload.names, *map(_describe_payload, payload.layers)]
    kind = "rows" if isinstance(payload, RowSparse) else "array"
    return [kind, "bfloat16" if payload.dtype == BFLOAT16 else payload.dtype.str, payload.shape]


def _payload_like(described: Sequence[Any]) -> Any:
    kind, *rest = described
    if kind == "tuple":
        return tuple(map(_payload_like, rest))
    if kind == "gradient":
        return Gradient(tuple(rest[0]), tuple(map(_payload_like, rest[1:])))
    name, shape = rest
    dtype = BFLOAT16 if name == "bfloat16" else np.dtype(name)
    if kind == "rows":
        return RowSparse(np.empty(0, np.int64), np.empty((0, *shape[1:]), dtype), tuple(shape))
    return np.broadcast_to(np.empty((), dtype), shape)


def _bytes_of(array: NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def reduce_arrays(
    members: Members, kind: Kind, parts: Sequence[NDArray[Any]], op: str, root: int = 0
) -> AsyncWork[NDArray[Any] | None]:
    """Post an all-reduce, reduce or reduce-scatter of 1-D arrays of one type; None if nothing arrives."""
    dtype = parts[0].dtype
    name = dtype.names[0] if dtype.names else dtype.name
    sizes = tuple(len(part) for part in parts)
    elements = sizes if kind == "reduce_scatter" else sizes * members.size
    entry = find_rule(CollectiveRequest(Demand(kind, elements, dtype.itemsize), op, name, False), members.library)
    carrier = np.dtype(entry.carrier) if entry.does == "carried" else dtype
    data = _as_carrier_type(np.concatenate(parts), carrier)

    def posted(data: NDArray[Any], op: str) -> AsyncWork[NDArray[Any] | None]:
        if kind == "reduce":
            return members.reduce(data, op, root)
        return members.reduce_scatter(data, op) if kind == "reduce_scatter" else members.all_reduce(data, op)

    if entry.does == "or_as_bytes":
        bits = np.unpackbits(data.view(np.uint8))
        return posted(bits, "max").then(lambda bits: None if bits is None else np.packbits(bits).view(dtype))
    if entry.does == "all_reduced":
        begin = sum(sizes[: members.index])
        return members.all_reduce(data, op).then(lambda whole: whole[begin : begin + sizes[members.index]])
    if entry.does == "reduces":
        flights = [members.reduce(part, op, owner) for owner, part in enumerate(split_sizes(data, sizes))]
        return AsyncWork(tuple(work for flight in flights for work in flight.works), flights[members.index].finish)
    if entry.does not in ("as_asked", "carried"):
        raise S2SimError(f"{members.library.name} executes {kind} as {entry.does}, which no process does")
    return posted(data, op).then(lambda found: None if found is None else _as_carrier_type(found, dtype))


def _as_carrier_type(data: NDArray[Any], carrier: np.dtype[Any]) -> NDArray[Any]:
    """Return values in another type; with the same bits if it is of equal width."""
    if data.dtype == carrier:
        return data
    if data.dtype in NARROW.values() or carrier in NARROW.values():
        return widen(data) if carrier == np.float32 else narrow(data, carrier)
    if data.dtype.itemsize == carrier.itemsize:
        return data.view(carrier)
    return data.astype(carrier)


def all_gather(
    members: Members, payload: Contribution, *, size_from_data: bool = False, unequal: bool = False
) -> AsyncWork[tuple[Any, ...]]:
    """Pass every member's payload to all."""
    if not size_from_data and not unequal:
        return members.all_gather(pack(payload)).then(lambda found: tuple(unpack(payload, each) for each in found))
    message, words = _prepend_shapes(payload)
    if not size_from_data:
        members.record_size_header("all_gather", [WORD_BYTES] * members.size)
    lengths = [int(each[0]) for each in members.all_gather(np.array([len(message)], np.int64)).wait()]
    members.record_size_header("all_gather", [words * WORD_BYTES] * members.size, within=True)
    demand = Demand("all_gather", tuple(lengths), 1)
    if CollectiveRequest(demand, "gather", "uint8", size_from_data).row == "gather":
        arrived = members.all_gather(message)
    elif find_rule(CollectiveRequest(demand, "gather", "uint8", size_from_data), members.library).does == "padded":
        arrived = members.all_gather(np.pad(message, (0, max(lengths) - len(message))))
    else:
        others = [at for at in range(members.size) if at != members.index]
        sent = members.pass_on(dict.fromkeys(others, message), {at: lengths[at] for at in others})
        arrived = sent.then(lambda found: [each for _, each in sorted({**found, members.index: message}.items())])
    return arrived.then(
        lambda found: tuple(
            _read_message(payload, each[:length], words) for each, length in zip(found, lengths, strict=True)
        )
    )


def all_to_all(
    members: Members, payloads: Sequence[Contribution], *, size_from_data: bool = False, unequal: bool = False
) -> AsyncWork[tuple[Any, ...]]:
    """Pass each member what is for it."""
    own = payloads[members.index]
    if not size_from_data and not unequal:
        blocks = [pack(payload) for payload in payloads]
        return members.all_to_all(blocks).then(lambda found: tuple(unpack(own, each) for each in found))
    messages, words = zip(*map(_prepend_shapes, payloads), strict=True)
    if not size_from_data:
        members.record_size_header("all_to_all", [WORD_BYTES] * members.size)
    sizes = members.all_to_all([np.array([len(message)], np.int64) for message in messages]).wait()
    members.record_size_header("all_to_all", [words[0] * WORD_BYTES] * members.size, within=True)
    arrived = members.all_to_all(messages, [int(size[0]) for size in sizes])
    return arrived.then(lambda found: tuple(_read_message(own, each, words[0]) for each in found))


def broadcast(
    members: Members, payload: Contribution | None, root: int, *, size_from_data: bool = False
) -> AsyncWork[Any]:
    """Pass the root's payload to all, in an `envelope`."""
    message = np.empty(0, np.uint8) if payload is None or members.index != root else envelope(payload)
    if not size_from_data:
        members.record_size_header("broadcast", [WORD_BYTES], root=root)
    length = int(members.broadcast(np.array([len(message)], np.int64), root).wait()[0])
    if members.index == root:
        assert payload is not None
        members.record_size_header("broadcast", [length - len(pack(payload))], root=root, within=True)
    arrived = members.broadcast(message if members.index == root else np.empty(length, np.uint8), root)
    return arrived.then(open_envelope)


def exchange(
    members: Members, payloads: Mapping[int, Contribution], *, size_from_data: bool = False
) -> AsyncWork[dict[int, Any]]:
    """Send payloads to some members; receive those of members that announce one for this rank."""
    messages = {to: envelope(payload) for to, payload in sorted(payloads.items())}
    lengths = np.array([[len(messages[to]) if to in messages else 0] for to in range(members.size)], np.int64)
    members.record_size_header("all_to_all", [WORD_BYTES] * members.size)
    told = [int(each[0]) for each in members.all_to_all(list(lengths)).wait()]
    coming = {source: length for source, length in enumerate(told) if length}
    if size_from_data:
        members.pass_on({to: lengths[to].view(np.uint8) for to in messages}, dict.fromkeys(coming, WORD_BYTES)).wait()
    described = [len(messages[to]) - len(pack(payloads[to])) if to in messages else 0 for to in range(members.size)]
    members.record_size_header("all_to_all", described, within=True)
    return members.pass_on(messages, coming).then(
        lambda found: {source: open_envelope(each) for source, each in sorted(found.items())}
    )


def _prepend_shapes(payload: Contribution) -> tuple[Bytes, int]:
    """Return a payload after the shapes of its arrays, and the number of lengths in these."""
    shapes = np.array([length for leaf in leaves_of(payload) for length in leaf.shape], np.int64)
    return np.concatenate([shapes.view(np.uint8), pack(payload)]), len(shapes)


def _read_message(like: Contribution, message: Bytes, words: int) -> Any:
    begin = words * WORD_BYTES
    return unpack(like, message[begin:], message[:begin].copy().view(np.int64))
