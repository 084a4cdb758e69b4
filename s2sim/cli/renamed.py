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
_COMPARED = {"--topology": ["fat-tree"], "--workers": ["1,8,64"], "--no-break-even": []}


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
                given = {part.partition("=")[0] for part in rest}
                rest += [part for name, value in _COMPARED.items() if name not in given for part in (name, *value)]
            line = [*new, *rest]
    line = _collective(line)
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


_OF_TABLES = ("--format", "--from", "--to", "--factor")


def _collective(line: list[str]) -> list[str]:
    """Return a line of ``collective`` with many sizes, or with a log, as one of its sub-command."""
    given = {part.partition("=")[0] for part in line}
    if line[:1] != ["collective"] or line[1:2] in (["table"], ["log"]):
        return line
    if "--against" in given:
        _say("collective --against LOG", "collective log LOG")
        log, rest = _taken(line[1:], "--against")
        return ["collective", "log", *log, *rest]
    if given.isdisjoint(_OF_TABLES):
        return line
    _say("collective --format nccl-tests", "collective table")
    return ["collective", "table", *_taken(line[1:], "--format")[1]]


def _taken(line: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    """Return the value of an option, and a line without it."""
    for place, part in enumerate(line):
        found, sign, value = part.partition("=")
        if found == name:
            end = place + (1 if sign else 2)
            return [value] if sign else list(line[place + 1 : end]), [*line[:place], *line[end:]]
    return [], list(line)


def _say(old: str, new: str) -> None:
    sys.stderr.write(f"s2sim: note: {old} is {new} now; the old name goes in the next version\n")
