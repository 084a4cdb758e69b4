"""What NCCL and RCCL say with NCCL_DEBUG=INFO, as far as it tells how a collective ran."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NRANKS = re.compile(r"\bn[rR]anks (\d{1,8})\b")
_CHANNELS = re.compile(r"\b(\d{1,8}) coll channels\b")
# Names since 2.24; before, numbers in the order of their enumerations.
_CHOICE = re.compile(r"\b(\d{1,19}) Bytes -> Algo (\w+) proto (\w+)")
_ALGORITHMS = ("tree", "ring", "collnet-direct", "collnet-chain", "nvls", "nvls-tree", "pat")
_PROTOCOLS = ("LL", "LL128", "Simple")


@dataclass(slots=True)
class Said:
    """What lines of a library said so far.

    Attributes
    ----------
    choices : dict
        Algorithm and protocol by size in bytes.
    """

    nranks: int | None = None
    channels: int | None = None
    choices: dict[int, tuple[str, str]] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Take what a line says."""
        if found := _NRANKS.search(text):
            self.nranks = int(found[1])
        elif found := _CHANNELS.search(text):
            self.channels = int(found[1])
        elif found := _CHOICE.search(text):
            self.choices[int(found[1])] = _named(found[2], _ALGORITHMS), _named(found[3], _PROTOCOLS)


def _named(text: str, names: tuple[str, ...]) -> str:
    """Return the name that a number or a name stands for; what is not known stays as it is."""
    if len(text) == 1 and text in "0123456789"[: len(names)]:
        return names[int(text)]
    known = {name.upper().replace("-", "_"): name for name in names}
    return known.get(text.upper(), text)
