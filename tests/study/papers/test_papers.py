"""Papers: a made-up one of another package goes all the way, and what is interrupted keeps what is finished."""

import json
import re
import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from s2sim.claims.grid import SweepTime
from s2sim.claims.paper import (
    PAPERS,
    Chart,
    Claim,
    HeatMap,
    Line,
    Paper,
    PaperEffort,
    PaperPart,
    Table,
    judge_saved,
    judge_within,
    run_papers,
)
from s2sim.claims.papers import s2_reducer
from s2sim.cli.main import main
from s2sim.errors import OptionError, UnknownNameError
from s2sim.experiment.json_form import schema_of
from s2sim.report.screens import papers_page

CLAIMS = (
    Claim("halves & quarters", "section 1", "2x", "2.1x", "reproduced", "within 15 %", "it adds up"),
    Claim("is free", "abstract", "0", "5 ms", "not reproduced", "at most 1 ms", "encoding takes time"),
    Claim("helps everybody", "abstract", "-", "-", "not testable", "nobody says who", "nobody knows"),
)
PICTURES = (
    Chart(
        "Over steps", "step", "loss", (Line("ours", (1, 10, 100), (3, 2, 1), (2.5, 1.5, 0.5), (3.5, 2.5, 1.5)),), True
    ),
    HeatMap("Wins", ("a", "b"), ("x", "y", "z"), ((1.0, 2.0), (None, 0.5), (1.5, 1.0))),
)


def first(effort, progress):
    progress.start(1, "first part")
    rows = ((f"quick: {effort.quick}", "12"),)
    return PaperPart(CLAIMS[:2], (Table("Numbers", ("what", "how many"), rows),), PICTURES, setup=("first part ran",))


def second(_effort, _progress):
    return PaperPart(CLAIMS[2:], assumed=("nothing",))


def stopped(_effort, _progress):
    raise KeyboardInterrupt


def made_up(name, *parts):
    return Paper(name, "On nothing", "Nobody, 2026", "makes <all> fast", ("one machine",), (), parts)


@pytest.fixture
def made_up_papers(monkeypatch):
    """Install a package with papers."""
    module = ModuleType("papers_of_others")
    module.WHOLE, module.CUT = made_up("made-up", first, second), made_up("cut", first, stopped, second)
    monkeypatch.setitem(sys.modules, "papers_of_others", module)
    points = [EntryPoint(name, f"papers_of_others:{name.upper()}", "s2sim.papers") for name in ("whole", "cut")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda *, group: points if group == "s2sim.papers" else [])
    PAPERS.__dict__.pop("_targets", None)
    yield
    PAPERS.__dict__.pop("_targets", None)


@pytest.mark.slow
@pytest.mark.usefixtures("made_up_papers")
def test_a_paper_of_another_package_is_rebuilt(capsys, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    html = tmp_path / "page.html"
    assert main(["paper", "whole", "--html", str(html), "--json", "-"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, schema_of("paper"))
    (paper,) = value["papers"]
    assert [claim["judgement"] for claim in paper["claims"]] == ["reproduced", "not reproduced", "not testable"]
    assert paper["setup"] == ["one machine", "first part ran"]
    assert paper["tables"][0]["rows"] == [["quick: True", "12"]]
    assert value["headline"] == "3 claims of 1 paper: 1 reproduced, 1 not reproduced, 1 not testable"
    page = html.read_text("utf-8")
    assert page.count("<svg") == 2
    assert "halves &amp; quarters" in page
    assert not re.search("<(script|link|img)|(src|@import|url)[=(][\"']?http", page)


@pytest.mark.usefixtures("made_up_papers")
def test_pictures_are_numbered_files(tmp_path, capsys):
    assert main(["paper", "whole", "--quiet", "--png", str(tmp_path / "wins.svg")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wins-1.svg", "wins-2.svg"]
    assert "Wins" in (tmp_path / "wins-2.svg").read_text("utf-8")
    capsys.readouterr()


@pytest.mark.usefixtures("made_up_papers")
def test_the_screen_has_claims_why_and_numbers(capsys):
    assert main(["paper", "whole", "--full"]) == 0
    out = capsys.readouterr().out
    for text in ("not reproduced", "2. Not reproduced: encoding takes time", "quick: False", "set-up", "assumed"):
        assert text in out
    assert main(["paper", "whole", "--quiet"]) == 0
    assert "set-up" not in capsys.readouterr().out


@pytest.mark.usefixtures("made_up_papers")
def test_what_is_interrupted_keeps_what_is_finished(capsys):
    assert main(["paper", "cut", "whole", "--json", "-"]) == 130
    value = json.loads(capsys.readouterr().out)
    (paper,) = value["papers"]
    assert len(paper["claims"]) == 2
    assert not paper["complete"]
    assert "interrupted" in value["notes"][0]


@pytest.mark.usefixtures("made_up_papers")
def test_the_list_has_all_papers(capsys):
    assert main(["paper", "list", "--json", "-"]) == 0
    names = [paper["name"] for paper in json.loads(capsys.readouterr().out)["papers"]]
    assert {"dgc", "made-up", "cut"} <= set(names)
    assert main(["paper", "list"]) == 0
    assert "makes <all> fast" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nothing"], "unknown paper 'nothing'"),
        (["dgc", "dgc"], "stands twice"),
        (["all", "dgc"], "all stands for itself"),
        (["list", "--html", "x.html"], "name one, or all"),
        (["dgc", "--html", "/no/where.html"], "no directory"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments, told, capsys):
    assert main(["paper", *arguments]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def test_names_are_asked_for():
    with pytest.raises(OptionError, match="no paper was named"):
        run_papers([])
    with pytest.raises(UnknownNameError):
        run_papers(["dgcc"])


def test_more_settings_do_not_make_a_maximum_easier_to_reproduce():
    def judged(slowest_s):
        rows = dict.fromkeys((*s2_reducer.BASELINES, *s2_reducer.OURS), SweepTime(1.0, 1.0, 0, 0.0))
        slow = rows | {next(iter(s2_reducer.BASELINES)): SweepTime(slowest_s, slowest_s, 0, 0.0)}
        times = dict.fromkeys(s2_reducer.CLUSTERS, rows) | {s2_reducer.FIRST: slow}
        return [claim.judgement for claim in s2_reducer._speed_claims({"GNMT": times})]

    assert judged(1.85) == ["reproduced", "not reproduced", "not reproduced"]
    assert judged(50.0) == ["not reproduced"] * 3


def test_a_saving_that_an_exchange_of_no_time_has_shows_nothing():
    # PowerSGD's 73 and 27 ms, of dense's 77.
    assert judge_saved(77.0, 77.0, 73.0) == judge_saved(77.0, 66.0, 73.0) == "not testable"
    assert judge_saved(77.0, 26.0, 27.0) == "reproduced"
    assert judge_saved(77.0, 66.0, 27.0) == judge_saved(77.0, 55.0, -132.0) == "not reproduced"


def test_rules():
    assert judge_within(1.6, 1.8) == judge_within(2.0, 1.8) == "reproduced"
    assert judge_within(1.5, 1.8) == judge_within(2.1, 1.8) == "not reproduced"


def test_every_paper_says_what_it_claims_and_where():
    for name in PAPERS.names():
        paper = PAPERS.get(name)
        assert paper.name == name
        assert paper.parts
        assert all((paper.title, paper.source, paper.claimed, paper.setup))


@pytest.mark.slow
@pytest.mark.usefixtures("made_up_papers")
def test_an_answer_shows_itself():
    result = run_papers(["whole"], PaperEffort())
    assert "not reproduced" in str(result)
    assert "encoding takes time" in result._repr_html_()
    assert papers_page(result) == papers_page(result)
