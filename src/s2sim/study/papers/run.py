"""Rebuild papers: what Python and the command line call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.errors import OptionError
from s2sim.provenance import run_record
from s2sim.study.papers.claim import Papers
from s2sim.study.papers.paper import Effort, rebuild
from s2sim.study.papers.registry import PAPERS
from s2sim.study.progress import INTERRUPTED_NOTE, SILENT
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.papers.claim import Rebuilt
    from s2sim.study.papers.paper import Paper
    from s2sim.study.progress import Progress


def run_papers(names: Sequence[str], effort: Effort | None = None, progress: Progress = SILENT) -> Papers:
    """Return what comes of some papers; after Ctrl-C that of what is finished.

    Raises
    ------
    UnknownNameError
        Where there is no paper of a name.
    OptionError
        Where no name was given, or one twice.
    """
    if not names:
        raise OptionError("no paper was named; for example s2sim paper s2-reducer, or s2sim paper list")
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"{name} stands twice: name each paper once")
    papers: list[Paper] = [PAPERS.get(name) for name in names]
    effort = effort or Effort()
    found: list[Rebuilt] = []
    for paper in papers:
        found.append(rebuild(paper, effort, progress))
        if not found[-1].complete:
            break
    complete = len(found) == len(papers) and found[-1].complete
    claims = [claim for paper in found for claim in paper.claims]
    counts = {word: sum(claim.judgement == word for claim in claims) for word in _JUDGEMENTS}
    judged = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return Papers(
        headline=f"{number_of(len(claims), 'claim')} of {number_of(len(found), 'paper')}: {judged or 'none judged'}",
        quick=effort.quick,
        papers=tuple(found),
        provenance=run_record(
            spec={"papers": list(names), "quick": effort.quick},
            inputs={paper.name: {"source": paper.source} for paper in papers},
            measured=["values, errors and bytes: reducers ran on real arrays", "losses: models were trained"],
            assumed=["times: scripts replayed on simulated clusters"],
        ),
        notes=() if complete else (INTERRUPTED_NOTE,),
    )


_JUDGEMENTS = ("reproduced", "not reproduced", "not testable")
