"""Models instead of gradients: federated averaging, CHOCO-SGD over neighbours, and Downpour's asynchronous steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import ClassVar, Literal, Self, TypeAlias

import numpy as np

from s2sim.arrays import Array, Floats, Floats32, Mask
from s2sim.codecs.top_k import elements_kept, select_top_k, to_pairs
from s2sim.errors import OptionError
from s2sim.files import read_text, user_path
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared.gathered import flat_vector, from_flat_vector
from s2sim.seeds import named_generator

SERVER = 0
"""The rank beside which the server runs, and through whose ports all clients reach it."""


@dataclass(slots=True)
class FedAvg(Reducer):
    """A star: a fraction C of the ranks upload, the server adds n_k/n of each, ranks download its model.

    H. B. McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS 2017,
    algorithm 1; recalled. A step is a round; several local steps are what ``h`` is for. As in the paper a client has
    the server's model only when it is chosen: with ``download=next`` those chosen for the next round download at the
    end of this one, and all others end it with what they had. Models are followed in units of the learning rate.
    """

    fractions = ("fraction",)
    fraction: float = 0.1
    download: Literal["next", "all"] = "next"
    samples: str | None = None

    server: Floats32 | None = field(init=False, repr=False, default=None)
    """The server's model, as the sum of all updates; None on ranks without it."""
    model: Floats32 | None = field(init=False, repr=False, default=None)  # This rank's model, as last downloaded

    @property
    def traits(self) -> Traits:
        """Ranks drift apart where some do not get the new model; a mean of some is no sum of what all have."""
        about = replace(self.about, adds_up=self.fraction == 1 and self.samples is None)
        drift = self.download == "next" and self.fraction < 1
        return replace(about, agrees=False, estimates="weights") if drift else about

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        update = flat_vector(gradient)
        zeros = np.zeros_like(update)
        own = zeros if self.model is None else self.model
        chosen, following = (self._chosen(rank, rank.step + later) for later in (0, 1))
        to = following if self.download == "next" else list(range(rank.size))
        weights = rank.replicated(lambda: sample_counts(self.samples, rank.size))[chosen]
        weights /= weights.sum()

        # Up: every chosen client to the server.
        members = sorted({SERVER, *chosen})
        if rank.index in members:
            star = rank.subgroup(members)
            uploads = yield from star.exchange({} if rank.index == SERVER else {SERVER: update}, label="updates")
            if rank.index == SERVER:
                arrived = {SERVER: update} | {members[place]: other for place, other in uploads.items()}
                total = zeros.copy() if self.server is None else self.server.copy()
                for weight, place in zip(weights, chosen, strict=True):
                    total += np.float32(weight) * arrived[place]
                    rank.work(cost.add(len(total)))
                self.server = total

        # Down: the server's model.
        members = sorted({SERVER, *to})
        if rank.index in members:
            star = rank.subgroup(members)
            model = self.server
            sent = {} if model is None else dict.fromkeys(range(1, star.size), model)
            models = yield from star.exchange(sent, label="model")
            self.model = models[SERVER] if model is None else model
        change = zeros if self.model is None else self.model - own
        return Reduced(from_flat_vector(change, gradient), sent=lambda: gradient)  # What is not asked for is not lost

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return all layers, unless all that every rank has is averaged."""
        return () if self.fraction == 1 and self.samples is None else tuple(range(len(gradient.layers)))

    def _chosen(self, rank: Rank, step: int) -> list[int]:
        """Return the clients of a round, the same on all ranks, in their order."""
        count = max(1, round(self.fraction * rank.size))
        return sorted(named_generator(rank.seed, "fedavg", step).choice(rank.size, count, replace=False).tolist())


def _read_numbers(path: str, noun: str, fault: str) -> Floats:
    """Return the numbers of a text file, float64 of shape (lines, columns)."""
    text = read_text(user_path(path, OptionError), noun=noun, error=OptionError)
    try:
        return np.loadtxt(StringIO(text.replace(",", " ")), ndmin=2)
    except ValueError as error:
        raise OptionError(f"the {noun} {path} {fault}: {error}") from None


def sample_counts(path: str | None, ranks: int) -> Floats:
    """Return how many samples each rank has, float64 of shape (ranks,): ones, or the numbers of a text file."""
    if path is None:
        return np.ones(ranks)
    counts = _read_numbers(path, "samples", "are no numbers").reshape(-1)
    if len(counts) != ranks or not np.isfinite(counts).all() or (counts <= 0).any():
        raise OptionError(f"the samples {path} must be {ranks} numbers above 0, one a rank: found {len(counts)}")
    return counts


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
    weights = _read_numbers(path, "mixing matrix", "is no table of numbers")
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


@dataclass(slots=True)
class Choco(Reducer):
    """Gossip with public copies: q = C(x - x̂) to all neighbours, x̂ += q, x += γ·Σ w_ij (x̂_j - x̂_i).

    A. Koloskova, S. Stich, M. Jaggi, "Decentralized stochastic optimization and gossip algorithms with compressed
    communication", ICML 2019, algorithm 2; with one vector s = Σ w_ij x̂_j a rank in place of all neighbours' copies,
    as algorithm 6 there has it. Restated from the authors' code (github.com/epfml/ChocoSGD); the numbers of the
    algorithms are recalled. Models are followed in units of the learning rate, as sums of updates since the start that
    all share: what a rank ends a step with is its own update, γ's pull towards its neighbours included. Averaged over
    ranks that is the mean gradient, whatever the compressor loses.
    """

    compresses_all = True
    fractions = ("gamma", "density")
    needs: ClassVar = {"density": "compressor=topk", "graph": "weights=none"}
    graph: Graph = "ring"
    weights: str | None = None
    gamma: float = 0.1
    compressor: Literal["topk", "sign", "none"] = "topk"
    density: float = 0.01

    # Sum of this rank's updates, what all neighbours know of that, and the weighted sum of what is known of all: (n,)
    x: Floats32 | None = field(init=False, repr=False, default=None)
    x_hat: Floats32 | None = field(init=False, repr=False, default=None)
    s: Floats32 | None = field(init=False, repr=False, default=None)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        w = rank.replicated(lambda: mixing_matrix(self.graph, self.weights, rank.size))[rank.index]
        step = flat_vector(gradient)
        zeros = np.zeros_like(step)
        x = step if self.x is None else self.x + step
        x_hat = zeros if self.x_hat is None else self.x_hat
        s = zeros if self.s is None else self.s

        n, kept = len(step), elements_kept(len(step), self.density)
        encoding = cost.encode_values(n, n // 8 if self.compressor == "sign" else 0)
        adding = cost.add_codes(n, 1, n // 8 if self.compressor == "sign" else 4 * n)
        if self.compressor == "topk":
            encoding, adding = cost.select(n, kept), cost.add_pairs(0, kept)
        rank.work(cost.add(n))
        rank.work(encoding)
        q = self._compress(x - x_hat)
        neighbours = [place for place in np.flatnonzero(w).tolist() if place != rank.index]
        heard = yield from rank.exchange(dict.fromkeys(neighbours, q), label="differences")

        self.x_hat = x_hat + self._decompress(q, n)
        s = s + np.float32(w[rank.index]) * (self.x_hat - x_hat)
        for place, other in heard.items():
            s += np.float32(w[place]) * self._decompress(other, n)
            rank.work(adding)
        self.s = s
        update: Floats32 = step + np.float32(self.gamma) * (s - self.x_hat)
        rank.work(cost.add(n))
        self.x = x + (update - step)
        return Reduced(from_flat_vector(update, gradient), sent=lambda: gradient)

    def _compress(self, difference: Floats32) -> tuple[Array, ...]:
        if self.compressor == "none":
            return (difference,)
        if self.compressor == "sign":
            scale = np.abs(difference).mean(keepdims=True) if len(difference) else difference
            return scale, np.packbits(difference >= 0, bitorder="little")
        kept = select_top_k(difference, elements_kept(len(difference), self.density))
        return tuple(to_pairs(kept, difference[kept], len(kept)).values())

    def _decompress(self, message: tuple[Array, ...], elements: int) -> Floats32:
        if self.compressor == "none":
            return np.asarray(message[0])
        if self.compressor == "sign":
            scale, bits = message
            return np.where(np.unpackbits(bits, count=elements, bitorder="little").view(np.bool_), scale, -scale)
        indices, values = message
        dense = np.zeros(elements, np.float32)
        dense[indices] = values
        return dense


@dataclass(slots=True)
class Downpour(Reducer):
    """Asynchronous SGD: servers step by each rank's gradient as it comes, and hand out the model that they have then.

    J. Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, section 4.1, recalled, with ``n_fetch = n_push =
    1`` as in its experiments. The first ranks are the servers beside their own work, each of a part of all elements.
    Ranks come in turn, as equal ones do that have started one after the other: a gradient is stepped by when all other
    ranks have been served since its own fetched the model that it is of, so that it is P - 1 steps old. A step is that
    of the mean's length over P, so that P of them are one of plain SGD. A queue at the servers is one exchange after
    the other in time; that ranks compute while others wait is not counted.
    """

    compresses_all = True
    minimums: ClassVar = {"servers": 1}
    servers: int = 1

    ranks: int = field(init=False, repr=False, compare=False, default=1, metadata={"fitted": True})
    # Of a server: its part of the model, as the sum of all steps; of every rank: the model that it fetched, flat
    part: Floats32 | None = field(init=False, repr=False, default=None)
    fetched: Floats32 | None = field(init=False, repr=False, default=None)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        step = flat_vector(gradient) / np.float32(rank.size)
        servers = range(min(self.servers, rank.size))
        parts = np.split(step, chunk_bounds(len(step), len(servers))[1:-1])
        own = fetched = np.zeros_like(step) if self.fetched is None else self.fetched
        part = np.zeros_like(parts[rank.index % len(servers)]) if self.part is None else self.part
        for worker in range(rank.size):
            members = sorted({*servers, worker})
            if rank.index not in members:
                continue
            star, place, works = rank.subgroup(members), members.index(worker), rank.index == worker
            pushed = {at: parts[at] for at in servers} if works else {}
            here = [pushed.pop(place)] if works and rank.index in servers else []
            arrived = yield from star.exchange(pushed, label="a gradient to servers")
            for update in (*here, *arrived.values()):
                part = part + update
                rank.work(cost.add(len(update)))
            found = yield from star.exchange({place: part} if arrived else {}, label="the model from servers")
            if works:
                found = {place: part, **found}
                fetched = np.concatenate([found[at] for at in servers])
        self.part, self.fetched = part, fetched
        return Reduced.of_step(from_flat_vector(fetched - own, gradient))

    def placed(self, nodes: Sequence[int]) -> Self:
        """Return the same for so many ranks."""
        return self.variant(ranks=len(nodes))

    def notes(self) -> tuple[str, ...]:
        return (f"gradients are {self.ranks - 1} steps of other ranks old when a server steps by them",)
