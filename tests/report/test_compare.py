from __future__ import annotations

import dataclasses

from s2sim.report.study_tables import compare_grid


def test_stars_stand_beside_what_nothing_beats(result):
    rows = [dataclasses.replace(row, total_ideal_s=row.time_s.total) for row in result.rows[:2]]
    grid = compare_grid(rows, frozenset({"topk:density=0.01"}), frozenset({"dense"}))
    titles = [column.title.replace("\n", " ") for column in grid.columns]
    dense, lossy = (dict(zip(titles, row, strict=True)) for row in grid.rows)
    assert grid.title.startswith("4 workers")
    assert (dense["sent a rank"], lossy["sent a rank"]) == ("18.74 MB", "* 18.74 MB")
    assert (dense["total, ideal"], lossy["total, ideal"]) == ("* 2.015 ms", "2.015 ms")
    assert dense["total, nccl"] == "2.5 ms"
    assert lossy["bound on most elements"] == "0.0023"
    assert dense["bound on most elements"] == "-"


def test_with_a_real_library_stars_are_by_its_time(result):
    rows = [dataclasses.replace(row, total_real_s=row.time_s.total) for row in result.rows[:2]]
    (dense, _) = compare_grid(rows, frozenset(), frozenset({"dense"})).rows
    assert "* 2.015 ms" in dense
    assert "1.3 ms" in dense


def test_one_rank_alone_has_a_payload(result):
    rows = [dataclasses.replace(row, workers=1) for row in result.rows[:2]]
    grid = compare_grid(rows, frozenset(), frozenset())
    assert "payload\na rank" in [column.title for column in grid.columns]
    assert "9.517 MB" in grid.rows[0]
