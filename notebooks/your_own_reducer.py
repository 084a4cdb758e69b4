"""A reducer of your own in 30 lines: checked by the conformance kit, and measured on recorded gradients."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="A reducer of your own")


@app.cell
def _():
    from dataclasses import dataclass

    import marimo as mo
    import numpy as np

    from s2sim import reduce_once
    from s2sim.gradients.gradient import to_dense
    from s2sim.gradients.read_trace import open_trace
    from s2sim.reducers import gpu_cost as cost
    from s2sim.reducers.rank import Traits
    from s2sim.reducers.shared.gathered import Aggregate, Gathered
    from s2sim.testing.reducers import check_reducer

    return Aggregate, Gathered, Traits, check_reducer, cost, dataclass, mo, np, open_trace, reduce_once, to_dense


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # A reducer of your own

    `Gathered` is for codecs whose messages go to all ranks: say how a vector becomes a message, what a message stands
    for, and what both cost a GPU. This one sends the sign of each element and the mean magnitude. Change it, and see
    what the kit and the gradients say.
    """)
    return


@app.cell
def _(Aggregate, Gathered, Traits, cost, dataclass, np):
    @dataclass(slots=True)
    class Signs(Gathered):
        """Sends a bit for each element, and a float32 for each tensor; every rank averages what all have sent."""

        aggregate: Aggregate = "gather"  # Or by way of owners of chunks, or of a server

        about = Traits(
            name="my-signs",
            summary="the sign of each element, and the mean magnitude of each tensor",
            source="unpublished",
            feedback="needed",
            formula="(n/8 + 4L)(P-1)",
            certainty="ours",
        )

        def encode(self, vector, random):
            """Return the signs, eight to a byte, and the mean magnitude."""
            return np.packbits(vector >= 0), np.array([np.abs(vector).mean(dtype=np.float64)], np.float32)

        def decode(self, message, elements):
            """Return the mean magnitude with every sign."""
            packed, (magnitude,) = message
            return np.where(np.unpackbits(packed, count=elements), magnitude, -magnitude)

        def encode_work(self, elements, code_bytes):
            """Return the GPU's work: a pass that finds the magnitude, and one that writes the signs."""
            return cost.encode_values(elements, code_bytes)

        def decode_work(self, elements, messages, code_bytes):
            """Return the GPU's work: what each message stands for is added to the sum."""
            return cost.add_codes(elements, messages, code_bytes)

    return (Signs,)


@app.cell
def _(Signs, check_reducer, mo):
    try:
        check_reducer(Signs, exhaustive=False)
        checked = "It obeys all laws of the conformance kit."
    except AssertionError as error:
        checked = f"The conformance kit refuses it: {error}"
    mo.md(checked)
    return (checked,)


@app.cell
def _(Signs, mo, np, open_trace, reduce_once, to_dense):
    trace, ranks = open_trace("lstm-lm"), 4
    gradients = [to_dense(trace.gradient(0, rank).layers[-2]).ravel() for rank in range(ranks)]
    exact = np.mean(gradients, axis=0, dtype=np.float64)

    def measured(reducer):
        found = reduce_once(reducer, gradients)
        error = np.linalg.norm(found.values[0] - exact) / np.linalg.norm(exact)
        name = reducer if isinstance(reducer, str) else reducer.traits.name
        return {"reducer": name, "bytes sent by a rank": max(found.bytes_sent), "relative L2 error": float(error)}

    rows = [measured(each) for each in (Signs(), "dense", "fp16", "ef-signsgd", "topk:density=0.01")]
    mo.ui.table(rows, selection=None)
    return (rows,)


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    `s2sim new reducer my-signs` writes the same as a package with an entry point and a test. Once it is installed,
    `s2sim run --topology fat-tree --workers 16 --reducer my-signs:ef=true` has its time, its error and the verdict.
    """)
    return


if __name__ == "__main__":
    app.run()
