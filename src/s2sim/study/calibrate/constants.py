"""The constants of a library that measurements of one machine can tell, and how sure the shipped ones are."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import TYPE_CHECKING

from s2sim.collectives.libraries.constants_file import load_constants
from s2sim.errors import UnitError
from s2sim.study.calibrate.result import FittedConstant
from s2sim.units import PS_PER_S, parse_rate_Bps, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from s2sim.collectives.libraries.constants import Own
    from s2sim.topology.files.quantity import Quantity

# How far constants of one machine lie from the shipped ones, which are those of a class: standard deviations of the
# logarithm. Rates are written on the box; what software takes, and what a protocol leaves of its ceiling, is not.
_SPREAD_OF_LINKS, _SPREAD_OF_SOFTWARE = 0.2, 0.5
WITHIN_90 = 1.645
"""Standard deviations within which 90 % of a normal distribution lie."""

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
    spread : float
        Standard deviation of the logarithm of what it may be, before anything is measured.
    highest : float
        Logarithm of how many times as large it may be.
    """

    name: str
    value: float
    unit: str
    spread: float
    highest: float

    def as_written(self, value: float) -> str | float:
        """Return a value as a library's file has it.

        >>> Tellable("launch.collective", 5.0, "us", 0.5, inf).as_written(4.7654321)
        '4.7654us'
        """
        text = f"{value:.{_DIGITS}g}"
        return f"{text}{self.unit}" if self.unit else min(1.0, float(text))

    def interval(self, log: float, deviation: float) -> tuple[float, ...]:
        """Return a fitted logarithm, and between which two it lies in 90 % of cases."""
        return log, *(min(log + side * WITHIN_90 * deviation, self.highest) for side in (-1, 1))

    def fitted(self, times: Iterable[float]) -> FittedConstant:
        """Return it as many times as large as shipped: as fitted, at least and at most."""
        return FittedConstant(self.name, self.unit, self.value, *(float(self.value * each) for each in times))


def tellable_constants(library: str, told: Collection[str]) -> tuple[Tellable, ...]:
    """Return the constants of a library among ``told`` that are fitted, by name.

    Those are left as they are that are chosen rather than found, because they would stand for what another one does,
    shares of all of a rate, and numbers of things. Shares end at 1, those of protocols as shipped.
    """
    found = []
    for quantity in sorted(load_constants(library).quantities, key=lambda each: each.field):
        number = None if quantity.field not in told or quantity.kind == "user" else number_of(quantity)
        if number is None or not number[0] > 0 or (not number[1] and number[0] >= 1):
            continue
        of_protocol = quantity.field.startswith("protocol.")
        spread = _SPREAD_OF_SOFTWARE if number[1] or of_protocol else _SPREAD_OF_LINKS
        highest = inf if number[1] else 0.0 if of_protocol else -log(number[0])
        found.append(Tellable(quantity.field, *number, spread, highest))
    return tuple(found)


def own_constants(constants: Collection[Tellable], times: Collection[float]) -> Own:
    """Return constants so many times as large as shipped, as a library's file has them."""
    return tuple(
        (constant.name, constant.as_written(constant.value * factor))
        for constant, factor in zip(constants, times, strict=True)
    )


def number_of(quantity: Quantity) -> tuple[float, str] | None:
    """Return a value and its unit, ``us``, ``GB/s`` or none; None for a text that is neither time nor rate."""
    value = quantity.value
    if isinstance(value, float | int):
        return float(value), ""
    for parse, scale, unit in ((parse_time_ps, PS_PER_S / 1e6, "us"), (parse_rate_Bps, 1e9, "GB/s")):
        try:
            return float(parse(value)) / scale, unit
        except UnitError:
            continue
    return None
