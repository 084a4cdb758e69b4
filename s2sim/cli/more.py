"""``s2sim import``, ``regimes``, ``diff``, ``flows``, ``cache``, ``new``, ``paper``: used once in a while."""

import json as json_module
import re
from collections.abc import Collection, Iterator, Mapping
from importlib import util
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, cast

import typer

from s2sim.cli import INTERRUPTED, output
from s2sim.cli.options import Experiment, check_targets, command, example_of, group, options_from, takes_tables
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.spec import CodecBasis, check_codec_basis
from s2sim.files import read_text
from s2sim.regimes.map import DENSE, RegimeSpec, default_reducers
from s2sim.tables import Table
from s2sim.traffic.spec import FlowsSpec
from s2sim.units import format_bytes, format_number_of

if TYPE_CHECKING:
    from s2sim.claims.paper import PapersResult


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
        if Path(out).suffix != ".toml":
            raise OptionError(f"--out {out}: give a name that ends in .toml, by which it is read")
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
_COLUMNS, _ROW = ("where", "a", "b", "b_over_a"), re.compile(r"results\.\[[^\]]*\]")
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
            alone = [row for row in rows if None in (row["a"], row["b"]) and _ROW.fullmatch(row["where"])]
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


_LIST, _ALL = "list", "all"


def paper_command(
    *,
    names: list[str],
    full: bool = False,
    codec_as: str | None = None,
    html: str | None = None,
    png: str | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Rebuild what papers claim, and judge it: reproduced, not reproduced and why, or not testable.

    Of several pictures --png numbers the files: NAME-1.png, NAME-2.png and so on.

    Every figure is computed when asked for. Claims that need training in the loop need the extra torch; what cannot be
    known is said.
    """
    check_targets(json=json, html=html, png=png)
    if html is not None:
        from s2sim.report.figures.style import check_matplotlib

        check_matplotlib()

    from s2sim.claims.paper import PAPERS, PaperEffort, run_papers

    if names == [_LIST]:
        _list(json, html or png)
        return
    for word in (_LIST, _ALL):
        if word in names and len(names) > 1:
            raise OptionError(f"{word} stands for itself: name it alone, or papers")

    if codec_as is not None:
        check_codec_basis(codec_as)
    effort = PaperEffort(quick=not full, codec_as=cast("CodecBasis | None", codec_as))
    with output.watching(quiet=quiet) as progress:
        result = run_papers(PAPERS.names() if names == [_ALL] else names, effort, progress)
    readable = output.write_result(result, json)
    if html is not None:
        output.write_text(output.page_text(result), html)
    if readable:
        _show(result, quiet=quiet)
    if png is not None:
        _write_pictures(result, png)
    if not result.complete:
        raise typer.Exit(INTERRUPTED)


def _write_pictures(result: "PapersResult", target: str) -> None:
    """Write all pictures, to the file that was named or, of several, to files of that name with a number."""
    from s2sim.report.figures.charts import chart_figure

    pictures = [picture for paper in result.papers for picture in paper.pictures]
    if not pictures:
        raise OptionError(f"--png {target}: {result.papers[0].name} has no picture: leave it out")
    path = Path(target)
    for number, picture in enumerate(pictures, 1):
        numbered = path if len(pictures) == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        output.write_figure(chart_figure(picture), str(numbered))


def _list(json: str | None, page: str | None) -> None:
    from s2sim.claims.paper import PAPERS

    if page is not None:
        raise OptionError(f"{page} is to show rebuilt papers: name one, or all")
    papers = [PAPERS.get(name) for name in PAPERS.names()]
    keys = ("name", "title", "claimed", "source")
    if output.json_alone({"papers": [{key: getattr(paper, key) for key in keys} for paper in papers]}, json):
        return
    output.show_entries([(paper.name, f"{paper.title}: {paper.claimed}  [{paper.source}]") for paper in papers])
    output.show_lines(["", "Rebuild one with s2sim paper NAME."])


def _show(result: "PapersResult", *, quiet: bool) -> None:
    from s2sim.report.study_tables import claims_grid, numbers_grid, paper_head, papers_lines, setup_lines, why_lines

    for paper in result.papers:
        output.show_paragraphs(paper_head(paper))
        output.show_grids([claims_grid(paper)])
        if quiet:
            continue
        output.show_paragraphs(["", *why_lines(paper), ""])
        output.show_entries(setup_lines(paper))
        output.show_grids([numbers_grid(table) for table in paper.tables])
        output.show_paragraph("")
    output.show_paragraphs(papers_lines(result))
