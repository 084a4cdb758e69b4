"""``s2sim import``: files of other tools as files of s2sim."""

from __future__ import annotations

from pathlib import Path

from s2sim.cli.options import argument, check_targets, examples, option
from s2sim.cli.output import STDOUT, show_lines, write_text

EXAMPLES = examples(
    "s2sim import topo.xml --out our-node.toml",
    "s2sim import topo.txt --gpu h100 --nic-rate 400Gbps --out our-node.toml",
)


def import_command(
    file: str = argument(
        "FILE", "What NCCL_TOPO_DUMP_FILE names, or what nvidia-smi topo -m prints, of one node.", default=...
    ),
    form: str | None = option("KIND", "nccl-topology or nvidia-smi-topo.", "what the file looks like", flag="--as"),
    out: str = option("FILE.toml|-", "The cluster file to write.", default=STDOUT),
    gpu: str | None = option("NAME", "GPUs of the node (see s2sim list gpus).", "what the file says"),
    transport: str | None = option("NAME", "Network, such as ib-verbs, roce or efa.", "by the interfaces' names"),
    nic_rate: str | None = option("RATE", "Rate of an interface, for example 400Gbps.", "what the file says"),
) -> None:
    """Make a cluster file of what a machine says of itself; s2sim run --topology ./FILE.toml takes it.

    It says what was understood, ignored and assumed. What a file leaves open comes from the hardware catalogue.
    """
    if out != STDOUT:
        check_targets(out=out)
    from s2sim.validation.import_machine import import_machine

    found = import_machine(Path(file), form=form, gpu=gpu, transport=transport, nic_rate=nic_rate)
    write_text(found.text, out)
    if out != STDOUT:
        parts = {"Understood": [found.understood], "Ignored": found.ignored, "Assumed": found.assumed}
        show_lines([f"{file}: {found.format}"])
        show_lines([f"{name}: {'; '.join(texts)}." for name, texts in parts.items() if texts])
        show_lines([f"Saved to {out}; next: s2sim topology show ./{out}"])
