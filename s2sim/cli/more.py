"""``s2sim import``, ``regimes``, ``diff``, ``flows``, ``cache``, ``new``: used once in a while."""

import json as json_module
import re
from collections.abc import Collection, Iterator, Mapping
from importlib import util
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Any

from s2sim.cli import output
from s2sim.cli.options import Experiment, check_targets, command, example_of, group, options_from, takes_tables
from s2sim.errors import OptionError, S2SimError
from s2sim.files import read_text
from s2sim.regimes.map import DENSE, RegimeSpec, default_reducers
from s2sim.tables import Table
from s2sim.traffic.spec import FlowsSpec
from s2sim.units import format_bytes, format_number_of


def import_command(
    *,
    file: str,
    form: str | None = None,
    out: str = "-",
    gpu: str | None = None,
    transport: str | None = None,
    nic_rate: str | None = None,
) -> None:
    """Make a cluster file of what a machine, or another simulator, says; s2sim run --topology ./FILE.toml takes it.

    It says what was understood, ignored and assumed. What a file leaves open comes from the hardware catalogue.
    """
    if out != output.STDOUT:
        check_targets(out=out)
    from s2sim.validation.import_machine import import_machine

    folder = Path() if out == output.STDOUT else Path(out).parent
    found = import_machine(Path(file), form=form, gpu=gpu, transport=transport, nic_rate=nic_rate, folder=folder)
    output.write_text(found.text, out)
    if out != output.STDOUT:
        parts = {"Understood": [found.understood], "Ignored": found.ignored, "Assumed": found.assumed}
        output.show_lines([f"{file}: {found.format}"])
        output.show_lines([f"{name}: {'; '.join(texts)}." for name, texts in parts.items() if texts])
        output.show_lines([f"Saved to {out}; next: s2sim topology show {output.as_path(out)}"])


@options_from(RegimeSpec, workers="16", topology="fat-tree")
def regimes_command(
    experiment: Experiment[RegimeSpec],
    *,
    prefetch: bool | None = None,
    png: str | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Map which compressor (reducer) wins at which density, overlap, rate and latency, and by how much over dense.

    Every reducer runs once on synthetic gradients of each density and overlap; what it sends is then replayed at every
    rate and latency of the network interfaces.
    """
    named = tuple(experiment.values["reducers"] or ())
    if named and prefetch is not None:
        flag = "--prefetch" if prefetch else "--no-prefetch"
        raise OptionError(
            f"{flag} changes nothing beside --reducer: give --reducer union:prefetch=true, or leave one out"
        )
    check_targets(json=json, png=png)
    reducers = named or default_reducers(experiment.values["max_error"], prefetch=bool(prefetch))
    spec = experiment.spec(reducers=reducers if DENSE in reducers else (DENSE, *reducers))
    if png is not None:
        from s2sim.report.figures.sweeps import check_picture_size

        check_picture_size(spec.cells)

    from s2sim.regimes.run import run_regimes

    with output.watching(quiet=quiet) as progress:
        result = run_regimes(spec, progress)
    if png is not None:
        from s2sim.report.figures.sweeps import draw_regimes

        output.write_bytes(draw_regimes(result, Path(png).suffix[1:].lower()), png)
    output.show_result(result, json, quiet=quiet)


_MOST_BYTES = 2**28
# What names a row; other values are figures or texts.
_KEYS = ("kind", "topology", "workers", "size_bytes", "reducer", "algorithm", "name", "curve", "step")
# They name no row where all rows of a result have the same, and those of the other another one.
_SETTINGS = ("topology", "workers", "size_bytes")
_COMPARED = (".time_s.total", ".time_s.iteration", ".speedup_vs_dense")
_COLUMNS = ("where", "a", "b", "b_over_a")
_IGNORED, _HASH, _INPUTS = ("environment", "s2sim"), "sha256", ".provenance.inputs."


def _differences(a: Any, b: Any, where: str) -> Iterator[dict[str, Any]]:
    """Yield a row of a table for each value that differs, None where one result has none, with the ratio of numbers."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        found: list[dict[str, Any]] = []
        for name in sorted(dict.fromkeys([*a, *b]), key=lambda name: name.endswith(_HASH)):
            # A hash counts for an input of which nothing else differs.
            left_out = name.endswith(_HASH) and (found or _INPUTS not in f".{where}.")
            if name not in _IGNORED and not left_out:
                found += _differences(a.get(name), b.get(name), f"{where}.{name}" if where else name)
        yield from found
    elif isinstance(a, list) and isinstance(b, list):
        objects = [[item for item in items if isinstance(item, Mapping)] for items in (a, b)]
        one, other = ({key: {str(item.get(key)) for item in items} for key in _SETTINGS} for items in objects)
        unlike = {key for key in _SETTINGS if len(one[key]) == len(other[key]) == 1 and one[key] != other[key]}
        keys = [key for key in _KEYS if key not in unlike]
        yield from _differences(_by_key(a, keys), _by_key(b, keys), where)
    elif a != b:
        numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (a, b))
        yield {"where": where, "a": _scalar(a), "b": _scalar(b), "b_over_a": b / a if numbers and a else None}


def _by_key(items: list[Any], keys: Collection[str]) -> dict[str, Any]:
    """Return the items of a list by what names them, or by their place."""
    named: dict[str, Any] = {}
    for place, item in enumerate(items):
        values = [item[key] for key in keys if isinstance(item, Mapping) and item.get(key) is not None]
        name = " ".join(map(str, dict.fromkeys(values))) or str(place)
        named[f"[{name}]" if f"[{name}]" not in named else f"[{name} {place}]"] = item
    return named


def _scalar(value: Any) -> Any:
    value = value.get("name", value) if isinstance(value, Mapping) else value
    return value if value is None or isinstance(value, str | int | float) else str(value)


@takes_tables
def diff_command(*, a: str, b: str, most: int = 30) -> None:
    """Show which inputs differ between two results, and which figures: their values and the ratio of B to A."""
    from s2sim.report.grid import table_grid

    found: tuple[list[dict[str, Any]], list[dict[str, Any]]] = [], []
    one, other = _read(a), _read(b)
    if len(one.keys() & other.keys()) * 2 < len(one.keys() | other.keys()):
        raise S2SimError(f"{a} and {b} are results of different commands: give two of one command")
    for row in _differences(one, other, ""):
        found[not row["where"].startswith("spec.") and _INPUTS not in f".{row['where']}"].append(row)
    if not output.write_tables(lambda: Table(_COLUMNS, (*found[0], *found[1]))):
        return
    for noun, rows in zip(("input", "figure"), found, strict=True):
        if not rows:
            output.show_line(f"No {noun}s that differ.")
            continue
        # Sentences follow from figures; --csv has them too.
        ordered = rows
        if noun == "figure":
            alone = [row for row in rows if None in (row["a"], row["b"])]
            numbers = [row for row in rows if row["b_over_a"] is not None or row["where"] == "verdict.best"]
            ordered = [*sorted(numbers, key=_place), *alone]
        if ordered:
            output.show_grids([table_grid(Table(_COLUMNS, tuple(ordered[:most])), f"{noun}s that differ")])
        if left := len(rows) - min(most, len(ordered)):
            output.show_line(f"{format_number_of(left, f'more {noun}' if ordered else noun)}: --csv - has all.")


def _place(row: dict[str, Any]) -> tuple[int, float]:
    """Return what orders figures: the answer, times that reducers are compared by, others by how much they change."""
    name, ratio = row["where"], abs(row["b_over_a"] or 0.0)
    first = 0 if name == "verdict.best" else 1 if name == "time_s" or name.endswith(_COMPARED) else 2
    return first, -(ratio if ratio >= 1 or ratio == 0 else 1 / ratio)


def _read(path: str) -> dict[str, Any]:
    try:
        value = json_module.loads(read_text(Path(path), noun="the result", most_bytes=_MOST_BYTES))
    except json_module.JSONDecodeError as error:
        raise S2SimError(f"{path} is not JSON: {error.msg} at line {error.lineno}") from None
    if not isinstance(value, dict) or "schema_version" not in value:
        raise S2SimError(f"{path} is no result of s2sim: write one with --json FILE")
    return value


@options_from(FlowsSpec, needed=("file", "topology"))
def flows_command(
    experiment: Experiment[FlowsSpec], *, out: str | None = None, json: str | None = None, quiet: bool = False
) -> None:
    """Replay transfers on a cluster, and say when each arrives and what it waited for.

    The latency of a transfer's path passes first, then its bytes share links with all others, max-min fairly. With
    --network packet they go as packets instead, which wait for each other at every link.
    """
    check_targets(json=json, out=out)

    from s2sim.traffic.flows import simulate_transfers

    spec = experiment.saved_or(example_of("flows"))
    with output.watching(quiet=quiet) as progress:
        result = simulate_transfers(spec, progress=progress)
    if out is not None:
        output.write_text(result.to_csv(), out)
    output.show_result(result, json, show=output.show_line, quiet=quiet)


def cache_command(*, empty: bool = False) -> None:
    """Show the store of recordings, from which reducers that ran on the same gradients are taken, or empty it.

    The environment variable S2SIM_CACHE names another folder; S2SIM_CACHE=off does without a store.
    """
    from s2sim.experiment.recording_store import LIMIT_BYTES, VARIABLE, recording_store

    store = recording_store()
    if store is None:
        output.show_line(f"No store: {VARIABLE} is off.")
        return
    if empty:
        output.show_line(f"{store.folder}: {format_number_of(store.trim(0), 'recording')} removed.")
        return
    sizes = [entry.st_size for _, entry in store.entries()]
    held = f"{format_number_of(len(sizes), 'recording')}, {format_bytes(sum(sizes))}"
    limit = f"at most {format_bytes(LIMIT_BYTES)}, least recently used ones go first"
    output.show_line(f"{store.folder}: {held} ({limit}).")


new = group("new")

_TEMPLATES = Path(__file__).with_name("new_reducer")
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


@command(new, "new reducer")
def reducer_command(*, name: str) -> None:
    """Write a package with a reducer: its code with its GPU work, its entry point, and a test with the conformance kit.

    It works as it is, and sends signs and magnitudes; change what it encodes, and what that costs.
    """
    from s2sim.reducers.registry import reducer_names

    module = name.replace("-", "_")
    if _NAME.fullmatch(name) is None or iskeyword(module):
        raise OptionError(f"{name!r} is no name of a reducer: take small letters, digits and dashes, as in my-signs")
    folder = Path(name)
    if name in reducer_names():
        raise OptionError(f"there is a reducer {name}: take another name")
    if folder.exists() or util.find_spec(module) is not None:
        raise OptionError(f"there is a {'folder' if folder.exists() else 'Python module'} {name}: take another name")
    words = {"name": name, "module": module, "cls": f"{module.title().replace('_', '')}Reducer"}
    folder.mkdir()
    files = {"pyproject.toml": "pyproject.toml", "reducer.py": f"{module}.py", "test_reducer.py": f"test_{module}.py"}
    for template, file in files.items():
        text = Template((_TEMPLATES / f"{template}.txt").read_text("utf-8")).substitute(words)
        (folder / file).write_text(text, "utf-8")
    output.show_lines(
        [
            f"{name}/ has {module}.py, its test and pyproject.toml. Next:",
            f"  pip install -e ./{name} && pytest {name}",
            f"  s2sim run --topology fat-tree --workers 16 --reducer {name}:ef=true",
        ]
    )
