"""Rounds in which the members of groups send each other runs of chunks: what logarithmic algorithms are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.collectives.schedules.schedule import LazySteps, Pattern, Pieces, Round, Stage, Step, traffic_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Floats, Ints
    from s2sim.collectives.schedules.groups import Groups


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """The parts of the buffer of G groups, cut into c chunks, each of q stretches of positions.

    Positions [``begin``, ``end``) of each stretch are int64 of shape (G, c, q); what each chunk counts on the network,
    ``bytes``, is float64 of shape (G, c).
    """

    begin: Ints
    end: Ints
    bytes: Floats


def own_chunks(groups: Groups) -> Chunks:
    """Return one chunk a member."""
    return Chunks(groups.begin[:, :, None], groups.end[:, :, None], groups.bytes)


def whole_part(groups: Groups) -> Chunks:
    """Return each group's part as one chunk."""
    total = groups.bytes.sum(axis=1, keepdims=True)
    return Chunks(groups.begin[:, :1, None], groups.end[:, -1:, None], total)


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Senders and receivers in every group, as numbers of members: int64 arrays of shape (m,).

    One object serves all moves between the same members.
    """

    src: Ints
    dst: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One round: message i carries ``count`` chunks, number first[i] + skip + j·stride modulo c for j = 0, 1, ...

    ``first`` is int64 of shape (m,); ``adds`` says whether destinations add what comes to what they have.
    """

    pairs: Pairs
    first: Ints
    count: int
    stride: int = 1
    skip: int = 0
    adds: bool = False


def mirrored(moves: Sequence[Move]) -> list[Move]:
    """Return the reduce-scatter that is an all-gather run backwards.

    Where each chunk reaches every member once, along a tree from its owner, partial sums flow up that tree.
    """
    turned = {move.pairs: Pairs(move.pairs.dst, move.pairs.src) for move in moves}
    return [replace(move, pairs=turned[move.pairs], adds=True) for move in reversed(moves)]


def stage_of_moves(ranks: Ints, chunks: Chunks, moves: Sequence[Move]) -> Stage:
    """Return the rounds of these moves, one each, in every group at once.

    Where all chunks of a group count alike, moves in a row between the same members that carry as many chunks are one
    step.
    """
    groups, count = chunks.bytes.shape
    patterns = {
        move.pairs: Pattern(ranks[:, move.pairs.src].reshape(-1), ranks[:, move.pairs.dst].reshape(-1))
        for move in moves
    }
    starts = _steps(moves, alike=bool((chunks.bytes == chunks.bytes[:, :1]).all()))

    def step(index: int) -> Step:
        move = moves[starts[index]]
        sizes = carried(chunks.bytes, move).reshape(-1)
        return Step(Round(patterns[move.pairs], sizes), starts[index + 1] - starts[index])

    def pieces(index: int, time: int) -> Pieces:
        move = moves[starts[index] + time]
        chosen = (move.first[:, None] + move.skip + np.arange(move.count) * move.stride) % count
        begin, end = chunks.begin[:, chosen], chunks.end[:, chosen]
        messages = groups * len(move.first)
        return Pieces(
            np.repeat(np.arange(messages), begin.size // max(messages, 1)),
            begin.reshape(-1),
            end.reshape(-1),
            np.full(begin.size, move.adds),
        )

    def volume(places: int) -> Ints:
        total = np.zeros((2, places), np.int64)
        elements = (chunks.end - chunks.begin).sum(axis=2)
        for move in moves:
            pattern = patterns[move.pairs]
            total += traffic_between(places, pattern.src, pattern.dst, carried(elements, move))
        return total

    return Stage(LazySteps(len(starts) - 1, step), pieces, volume)


def _steps(moves: Sequence[Move], *, alike: bool) -> list[int]:
    """Return the first move of each step, and the number of moves."""

    def repeats(move: Move, before: Move) -> bool:
        return alike and (move.pairs, move.count, move.adds) == (before.pairs, before.count, before.adds)

    starts = [index for index, move in enumerate(moves) if index == 0 or not repeats(move, moves[index - 1])]
    return [*starts, len(moves)]


def carried(values: NDArray[Any], move: Move) -> NDArray[Any]:
    """Return what each message's chunks add up to, shape (G, m), from ``values`` of shape (G, c).

    Sums of 1, 2, 4, ... chunks in a row are made from each other, so that a run costs the logarithm of its length.
    """
    chunks = np.arange(values.shape[1])
    total = np.zeros((len(values), len(move.first)), values.dtype)
    at = move.first + move.skip
    length = 1
    while length <= move.count:
        if move.count & length:
            total += values[:, at % len(chunks)]
            at = at + length * move.stride
        values = values + values[:, (chunks + length * move.stride) % len(chunks)]
        length *= 2
    return total
