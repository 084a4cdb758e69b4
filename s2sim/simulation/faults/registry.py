"""The faults by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from s2sim.errors import OptionError, unknown_name
from s2sim.options import build, split_option_string
from s2sim.simulation.faults.fault import Fault
from s2sim.simulation.faults.link_faults import BackgroundFault, FailLink, Jitter, SlowLink
from s2sim.simulation.faults.rank_faults import SlowRank

_KINDS: tuple[type[Fault], ...] = (SlowLink, FailLink, SlowRank, Jitter, BackgroundFault)

FAULTS = {kind.name: kind for kind in _KINDS}


def make_fault(text: str) -> Fault:
    """Return the fault of an option string.

    >>> make_fault("jitter:latency=2us").latency.ps
    2000000
    """
    name, options = split_option_string(text)
    if name not in FAULTS:
        raise unknown_name("fault", name, FAULTS)
    cls = FAULTS[name]
    needed = {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
    missing = sorted(needed - set(options))
    if missing and set(options) <= {field.name for field in dataclasses.fields(cls)}:
        raise OptionError(f"{text} needs {' and '.join(f'{key}=' for key in missing)}, for example {cls.example}")
    return build(cls, options, name)


def make_faults(texts: Sequence[str]) -> tuple[Fault, ...]:
    """Return the faults of option strings, each of which may stand there once."""
    faults: dict[str, Fault] = {}
    for text in texts:
        fault = make_fault(text)
        if fault.text in faults:
            raise OptionError(f"the fault {text} was asked for twice: leave one out")
        faults[fault.text] = fault
    return tuple(faults.values())
