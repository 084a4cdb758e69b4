"""``s2sim profile``: compute times of models on GPUs, and when their gradients are ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from s2sim.cli import output
from s2sim.cli.options import JSON, PNG, ROOT_SEED, SILENT, TEXT, argument, check_targets, examples, group, option
from s2sim.errors import OptionError, S2SimError, suggest_nearest
from s2sim.units import PS_PER_S, format_bytes, format_count, format_number_of, format_seconds

if TYPE_CHECKING:
    from s2sim.profiles.profile import ComputeProfile, Precision

_SHOW = (
    "s2sim profile show resnet-50",
    "s2sim profile show gpt2 --batch 8",
    "s2sim profile show resnet-50:precision=tf32 --gpu a100",
    "s2sim profile show llama-7b:efficiency=0.4 --gpu h100 --json llama-on-h100.json",
    "s2sim profile show vgg-16 --png vgg-16.png",
)
_RECORD = (
    "s2sim profile record cnn --out cnn.toml",
    "s2sim profile record lstm:width=512 --batch 64 --text book.txt --device cuda --out lstm.toml",
    "s2sim profile record resnet-50 --batch 64 --device cuda --precision bf16 --out resnet-50-here.toml",
    "s2sim profile record --module train.py:make --batch 32 --device cuda --out mine.toml",
)
_IMPORT = (
    "s2sim profile import trace.json.gz --batch 32 --out mine.toml",
    "s2sim profile import trace.json --model 'ResNet-50, our own' --batch 64 --sample image --gpu a100 --out ours.toml",
)
_LARGEST = 5
# From this rate on, rates are shown like 38.28 k.
_MANY = 1e4

app = group(help="Look at how long models compute, record it.", epilog=examples(*_SHOW, _RECORD[0], _IMPORT[0]))

PROFILE = argument(
    "PROFILE[:KEY=VALUE,...]",
    "Name of a shipped profile (see s2sim list profiles) or path of a TOML file; behind it may stand "
    "precision=fp32, tf32, fp16 or bf16, and efficiency=0.4 where it is computed.",
    default=...,
)

PRECISION = option("fp32|tf32|fp16|bf16", "Of matrix products; fp16 and bf16 by PyTorch's autocast.", default="fp32")
OUT = option("FILE.toml", "File to write, the name of the profile.", default=...)
_PER_CENT = 100


@app.command("show", epilog=examples(*_SHOW), short_help="Show what a profile says.")
def show_command(
    profile: str = PROFILE,
    gpu: str | None = option(
        "NAME|FILE",
        "Another GPU (see s2sim list gpus): a computed profile is computed for it, a measured one scaled.",
        "that of the profile",
    ),
    batch: int | None = option("N", "Samples of a mini-batch.", "as many as suit the GPU", minimum=1),
    png: str | None = PNG,
    json: str | None = JSON,
) -> None:
    """Show what a profile says: forward, backward, optimizer, samples a second, when gradients are ready, origins."""
    from s2sim.report.format import aligned

    check_targets(json=json, png=png)

    from s2sim.profiles.profile import describe_profile, sourced_numbers
    from s2sim.profiles.read import load_profile, open_profile

    file = open_profile(profile).file
    described = describe_profile(load_profile(profile, gpu=gpu, batch=batch))
    numbers = sourced_numbers(file)
    if png is not None:
        from s2sim.report.figures.testbed import profile_figure

        output.write_figure(profile_figure(described), png)
    if output.json_alone({**described, "description": file.description, "numbers": numbers}, json):
        return
    output.show_paragraph(f"{described['name']}: {file.description}")
    output.show_lines(["", *aligned(_facts(described), indent="  ")])
    output.show_paragraph(f"  {described['kind']}: {described['source']}")
    output.show_lines(["", "Gradients ready in backward:", *aligned(_ready(described), indent="  ")])
    output.show_lines(
        ["", f"Largest of {len(described['tensors'])} tensors (name, shape, bytes in float32, ready after):"]
    )
    output.show_lines(aligned(_largest(described["tensors"]), indent="  "))
    stated = [(item["field"], str(item["value"]), item["kind"], item["source"]) for item in numbers]
    output.show_quantities("Numbers of the file", stated)


@app.command("record", epilog=examples(*_RECORD), short_help="Record a profile of a model in training.")
def record_command(
    out: str = OUT,
    model: str | None = argument(
        "MODEL",
        "lstm, ncf, cnn or transformer, with options as in lstm:width=32 (lstm and transformer need --text); "
        "or, on drawn inputs, resnet-18, -50, -101 or -152, vgg-16 or -19, gpt2, bert-base or -large.",
        "--module",
    ),
    module: str | None = option(
        "PLACE:FUNCTION",
        "A function of your own, as package.module:function or path.py:function. It is called with batch and "
        "device, and returns a torch.nn.Module, a function from a step's number to its loss, and an optimizer "
        "(plain SGD without one).",
        "MODEL",
    ),
    batch: int | None = option("N", "Samples of a mini-batch; needed with --module.", "the model's"),
    device: str = option("cpu|cuda", "Where it trains.", default="cpu"),
    precision: str = PRECISION,
    steps: int = option("N", "Steps to take medians of, after a few that warm up.", default=20),
    text: list[str] | None = TEXT,
    seed: int = ROOT_SEED,
    quiet: bool = SILENT,
) -> None:
    """Train a model for some steps and record forward, backward and optimizer by layer; needs the extra torch."""
    _check_out(out)

    known = _precision(precision)

    from s2sim.pytorch.record_profile import record_profile

    with output.watching(quiet=quiet) as progress:

        def follow(done: int, total: int) -> None:
            if done == 1:
                progress.start(total, f"training {model or module} (steps)")
            progress.advance()

        recorded = record_profile(
            name=Path(out).stem,
            model=model,
            module=module,
            batch=batch,
            device=device,
            precision=known,
            steps=steps,
            text=list(text or ()),
            seed=seed,
            progress=follow,
        )
    share = "by kernels of one step that multiply no matrices" if device == "cuda" else "no GPU took part"
    _written(recorded.profile, recorded.notes, out, batch_source="as recorded", share_source=share, quiet=quiet)


@app.command("import", epilog=examples(*_IMPORT), short_help="Make a profile of a trace of PyTorch's profiler.")
def import_command(
    trace: str = argument(
        "TRACE.json[.gz]",
        "What torch.profiler's export_chrome_trace wrote, of several whole steps with record_shapes=True.",
        default=...,
    ),
    out: str = OUT,
    model: str | None = option(
        "NAME",
        "A layer table that gradients get their names from (see s2sim list models), or a few words.",
        "name of the trace",
    ),
    batch: int | None = option("N", "Samples of a mini-batch.", "one: all of it"),
    sample: str | None = option("WORDS", "What a sample is.", "sample"),
    gpu: str | None = option("NAME", "GPU that it was traced on.", "as the trace says"),
    precision: str = option("fp32|tf32|fp16|bf16", "Of matrix products in the trace.", default="fp32"),
    quiet: bool = SILENT,
) -> None:
    """Make a profile of a trace of PyTorch's profiler, which is read as a stream; says what the trace does not tell."""
    _check_out(out)

    known = _precision(precision)

    from s2sim.files import user_path
    from s2sim.profiles.kineto import import_profile

    path = user_path(trace, S2SimError)
    with output.watching(quiet=quiet) as progress:
        progress.start(_PER_CENT, f"reading {path.name} (%)")
        shown = 0

        def follow(done: int, total: int) -> None:
            nonlocal shown
            new = _PER_CENT * done // max(total, 1) - shown
            shown += new
            progress.advance(new)

        imported = import_profile(
            path, name=Path(out).stem, model=model, batch=batch, sample=sample, gpu=gpu, follow=follow
        )
    of_batch = "as stated when the trace was imported" if batch else "not stated: all of a mini-batch as one"
    share = "by kernels in the trace that multiply no matrices; 0 without kernels"
    profile = replace(imported.profile, precision=known)
    _written(profile, imported.notes, out, batch_source=of_batch, share_source=share, quiet=quiet)


def _facts(described: dict[str, Any]) -> list[tuple[str, str]]:
    rate = described["samples_per_s"]
    rate_text = "undefined" if rate is None else f"{rate:.4g}" if rate < _MANY else format_count(round(rate))
    model = f"{described['model']}, {format_count(described['parameters'])} parameters"
    return [
        ("model", f"{model}, {format_bytes(described['gradient_bytes'])} of gradients in float32"),
        ("GPU", f"{described['gpu']}, {described['precision']}"),
        ("mini-batch", f"{described['batch']:,} x {described['sample']}"),
        *((what, format_seconds(described[f"{what}_s"])) for what in ("forward", "backward", "optimizer")),
        ("all compute", format_seconds(described["compute_s"])),
        ("rate", f"{rate_text} samples/s, without communication"),
        ("memory-bound", f"{described['memory_bound']:.0%} of compute"),
    ]


def _ready(described: dict[str, Any]) -> list[tuple[str, str, str]]:
    backward_s = described["backward_s"]
    rows = []
    for number, point in enumerate(described["ready"]):
        what = "the first" if number == 0 else "all" if point["share"] == 1 else f"{point['share']:.0%} of the bytes"
        part = f"{point['ready_s'] / backward_s:.0%} of backward" if backward_s else ""
        rows.append((what, format_seconds(point["ready_s"]), part))
    return rows


def _largest(tensors: Sequence[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    rows = []
    for tensor in sorted(tensors, key=lambda tensor: -int(tensor["bytes"]))[:_LARGEST]:
        shape = " x ".join(map(str, tensor["shape"])) + (", row-sparse" if tensor["sparse"] else "")
        rows.append((tensor["name"], shape, format_bytes(tensor["bytes"]), format_seconds(tensor["ready_s"])))
    return rows


def _precision(text: str) -> Precision:
    from s2sim.profiles.profile import Precision

    known: dict[str, Precision] = {each: each for each in get_args(Precision)}
    if text not in known:
        raise OptionError(f"--precision {text} is none{suggest_nearest(text, known)}")
    return known[text]


def _check_out(out: str) -> None:
    check_targets(out=out)
    if not out.endswith(".toml"):
        raise OptionError(f"--out {out}: give a name that ends in .toml, by which a profile is known for a file")


def _written(
    profile: ComputeProfile, notes: Sequence[str], out: str, *, batch_source: str, share_source: str, quiet: bool
) -> None:
    from s2sim.profiles.read import profile_text

    description = f"{profile.model}, recorded on {profile.gpu}"
    text = profile_text(profile, description=description, batch_source=batch_source, memory_bound_source=share_source)
    output.write_text(text, out)
    if quiet:
        return
    spans = (("forward", profile.forward_ps), ("backward", profile.backward_ps), ("optimizer", profile.optimizer_ps))
    times = ", ".join(f"{what} {format_seconds(time_ps / PS_PER_S)}" for what, time_ps in spans)
    output.show_lines(
        [
            f"wrote a profile of {format_number_of(len(profile.tensors), 'tensor')} to {out}: {times}",
            *(f"note: {note}" for note in notes),
            f"look at it with: s2sim profile show {out}",
        ]
    )
