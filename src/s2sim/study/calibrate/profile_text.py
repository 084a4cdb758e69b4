"""Writes constants of one machine as a file for ``--library``."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from s2sim import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.libraries.calibration import FittedRange
    from s2sim.study.calibrate.result import FittedConstant

_HEAD = """\
# Constants of one machine, fitted by s2sim calibrate; --library {base}:timing=THIS_FILE simulates with them.
# All others are those of {base}. A use outside of [fitted] is named where it happens.
"""


def profile_text(
    base: str, constants: Sequence[tuple[FittedConstant, str | float]], fitted: FittedRange, origin: str
) -> str:
    """Return the text of a TOML file that `s2sim.collectives.libraries.calibration.read_calibration` reads.

    Parameters
    ----------
    base : str
        The library whose other constants hold.
    constants : sequence of (FittedConstant, str or float)
        The constants, each with its value as a file has it.
    origin : str
        What the file says of where it comes from.
    """
    lines = [_HEAD.format(base=base)]
    lines += [_pair("name", f"{base} on {fitted.topology}"), _pair("base", base), _pair("source", origin), ""]
    points = f"fitted to {fitted.points} measured points with s2sim {__version__}"
    tables: dict[str, list[str]] = {}
    for constant, written in constants:
        table, _, name = constant.name.rpartition(".")
        shipped = f"{constant.shipped:.5g}{constant.unit}"
        between = f"90 % from {constant.low:.4g} to {constant.high:.4g}{' ' * bool(constant.unit)}{constant.unit}"
        source = f"{points}, {between}; {shipped} in {base}"
        tables.setdefault(table, []).append(
            f'{name} = {{ value = {_text(written)}, kind = "measured", source = {_text(source)} }}'
        )
    for table, rows in tables.items():
        lines += [f"[{table}]", *rows, ""]
    lines.append("[fitted]")
    known = {each.name: getattr(fitted, each.name) for each in fields(fitted)}
    lines += [_pair(name, value) for name, value in known.items() if value is not None]
    return "\n".join([*lines, ""])


def _pair(name: str, value: Any) -> str:
    return f"{name} = {_text(value)}"


def _text(value: Any) -> str:
    """Return a value as TOML has it, which writes texts and numbers as JSON does, but for DEL."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return json.dumps(value).replace("\x7f", "\\u007f")
