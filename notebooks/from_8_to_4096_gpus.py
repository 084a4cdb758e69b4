"""What grows from 8 to 4,096 GPUs: an all-reduce of dense gradients, and what reducers are worth beside it."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="From 8 to 4,096 GPUs")


@app.cell
def _():
    import marimo as mo
    from matplotlib.figure import Figure

    import s2sim

    return Figure, mo, s2sim


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # From 8 to 4,096 GPUs

    Bandwidth forces nearly the same on any number of GPUs: each sends its gradient about twice. What grows is latency,
    by steps of a ring or by levels of a tree, and crowding where the fabric is oversubscribed. A reducer that gathers
    grows with the number of ranks, as every rank receives what all others have sent.
    """)
    return


@app.cell
def _(mo):
    topology = mo.ui.text(value="fat-tree", label="topology")
    size = mo.ui.dropdown(["1MiB", "10MiB", "100MiB", "1GiB"], value="100MiB", label="gradient")
    mo.hstack([topology, size], justify="start")
    return size, topology


@app.cell
def _(s2sim, size, topology):
    from s2sim.units import parse_size_bytes

    counts = (8, 64, 512, 4096)
    algorithms = ("auto", "double-binary-tree")
    timed = {
        algorithm: [
            s2sim.run_collective(
                "all_reduce",
                topology=topology.value,
                workers=count,
                size_bytes=parse_size_bytes(size.value),
                algorithm=algorithm,
            )
            for count in counts
        ]
        for algorithm in algorithms
    }
    return counts, timed


@app.cell
def _(Figure, counts, timed):
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    for name, results in timed.items():
        axes.plot(counts, [each.time_s * 1e3 for each in results], marker="o", label=name)
    bounds = [each.lower_bound_s * 1e3 for each in timed["auto"]]
    axes.plot(counts, bounds, "k--", label="bandwidth alone")
    axes.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="all-reduce in ms", xticks=counts, xticklabels=counts)
    axes.legend()
    figure
    return (figure,)


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## What still pays there

    Gradients of ranks beyond those recorded are drawn by the law that these follow, and rows say so. `union` sends what
    any rank has, which grows until all rows are hit; top-k's gathered indices grow with the ranks.
    """)
    return


@app.cell
def _(s2sim, topology):
    result = s2sim.run(
        topology.value,
        workers=(8, 64, 256),
        trace="synthetic:density=0.02,rows=4000,width=32,dense=10000",
        reducers=("fp16", "union", "topk:density=0.01"),
        break_even=False,
        thorough=False,
    )
    result
    return (result,)


if __name__ == "__main__":
    app.run()
