"""What a recording sends between Gloo's processes, by rank: data, and what the library adds to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from s2sim.bridge.processes.gloo_wire import Messages, messages_of
from s2sim.bridge.processes.messages import WORD_BYTES
from s2sim.collectives.schedules.blocks import exchange
from s2sim.collectives.schedules.demand import Demand
from s2sim.replay.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.arrays import Ints
    from s2sim.collectives.libraries.library import Library
    from s2sim.reducers.scripts.script import Recording


class Sent(NamedTuple):
    """Bytes of each rank, int64 of shape (ranks,) each: the payload, headers, and what receivers are told besides."""

    payload: Ints
    headers: Ints
    told: Ints


def predicted(recording: Recording, library: Library, told: Sequence[Sequence[Mapping[str, Any]]]) -> Sent:
    """Return what each rank sends.

    Parameters
    ----------
    told : sequence of sequences of mappings
        Of each rank what it told others beside its program, as `s2sim.bridge.processes.members.Told` has it.
    """
    workers = recording.workers
    found = Sent(*np.zeros((3, workers), np.int64))
    for call, lowered in zip(recording.calls, make_plan(recording, library).lowered, strict=True):
        ranks = np.array(lowered.ranks or range(workers))
        for demand in lowered.demands:
            data, headers = messages_of(demand, pairs_alone=call.op == "peers").sent(len(ranks))
            found.payload[ranks] += data
            found.headers[ranks] += headers
    for own in told:
        for each in own:
            _add_told(found, each)
    return found


def _add_told(found: Sent, told: Mapping[str, Any]) -> None:
    """Add what one rank's note says: each tells its own share, but for broadcasts, of which the root does alone."""
    ranks, own = np.array(told["ranks"]), told["sizes_bytes"]
    size, here = len(ranks), told["place"]
    if told["kind"] == "broadcast":
        if told["within"]:
            data = _tree(size, told["root"], own[0]).sent(size)[0]
            found.told[ranks] += data
        elif here == told["root"]:
            data, headers = _tree(size, told["root"], own[0]).sent(size)
            found.told[ranks] += data + headers
        return
    if told["within"]:
        found.told[ranks[here]] += sum(own) - own[here]
        return
    words = np.full((size, size), WORD_BYTES, np.int64)
    demand = Demand("all_gather", (WORD_BYTES,) * size, 1) if told["kind"] == "all_gather" else exchange(words, 1)
    data, headers = messages_of(demand).sent(size)
    found.told[ranks[here]] += data[here] + headers[here]


def _tree(size: int, root: int, size_bytes: int) -> Messages:
    return messages_of(Demand("broadcast", (size_bytes,) * size, 1, root))
