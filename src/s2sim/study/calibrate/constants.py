"""The constants of a library that measurements of one machine can tell, and how sure the shipped ones are."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import TYPE_CHECKING

from s2sim.collectives.libraries.constants_file import load_constants
from s2sim.errors import UnitError
from s2sim.units import PS_PER_S, parse_rate_Bps, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Collection

    from s2sim.collectives.libraries.constants import Own
    from s2sim.topology.files.quantity import Quantity

# How far constants of one machine lie from the shipped ones, which are those of a class: standard deviations of the
# logarithm. Rates are written on the box; what software takes, and what a protocol leaves of its ceiling, is not.
_SPREAD_OF_LINKS, _SPREAD_OF_SOFTWARE = 0.2, 0.5
# What is written into a file.
_DIGITS = 5


@dataclass(frozen=True, slots=True)
class Tellable:
    """A constant that is fitted.

    Attributes
    ----------
    name : str
        As in the library's file, with dots.
    value : float
        What is shipped: a share, or in ``unit``.
    unit : str
        ``us``, ``GB/s``, or empty for a share.
    kind : str
        Where the shipped value comes from.
    """

    name: str
    value: float
    unit: str
    kind: str

    @property
    def spread(self) -> float:
        """Standard deviation of the logarithm of what it may be, before anything is measured."""
        return _SPREAD_OF_SOFTWARE if self.unit or self._of_protocol else _SPREAD_OF_LINKS

    @property
    def highest(self) -> float:
        """Logarithm of how many times as large it may be: shares end at 1, those of protocols as shipped."""
        if self.unit:
            return inf
        return 0.0 if self._of_protocol else -log(self.value)

    @property
    def _of_protocol(self) -> bool:
        return self.name.startswith("protocol.")

    def as_written(self, value: float) -> str | float:
        """Return a value as a library's file has it.

        >>> Tellable("launch.collective", 5.0, "us", "measured").as_written(4.7654321)
        '4.7654us'
        """
        text = f"{value:.{_DIGITS}g}"
        return f"{text}{self.unit}" if self.unit else min(1.0, float(text))


def tellable_constants(library: str, told: Collection[str]) -> tuple[Tellable, ...]:
    """Return the constants of a library that are fitted, by name.

    Those are left as they are that are chosen rather than found, because they would stand for what another one does,
    shares of all of a rate, and numbers of things.

    Parameters
    ----------
    told : collection of str
        The constants that the predictions of what was measured are made of.
    """
    found = []
    for quantity in sorted(load_constants(library).quantities, key=lambda each: each.field):
        number = None if quantity.field not in told or quantity.kind == "user" else _number(quantity)
        if number is not None:
            found.append(Tellable(quantity.field, *number, quantity.kind))
    return tuple(found)


def own_constants(constants: Collection[Tellable], times: Collection[float]) -> Own:
    """Return constants so many times as large as shipped, as a library's file has them."""
    return tuple(
        (constant.name, constant.as_written(constant.value * factor))
        for constant, factor in zip(constants, times, strict=True)
    )


def _number(quantity: Quantity) -> tuple[float, str] | None:
    """Return a value in its unit; None for what cannot be more or less."""
    value = quantity.value
    if isinstance(value, float | int):
        return (float(value), "") if 0 < value < 1 else None
    for parse, scale, unit in ((parse_time_ps, PS_PER_S / 1e6, "us"), (parse_rate_Bps, 1e9, "GB/s")):
        try:
            number = float(parse(value)) / scale
        except UnitError:
            continue
        return (number, unit) if number > 0 else None
    return None
