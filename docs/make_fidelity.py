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
[measured/curves/](../measured/curves/README.md).

Each curve is predicted from what is written on its machine alone: GPUs, NVLinks, PCIe and interfaces by
`topologies/hardware.toml`, latencies of the hardware, one switch or a tree that blocks nothing, what NCCL adds
by `libraries/nccl.toml`, and the fastest algorithm of those that it has, unless the source names one. **Constants of
that file whose kind is "measured" are fitted** to good public curves, each of a class of hardware, transport or
protocol and none of a curve: these curves are predicted better than unseen ones will be. What is left out tells more:
below stands what is predicted of each source by constants that all other sources tell, which the same command fits
again. An NVL72 is one NVLink domain; a GPU, board or transport that is not in the catalogue is not predicted.

`s2sim dev validate --write` makes what is shipped: constants fitted until they stay (least squares of
ln(predicted/measured), one voice a source, with a pull to `libraries/fits/priors.toml`), and
`libraries/fits/bands.json`, the errors of sources left out. From these come the bands that `s2sim run` and
`s2sim collective` print: the 4 % and 96 % quantiles of measured over predicted, by GPU, network, collective, launch and
size. How many points of a source that a band has not seen lie inside stands below.
"""
LIMITS = """## What cannot be right yet, and why

- **The choice of algorithm** is the fastest of what NCCL has; its own choice is at times slower (two nodes of Polaris
  run rings where trees are faster).
- **Host bridges** are shares of the rate by class of way, host memory has a rate by generation of PCIe; what a
  machine's own bridge or memory forwards is not known from its row.
- **An NVL72 and RCCL** are predicted with what eight B200 and NCCL tell.

A doubt is written down beside a curve where its numbers cannot follow from its row, before anything was predicted; such
curves and suspect ones are told apart, and count nowhere else.
"""
ITERATIONS = """## Training iterations

What `s2sim dev validate --iterations` says of the public iterations in
[measured/iterations/](../measured/iterations/README.md). Compute is that of each row; where a row has none, that of the
model's profile on its GPU. Layers share it out as in the profile. Clusters follow from rows as those of curves do, NCCL
is that of `libraries/nccl.toml`. No row has a constant of its own. **These errors are partly of rows that were seen**:
what an operation of a framework takes, how many of them published codecs start, and between which cards nothing passes
directly were settled with these rows in view, and errors on others may be larger. What decides beside the network:

- **Rings or trees** between nodes are NCCL's own choice, by its estimates (`src/graph/tuning.cc`), which take trees for
  half of the bus bandwidth whatever the number of nodes: two nodes run rings, although trees send half as much.
- **Cards without NVLink** reach each other as NCCL lets them: not those of Kepler to Pascal, whose hosts are of
  Broadwell or before, not over two processors, and not GeForce cards from Turing on; what they send passes host memory.
- **Loops of the host**: code that a framework runs operation by operation takes about 10 us for each and tensor.
  Packing all gradients into one buffer and back is nine of them (0.09 ms a tensor), what codecs start was counted in
  their code (`IMPLEMENTATIONS` in `s2sim/validation/`); the host runs ahead of collectives in flight. Where codec
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
    """Return the page."""
    answer = "\n".join(f"- {line}" for line in [result.what, *answer_lines(result)])
    parts = [HEAD, answer, "", LEGEND, "", LIMITS]
    parts += ["## Bands", "", *band_lines(result), ""]
    worst = worst_lines(result)
    parts += ["## The worst", "", *worst, "", *(f"- {line}" for line in not_predicted_lines(result.curves))]
    parts += ["## Tables", "", *map(table, validate_grids(result))]
    return "\n".join([*parts, *of_iterations(iterations)])


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
    answer = "\n".join(f"- {line}" for line in [result.what, *iterations_lines(result)])
    more = [*worst_iteration_lines(result), "", *(f"- {line}" for line in not_predicted_lines(result.iterations)), ""]
    return [ITERATIONS, answer, "", ITERATIONS_LEGEND, "", *more, *map(table, iterations_grids(result))]


def table(grid: Grid) -> str:
    """Return a table as Markdown."""
    titles = [column.title.replace("-\n", "").replace("\n", " ") for column in grid.columns]
    rules = ["---:" if column.numeric else "---" for column in grid.columns]
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, rules, *grid.rows)]
    return "\n".join([f"### {grid.title[0].upper()}{grid.title[1:]}", "", *lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(run_validation(), validate_iterations()), "utf-8")
