import io

import pytest
from rich.console import Console

from s2sim.report.grid import Column, Grid, rich_tables
from s2sim.report.run_tables import collectives_grids, comparison_grids, layers_grids, scaling_grid


def rendered(grid, width):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    for table in rich_tables(grid, width):
        console.print(table)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [45, 60, 79, 80, 100, 120, 132, 200])
def test_no_cell_is_ever_cut(result, width):
    for grid in (*comparison_grids(result), scaling_grid(result)[0], *layers_grids(result), *collectives_grids(result)):
        text = rendered(grid, width)
        assert "…" not in text
        for row in grid.rows:
            assert all(cell in text for cell in row)


@pytest.mark.parametrize("width", [60, 100, 132])
def test_no_line_is_longer_than_the_terminal(result, width):
    for grid in comparison_grids(result):
        assert max(map(len, rendered(grid, width).splitlines())) <= width


def test_the_default_comparison_stays_in_one_piece_at_80_columns(result):
    assert len(rich_tables(comparison_grids(result)[0], 80)) == 1
    assert len(rich_tables(comparison_grids(result)[0], 50)) > 1


def test_markup_and_emoji_names_are_shown_as_they_are():
    grid = Grid("[bold]t[/bold]", (Column("a"), Column("b")), (("[red]x[/red]", ":smile:"),))
    text = rendered(grid, 80)
    assert "[red]x[/red]" in text
    assert ":smile:" in text
    assert "[bold]t[/bold]" in text


def test_figures_stand_at_the_right_and_names_at_the_left():
    grid = Grid("t", (Column("name", numeric=False), Column("figure")), (("a", "1"), ("long name", "100000")))
    assert "a               1" in rendered(grid, 80)
