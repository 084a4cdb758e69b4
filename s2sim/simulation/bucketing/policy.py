"""The interface of bucketing policies, and the exchange of an iteration's buckets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import accumulate, zip_longest
from typing import ClassVar, TypeAlias

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.files import own_tables
from s2sim.options import Described, build, option_text, split_option_string
from s2sim.reducers.script import (
    AwaitGradient,
    Call,
    Post,
    Recording,
    Script,
    Step,
    Wait,
    join_recordings,
    split_at_gradient,
)
from s2sim.registry import Catalogue, Registry

Exchange: TypeAlias = Callable[[int], int]


@dataclass(frozen=True, slots=True, eq=False)
class ReadyTensors:
    """Gradients in the order in which they become ready; arrays of shape (t,)."""

    bytes: Ints  # In the gradient dtype
    ready_ps: Ints  # After the beginning of backward, non-decreasing
    sparse: Mask  # Whether it is row-sparse
    itemsize: int = 4  # Bytes of a gradient's element
    blocks: Ints | None = None  # Number of the block of layers that each belongs to; -1 outside of blocks

    @property
    def elements(self) -> Ints:
        """Of each."""
        return self.bytes // self.itemsize

    @property
    def block_of(self) -> Ints:
        """``blocks``, -1 for all where they are not known."""
        return np.full(len(self.bytes), -1) if self.blocks is None else self.blocks


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that leave together, once the last of them is ready."""

    tensors: tuple[int, ...]  # Positions in the order of readiness, increasing
    priority: int = 0  # Of ready buckets the smallest number goes first; equal ones in the order of readiness


@dataclass(frozen=True, slots=True)
class Discipline(Described):
    """How gradients are exchanged. A discipline is a dataclass of its options, with defaults."""

    catalogue = Catalogue(__name__.rpartition(".")[0], own_tables(__file__, "disciplines.toml"))
    summary: ClassVar[str]
    source: ClassVar[str]
    example: ClassVar[str]  # An option string
    waits_for_all: ClassVar[bool] = True  # Whether the next forward waits for all gradients, or a layer for its own
    accumulates: ClassVar[bool] = True  # Whether ranks add up several mini-batches' gradients and exchange the sum
    by_times: ClassVar[bool] = False  # Whether buckets follow from times, and so differ with rates and mini-batches

    @property
    def text(self) -> str:
        """Its option string, which `make_discipline` reads back."""
        return option_text(self)

    @property
    def caveat(self) -> str:
        """What others do under its name, for people; empty for nothing."""
        return ""

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Partition tensors into buckets, in order of exchange; ``exchange_ps`` times a dense all-reduce by bytes."""
        raise NotImplementedError


def fill_buckets(
    sizes_bytes: Sequence[int], apart: Mask, *, first_bytes: int, limit_bytes: int
) -> list[tuple[int, ...]]:
    """Return each bucket's gradients in order of closing, as ``compute_bucket_assignment_by_size`` of PyTorch's c10d.

    A bucket closes with the gradient that reaches its limit; gradients marked ``apart`` have their own buckets.
    """
    closed: list[tuple[int, ...]] = []
    filling: list[int] = []
    held_bytes, now_bytes = 0, first_bytes
    for place, (size_bytes, alone) in enumerate(zip(sizes_bytes, apart.tolist(), strict=True)):
        if alone:
            closed.append((place,))
            continue
        filling.append(place)
        held_bytes += size_bytes
        if held_bytes >= now_bytes:
            closed.append(tuple(filling))
            filling, held_bytes, now_bytes = [], 0, limit_bytes
    return [*closed, tuple(filling)] if filling else closed


def finish_ps(buckets: Sequence[Bucket], tensors: ReadyTensors, exchange_ps: Exchange) -> Ints:
    """Return the end of each bucket's exchange in picoseconds after the beginning of backward, int64 (buckets,).

    What has begun is not interrupted, and of buckets that are ready the one of smallest priority goes first. Where
    priorities are equal and bucket i is ready after those before it, that is

        e_i = max(e_{i-1}, ready_i) + exchange(bytes_i).
    """
    last = [bucket.tensors[-1] for bucket in buckets]
    ready = tensors.ready_ps[last].tolist() if buckets else []
    coming = [(at, number) for number, at in enumerate(ready)]
    heapify(coming)
    waiting: list[tuple[int, int, int]] = []
    ends = np.zeros(len(buckets), np.int64)
    now = 0
    while coming or waiting:
        if not waiting:
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            at, number = heappop(coming)
            heappush(waiting, (buckets[number].priority, at, number))
        _, _, number = heappop(waiting)
        now += exchange_ps(int(tensors.bytes[list(buckets[number].tensors)].sum()))
        ends[number] = now
    return ends


DISCIPLINES = Registry("discipline", "s2sim.disciplines", Discipline.catalogue.places)


def make_discipline(text: str) -> Discipline:
    """Return the discipline of an option string.

    >>> make_discipline("ddp:bucket=50MiB").bucket.bytes
    52428800
    """
    name, options = split_option_string(text)
    discipline: Discipline = build(DISCIPLINES.get(name), options, name)
    return discipline


@dataclass(frozen=True, slots=True)
class BucketExchange:
    """One bucket, and the recording of the reducer on it."""

    bucket: Bucket
    recording: Recording


def in_hook(exchange: Sequence[BucketExchange]) -> tuple[BucketExchange, ...]:
    """Return buckets as `s2sim.pytorch.hook` reduces them: in each, ranks first agree that all gradients are finite."""
    ranks = exchange[0].recording.workers
    agreement = Call("all_reduce", "max", "uint8", 1, (1,) * ranks, size_from_data=False, label="all are finite")
    first = Recording((agreement,), ((Post(0), Wait((0,))),) * ranks)
    return tuple(
        replace(each, recording=replace(join_recordings([first, each.recording]), steps=each.recording.steps))
        for each in exchange
    )


def merge_recordings(exchange: Sequence[BucketExchange]) -> Recording:
    """Return one recording of all buckets, in which each rank interleaves their programs at waits in bucket order."""
    if len(exchange) == 1:
        return exchange[0].recording
    calls = [call for each in exchange for call in each.recording.calls]
    firsts = [0, *accumulate(len(each.recording.calls) for each in exchange)]
    # Most ranks have equal scripts in all buckets, which are merged once.
    cache: dict[tuple[int, ...], Script] = {}
    representatives = [each.recording.representatives for each in exchange]
    scripts = []
    for key in zip(*representatives, strict=True):
        if key not in cache:
            own = [split_at_gradient(each.recording.scripts[rank]) for each, rank in zip(exchange, key, strict=True)]
            halves = zip(*own, strict=True)
            parts = [[_split_at_waits(*each) for each in zip(half, firsts, strict=False)] for half in halves]
            early, late = (
                tuple(step for turn in zip_longest(*programs, fillvalue=()) for script in turn for step in script)
                for programs in parts
            )
            cache[key] = (*early, AwaitGradient(), *late) if early else late
        scripts.append(cache[key])
    buckets = tuple(number for number, each in enumerate(exchange) for _ in each.recording.calls)
    return Recording(tuple(calls), tuple(scripts), max(each.recording.steps for each in exchange), buckets)


def _split_at_waits(script: Script, first_call: int) -> list[Script]:
    turns: list[list[Step]] = [[]]
    for step in script:
        if isinstance(step, Post):
            turns[-1].append(replace(step, call=first_call + step.call))
        elif isinstance(step, Wait):
            turns.append([Wait(tuple(first_call + call for call in step.calls))])
        else:
            turns[-1].append(step)
    return [tuple(turn) for turn in turns]
