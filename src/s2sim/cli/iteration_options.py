"""Options of commands that simulate whole training iterations."""

from __future__ import annotations

from typing import Annotated

import typer

_PANEL = "Iterations"

ITERATION_EXAMPLES = (
    "s2sim run --topology dgx-a100 --workers 64 --profile gpt2 --discipline ddp --reducer fp16 --reducer powersgd",
    "s2sim run --topology dgx-h100 --workers 64 --profile gpt2 --groups tp=8,dp=rest --accumulate 8 --reducer fp16",
    "s2sim run --topology leaf-spine --workers 8,16,32 --profile resnet-50 --batch 64 --reducer fp16",
)

ProfileOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_PANEL,
        help="Compute profile (see s2sim list profiles) or a file of one: forward, backward and when each gradient is "
        "ready. Whole iterations are compared, on the profile's layers.",
        show_default="communication phase only",
    ),
]
DisciplineOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_PANEL,
        help="Which gradients leave together, and when (see s2sim list disciplines), for example ddp:bucket=50MiB. "
        "With --model NAME it takes the profile of that name.",
        show_default="ddp",
    ),
]
BatchOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", rich_help_panel=_PANEL, help="Samples of one GPU's mini-batch.", show_default="the profile's"
    ),
]
AccumulateOption = Annotated[
    int, typer.Option(metavar="N", rich_help_panel=_PANEL, help="Mini-batches before gradients are exchanged.")
]
StreamsOption = Annotated[
    int,
    typer.Option(
        metavar="1|2",
        rich_help_panel=_PANEL,
        help="1: codec kernels stand between those of backward; 2: they run beside them and share memory bandwidth.",
    ),
]
HostLoopOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        rich_help_panel=_PANEL,
        help="What a Python loop over tensors takes for each, before a bucket is encoded and before it is decoded; "
        "about 100us in published implementations.",
        show_default="none: buckets are coded as one",
    ),
]
ComputeCvOption = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        rich_help_panel=_PANEL,
        help="Standard deviation of ranks' compute times over their mean, drawn anew in every iteration (lognormal).",
    ),
]
GroupsOption = Annotated[
    str | None,
    typer.Option(
        metavar="tp=N,pp=N,dp=rest",
        rich_help_panel=_PANEL,
        help="tp tensor-parallel ranks share each layer of the profile, pp stages follow each other, and dp replicas "
        "exchange gradients, all groups at once; ranks are numbered tp, dp, pp (or order=tp-pp-dp).",
        show_default="replicas alone",
    ),
]
ComputeTimesOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=_PANEL,
        help="CSV of measured forward and backward times in ms, a row an iteration and a column a rank, in turn where "
        "there are fewer.",
        show_default="all ranks alike",
    ),
]
IterationsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=_PANEL,
        help="Iterations that are simulated; the median of all but the first counts.",
        show_default="as many as are needed",
    ),
]
TimelineRankOption = Annotated[
    int | None,
    typer.Option(
        metavar="RANK",
        rich_help_panel=_PANEL,
        help="Whose compute, codec and network --timeline shows, with arrows from buckets to collectives.",
        show_default="the slowest",
    ),
]
