"""Each paper has its page in docs/claims/, which rebuilding it gives; docs/claims.md is their index."""

import importlib.util
from pathlib import Path
from typing import get_args

import pytest

from s2sim.claims import training_outcomes as in_loop
from s2sim.claims.paper import PAPERS, ClaimJudgement, PaperEffort, rebuild_paper
from s2sim.claims.papers import does_it_pay
from s2sim.experiment.progress import SILENT

DOCS = Path(__file__).parents[3] / "docs"
# Claims that are reproduced, not reproduced, up to the implementation, and not testable, of papers without training.
JUDGED = {
    "gtopk": (2, 7, 0, 0),
    "ok-topk": (2, 0, 1, 1),
    "omnireduce": (2, 6, 1, 2),
    "powersgd": (3, 4, 0, 3),
    "spardl": (4, 0, 0, 1),
    "topka2a": (4, 1, 0, 0),
}
# What is published of messages: as published where the page says so, see there for what is not.
OF_MESSAGES = {
    "random-block": {"random blocks send 43 times less, by all-reduce, and nothing but values": "reproduced"},
    "sbc": {"saves over four orders of magnitude upstream": "reproduced"},
    "deepreduce": {
        "BF-P0 sends 0.1425 of dense at top 10 % (LSTM of FedML)": "reproduced",
        "BF-P0 with a rate of 0.001 sends 33 % less than top 1 % (ResNet-20)": "not reproduced",
    },
}


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_claims", DOCS / "make_claims.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_paper_has_a_page_and_stands_in_the_index(script):
    assert {path.stem for path in script.PAGES.iterdir()} == set(PAPERS.names()), "run python docs/make_claims.py"
    assert script.INDEX.read_text("utf-8") == script.index()


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS.names())
def test_what_was_trained_is_of_the_present_code(name, script):
    page = (script.PAGES / f"{name}.md").read_text("utf-8")
    told = f"by the code with the hash {script.code_hash(name)};"
    assert (told in page) == script.trains(name), f"run python docs/make_claims.py {name}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAPERS.names() if name != "does-it-pay"])  # see below
def test_what_needs_no_training_is_as_the_page_says(name, script, monkeypatch):
    """What trains in the loop ends with other last digits on other processors."""
    monkeypatch.setattr(in_loop, "find_spec", lambda _name: None)
    rebuilt = rebuild_paper(PAPERS.get(name), PaperEffort(quick=True), SILENT)
    claims = [claim for claim in rebuilt.claims if claim.rule != in_loop.NEEDS]
    assert claims
    page = (script.PAGES / f"{name}.md").read_text("utf-8")
    for claim in claims:
        assert f"| {' | '.join(script.claim_cells(claim))} |" in page, f"run python docs/make_claims.py {name}"
        assert claim.source
        assert claim.rule
        assert claim.why
    if name in JUDGED:
        words = [claim.judgement for claim in rebuilt.claims]
        assert tuple(map(words.count, get_args(ClaimJudgement))) == JUDGED[name]
        assert rebuilt.complete
    assert OF_MESSAGES.get(name, {}).items() <= {claim.text: claim.judgement for claim in claims}.items()


@pytest.mark.slow
def test_a_model_of_each_grid_is_as_the_page_of_does_it_pay_says(script, monkeypatch):
    """All take minutes; rows are of a model and mini-batch each, over all clusters and reducers."""
    monkeypatch.setattr(does_it_pay, "_THEIR_MODELS", {"resnet-50": (16, 64)})
    monkeypatch.setattr(does_it_pay, "_MODELS", does_it_pay._MODELS[:1])
    parts = does_it_pay._published_setups(PaperEffort(), SILENT), does_it_pay._over_clusters(PaperEffort(), SILENT)
    tables = [table for part in parts for table in part.tables if table.columns[0] == "model and mini-batch"]
    page = (script.PAGES / "does-it-pay.md").read_text("utf-8")
    for row in (row for table in tables for row in table.rows):
        assert f"| {' | '.join(row)} |" in page, "run python docs/make_claims.py does-it-pay"
    assert [len(table.rows) for table in tables] == [2, 2, 2, 3]
