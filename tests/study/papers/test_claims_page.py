"""docs/claims.md is what papers come to: all of them are there, and rebuilding one gives its section."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from s2sim.claims import training_outcomes as in_loop
from s2sim.claims.paper import PAPERS, PaperEffort, rebuild_paper
from s2sim.experiment.progress import SILENT

DOCS = Path(__file__).parents[3] / "docs"
# These take a minute each.
LONG = ("does-it-pay", "ok-topk", "omnireduce")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_claims", DOCS / "make_claims.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sections(script):
    return script.sections_of((DOCS / "claims.md").read_text("utf-8"))


def test_the_page_has_every_paper(script, sections):
    assert list(sections) == PAPERS.names(), "run python docs/make_claims.py"
    assert script.page(sections) == (DOCS / "claims.md").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAPERS.names() if name not in LONG])
def test_what_needs_no_training_is_as_the_page_says(name, script, sections, monkeypatch):
    """What trains in the loop ends with other last digits on other processors."""
    monkeypatch.setattr(in_loop, "find_spec", lambda _name: None)
    rebuilt = rebuild_paper(PAPERS.get(name), PaperEffort(quick=True), SILENT)
    claims = [claim for claim in rebuilt.claims if claim.rule != in_loop.NEEDS]
    assert claims
    for claim in claims:
        assert f"| {' | '.join(script.claim_cells(claim))} |" in sections[name], (
            f"run python docs/make_claims.py {name}"
        )
