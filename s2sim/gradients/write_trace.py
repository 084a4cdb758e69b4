"""Writes gradient traces: all of one, or nothing."""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Array, Floats32
from s2sim.errors import TraceError
from s2sim.files import partial_of, remove_leftovers
from s2sim.gradients import manifest as manifests
from s2sim.gradients.gradient import RowSparse, stored
from s2sim.gradients.read_trace import Trace
from s2sim.gradients.statistics import GradientSource, iterate_blocks, trace_statistics

# Halves hold 65504 at most; the largest magnitude is scaled to between 2^14 and 2^15.
_HALF_EXPONENT = 15


def _to_half(values: Floats32) -> tuple[NDArray[np.float16], float]:
    """Return ``values`` in half precision and the power of two, a normal float32, to multiply them with."""
    peak = float(max(values.max(initial=0.0), -values.min(initial=0.0)))
    exponent = max(int(np.frexp(peak)[1]) - _HALF_EXPONENT, -126) if peak else 0
    return np.ldexp(values, -exponent).astype(np.float16), float(np.ldexp(1.0, exponent))


def _half_error(values: Floats32) -> float:
    half, scale = _to_half(values)
    length = distance = 0.0
    for exact, kept in zip(iterate_blocks(values), iterate_blocks(half), strict=True):
        length += float(np.square(exact).sum())
        distance += float(np.square(scale * kept - exact).sum())
    return sqrt(distance / length) if length else 0.0


def _layer_entries(source: GradientSource, max_storage_error: float) -> tuple[manifests.LayerEntry, ...]:
    """Check every gradient and choose how each layer is stored."""
    errors: dict[str, float] = {}
    expected = [(name, layer.shape, isinstance(layer, RowSparse)) for name, layer in source.gradient(0, 0)]
    for step, rank in product(range(source.steps), range(source.world_size)):
        gradient = source.gradient(step, rank)
        label = f"the gradient of step {step}, rank {rank}"
        if [(name, layer.shape, isinstance(layer, RowSparse)) for name, layer in gradient] != expected:
            raise TraceError(f"{label} has other layers than step 0, rank 0: all ranks need the same names and shapes")
        for name, layer in gradient:
            if layer.dtype != np.float32:
                raise TraceError(f"{label}: layer {name!r} has the type {layer.dtype}; gradients are float32")
            if not np.isfinite(stored(layer)).all():
                raise TraceError(f"{label}: layer {name!r} holds NaN or infinity")
            errors[name] = max(errors.get(name, 0.0), _half_error(stored(layer).reshape(-1)))
    return tuple(
        manifests.LayerEntry(*layer, "float16", errors[layer[0]])
        if errors[layer[0]] <= max_storage_error
        else manifests.LayerEntry(*layer, "float32", 0.0)
        for layer in expected
    )


def _write_files(directory: Path, source: GradientSource, entries: tuple[manifests.LayerEntry, ...]) -> dict[str, str]:
    """Write the safetensors file of every gradient; return their checksums by name."""
    from safetensors.numpy import save

    checksums = {}
    for step, rank in product(range(source.steps), range(source.world_size)):
        gradient = source.gradient(step, rank)
        tensors: dict[str, Array] = {}
        scales = np.ones(len(entries), np.float32)
        for index, (entry, layer) in enumerate(zip(entries, gradient.layers, strict=True)):
            values = stored(layer)
            if entry.dtype == "float16":
                values, scales[index] = _to_half(values)
            tensors[f"{entry.name}/values"] = np.ascontiguousarray(values)
            if isinstance(layer, RowSparse):
                tensors[f"{entry.name}/rows"] = layer.rows.astype(np.int32)
        name, data = manifests.gradient_file_name(step, rank), save({**tensors, "scales": scales})
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(data)
        checksums[name] = hashlib.sha256(data).hexdigest()
    return checksums


def check_target(directory: Path, *, overwrite: bool) -> None:
    """Refuse a target without a parent, a file, and a non-empty directory unless it is a trace to overwrite."""
    if directory.exists() and not directory.is_dir():
        raise TraceError(f"{directory} is a file: name a new directory")
    if not directory.absolute().parent.is_dir():
        raise TraceError(f"{directory} cannot be written: there is no directory {directory.parent}; create it first")
    if not directory.is_dir() or not any(directory.iterdir()):
        return
    if not overwrite:
        raise TraceError(f"{directory} is not empty: name a new directory, or ask to overwrite it")
    if not (directory / manifests.MANIFEST_NAME).is_file():
        raise TraceError(f"{directory} holds something else than a trace and is not overwritten: name a new directory")


def _move_into_place(partial: Path, directory: Path) -> None:
    """Rename ``partial`` to ``directory``; an old trace there is deleted only once the new one stands."""
    old = directory.with_name(f".{directory.name}.old-{os.getpid()}")
    if directory.exists():
        directory.rename(old)
    try:
        partial.rename(directory)
    except BaseException:
        if old.exists():
            old.rename(directory)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write_trace(
    directory: Path,
    source: GradientSource,
    *,
    kind: Literal["recorded", "imported", "synthetic"],
    model: str,
    origin: manifests.Origin,
    batch: int | None = None,
    warmup_steps: int | None = None,
    seed: int | None = None,
    dtype: Literal["fp32", "bf16"] = "fp32",
    max_storage_error: float = 1e-3,
    overwrite: bool = False,
) -> Trace:
    """Write every gradient of ``source`` as a trace; whatever goes wrong, nothing half-written stays.

    Each float32 gradient is asked for more than once. A layer is stored in halves, scaled by a power of two per step
    and rank, up to a relative L2 error of ``max_storage_error``, else in float32; 0 keeps every bit, and still halves
    what halves can hold. The parent of ``directory`` must exist.
    """
    directory = directory.absolute()
    check_target(directory, overwrite=overwrite)
    partial = partial_of(directory)
    remove_leftovers(directory)
    entries = _layer_entries(source, max_storage_error)
    try:
        partial.mkdir()
        manifest = manifests.Manifest(
            schema_version=manifests.SCHEMA_VERSION,
            kind=kind,
            model=model,
            layers=entries,
            scaling=manifests.SCALING,
            batch=batch,
            steps=source.steps,
            world_size=source.world_size,
            warmup_steps=warmup_steps,
            seed=seed,
            origin=origin,
            statistics=None,
            files=_write_files(partial, source, entries),
            dtype=dtype,
        )
        # Measured on what was written, so that the figures are those of the gradients any reader gets.
        manifest = dataclasses.replace(manifest, statistics=trace_statistics(Trace(directory.name, partial, manifest)))
        text = json.dumps(dataclasses.asdict(manifest), indent=1, allow_nan=False, ensure_ascii=False)
        (partial / manifests.MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")
        _move_into_place(partial, directory)
    except OSError as error:
        raise TraceError(f"the trace cannot be written to {directory}: {error.strerror}; nothing was kept") from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(partial, ignore_errors=True)
    return Trace(directory.name, directory, manifest)
