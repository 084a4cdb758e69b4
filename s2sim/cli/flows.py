"""``s2sim flows``: replay any traffic on a cluster."""

from __future__ import annotations

from s2sim.cli.options import JSON, QUIET, Experiment, check_targets, examples, option, options_from
from s2sim.cli.output import show_line, show_result, watching, write_text
from s2sim.traffic.spec import FlowsSpec

_EXAMPLE = "s2sim flows transfers.csv --topology fat-tree"
EXAMPLES = examples(
    _EXAMPLE,
    "s2sim flows transfers.csv --topology leaf-spine --workers 32 --placement round-robin --json -",
    "s2sim flows transfers.csv --topology fat-tree --network packet --packet-bytes 16KiB --cross-check",
    "s2sim flows transfers.csv --topology single-switch --set nic.rate=25Gbps --out finished.csv",
    "s2sim flows transfers.csv --topology fat-tree --fault slow-link:link=node0.nic0.out,factor=0.5",
)


@options_from(FlowsSpec, needed=("file", "topology"))
def flows_command(
    experiment: Experiment[FlowsSpec],
    out: str | None = option(
        "FILE.csv", "Write the transfers again with finish_s and slowdown beside them.", "no file"
    ),
    json: str | None = JSON,
    quiet: bool = QUIET,
) -> None:
    """Replay transfers on a cluster, and say when each arrives and what it waited for.

    The latency of a transfer's path passes first, then its bytes share links with all others, max-min fairly. With
    --network packet they go as packets instead, which wait for each other at every link.
    """
    check_targets(json=json, out=out)

    from s2sim.traffic.flows import simulate_transfers

    spec = experiment.saved_or(_EXAMPLE)
    with watching(quiet=quiet) as progress:
        result = simulate_transfers(spec, progress=progress)
    if out is not None:
        write_text(result.to_csv(), out)
    show_result(result, json, show=show_line, quiet=quiet)
