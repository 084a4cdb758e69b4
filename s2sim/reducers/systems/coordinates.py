"""Elements of tables with row and column, as the S2 authors' code sends them: AG-Sparse and Parallax.

Coordinates take 20 bytes per element, as in frameworks and in that code: tables are dense, are converted in every step,
and messages are padded to the longest, after an all-gather of all lengths.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from s2sim.arrays import Array, Ints
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.gradients.gradient import RowSparse, as_row_sparse
from s2sim.reducers import gpu_cost, script
from s2sim.reducers.rank import Program, Rank, Reduced, Traits, Waits, wait_all
from s2sim.reducers.shared.sparse_split import Layers, SplitGradient
from s2sim.reducers.systems.exact_rows import OwnerReduce, Sparse

Coordinates: TypeAlias = "tuple[Ints, Array]"
"""Rows and columns, int64 of shape (2, k), and values of shape (k,)."""

_ELEMENT_BYTES = 2 * gpu_cost.ROW_ID_BYTES + gpu_cost.VALUE_BYTES  # An element: two int64 and a float32


def pad_coordinates(rank: Rank, split: SplitGradient) -> Waits[tuple[list[Coordinates], Ints]]:
    """Return the non-zero elements of each table, after an exchange of their numbers.

    Zeros at row and column 0 fill up to the longest of all ranks. The numbers that each rank has of each table are
    int64 of shape (ranks, tables).
    """
    own: list[Coordinates] = []
    for table in split.tables:
        values = table.values.reshape(len(table.rows), table.width)
        positions, columns = np.nonzero(values)
        own.append((np.stack([table.rows[positions], columns]), round_to_dtype(values[positions, columns], split.held)))
    # Dense tables are read, and their non-zero elements are written.
    counts = [len(values) for _, values in own]
    moved = sum(table.nbytes for table in split.tables) + sum(counts) * _ELEMENT_BYTES
    rank.work(script.Work("encode", moved, launches=gpu_cost.SELECT_LAUNCHES * len(own)))
    gathered = yield from rank.all_gather(np.array(counts, np.int64), label="counts of non-zeros")
    lengths = np.stack(gathered)
    padded = []
    for (at, values), length in zip(own, lengths.max(axis=0).tolist(), strict=True):
        padding = length - len(values)
        padded.append((np.pad(at, ((0, 0), (0, padding))), np.concatenate([values, np.zeros(padding, values.dtype)])))
    return padded, lengths


def average_coordinates(
    rank: Rank, split: SplitGradient, lengths: Ints, by_rank: Iterable[Iterable[Coordinates]]
) -> Program:
    """Reduce the dense layers and return the mean, for each table from all ranks' `pad_coordinates` in rank order."""
    dense = split.post_dense(rank)
    # Dense tables are cleared, and elements are added to them by a kernel per rank and table.
    elements = rank.size * int(lengths.max(axis=0).sum())
    moved = sum(table.nbytes for table in split.tables) + elements * (_ELEMENT_BYTES + gpu_cost.SCATTER_BYTES)
    rank.work(script.Work("decode", moved, launches=len(split.tables) * (1 + rank.size)))

    def sums() -> list[RowSparse]:
        found = []
        for table, parts, own_lengths in zip(split.tables, by_rank, lengths.T, strict=True):
            total = np.zeros((table.shape[0], table.width), np.float32)
            for (at, values), length in zip(parts, own_lengths, strict=True):
                rows, columns = at[:, :length]
                total[rows, columns] += widen(values[:length])
            found.append(as_row_sparse(total.reshape(table.shape)))
        return found

    total = rank.replicated(sums)
    yield from wait_all(dense)
    return Reduced(rank.replicated(lambda: split.mean(total, dense, rank.size)), sent=lambda: split.gradient)


@dataclass(slots=True)
class AgSparse(Sparse):
    """Three all-gathers, one after the other: counts, coordinates, values; exact, 20 bytes for each non-zero element.

    What S2 is compared with in its authors' code (``Exact_Embed_Reducer``). `s2sim.reducers.systems.exact_rows` sends
    the same with one number a row: about a fifth. Where there are several tables, that their counts, coordinates and
    values travel together is inferred.
    """

    layers: Layers = "sparse"

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        messages, lengths = yield from pad_coordinates(rank, split)
        places = yield from rank.all_gather(tuple(at for at, _ in messages), label="coordinates", size_from_data=True)
        values = yield from rank.all_gather(tuple(held for _, held in messages), label="values")
        by_rank = map(zip, zip(*places, strict=True), zip(*values, strict=True))
        return (yield from average_coordinates(rank, split, lengths, by_rank))


@dataclass(slots=True)
class Parallax(Sparse):
    """Rows of tables to servers and back, exactly; dense layers in an all-reduce.

    Of the paper nothing was read here. Its servers share the machines of the workers and hold a part of every table
    each; a worker pulls the rows that its next batch needs, while here, as of all reducers, every rank ends with all
    rows: it is `s2sim.reducers.systems.exact_rows` by another name.
    """

    layers: Layers = "sparse"
    as_coded: bool = False

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Let every rank be the server of some rows; or rank 0 the one that gathers all elements."""
        if not self.as_coded:
            return (yield from OwnerReduce().reduce_split(rank, split))
        message, lengths = yield from pad_coordinates(rank, split)
        sent = {0: tuple(message)} if rank.index else {}
        to_root = yield from rank.exchange(sent, label="elements to rank 0", size_from_data=True)
        concatenated = None
        if rank.index == 0:
            by_table = zip(message, *to_root.values(), strict=True)
            concatenated = tuple(
                (np.hstack([at for at, _ in parts]), np.concatenate([values for _, values in parts]))
                for parts in by_table
            )
        all_elements = yield from rank.broadcast(concatenated, root=0, label="all elements")
        by_rank = (
            zip(np.split(at, rank.size, axis=1), np.split(values, rank.size), strict=True)
            for at, values in all_elements
        )
        return (yield from average_coordinates(rank, split, lengths, by_rank))

    @property
    def traits(self) -> Traits:
        """What the S2 authors' code sends, it sends by element."""
        if not self.as_coded:
            return self.about
        return replace(
            self.about,
            granularity="element, with row and column",
            formula="8L(P-1) + 20 nnz_max, and 20 P nnz_max from rank 0",
            certainty="code read",
        )
