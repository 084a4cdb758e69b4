"""Regime maps as tables and pictures, from cells made by hand."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from s2sim.errors import OptionError
from s2sim.regimes.map import Cell, Contender, RegimeMap, RegimeSpec, default_reducers
from s2sim.report.figures import sweeps as regimes_picture
from s2sim.report.figures.sweeps import check_picture_size, draw_regimes
from s2sim.report.grid import width_of
from s2sim.report.study_tables import cell_text, names_line, regime_grids, short_names

TIMES = "\N{MULTIPLICATION SIGN}"
REDUCERS = ("dense", "fp16", "topk:density=0.01", "union", "union:prefetch=true", "owner-reduce")


def make_cell(density, overlap, rate_Bps, latency_s, **totals):
    contenders = [
        Contender(reducer, totals.get(reducer.partition(":")[0].replace("-", "_"), 90_000), 0.0, 1, acceptable=True)
        for reducer in REDUCERS
    ]
    return Cell(density, overlap, rate_Bps, latency_s, tuple(contenders))


@pytest.fixture
def regimes():
    spec = RegimeSpec(
        "fat-tree",
        8,
        densities=(0.01, 0.2),
        overlaps=(0.0, 1.0),
        rates=("10Gbps", "100Gbps"),
        latencies=("1us", "50us"),
        reducers=REDUCERS,
    )
    rows = [
        (d, o, r, t) for d in spec.densities for o in spec.overlaps for r in (1.25e9, 1.25e10) for t in (1e-6, 5e-5)
    ]
    cells = [make_cell(*row, fp16=45_000) for row in rows]
    cells[0] = make_cell(*rows[0], owner_reduce=30_000, fp16=30_100)
    cells[1] = make_cell(*rows[1], dense=80_000)
    return RegimeMap(spec, "a cluster", tuple(cells), {}, "summary", (), {})


def test_names_are_short_but_never_the_same():
    names = short_names([*default_reducers(0.1, prefetch=True), "topk:density=0.1"])
    assert names["s2:error=0.1,warm=true"] == "s2 (warm)"
    assert names["s2-exact"] == "s2-exact"
    assert names["union:prefetch=true"] == "union (prefetch)"
    assert names["topk:density=0.1"] == "topk:density=0.1"
    assert len(set(names.values())) == len(names)
    assert "s2 (warm) is s2:error=0.1,warm=true" in names_line(list(names))
    assert names_line(["dense", "union"]) is None


def test_a_table_for_each_latency_with_winners_ties_and_speedups(regimes):
    grids = regime_grids(regimes)
    assert [grid.title.partition(":")[0] for grid in grids] == ["latency of a NIC 1 us", "latency of a NIC 50 us"]
    assert [column.title for column in grids[0].columns] == ["density,\noverlap", "10 Gbps", "100 Gbps"]
    assert [row[0] for row in grids[0].rows] == ["0.01, 0", "0.01, 1", "0.2, 0", "0.2, 1"]
    assert grids[0].rows[0][1:] == ("owner-reduce ~ fp16 3.00x", "fp16 2.00x")
    assert grids[1].rows[0][1] == "dense 1.00x"
    assert all(row[1:] == ("fp16 2.00x", "fp16 2.00x") for row in grids[1].rows[1:])


def test_a_cell_that_was_not_finished_is_a_dash(regimes):
    assert cell_text(None, {}) == "-"
    assert regime_grids(replace(regimes, cells=regimes.cells[:3]))[1].rows == (("0.01, 0", "dense 1.00x", "-"),)


def test_the_default_map_fits_into_120_columns():
    spec = RegimeSpec("fat-tree", 16)
    slow = [Contender(reducer, 1_000_000, 0.0, 1, acceptable=True) for reducer in spec.reducers]
    slow[7] = replace(slow[7], total_ps=2_000)
    rows = [(d, o, r, 1e-6) for d in spec.densities for o in spec.overlaps for r in (1.25e8, 1.25e9, 1.25e10, 5e10)]
    cells = tuple(Cell(*row, tuple(slow)) for row in rows)
    (grid,) = regime_grids(RegimeMap(spec, "", cells, {}, "", (), {}))
    assert grid.rows[0][1] == "s2-exact (warm) 500x"
    assert width_of(grid, 2) <= 120


def texts(picture):
    """Return the texts of an SVG."""
    return re.findall(r">([^<>\n]+)</text>", picture.decode())


def test_the_picture_shows_every_cell_and_what_colours_mean(regimes):
    picture = draw_regimes(regimes, "svg")
    ET.fromstring(picture)
    shown = texts(picture)
    assert shown.count(f"2.00{TIMES}") == 14
    assert shown.count(f"3.00{TIMES}") == shown.count(f"1.00{TIMES}") == 1
    for text in ("dense", "fp16", "owner-reduce", "latency 50 us", "a cluster", "overlap 0 (each rank its own rows)"):
        assert shown.count(text) == 1, text
    assert "Fastest nowhere: topk:density=0.01, union, union:prefetch=true." in shown
    assert any("Corner: what ties" in text for text in shown)


@pytest.mark.slow
def test_the_picture_is_the_same_every_time_and_has_every_format(regimes):
    for file_format, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        first = draw_regimes(regimes, file_format)
        assert first.startswith(start)
        assert first == draw_regimes(regimes, file_format)


def test_a_map_of_one_cell_and_one_that_was_cut_off_can_be_drawn(regimes):
    for cells in (regimes.cells[:1], regimes.cells[:3]):
        picture = draw_regimes(replace(regimes, cells=cells), "svg")
        assert sum(text.endswith(TIMES) for text in texts(picture)) == len(cells)


def test_reducers_of_one_family_are_told_apart_by_a_hatch(regimes):
    def fills(*winners):
        cells = [
            Cell(0.1, 0.0, rate, 1e-6, (Contender("dense", 900, 0.0, 1, acceptable=True), *found))
            for rate, found in enumerate(
                ([Contender(winner, 100, 0.0, 1, acceptable=True)] for winner in winners), start=1
            )
        ]
        return regimes_picture._cell_styles(replace(regimes, cells=tuple(cells)))

    both = fills("union", "union:prefetch=true", "fp16")
    assert len({(fill.colour, fill.hatch) for fill in both.values()}) == 3
    assert both["union"].colour == both["union:prefetch=true"].colour != both["fp16"].colour
    assert fills("union")["union"] == both["union"]


def test_numbers_can_be_read_on_every_colour():
    assert regimes_picture._CellStyle("#000000", "").ink == "white"
    assert regimes_picture._CellStyle("#F0E442", "").ink == "black"


def test_a_picture_that_nobody_could_read_is_refused():
    check_picture_size(4000)
    with pytest.raises(OptionError, match="4001 cells was asked for: it shows at most 4000"):
        check_picture_size(4001)
