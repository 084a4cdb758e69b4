import dataclasses

from s2sim.experiment.row_parts import StepRow
from s2sim.report import run_tables as rows
from s2sim.report.run_tables import scaling_grid
from s2sim.report.traffic_tables import links_grid
from s2sim.traffic.networks import FlowShare, LinkLoad


def plain(title):
    return title.replace("-\n", "").replace("\n", " ")


def column(grid, title):
    index = [plain(item.title) for item in grid.columns].index(title)
    return [row[index] for row in grid.rows]


def test_comparison_has_a_table_per_number_of_workers(result):
    four, eight = rows.comparison_grids(result)
    assert four.title.startswith("4 workers")
    assert eight.title.startswith("8 workers")
    assert column(four, "reducer") == ["dense", "topk:density=0.01"]


def test_comparison_shows_every_figure_with_its_unit(result):
    grid = rows.comparison_grids(result)[0]
    shown = {plain(item.title): cell for item, cell in zip(grid.columns, grid.rows[1], strict=True)}
    assert shown == {
        "reducer": "topk:density=0.01",
        "encode": "15 us",
        "communication": "2 ms",
        "decode": "hidden",
        "total": "2.015 ms",
        "lower bound": "1.5 ms",
    }


def test_undefined_figures_are_shown_as_such(result):
    assert column(rows.mechanics_grids(result)[1], "bytes ratio") == ["1.00x", "-"]
    (errors,) = (grid for grid in rows.errors_grids(result) if grid.title.startswith("8 workers"))
    assert column(errors, "reducer") == ["topk:density=0.01"]
    assert column(errors, "cosine") == ["-"]
    assert column(errors, "of compressed") == ["-"]


def test_errors_are_of_what_is_not_exact(result):
    four, _ = rows.errors_grids(result)
    assert four.rows == (("topk:density=0.01", "0.8765", "0.543", "-", "encoder.weight 0.543"),)


def test_bounds_are_of_what_has_some(result):
    four = rows.bounds_grids(result)[0]
    assert four.rows == (("topk:density=0.01", "-", "0.0023", "74.07%, 99.99%", "0.82"),)


def test_scaling_has_reducers_as_rows_and_workers_as_columns(result):
    grid, below = scaling_grid(result)
    assert grid.title == "scaling: time of communication, speed-up over dense"
    assert [item.title for item in grid.columns] == ["reducer", "4 workers", "8 workers"]
    assert grid.rows == (
        ("dense", "*2.015 ms, 1.00x", "*2.015 ms, 1.00x"),
        ("topk:density=0.01", "2.015 ms, 1.00x", "2.015 ms, 1.00x"),
    )
    assert (grid.faint, below) == (frozenset(), [])


def test_scaling_is_of_what_verdicts_are_about_and_says_what_can_win_with_no_number_of_workers(result):
    def with_steps(row):
        step = StepRow(0, 0.5, 0.1, 0.25, 1.5e-3, 1000)
        judgement = dataclasses.replace(row.judgement, time_s=1.5e-3, speedup=2.0, rejected="residuals diverge")
        return row if row.reducer == "dense" else dataclasses.replace(row, steps=(step,), judgement=judgement)

    grid, below = scaling_grid(dataclasses.replace(result, results=tuple(map(with_steps, result.rows))))
    assert grid.title == "scaling: time of communication, median step, speed-up over dense"
    # The fastest stands first, whether it can win or not.
    assert grid.rows[0] == ("topk:density=0.01", "1.5 ms, 2.00x", "1.5 ms, 2.00x")
    assert (grid.faint, below) == (frozenset({0}), ["Residuals diverge: topk:density=0.01."])


def test_collectives_are_listed_for_every_reducer_and_number_of_workers(result):
    four, eight = rows.collectives_grids(result)
    expected = ("topk:density=0.01: gradient", "all_reduce", "9.517 MB", "2 ms", "no", "ring", "fastest")
    assert four.rows[1] == expected
    assert len(eight.rows) == 2


def test_lowering_has_the_ideal_beside_what_is_executed(result):
    four, eight = rows.lowering_grids(result)
    assert four.title.startswith("lowering by nccl, 4 workers")
    assert len(four.rows) == len(eight.rows) == 4
    assert four.rows[2] == (
        "topk:density=0.01: gradient",
        "all_reduce sum float32",
        "as asked",
        "18 B",
        "18 B",
        "2 ms",
        "2 ms",
        "0 s",
    )
    assert four.rows[3] == (
        "topk:density=0.01: bits",
        "all_reduce or uint8",
        "all_reduce max uint8",
        "1 kB",
        "8 kB",
        "10 us",
        "40 us",
        "30 us",
    )


def test_layers_have_a_column_per_reducer(result):
    grid = rows.layers_grids(result)[0]
    assert [item.title for item in grid.columns] == ["layer", "dense", "topk:density=0.01"]
    assert grid.rows == (("encoder.weight", "0 (1.0000)", "0.543 (0.8765)"), ("<bias>", "- (-)", "- (-)"))


def test_busiest_links():
    grid = links_grid([LinkLoad("node0.nic0.out", 206438400.0, 0.9632, 1, (FlowShare(3, 4, 206438400.0),))])
    assert grid.rows == (("node0.nic0.out", "206.4 MB", "96.3%", "1", "3 to 4"),)


def test_mechanics_show_rounds_and_a_real_library(result):
    first, second = rows.mechanics_grids(result)
    assert [item.title.replace("\n", " ") for item in first.columns][1:] == [
        "bytes ratio",
        "rounds",
        "host syncs, ideal, nccl",
        "total, ideal",
        "total, nccl",
        "sent, nccl",
    ]
    assert first.rows[0] == ("dense", "1.00x", "2", "1, 2", "1.3 ms", "2.5 ms", "20 MB")
    assert len(second.rows) == 2


def test_rounds_before_the_gradient_are_told_apart(result):
    early = dataclasses.replace(result.rows[0], rounds=1, rounds_before_gradient=1)
    (grid, _) = rows.mechanics_grids(dataclasses.replace(result, results=(early, *result.rows[1:])))
    assert column(grid, "rounds")[0] == "1+1"


def test_steps_are_shown_for_those_that_have_them(result):
    steps = tuple(StepRow(step, 0.5 / (step + 1), 0.1, 0.25 * step, 1e-3 * (step + 1), 1000) for step in range(20))
    spec = dataclasses.replace(result.spec, steps=20)
    followed = dataclasses.replace(result.rows[1], steps=steps, residual_trend="still grows")
    exact = dataclasses.replace(result.rows[0], steps=tuple(dataclasses.replace(step, residual=None) for step in steps))
    shown = dataclasses.replace(result, spec=spec, results=(exact, followed, *result.rows[2:]))
    (residuals,) = rows.residual_grids(shown)
    assert residuals.rows == (
        ("topk:density=0.01", "0", "0.5", "1.25", "1.75", "2.5", "3", "3.5", "4.25", "4.75", "still grows"),
    )
    (first,) = rows.steps_grids(shown)
    assert first.rows[1] == ("topk:density=0.01", "0.5", "0.025", "0.1", "1 ms", "20 ms", "1 kB", "1 kB")
