"""Does S2 Reducer pay? The verdict of ``s2sim run`` and its pictures, on any cluster, gradients and library.

Start it with ``marimo run does_s2_pay.py``; as a script it prints the verdict:
``python does_s2_pay.py --topology=fat-tree``, with ``--workers=``, ``--trace=``, ``--library=`` and ``--nic=`` as well.
"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Does S2 Reducer pay?")


@app.cell
def _():
    import shlex
    import sys
    from dataclasses import replace

    import marimo as mo

    import s2sim
    from s2sim.cli.run_output import BARS, BREAK_EVEN, ERROR, SCALING, figure_of
    from s2sim.errors import S2SimError
    from s2sim.experiment.cluster_spec import parse_worker_list
    from s2sim.experiment.spec import COMPARED, RunSpec
    from s2sim.files import check_inside
    from s2sim.gradients.read_trace import shipped_traces
    from s2sim.libraries.lowering import LIBRARIES
    from s2sim.report.answer import verdict_lines
    from s2sim.topology.read_file import list_topologies

    return (
        BARS,
        BREAK_EVEN,
        COMPARED,
        ERROR,
        LIBRARIES,
        RunSpec,
        S2SimError,
        SCALING,
        check_inside,
        figure_of,
        list_topologies,
        mo,
        parse_worker_list,
        replace,
        s2sim,
        shipped_traces,
        shlex,
        sys,
        verdict_lines,
    )


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # Does S2 Reducer pay?

    S2 Reducer compresses the sparse gradients of embedding tables. Every rank adds its non-zeros into a count sketch
    and marks them in a bitmap; both are all-reduced together, in one round, without any rank knowing what the others
    have. The price is an error: keys that share a cell disturb each other, the more the fewer *cells* there are.
    `s2-exact` is the same idea with a sketch that can be peeled, exactly.

    Its rivals know more before they send. `union` merges the bitmaps first and then all-reduces the values of the
    union, two rounds, exactly. `owner-reduce` sends every row to its owner, who sums and shares it; `gather-rows` sends
    all rows to all. `topk` sends the largest elements, `fp16` all of them in half the bytes.

    Error and bytes are measured on the gradients below, times are simulated on the cluster below.
    """)
    return


@app.cell
def _(LIBRARIES, list_topologies, mo, shipped_traces):
    given = {key: str(value) for key, value in mo.cli_args().items()}

    def choose(label, names, default, other):
        """Return a list of names, and a field for what is not among them."""
        chosen = given.get(label, default)
        known = chosen in names
        return (
            mo.ui.dropdown(names, value=chosen if known else default, label=label),
            mo.ui.text(value="" if known else chosen, label="or", placeholder=other),
        )

    topology, topology_file = choose("topology", [name for name, *_ in list_topologies()], "fat-tree", "cluster.toml")
    trace, trace_path = choose(
        "trace", [name for name, *_ in shipped_traces()], "lstm-lm", "a folder, or synthetic:density=0.01"
    )
    library, library_options = choose(
        "library", ["the topology's", *LIBRARIES.names()], "the topology's", "nccl:or=owners"
    )
    workers = mo.ui.text(value=given.get("workers", "16"), label="workers", placeholder="16, or 8,16,32")
    nic = mo.ui.text(value=given.get("nic", ""), label="NIC rate", placeholder="as in the topology")
    return given, library, library_options, nic, topology, topology_file, trace, trace_path, workers


@app.cell(hide_code=True)
def _(library, library_options, mo, nic, topology, topology_file, trace, trace_path, workers):
    mo.vstack(
        [
            mo.hstack([topology, topology_file, workers, nic], justify="start", gap=1, wrap=True),
            mo.hstack([trace, trace_path, library, library_options], justify="start", gap=1, wrap=True),
        ]
    )
    return


@app.cell
def _(
    RunSpec,
    S2SimError,
    check_inside,
    given,
    library,
    library_options,
    mo,
    nic,
    parse_worker_list,
    s2sim,
    shlex,
    sys,
    topology,
    topology_file,
    trace,
    trace_path,
    workers,
):
    def asked():
        """Return what the fields say, as an experiment and as the command of the same meaning."""
        # What is typed into the page names files in its folder alone.
        check_inside((topology_file.value, trace_path.value, library_options.value), given.values())
        name, gradients = topology_file.value or topology.value, trace_path.value or trace.value
        options = {"trace": gradients}
        words = ["s2sim", "run", "--topology", name, "--workers", workers.value, "--trace", gradients]
        if library_options.value or library.value != "the topology's":
            options["library"] = library_options.value or library.value
            words += ["--library", options["library"]]
        if nic.value:
            options["overrides"] = (f"nic.rate={nic.value}",)
            words += ["--set", options["overrides"][0]]
        return RunSpec.of(name, workers=parse_worker_list(workers.value), **options), shlex.join(words)

    # Without break-even first: the first picture is there soon.
    try:
        spec, command = asked()
        first = s2sim.run(spec=spec, break_even=False)
    except S2SimError as error:
        if mo.app_meta().mode == "script":
            sys.stderr.write(f"s2sim: error: {error}\n")
            sys.exit(2)
        mo.stop(True, mo.callout(str(error), kind="danger"))
    return command, first, spec


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Where does the time go?

    A bar is the communication phase of the slowest rank. The black tick is what bandwidth alone forces: no library and
    no algorithm gets communication to the left of it. Encoding and decoding do not change with the network.
    """)
    return


@app.cell
def _(BARS, figure_of, first):
    bars = figure_of(BARS, first, {})
    bars
    return (bars,)


@app.cell
def _(command, mo, s2sim, spec, sys, verdict_lines):
    curves = {}
    result = s2sim.run(spec=spec, curves=curves)
    if mo.app_meta().mode == "script":
        sys.stdout.write("".join(f"{line}\n" for line in verdict_lines(result)))
    _said = [mo.md(line) for line in verdict_lines(result)]
    mo.vstack([mo.md("## The verdict"), mo.callout(mo.vstack(_said)), mo.md(f"It is that of `{command}`.")])
    return curves, result


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## From which network on does it pay?

    Above the black line a reducer is faster than `dense`, below it slower; a ring marks the break-even. Compression
    trades bytes for GPU work and latency. On a slow network the bytes decide, and every curve levels off at its ratio
    of bytes. On a fast one the work, the launches and the second round remain, and every curve falls.
    """)
    return


@app.cell
def _(BREAK_EVEN, curves, figure_of, mo, result):
    break_even = figure_of(BREAK_EVEN, result, curves) if curves else mo.md("One worker: no rate limits it.")
    break_even
    return (break_even,)


@app.cell
def _(SCALING, figure_of, result):
    scaling = figure_of(SCALING, result, {}) if len(result.spec.workers) > 1 else None
    scaling
    return (scaling,)


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## What does a byte buy?

    Each point is one reducer with one setting; the lines follow S2's cells and top-k's density. Down and to the left is
    better, and ringed is what nothing beats. Exact reducers stand below, a line each. What error feedback makes of an
    error over successive steps, `s2sim run --steps` shows.
    """)
    return


@app.cell
def _(COMPARED, ERROR, figure_of, replace, s2sim, spec):
    compared = s2sim.run(spec=replace(spec, reducers=COMPARED), break_even=False)
    error_picture = figure_of(ERROR, compared, {})
    error_picture
    return (error_picture,)


@app.cell(hide_code=True)
def _(mo, result):
    mo.accordion({"All numbers": result})
    return


if __name__ == "__main__":
    app.run()
