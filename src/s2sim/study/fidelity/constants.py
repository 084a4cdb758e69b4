"""The constants of a library that measured curves tell, what they are, and what a fit pulls them to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.libraries.constants_file import load_constants
from s2sim.collectives.libraries.host_constants import load_host_constants
from s2sim.data import data_directory
from s2sim.errors import S2SimError
from s2sim.text_files import read_toml
from s2sim.topology.files.quantity import read_quantity
from s2sim.units import PS_PER_S, parse_rate_Bps, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from s2sim.arrays import Floats
    from s2sim.topology.files.quantity import Quantity

FITS = "fits"
_SHARE = "share"
# Libraries between GPUs, the ancestor first; others send between hosts.
_SENDERS = ("nccl", "rccl")
# Rings over many kinds of links reach this share of their rate, or so.
_USUAL_SHARE = 0.92
# A constant that is e times its prior costs as much as a curve that is off by so much.
_PULL_OF_LATENCIES, _PULL_OF_SHARES = 0.2, 0.3


@dataclass(frozen=True, slots=True)
class MeasuredConstant:
    """A constant of a library that was measured.

    Attributes
    ----------
    name, library : str
        As in the file of that library, with dots.
    value, prior : float
        What is shipped, and what a fit pulls it to; ``source`` and ``prior_source`` say where they come from.
    unit : str
        ``s``, ``B/s`` or ``share``.
    """

    name: str
    library: str
    value: float
    unit: str
    kind: str
    source: str
    prior: float
    prior_source: str

    @property
    def owned(self) -> str:
        """Both names."""
        return f"{self.library}:{self.name}"

    @property
    def is_share(self) -> bool:
        """Whether it is a share of a rate, at most 1."""
        return self.unit == _SHARE


def owned(library: str, name: str) -> str:
    """Return the name of a library's constant with the library that has it: a descendant has those of its ancestor.

    >>> owned("rccl", "network.roce.share"), owned("rccl", "launch.collective")
    ('nccl:network.roce.share', 'rccl:launch.collective')
    """
    if library not in _SENDERS:
        return f"{library}:{name}"
    ancestor = _SENDERS[0]
    inherited = _known(library).get(name) == _known(ancestor).get(name)
    return f"{ancestor if inherited else library}:{name}"


def fitted_constants(told: Collection[str]) -> tuple[MeasuredConstant, ...]:
    """Return the constants among ``told``, as `owned` calls them, of which files say that they were measured."""
    found = []
    for text in sorted(told):
        library, _, name = text.partition(":")
        quantity = _known(library).get(name)
        if quantity is None or quantity.kind != "measured":
            continue
        value, unit = _number(quantity)
        prior = _priors(library).get(name)
        if prior is not None:
            at, why = _number(prior)[0], prior.source
        elif unit != _SHARE:
            at, why = value, "the value itself: nothing else is known of it"
        else:
            at, why = _USUAL_SHARE, "what rings over most links reach"
        found.append(MeasuredConstant(name, library, value, unit, quantity.kind, quantity.source, at, why))
    return tuple(found)


def priors_of(constants: Sequence[MeasuredConstant]) -> Floats:
    """Return ln(prior/value) of each constant."""
    return np.log([each.prior / each.value for each in constants])


def pulls_of(constants: Sequence[MeasuredConstant]) -> Floats:
    """Return how strongly each is pulled to its prior."""
    return np.array([_PULL_OF_SHARES if each.is_share else _PULL_OF_LATENCIES for each in constants])


def highest_of(constants: Sequence[MeasuredConstant]) -> Floats:
    """Return ln(highest/value) of each constant: shares end at 1."""
    return np.array([-np.log(each.value) if each.is_share else np.inf for each in constants])


def forget_constants() -> None:
    """Read files anew, as after they were written."""
    for read in (_known, load_constants, load_host_constants):
        read.cache_clear()


@cache
def _known(library: str) -> dict[str, Quantity]:
    constants = load_constants(library) if library in _SENDERS else load_host_constants(library)
    return {quantity.field: quantity for quantity in constants.quantities}


@cache
def _priors(library: str) -> dict[str, Quantity]:
    path = data_directory("libraries") / FITS / "priors.toml"
    table = read_toml(path, S2SimError).get(library, {})
    return {name: read_quantity(raw, name, path.name) for name, raw in table.items()}


def _number(quantity: Quantity) -> tuple[float, str]:
    """Return a value in its unit."""
    if not isinstance(quantity.value, str):
        return float(quantity.value), _SHARE
    if "B/s" in quantity.value or "bps" in quantity.value:
        return parse_rate_Bps(quantity.value), "B/s"
    return parse_time_ps(quantity.value) / PS_PER_S, "s"
