"""``s2sim list``: everything that options can name; ``s2sim topology``: a cluster description; ``s2sim dev schema``."""

import dataclasses
import inspect
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from s2sim.cli import output
from s2sim.cli.options import Experiment, check_targets, command, group, options_from
from s2sim.errors import OptionError, unknown_name, warn
from s2sim.experiment.cluster_spec import ClusterSpec, options_of, parse_workers
from s2sim.experiment.json_form import schema_of
from s2sim.files import read_table
from s2sim.registry import Registry
from s2sim.report.format import aligned, rates_text, workers_text
from s2sim.tables import group_by
from s2sim.units import PS_PER_S, format_money, format_seconds

Entries = list[tuple[str, str, str]]

HARDWARE = ("gpus", "nics", "switches", "transports")
"""Kinds of the hardware catalogue, which are listed together under this name."""

_GROUPS = {"hardware": HARDWARE}
_REDUCERS, _LIBRARIES = "reducers", "libraries"
# Ranks on the gradients of which reducers are measured, and on half of them.
_RANKS = 8


def _reducers() -> Entries:
    from s2sim.reducers.registry import PRESETS, REDUCERS

    abouts = [(name, REDUCERS.get(name).about) for name in REDUCERS.names()]
    presets = [(name, f"{item.summary} (is {item.option_string})", item.source) for name, item in PRESETS.items()]
    return [*((name, about.summary, about.source) for name, about in abouts), *presets]


def _entries(path: str, describe: Callable[[Any], str], origin: str = "source") -> Entries:
    """Return name, description and origin of all that a registry has, by its path."""
    module, _, name = path.partition(":")
    registry: Registry = getattr(import_module(module), name)
    found = {each: registry.get(each) for each in registry.names()}
    return [(each, describe(item), getattr(item, origin)) for each, item in found.items()]


def _first_sentence(described: Any) -> str:
    return (inspect.getdoc(described) or "").partition("\n")[0].rstrip(".")


def _with_options(text: str, options: str) -> str:
    return f"{text}; options {options}" if options else text


def _fields(cls: Any) -> str:
    return ", ".join(field.name for field in dataclasses.fields(cls))


def _listed(module: str, function: str, *arguments: str) -> Entries:
    entries: Entries = getattr(import_module(module), function)(*arguments)
    return entries


KINDS: dict[str, Callable[[], Entries]] = {
    "reducers": _reducers,
    "codecs": partial(_entries, "s2sim.codecs.payload:CODECS", lambda codec: str(codec.summary)),
    "collectives": partial(
        _entries,
        "s2sim.collectives.algorithms.registry:ALGORITHMS",
        lambda algorithm: f"{_first_sentence(algorithm)}; runs {', '.join(algorithm.kinds)}",
    ),
    "libraries": partial(
        _entries,
        "s2sim.libraries.lowering:LIBRARIES",
        lambda library: _with_options(
            library.summary, "; ".join(f"{key}={'|'.join(values)}" for key, values in library.options)
        ),
    ),
    "faults": partial(
        _entries,
        "s2sim.simulation.faults.registry:FAULTS",
        lambda fault: f"{_first_sentence(fault)}; options {_fields(fault)}",
        "example",
    ),
    "disciplines": partial(
        _entries,
        "s2sim.simulation.bucketing.policy:DISCIPLINES",
        lambda discipline: _with_options(discipline.summary, _fields(discipline)),
    ),
    "topologies": partial(_listed, "s2sim.topology.read_file", "list_topologies"),
    "traces": partial(_listed, "s2sim.gradients.read_trace", "shipped_traces"),
    "models": partial(_listed, "s2sim.gradients.models", "list_models"),
    "profiles": partial(_listed, "s2sim.profiles.read", "list_profiles"),
    **{kind: partial(_listed, "s2sim.topology.read_file", "list_parts", kind) for kind in HARDWARE},
}


def list_command(
    *, kind: str | None = None, name: str | None = None, table: bool = False, json: str | None = None
) -> None:
    """List compressors (reducers), topologies, hardware and so on: all names, or one kind with a line each.

    At the end of each line stands its source by name, or for a fault an example; --json has sources in full.
    """
    if kind is not None and kind not in (*KINDS, *_GROUPS):
        raise unknown_name("kind", kind, [*KINDS, *_GROUPS])
    if name is not None and kind not in (_REDUCERS, _LIBRARIES, *HARDWARE):
        pages = f"{_REDUCERS}, {_LIBRARIES}, {', '.join(HARDWARE)}"
        raise OptionError(f"{kind} {name}: {pages} alone have pages; s2sim list {kind} has what is known of all")
    check_targets(json=json)
    if table and (kind != _REDUCERS or name is not None):
        raise OptionError("--table is one of all reducers: s2sim list reducers --table")
    if kind == _REDUCERS and (name is not None or table or json is not None):
        _list_reducers(name, json, table=table)
        return
    if kind is not None and name is not None:
        _list_quantities(kind, name, json)
        return
    entries = {each: KINDS[each]() for each in _GROUPS.get(kind or "", [kind] if kind else KINDS)}
    keys = ("name", "summary", "source")
    value = {each: [dict(zip(keys, item, strict=True)) for item in items] for each, items in entries.items()}
    if output.json_alone(value, json):
        return
    if kind is not None:
        _show_lines(entries)
        return
    for each, items in entries.items():
        output.show_line(f"{each} ({len(items)}):")
        for family, of in _families(each, items).items():
            output.show_paragraph(f"{f'{family}: ' if family else ''}{', '.join(item[0] for item in of)}", "    ")
    output.show_paragraph("More: s2sim list KIND says what each is.")


def _list_reducers(name: str | None, json: str | None, *, table: bool) -> None:
    from s2sim.experiment.reducer_facts import all_reducer_facts, reducer_facts
    from s2sim.testing.reducer_properties import example_gradients

    gradients = example_gradients(_RANKS)
    facts = all_reducer_facts(gradients) if name is None else (reducer_facts(name, gradients),)
    if output.json_alone({_REDUCERS: [item.to_json() for item in facts]}, json):
        return
    if name is None and not table:
        _show_lines({_REDUCERS: _reducers()})
        return
    from s2sim.report.study_tables import LEGEND, option_text, properties_of, reducers_grid

    if table:
        output.show_grids([reducers_grid(facts)])
        output.show_paragraphs(["", LEGEND])
        return
    (found,) = facts
    paragraphs = [f"{found.name}: {found.summary}", *found.paragraphs]
    output.show_paragraphs(text for paragraph in paragraphs for text in (paragraph.replace("``", ""), ""))
    output.show_entries(properties_of(found))
    output.show_lines(["", "options:" if found.options else "no options"])
    output.show_entries([("", option_text(option).replace("``", "")) for option in found.options])


def _list_quantities(kind: str, name: str, json: str | None) -> None:
    """Show the numbers of a part of hardware or of a library with their origin."""
    from s2sim.libraries.lowering import LIBRARIES, library_quantities
    from s2sim.topology.read_file import find_part, summarise_part, value_text

    if kind == _LIBRARIES:
        quantities = {item.field: item for item in library_quantities(name)}
        summary, source = LIBRARIES.get(name).summary, LIBRARIES.get(name).source
    else:
        found = find_part(kind, name)
        quantities, summary, source = dict(found.quantities), summarise_part(found), found.source
    values = [(field, item.value, item.kind, item.source) for field, item in quantities.items()]
    items = [dict(zip(("field", "value", "kind", "source"), item, strict=True)) for item in values]
    if not output.json_alone({kind: [{"name": name, "summary": summary, "source": source, "quantities": items}]}, json):
        output.show_paragraph(f"{name}: {summary}")
        shown = [(field, value_text(value), what, origin) for field, value, what, origin in values]
        output.show_quantities("Numbers", shown)


def _families(kind: str, items: Entries) -> dict[str | None, Entries]:
    """Return entries by the title of their family; None for kinds without families."""
    from s2sim.reducers.registry import family_of
    from s2sim.topology.fields import topology_group

    if kind == _REDUCERS:
        return group_by(items, lambda item: family_of(item[0]))
    return group_by(items, lambda item: topology_group(item[0]) or "installed" if kind == "topologies" else None)


def _show_lines(entries: dict[str, Entries]) -> None:
    """Print a line each, by family, with its source by name."""
    for number, (kind, items) in enumerate(entries.items()):
        output.show_lines([*([""] if number else []), f"{kind}:", *([] if items else ["  none"])])
        labels = max((len(name) for name, _, _ in items), default=0)
        for family, of in _families(kind, items).items():
            output.show_lines([] if family is None else [f"  {family}:"])
            for name, what, source in of:
                text = f"{what}  [{source if kind == 'faults' else citation(source)}]"
                output.show_paragraph(text, f"{'  ' if family is None else '    '}{name.ljust(labels)}  ")
    if _REDUCERS in entries:
        output.show_paragraph(
            "More: s2sim list reducers NAME has the algorithm and all options of one; --table compares all."
        )


_AUTHORS = re.compile(r"[^,;]*(?:, [A-Z][\w-]+)* and [A-Z][\w-]+|[^,;]*")
_YEAR = re.compile(r"\b((?:19|20)\d\d)\b|arXiv[: ](\d\d)\d\d\.")


def citation(source: str) -> str:
    """Return a source by its name: authors or what it is, and its year.

    >>> citation("Wang, Wu, Li and Kutscher, PacTrain, arXiv:2505.18563"), citation("IEEE 802.3ae")
    ('Wang, Wu, Li and Kutscher 2025', 'IEEE 802.3ae')
    """
    first = source.partition(";")[0]
    name = _AUTHORS.match(first)[0]  # type: ignore[index]  # it matches any text
    year = _YEAR.search(first, len(name))
    return name if year is None else f"{name} {year[1] or f'20{year[2]}'}"


def schema_command(*, result: str = "run") -> None:
    """Print the JSON schema (draft 2020-12) of a result's JSON.

    Results say which version they are of, as schema_version. Keys are added under the same version; another one tells
    that a key went or means something else.
    """
    output.write_json(schema_of(result), output.STDOUT)


_RANKS_SHOWN, _PAIRS_SHOWN = 16, 4

topologies = group("topology")


@command(topologies, "topology show", topology=options_of(ClusterSpec)["topology"][1].text)
@options_from(ClusterSpec, only=("overrides", "placement"))
def show_topology(
    experiment: Experiment[ClusterSpec],
    *,
    topology: str,
    workers: str = "64",
    seed: int = 0,
    graphml: str | None = None,
    simgrid: str | None = None,
    astra: str | None = None,
    png: str | None = None,
    json: str | None = None,
) -> None:
    """Show what a cluster of N workers looks like, and every number of its description with kind and source."""
    count, placement = parse_workers(workers), experiment.values["placement"]
    check_targets(json=json, png=png, graphml=graphml, simgrid=simgrid, astra=astra)
    if seed and placement != "random":
        warn(f"--seed {seed} changes nothing here: only placement random draws")

    from s2sim.experiment.scenario.cluster import resolve_machines
    from s2sim.topology.cluster import build_cluster
    from s2sim.topology.describe import describe_cluster, summary_line
    from s2sim.topology.graph_file import to_astra, to_graphml
    from s2sim.topology.read_file import load_shape
    from s2sim.topology.simgrid import to_simgrid

    shape = load_shape(topology, tuple(experiment.values["overrides"] or ()))
    # What has no name is told here already.
    resolve_machines(shape, ())
    cluster = build_cluster(shape, count, placement=placement, seed=seed)
    described = describe_cluster(cluster)
    if png is not None:
        from s2sim.cli.run_output import graph_of
        from s2sim.report.figures.cluster import draw_cluster

        drawn = [f"{workers_text(count)}, placement {placement}", *[f"seed {seed}"] * (placement == "random")]
        if described["bisection_Bps"] is not None:
            drawn.append(f"bisection {rates_text(described['bisection_Bps'])} one way")
            drawn.append(f"diameter {described['diameter_hops']} links")
        graph, suffix = graph_of(cluster, described), Path(png).suffix[1:].lower()
        output.write_bytes(draw_cluster(graph, suffix, title=summary_line(cluster), facts=[", ".join(drawn)]), png)
    for target, write in ((graphml, to_graphml), (simgrid, to_simgrid), (astra, to_astra)):
        if target is not None:
            output.write_bytes(write(cluster).encode(), target)
    if output.json_alone(described, json):
        return
    numbers = [
        (item["field"], _value_text(item["value"]), item["kind"], item["source"] or "no source given")
        for item in described["quantities"]
        if item["field"] not in ("name", "description", "source")
    ]
    gpus = " ".join(map(str, cluster.gpu_of_rank[:_RANKS_SHOWN].tolist()))
    gpus += " ..." if cluster.workers > _RANKS_SHOWN else ""
    facts = aligned([*_cluster_facts(described), ("GPUs of the ranks", gpus)], indent="  ")
    output.show_lines([summary_line(cluster), described["description"] or "no description", "", *facts])
    output.show_quantities("Numbers of the description", numbers)


def _value_text(value: Any) -> str:
    """Return a value of a description; of a list of links their number and the first ones."""
    if not isinstance(value, list) or not all(isinstance(pair, list) for pair in value):
        return str(value)
    numbers = Counter("-".join(map(str, pair)) for pair in value)
    texts = [pair if number == 1 else f"{pair} x{number}" for pair, number in numbers.items()]
    return f"{len(value)} links: {', '.join(texts[:_PAIRS_SHOWN])}{' ...' if len(texts) > _PAIRS_SHOWN else ''}"


def _cluster_facts(described: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a description says, by ``cluster_facts.csv``; what is none, nothing or 0 is left out."""
    forms: dict[str, Callable[[Any], str]] = {
        "": str,
        "rates": rates_text,
        "time": lambda ps: format_seconds(ps / PS_PER_S),
        "sides": lambda sides: " x ".join(map(str, sides)),
        "ratio": "{:.3g}:1".format,
        "links": "{} links".format,
        "price": lambda cost: f"{format_money(cost['per_hour'], cost['currency'])} an hour",
        "counts": lambda counts: ", ".join(f"{number} {name}" for name, number in counts.items()),
    }
    facts = [cells for _, cells in read_table(Path(__file__).with_name("cluster_facts.csv"), ("label", "key", "form"))]
    known = [cells for cells in facts if described.get(cells["key"]) not in (None, 0, {})]
    return [(cells["label"], forms[cells["form"]](described[cells["key"]])) for cells in known]
