"""What is passed on as it is between real processes: gathers, exchanges, broadcasts.

Where only data tells sizes, the library exchanges these first, as its table says. Processes must know more than that,
which their programs do: the shapes of each array, and who sends to whom. What goes for that is noted in `Members.told`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.bridge.processes.members import Flight
from s2sim.bridge.processes.messages import WORD_BYTES, envelope, opened, pack, shapes_of, unpack
from s2sim.collectives.libraries.launches import Request
from s2sim.collectives.libraries.lowering import entry_for
from s2sim.collectives.schedules.demand import Demand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Ints
    from s2sim.bridge.processes.members import Members
    from s2sim.reducers.rank import Contribution

    Bytes = NDArray[np.uint8]


def all_gather(members: Members, payload: Contribution, *, from_data: bool, unequal: bool) -> Flight[tuple[Any, ...]]:
    """Pass every member's payload to all."""
    if not from_data and not unequal:
        alike = members.all_gather(pack(payload))
        return Flight(alike.works, lambda: tuple(unpack(payload, each) for each in alike.finish()))
    message, words = _with_shapes(payload)
    if not from_data:
        members.tell("all_gather", [WORD_BYTES] * members.size)
    lengths = [int(each[0]) for each in members.all_gather(np.array([len(message)], np.int64)).wait()]
    members.tell("all_gather", [words * WORD_BYTES] * members.size, within=True)
    demand = Demand("all_gather", tuple(lengths), 1)
    if Request(demand, "gather", "uint8", from_data).row == "gather":
        arrived = members.all_gather(message)
    elif entry_for(Request(demand, "gather", "uint8", from_data), members.library).does == "padded":
        padded = members.all_gather(np.pad(message, (0, max(lengths) - len(message))))
        arrived = Flight(padded.works, padded.finish)
    else:
        others = [at for at in range(members.size) if at != members.index]
        sent = members.pass_on(dict.fromkeys(others, message), {at: lengths[at] for at in others})
        arrived = Flight(sent.works, lambda: _in_order(sent.finish(), members, message))
    return Flight(
        arrived.works,
        lambda: tuple(
            _opened(payload, each[:length], words) for each, length in zip(arrived.finish(), lengths, strict=True)
        ),
    )


def all_to_all(
    members: Members, payloads: Sequence[Contribution], *, from_data: bool, unequal: bool
) -> Flight[tuple[Any, ...]]:
    """Pass each member what is for it."""
    own = payloads[members.index]
    if not from_data and not unequal:
        alike = members.all_to_all([pack(payload) for payload in payloads])
        return Flight(alike.works, lambda: tuple(unpack(own, each) for each in alike.finish()))
    messages, words = zip(*map(_with_shapes, payloads), strict=True)
    if not from_data:
        members.tell("all_to_all", [WORD_BYTES] * members.size)
    sizes = members.all_to_all([np.array([len(message)], np.int64) for message in messages]).wait()
    members.tell("all_to_all", [words[0] * WORD_BYTES] * members.size, within=True)
    arrived = members.all_to_all(messages, [int(size[0]) for size in sizes])
    return Flight(arrived.works, lambda: tuple(_opened(own, each, words[0]) for each in arrived.finish()))


def broadcast(members: Members, payload: Contribution | None, root: int, *, from_data: bool) -> Flight[Any]:
    """Pass the root's payload to all, who know nothing of it."""
    message = np.empty(0, np.uint8) if payload is None or members.index != root else envelope(payload)
    if not from_data:
        members.tell("broadcast", [WORD_BYTES], root=root)
    length = int(members.broadcast(np.array([len(message)], np.int64), root).wait()[0])
    if members.index == root:
        assert payload is not None
        members.tell("broadcast", [length - len(pack(payload))], root=root, within=True)
    arrived = members.broadcast(message if members.index == root else np.empty(length, np.uint8), root)
    return Flight(arrived.works, lambda: opened(arrived.finish()))


def exchange(members: Members, payloads: Mapping[int, Contribution], *, from_data: bool) -> Flight[dict[int, Any]]:
    """Send payloads to some members; receive what some have for this one, from those who say that they have."""
    messages = {to: envelope(payload) for to, payload in sorted(payloads.items())}
    lengths = np.array([[len(messages[to]) if to in messages else 0] for to in range(members.size)], np.int64)
    members.tell("all_to_all", [WORD_BYTES] * members.size)
    told = [int(each[0]) for each in members.all_to_all(list(lengths)).wait()]
    coming = {source: length for source, length in enumerate(told) if length}
    if from_data:
        sizes = {to: lengths[to].view(np.uint8) for to in messages}
        members.pass_on(sizes, dict.fromkeys(coming, WORD_BYTES)).wait()
    described = [len(messages[to]) - len(pack(payloads[to])) if to in messages else 0 for to in range(members.size)]
    members.tell("all_to_all", described, within=True)
    arrived = members.pass_on(messages, coming)
    return Flight(arrived.works, lambda: {source: opened(each) for source, each in sorted(arrived.finish().items())})


def _with_shapes(payload: Contribution) -> tuple[Bytes, int]:
    """Return a payload behind the shapes of its arrays, and how many numbers these are."""
    shapes: Ints = shapes_of(payload)
    return np.concatenate([shapes.view(np.uint8), pack(payload)]), len(shapes)


def _opened(like: Contribution, message: Bytes, words: int) -> Any:
    begin = words * WORD_BYTES
    return unpack(like, message[begin:], message[:begin].copy().view(np.int64))


def _in_order(arrived: Mapping[int, Bytes], members: Members, own: Bytes) -> list[Bytes]:
    return [own if at == members.index else arrived[at] for at in range(members.size)]
