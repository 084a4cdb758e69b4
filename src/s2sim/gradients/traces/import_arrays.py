"""Imports a user's own gradients, one file a rank or a step and rank, as a trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from s2sim.codecs.bfloat16 import BFLOAT16, widen
from s2sim.errors import TraceError
from s2sim.gradients.gradient import SPARSE_BELOW, Gradient, RowSparse, as_row_sparse, to_dense
from s2sim.gradients.traces.array_files import read_arrays
from s2sim.gradients.traces.file_places import by_step_and_rank
from s2sim.gradients.traces.manifest import Origin
from s2sim.gradients.traces.write import check_target, write_trace
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from s2sim.gradients.gradient import Layer
    from s2sim.gradients.traces.read import Trace


@dataclass(frozen=True, slots=True)
class _Files:
    """The user's files, by step and rank, as a source of gradients."""

    paths: tuple[tuple[Path, ...], ...]
    names: tuple[str, ...]
    sparse: frozenset[str]
    dtype: Literal["fp32", "bf16"]

    @property
    def steps(self) -> int:
        return len(self.paths)

    @property
    def world_size(self) -> int:
        return len(self.paths[0])

    def gradient(self, step: int, rank: int) -> Gradient:
        layers = read_arrays(self.paths[step][rank])
        return Gradient(self.names, tuple(self._stored(name, layers[name]) for name in self.names))

    def _stored(self, name: str, layer: Layer) -> Layer:
        layer = _widened(layer)
        if name not in self.sparse:
            return to_dense(layer)
        return layer if isinstance(layer, RowSparse) else as_row_sparse(layer)


def _widened(layer: Layer) -> Layer:
    return layer.with_values(widen(layer.values)) if isinstance(layer, RowSparse) else widen(layer)


def _row_share(layer: Layer) -> float:
    return len(layer.rows) / layer.shape[0] if isinstance(layer, RowSparse) else float(layer.any(axis=1).mean())


def _scan(paths: tuple[tuple[Path, ...], ...]) -> _Files:
    """Compare the files with each other and find the layers that are row-sparse in all of them."""
    first = paths[0][0]
    shapes: dict[str, tuple[int, ...]] = {}
    sparse: set[str] = set()
    dtypes: set[np.dtype[Any]] = set()
    for path in (path for step in paths for path in step):
        read = read_arrays(path)
        dtypes |= {layer.dtype for layer in read.values()}
        layers = {name: _widened(layer) for name, layer in read.items()}
        found = {name: layer.shape for name, layer in layers.items()}
        if not shapes:
            shapes = found
            sparse = {name for name, layer in layers.items() if isinstance(layer, RowSparse) or layer.ndim == 2}
        for name in {*shapes, *found}:
            if shapes.get(name) != found.get(name):
                raise TraceError(
                    f"{path}: layer {name!r} is {found.get(name, 'missing')}, in {first} it is "
                    f"{shapes.get(name, 'missing')}; every file needs the same layers and shapes"
                )
        sparse = {name for name in sparse if _row_share(layers[name]) < SPARSE_BELOW}
    return _Files(paths, tuple(shapes), frozenset(sparse), "bf16" if dtypes == {BFLOAT16} else "fp32")


def import_trace(
    files: Sequence[str | Path],
    out: str | Path,
    *,
    model: str = "imported gradients",
    data: str = "gradients of the user",
    licence: str = "not stated",
    overwrite: bool = False,
) -> Trace:
    """Write a trace from ``files``: one a rank in rank order, or one a step and rank, whose names tell both.

    Two-dimensional layers of which every rank leaves more than half of the rows at zero are stored as rows +
    values; values keep all bits of float32. Where all of them are bfloat16, so are the gradients of the trace.

    Parameters
    ----------
    files : sequence of path
        ``.npy`` (one layer, called "gradient"), ``.npz``, ``.safetensors``, or ``.pt`` and ``.pth`` files of float16,
        float32, float64 or (not NumPy's) bfloat16 arrays, all with the same layers and shapes. See
        `s2sim.gradients.traces.file_places` for names that tell step and rank.

    Raises
    ------
    TraceError
        If a file cannot be read, holds anything but finite floating-point arrays, or differs from the first, or if a
        step lacks a rank.
    """
    if not files:
        raise TraceError("no file to import: name one .npy, .npz, .safetensors or .pt file a rank")
    check_target(Path(out), overwrite=overwrite)
    given = tuple(map(Path, files))
    paths = by_step_and_rank(given)
    each = "one a rank" if len(paths) == 1 else "one a step and rank"
    origin = Origin(
        data=data,
        licence=licence,
        source=f"{number_of(len(given), 'file')}, {each}: {paths[0][0].name} to {paths[-1][-1].name}",
        command=f"s2sim trace import {' '.join(path.name for path in given)} --out {Path(out).name}",
        training="unknown: the gradients were imported",
    )
    source = _scan(paths)
    return write_trace(
        Path(out),
        source,
        kind="imported",
        model=model,
        origin=origin,
        dtype=source.dtype,
        max_storage_error=0.0,
        overwrite=overwrite,
    )
