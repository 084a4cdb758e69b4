"""Pairwise sums by recursive doubling, and mixing matrices of gossip averaging."""

from __future__ import annotations

from collections.abc import Generator
from io import StringIO
from typing import Literal, TypeAlias

import numpy as np

from s2sim.arrays import Floats, Mask
from s2sim.errors import OptionError
from s2sim.files import read_text, user_path
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Pending, Rank
from s2sim.reducers.shared.pairs import Pairs, PairsMessage, merge_pairs, read_pairs


def sum_by_doubling(rank: Rank, own: Pairs, held: GradientDtype) -> Generator[Pending, None, Pairs]:
    """Return the sum of all ranks' pairs, equal on all ranks: pairwise sums, in the order of a tree.

    If the number of ranks is no power of two, those from the largest one below on first send their pairs to a rank
    each, and receive the sum from it at the end (R. Thakur et al., "Optimization of collective communication operations
    in MPICH", IJHPCA 2005, section 4.5).
    """
    within = 1 << (rank.size.bit_length() - 1)
    excess, inside = rank.size - within, rank.index < within
    message = own.message(held)

    def add(low: Pairs, high: Pairs) -> PairsMessage:
        merged = merge_pairs([low, high])
        rank.work(cost.merge_pairs_cost(len(low) + len(high), len(merged), 2))
        return merged.message(held)

    if excess:
        sent = {} if inside else {rank.index - within: message}
        received = rank.exchange(sent, label="pairs, fold in", size_from_data=True)
        yield received
        if rank.index < excess:
            message = add(own, read_pairs(received.value[rank.index + within]))

    distance = 1
    while distance < within:
        partner = rank.index ^ distance
        received = rank.exchange(
            {partner: message} if inside else {}, label=f"pairs, distance {distance}", size_from_data=True
        )
        yield received
        if inside:
            # One's own pairs as they were sent, so that both partners end with the same sum.
            mine, theirs = read_pairs(message), read_pairs(received.value[partner])
            message = add(theirs, mine) if rank.index & distance else add(mine, theirs)
        distance *= 2

    if excess:
        sent = {rank.index + within: message} if rank.index < excess else {}
        received = rank.exchange(sent, label="pairs, hand out", size_from_data=True)
        yield received
        if not inside:
            message = received.value[rank.index - within]
    return read_pairs(message)


Graph: TypeAlias = Literal["ring", "torus", "exponential", "complete"]

_ROUNDING = 1e-6


def graph_weights(graph: Graph, ranks: int) -> Floats:
    """Return the mixing matrix of a graph with Metropolis weights, float64 of shape (ranks, ranks).

    w_ij = 1/(1 + max(degree i, degree j)) for neighbours, and the remainder for the rank itself (L. Xiao and S. Boyd,
    "Fast linear iterations for distributed averaging", Systems & Control Letters 2004): symmetric and doubly
    stochastic on any graph.

    >>> graph_weights("ring", 4)[0]
    array([0.33333333, 0.33333333, 0.        , 0.33333333])
    """
    linked = _adjacency(graph, ranks)
    degrees = linked.sum(axis=1)
    weights = np.where(linked, 1 / (1 + np.maximum.outer(degrees, degrees)), 0.0)
    np.fill_diagonal(weights, 1 - weights.sum(axis=1))
    return weights


def _adjacency(graph: Graph, ranks: int) -> Mask:
    linked = np.zeros((ranks, ranks), np.bool_)
    indices = np.arange(ranks)
    if graph == "complete":
        linked[:] = True
    elif graph == "torus":
        # The most square full grid.
        grid = indices.reshape(next(rows for rows in range(int(ranks**0.5), 0, -1) if ranks % rows == 0), -1)
        for axis in (0, 1):
            linked[grid, np.roll(grid, 1, axis)] = True
    else:
        hops = [1] if graph == "ring" else [2**power for power in range(max(ranks - 1, 0).bit_length())]
        for hop in hops:
            linked[indices, (indices + hop) % ranks] = True
    linked |= linked.T
    np.fill_diagonal(linked, False)
    return linked


def read_weights(path: str) -> Floats:
    """Return a mixing matrix from a text file with a row of numbers for each rank, float64 of shape (P, P).

    `OptionError` unless it is symmetric, without negative weights, and every row adds up to 1.
    """
    text = read_text(user_path(path, OptionError), noun="mixing matrix", error=OptionError)
    try:
        weights = np.loadtxt(StringIO(text.replace(",", " ")), ndmin=2)
    except ValueError as error:
        raise OptionError(f"the mixing matrix {path} is no table of numbers: {error}") from None
    rows, columns = weights.shape
    if rows != columns:
        raise OptionError(f"the mixing matrix {path} has {rows} rows and {columns} columns: give one of each a rank")
    good = np.isfinite(weights).all() and (weights >= 0).all() and np.allclose(weights, weights.T, 0, _ROUNDING)
    if not good or not np.allclose(weights.sum(axis=1), 1, 0, _ROUNDING):
        raise OptionError(
            f"the mixing matrix {path} must be symmetric, without negative weights, and every row must add up to 1"
        )
    return weights


def mixing_matrix(graph: Graph, path: str | None, ranks: int) -> Floats:
    """Return the weights of a file, or else those of a graph; `OptionError` if the file is for other ranks."""
    if path is None:
        return graph_weights(graph, ranks)
    weights = read_weights(path)
    if len(weights) != ranks:
        raise OptionError(f"the mixing matrix {path} is for {len(weights)} ranks: there are {ranks}")
    return weights
