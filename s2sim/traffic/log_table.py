"""What a log states: tables of measured times, and lines of NCCL_DEBUG=INFO on how a collective ran."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One message size; None if the log does not state it.

    ``line`` counts from 1, ``size_bytes`` is as nccl-tests counts it, ``wrong`` values were found by its check.
    ``algorithm``, ``protocol`` (as ``ring``, ``LL128``) and ``channels`` are the stated choice of the library.
    """

    line: int
    size_bytes: int
    time_s: float
    wrong: float | None
    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None
    bus_factors: tuple[float, float] | None = None  # Between which busbw over algbw lies, by their digits


@dataclass(frozen=True, slots=True)
class RankDevice:
    """Where a rank ran."""

    rank: int
    host: str
    gpu: str


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """One table of a log and the facts of the lines around it; None or empty if not stated."""

    line: int  # Where its header stands in the log, from 1 on
    collective: str | None  # By the name that s2sim has for it, else by that of the log
    ranks: int | None
    rows: tuple[MeasuredRow, ...]  # In the order of the log, in which sizes may come again
    library: str | None = None
    devices: tuple[RankDevice, ...] = ()
    gpus_per_thread: int | None = None  # GPUs that one thread launches on, one after the other
    channels: int | None = None  # Channels that the library has for collectives
    unfinished: tuple[int, ...] = ()  # Lines of rows that were begun and have no figures
    # rings, trees: of each channel: the ranks of its ring in their order, and the parent of each rank in its tree, -1
    # of the root
    rings: tuple[tuple[int, ...], ...] = ()
    trees: tuple[tuple[int, ...], ...] = ()
    transports: tuple[str, ...] = ()
    members: tuple[int, ...] = ()  # Numbers of its ranks in their job

    @property
    def timed(self) -> tuple[MeasuredRow, ...]:
        """Rows with bytes and a time."""
        return tuple(row for row in self.rows if row.size_bytes and row.time_s)

    @property
    def hiccups(self) -> tuple[int, ...]:
        """Lines of rows that a larger message was over 30 % faster than."""
        late = hiccups([row.size_bytes for row in self.timed], [row.time_s for row in self.timed])
        return tuple(row.line for row, is_late in zip(self.timed, late, strict=True) if is_late)

    @property
    def hosts(self) -> int:
        """Hosts that are listed."""
        return len({device.host for device in self.devices})

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPUs that are listed, each once."""
        return tuple(dict.fromkeys(device.gpu for device in self.devices if device.gpu))


def hiccups(sizes_bytes: Sequence[int], times_s: Sequence[float]) -> list[bool]:
    """Return whether each message took over 30 % longer than a larger one, as indexes of measured curves have it.

    >>> hiccups([8, 16, 16, 32], [1.0, 1.4, 0.5, 1.05])
    [True, True, False, False]
    """
    order, times = np.argsort(sizes_bytes), np.asarray(times_s, np.float64)
    least_s = np.append(np.minimum.accumulate(times[order][::-1])[::-1], np.inf)
    larger = np.searchsorted(np.asarray(sizes_bytes)[order], sizes_bytes, side="right")
    late: list[bool] = (times > _HICCUP * least_s[larger]).tolist()
    return late


_HICCUP = 1.3
_NRANKS = re.compile(r"\bn[rR]anks (\d{1,8})\b")
_CHANNELS = re.compile(r"\b(\d{1,8}) coll channels\b")
# Names since 2.24, with the channels; before, numbers in the order of their enumerations.
_CHOICE = re.compile(
    r"\b(\d{1,19}) Bytes -> Algo (\w+) proto (\w+)(?:.*\bchannel\{Lo\.\.Hi\}=\{(\d{1,6})\.\.(\d{1,6})\})?"
)
_FORCED = re.compile(r"\bNCCL_(ALGO|PROTO) set by environment to (\w+)\.?\s*$")
_RING = re.compile(r"\bChannel (\d{1,4})/\d{1,4} :((?:\s+\d{1,7})+)\s*$")
# A rank says which one it receives from and sends to.
_RANK_IN_RING = re.compile(r"\bRing (\d{1,4}) : (\d{1,7}) -> (\d{1,7}) -> (\d{1,7})\s*$")
_CONNECTION = re.compile(
    r"\b(?:Channel|Ring) (\d{1,4})(?:/0)? : (\d{1,7})(?:\[\w+\])? -> (\d{1,7})(?:\[\w+\])?(?: \[(?:send|receive)\])?"
    r" via (\S+)"
)
# Children, the rank that says it, and its parent.
_RANK_IN_TREE = re.compile(r"\[(\d{1,4})\] -?\d{1,7}/-?\d{1,7}/-?\d{1,7}->(\d{1,7})->(-1|\d{1,7})")
_ALGORITHMS = ("tree", "ring", "collnet-direct", "collnet-chain", "nvls", "nvls-tree", "pat")
_PROTOCOLS = ("LL", "LL128", "Simple")


class LoggedChoice(NamedTuple):
    """What the library took for a size: its words for algorithm and protocol, and how many channels; None unknown."""

    algorithm: str | None = None
    protocol: str | None = None
    channels: int | None = None


@dataclass(slots=True)
class NcclDebugInfo:
    """The facts of the lines so far; ``choices`` by size in bytes."""

    nranks: int | None = None
    channels: int | None = None
    choices: dict[int, LoggedChoice] = field(default_factory=dict)
    _forced: dict[str, str] = field(default_factory=dict)
    _listed: dict[int, list[int]] = field(default_factory=dict)
    _following: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    _parents: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    _transports: Counter[str] = field(default_factory=Counter)

    def note(self, text: str) -> None:
        """Read a line."""
        if found := _CONNECTION.search(text):
            channel, source, target = map(int, found.groups()[:3])
            # Connections of rings are made before those of trees.
            self._following[channel].setdefault(source, target)
            self._transports[found[4]] += 1
        elif found := _RING.search(text):
            self._listed[int(found[1])] = [int(rank) for rank in found[2].split()]
        elif found := _RANK_IN_RING.search(text):
            self._following[int(found[1])][int(found[3])] = int(found[4])
        elif "Trees [" in text:
            for channel, rank, parent in _RANK_IN_TREE.findall(text):
                self._parents[int(channel)][int(rank)] = int(parent)
        elif found := _NRANKS.search(text):
            self.nranks = int(found[1])
        elif found := _CHANNELS.search(text):
            self.channels = int(found[1])
        elif found := _CHOICE.search(text):
            channels = None if found[4] is None else int(found[5]) - int(found[4]) + 1
            chosen = LoggedChoice(_lookup_name(found[2], _ALGORITHMS), _lookup_name(found[3], _PROTOCOLS), channels)
            self.choices[int(found[1])] = chosen
        elif found := _FORCED.search(text):
            self._forced[found[1]] = _lookup_name(found[2], _ALGORITHMS if found[1] == "ALGO" else _PROTOCOLS)

    def choice(self, size_bytes: int) -> LoggedChoice:
        """Return the choice of the library for a size, or the forced one for all."""
        return self.choices.get(size_bytes, LoggedChoice(self._forced.get("ALGO"), self._forced.get("PROTO")))

    def rings(self, ranks: int) -> tuple[tuple[int, ...], ...]:
        """Return the ring of each channel through all ranks, if complete."""
        found = []
        for channel in sorted({*self._listed, *self._following}):
            for ring in (self._listed.get(channel, []), _ring_of_pairs(self._following.get(channel, {}))):
                if ring and sorted(ring) == list(range(ranks)):
                    found.append(tuple(ring))
                    break
        return tuple(found)

    def trees(self, ranks: int) -> tuple[tuple[int, ...], ...]:
        """Return the parent of each rank in the tree of each channel, -1 of its root, if complete."""
        every = (self._parents[channel] for channel in sorted(self._parents))
        whole = ([parents[rank] for rank in range(ranks)] for parents in every if parents.keys() == set(range(ranks)))
        return tuple(tuple(parents) for parents in whole if _is_tree(parents))

    @property
    def transports(self) -> tuple[str, ...]:
        """Transports between ranks, as ``P2P/CUMEM`` or ``NET/IB/0/GDRDMA``, the most frequent first."""
        return tuple(name for name, _ in self._transports.most_common())


def _ring_of_pairs(following: Mapping[int, int]) -> list[int]:
    """Return the ring from rank 0 with these successors; empty if they do not lead back to it.

    >>> _ring_of_pairs({0: 2, 2: 1, 1: 0}), _ring_of_pairs({0: 1, 1: 1})
    ([0, 2, 1], [])
    """
    order = [0]
    while len(order) < len(following) and (at := following.get(order[-1])):
        order.append(at)
    return order if following.get(order[-1]) == 0 else []


def _is_tree(parents: Sequence[int]) -> bool:
    """Return whether each member reaches the only one with parent -1 over parents.

    >>> _is_tree([-1, 0, 1]), _is_tree([-1, 2, 1]), _is_tree([1, -1, 5])
    (True, False, False)
    """
    children = defaultdict(list)
    for member, parent in enumerate(parents):
        children[parent].append(member)
    reached = list(children[-1])
    for member in reached:
        reached += children[member]
    return len(children[-1]) == 1 and len(reached) == len(parents)


def _lookup_name(text: str, names: tuple[str, ...]) -> str:
    """Return the name that a number or a name stands for; what is not known stays as it is."""
    if len(text) == 1 and text in "0123456789"[: len(names)]:
        return names[int(text)]
    known = {name.upper().replace("-", ""): name for name in names}
    return known.get(text.upper().replace("_", ""), text)
