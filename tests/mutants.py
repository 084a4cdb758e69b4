"""Small faults, one at a time in a copy of the tree: do the quick tests of their room fail?

    python tests/mutants.py 20                            # twenty faults, with the seed 0, anywhere in ROOMS
    python tests/mutants.py 20 7 codecs network           # of two rooms, with the seed 7

A fault is one change of one line: a comparison turned round, plus for minus, a constant off by one, a condition
negated, None returned instead of a value. A line that survives is one that no quick test of its room depends on; some
are equal to what they replace. The exit code is the number of those that survived, at most 100.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The tests of a room are in the folder of its name, unless it is said here.
ROOMS = {
    "codecs": ["tests/codecs"],
    "network": ["tests/network"],
    "collectives": ["tests/collectives"],
    "reducers": ["tests/reducers"],
    "experiment": ["tests/study"],
}
LIMIT_S = 600
OTHER = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


def changed(node: ast.AST) -> ast.expr | None:
    """Return what stands in the place of an expression, None if there is nothing to change in it."""
    match node:
        case ast.Compare(ops=[operator]):
            return ast.Compare(node.left, [OTHER[type(operator)]()], node.comparators)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return ast.BinOp(node.left, OTHER[type(node.op)](), node.right)
        case ast.Constant(value=value) if type(value) is int:
            return ast.Constant(value + 1)
    return None


def candidates(tree: ast.Module) -> list[tuple[ast.expr, ast.expr]]:
    """Return (expression, what replaces it) for all that can be changed within functions."""
    found = []
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in (each for statement in function.body for each in ast.walk(statement)):
            match node:
                case ast.If(test=test) | ast.IfExp(test=test):
                    found.append((test, ast.UnaryOp(ast.Not(), test)))
                case ast.Return(value=ast.expr() as value):
                    found.append((value, ast.Constant(None)))
                case ast.expr() if (other := changed(node)) is not None:
                    found.append((node, other))
    return [(old, new) for old, new in found if old.lineno == old.end_lineno]


def mutate(text: str, old: ast.expr, new: ast.expr) -> str:
    """Return a source with one expression, which stands in one line, replaced; columns are of UTF-8."""
    lines = text.splitlines(keepends=True)
    line = lines[old.lineno - 1].encode()
    code = ast.unparse(ast.fix_missing_locations(new))
    lines[old.lineno - 1] = (line[: old.col_offset] + f"({code})".encode() + line[old.end_col_offset :]).decode()
    return "".join(lines)


def tests_fail(copy: Path, tests: list[str]) -> bool:
    """Run the quick tests of a room in a copy of the tree; what takes too long counts as a failure."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONPYCACHEPREFIX": f"{copy}-bytecode"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def write(path: Path, text: str, seconds: int) -> None:
    """Write a source with a time of its own, as Python takes bytecode of a file of the same time and size."""
    path.write_text(text, "utf-8")
    os.utime(path, (seconds, seconds))


def main(count: str = "20", seed: str = "0", *rooms: str) -> int:
    """Print a line for each fault: killed or survived, the file, the line, and what stands there instead."""
    draw, survived = random.Random(int(seed)), 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*_cache", "__pycache__", ".git", ".venv"))
        for number in range(int(count)):
            room = draw.choice(rooms or list(ROOMS))
            path = draw.choice(sorted((copy / "s2sim" / room).rglob("*.py")))
            text = path.read_text("utf-8")
            if not (found := candidates(ast.parse(text))):
                continue
            old, new = draw.choice(found)
            write(path, mutate(text, old, new), 2 * number)
            killed = tests_fail(copy, ROOMS[room])
            write(path, text, 2 * number + 1)
            survived += not killed
            place = f"{path.relative_to(copy)}:{old.lineno}"
            was, now = (ast.unparse(each) for each in (old, new))
            print("killed  " if killed else "survived", f"{place}: {was} -> {now}", flush=True)
    return min(survived, 100)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
