"""Makes docs/claims.md of all papers, rebuilt in their short form: ``python docs/make_claims.py [NAME...]``.

With names, only the sections of these papers are made anew.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.claims.paper import PAPERS, PaperEffort, rebuild_paper
from s2sim.experiment.progress import SILENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from s2sim.claims.paper import Claim, Rebuilt, Table

PAGE = Path(__file__).parent / "claims.md"
HEAD = """# Published claims, rebuilt

Made by `python docs/make_claims.py`, which runs what `s2sim paper NAME` runs: every figure under *ours* is computed by
it. A claim is *reproduced* where it meets the rule beside it, *not testable* where something is missing that nobody can
fill in here: a data set, a machine, or what the paper does not say. Claims of accuracy are tested on the small models
that `s2sim train` has, claims of bytes and time on layer tables and compute profiles of the published models.
`s2sim paper NAME --html FILE` draws pictures as well, `--full` takes longer and is sharper.
"""
_MARK = "<!-- {} -->"


def page(sections: Mapping[str, str]) -> str:
    """Return the page of the sections of all papers, by name."""
    marked = [f"{_MARK.format(name)}\n{text}" for name, text in sections.items()]
    return "\n\n".join([HEAD.rstrip(), *marked]) + "\n"


def section(paper: Rebuilt) -> str:
    """Return what there is to say of one paper."""
    claims = table(("claim", "published", "ours", "judgement"), map(claim_cells, paper.claims))
    why = [f"{number}. {why_text(claim)}" for number, claim in enumerate(paper.claims, 1)]
    parts = [f"## {paper.name}\n", f"{paper.title}. {paper.source}. `s2sim paper {paper.name}`\n", claims, *why, ""]
    parts += [f"- *set-up*: {text}" for text in paper.setup] + [f"- *assumed*: {text}" for text in paper.assumed]
    parts += ["", *map(numbers, paper.tables)]
    return "\n".join(parts).rstrip()


def claim_cells(claim: Claim) -> tuple[str, ...]:
    """Return the row of a claim."""
    return claim.text, claim.published, claim.ours, f"**{claim.judgement}**"


def why_text(claim: Claim) -> str:
    """Return where a claim stands, why it came out so, and the rule."""
    return f"{claim.why[0].upper()}{claim.why[1:]}. *{claim.source}; {claim.rule}.*"


def numbers(found: Table) -> str:
    """Return a table of numbers under its title."""
    return f"{found.title}:\n\n{table(found.columns, found.rows)}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join([*(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines), ""])


def sections_of(text: str) -> dict[str, str]:
    """Return the sections of a page by the name of their paper."""
    found: dict[str, str] = {}
    for part in text.split("<!-- ")[1:]:
        name, _, body = part.partition(" -->\n")
        found[name] = body.rstrip()
    return found


def main(names: Sequence[str]) -> None:
    """Write the page, made anew for some papers or all."""
    known = sections_of(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    for name in names or PAPERS.names():
        print(name, flush=True)
        known[name] = section(rebuild_paper(PAPERS.get(name), PaperEffort(quick=True), SILENT))
    PAGE.write_text(page({name: known[name] for name in PAPERS.names() if name in known}), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
