"""Options that several subcommands share, and how texts from the command line become values."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from s2sim.errors import OptionError

_WHOLE = re.compile(r"[+-]?\d+")
_MOST_WORKERS_DIGITS = 9
_LONGEST_TEXT = 40

DEFAULT_WORKERS = 64


def examples(*lines: str) -> str:
    """Return an epilog that shows command lines, each on one line, so that it can be copied."""
    return "\n".join(["Examples:", "", "\b", *lines])


def help_without_command(context: typer.Context) -> None:
    """Print the help of a group that was called without a subcommand; that is a mistake, hence exit code 2."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def parse_workers(text: str) -> int:
    """Return a number of workers.

    >>> parse_workers("64")
    64
    """
    shown = repr(text) if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]!r}..."
    if _WHOLE.fullmatch(text.strip()) is None:
        raise OptionError(f"--workers {shown} is not a whole number; for example --workers 64")
    if len(text.strip().lstrip("+-0")) > _MOST_WORKERS_DIGITS:
        raise OptionError(f"--workers {shown} is out of range; for example --workers 64")
    if int(text) < 1:
        raise OptionError(f"--workers {text}: at least 1 worker is needed")
    return int(text)


def parse_worker_list(text: str) -> tuple[int, ...]:
    """Return numbers of workers.

    >>> parse_worker_list("8,16")
    (8, 16)
    """
    return tuple(parse_workers(part.strip()) for part in text.split(","))


def parse_size(option: str, text: str | None) -> int | None:
    """Return the size in bytes of an option, None for none."""
    from s2sim.units import parse_option, parse_size_bytes

    return None if text is None else parse_option(option, parse_size_bytes, text)


TOPOLOGY_HELP = "Name of a shipped topology (see s2sim list topologies) or path of a TOML file."

TopologyOption = Annotated[str, typer.Option(metavar="NAME|FILE", help=TOPOLOGY_HELP)]

# Where --spec may stand instead, what has to be given otherwise is no option that typer asks for.
SpecTopologyOption = Annotated[
    str | None, typer.Option(metavar="NAME|FILE", help=f"{TOPOLOGY_HELP} Required without --spec.", show_default=False)
]

SpecWorkersOption = Annotated[
    str | None,
    typer.Option(metavar="N", help="Number of workers (ranks, GPUs). Required without --spec.", show_default=False),
]

ReducerOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[:KEY=VALUE,...]",
        help="A reducer to compare with dense, for example topk:density=0.01,ef=true; repeatable "
        "(see s2sim list reducers). For run, all takes every one with its defaults.",
        show_default="many that cover the field",
    ),
]

TraceOption = Annotated[
    str,
    typer.Option(
        metavar="NAME|DIR",
        help="Gradients: name of a shipped trace (see s2sim list traces), path of one, or "
        "synthetic:density=0.01,overlap=0.5,tail=2.5 (also rows, width, layers, dense, steps).",
    ),
]

MaxErrorOption = Annotated[
    float | None,
    typer.Option(
        metavar="RATIO",
        help="Largest relative L2 error (a ratio, without unit) with which a lossy reducer may win.",
        show_default="below 1",
    ),
]

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer alone, and no progress bar.")]

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Override a field of the topology, for example nic.rate=100Gbps or node.gpus=8; repeatable.",
        show_default="as in the topology file",
    ),
]

JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE|-",
        help="Write the result as JSON to a file; with - to standard output and nothing else there.",
        show_default="no JSON",
    ),
]

PlacementOption = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="Ranks to GPUs: linear, round-robin, random, or the path of a file with a line 'node gpu' for each rank.",
    ),
]

SeedOption = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="Seed of what is drawn: ECMP's hash, Valiant's detours, a random placement."),
]

NetworkOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="fluid, or packet for store and forward with fair queueing: the reference for tens of ranks.",
    ),
]

PacketBytesOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Size of a packet with its unit, for example 16KiB.", show_default="4KiB with packets"
    ),
]

BufferOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Most that waits in front of a link, of all packets; who finds no room waits, nothing is lost.",
        show_default="no limit",
    ),
]

FaultOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="NAME:KEY=VALUE,...",
        help="Let something go wrong, for example slow-link:link=node1.nic0.out,factor=0.5 (see s2sim list "
        "faults); repeatable.",
        show_default="nothing",
    ),
]

CrossCheckOption = Annotated[
    bool, typer.Option("--cross-check", help="Run the other network too, and say how far apart they are.")
]

_AS_THE_TOPOLOGY = "as the topology says"

DtypeOption = Annotated[
    str | None,
    typer.Option(
        metavar="fp32|bf16",
        help="Type that training holds gradients in, in which all is sent that is not compressed.",
        show_default="as the trace says, else fp32",
    ),
]

LibraryOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:KEY=VALUE,...]",
        help="Communication library that executes the collectives, or ideal, which executes everything as asked (see "
        "s2sim list libraries).",
        show_default=_AS_THE_TOPOLOGY,
    ),
]

GpuOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="GPU that encodes and decodes: a name (see s2sim list gpus), or the path of a TOML file with one.",
        show_default=_AS_THE_TOPOLOGY,
    ),
]

RootSeedOption = Annotated[int, typer.Option(metavar="N", help="Root of all randomness, a whole number from 0.")]

PngOption = Annotated[
    str | None,
    typer.Option(
        "--png",
        metavar="FILE",
        help="Draw it; the name ends in .png, .svg or .pdf. Needs matplotlib (the extra plot).",
        show_default="no picture",
    ),
]

TimelineOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.json",
        help="Write every message and the load of every link over time, or with --profile a rank's streams, for "
        "ui.perfetto.dev.",
        show_default="no file",
    ),
]
