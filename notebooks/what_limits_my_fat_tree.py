"""What limits a fat tree? One recording, replayed on clusters that differ in one thing each."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="What limits my fat tree?")


@app.cell
def _():
    import marimo as mo

    import s2sim

    return mo, s2sim


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # What limits my fat tree?

    Reducers run once on recorded gradients; what they send is replayed on the cluster as it is, and on clusters that
    differ in one thing. What changes no time does not limit it. *Bottleneck* says what the slowest collective of
    `dense` waits for.
    """)
    return


@app.cell
def _(mo):
    topology = mo.ui.text(value="fat-tree", label="topology (name, or ./FILE.toml)")
    workers = mo.ui.number(4, 256, value=16, label="workers")
    trace = mo.ui.dropdown(["ncf", "lstm-lm", "synthetic"], value="ncf", label="gradients")
    changes = mo.ui.text_area(
        value="nic.rate=200Gbps\nnic.count=2\nnvlink.rate=480GB/s\nfabric.link.latency=1us\nnic.latency=100ns",
        label="changes, one a line",
    )
    mo.vstack([mo.hstack([topology, workers, trace], justify="start"), changes])
    return changes, topology, trace, workers


@app.cell
def _(changes, s2sim, topology, trace, workers):
    recordings = s2sim.record(topology.value, workers=int(workers.value), trace=trace.value, reducers=("union",))
    found = {
        change: s2sim.compare(s2sim.predict(recordings, overrides=(change,) if change else ()))
        for change in ("", *changes.value.split())
    }
    return (found,)


@app.cell
def _(found, mo):
    def row(change, result):
        times = {each.reducer: f"{1e6 * each.time_s.total:,.0f} us" for each in result.results}
        return {"change": change or "as it is", **times, "bottleneck of dense": result.results[0].bottleneck}

    rows = [row(change, result) for change, result in found.items()]
    mo.ui.table(rows, selection=None)
    return (rows,)


@app.cell
def _(found, mo):
    mo.md(f"As it is: {' '.join(found[''].verdict.lines[:2])}")
    return


if __name__ == "__main__":
    app.run()
