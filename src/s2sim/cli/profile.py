"""``s2sim profile``: how long a model computes on a GPU, and when each gradient is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from s2sim.cli.options import JsonOption, PngOption, examples, help_without_command
from s2sim.cli.profile_record import IMPORT, IMPORT_EXAMPLES, RECORD, RECORD_EXAMPLES, import_command, record_command

if TYPE_CHECKING:
    from collections.abc import Sequence

_LIST = ("s2sim profile list", "s2sim profile list --json -")
_SHOW = (
    "s2sim profile show resnet-50",
    "s2sim profile show gpt2 --batch 8",
    "s2sim profile show resnet-50:precision=tf32 --gpu a100",
    "s2sim profile show llama-7b:efficiency=0.4 --gpu h100 --json llama-on-h100.json",
    "s2sim profile show vgg-16 --png vgg-16.png",
)
_LARGEST = 5
# From here on rates read as 38.28 k.
_MANY = 1e4

app = typer.Typer(
    help="Look at how long models compute, record it.",
    rich_markup_mode=None,
    epilog=examples(_LIST[0], *_SHOW, RECORD[0], IMPORT[0]),
)

ProfileArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE[:KEY=VALUE,...]",
        help="Name of a shipped profile (see s2sim list profiles) or path of a TOML file; behind it may stand "
        "precision=fp32, tf32, fp16 or bf16, and efficiency=0.4 where it is computed.",
    ),
]


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    help_without_command(context)


@app.command("list", epilog=examples(*_LIST), short_help="List the profiles that come with s2sim.")
def list_command(json: JsonOption = None) -> None:
    """List the profiles that come with s2sim: model, GPU, mini-batch, times, kind and source."""
    from s2sim.cli.listing import list_command as list_kind

    list_kind("profiles", None, json)


@app.command("show", epilog=examples(*_SHOW), short_help="Show what a profile says.")
def show_command(
    profile: ProfileArgument,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Another GPU (see s2sim list gpus): a computed profile is computed for it, a measured one scaled.",
            show_default="that of the profile",
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Samples of a mini-batch.", show_default="those of the profile"),
    ] = None,
    png: PngOption = None,
    json: JsonOption = None,
) -> None:
    """Show what a profile says: forward, backward, optimizer, samples a second, when gradients are ready, origins."""
    from s2sim.cli.output import STDOUT, show_lines, show_paragraph, write_figure, write_json
    from s2sim.cli.targets import check_targets
    from s2sim.report.tables.text import aligned

    check_targets(json=json, png=png)

    from s2sim.profiles.describe import describe, stated_numbers
    from s2sim.profiles.opened import open_profile
    from s2sim.profiles.read import load_profile

    file = open_profile(profile).file
    described = describe(load_profile(profile, gpu=gpu, batch=batch))
    numbers = stated_numbers(file)
    if png is not None:
        from s2sim.report.figures.profile_ready import profile_figure

        write_figure(profile_figure(described), png)
    if json is not None:
        write_json({**described, "description": file.description, "numbers": numbers}, json)
    if json == STDOUT:
        return
    show_paragraph(f"{described['name']}: {file.description}")
    show_lines(["", *aligned(_facts(described), indent="  ")])
    show_paragraph(f"  {described['kind']}: {described['source']}")
    show_lines(["", "Gradients ready in backward:", *aligned(_ready(described), indent="  ")])
    show_lines(["", f"Largest of {len(described['tensors'])} tensors (name, shape, bytes in float32, ready after):"])
    show_lines(aligned(_largest(described["tensors"]), indent="  "))
    stated = [(item["field"], str(item["value"]), item["kind"], item["source"]) for item in numbers]
    show_lines(["", "Numbers of the file (field, value, kind, source):", *aligned(stated, indent="  ")])


app.command("record", epilog=RECORD_EXAMPLES, short_help="Record a profile of a model in training.")(record_command)
app.command("import", epilog=IMPORT_EXAMPLES, short_help="Make a profile of a trace of PyTorch's profiler.")(
    import_command
)


def _facts(described: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is known as (what, value with unit)."""
    from s2sim.units import format_bytes, format_count, format_seconds

    rate = described["samples_per_s"]
    rate_text = "undefined" if rate is None else f"{rate:.4g}" if rate < _MANY else format_count(round(rate))
    model = f"{described['model']}, {format_count(described['parameters'])} parameters"
    return [
        ("model", f"{model}, {format_bytes(described['gradient_bytes'])} of gradients in float32"),
        ("GPU", described["gpu"]),
        ("mini-batch", f"{described['batch']:,} x {described['sample']}"),
        *((what, format_seconds(described[f"{what}_s"])) for what in ("forward", "backward", "optimizer")),
        ("all compute", format_seconds(described["compute_s"])),
        ("rate", f"{rate_text} samples/s, without communication"),
        ("memory-bound", f"{described['memory_bound']:.0%} of compute"),
    ]


def _ready(described: dict[str, Any]) -> list[tuple[str, str, str]]:
    from s2sim.units import format_seconds

    backward_s = described["backward_s"]
    rows = []
    for number, each in enumerate(described["ready"]):
        what = "the first" if number == 0 else "all" if each["share"] == 1 else f"{each['share']:.0%} of the bytes"
        part = f"{each['ready_s'] / backward_s:.0%} of backward" if backward_s else ""
        rows.append((what, format_seconds(each["ready_s"]), part))
    return rows


def _largest(tensors: Sequence[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    from s2sim.units import format_bytes, format_seconds

    largest = sorted(tensors, key=lambda tensor: -int(tensor["bytes"]))[:_LARGEST]
    return [
        (
            tensor["name"],
            " x ".join(map(str, tensor["shape"])) + (", row-sparse" if tensor["sparse"] else ""),
            format_bytes(tensor["bytes"]),
            format_seconds(tensor["ready_s"]),
        )
        for tensor in largest
    ]
