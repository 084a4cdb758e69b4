"""Conditions on cells of a study and rows of a table: comparisons, arithmetic and logic, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from types import CodeType
from typing import Any

from s2sim.errors import OptionError, S2SimError, suggest_nearest
from s2sim.units import parse_rate_Bps, parse_size_bytes, parse_time_ps

_ALLOWED = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.In,
    ast.NotIn,
    ast.Constant,
    ast.Name,
    ast.Load,
    ast.Attribute,
    ast.List,
    ast.Tuple,
)


class _Quantity(str):
    """A value with a unit, which is compared as a number with others."""

    __slots__ = ()

    def _number(self, other: object) -> tuple[float, float]:
        for parse in (parse_rate_Bps, parse_size_bytes, parse_time_ps):
            with suppress(S2SimError):
                return float(parse(str(self))), float(parse(other))
        raise TypeError(f"{str(self)!r} and {other!r} are no quantities of one kind, to be compared")

    def __lt__(self, other: object) -> bool:
        own, others = self._number(other)
        return own < others

    def __le__(self, other: object) -> bool:
        own, others = self._number(other)
        return own <= others

    def __gt__(self, other: object) -> bool:
        return not self <= other

    def __ge__(self, other: object) -> bool:
        return not self < other


def _number(value: object) -> float:
    """Return a number as it is: texts and lists could become larger than memory by arithmetic."""
    if not isinstance(value, int | float):
        raise TypeError(f"arithmetic is on numbers, and {value!r} is none")
    return value


# No condition can name the function that arithmetic is checked by.
_NUMBER = "-number"


class _Joined(ast.NodeTransformer):
    """Makes ``nic.rate`` one name, and lets arithmetic see numbers alone."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        left, right = (
            ast.Call(ast.Name(_NUMBER, ast.Load()), [self.visit(side)], []) for side in (node.left, node.right)
        )
        return ast.copy_location(ast.BinOp(left, node.op, right), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return ast.copy_location(ast.Name(ast.unparse(node).replace(".", "__"), ast.Load()), node)


@lru_cache(maxsize=64)
def _compiled(condition: str) -> tuple[CodeType, tuple[str, ...]]:
    try:
        tree = ast.parse(condition.strip(), mode="eval")
        for node in ast.walk(tree):
            if not isinstance(node, _ALLOWED):
                raise OptionError(
                    f"condition {condition!r}: {type(node).__name__} is not allowed; there are comparisons, "
                    "arithmetic, in, and, or, not, on names of fields"
                )
        joined = ast.fix_missing_locations(_Joined().visit(tree))
        code = compile(joined, "where", "eval")
    except SyntaxError as error:
        raise OptionError(f"condition {condition!r} is no condition: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise OptionError("a condition is nested too deeply to be evaluated") from None
    return code, tuple(node.id for node in ast.walk(joined) if isinstance(node, ast.Name) and node.id != _NUMBER)


def holds(condition: str, values: Mapping[str, Any]) -> bool:
    """Return whether a condition holds for the values of fields; `OptionError` if it cannot be evaluated.

    >>> holds("workers % tp == 0 and nic.rate in ['10Gbps']", {"workers": 8, "tp": 2, "nic.rate": "10Gbps"})
    True
    """
    code, names = _compiled(condition)
    known = {
        name.replace(".", "__"): _Quantity(value) if isinstance(value, str) else value for name, value in values.items()
    }
    for name in names:
        if name not in known:
            raise OptionError(
                f"condition {condition!r}: {name.replace('__', '.')} is no name here"
                f"{suggest_nearest(name.replace('__', '.'), values)}"
            )
    try:
        return bool(eval(code, {"__builtins__": {}, _NUMBER: _number}, known))  # noqa: S307 # of nodes that are allowed alone
    except (TypeError, ZeroDivisionError) as error:
        raise OptionError(f"condition {condition!r}: {error}") from None
