"""Names of commands and options of before: they work for one more version, with a line that says the new ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_COMMANDS = {
    ("testbed",): ("dev", "testbed"),
    ("bridge",): ("dev", "bridge"),
    ("schema",): ("dev", "schema"),
    ("validate",): ("dev", "validate"),
    ("calibrate",): ("dev", "calibrate"),
    ("codec", "regimes"): ("regimes",),
    ("codec", "compare"): ("run", "--show", "pareto"),
    ("profile", "list"): ("list", "profiles"),
}
_OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "run": {"--details": ("--show", "details"), "--per-layer": ("--show", "layers")},
    "train": {"--plot": ("--png",)},
    "dev testbed compare": {"--plot": ("--png",)},
}
# What ``codec compare`` did unless it was said.
_COMPARED = {"--topology": "fat-tree", "--workers": "1,8,64", "--no-break-even": None}


def with_new_names(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the names of today; each that it replaces is a line on standard error.

    >>> with_new_names(["list", "reducers"])
    ['list', 'reducers']
    """
    line = list(arguments)
    for old, new in _COMMANDS.items():
        if tuple(line[: len(old)]) == old:
            _say(" ".join(old), " ".join(new))
            rest = line[len(old) :]
            if old == ("codec", "compare"):
                rest += [part for name, value in _COMPARED.items() for part in _missing(rest, name, value)]
            line = [*new, *rest]
    options = next((names for command, names in _OPTIONS.items() if " ".join(line).startswith(f"{command} ")), {})
    found: list[str] = []
    for part in line:
        name, sign, value = part.partition("=")
        renamed = options.get(name)
        if renamed is None:
            found.append(part)
            continue
        _say(name, " ".join(renamed))
        found += [*renamed[:-1], f"{renamed[-1]}{sign}{value}"]
    return found


def _missing(line: Sequence[str], name: str, value: str | None) -> list[str]:
    if any(part.partition("=")[0] == name for part in line):
        return []
    return [name] if value is None else [name, value]


def _say(old: str, new: str) -> None:
    sys.stderr.write(f"s2sim: note: {old} is {new} now; the old name goes in the next version\n")
