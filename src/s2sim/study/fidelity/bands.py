"""How far measured times lie around predicted ones, by what is alike: from errors of sources that were left out.

A band reaches from the 4 % to the 96 % quantile of ln(measured/predicted) over all points that are told, each counted
by how much it has in common with what is asked: the GPU, the network, the collective, the launch, and the size. A
source has one voice, however many points it has. So a class that many sources tell has a band of its own, and one that
few tell leans on the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.data import data_directory
from s2sim.errors import S2SimError
from s2sim.text_files import read_text

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from s2sim.arrays import Floats, Mask
    from s2sim.study.fidelity.run_class import RunClass

VERSION = 1
# What a point counts that has another GPU, network, collective or launch.
_UNLIKE = (0.25, 0.25, 0.5, 0.5)
# Powers of two between sizes that count e times less for each other.
_FAR = 3.0
# Of so few sources the quantiles of 5 % and 95 % hold 87 % of what one of them measured that they have not seen.
_LOW, _HIGH = 0.04, 0.96


@dataclass(frozen=True, slots=True)
class CurveOfErrors:
    """What one curve was off by, predicted without its source: ln(measured/predicted) of each size.

    ``alike`` is its class: GPU, network, collective and launch.
    """

    id: str
    source: str
    alike: tuple[str, str, str, str]
    sizes_bytes: tuple[int, ...]
    errors: tuple[float, ...]


@dataclass(frozen=True)
class Bands:
    """What a bands file holds.

    ``curves`` are of sources that were left out one by one. ``draws`` are logarithms of how many times as large as
    shipped the ``constants`` (``library:name``) are, fitted to sources drawn with replacement.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    version: int
    made_by: str
    curves_sha256: str
    curves: tuple[CurveOfErrors, ...]
    constants: tuple[str, ...]
    draws: tuple[tuple[float, ...], ...]

    @property
    def sources(self) -> frozenset[str]:
        """Sources that it knows."""
        return frozenset(curve.source for curve in self.curves)

    def around(self, run: RunClass, size_bytes: float, without: Collection[str] = ()) -> tuple[float, float]:
        """Return by what a predicted time is multiplied for the ends of its band of 90 %, at most 1 and at least 1.

        Sources in ``without`` tell nothing.
        """
        points = self._points
        kept = np.flatnonzero(~np.isin(points.source, list(without)))
        far = np.abs(points.log_size[kept] - np.log2(max(size_bytes, 1)))
        weights = np.exp(-far / _FAR)
        for column, unlike in enumerate(_UNLIKE):
            weights *= np.where(points.alike[kept, column] == run.alike[column], 1.0, unlike)
        voices, voice = np.unique(points.source[kept], return_inverse=True)
        most = np.zeros(len(voices))
        np.maximum.at(most, voice, weights)
        weights *= (most / np.bincount(voice, weights))[voice]
        low, high = _quantiles(points.error[kept], weights)
        return float(np.exp(min(low, 0.0))), float(np.exp(max(high, 0.0)))

    @cached_property
    def _points(self) -> _Points:
        lengths = [len(curve.errors) for curve in self.curves]
        return _Points(
            np.repeat([curve.source for curve in self.curves], lengths),
            np.repeat([curve.alike for curve in self.curves], lengths, axis=0),
            np.log2(np.concatenate([curve.sizes_bytes for curve in self.curves])),
            np.concatenate([curve.errors for curve in self.curves]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    """Points of all curves: text arrays of shape (p,) and (p, 4), float64 arrays of shape (p,)."""

    source: Mask
    alike: Mask
    log_size: Floats
    error: Floats


def _quantiles(values: Floats, weights: Floats) -> tuple[float, float]:
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    middle = (passed - weights[order] / 2) / passed[-1]
    low, high = np.interp((_LOW, _HIGH), middle, values[order])
    return float(low), float(high)


def bands_file() -> Path:
    """Return where the shipped bands are."""
    return data_directory("libraries") / "fits" / "bands.json"


@cache
def shipped_bands() -> Bands:
    """Return the bands that travel with the program."""
    from pydantic import TypeAdapter, ValidationError

    path = bands_file()
    try:
        found = TypeAdapter(Bands).validate_json(read_text(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise S2SimError(f"{path.name}, {where}: {first['msg']}; write it with s2sim validate --write") from None
    if found.version != VERSION:
        raise S2SimError(f"{path.name} has version {found.version} instead of {VERSION}: run s2sim validate --write")
    return found
