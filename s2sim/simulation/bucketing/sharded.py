"""Sharded data parallelism: parameters, gradients and optimizer states divided among ranks (FSDP, ZeRO)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from s2sim.arrays import Ints
from s2sim.errors import OptionError, S2SimError
from s2sim.options import Size
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.script import Call, Post, Recording, Script, Step, Wait, Work, recording_bytes
from s2sim.simulation.bucketing.policy import Bucket, BucketExchange, Discipline, Exchange, ReadyTensors, fill_buckets

Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""Ranks by group, each rank in one; empty for one group of all."""

PARAMETERS = "parameters"
"""Label of their all-gathers."""

_ZERO_BUCKET = Size("1GB")
# Of quantised weights, with a float32 scale each (ZeRO++, section 3.1: blocks keep the error small).
_QUANTISED_BLOCK = 2048


@dataclass(frozen=True, slots=True)
class Gather:
    """An all-gather of a bucket's parameters, which a pass waits for before its kernel number ``at``."""

    exchange: BucketExchange
    at: int = 0


@dataclass(frozen=True, slots=True)
class ParameterGathers:
    """All-gathers of parameters, in the order in which each pass needs them."""

    forward: tuple[Gather, ...] = ()
    backward: tuple[Gather, ...] = ()
    after_step: tuple[Gather, ...] = ()  # Once the optimizer has run; the next forward waits for all
    prefetch: int = 1  # How many are posted ahead of the one whose parameters are used

    def in_order(self, mini_batches: int) -> tuple[Gather, ...]:
        """Return every all-gather of an iteration of some mini-batches, in the order of use."""
        return (*(self.forward + self.backward) * mini_batches, *self.after_step)

    def received_bytes(self, mini_batches: int) -> int:
        """Return the bytes that rank 0 receives in an iteration."""
        recordings = [gather.exchange.recording for gather in self.in_order(mini_batches)]
        return sum(int(recording_bytes(recording)[1][0]) for recording in recordings)


@dataclass(frozen=True, slots=True)
class ShardedDiscipline(Discipline):
    """A discipline whose ranks keep a part of gradients and optimizer states, and maybe of parameters."""

    @property
    def within_nodes(self) -> bool:
        """Whether anything is divided among the ranks of a node."""
        return False

    @property
    def scatters(self) -> bool:
        """Whether an all-reduce of gradients becomes a reduce-scatter."""
        return True

    def groups(self, nodes: Sequence[int]) -> Groups:
        """Return the ranks that divide the states among them; rank r runs on the node ``nodes[r]``."""
        return ()

    def gathers(
        self, tensors: ReadyTensors, buckets: Sequence[Bucket], nodes: Sequence[int], value_bytes: int
    ) -> ParameterGathers:
        """Return the all-gathers of parameters in ``value_bytes`` each."""
        raise NotImplementedError

    def copied_bytes(self, tensors: ReadyTensors, value_bytes: int) -> tuple[Ints, Ints]:
        """Return the bytes that copies between tensors and buffers of collectives read and write, by tensor.

        In forward and in backward, int64 of shape (t,); the copies run between kernels of compute.
        """
        raise NotImplementedError

    def whole_parameters(self, tensors: ReadyTensors, buckets: Sequence[Bucket]) -> int:
        """Return how many parameters a rank holds whole at most."""
        raise NotImplementedError

    def copied_parameters(self, tensors: ReadyTensors, nodes: Sequence[int]) -> int:
        """Return how many parameters a rank holds as its part of a copy in its node, besides its shard."""
        return 0


@dataclass(frozen=True, slots=True)
class Fsdp(ShardedDiscipline):
    """PyTorch's fully sharded data parallel (``fully_shard``), applied to every block of layers and to the model.

    Parameters with one number in their names (``layers.7``) are a block, and those that are left are the root's. Before
    forward of a block its parameters are all-gathered, and after it they are freed; backward gathers them again, and
    reduce-scatters the block's gradients once they are complete. The root's parameters stay from the beginning of
    forward to the end of backward. While a block computes, those of the next one are in flight. The optimizer works on
    shards. Several mini-batches reduce their gradients once (``set_requires_gradient_sync``).

    ``weights=int8`` quantises parameters for all-gathers in blocks of 2,048 (qwZ of ZeRO++); ``secondary=true`` keeps
    a copy of what forward has gathered in each node, from which backward gathers (hpZ). Its quantised gradients (qgZ)
    are the reducer ``qgz``.
    """

    minimums: ClassVar = {"prefetch": 0}
    shard: Literal["all", "node"] = "all"  # Ranks that divide the states: all, or those of a node (hybrid sharding)
    reshard: bool = True  # Whether parameters are freed after forward (``reshard_after_forward``)
    prefetch: int = 1  # Blocks whose parameters are gathered ahead of the one that computes
    weights: Literal["as-computed", "int8"] = "as-computed"  # Type of parameters in all-gathers
    secondary: bool = False  # Whether backward gathers from a copy in each node

    def __post_init__(self) -> None:
        Discipline.__post_init__(self)
        if self.secondary and (not self.reshard or self.shard == "node"):
            why = "backward gathers nothing without reshard" if not self.reshard else "all is in nodes with shard=node"
            raise OptionError(f"fsdp: secondary=true changes nothing: {why}")

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return a bucket for each block and one for the root, in the order of their last gradients."""
        block = tensors.block_of
        groups = [np.flatnonzero(block == each).tolist() for each in np.unique(block)]
        return tuple(map(Bucket, sorted(map(tuple, groups), key=lambda group: group[-1])))

    @property
    def within_nodes(self) -> bool:
        """Whether states are, or the copies of ``secondary=true``."""
        return self.shard == "node" or self.secondary

    def groups(self, nodes: Sequence[int]) -> Groups:
        """Return the ranks of each node for ``shard=node``; refuse nodes that do not fit the options."""
        if self.secondary and len(nodes) > 1:
            _by_node(nodes, "secondary=true")
        return _by_node(nodes, "shard=node") if self.shard == "node" else ()

    def gathers(
        self, tensors: ReadyTensors, buckets: Sequence[Bucket], nodes: Sequence[int], value_bytes: int
    ) -> ParameterGathers:
        """Return a gather of each bucket for forward and, of blocks, for backward."""

        def gather(bucket: Bucket, at: int, groups: Groups) -> Gather:
            quantised, elements = self.weights == "int8", _parameters_of(bucket, tensors)
            recording = _gather_recording(elements, len(nodes), value_bytes, groups, quantised=quantised)
            return Gather(BucketExchange(bucket, recording), at)

        groups = self.groups(nodes)
        blocks = [bucket for bucket in buckets if tensors.block_of[bucket.tensors[0]] >= 0]
        root = [gather(bucket, 0, groups) for bucket in buckets if bucket not in blocks]
        last = len(tensors.bytes) - 1
        forward = [gather(bucket, last - bucket.tensors[-1], groups) for bucket in reversed(blocks)]
        again = _by_node(nodes, "secondary=true") if self.secondary else groups
        backward = [gather(bucket, bucket.tensors[0], again) for bucket in blocks] if self.reshard else []
        backward.sort(key=lambda each: each.at)
        return ParameterGathers((*root, *forward), tuple(backward), prefetch=self.prefetch)

    def copied_bytes(self, tensors: ReadyTensors, value_bytes: int) -> tuple[Ints, Ints]:
        """Return those of gathered parameters, and of gradients that are cast to the type of the reduction."""
        gathered = 2 * value_bytes * tensors.elements
        again = np.where(tensors.block_of >= 0, gathered, 0) if self.reshard else np.zeros_like(gathered)
        return gathered, again + value_bytes * tensors.elements + tensors.bytes

    def whole_parameters(self, tensors: ReadyTensors, buckets: Sequence[Bucket]) -> int:
        """Return those of the root, and of neighbouring blocks that are there together."""
        blocks = [bucket for bucket in buckets if tensors.block_of[bucket.tensors[0]] >= 0]
        sizes = [_parameters_of(bucket, tensors) for bucket in blocks]
        together = 1 + self.prefetch if self.reshard else len(blocks)
        most = max((sum(sizes[at : at + together]) for at in range(len(sizes))), default=0)
        return int(tensors.elements.sum()) - sum(sizes) + most

    def copied_parameters(self, tensors: ReadyTensors, nodes: Sequence[int]) -> int:
        """Return those of blocks: what forward gathers of them is divided in each of several nodes."""
        copies = _by_node(nodes, "secondary=true") if self.secondary and len(nodes) > 1 else ()
        return -(-int(tensors.elements[tensors.block_of >= 0].sum()) // len(copies[0])) if copies else 0


@dataclass(frozen=True, slots=True)
class Zero2(ShardedDiscipline):
    """DeepSpeed's ZeRO stage 2: gradients and optimizer states in shards, parameters whole on every rank.

    Gradients are reduce-scattered in buckets of one size during backward, as in the paper; ``allreduce=true`` is the
    default of DeepSpeed (``use_multi_rank_bucket_allreduce`` in ``stage_1_and_2.py``, read), half as many bytes more.
    Once the optimizer has moved each rank's part
    of the parameters, all of them are all-gathered, bucket by bucket, and nothing computes meanwhile.
    """

    minimums: ClassVar = {"bucket": 1}
    bucket: Size = _ZERO_BUCKET  # Of gradients: ``reduce_bucket_size`` is 5e8 elements, in two bytes each
    allreduce: bool = False  # Whether buckets are all-reduced, of which each rank keeps its part

    @property
    def scatters(self) -> bool:
        """Whether buckets are not all-reduced."""
        return not self.allreduce

    @property
    def caveat(self) -> str:
        """What DeepSpeed does."""
        why = "DeepSpeed all-reduces its buckets unless use_multi_rank_bucket_allreduce is false"
        text = f"zero2 reduce-scatters gradients, as ZeRO's paper has it; {why}: ask for zero2:allreduce=true"
        return text if self.scatters else ""

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return buckets in the order of readiness, each closed once it has reached the size."""
        together, size = np.zeros(len(tensors.bytes), np.bool_), self.bucket.bytes
        return tuple(map(Bucket, fill_buckets(tensors.bytes.tolist(), together, first_bytes=size, limit_bytes=size)))

    def gathers(
        self, tensors: ReadyTensors, buckets: Sequence[Bucket], nodes: Sequence[int], value_bytes: int
    ) -> ParameterGathers:
        """Return one of each bucket's parameters after the optimizer."""
        sizes = [_parameters_of(bucket, tensors) for bucket in buckets]
        recordings = [_gather_recording(size, len(nodes), value_bytes, ()) for size in sizes]
        return ParameterGathers(after_step=tuple(map(Gather, map(BucketExchange, buckets, recordings))))

    def copied_bytes(self, tensors: ReadyTensors, value_bytes: int) -> tuple[Ints, Ints]:
        """Return those of gradients, which are copied into their bucket."""
        return np.zeros_like(tensors.bytes), value_bytes * tensors.elements + tensors.bytes

    def whole_parameters(self, tensors: ReadyTensors, buckets: Sequence[Bucket]) -> int:
        """Return all."""
        return int(tensors.elements.sum())


def _parameters_of(bucket: Bucket, tensors: ReadyTensors) -> int:
    return int(tensors.elements[list(bucket.tensors)].sum())


def _by_node(nodes: Sequence[int], option: str) -> Groups:
    """Return the ranks of each node; none where one node has all."""
    found = tuple(tuple(np.flatnonzero(np.asarray(nodes) == node).tolist()) for node in dict.fromkeys(nodes))
    sizes = {len(ranks) for ranks in found}
    if len(sizes) > 1 or sizes == {1}:
        have = "each node has one" if sizes == {1} else "nodes have unlike numbers of them"
        raise OptionError(
            f"fsdp: {option} divides parameters among the workers of a node, and here {have}: take workers that fill "
            "their nodes, or leave it out"
        )
    return found if len(found) > 1 else ()


def _gather_recording(
    elements: int, ranks: int, value_bytes: int, groups: Groups, *, quantised: bool = False
) -> Recording:
    """Return the all-gather of so many parameters, of which each rank of a group has an equal part, see `_padded`.

    Quantised ones take a byte each and a float32 scale a block: each rank quantises its part and restores all.
    """
    calls: list[Call] = []
    scripts: list[Script] = [()] * ranks
    for number, members in enumerate(groups or ((),)):
        dtype, itemsize = {2: ("bfloat16", 2), 4: ("float32", 4)}[value_bytes]
        parts = _padded(elements, len(members) or ranks)
        script: Script = (Post(number), Wait((number,)))
        if quantised:
            moved = (value_bytes + 1) * np.array([parts[0], elements])
            script = (Work("encode", int(moved[0]), 2), *script, Work("decode", int(moved[1])))
            parts, dtype, itemsize = parts + cost.VALUE_BYTES * -(-parts // _QUANTISED_BLOCK), "uint8", 1
        sizes = tuple(parts.tolist())
        calls.append(Call("all_gather", "gather", dtype, itemsize, sizes, False, PARAMETERS, ranks=members))
        for rank in members or range(ranks):
            scripts[rank] = script
    return Recording(tuple(calls), tuple(scripts))


def _padded(elements: int, parts: int) -> Ints:
    """Return the elements of each part, int64 of shape (parts,), as FSDP and DeepSpeed pad them to equal lengths."""
    return np.full(parts, -(-elements // parts))


def check_takes_shards(steps: int, estimates: str = "mean") -> None:
    """Refuse, by `S2SimError`, to exchange once in some steps, or models of their own as reducers' traits have it."""
    if steps > 1:
        raise S2SimError(
            f"it exchanges once in {steps} steps, and a rank with a shard of the parameters takes no step alone: take "
            "a discipline without shards"
        )
    if estimates == "weights":
        raise S2SimError("every rank has a model of its own, of which no other could keep a part")


def shard_recording(recording: Recording, groups: Groups = ()) -> Recording:
    """Return a recording of ranks that keep their own part of the mean alone.

    Where the last collectives of all ranks only spread the mean (`Call.spreads`), an all-reduce becomes a
    reduce-scatter and an all-gather is not sent, and of what is decoded after it a rank decodes its part. With
    ``groups``, each of which keeps all parts, a reduce-scatter in each group and an all-reduce of equal parts of all
    groups. Other programs leave the whole mean on every rank, which keeps its part, and stay as they are. What does not
    exchange every step is refused, see `check_takes_shards`.
    """
    check_takes_shards(recording.steps)
    ranks, calls = recording.workers, recording.calls
    spreads = {
        at
        for at, call in enumerate(calls)
        if call.spreads and not call.ranks and (call.kind == "all_reduce" or not groups)
    }
    if ranks == 1 or not spreads or not all(_ends_with(script, spreads) for script in recording.distinct_scripts):
        return recording
    parts = len(groups[0]) if groups else ranks
    placed = _Placed([], {}, {})
    for at, call in enumerate(calls):
        if at not in spreads:
            placed.add(call, at, call.ranks or range(ranks), placed.first)
        elif call.kind == "all_reduce":
            sizes = tuple(_padded(call.elements[0], parts).tolist())
            scattered = replace(call, kind="reduce_scatter", elements=sizes)
            for members in groups or ((),):
                placed.add(replace(scattered, ranks=members), at, members or range(ranks), placed.first)
            for size, members in zip(sizes, zip(*groups, strict=True), strict=False):
                summed = replace(call, elements=(size,) * len(members), ranks=members)
                placed.add(summed, at, members, placed.then)
    # Without groups all ranks that have one script in common have the new one in common.
    made: dict[tuple[int, int], Script] = {}
    for rank, script in enumerate(recording.scripts):
        key = id(script), rank if groups else 0
        made[key] = made.get(key) or _shard_script(script, rank, spreads, placed, parts)
    scripts = (made[id(script), rank if groups else 0] for rank, script in enumerate(recording.scripts))
    return Recording(tuple(placed.calls), tuple(scripts))


@dataclass(frozen=True, slots=True)
class _Placed:
    """Calls in place of recorded ones, and their numbers by recorded call and rank."""

    calls: list[Call]
    first: dict[tuple[int, int], int]
    then: dict[tuple[int, int], int]  # Of those that follow, among equal parts of all groups

    def add(self, call: Call, recorded: int, ranks: Sequence[int], numbers: dict[tuple[int, int], int]) -> None:
        numbers.update(dict.fromkeys(((recorded, rank) for rank in ranks), len(self.calls)))
        self.calls.append(call)


def _shard_script(script: Script, rank: int, spreads: set[int], placed: _Placed, parts: int) -> Script:
    found: list[Step] = []
    owned = False
    for step in script:
        if isinstance(step, Post):
            found += [Post(placed.first[step.call, rank])] if (step.call, rank) in placed.first else []
        elif isinstance(step, Wait):
            owned |= not spreads.isdisjoint(step.calls)
            for numbers in (placed.first, placed.then):
                waits = tuple(numbers[call, rank] for call in step.calls if (call, rank) in numbers)
                found += [] if numbers is placed.first else map(Post, waits)
                found += [Wait(waits)] if waits else []
        elif isinstance(step, Work) and owned and step.phase == "decode":
            found.append(step.with_sizes([-(-size // parts) for size in step.sizes], step.launches))
        else:
            found.append(step)
    return tuple(found)


def _ends_with(script: Script, spreads: set[int]) -> bool:
    """Return whether a script posts nothing else once it has waited for a call that spreads."""
    waited = False
    for step in script:
        waited |= isinstance(step, Wait) and not spreads.isdisjoint(step.calls)
        if waited and isinstance(step, Post) and step.call not in spreads:
            return False
    return waited
