"""Does S2 Reducer pay? Three pictures of one recorded gradient on a cluster that need not exist.

Run it with ``marimo edit notebooks/does_s2_pay.py``, or as a script.
"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Does S2 Reducer pay?")


@app.cell
def _():
    from dataclasses import replace
    from functools import cache

    import marimo as mo

    import s2sim
    from s2sim.gradients.traces.read import open_trace
    from s2sim.report.figures.break_even import break_even_figure
    from s2sim.report.figures.breakdown import breakdown_figure
    from s2sim.report.figures.error import error_figure
    from s2sim.study.break_even.rate_curve import rate_curves
    from s2sim.study.spec import RunSpec
    from s2sim.units import format_bytes, format_rate, format_seconds

    return (
        RunSpec,
        break_even_figure,
        breakdown_figure,
        cache,
        error_figure,
        format_bytes,
        format_rate,
        format_seconds,
        mo,
        open_trace,
        rate_curves,
        replace,
        s2sim,
    )


@app.cell(hide_code=True)
def _(mo):
    mo.md(r"""
    # Does S2 Reducer pay?

    S2 Reducer compresses the sparse gradients of embedding tables. Every rank adds its non-zeros into a count sketch
    and marks them in a bitmap; both are all-reduced together, in one round, without any rank knowing what the others
    have. The price is an error: keys that share a cell disturb each other, the more the fewer *cells* there are.
    `s2-exact` is the same idea with a sketch that can be peeled, exactly. Both are shown at their best, `warm=true`:
    how many non-zeros the union of all ranks has is known from an earlier step.

    Its rivals know more before they send. `union` merges the bitmaps first and then all-reduces the values of the
    union, two rounds, exactly. `owner-reduce` sends every row to its owner, who sums and shares it; `gather-rows` sends
    all rows to all. `topk` sends the largest elements, `fp16` all of them in half the bytes.

    Everything below runs on gradients that were recorded from real training. Error and bytes are measured on them;
    times are simulated on the topology `fat-tree`: nodes of 4 GPUs, one NIC a node.
    """)
    return


@app.cell
def _(mo):
    # Traces with row-sparse layers: without any, S2 has nothing to compress.
    trace = mo.ui.dropdown(["lstm-lm", "ncf"], value="lstm-lm", label="trace")
    nic_Gbps = mo.ui.slider(
        steps=[1, 2.5, 5, 10, 25, 50, 100, 200, 400, 800], value=100, label="NIC rate (Gbps)", show_value=True
    )
    cells = mo.ui.slider(steps=[0.25, 0.5, 1, 2, 4, 8, 16], value=2, label="S2's cells per non-zero", show_value=True)
    return cells, nic_Gbps, trace


@app.cell
def _(mo, open_trace, trace):
    # From two nodes on: inside one, nothing crosses a NIC.
    workers = mo.ui.slider(
        steps=[count for count in (8, 16, 32, 64) if count <= open_trace(trace.value).world_size],
        value=16,
        label="workers",
        show_value=True,
    )
    return (workers,)


@app.cell(hide_code=True)
def _(cells, mo, nic_Gbps, trace, workers):
    mo.hstack([trace, nic_Gbps, workers, cells], justify="start", gap=2, wrap=True)
    return


@app.cell
def _(RunSpec, cache, cells, rate_curves, s2sim):
    S2 = tuple(f"s2:cells={count:g},warm=true" for count in cells.steps)
    RIVALS = ("dense", "fp16", "topk:density=0.01", "union", "owner-reduce", "gather-rows", "s2-exact:warm=true")
    SWEEP = ("topk:density=0.001", "topk:density=0.003", "topk:density=0.03")
    RATES_BPS = tuple(1.25e8 * 800 ** (step / 16) for step in range(17))

    @cache
    def compare(trace, workers, nic_Gbps):
        """Return the rows of all reducers; a second time without any work."""
        return s2sim.run(
            "fat-tree",
            workers=workers,
            trace=trace,
            reducers=(*RIVALS, *SWEEP, *S2),
            overrides=(f"nic.rate={nic_Gbps:g}Gbps",),
        )

    @cache
    def vary_rate(trace, workers):
        """Return the speed-ups of all reducers from 1 to 800 Gbps."""
        return rate_curves(RunSpec("fat-tree", (workers,), trace=trace, reducers=(*RIVALS, *S2)), RATES_BPS)

    return RIVALS, compare, vary_rate


@app.cell
def _(RIVALS, cells, compare, nic_Gbps, trace, workers):
    result = compare(trace.value, workers.value, nic_Gbps.value)
    chosen = f"s2:cells={cells.value:g},warm=true"
    rows = [row for row in result.rows if row.option_string in (*RIVALS, chosen)]
    return chosen, result, rows


@app.cell(hide_code=True)
def _(mo, result):
    mo.md(f"**The cluster.** {result.headline}.")
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Where does the time go?

    A bar is the communication phase of the slowest rank. Encoding and decoding are charged at the GPU's memory
    bandwidth and do not change with the network; communication contains the waiting. The black tick is what bandwidth
    alone forces: no library and no algorithm gets communication to the left of it.
    """)
    return


@app.cell
def _(breakdown_figure, rows, workers):
    breakdown = breakdown_figure({workers.value: rows})
    breakdown
    return (breakdown,)


@app.cell(hide_code=True)
def _(chosen, format_bytes, format_seconds, mo, rows):
    _s2 = next(row for row in rows if row.option_string == chosen)
    _exact = min((row for row in rows if row.exact), key=lambda row: row.total_s)
    _factor = _s2.total_s / _exact.total_s
    mo.md(
        f"The fastest exact reducer is **{_exact.option_string}**: {format_seconds(_exact.total_s)}, "
        f"{format_bytes(_exact.bytes_sent_per_rank)} sent a rank. **{chosen}** takes {format_seconds(_s2.total_s)} and "
        f"sends {format_bytes(_s2.bytes_sent_per_rank)}, at a relative L2 error of {_s2.error.relative_l2:.2g}. "
        + (
            f"It is {_factor:.2f} times as slow, and not exact: **here it does not pay**."
            if _factor >= 1
            else f"It is {1 / _factor:.2f} times as fast, but further from the mean than zeros are: **useless**."
            if _s2.error.relative_l2 >= 1
            else f"It is {1 / _factor:.2f} times as fast; whether that error is worth it, only training tells."
        )
    )
    return


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
def _(RIVALS, break_even_figure, chosen, replace, result, trace, vary_rate, workers):
    _all = vary_rate(trace.value, workers.value)
    curves = replace(
        _all, speedups={name: values for name, values in _all.speedups.items() if name in (*RIVALS, chosen)}
    )
    crossings = tuple(crossing for crossing in result.verdict.break_even if crossing.reducer in curves.speedups)
    break_even = break_even_figure({workers.value: replace(curves, crossings=crossings)})
    break_even
    return break_even, curves


@app.cell(hide_code=True)
def _(chosen, curves, format_rate, mo, rows):
    _exact = [row.option_string for row in rows if row.exact and row.reducer != "dense"]
    _best = [max(1.0, *at_rate) for at_rate in zip(*(curves.speedups[name] for name in _exact), strict=True)]
    _faster = [
        rate for rate, own, best in zip(curves.rates_Bps, curves.speedups[chosen], _best, strict=True) if own > best
    ]
    mo.md(
        "The curve to beat is not `dense` but, at each rate, the best exact one. "
        + (
            f"**{chosen}** is above all of them at {len(_faster)} of {len(curves.rates_Bps)} rates, between "
            f"{format_rate(min(_faster))} and {format_rate(max(_faster))}."
            if _faster
            else f"**{chosen}** is above all of them at none of the {len(curves.rates_Bps)} rates."
        )
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## What does a byte buy?

    Each point is one reducer with one setting; the lines follow S2's cells and top-k's density. Down and to the left is
    better. Exact reducers have no place on a logarithmic axis: they stand below it, a line each. A setting of S2 is
    worth having only if no exact reducer stands further to the left.
    """)
    return


@app.cell
def _(error_figure, result, workers):
    error = error_figure({workers.value: result.rows})
    error
    return (error,)


@app.cell(hide_code=True)
def _(mo, result):
    _exact = min((row for row in result.rows if row.exact), key=lambda row: row.total_s)
    _faster = [row for row in result.rows if row.total_s < _exact.total_s]
    _s2 = min((row.error.relative_l2 for row in _faster if row.reducer == "s2"), default=None)
    _others = [row for row in _faster if row.reducer != "s2"]
    _rival = min(_others, key=lambda row: row.error.relative_l2, default=None)
    mo.md(
        (
            f"No setting of S2 shown here is faster than **{_exact.option_string}**, which is exact"
            if _s2 is None
            else f"In the time of **{_exact.option_string}**, which is exact, S2 gets no error below {_s2:.2g}"
        )
        + ("." if _rival is None else f"; {_rival.option_string} gets to {_rival.error.relative_l2:.2g}.")
    )
    return


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## What to conclude

    S2 saves a round, and no host waits to learn a size from the GPU. It pays for both with cells. With a cell or more
    for each non-zero it sends at least what `union` sends, and is not exact. With fewer it sends less and is faster,
    but keys collide: then compare its error with that of `topk` and `fp16` in the same time. What error feedback makes
    of it over successive steps, `s2sim run --steps` shows: residuals may settle, but the rows that they fill are sent
    too.
    """)
    return


@app.cell(hide_code=True)
def _(mo, result):
    mo.accordion({"All numbers, and the verdict on this cluster": result})
    return


if __name__ == "__main__":
    app.run()
