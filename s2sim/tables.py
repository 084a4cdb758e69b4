"""Tables of scalars that leave the tool: CSV, Parquet, LaTeX, data frames; and conditions on their rows."""

import ast
import csv
import io
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import nan
from types import CodeType
from typing import Any, TypeVar

from s2sim.errors import OptionError, S2SimError, check_known, suggest_nearest
from s2sim.units import parse_rate_Bps, parse_size_bytes, parse_time_ps

T = TypeVar("T")
K = TypeVar("K")

# Logic, arithmetic, comparisons, and what they are of.
_ALLOWED = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn),
    *(ast.Constant, ast.Name, ast.Load, ast.Attribute, ast.List, ast.Tuple),
)


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return items by a key of each, in their order.

    >>> group_by(["one", "two", "three"], len)
    {3: ['one', 'two'], 5: ['three']}
    """
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


_PARSERS = (parse_rate_Bps, parse_size_bytes, parse_time_ps)


@lru_cache(maxsize=4096)
def _place(value: object) -> tuple[int, float, str]:
    """Return what values are ordered by: numbers first, then rates, sizes and times as numbers, then other texts."""
    if isinstance(value, int | float):
        return 0, value, ""
    for kind, parse in enumerate(_PARSERS, 1):
        with suppress(S2SimError):
            return kind, float(parse(value)), ""
    return len(_PARSERS) + 1, 0.0, str(value)


class _Quantity(str):
    """A value with a unit, which is compared as a number with others."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and _place(str(self)) == _place(str(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: object) -> bool:
        own, others = _place(str(self)), _place(str(other))
        if own[0] != others[0] or own[0] > len(_PARSERS):
            raise TypeError(f"{str(self)!r} and {other!r} are no quantities of one kind, to be compared")
        return own < others

    def __le__(self, other: object) -> bool:
        return self < other or self == other

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
        sides = (self.visit(side) for side in (node.left, node.right))
        left, right = (ast.Call(ast.Name(_NUMBER, ast.Load()), [side], []) for side in sides)
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
    plain = {name.replace(".", "__"): value for name, value in values.items()}
    known = {name: _Quantity(value) if isinstance(value, str) else value for name, value in plain.items()}
    for name in names:
        if name not in known:
            raise OptionError(
                f"condition {condition!r}: {name.replace('__', '.')} is no name here"
                f"{suggest_nearest(name.replace('__', '.'), values)}"
            )
    try:
        return bool(eval(code, {"__builtins__": {}, _NUMBER: _number}, known))  # noqa: S307 # of nodes that are allowed alone
    except (TypeError, ArithmeticError) as error:
        raise OptionError(f"condition {condition!r}: {error}") from None


_LATEX = str.maketrans(
    {char: f"\\{char}" for char in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\^{}", "\\": r"\textbackslash{}"}
)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of numbers, texts and truth values by column; None where a figure does not apply."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]

    def select(self, condition: str | None = None, sort: str | None = None) -> "Table":
        """Return rows that meet a condition, as ``total_s < 0.1``, by a column (``-``: descending), None last."""
        rows = list(self.rows)
        if condition is not None:
            rows = [row for row in rows if holds(condition, {k: nan if v is None else v for k, v in row.items()})]
        if sort is not None:
            name, last = self.known(sort.removeprefix("-")), sort.startswith("-")
            known = [row for row in rows if row[name] is not None]
            known.sort(key=lambda row: _place(row[name]), reverse=last)
            rows = known + [row for row in rows if row[name] is None]
        return Table(self.columns, tuple(rows))

    def pivot(self, rows: str, columns: str, value: str) -> "Table":
        """Return a row for each value of one column, a column for each value of another; `OptionError` if two meet."""
        for name in (rows, columns, value):
            self.known(name)
        found: dict[Any, dict[str, Any]] = {}
        for row in self.rows:
            if row[rows] is None or row[columns] is None:
                continue
            line, name = found.setdefault(row[rows], {rows: row[rows]}), str(row[columns])
            if line.get(name, row[value]) != row[value]:
                raise OptionError(
                    f"several rows have {rows} = {row[rows]} and {columns} = {name}: choose among them with --where"
                )
            line[name] = row[value]
        titles = dict.fromkeys(name for line in found.values() for name in line)
        return Table(tuple(titles), tuple({name: line.get(name) for name in titles} for line in found.values()))

    def known(self, name: str) -> str:
        """Return the name of a column; `OptionError` if there is none."""
        check_known(name, self.columns, f"there is no column {name!r}")
        return name

    def is_numeric(self, name: str) -> bool:
        """Return whether a column has nothing but numbers."""
        return all(isinstance(row[name], int | float) for row in self.rows if row[name] is not None)

    def shown(self) -> "Table":
        """Return it without columns in which nothing stands."""
        kept = tuple(name for name in self.columns if any(row[name] is not None for row in self.rows))
        return Table(kept, self.rows)

    def to_csv(self) -> str:
        """Return CSV with a line of names; what does not apply is empty."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def to_latex(self) -> str:
        """Return a ``tabular`` with the rules of the package booktabs; numbers have four digits."""
        lines = [" & ".join(name.translate(_LATEX) for name in self.columns)]
        lines += [" & ".join(_latex_cell(row[name]) for name in self.columns) for row in self.rows]
        head, *body = (rf"{line} \\" for line in lines)
        format_of = "".join("r" if self.is_numeric(name) else "l" for name in self.columns)
        rules = [rf"\begin{{tabular}}{{{format_of}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
        return "\n".join([*rules, r"\end{tabular}", ""])

    def to_frame(self) -> Any:
        """Return a ``polars.DataFrame``; its ``to_pandas`` makes one of pandas. Needs the extra tables."""
        try:
            import polars as pl
        except ImportError:
            raise S2SimError("data frames and Parquet need polars: pip install 's2sim[tables]'") from None
        columns = {name: [row[name] for row in self.rows] for name in self.columns}
        return pl.DataFrame(columns, strict=False, infer_schema_length=None)

    def to_parquet(self) -> bytes:
        """Return the content of a Parquet file."""
        data = io.BytesIO()
        self.to_frame().write_parquet(data)
        return data.getvalue()


def _latex_cell(value: Any) -> str:
    if value is None:
        return "--"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).translate(_LATEX)


def flat_scalars(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers and texts of a JSON object, those of inner objects with joined names; lists are left out.

    >>> flat_scalars({"time_s": {"total": 1.5}, "error": {"l2": 0.1}, "links": [1]})
    {'total_s': 1.5, 'error_l2': 0.1}
    """
    found: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            before, after = ("", name.removeprefix("time")) if name.startswith("time_") else (f"{name}_", "")
            found |= {f"{before}{inner}{after}": each for inner, each in flat_scalars(item).items()}
        elif not isinstance(item, list):
            found[name] = item
    return found


def table_of(rows: Iterable[dict[str, Any]]) -> Table:
    """Return the table of rows, with all columns that one of them has."""
    every = tuple(rows)
    columns = tuple(dict.fromkeys(name for row in every for name in row))
    return Table(columns, tuple({name: row.get(name) for name in columns} for row in every))
