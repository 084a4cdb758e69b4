"""Synthetic gradients for those who have no real ones: chosen density, overlap and tail, drawn on demand."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from s2sim.arrays import Floats32
from s2sim.errors import OptionError, TraceError
from s2sim.gradients import law, read_trace
from s2sim.gradients.gradient import Gradient, Layer, RowSparse
from s2sim.gradients.manifest import SCHEMA_VERSION, LayerEntry, Manifest, Origin
from s2sim.gradients.statistics import check_place
from s2sim.options import build, join_option_string, non_default, split_option_string
from s2sim.seeds import named_generator

_DENSE_LAYER = "dense"


def _is_exponent(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class SyntheticOptions:
    """The look of synthetic gradients.

    Row-sparse layers of one shape, and one dense layer of so many elements, if any.
    """

    # density, overlap: share of a layer's rows that one rank holds, in (0, 1], and of these that all ranks hold, in [0,
    # 1]; each rank draws its others on its own
    density: float = 0.01
    overlap: float = 0.5
    # ``"gaussian"``, or the exponent a > 0 of a power law: P(|value| > t) = t^-a for t >= 1, random signs
    tail: str = "gaussian"
    rows: int = 37500
    width: int = 64
    layers: int = 1
    dense: int = 0
    steps: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.density <= 1:
            raise OptionError(f"synthetic: density={self.density} is not above 0 and at most 1")
        if not 0 <= self.overlap <= 1:
            raise OptionError(f"synthetic: overlap={self.overlap} is not between 0 and 1")
        for key, least in (("rows", 1), ("width", 1), ("layers", 1), ("steps", 1), ("dense", 0)):
            if getattr(self, key) < least:
                raise OptionError(f"synthetic: {key}={getattr(self, key)} is less than {least}")
        if self.rows_per_rank == 0:
            raise OptionError(f"synthetic: density={self.density} of {self.rows} rows is less than one row")
        if self.tail != "gaussian" and not _is_exponent(self.tail):
            raise OptionError(f"synthetic: tail={self.tail} is neither gaussian nor a power-law exponent above 0")

    @property
    def rows_per_rank(self) -> int:
        """Rows that one rank holds in each layer."""
        return round(self.density * self.rows)

    @property
    def held_bytes(self) -> int:
        """Bytes of one rank's gradient, rows that it does not hold left out."""
        return 4 * self.dense + self.layers * self.rows_per_rank * (4 * self.width + 8)

    @property
    def common_rows(self) -> int:
        """Rows that all ranks hold in each layer."""
        return round(self.overlap * self.rows_per_rank)


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticTrace:
    """Gradients drawn on demand, with the interface of `Trace`.

    Every draw has a generator named by step, layer and rank, so that a rank's gradient is the same whatever was
    drawn before it and however many ranks there are.
    """

    options: SyntheticOptions
    world_size: int
    seed: int

    @property
    def name(self) -> str:
        """The option string that gives this trace."""
        return join_option_string("synthetic", non_default(self.options))

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.options.steps

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers, the dense one last."""
        names = tuple(f"sparse{index}" for index in range(self.options.layers))
        return (*names, _DENSE_LAYER) if self.options.dense else names

    @property
    def manifest(self) -> Manifest:
        """The description that a recorded trace has in its file, with kind "synthetic"."""
        table = (self.options.rows, self.options.width)
        entries = [
            LayerEntry(name, (self.options.dense,), sparse=False, dtype="float32", storage_error=0.0)
            if name == _DENSE_LAYER
            else LayerEntry(name, table, sparse=True, dtype="float32", storage_error=0.0)
            for name in self.layer_names
        ]
        return Manifest(
            schema_version=SCHEMA_VERSION,
            kind="synthetic",
            model="synthetic gradients",
            layers=tuple(entries),
            scaling="none: drawn in float32",
            batch=None,
            steps=self.steps,
            world_size=self.world_size,
            warmup_steps=None,
            seed=self.seed,
            origin=Origin(
                data="random numbers",
                licence="none needed",
                source="drawn on demand",
                command=f"--trace {self.name}",
                training="none",
            ),
            statistics=None,
            files={},
        )

    def gradient(self, step: int, rank: int) -> Gradient:
        """Return one rank's gradient of one step: float32, rows + values, then the dense layer if there is one."""
        check_place(self.name, self, step, rank)
        layers: list[Layer] = [self._sparse_layer(step, rank, index) for index in range(self.options.layers)]
        if self.options.dense:
            generator = named_generator(self.seed, "dense values", step, rank)
            layers.append(_draw(generator, self.options.tail, (self.options.dense,)))
        return Gradient(self.layer_names, tuple(layers))

    def _sparse_layer(self, step: int, rank: int, index: int) -> RowSparse:
        options = self.options
        shared = named_generator(self.seed, "common rows", step, index)
        common = np.sort(shared.choice(options.rows, options.common_rows, replace=False, shuffle=False))
        own = named_generator(self.seed, "own rows", step, index, rank)
        count = options.rows_per_rank - options.common_rows
        # Drawn among the rows that are not common, then moved past the common ones to their place among all.
        free = np.sort(own.choice(options.rows - options.common_rows, count, replace=False, shuffle=False))
        free = free + np.searchsorted(common - np.arange(len(common)), free, side="right")
        rows = np.sort(np.concatenate([common, free])).astype(np.int64)
        random = named_generator(self.seed, "values", step, index, rank)
        values = _draw(random, options.tail, (len(rows), options.width))
        return RowSparse(rows, values, (options.rows, options.width))


def _draw(generator: np.random.Generator, tail: str, shape: tuple[int, ...]) -> Floats32:
    """Return float32 values of ``shape`` with the tail asked for, none of them zero or infinite."""
    if tail == "gaussian":
        values = generator.standard_normal(shape, np.float32)
        values[values == 0] = np.finfo(np.float32).tiny
        return values
    # Inverse transform: U^(-1/a) has P(X > t) = t^-a. Clipped so that small exponents stay finite in float32.
    magnitude = np.minimum((1 - generator.random(shape)) ** (-1 / float(tail)), 1e30)
    return np.asarray(np.where(generator.random(shape) < 0.5, -magnitude, magnitude), np.float32)


AnyTrace: TypeAlias = read_trace.Trace | SyntheticTrace | law.ExtrapolatedRanks


def load_trace(spec: str | Path, *, workers: int, seed: int = 0, keep: bool = False) -> AnyTrace:
    """Return the trace that ``spec`` names, with ``workers`` ranks: beyond the recorded ones a fitted law draws them.

    It names a shipped trace, a trace directory, or is ``synthetic:density=...,overlap=...,tail=...``. ``seed`` is the
    root of a synthetic trace, and of ranks that were not recorded. With ``keep`` what was read is kept, see
    `s2sim.gradients.read_trace.Trace.keeping`.
    """
    if workers < 1:
        raise TraceError(f"{workers} workers were asked for; there must be at least 1")
    if isinstance(spec, str) and spec.partition(":")[0].strip() == "synthetic":
        if seed < 0:
            raise TraceError(f"seed={seed} is negative; use 0 or more")
        _, options = split_option_string(spec)
        return SyntheticTrace(build(SyntheticOptions, options, "synthetic"), workers, seed)
    trace = read_trace.open_trace(spec).keeping() if keep else read_trace.open_trace(spec)
    if workers <= trace.world_size:
        return trace
    if trace.world_size < law.MIN_RANKS:
        raise TraceError(
            f"trace {trace.name} has too few recorded ranks, {trace.world_size}, to draw {workers} workers by a law "
            f"fitted to them: use --workers {trace.world_size} or fewer, or record {law.MIN_RANKS} ranks"
        )
    return law.ExtrapolatedRanks(trace.name, trace.manifest, trace, law.fit_law(trace), workers, seed)
