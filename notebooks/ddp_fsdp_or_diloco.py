"""DDP, FSDP or DiLoCo: what each sends in a training iteration, and what of it is exposed."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="DDP, FSDP or DiLoCo?")


@app.cell
def _():
    import marimo as mo

    import s2sim
    from s2sim.units import format_bytes, format_seconds

    return format_bytes, format_seconds, mo, s2sim


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # DDP, FSDP or DiLoCo?

    DDP all-reduces buckets of gradients behind backward. FSDP keeps shards of parameters and optimizer states: it
    gathers parameters twice and reduce-scatters gradients, half as much again, and saves memory. DiLoCo exchanges
    once in *h* steps how far models have moved; what that does to training no simulation of time tells: `s2sim train`
    trains with it.
    """)
    return


@app.cell
def _(mo):
    topology = mo.ui.text(value="tcp-10g", label="topology")
    profile = mo.ui.dropdown(["resnet-18", "resnet-50", "bert-base", "gpt2"], value="resnet-18", label="model")
    workers = mo.ui.number(2, 64, value=8, label="workers")
    h = mo.ui.number(2, 500, value=4, label="h")
    mo.hstack([topology, profile, workers, h], justify="start")
    return h, profile, topology, workers


@app.cell
def _(format_bytes, format_seconds, h, mo, profile, s2sim, topology, workers):
    def iteration(name, reducer, discipline):
        found = s2sim.run(
            topology.value,
            workers=int(workers.value),
            profile=profile.value,
            discipline=discipline,
            reducers=(reducer,),
            break_even=False,
            thorough=False,
        )
        row = next(each for each in found.results if each.reducer == reducer)
        return {
            "way": name,
            "iteration": format_seconds(row.iteration.total_s),
            "exposed communication": format_seconds(row.iteration.exposed_communication),
            "sent by a rank and iteration": format_bytes(row.bytes_sent_per_rank),
        }

    diloco = f"diloco:h={int(h.value)}"
    ways = [("DDP", "dense", "ddp"), ("DDP, fp16", "fp16", "ddp"), ("FSDP", "dense", "fsdp"), (diloco, diloco, None)]
    rows = [iteration(*way) for way in ways]
    mo.ui.table(rows, selection=None)
    return (rows,)


if __name__ == "__main__":
    app.run()
