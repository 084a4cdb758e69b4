"""What is exchanged in place of gradients: momentum (DeMo, Dion), and models that have moved (DiLoCo, SlowMo)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod, sqrt
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Floats32, Ints
from s2sim.codecs.floats import widen
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, add, add_into, average, subtract, to_dense
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, wait_all
from s2sim.reducers.shared.gathered import from_layer_vectors, layer_vectors
from s2sim.reducers.shared.layers import select_layers
from s2sim.reducers.systems import dense, low_rank


@dataclass(slots=True)
class DeMo(Reducer):
    """An all-gather of the largest DCT coefficients of each rank's momentum, which leave it; the step is their sign.

    B. Peng, J. Quesnelle and D. P. Kingma, "DeMo: Decoupled Momentum Optimization", arXiv:2411.19870, algorithm 1
    (recalled); read in the authors' ``demo.py``. A layer is a matrix of its first dimension and all others together,
    or a vector, and is cut into chunks whose sides are the largest divisors of its own up to ``chunk``. On each rank
    ``m = decay m + g``; of the orthonormal DCT-II of a chunk of m the ``topk`` largest coefficients are q, and
    ``m = m - IDCT(q)``. All gather all q; the mean of each coefficient over the ranks that sent it is transformed
    back, and its sign is the step. As in the code, the index of a coefficient takes 8 bytes. The code multiplies g by
    the learning rate, which the sign does not see.
    """

    compresses_all = True
    intervals: ClassVar = {"chunk": "[1, inf)", "topk": "[1, inf)", "decay": "[0, 1)"}
    chunk: int = 64
    topk: int = 32
    decay: float = 0.999

    m: Gradient | None = field(init=False, repr=False, default=None)  # This rank's momentum, less what was sent

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        m = gradient if self.m is None else add(self.m.map(lambda values: values * np.float32(self.decay)), gradient)
        layers = [to_dense(layer) for layer in m.layers if layer.size]
        tables = [_to_chunks(layer, self.chunk) for layer in layers]
        # Of the largest in each chunk, of equal ones the first: places, int64 of shape (chunks, k), and values.
        where = [np.argsort(-np.abs(table), axis=1, kind="stable")[:, : self.topk] for table in tables]
        own = [np.take_along_axis(table, at, 1) for table, at in zip(tables, where, strict=True)]
        kept = sum(map(np.size, own))
        rank.work(cost.add(3 * gradient.size))  # Momentum moves; coefficients are taken of it, and out of it.
        rank.work(cost.select(gradient.size, kept))

        def decode(messages: Sequence[tuple[Sequence[Ints], Sequence[Floats32]]]) -> Gradient:
            """Return the mean of each coefficient over those that sent it, transformed back."""
            found = []
            for place, (layer, table) in enumerate(zip(layers, tables, strict=True)):
                total, count, rows = np.zeros_like(table), np.zeros_like(table), np.arange(len(table))[:, None]
                for places, values in messages:
                    total[rows, places[place]] += values[place]
                    count[rows, places[place]] += 1
                found.append(_from_chunks(np.divide(total, count.clip(1), dtype=np.float32), layer.shape, self.chunk))
            filled = iter(found)
            return Gradient(m.names, tuple(next(filled) if layer.size else to_dense(layer) for layer in m.layers))

        self.m = subtract(m, decode([(where, own)]))
        gathered = yield from rank.all_gather((tuple(where), tuple(own)), label="coefficients")
        rank.work(cost.add_pairs(gradient.nbytes, rank.size * kept))
        rank.work(cost.add(gradient.size))
        return Reduced.of_step(rank.replicated(lambda: decode(gathered).map(np.sign)))

    least_side = 1  # Any: what counts is into how many chunks it is cut.

    def alignment(self, ranks: int) -> int:
        """Return the side of a chunk."""
        return self.chunk


def _grid(shape: tuple[int, ...], chunk: int) -> tuple[int, int, int, int]:
    """Return a shape as one of chunks: rows of them and of one, columns of them and of one."""
    n = shape[0] if len(shape) > 1 else 1
    m = prod(shape) // n
    h, w = (max(side for side in range(1, chunk + 1) if whole % side == 0) for whole in (n, m))
    return n // h, h, m // w, w


def _to_chunks(values: Floats32, chunk: int) -> Floats32:
    """Return the DCT-II coefficients of each chunk, float32 of shape (chunks, elements of one)."""
    from scipy.fft import dctn

    cut = values.reshape(_grid(values.shape, chunk))
    found = dctn(cut, axes=(1, 3), norm="ortho").transpose(0, 2, 1, 3)
    return np.asarray(found, np.float32).reshape(-1, cut.shape[1] * cut.shape[3])


def _from_chunks(table: Floats32, shape: tuple[int, ...], chunk: int) -> Floats32:
    """Return the values, float32 of a shape, of the coefficients of its chunks."""
    from scipy.fft import idctn

    rows, h, columns, w = _grid(shape, chunk)
    cut = table.reshape(rows, columns, h, w).transpose(0, 2, 1, 3)
    return np.asarray(idctn(cut, axes=(1, 3), norm="ortho"), np.float32).reshape(shape)


@dataclass(slots=True)
class Dion(low_rank.LowRank):
    """PowerSGD's two all-reduces, of momentum; the step is the product of two matrices with columns of length 1.

    K. Ahn et al., "Dion: Distributed Orthonormalized Updates", arXiv:2504.05295, algorithms 1 and 2 (recalled); read in
    the authors' ``dion_reference.py``. Of each layer as a matrix (n, m), with the gradient G of a rank,
    ``B = M + G``; P is an orthonormal basis of the mean of B Q, R the mean of B^T P, both after an all-reduce;
    ``M = B - (1 - mu) P R^T`` keeps what was not sent, and mu of the rest; Q are the columns of R divided by their
    lengths (plus 1e-8). The step is sqrt(n / m) P Q^T. Layers that are no matrices are all-reduced, and step by Lion,
    as the authors have it: the sign of ``beta1 m + (1 - beta1) g`` with ``m = beta2 m + (1 - beta2) g``. Theirs also
    all-reduce the gradients of matrices that would not shrink, and P by a randomised Cholesky factorisation; here M
    that is zero gives a zero step, as there.
    """

    rank: int = 64
    mu: float = 0.95
    beta1: float = 0.95
    beta2: float = 0.98
    min_compression = 0.0
    compresses_all = True
    intervals: ClassVar = {"mu": "[0, 1)", "beta1": "[0, 1)", "beta2": "[0, 1)"}

    # Of each matrix: this rank's momentum, (n, m), and Q, the same on all; and Lion's momentum of other layers
    M: list[Floats32] | None = field(init=False, repr=False, default=None)
    Q: list[Floats32] | None = field(init=False, repr=False, default=None)
    lion: Gradient | None = field(init=False, repr=False, default=None)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Exchange as below, whether there are matrices or not."""
        return (yield from self.reduce_matrices(rank, low_rank.split_matrices(gradient, self.rank, 0.0, self.held)))

    def reduce_matrices(self, rank: Rank, split: low_rank.Matrices) -> Program:
        others = split.post_others(rank)
        G = [to_dense(each.layer).reshape(each.n, each.m) for each in split.matrices]
        B = G if self.M is None else list(map(np.add, self.M, G))
        elements = sum(map(np.size, B))
        pairs = zip(split.matrices, B, strict=True)
        momentum = replace(split, matrices=tuple(replace(matrix, layer=b) for matrix, b in pairs))

        P, R, Q = [], [], self.Q or rank.replicated(lambda: self.random_Q(rank, split))
        if B:
            # P, a basis of the mean of B Q, and R, the mean of B^T P
            sums = yield from momentum.post(rank, momentum.products(rank, low_rank.Matrix.times, Q), "P")
            for matrix in split.matrices:
                rank.work(cost.orthogonalise_cost(matrix.n, matrix.r))
            means = low_rank.averages(sums, rank.size)
            P = rank.replicated(lambda: [low_rank.orthonormal_basis(each) * np.float32(each.any()) for each in means])
            sums = yield from momentum.post(rank, momentum.products(rank, low_rank.Matrix.transposed_times, P), "R")
            R = low_rank.averages(sums, rank.size)
        self.M = [b - np.float32(1 - self.mu) * sent for b, sent in zip(B, low_rank.multiply(P, R), strict=True)]
        lengths = [np.linalg.norm(r, axis=0) + np.float32(1e-8) for r in R]
        self.Q = [r / length if r.any() else q for r, length, q in zip(R, lengths, Q, strict=True)]
        for _ in range(2):  # The gradient is added and what was sent taken out, both of them products.
            momentum.charge_products(rank)
            rank.work(cost.add(elements))

        yield from wait_all(others)
        g = split.others if others is None else average(others.value.map(widen), rank.size)
        m = g.map(np.zeros_like) if self.lion is None else self.lion
        signs, self.lion = _mixed(m, g, self.beta1).map(np.sign), _mixed(m, g, self.beta2)

        def update() -> Gradient:
            scales = [np.float32(sqrt(each.n / each.m)) for each in split.matrices]
            return split.join(list(map(np.multiply, scales, low_rank.multiply(P, self.Q or []))), signs)

        return Reduced.of_step(rank.replicated(update))

    contraction, compresses = Reducer.contraction, Reducer.compresses


def _mixed(m: Gradient, g: Gradient, beta: float) -> Gradient:
    """Return beta m + (1 - beta) g of dense layers."""
    keep, take = np.float32(beta), np.float32(1 - beta)
    return add(m.map(lambda values: keep * values), g.map(lambda values: take * values))


@dataclass(slots=True)
class DiLoCo(Reducer):
    """Once in h steps, an all-reduce of how far each rank's model has moved, of which an outer optimizer steps.

    A. Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", arXiv:2311.08105,
    algorithm 1 (recalled); read in github.com/pytorch/torchft, ``local_sgd.py``. With Delta, the model at the last
    exchange less that of a rank now, averaged over ranks: ``b = momentum b + Delta`` and all go on from the old model
    less ``rate (Delta + momentum b)``, Nesterov's step as PyTorch has it. Ranks hand in their own steps (training has
    each take them by its own optimizer, AdamW in the paper) and end with how far their own model moves: by that step,
    or to where all are. With ``rate=1,momentum=0`` this is local SGD, ``dense:h=...``; `StreamingDiLoCo` is what
    fragments, delay, mix and wire are of.
    """

    compresses_all = True
    nesterov: ClassVar[bool] = True
    minimums: ClassVar = {"h": 1, "fragments": 1, "delay": 0}
    intervals: ClassVar = {"rate": "(0, inf)", "momentum": "[0, 1)", "mix": "[0, 1)"}
    h: int = 100
    rate: float = 0.7
    momentum: float = 0.9
    fragments: int = 1
    delay: int = 0
    mix: float = 0.0
    wire: Literal["fp32", "bf16", "e4m3", "e2m1", "e3m0"] = "fp32"

    # Of each layer, flat: how far this rank's model is from the last that all had; b; and the step under way
    moved: list[Floats32] | None = field(init=False, repr=False, default=None)
    b: list[Floats32] | None = field(init=False, repr=False, default=None)
    outer: list[Floats32] | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        Reducer.__post_init__(self)
        if self.delay >= max(1, self.h // self.fragments) or self.fragments > self.h:
            raise OptionError(
                f"{self.about.name}: {self.fragments} fragments in h={self.h} steps with delay={self.delay} would wait "
                "for each other: give fewer, more steps, or a shorter delay"
            )

    @property
    def period(self) -> int:
        return self.h

    def layer_classes(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(place % self.fragments for place in range(len(names)))

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Move, exchange the fragment whose turn it is, and go on from what has come of an earlier one."""
        layers = list(gradient.layers)
        if self.moved is None:
            self.moved, self.b = ([np.zeros(layer.size, np.float32) for layer in layers] for _ in range(2))
            self.outer = [np.zeros(0, np.float32) for _ in layers]
        moved, b, outer = self.moved, self.b or [], self.outer or []
        rate, momentum, mix = map(np.float32, (self.rate, self.momentum, self.mix))
        fragments = range(min(self.fragments, len(layers)))
        places = [range(fragment, len(layers), self.fragments) for fragment in fragments]
        # Steps since the first exchange of each
        since = [rank.step + 1 - self.h * (fragment + 1) // self.fragments for fragment in fragments]
        ending = [each >= self.delay and (each - self.delay) % self.h == 0 for each in since]
        before = {place: moved[place].copy() for own, ends in zip(places, ending, strict=True) if ends for place in own}
        for place, layer in enumerate(layers):
            add_into(moved[place].reshape(layer.shape), layer)
        for own, steps, ends in zip(places, since, ending, strict=True):
            if steps >= 0 and steps % self.h == 0:
                Delta = from_layer_vectors([moved[place] for place in own], select_layers(gradient, own))
                # The old model less this one: steps in between are the optimizer's own.
                rank.work(cost.add(Delta.size))
                reduced = yield from self._exchange().reduce(rank, Delta)
                for place, mean in zip(own, layer_vectors(reduced.mean), strict=True):
                    b[place] = momentum * b[place] + mean
                    outer[place] = rate * (mean + momentum * b[place] if self.nesterov else b[place])
                rank.work(cost.add(2 * Delta.size))
            for place in own if ends else ():
                vector = outer[place] + mix * (moved[place] - outer[place]) - before[place]
                layers[place] = vector.reshape(layers[place].shape)
                moved[place], outer[place] = mix * (moved[place] - outer[place]), np.zeros(0, np.float32)
                rank.work(cost.add(len(moved[place])))
        return Reduced.of_step(Gradient(gradient.names, tuple(layers)))

    def _exchange(self) -> Reducer:
        if self.wire in ("e4m3", "e2m1", "e3m0"):
            return dense.BlockScaled(form=self.wire)
        return dense.Dense(dtype="bf16" if self.wire == "bf16" else "fp32")


@dataclass(slots=True)
class SlowMo(DiLoCo):
    """Once in h steps, the mean of the models, and from there a step of slow momentum.

    J. Wang et al., "SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum", ICLR 2020, algorithm
    1, recalled with its defaults: as `DiLoCo`, but all go on from the old model less ``rate b``.
    """

    nesterov = False
    h: int = 12
    rate: float = 1.0
    momentum: float = 0.7


@dataclass(slots=True)
class StreamingDiLoCo(DiLoCo):
    """DiLoCo by fragments of the model, in few bits, used some steps later and mixed with what a rank has.

    A. Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv:2501.18512, of which a summary was
    read, as was github.com/pytorch/torchft; the defaults of ``delay`` and ``mix`` are recalled. Each fragment has its
    own exchange in h steps; after ``delay`` more of these a rank goes on from ``mix`` times its own model and
    ``1 - mix`` times the new one, from which it then counts how far it is. The paper sends E3M0, four bits without a
    mantissa; the scales of 32 neighbours are ours. Exchanges do not hide behind the steps of their delay here.
    """

    fragments: int = 4
    delay: int = 5
    mix: float = 0.5
    wire: Literal["fp32", "bf16", "e4m3", "e2m1", "e3m0"] = "e3m0"
