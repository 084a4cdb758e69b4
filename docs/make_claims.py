"""Makes docs/claims/, a page for each paper rebuilt in its short form, and its index docs/claims.md.

``python docs/make_claims.py [NAME...]``: with names, only the pages of these papers are made again.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from s2sim.claims.paper import PAPERS, ClaimJudgement, PaperEffort, rebuild_paper
from s2sim.experiment.progress import SILENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s2sim.claims.paper import Claim, Rebuilt, Table

INDEX = Path(__file__).parent / "claims.md"
PAGES = INDEX.with_suffix("")
JUDGEMENTS = get_args(ClaimJudgement)
MADE_BY = "Models were trained by the code with the hash {hash}; `python docs/make_claims.py` tells it anew.\n"
HEAD = """# Published claims, rebuilt

Made by `python docs/make_claims.py`, which runs what `s2sim paper NAME` runs: every figure under *ours* is computed by
it. A claim is *reproduced* if it meets the rule given with it, and *not testable* if something is missing that cannot
be filled in here: a data set, a machine, or what the paper does not state. Claims of time are judged twice, with
idealised kernels for all codecs and with what published code of the paper's year took (`--codec-as`), and *depend on
the implementation* where that alone decides. Claims of accuracy are tested on the small
models that `s2sim train` has, claims of bytes and time on layer tables and compute profiles of the published models.
`s2sim paper NAME --html FILE` draws figures as well, `--full` takes longer, is more precise and trains until dense
stops improving.
"""


def index() -> str:
    """Return the index of all pages, with the number of claims of each judgement."""
    rows = []
    for name in PAPERS.names():
        text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        citation = text.splitlines()[2].removesuffix(f" `s2sim paper {name}`")
        counts = [str(text.count(f"| **{judgement}** |")) for judgement in JUDGEMENTS]
        rows.append((f"[{name}](claims/{name}.md)", citation, *counts))
    return f"{HEAD}\n{table(('paper', 'published as', *JUDGEMENTS), rows)}"


def page(paper: Rebuilt) -> str:
    """Return the page of a paper."""
    claims = table(("claim", "published", "ours", "judgement"), map(claim_cells, paper.claims))
    why = [f"{number}. {why_text(claim)}" for number, claim in enumerate(paper.claims, 1)]
    parts = [f"# {paper.name}\n", f"{paper.title}. {paper.source}. `s2sim paper {paper.name}`\n", claims, *why, ""]
    parts += [f"- *set-up*: {text}" for text in paper.setup] + [f"- *assumed*: {text}" for text in paper.assumed]
    parts += ["", *map(numbers, paper.tables)]
    if trains(paper.name):
        parts += [MADE_BY.format(hash=code_hash(paper.name))]
    return "\n".join(parts).rstrip() + "\n"


def trains(name: str) -> bool:
    """Return whether claims of a paper need training, which takes too long to be made again by every check."""
    return "training_outcomes" in _module(name).read_text(encoding="utf-8")


def code_hash(name: str) -> str:
    """Return a hash of the code that trains for a paper: its module, training, reducers and codecs, without texts."""
    package = Path(str(files("s2sim")))
    rooms = [package / "training", package / "pytorch" / "models", package / "reducers", package / "codecs"]
    paths = [_module(name), package / "claims" / "training_outcomes.py", package / "pytorch" / "model_updates.py"]
    paths += sorted(path for room in rooms for path in room.rglob("*.py"))
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    catalogue = tomllib.loads((package / "claims" / "papers.toml").read_text(encoding="utf-8"))
    return sha256("\n".join([*map(_without_texts, trees), repr(catalogue[name])]).encode()).hexdigest()[:12]


def _module(name: str) -> Path:
    module = PAPERS.builtin[name].partition(":")[0]
    return Path(str(files("s2sim"))).parent / f"{module.replace('.', '/')}.py"


def _without_texts(tree: ast.Module) -> str:
    """Return what a module does, without its docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [
                each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ]
    return ast.dump(tree)


def claim_cells(claim: Claim) -> tuple[str, ...]:
    """Return the cells of a claim."""
    return claim.text, claim.published, claim.ours, f"**{claim.judgement}**"


def why_text(claim: Claim) -> str:
    """Return the explanation of a judgement, with the source of the claim and the rule."""
    return f"{claim.why[0].upper()}{claim.why[1:]}. *{claim.source}; {claim.rule}.*"


def numbers(printed: Table) -> str:
    """Return a table of numbers under its title."""
    return f"{printed.title}:\n\n{table(printed.columns, printed.rows)}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join([*(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines), ""])


def main(names: Sequence[str]) -> None:
    """Write the pages of some papers or of all, and the index."""
    PAGES.mkdir(exist_ok=True)
    for name in names or PAPERS.names():
        print(name, flush=True)
        paper = rebuild_paper(PAPERS.get(name), PaperEffort(quick=True), SILENT)
        (PAGES / f"{name}.md").write_text(page(paper), encoding="utf-8")
    INDEX.write_text(index(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
