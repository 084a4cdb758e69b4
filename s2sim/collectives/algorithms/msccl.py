"""Algorithms of MSCCL's XML: thread blocks whose steps send, receive, copy and add chunks of buffers.

The form is that of microsoft/msccl (src/graph/connect.cc reads it) and msccl-tools. A program is proved when it is
read: it is executed on values in two orders, and every rank has to end with the result of the collective.
"""

import re
from collections import defaultdict, deque
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives import Kind
from s2sim.collectives.schedules.check import expected_positions, initial_buffers
from s2sim.collectives.schedules.demand import Demand, cut
from s2sim.collectives.schedules.exchange import Hops
from s2sim.collectives.schedules.schedule import Pattern, Pieces, Round, Schedule, Stage, Step
from s2sim.errors import ContendedError, OptionError, warn
from s2sim.files import parse_xml, read_text
from s2sim.topology.cluster import Cluster
from s2sim.units import format_bytes

_RUN: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_KINDS = {kind.replace("_", ""): kind for kind in _RUN}
_MAX_RANKS, _MAX_CHUNKS, _MAX_STEPS, _MAX_MOVED, _MAX_VALUES = 1024, 1 << 21, 200_000, 1 << 22, 1 << 24
_TYPES = ("s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop")
_RECEIVE, _SEND = ("r", "rcs", "rrs", "rrc", "rrcs"), ("s", "rcs", "rrs", "rrcs")
_READ, _WRITE = ("s", "rrs", "rrc", "rrcs", "cpy", "re"), ("r", "rcs", "rrc", "rrcs", "cpy", "re")


class _Step(NamedTuple):
    type: str  # One of `_TYPES`
    source: int  # First place in the memory of its rank, -1 of none
    target: int
    chunks: int
    waits: tuple[int, int, int] | None  # Rank, thread block and step


class _Block(NamedTuple):
    rank: int
    id: int
    out: tuple[int, int, int]  # Connections: source, target and channel; -1 for no rank
    into: tuple[int, int, int]
    steps: list[_Step]


@dataclass(slots=True)
class _Message:
    ends: tuple[int, ...]  # Source and target
    positions: Ints  # Chunks of the buffers of all ranks
    after: tuple[int, ...]  # Messages that have to be delivered before
    after_sent: tuple[int, ...]  # Messages that have to be sent before
    adds: bool = False  # Whether its receiver adds it


@dataclass(frozen=True, slots=True)
class Msccl:
    """A program of MSCCL."""

    name: ClassVar[str] = "msccl"
    source: ClassVar[str] = "Cowan et al., MSCCLang, ASPLOS 2023"
    auto: ClassVar[tuple[str, ...]] = ()
    sha256: str
    file: str = field(compare=False)
    kinds: tuple[str, ...] = field(compare=False)
    demand: Demand = field(compare=False, repr=False)  # Of chunks
    messages: list[_Message] = field(compare=False, repr=False)
    protocol: str = field(compare=False)
    sizes_bytes: tuple[int, int] = field(compare=False)  # The least and the most that it is for; 0 for any

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule: a step for each message, after those that its thread block has to wait for."""
        if demand.ranks != self.demand.ranks:
            raise OptionError(f"{self.file} is for {self.demand.ranks} ranks, and {demand.ranks} were asked for")
        if demand.blocks:
            raise OptionError(f"{self.file} exchanges equal blocks, and these differ: take another algorithm")
        least, most = self.sizes_bytes
        if not least <= demand.buffer_bytes <= (most or demand.buffer_bytes):
            bounds = f"{format_bytes(least)} {f'to {format_bytes(most)}' if most else 'and more'}"
            warn(f"{self.file} is for {bounds}: MSCCL would not run it for {format_bytes(demand.buffer_bytes)}")
        chunks = self.demand.elements[0]
        begin, end = (side[: None if not demand.shared else 1] for side in demand.stretches())
        size = (demand.sizes_bytes if not demand.shared else np.array([float(demand.buffer_bytes)])) / chunks
        rounds: dict[tuple[tuple[int, ...], float], Round] = {}
        steps = []
        for message in self.messages:
            key = message.ends, float(size[message.positions // chunks].sum())
            if key not in rounds:
                source, target = np.array([message.ends]).T
                rounds[key] = Round(Pattern(source, target), np.array(key[1:]))
            steps.append(Step(rounds[key], 1, message.after, message.after_sent))

        def pieces(index: int, _time: int) -> Pieces:
            owner, part = np.divmod(self.messages[index].positions, chunks)
            start, stop = cut(begin[owner], end[owner], part, chunks)
            return Pieces(np.zeros(len(part), np.int64), start, stop, np.full(len(part), self.messages[index].adds))

        return Schedule(demand, self.file, Stage(steps, pieces, chain=False), wants_protocol=self.protocol)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Raise `ContendedError`: a program has no closed form."""
        raise ContendedError(f"{self.file} has no closed form: simulate it instead")


def read_msccl(path: Path) -> Msccl:
    """Return the algorithm of an XML file; `OptionError` names the rank and step that hang, or leave a wrong chunk."""
    text = read_text(path, noun="the algorithm", error=OptionError)
    root = parse_xml(text, path, "algo", "MSCCL", OptionError)
    program = _Program(str(path), root)
    program.run(last_first=True)
    program.run(last_first=False)
    demand = program.demand
    bounds = [program.number(root, name, 0, 2**62) if root.get(name) else 0 for name in ("minBytes", "maxBytes")]
    return Msccl(
        sha256=sha256(text.encode()).hexdigest(),
        file=str(path),
        kinds=(demand.kind,),
        demand=demand,
        messages=program.messages,
        protocol=root.get("proto", ""),
        sizes_bytes=(bounds[0], bounds[1]),
    )


# By connection (source, target, channel), and whether it has to be delivered or only sent: the last message waited for.
_Clock: TypeAlias = dict[tuple[int, int, int, bool], int]


class _Program:
    """The thread blocks of all ranks, and their execution on values.

    A buffer is the first place in the memory of its rank, and its chunks. Each value has with it the position of its
    chunk, -1 where nothing was written. Messages of a connection arrive in order; any number of them may be on the way.
    """

    def __init__(self, file: str, root: Any) -> None:
        self.file = file
        if (kind := _KINDS.get(root.get("coll", "").replace("_", "").lower())) is None:
            raise OptionError(f"{file}: coll={root.get('coll', '')[:40]!r} is none of {', '.join(_KINDS)}")
        ranks = self.number(root, "ngpus", 1, _MAX_RANKS)
        chunks = self.number(root, "nchunksperloop", 1, _MAX_CHUNKS // ranks)
        own, gpus = chunks // ranks, {self.number(gpu, "id", 0, ranks - 1): gpu for gpu in root.iter("gpu")}
        if len(gpus) < ranks or (kind != "all_reduce" and chunks % ranks) or sum(1 for _ in root.iter()) > _MAX_STEPS:
            raise OptionError(
                f"{file} has {len(gpus)} of {ranks} <gpu>, over {_MAX_STEPS:,} elements, or an nchunksperloop={chunks} "
                f"that does not divide by ngpus, as {kind} needs"
            )
        gathers, scatters = kind == "all_gather", kind == "reduce_scatter"
        self.demand = Demand(kind, (own if gathers or scatters else chunks,) * ranks, 4)
        inputs, outputs = own if gathers else chunks, own if scatters else chunks
        self.buffers: list[dict[str, tuple[int, int]]] = []
        self.blocks: list[_Block] = []
        for rank, gpu in sorted(gpus.items()):
            # In place, input and output are one buffer, or a part of it.
            begins, used = (rank * own * gathers, rank * own * scatters), chunks
            if root.get("inplace") != "1":
                begins, used = (0, inputs), inputs + outputs
            scratch = used, self.number(gpu, "s_chunks", 0, _MAX_CHUNKS // ranks)
            self.buffers.append({"i": (begins[0], inputs), "o": (begins[1], outputs), "s": scratch})
            steps = {self.number(tb, "id", 0, _MAX_STEPS): tb.findall("step") for tb in gpu.findall("tb")}
            for tb in gpu.findall("tb"):
                send, receive = (self.number(tb, side, -1, ranks - 1) for side in ("send", "recv"))
                channel = self.number(tb, "chan", 0, _MAX_STEPS)
                block = _Block(rank, int(tb.get("id")), (rank, send, channel), (receive, rank, channel), [])
                block.steps.extend(self.read_step(step, block, at, steps) for at, step in enumerate(tb.findall("step")))
                self.blocks.append(block)
        moved = sum(step.chunks for block in self.blocks for step in block.steps)
        if ranks * self.demand.buffer_elements > _MAX_VALUES or moved > _MAX_MOVED:
            raise OptionError(f"{file}: {ranks} ranks move {moved:,} of {chunks:,} chunks, more than can be proved")

    def number(self, element: Any, name: str, least: int, most: int) -> int:
        text = element.get(name, "")
        if not re.fullmatch(r"-?\d{1,9}", text) or not least <= int(text) <= most:
            raise OptionError(f"{self.file}: <{element.tag}> has {name}={text[:40]!r}, which is not {least} to {most}")
        return int(text)

    def wrong(self, block: _Block, at: int, text: str) -> OptionError:
        return OptionError(f"{self.file}: rank {block.rank}, thread block {block.id}, step {at}: {text}")

    def read_step(self, step: Any, block: _Block, at: int, steps: dict[int, list[Any]]) -> _Step:
        kind, count = step.get("type", ""), self.number(step, "cnt", 0, _MAX_CHUNKS)
        if self.number(step, "s", 0, _MAX_STEPS) != at or kind not in _TYPES:
            raise self.wrong(block, at, f"s={step.get('s')}, type={kind[:40]!r}: s counts from 0, types are {_TYPES}")
        if (kind in _RECEIVE and block.into[0] < 0) or (kind in _SEND and block.out[1] < 0):
            raise self.wrong(block, at, f"{kind} needs a rank, and its thread block has none in send or recv")
        places = []
        for side, types in (("src", _READ), ("dst", _WRITE)):
            begin, size = self.buffers[block.rank].get(step.get(f"{side}buf", ""), (0, 0))
            offset = self.number(step, f"{side}off", -1, _MAX_CHUNKS)
            if kind in types and not (count and 0 <= offset <= size - count):
                raise self.wrong(block, at, f"{side}off={offset}, cnt={count} is in no buffer: there are {size} chunks")
            places.append(begin + offset if kind in types else -1)
        waits = self.number(step, "depid", -1, _MAX_STEPS), self.number(step, "deps", -1, _MAX_STEPS)
        if waits[0] >= 0 and not 0 <= waits[1] < len(steps.get(waits[0], ())):
            raise self.wrong(block, at, f"step {waits[1]} of thread block {waits[0]} is not there to wait for")
        return _Step(kind, places[0], places[1], count, (block.rank, *waits) if waits[0] >= 0 else None)

    def run(self, *, last_first: bool) -> None:
        """Execute all thread blocks in one of two orders; `OptionError` for what hangs or leaves a wrong result."""
        self.values, begin = initial_buffers(self.demand, np.random.default_rng(0)), self.demand.stretches()[0]
        self.memory: list[Ints] = []
        for rank, ((first, inputs), _, scratch) in enumerate(each.values() for each in self.buffers):
            own = np.stack([np.zeros(sum(scratch), np.int64), np.full(sum(scratch), -1)])
            position = np.arange(inputs) + (begin[rank] if inputs == self.demand.elements[0] else 0)
            own[:, first : first + inputs] = self.values[rank, position], position
            self.memory.append(own)
        self.writers: list[dict[int, tuple[_Block, int]]] = [{} for _ in self.memory]
        self.messages: list[_Message] = []
        self.flying: dict[tuple[int, ...], deque[tuple[int, Ints]]] = defaultdict(deque)
        # The clocks of steps that others wait for, once done.
        waits = (step.waits for block in self.blocks for step in block.steps if step.waits)
        self.known: dict[tuple[int, ...], _Clock | None] = dict.fromkeys(waits)
        clocks, done, pending = [_Clock() for _ in self.blocks], [0] * len(self.blocks), deque(range(len(self.blocks)))
        waiting: dict[tuple[int, ...], list[int]] = defaultdict(list)
        while pending:
            which = pending.pop() if last_first else pending.popleft()
            for at in range(done[which], len(self.blocks[which].steps)):
                if missing := self.missing(self.blocks[which], at):
                    waiting[missing].append(which)
                    break
                for made in self.execute(self.blocks[which], at, clocks[which]):
                    pending.extend(waiting.pop(made, ()))
                done[which] = at + 1
        for block, at in zip(self.blocks, done, strict=True):
            if at < len(block.steps):
                from_rank = self.missing(block, at) == block.into
                what = f"a message of rank {block.into[0]}" if from_rank else f"what depid={block.steps[at].waits} says"
                raise self.wrong(block, at, f"it hangs: {what} never comes")
        for connection in (connection for connection, sent in self.flying.items() if sent):
            raise OptionError(f"{self.file}: rank {connection[0]} sends rank {connection[1]} what it does not receive")
        self.check()

    def missing(self, block: _Block, at: int) -> tuple[int, ...] | None:
        """Return the step, or the connection, that a step still waits for."""
        step = block.steps[at]
        if step.waits and self.known[step.waits] is None:
            return step.waits
        return block.into if step.type in _RECEIVE and not self.flying[block.into] else None

    def execute(self, block: _Block, at: int, clock: _Clock) -> list[tuple[int, ...]]:
        """Execute a step, and return what others may have waited for."""
        step, own, made = block.steps[at], self.memory[block.rank], list[tuple[int, ...]]()
        for key, message in (self.known[step.waits] or {}).items() if step.waits else ():
            clock[key] = max(clock.get(key, -1), message)
        source, target = (slice(place, place + step.chunks) for place in (step.source, step.target))
        data = other = own[:, target] if step.type == "re" else own[:, :0]
        if step.type in _READ:
            data = own[:, source].copy()
        if step.type in _RECEIVE:
            message, other = self.flying[block.into].popleft()
            clock[*block.into, True] = message
            self.messages[message].adds = step.type in _READ or step.target >= self.buffers[block.rank]["s"][0]
            data = data if step.type in _READ else other
        if other.shape[1] not in (0, step.chunks) or (other.size and (data[1] != other[1]).any()):
            lists = [each[1, :4].tolist() for each in (other, data)]
            raise self.wrong(block, at, f"chunks {lists[0]} come for {step.chunks} chunks {lists[1]} (-1: not written)")
        if (data[1] < 0).any():
            raise self.wrong(block, at, "it reads a chunk that nothing was written to before")
        if step.type in ("rrs", "rrc", "rrcs", "re"):
            data = np.stack([data[0] + other[0], data[1]])
        if step.target >= 0:
            own[:, target] = data
            self.writers[block.rank].update(dict.fromkeys(range(target.start, target.stop), (block, at)))
        if step.type in _SEND:
            before = [tuple({last for (*_, way), last in clock.items() if way is side}) for side in (True, False)]
            self.flying[block.out].append((len(self.messages), data))
            clock[*block.out, False] = len(self.messages)
            self.messages.append(_Message(block.out[:2], data[1], before[0], before[1]))
            made.append(block.out)
        if (here := (block.rank, block.id, at)) in self.known:
            self.known[here] = dict(clock)
            made.append(here)
        return made

    def check(self) -> None:
        """Raise `OptionError` unless the memory of every rank has the result of the collective."""
        expected, positions = self.values.sum(axis=0), expected_positions(self.demand)
        for rank, own in enumerate(self.memory):
            begin, count = self.buffers[rank]["o"]
            position = np.flatnonzero(positions[rank])
            differ = (own[:, begin : begin + count] != [expected[position], position]).any(axis=0)
            for chunk in np.flatnonzero(differ)[:1].tolist():
                block, at = self.writers[rank].get(begin + chunk, (None, 0))
                last = "which no step writes" if block is None else f"as thread block {block.id}, step {at} leaves it"
                raise OptionError(f"{self.file}: rank {rank} ends with a wrong chunk {chunk} of {count}, {last}")
