import dataclasses

from s2sim.report.answer import pareto_grid


def test_stars_stand_beside_what_nothing_beats(result):
    rows = result.rows[:2]
    grid = pareto_grid(rows, frozenset({"topk:density=0.01"}), frozenset({"dense"}))
    titles = [column.title.replace("\n", " ") for column in grid.columns]
    found = {row[0].strip(): dict(zip(titles, row, strict=True)) for row in grid.rows}
    dense, lossy = found["dense"], found["topk:density=0.01"]
    assert grid.title.startswith("4 workers")
    assert (dense["sent a rank"], lossy["sent a rank"]) == ("18.74 MB", "* 18.74 MB")
    assert (dense["time"], lossy["time"]) == ("* 2.015 ms", "2.015 ms")
    assert dense["relative L2 error"] == "exact"


def test_one_rank_alone_has_a_payload(result):
    grid = pareto_grid([dataclasses.replace(row, workers=1) for row in result.rows[:2]], frozenset(), frozenset())
    assert "payload\na rank" in [column.title for column in grid.columns]
    assert "9.517 MB" in grid.rows[0]
