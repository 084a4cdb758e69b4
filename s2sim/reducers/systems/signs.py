"""One bit an element: majority vote, error feedback, 1-bit SGD; and within optimizers: 1-bit Adam, LAMB, 0/1 Adam."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Floats32
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits, Waits
from s2sim.reducers.shared import gathered
from s2sim.reducers.systems.dense import Dense

_ONE = np.float32(1)


@dataclass(slots=True)
class SignSgdVote(gathered.Gathered):
    """Every element becomes 1 or -1: the sign that most ranks have; a bit to whoever counts, a bit back.

    J. Bernstein et al., "signSGD: compressed optimisation for non-convex problems", ICML 2018, algorithm 3, and
    "signSGD with majority vote is communication efficient and fault tolerant", ICLR 2019; recalled. The paper's
    parameter server is spread over the ranks by default: each counts a part of every tensor. A bit has no third value:
    zeros vote for 1, as do all rows of a table that a batch does not hold, and ties are 1. What ranks end with is no
    gradient but the direction of a step, whose length is the learning rate.
    """

    needs: ClassVar = {"aggregate": "wire=packed"}
    aggregate: gathered.Aggregate = "two-phase"
    wire: Literal["packed", "int8"] = "packed"

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        if self.wire != "int8":
            return (yield from gathered.Gathered.reduce(self, rank, gradient))
        if rank.size > np.iinfo(np.int8).max:
            raise OptionError(f"signsgd-vote: {rank.size} ranks' votes do not fit into wire=int8: leave it out")
        rank.work(cost.write_codes(gradient.size, gradient.size))
        own = gradient.map(lambda values: np.sign(values).astype(np.int8))
        total = yield from rank.all_reduce(own, label="votes", spreads=True)
        rank.work(cost.add_codes(gradient.size, 1, gradient.size))
        mean = rank.replicated(lambda: total.map(lambda votes: np.sign(votes).astype(np.float32)))
        return Reduced(mean, sent=lambda: own.map(lambda signs: signs.astype(np.float32)))

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        """Return signs: of the elements, or of the votes."""
        return (gathered.write_signs(vector, "packed"),)

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        return gathered.read_signs(message[0], "packed", elements, negative=-_ONE, positive=_ONE)

    def decided(self, total: Floats32, ranks: int) -> Floats32:
        return np.where(total >= 0, _ONE, -_ONE)


@dataclass(slots=True)
class EfSignSgd(gathered.Gathered):
    """C(p) = ||p||_1 / n sign(p), for each tensor; what it loses belongs into a residual (``ef=true``).

    S. P. Karimireddy et al., "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019,
    algorithm 1; read in github.com/epfml/error-feedback-SGD. Without ``ef=true`` nothing is kept of what is lost. Bits,
    32 to a word, as in PowerSGD's and ChocoSGD's code; zeros count as positive, as one bit has no third value, and the
    paper's bound holds as it stands: ||C(p) - p||^2 <= (1 - ||p||_1^2 / (n ||p||_2^2)) ||p||_2^2 (lemma 8, recalled).
    """

    wire: gathered.NumberFormat = "packed"
    aggregate: gathered.Aggregate = "gather"

    def contraction(self, gradient: Gradient) -> float | None:
        """Return ||p||_1^2 / (n ||p||_2^2), the least of all tensors that are not zero, where one loss is all."""
        if self.aggregate != "gather":
            return None
        wide = [vector.astype(np.float64) for vector in gathered.layer_vectors(gradient) if vector.any()]
        return min((np.abs(each).sum() ** 2 / (each.size * np.square(each).sum()) for each in wide), default=1.0)

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        return np.array([np.abs(vector).mean(dtype=np.float64)], np.float32), gathered.write_signs(vector, self.wire)

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        ((magnitude,), signs) = message
        return gathered.read_signs(signs, self.wire, elements, negative=-magnitude, positive=magnitude)


@dataclass(slots=True)
class OneBitSgd(gathered.Gathered):
    """Every element becomes the mean of the elements of its sign; what is lost belongs into a residual (``ef=true``).

    F. Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of
    Speech DNNs", Interspeech 2014, recalled: each rank owns a part of the elements, adds up what it gets of it and the
    residual of its last sum, and sends this in one bit again.
    """

    minimums: ClassVar = {"column": 0}
    column: int = 0
    wire: gathered.NumberFormat = "packed"
    aggregate: gathered.Aggregate = "two-phase"

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        """Return the means of negative and other elements of every column, shape (2, columns), and the signs."""
        first = np.arange(0, len(vector), self.column or len(vector))
        counts = np.add.reduceat(vector < 0, first, dtype=np.int64)
        below = np.add.reduceat(np.minimum(vector, 0), first, dtype=np.float64)
        above = np.add.reduceat(np.maximum(vector, 0), first, dtype=np.float64)
        others = np.diff(first, append=len(vector)) - counts
        means = np.stack((below / np.maximum(counts, 1), above / np.maximum(others, 1)))
        return means.astype(np.float32), gathered.write_signs(vector, self.wire)

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        means, signs = message
        positive = gathered.read_numbers(signs, 1, self.wire, elements).view(np.bool_)
        if means.shape[1] > 1:
            means = means.repeat(self.column, axis=1)[:, :elements]
        decoded: Floats32 = np.where(positive, means[1], means[0])
        return decoded


@dataclass(slots=True)
class _OneBit(EfSignSgd):
    """Signs times the root mean square of a tensor, to owners; their sums in signs times that of each part, to all."""

    aggregate: gathered.Aggregate = "two-phase"

    def encode_all(self, rank: Rank, vectors: Sequence[Floats32], what: str) -> tuple[gathered.Message, ...]:
        """Return messages, of which those of one tensor's chunks, which stand owner by owner, have its scale."""
        layers = len(vectors) // (rank.size if what == "own" else 1)
        scales = [_root_mean_square(vectors[layer::layers]) for layer in range(layers)] * rank.size
        pairs = zip(vectors, scales, strict=False)
        messages = tuple((scale[: len(vector)], gathered.write_signs(vector, "packed")) for vector, scale in pairs)
        rank.work(self.encode_work(sum(map(len, vectors)), sum(part.nbytes for each in messages for part in each)))
        return messages


def _root_mean_square(parts: Sequence[Floats32]) -> Floats32:
    squares = [np.square(part, dtype=np.float64).sum() for part in parts]
    return np.array([np.sqrt(sum(squares) / max(1, sum(map(len, parts))))], np.float32)


@dataclass(slots=True)
class OneBitAdam(Reducer):
    """Adam on all-reduced gradients at first; then its variance is frozen, and its momentum travels in one bit.

    H. Tang et al., "1-bit Adam", ICML 2021, arXiv:2102.02888, algorithm 1 (recalled); read in DeepSpeed's
    ``OnebitAdam`` and ``NcclBackend.compressed_allreduce``. With the gradient g of a rank, in the first stage
    ``m = beta1 m + (1 - beta1) mean(g)`` and ``v = beta2 v + (1 - beta2) mean(g)^2``, in the second each rank has
    ``beta1 m + (1 - beta1) g + worker_error`` and sends ``||x|| / sqrt(n) sign(x)`` of it, a tensor at a time, to the
    owners of parts; these add ``server_error`` to the mean and send it likewise, as the m of all. What each of both
    roundings loses is the error of the next. All end with ``m / (sqrt(v) + eps)``, the step, without bias correction
    and weight decay. A bit has no zero: elements whose gradients were nearly zero while v was taken step far and gather
    error, which DeepSpeed's users mask and a larger eps prevents. A row of a run is of the second stage, with ones for
    v; ``--steps`` and training have both.
    """

    compresses_all = True
    intervals: ClassVar = {"freeze_step": "[0, inf)", "beta1": "[0, 1)", "beta2": "[0, 1)"}
    freeze_step: int = 100
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    # Of all layers, shape (n,): m, v, and what this rank lost when it last sent; and of its part of sums
    m: Floats32 | None = field(init=False, repr=False, default=None)
    v: Floats32 | None = field(init=False, repr=False, default=None)
    worker_error: Floats32 | None = field(init=False, repr=False, default=None)
    server_error: Gradient | None = field(init=False, repr=False, default=None)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        if rank.step < self.freeze_step:
            yield from self.all_reduce(rank, gradient)
        else:
            own = _moved(self.m, gathered.flat_vector(gradient), self.beta1)
            self.m = yield from self.one_bit_mean(rank, own, gradient)
        return Reduced.of_step(rank.replicated(lambda: self.step(self.m, gradient)))

    @property
    def warmup_steps(self) -> int:
        return self.freeze_step

    def all_reduce(self, rank: Rank, gradient: Gradient) -> Waits[None]:
        """All-reduce the gradient, and move m and v by its mean."""
        reduced = yield from Dense().with_dtype(self.held).reduce(rank, gradient)

        def moved() -> tuple[Floats32, Floats32]:
            mean = gathered.flat_vector(reduced.mean)
            return _moved(self.m, mean, self.beta1), _moved(self.v, np.square(mean), self.beta2)

        self.m, self.v = rank.replicated(moved)

    def one_bit_mean(self, rank: Rank, own: Floats32, like: Gradient) -> Waits[Floats32]:
        """Return what the mean of ``own`` is known as to all after two roundings, whose errors are kept."""
        corrected = own if self.worker_error is None else own + self.worker_error
        exchange = _OneBit().with_server_error()
        exchange.server_error = self.server_error
        reduced = yield from exchange.reduce(rank, gathered.from_flat_vector(corrected, like))
        assert reduced.decoded is not None
        self.worker_error = corrected - gathered.flat_vector(reduced.decoded())
        self.server_error = exchange.server_error
        for _ in range(3):  # The momentum moves, and the error is added and kept.
            rank.work(cost.add(len(own)))
        return rank.replicated(lambda: gathered.flat_vector(reduced.mean))

    def step(self, m: Floats32 | None, like: Gradient) -> Gradient:
        """Return the step of a momentum."""
        assert m is not None
        return gathered.from_flat_vector(m / (np.float32(self.eps) + (1 if self.v is None else np.sqrt(self.v))), like)


def _moved(old: Floats32 | None, new: Floats32, decay: float) -> Floats32:
    """Return a decaying mean, which begins with zeros, moved by a new value."""
    return np.asarray((1 - decay) * new + (0 if old is None else decay * old))


@dataclass(slots=True)
class OneBitLamb(OneBitAdam):
    """LAMB on all-reduced gradients at first; then with frozen variance and coefficients, and momentum in one bit.

    C. Li et al., "1-bit LAMB", HiPC 2022, arXiv:2104.06069, algorithm 1 (recalled); read in DeepSpeed's
    ``OnebitLamb``. In the first stage m and v are those of `OneBitAdam`, and a layer steps by c u with
    ``u = m / (sqrt(v) + eps)`` and ``c = ||w|| / ||u||``, between ``min_coeff`` and ``max_coeff``; 1 where either norm
    is 0 or nobody tells that of the weights w. Then v and the decaying mean c_avg of c are frozen. Momenta, each times
    the s that gave all layers the same root mean square when that began, travel together in one bit, with one scale a
    message. From what arrives, m, all know ``g = (m - beta1 m_old) / (1 - beta1)``, which moves v_fresh as it would
    have moved v; a layer steps by ``r c_avg u`` with ``r = max((sqrt(v) + eps) / (sqrt(v_fresh) + eps))`` between
    ``factor_min`` and ``factor_max`` and within ``factor_threshold`` of its last value. Weight decay is left out. A row
    of a run has ones for v, c_avg and s.
    """

    coeff_beta: float = 0.9
    min_coeff: float = 0.01
    max_coeff: float = 10.0
    factor_min: float = 0.5
    factor_max: float = 4.0
    factor_threshold: float = 0.1

    v_fresh: Floats32 | None = field(init=False, repr=False, default=None)  # Of all layers, shape (n,)
    s: Floats32 | None = field(init=False, repr=False, default=None)  # Of each element its layer's, shape (n,)
    # Of each layer, shape (L,): the norm of w, c_avg, and r of the last step
    w_norm: Floats32 | None = field(init=False, repr=False, default=None)
    c_avg: Floats32 | None = field(init=False, repr=False, default=None)
    r: Floats32 | None = field(init=False, repr=False, default=None)

    def take_norms(self, norms: Callable[[], Floats32]) -> None:
        self.w_norm = norms()

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """All-reduce the gradient and follow LAMB, or exchange the scaled momentum of all layers in one bit."""
        g, sizes = gathered.flat_vector(gradient), [layer.size for layer in gradient.layers]
        if rank.step < self.freeze_step:
            yield from self.all_reduce(rank, gradient)
            self.v_fresh = self.v
            step, self.c_avg = rank.replicated(lambda: self._warm_step(gradient, sizes))
        else:
            self.s = s = rank.replicated(lambda: self._momentum_scales(gradient)) if self.s is None else self.s
            scaled = _moved(self.m, g, self.beta1) * s
            found = yield from self.one_bit_mean(rank, scaled, Gradient(("momentum",), (scaled,)))
            for _ in range(6):  # To scale and back, g, v_fresh, and the ratio of both roots.
                rank.work(cost.add(len(g)))
            step, self.m, self.v_fresh, self.r = rank.replicated(lambda: self._frozen_step(found / s, gradient, sizes))
        return Reduced.of_step(rank.replicated(lambda: gathered.from_flat_vector(step, gradient)))

    def _warm_step(self, like: Gradient, sizes: Sequence[int]) -> tuple[Floats32, Floats32]:
        """Return a step of LAMB, and c_avg."""
        u = self.step(self.m, like)
        u_norm = np.array([np.linalg.norm(part) for part in gathered.layer_vectors(u)])
        w_norm = np.zeros(len(sizes)) if self.w_norm is None else self.w_norm
        known = (w_norm > 0) & (u_norm > 0)
        ratio = np.divide(w_norm, u_norm, out=np.ones(len(sizes)), where=known)
        c = np.where(known, np.clip(ratio, self.min_coeff, self.max_coeff), 1).astype(np.float32)
        return np.repeat(c, sizes) * gathered.flat_vector(u), _moved(self.c_avg, c, self.coeff_beta)

    def _momentum_scales(self, like: Gradient) -> Floats32:
        """Return for each element by what its layer's momentum is scaled."""
        m = np.ones(like.size, np.float32) if self.m is None else self.m
        vectors = gathered.layer_vectors(gathered.from_flat_vector(m, like))
        scales = np.array([_root_mean_square([each])[0] for each in vectors], np.float32)
        s = np.divide(scales.sum() / max(1, len(scales)), scales, out=np.ones_like(scales), where=scales > 0)
        return np.repeat(s, [each.size for each in vectors])

    def _frozen_step(self, m: Floats32, like: Gradient, sizes: Sequence[int]) -> tuple[Floats32, ...]:
        """Return the step, m, v_fresh and r."""
        g = (m - np.float32(self.beta1) * (0 if self.m is None else self.m)) / np.float32(1 - self.beta1)
        v, v_fresh = (np.ones_like(m) if each is None else each for each in (self.v, self.v_fresh))
        v_fresh = _moved(v_fresh, np.square(g), self.beta2)
        ratio = np.asarray((np.sqrt(v) + self.eps) / (np.sqrt(v_fresh) + self.eps), np.float32)
        most = [part.max(initial=0) for part in gathered.layer_vectors(gathered.from_flat_vector(ratio, like))]
        last = np.ones(len(sizes), np.float32) if self.r is None else self.r
        least, largest = (last * np.float32(1 + share) for share in (-self.factor_threshold, self.factor_threshold))
        r = np.clip(np.clip(np.asarray(most, np.float32), self.factor_min, self.factor_max), least, largest)
        c = np.repeat(r if self.c_avg is None else r * self.c_avg, sizes)
        return c * gathered.flat_vector(self.step(m, like)), m, v_fresh, r


@dataclass(slots=True)
class ZeroOneAdam(OneBitAdam):
    """Adam on gradients in one bit but for ever rarer steps that move its variance; then local steps, ever more.

    Y. Lu et al., "Maximizing communication efficiency for large-scale training via 0/1 Adam", ICLR 2023,
    arXiv:2202.06009, of which an abstract was read; read in DeepSpeed's ``ZeroOneAdam``. Until the
    variance is frozen, steps that are multiples of k all-reduce gradients and move m and v, all others exchange
    gradients in one bit as `OneBitAdam` does momentum, and move m; k begins with 1 and doubles after kappa of the
    former. Then ranks move m and step by themselves, and add m to u; in steps that are multiples of an interval, u is
    exchanged in one bit, its mean u_bar takes the place of their own steps, and m = u_bar over their number. The
    interval begins with 1 and doubles every ``local_step_scaler`` steps up to ``local_step_clipper``. A row of a run is
    of intervals that grow no more, with ones for v.
    """

    minimums: ClassVar = {"var_update_scaler": 1, "local_step_scaler": 1, "local_step_clipper": 1}
    var_update_scaler: int = 16
    local_step_scaler: int = 1000
    local_step_clipper: int = 16

    u: Floats32 | None = field(init=False, repr=False, default=None)  # Sum of m since the last exchange, shape (n,)
    local_steps: int = field(init=False, repr=False, default=0)  # How many these are

    @property
    def traits(self) -> Traits:
        """Ranks step by themselves where intervals grow."""
        return replace(self.about, agrees=self.local_step_clipper == 1)

    @property
    def period(self) -> int:
        return self.local_step_clipper

    @property
    def warmup_steps(self) -> int:
        """The steps until the interval has grown."""
        return self.freeze_step + 1 + self.local_step_scaler * (self.local_step_clipper - 1).bit_length()

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Move the variance, or the momentum by signs; or step alone, and exchange what has gathered."""
        t = rank.step + 1
        g, frozen = gathered.flat_vector(gradient), t - self.freeze_step - 2  # Steps since then
        if frozen < 0:
            interval, last = 1, self.var_update_scaler
            while t > last:
                interval *= 2
                last = (last // interval + self.var_update_scaler) * interval
            if t % interval == 0:
                yield from self.all_reduce(rank, gradient)
            else:
                found = yield from self.one_bit_mean(rank, g, gradient)
                self.m = rank.replicated(lambda: _moved(self.m, found, self.beta1))
            return Reduced.of_step(rank.replicated(lambda: self.step(self.m, gradient)))

        if frozen == 0:  # Errors were of gradients, and will be of momentum.
            self.worker_error = self.server_error = None
        m, before = _moved(self.m, g, self.beta1), np.zeros_like(g) if self.u is None else self.u
        self.m, self.u, self.local_steps = m, before + m, self.local_steps + 1
        rank.work(cost.add(2 * len(g)))
        if t % min(2 ** (frozen // self.local_step_scaler), self.local_step_clipper):
            return Reduced.of_step(self.step(m, gradient))
        u_bar = yield from self.one_bit_mean(rank, self.u, gradient)
        self.m, self.u, self.local_steps = u_bar / np.float32(self.local_steps), None, 0
        return Reduced.of_step(self.step(u_bar - before, gradient))
