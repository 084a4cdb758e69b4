"""Makes docs/fidelity.md of the public curves: ``python docs/make_fidelity.py``, a minute of CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.report.tables.validate import LEGEND, answer_lines, not_predicted_lines, validate_grids, worst_lines
from s2sim.study.validate.run import run_validation

if TYPE_CHECKING:
    from s2sim.report.tables.grid import Grid
    from s2sim.study.validate.result import ValidationResult

PAGE = Path(__file__).parent / "fidelity.md"
HEAD = """# How right predictions are

Made by `python docs/make_fidelity.py` of what `s2sim validate` says of the public curves in
[measured/](../measured/README.md).

Each curve is predicted from what is written on its machine alone: GPUs, NVLinks, PCIe and interfaces by the catalogue
of links (`topologies/links.toml`), latencies of the hardware, one switch or a tree that blocks nothing, and the fastest
algorithm of those that libraries choose among, unless the source names one. **Nothing is fitted**, to these curves or
any others, so nothing is predicted well because it was seen before. Interfaces of one GPU count as one with their rates
together; an NVL72 is one node; a GPU, board or transport that is not in the catalogue is not predicted.
"""
LIMITS = """## What cannot be right yet, and why

- **Small messages** are predicted far too fast. A few microseconds of hardware are all that is charged; launching a
  kernel, one process that launches for all GPUs of a node, and a library's steps take several times that. These belong
  to a profile of the library, which does not exist yet.
- **Sockets and providers** (TCP, TCPX, EFA without GPUDirect) are predicted at the rate of the interface; their
  software reaches a part of it, and adds tens of microseconds.
- **Copies through host memory**, between GPUs that cannot reach each other or to an interface, are not charged; nor
  does a host bridge or the link between sockets limit what passes.
- **NVLinks without a switch** (cube meshes, four GPUs, MI300X) carry one ring one way, so large messages are predicted
  too slow.
- **Protocols, channels and the fill of pipelines** are missing: between 1 and 16 MiB the model is too fast, and the
  algorithm that it takes for the fastest need not be the one that a library takes.
- **NVLS** is taken only where the source names it.
- Not there yet beside profiles: bands around predictions, parameters with their drift, and fits that leave a source
  out.

A doubt is written down beside a curve where its numbers cannot follow from its row, before anything was predicted; such
curves and suspect ones are told apart, and count nowhere else.
"""


def page(result: ValidationResult) -> str:
    """Return the page."""
    answer = "\n".join(f"- {line}" for line in [result.headline, *answer_lines(result)])
    parts = [HEAD, answer, "", LEGEND, "", LIMITS]
    worst = worst_lines(result)
    parts += ["## The worst", "", *worst, "", *(f"- {line}" for line in not_predicted_lines(result))]
    parts += ["## Tables", "", *map(table, validate_grids(result))]
    return "\n".join(parts)


def table(grid: Grid) -> str:
    """Return a table as Markdown."""
    titles = [column.title.replace("-\n", "").replace("\n", " ") for column in grid.columns]
    rules = ["---:" if column.numeric else "---" for column in grid.columns]
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, rules, *grid.rows)]
    return "\n".join([f"### {grid.title[0].upper()}{grid.title[1:]}", "", *lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(run_validation()), "utf-8")
