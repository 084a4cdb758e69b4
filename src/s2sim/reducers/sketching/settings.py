"""The settings of S2: options with their defaults, or the fixed ones of the authors' published code."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, isfinite
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from s2sim.codecs.hashing import MAX_ROWS
from s2sim.errors import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.codecs.hashing import HashKind
    from s2sim.gradients.gradient import RowSparse
    from s2sim.reducers.row_sparse.support import BitmapFormat

Preset: TypeAlias = Literal["authors-gnmt", "authors-lstm"]

_MAX_COLUMNS = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Published:
    """The part of the settings that only the authors' code has.

    ``density`` is the sigma that it assumes of every table, ``multiplier`` the rho by which it multiplies the assumed
    non-zeros, and ``seed`` that of its hash functions.
    """

    density: float
    multiplier: float
    seed: int = 42

    def columns(self, tables: Sequence[RowSparse]) -> list[int]:
        """Return the columns of each table's sketch: floor(n m sigma rho), at least 1."""
        return [max(1, floor(table.size * self.density * self.multiplier)) for table in tables]


@dataclass(frozen=True, slots=True)
class Settings:
    """What S2 runs with.

    Attributes
    ----------
    cells : float or None
        Cells of all tables' sketches per non-zero of the union; None where the columns are fixed.
    columns : int or None
        Columns of all of them together, where they were set outright.
    margin : float or None
        Headroom on the last step's union; None where nothing is estimated.
    floor : float or None
        The least that a table gets of its share of the columns by values; None where they are not shared.
    bitmap, hash : str
        Format of the support and family of the hash functions.
    published : Published or None
        The authors' own sizes, in the authors' own order of collectives; None unless a preset was asked for.
    """

    rows: int = 3
    cells: float | None = 2.0
    columns: int | None = None
    margin: float | None = 1.1
    floor: float | None = 0.9
    bitmap: BitmapFormat = "packed"
    hash: HashKind = "mix"
    published: Published | None = None

    def shares(self, tables: int) -> bool:
        """Return whether so many tables share the columns otherwise than by their values."""
        return tables > 1 and self.floor is not None and self.floor < 1

    def columns_for(self, union: float) -> int:
        """Return the columns of all tables' sketches together for a union of so many non-zeros."""
        assert self.cells is not None
        return max(1, ceil(self.cells * union / self.rows))


# github.com/GeKeShi/Sparse_Sketch_Reducer at October 2021: sigma and rho from its two configuration files, one row,
# float32 bitmaps, and the bucket hash of each of its two csvec.py.
PRESETS: dict[str, Settings] = {
    "authors-gnmt": Settings(1, None, None, None, None, "float32", "modulo", Published(density=0.02, multiplier=0.25)),
    "authors-lstm": Settings(
        1, None, None, None, None, "float32", "product", Published(density=0.01, multiplier=0.001)
    ),
}


def make_settings(preset: str | None, given: dict[str, Any]) -> Settings:
    """Return the settings of the options that were given, by name.

    `OptionError` for a value out of range, and for an option that would change nothing beside the others.
    """
    if preset is not None:
        if preset not in PRESETS:
            raise OptionError(f"s2 has no preset {preset!r}{nearest(preset, PRESETS)}")
        if given:
            raise OptionError(f"s2: preset={preset} fixes {', '.join(given)}: leave out the preset or the option")
        return PRESETS[preset]
    if "columns" in given:
        for key in ("cells", "margin", "floor"):
            if key in given:
                raise OptionError(
                    f"s2: columns={given['columns']} sets the size outright, so {key} changes nothing: give one"
                )
        given = {**given, "cells": None, "margin": None, "floor": None}
    settings = Settings(**given)
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    if not 1 <= settings.rows <= MAX_ROWS:
        raise OptionError(f"s2: rows={settings.rows} is not between 1 and {MAX_ROWS}")
    if settings.columns is not None and not 1 <= settings.columns <= _MAX_COLUMNS:
        raise OptionError(f"s2: columns={settings.columns} is not between 1 and 2^32 - 1")
    for key, value in (("cells", settings.cells), ("margin", settings.margin)):
        if value is not None and not (value > 0 and isfinite(value)):
            raise OptionError(f"s2: {key}={value} is not a number above 0")
    if settings.floor is not None and not 0 <= settings.floor <= 1:
        raise OptionError(f"s2: floor={settings.floor} is not between 0 and 1")
