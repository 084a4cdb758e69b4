"""``s2sim advise``: each cell of an answer is what its command says."""

import json
import re
import shlex
from pathlib import Path

import pytest

from s2sim.advice.advise import QUESTIONS_TAKE

JOB = ("--topology", "leaf-spine", "--workers", 4)


@pytest.mark.slow
def test_every_cell_is_what_its_command_says(tmp_path, s2sim):
    code, text, _ = s2sim(
        "advise", "best", *JOB, "--reducer", "topk", "--max-error", 0.3, "--json", tmp_path / "advice.json"
    )
    assert code == 0
    assert "topk:density=0.00" in text
    advice = json.loads((tmp_path / "advice.json").read_text())
    assert advice["question"] == "best"
    for cell in advice["cells"]:
        target = tmp_path / "run.json"
        assert s2sim(*shlex.split(cell["command"])[1:], "--no-break-even", "--json", target, "-q")[0] == 0
        rows = {row["reducer"]: row for row in json.loads(target.read_text())["results"]}
        assert rows[cell["reducer"]]["judgement"]["time_s"] == cell["time_s"]
        assert rows[cell["reducer"]]["error"]["relative_l2"] == cell["relative_l2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("best", "--faster", "20%"), "advise best takes no --faster"),
        (("largest", "--efficiency", "much"), "write a share such as 20%"),
        (("cheapest", "--faster", "20%", "--changes", "none.toml"), "none.toml"),
        (("worst",), "the questions are best"),
    ],
)
def test_wrong_questions_are_refused(s2sim, arguments, said):
    code, _, error = s2sim("advise", *arguments, *JOB, "--reducer", "union")
    assert code == 2
    assert said in error


def test_the_help_promises_what_advise_takes(s2sim):
    text = " ".join(s2sim("advise", "--help")[1].split())
    assert "--workers N Number of workers" in text
    assert "several separated by commas" not in text
    assert "0 for none. best needs it" in text
    assert "no limit" not in text
    assert "several separated by commas for a scaling table" in " ".join(s2sim("run", "--help")[1].split())


@pytest.mark.slow
def test_the_page_on_advice_runs_as_it_is_written(tmp_path, monkeypatch, capsys, s2sim):
    page = (Path(__file__).parents[2] / "docs" / "advise.md").read_text(encoding="utf-8")
    blocks = {
        kind: re.findall(rf"^```{kind}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        for kind in ("toml", "bash", "python")
    }
    monkeypatch.chdir(tmp_path)
    (tmp_path / "changes.toml").write_text(blocks["toml"][0])
    commands = blocks["bash"][0].splitlines()
    assert [shlex.split(line)[2] for line in commands] == list(QUESTIONS_TAKE)
    for line in commands:
        code, _, error = s2sim(*shlex.split(line)[1:])
        assert (code, error) == (0, ""), line
    exec(blocks["python"][0], {})  # the page's own example
    assert "s2sim run --topology leaf-spine" in capsys.readouterr().out
