"""``s2sim profile record`` and ``s2sim profile import``: profiles of models in training and of traces of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s2sim.cli.options import RootSeedOption, examples
from s2sim.errors import OptionError, S2SimError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.profiles.form import Precision
    from s2sim.profiles.profile import Profile

RECORD = (
    "s2sim profile record cnn --out cnn.toml",
    "s2sim profile record lstm:width=512 --batch 64 --text book.txt --device cuda --out lstm.toml",
    "s2sim profile record resnet-50 --batch 64 --device cuda --precision bf16 --out resnet-50-here.toml",
    "s2sim profile record --module train.py:make --batch 32 --device cuda --out mine.toml",
)
IMPORT = (
    "s2sim profile import trace.json.gz --batch 32 --out mine.toml",
    "s2sim profile import trace.json --model 'ResNet-50, our own' --batch 64 --sample image --gpu a100 --out ours.toml",
)

RECORD_EXAMPLES = examples(*RECORD)
IMPORT_EXAMPLES = examples(*IMPORT)

PrecisionOption = Annotated[
    str, typer.Option(metavar="fp32|tf32|fp16|bf16", help="Of matrix products; fp16 and bf16 by PyTorch's autocast.")
]
OutOption = Annotated[str, typer.Option(metavar="FILE.toml", help="File to write, the name of the profile.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors, and no progress bar.")]
_PER_CENT = 100


def record_command(
    out: OutOption,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="lstm, ncf, cnn or transformer, with options as in lstm:width=32 (lstm and transformer need --text); "
            "or, on drawn inputs, resnet-18, -50, -101 or -152, vgg-16 or -19, gpt2, bert-base or -large.",
            show_default="--module",
        ),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE:FUNCTION",
            help="A function of your own, as package.module:function or path.py:function. It is called with batch and "
            "device, and returns a torch.nn.Module, a function from a step's number to its loss, and an optimizer "
            "(plain SGD without one).",
            show_default="MODEL",
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(metavar="N", help="Samples of a mini-batch; needed with --module.", show_default="the model's"),
    ] = None,
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help="Where it trains.")] = "cpu",
    precision: PrecisionOption = "fp32",
    steps: Annotated[int, typer.Option(metavar="N", help="Steps to take medians of, after a few that warm up.")] = 20,
    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="UTF-8 text for a language model; repeatable, read in order.", show_default="no text"
        ),
    ] = None,
    seed: RootSeedOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Train a model for some steps and record forward, backward and optimizer by layer; needs the extra torch."""
    from s2sim.cli.progress import watching

    _check_out(out)

    known = _precision(precision)

    from s2sim.bridge.timing.record import record_profile

    with watching(quiet=quiet) as progress:

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
    _written(recorded.profile, recorded.notes, out, known, batch_source="as recorded", share_source=share, quiet=quiet)


def import_command(
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE.json[.gz]",
            help="What torch.profiler's export_chrome_trace wrote, of several whole steps with record_shapes=True.",
        ),
    ],
    out: OutOption,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A layer table that gradients get their names from (see s2sim list models), or a few words.",
            show_default="name of the trace",
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(metavar="N", help="Samples of a mini-batch.", show_default="one: all of it")
    ] = None,
    sample: Annotated[
        str | None, typer.Option(metavar="WORDS", help="What a sample is.", show_default="sample")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="GPU that it was traced on.", show_default="as the trace says")
    ] = None,
    precision: Annotated[
        str, typer.Option(metavar="fp32|tf32|fp16|bf16", help="Of matrix products in the trace.")
    ] = "fp32",
    quiet: QuietOption = False,
) -> None:
    """Make a profile of a trace of PyTorch's profiler, which is read as a stream; says what the trace does not tell."""
    from s2sim.cli.progress import watching

    _check_out(out)

    known = _precision(precision)

    from s2sim.profiles.kineto.read import import_trace
    from s2sim.text_files import user_path

    path = user_path(trace, S2SimError)
    with watching(quiet=quiet) as progress:
        progress.start(_PER_CENT, f"reading {path.name} (%)")
        shown = 0

        def follow(done: int, total: int) -> None:
            nonlocal shown
            new = _PER_CENT * done // max(total, 1) - shown
            shown += new
            progress.advance(new)

        imported = import_trace(
            path, name=Path(out).stem, model=model, batch=batch, sample=sample, gpu=gpu, follow=follow
        )
    of_batch = "as stated when the trace was imported" if batch else "not stated: all of a mini-batch as one"
    share = "by kernels in the trace that multiply no matrices; 0 without kernels"
    _written(imported.profile, imported.notes, out, known, batch_source=of_batch, share_source=share, quiet=quiet)


def _precision(text: str) -> Precision:
    from typing import get_args

    from s2sim.profiles.form import Precision

    known: dict[str, Precision] = {each: each for each in get_args(Precision)}
    if text not in known:
        raise OptionError(f"--precision {text} is none{nearest(text, known)}")
    return known[text]


def _check_out(out: str) -> None:
    from s2sim.cli.targets import check_targets

    check_targets(out=out)
    if not out.endswith(".toml"):
        raise OptionError(f"--out {out}: give a name that ends in .toml, by which a profile is known for a file")


def _written(
    profile: Profile,
    notes: Sequence[str],
    out: str,
    precision: Precision,
    *,
    batch_source: str,
    share_source: str,
    quiet: bool,
) -> None:
    from s2sim.cli.output import show_lines, write_text
    from s2sim.profiles.write import profile_text
    from s2sim.units import PS_PER_S, format_seconds
    from s2sim.words import number_of

    description = f"{profile.model}, recorded on {profile.gpu}"
    text = profile_text(
        profile,
        description=description,
        batch_source=batch_source,
        memory_bound_source=share_source,
        precision=precision,
    )
    write_text(text, out)
    if quiet:
        return
    spans = (("forward", profile.forward_ps), ("backward", profile.backward_ps), ("optimizer", profile.optimizer_ps))
    times = ", ".join(f"{what} {format_seconds(time_ps / PS_PER_S)}" for what, time_ps in spans)
    show_lines(
        [
            f"wrote a profile of {number_of(len(profile.tensors), 'tensor')} to {out}: {times}",
            *(f"note: {note}" for note in notes),
            f"look at it with: s2sim profile show {out}",
        ]
    )
