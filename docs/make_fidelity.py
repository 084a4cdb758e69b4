"""Makes docs/fidelity.md of the public curves and iterations: ``python docs/make_fidelity.py``, four minutes of CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.report.validation_tables import (
    ITERATIONS_LEGEND,
    LEGEND,
    answer_lines,
    iterations_grids,
    iterations_lines,
    not_predicted_lines,
    validate_grids,
    worst_iteration_lines,
    worst_lines,
)
from s2sim.validation.validate_curves import run_validation
from s2sim.validation.validate_iterations import validate_iterations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.report.grid import Grid
    from s2sim.validation.curve_result import CurveErrors, ValidationResult
    from s2sim.validation.iteration_result import IterationsResult

_SOURCES_OF_A_CLASS = 3
PAGE = Path(__file__).parent / "fidelity.md"
HEAD = """# How right predictions are

Made by `python docs/make_fidelity.py` of what `s2sim dev validate` says of the public curves in
[measured/curves/](../measured/curves/README.md) and of the public iterations in
[measured/iterations/](../measured/iterations/README.md).

Each curve is predicted from what is written on its machine alone: GPUs, NVLinks, PCIe and interfaces by
`topologies/hardware.toml`, latencies of the hardware, one switch or a tree that blocks nothing, what NCCL adds
by `libraries/nccl.toml`, and the algorithm and protocol that NCCL estimates to be fastest
(`libraries/nccl-tuner.toml`), unless the source names one. Its version is the newest of the source's date, where the
source does not tell it. An NVL72 is one NVLink domain; a GPU, board or transport
that is not in the catalogue is not predicted.

**What counts is the error at machines that were not in the fit**: constants of `libraries/nccl.toml` whose kind is
"measured" are fitted to good public curves, each of a class of hardware, transport or protocol and none of a curve.
Below, each source is predicted by constants that all other sources tell. What curves of the fit itself come to stands
last, and tells less. Fewer constants are better: of 29 of NCCL sixteen are not fitted but those of NCCL's own tables or
estimates, because left-out sources are predicted no worse by these. The *worth* of the others is how much larger the
mean error of left-out sources is where a constant stays at its prior; what one source alone tells cannot show any.
"""
LIMITS = """## What cannot be right yet, and why

- **The choice of algorithm** follows NCCL's estimates, for which its search over the graph of a machine is done in
  short: where two estimates lie within 15 %, the other may run. `s2sim collective` names both and its band holds them;
  `s2sim run` takes the lesser.
- **RoCE and Slingshot** reach from half to all of the rate of their interfaces, by queue pairs and routing that few
  rows state. Where RoCE has fewer than four queue pairs (`nic.queue_pairs`), or a cluster's file assumes a field of its
  interfaces, the answer says so, and its band has the errors of doubtful and suspect curves over several nodes too.
- **Host bridges** are shares of the rate by class of way, host memory has a rate by generation of PCIe; what a
  machine's own bridge or memory forwards is not known from its row.
- **An NVL72 and RCCL** are predicted with what eight B200 and NCCL tell.
- **The mechanisms** were chosen with the public curves in view, also those of a source that a fit leaves out: on
  machines that nobody has seen errors are larger than the tables of left-out sources say.

A doubt is written down beside a curve where its numbers cannot follow from its row, before anything was predicted; such
curves and suspect ones are told apart, and count nowhere else.
"""
BANDS = """## Bands and probabilities

`s2sim dev validate --write` makes what is shipped: constants fitted until they stay (least squares of
ln(predicted/measured), one voice a source, with a pull to `libraries/fits/priors.toml`), and
`libraries/fits/bands.json`, the errors of sources left out. These are the one distribution of what a time may be off
by: its 4 % and 96 % quantiles, by GPU, network, collective, launch and size, are the bands that `s2sim run` and
`s2sim collective` print, and its draws, the same for all reducers of a run, the probability of a verdict. Errors at two
sizes of one machine are correlated by exp(-octaves / 6), at one size of two collectives by .4, as those of the public
curves are. Doubtful and suspect curves over several nodes are there for interfaces of which fields are assumed. Points
of a source that a band has not seen lie inside:
"""
ITERATIONS = """## Training iterations: times, and calls of win or lose

What `s2sim dev validate --iterations` says of the public iterations in
[measured/iterations/](../measured/iterations/README.md). Compute is that of each row; where a row has none, that of the
model's profile on its GPU. Layers share it out as in the profile. Clusters follow from rows as those of curves do, NCCL
is that of `libraries/nccl.toml`. No row has a constant of its own. **These errors are partly of rows that were seen**:
what an operation of a framework takes, how many of them published codecs start, and between which cards nothing passes
directly were settled with these rows in view, and errors on others may be larger. What decides beside the network:

- **Rings or trees** between nodes are NCCL's own choice, by its estimates or, before 2.5, by a size up to which trees
  were for all. Which version a source ran is in `software.csv`, where its code or documents tell, else the newest of
  its year.
- **torch.topk** before PyTorch 1.12 read a tensor by one block of threads: 12.8 ns a value on any GPU.
- **Cards without NVLink** reach each other as NCCL lets them: not those of Kepler to Pascal, whose hosts are of
  Broadwell or before, not over two processors, and not GeForce cards from Turing on; what they send passes host memory.
- **Loops of the host**: code that a framework runs operation by operation takes about 10 us for each and tensor.
  Packing all gradients into one buffer and back is nine of them (0.09 ms a tensor), what codecs start was counted in
  their code (`s2sim/experiment/implementations.toml`); the host runs ahead of collectives in flight. Where codec
  and collectives share a stream of the GPU, neither runs beside the other.
- **Passes over memory**: such code reads and writes the whole array in each operation.
- **Calls**: about ten operations for a framework's call of one collective, and two waits for the GPU where somebody
  takes the time of each part.

What cannot be right: waiting for slower ranks (300 to 600 ms in `vineeths96_025` to `_030`; a first message of few
bytes tells it), hosts whose processors are too slow for their interface (two virtual cores behind a K80), an overlap
that a source does not describe (HiPress), and what PyTorch's hook of PowerSGD takes of a GTX 1080 Ti, whose compute no
row tells.
"""


def page(result: ValidationResult, iterations: IterationsResult) -> str:
    """Return the page: what was not in the fit first, what was in it last."""
    left_out, in_fit = (
        [line for line in answer_lines(result) if line.startswith("in the fit") == fitted] for fitted in (False, True)
    )
    grids = validate_grids(result)
    unseen = [grid for grid in grids if "left out" in grid.title]
    parts = [HEAD, *_list([result.what, *left_out]), LEGEND, "", *map(table, unseen)]
    parts += [BANDS, *band_lines(result), "", *of_iterations(iterations), LIMITS]
    worst = worst_lines(result)
    parts += ["## The worst", "", *worst, "", *(f"- {line}" for line in not_predicted_lines(result.curves))]
    parts += ["## In the fit", "", *_list(in_fit), *(table(grid) for grid in grids if grid not in unseen)]
    return "\n".join(parts)


def _list(lines: Sequence[str]) -> list[str]:
    return [*(f"- {line}" for line in lines), ""]


def band_lines(result: ValidationResult) -> list[str]:
    """Return the share of points in 90 % intervals, of all good curves and of classes of three sources or more."""
    curves = [curve for curve in result.curves if curve.counts and curve.band_holds_share is not None]
    if not curves:
        return []

    def coverage(curves: Sequence[CurveErrors]) -> str:
        inside = sum((curve.band_holds_share or 0.0) * curve.n_points for curve in curves)
        return f"{inside / sum(curve.n_points for curve in curves):.0%}"

    lines = [f"- all good curves: {coverage(curves)}"]
    for kind in ("gpu", "transport", "collective", "launch"):
        for name in sorted({getattr(curve, kind) for curve in curves}):
            members = [curve for curve in curves if getattr(curve, kind) == name]
            if len({curve.source for curve in members}) >= _SOURCES_OF_A_CLASS:
                lines.append(f"- {kind} {name or 'not known'}: {coverage(members)}")
    return lines


def of_iterations(result: IterationsResult) -> list[str]:
    """Return what the page says of iterations."""
    more = [*worst_iteration_lines(result), "", *_list(not_predicted_lines(result.iterations))]
    answer = _list([result.what, *iterations_lines(result)])
    return [ITERATIONS, *answer, ITERATIONS_LEGEND, "", *more, *map(table, iterations_grids(result))]


def table(grid: Grid) -> str:
    """Return a table as Markdown."""
    titles = [column.title.replace("-\n", "").replace("\n", " ") for column in grid.columns]
    rules = ["---:" if column.numeric else "---" for column in grid.columns]
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, rules, *grid.rows)]
    return "\n".join([f"## {grid.title[0].upper()}{grid.title[1:]}", "", *lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(run_validation(), validate_iterations()), "utf-8")
