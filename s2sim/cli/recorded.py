"""``s2sim trace`` and ``s2sim profile``: what was recorded of training, gradients and times of compute."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from s2sim.cli import output
from s2sim.cli.options import check_targets, command, group
from s2sim.errors import OptionError, S2SimError, check_known
from s2sim.experiment.cluster_spec import parse_workers
from s2sim.experiment.progress import ProgressWatcher
from s2sim.files import user_path
from s2sim.report.format import aligned
from s2sim.units import PS_PER_S, format_bytes, format_count, format_number_of, format_seconds

if TYPE_CHECKING:
    from s2sim.gradients.read_trace import Trace
    from s2sim.profiles.profile import ComputeProfile, Precision

traces = group("trace")


@command(traces, "trace show")
def show_trace(*, trace: str, json: str | None = None) -> None:
    """Show what a trace says about itself: model, layers, density, union growth and its law, tail, origin, sizes."""
    from s2sim.cli.trace_text import law_grid, layer_grid, manifest_json, manifest_lines, union_grid

    check_targets(json=json)

    from s2sim.gradients.law import forecast
    from s2sim.gradients.synthetic import load_trace

    opened = load_trace(trace, workers=1)
    # A synthetic trace has no statistics in a file: they are measured on what it draws.
    from s2sim.gradients.statistics import trace_statistics

    statistics = opened.manifest.statistics or trace_statistics(opened)
    law = forecast(opened)
    if output.json_alone(manifest_json(opened, statistics, law), json):
        return
    output.show_lines(manifest_lines(opened))
    output.show_grids([layer_grid(opened.manifest, statistics), union_grid(statistics)])
    if law is not None and law.layers:
        output.show_grids([law_grid(law)])


@command(traces, "trace check")
def check_trace(*, trace: str, quiet: bool = False) -> None:
    """Read every gradient of a trace with all checks, and measure its statistics again; exit code 2 if one fails."""
    from s2sim.gradients.read_trace import open_trace

    opened = open_trace(trace)
    with output.working(f"checking {len(opened.manifest.files)} files", quiet=quiet):
        opened.verify()
    if not quiet:
        output.show_lines([f"trace {opened.name} is sound: {len(opened.manifest.files)} files checked"])


@command(traces, "trace record")
def record_gradients(
    *,
    model: str,
    workers: str,
    out: str,
    steps: int = 1,
    text: list[str] | None = None,
    seed: int = 0,
    overwrite: bool = False,
    quiet: bool = False,
) -> None:
    r"""Train a real model on real data and record every rank's gradient at the same weights; needs the extra torch."""
    count = parse_workers(workers)

    from s2sim.pytorch.record_trace import record

    with output.watching(quiet=quiet) as progress:
        texts, follower = list(text or ()), _follower(progress, f"training {model} (mini-batches)")
        recorded = record(
            model, workers=count, steps=steps, out=out, text=texts, seed=seed, overwrite=overwrite, progress=follower
        )
    _wrote_trace(recorded, out, quiet=quiet)


@command(traces, "trace import")
def import_gradients(
    *,
    files: list[str],
    out: str,
    model: str = "imported gradients",
    data: str = "gradients of the user",
    licence: str = "not stated",
    overwrite: bool = False,
    quiet: bool = False,
    force: bool = False,
) -> None:
    """Make a trace of your own gradients, one file a rank, or a step and rank."""
    from s2sim.experiment.costs import cost_of, import_features, make_gate
    from s2sim.gradients.import_trace import import_trace

    make_gate(output.note, force=force, less="fewer files, or smaller ones")(cost_of("import", import_features(files)))
    with output.working(f"importing {len(files)} files", quiet=quiet):
        imported = import_trace(files, out, model=model, data=data, licence=licence, overwrite=overwrite)
    _wrote_trace(imported, out, quiet=quiet)


def _follower(progress: ProgressWatcher, what: str, steps: int | None = None) -> Callable[[int, int], None]:
    """Return what follows (done, total) of the work on ``what``, in so many steps, by default as many as there are."""
    shown: int | None = None

    def follow(done: int, total: int) -> None:
        nonlocal shown
        if shown is None:
            progress.start(steps or total, what)
        new = (steps or total) * done // max(total, 1) - (shown or 0)
        shown = (shown or 0) + new
        progress.advance(new)

    return follow


def _wrote_trace(trace: "Trace", out: str, *, quiet: bool) -> None:
    from s2sim.cli.trace_text import describe_extent

    if not quiet:
        output.show_line(f"wrote {describe_extent(trace.manifest)} to {out}")
        asked = f"--topology fat-tree --workers {trace.world_size} --trace {output.as_path(out)}"
        output.show_line(f"use it with: s2sim run {asked}")


_LARGEST = 5
# From this rate on, rates are shown like 38.28 k.
_MANY = 1e4

profiles = group("profile")


@command(profiles, "profile show")
def show_profile(
    *, profile: str, gpu: str | None = None, batch: int | None = None, png: str | None = None, json: str | None = None
) -> None:
    """Show what a profile says: forward, backward, optimizer, samples a second, when gradients are ready, origins."""
    check_targets(json=json, png=png)

    from s2sim.profiles.profile import describe_profile, sourced_numbers
    from s2sim.profiles.read import load_profile, open_profile

    file = open_profile(profile).file
    described = describe_profile(load_profile(profile, gpu=gpu, batch=batch))
    numbers = sourced_numbers(file)
    if png is not None:
        from s2sim.report.figures.charts import profile_figure

        output.write_figure(profile_figure(described), png)
    if output.json_alone({**described, "description": file.description, "numbers": numbers}, json):
        return
    output.show_paragraph(f"{described['name']}: {file.description}")
    output.show_lines(["", *aligned(_facts(described), indent="  ")])
    output.show_paragraph(f"  {described['kind']}: {described['source']}")
    backward_s, ready, tensors, largest = described["backward_s"], [], described["tensors"], []
    for number, point in enumerate(described["ready"]):
        what = "the first" if number == 0 else "all" if point["share"] == 1 else f"{point['share']:.0%} of the bytes"
        part = f"{point['ready_s'] / backward_s:.0%} of backward" if backward_s else ""
        ready.append((what, format_seconds(point["ready_s"]), part))
    output.show_lines(["", "Gradients ready in backward:", *aligned(ready, indent="  ")])
    for tensor in sorted(tensors, key=lambda tensor: -int(tensor["bytes"]))[:_LARGEST]:
        shape = " x ".join(map(str, tensor["shape"])) + (", row-sparse" if tensor["sparse"] else "")
        largest.append((tensor["name"], shape, format_bytes(tensor["bytes"]), format_seconds(tensor["ready_s"])))
    output.show_lines(["", f"Largest of {len(tensors)} tensors (name, shape, bytes in float32, ready after):"])
    output.show_lines(aligned(largest, indent="  "))
    stated = [(item["field"], str(item["value"]), item["kind"], item["source"]) for item in numbers]
    output.show_quantities("Numbers of the file", stated)


@command(profiles, "profile record")
def record_times(
    *,
    out: str,
    model: str | None = None,
    module: str | None = None,
    batch: int | None = None,
    device: str = "cpu",
    precision: str = "fp32",
    steps: int = 20,
    text: list[str] | None = None,
    seed: int = 0,
    quiet: bool = False,
) -> None:
    """Train a model for some steps and record forward, backward and optimizer by layer; needs the extra torch."""
    _check_out(out)

    known = _precision(precision)

    from s2sim.pytorch.record_profile import record_profile

    with output.watching(quiet=quiet) as progress:
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
            progress=_follower(progress, f"training {model or module} (steps)"),
        )
    share = "by kernels of one step that multiply no matrices" if device == "cuda" else "no GPU took part"
    _wrote_profile(recorded.profile, recorded.notes, out, batch_source="as recorded", share_source=share, quiet=quiet)


@command(profiles, "profile import")
def import_times(
    *,
    trace: str,
    out: str,
    model: str | None = None,
    batch: int | None = None,
    sample: str | None = None,
    gpu: str | None = None,
    precision: str = "fp32",
    quiet: bool = False,
) -> None:
    """Make a profile of a trace of PyTorch's profiler, which is read as a stream; says what the trace does not tell."""
    _check_out(out)

    known = _precision(precision)

    from s2sim.profiles.kineto import import_profile

    path = user_path(trace, S2SimError)
    with output.watching(quiet=quiet) as progress:
        follow, name = _follower(progress, f"reading {path.name} (%)", 100), Path(out).stem
        made = import_profile(path, name=name, model=model, batch=batch, sample=sample, gpu=gpu, follow=follow)
    of_batch = "as stated when the trace was imported" if batch else "not stated: all of a mini-batch as one"
    share = "by kernels in the trace that multiply no matrices; 0 without kernels"
    profile = replace(made.profile, precision=known)
    _wrote_profile(profile, made.notes, out, batch_source=of_batch, share_source=share, quiet=quiet)


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


def _precision(text: str) -> "Precision":
    from s2sim.profiles.profile import Precision

    check_known(text, get_args(Precision), f"--precision {text} is none")
    return cast("Precision", text)


def _check_out(out: str) -> None:
    check_targets(out=out)
    if not out.endswith(".toml"):
        raise OptionError(f"--out {out}: give a name that ends in .toml, by which a profile is known for a file")


def _wrote_profile(
    profile: "ComputeProfile", notes: Sequence[str], out: str, *, batch_source: str, share_source: str, quiet: bool
) -> None:
    from s2sim.profiles.read import profile_text

    description = f"{profile.model}, recorded on {profile.gpu}"
    text = profile_text(profile, description=description, batch_source=batch_source, memory_bound_source=share_source)
    output.write_text(text, out)
    if quiet:
        return
    parts = ("forward", "backward", "optimizer")
    times = ", ".join(f"{what} {format_seconds(getattr(profile, f'{what}_ps') / PS_PER_S)}" for what in parts)
    written = f"wrote a profile of {format_number_of(len(profile.tensors), 'tensor')} to {out}: {times}"
    output.show_lines([written, *(f"note: {note}" for note in notes), f"look at it with: s2sim profile show {out}"])
