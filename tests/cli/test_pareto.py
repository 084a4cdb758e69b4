import json

import pytest

TRACE = ("--trace", "synthetic:density=0.02,overlap=0.5,rows=2000,width=16")
FEW = ("--reducer", "union", "--reducer", "topk:density=0.01", "--reducer", "s2:cells=2,warm=true")


COMPARE = ("run", "--topology", "fat-tree", "--show", "pareto", "--no-break-even", *TRACE)


def test_a_table_for_each_number_of_workers_within_80_columns(s2sim, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = s2sim(*COMPARE, "--workers", "1,8", *FEW)
    assert (code, err) == (0, "")
    assert "1 worker; *" in out
    assert "8 workers; *" in out
    assert "Gradients: synthetic:density=0.02" in out
    for text in ("payload", "speed-up", "s2:cells=2,warm=true"):
        assert text in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.slow
def test_without_reducers_many_are_compared(s2sim):
    code, out, _ = s2sim(*COMPARE, "--workers", "4", "--trace", "ncf")
    assert code == 0
    assert "topk:density=0.001 " in out
    assert len(out.splitlines()) < 45


@pytest.mark.slow
def test_what_is_taken_without_an_assumption_is_not_said_twice(s2sim):
    code, out, _ = s2sim(*COMPARE, "--workers", "64", "--trace", "ncf", "--quiet")
    assert code == 0
    assert out.splitlines()[0].count("fp16") <= 1


def test_json_says_what_nothing_beats(s2sim):
    code, out, _ = s2sim(*COMPARE, "--workers", "8", *FEW, "--json", "-")
    value = json.loads(out)
    assert code == 0
    best = {row["reducer"]: (row["best_by_bytes"], row["best_by_time"]) for row in value["results"]}
    assert set(best) == {"dense", "union", "topk:density=0.01", "s2:cells=2,warm=true"}
    # Nothing exact sends less.
    assert best["union"][0]
    assert not best["dense"][0]
    assert any(by_time for _, by_time in best.values())
    assert all(row["payload_bytes_per_rank"] > 0 for row in value["results"])
    assert value["spec"]["trace"] == TRACE[1]


def test_quiet_prints_the_verdict_alone(s2sim):
    code, out, _ = s2sim(*COMPARE, "--workers", "4", *FEW, "--quiet")
    assert code == 0
    assert "; 4 workers, nccl on a100.\n" in out
    assert len(out.splitlines()) == 3


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["svg", pytest.param("png", marks=pytest.mark.slow)])
def test_a_picture_is_written(s2sim, tmp_path, suffix):
    target = tmp_path / f"compare.{suffix}"
    code, _, err = s2sim(*COMPARE, "--workers", "1,8", *FEW, "--png", str(target), "-q")
    assert (code, err) == (0, "")
    assert target.read_bytes().startswith(b"\x89PNG" if suffix == "png" else b"<?xml")


@pytest.mark.slow
def test_ctrl_c_keeps_the_numbers_of_workers_that_are_finished(s2sim, monkeypatch, tmp_path):
    from s2sim.experiment import prediction as workers

    real = workers.record_at_size

    def interrupted(scenario, reducers, gradients, *more, **options):
        if len(gradients) > 1:
            raise KeyboardInterrupt
        return real(scenario, reducers, gradients, *more, **options)

    monkeypatch.setattr(workers, "record_at_size", interrupted)
    code, out, _ = s2sim(*COMPARE, "--workers", "1,8", *FEW)
    assert code == 130
    assert "1 worker; *" in out
    assert "8 workers; *" not in out
    picture, saved = tmp_path / "x.png", tmp_path / "x.json"
    code, out, _ = s2sim(*COMPARE, "--workers", "1,8", *FEW, "--png", str(picture), "--json", str(saved))
    assert code == 130
    assert picture.exists()
    assert {row["workers"] for row in json.loads(saved.read_text())["results"]} == {1}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--png", "x.gif"), "must end in .png, .svg, .pdf"),
        (("--png", "nowhere/x.png"), "there is no directory nowhere"),
        (("--workers", "0"), "at least 1 worker"),
        (("--reducer", "s3"), "s3"),
        (("--trace", "nothing"), "nothing"),
    ],
)
def test_mistakes_are_told_in_one_line(s2sim, options, said):
    code, _, err = s2sim("run", "--topology", "fat-tree", "--show", "pareto", "--workers", "4", *options)
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1
