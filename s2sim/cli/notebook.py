"""``s2sim notebook``: the verdict and its pictures in a browser, with fields to change."""

from __future__ import annotations

import typer

from s2sim.cli.options import examples, option, switch
from s2sim.errors import S2SimError
from s2sim.experiment.cluster_spec import TOPOLOGY, parse_worker_list

EXAMPLES = examples(
    "s2sim notebook", "s2sim notebook --topology leaf-spine --workers 32 --trace ncf --library gloo --nic 25Gbps"
)


def notebook_command(
    topology: str = option(None, TOPOLOGY["text"], default="fat-tree"),
    workers: str = option("N[,N...]", "Number of workers (ranks, GPUs), or several separated by commas.", default="16"),
    trace: str = option(
        None, "Gradients: name of a shipped trace, path of one, or synthetic:density=0.01.", default="lstm-lm"
    ),
    library: str | None = option(
        "NAME[:KEY=VALUE,...]", "Communication library (see s2sim list libraries).", "that of the topology"
    ),
    nic: str | None = option("RATE", "Rate of a NIC, for example 25Gbps.", "as it is"),
    port: int | None = typer.Option(
        None, help="Port on which it is served to this machine.", min=1, max=65535, show_default="a free one"
    ),
    headless: bool = switch("--headless", "Open no browser."),
) -> None:
    """Open a notebook that asks whether compression pays, with fields for cluster, gradients and library.

    It is read there and answered as by s2sim run; Ctrl-C ends it. It is served to this machine alone, and only to the
    address with the token that is printed; files are read in the folder it was started in. Needs marimo (the extra
    notebook).
    """
    import subprocess
    import sys
    from importlib.util import find_spec

    from s2sim.files import data_directory

    missing = [module for module in ("marimo", "matplotlib") if find_spec(module) is None]
    if missing:
        raise S2SimError(f"the notebook needs {' and '.join(missing)}: pip install 's2sim[notebook]'")
    from s2sim.experiment.scenario.reducers import resolve_run
    from s2sim.experiment.spec import RunSpec

    overrides = () if nic is None else (f"nic.rate={nic}",)
    # What cannot be is told before anything is served.
    resolve_run(RunSpec(topology, parse_worker_list(workers), trace=trace, library=library, overrides=overrides))
    given = {"topology": topology, "workers": workers, "trace": trace, "library": library, "nic": nic}
    command = [sys.executable, "-m", "marimo", "run", "--token", str(data_directory("notebooks") / "does_s2_pay.py")]
    command += ["--headless"] if headless else []
    command += [] if port is None else ["--port", str(port)]
    command += ["--", *(f"--{name}={value}" for name, value in given.items() if value is not None)]
    raise typer.Exit(subprocess.run(command, check=False).returncode)  # noqa: S603  (a list of words that no shell reads, starting with this Python)
