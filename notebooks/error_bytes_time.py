"""Error against bytes and time of many compressors, on your own gradients."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Error, bytes, time")


@app.cell
def _():
    import marimo as mo

    import s2sim
    from s2sim.cli.run_output import ERROR, figure_of
    from s2sim.report.answer import pareto_grids

    return ERROR, figure_of, mo, pareto_grids, s2sim


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # What does a byte buy, and a microsecond?

    Errors and bytes follow from gradients: take your own. `s2sim trace import rank0.npz rank1.npz --out mine` makes a
    trace of what a training step left on each rank, `s2sim trace record` trains a model for one; then name its folder
    here. Each point is one compressor with one setting. Down and to the left is better, and ringed is what nothing
    beats; exact ones stand below.
    """)
    return


@app.cell
def _(mo):
    trace = mo.ui.text(value="ncf", label="trace (name or folder)")
    topology = mo.ui.text(value="tcp-10g", label="topology")
    workers = mo.ui.number(2, 64, value=8, label="workers")
    reducers = mo.ui.text_area(
        value="fp16 union owner-reduce topk:density=0.001 topk:density=0.01 topk:density=0.1 s2:rows=3,cells=1 "
        "s2:rows=3,cells=4 int8 natural",
        label="reducers",
    )
    mo.vstack([mo.hstack([trace, topology, workers], justify="start"), reducers])
    return reducers, topology, trace, workers


@app.cell
def _(reducers, s2sim, topology, trace, workers):
    result = s2sim.run(
        topology.value,
        workers=int(workers.value),
        trace=trace.value,
        reducers=reducers.value.split(),
        break_even=False,
        thorough=False,
    )
    return (result,)


@app.cell
def _(ERROR, figure_of, result):
    picture = figure_of(ERROR, result, {})
    picture
    return (picture,)


@app.cell
def _(mo, pareto_grids, result):
    grid = pareto_grids(result)[0]
    titles = [column.title.replace("\n", " ") for column in grid.columns]
    rows = [dict(zip(titles, cells, strict=True)) for cells in grid.rows]
    mo.vstack(
        [mo.md(f"**{result.verdict.lines[0]}** Stars: none has a smaller error for as little."), mo.ui.table(rows)]
    )
    return (rows,)


if __name__ == "__main__":
    app.run()
