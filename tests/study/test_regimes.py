"""Regime maps against single runs, and against what their cells say."""

import json
import re
from collections import Counter
from dataclasses import replace

import pytest

import s2sim
from s2sim.errors import OptionError, S2SimError, S2SimWarning
from s2sim.experiment.choice import rejected
from s2sim.experiment.progress import INTERRUPTED_NOTE
from s2sim.experiment.scenario.cluster import gpu_corners
from s2sim.reducers.registry import make_reducer
from s2sim.regimes.map import Cell, Contender, RegimeSpec, default_reducers
from s2sim.regimes.run import resolve_regimes, run_regimes, summarise_map
from s2sim.topology.hardware import load_gpu

SMALL = {
    "densities": (0.01, 0.2),
    "overlaps": (0.0, 1.0),
    "rates": ("1Gbps", "100Gbps"),
    "latencies": ("1us", "50us"),
    "rows": 2000,
    "width": 8,
}
REDUCERS = ("dense", "fp16", "topk:density=0.01", "union", "owner-reduce", "s2-exact:warm=true", "s2:rows=3,cells=8")


def small(**changes):
    return RegimeSpec("fat-tree", 8, **({**SMALL, "reducers": REDUCERS} | changes))


@pytest.fixture(scope="module")
def result():
    return run_regimes(small())


def at(result, **where):
    return next(cell for cell in result.cells if all(getattr(cell, key) == value for key, value in where.items()))


@pytest.mark.slow
@pytest.mark.parametrize("library", ["ideal", "nccl"])
def test_a_cell_is_what_one_run_gives(library):
    spec = small(library=library, overrides=("nic.count=2",), seed=3)
    result = run_regimes(spec)
    for density, overlap, rate, latency in ((0.01, 1.0, "1Gbps", "50us"), (0.2, 0.0, "100Gbps", "1us")):
        rate_Bps, latency_s = {"1Gbps": 1.25e8, "100Gbps": 1.25e10}[rate], {"1us": 1e-6, "50us": 5e-5}[latency]
        cell = at(result, density=density, overlap=overlap, rate_Bps=rate_Bps, latency_s=latency_s)
        run = s2sim.run(
            "fat-tree",
            workers=8,
            reducers=REDUCERS,
            trace=f"synthetic:density={density},overlap={overlap},rows=2000,width=8,steps=2",
            overrides=("nic.count=2", f"nic.rate={rate}", f"nic.latency={latency}"),
            # The latencies of a map are a library's too.
            library=library if library == "ideal" else f"{library}:timing=wire",
            seed=3,
            break_even=False,
        )
        rows = {row.option_string: row for row in run.rows}
        assert [each.reducer for each in cell.reducers] == list(rows)
        for each in cell.reducers:
            row = rows[each.reducer]
            assert each.total_s == row.time_s.total
            assert each.bytes_sent_per_rank == row.bytes_sent_per_rank
            assert each.error_relative_l2 == row.error.relative_l2
            assert each.acceptable == (rejected(row, spec.max_error) is None)
        assert cell.speedup_vs_dense == rows[cell.winner].speedup_vs_dense


def test_all_combinations_are_there_in_order(result):
    found = [(cell.density, cell.overlap, cell.rate_Bps, cell.latency_s) for cell in result.cells]
    axes = ((0.01, 0.2), (0.0, 1.0), (1.25e8, 1.25e10), (1e-6, 5e-5))
    assert found == [(d, o, r, t) for d in axes[0] for o in axes[1] for r in axes[2] for t in axes[3]]
    assert result.complete


def test_the_winner_is_the_fastest_whose_error_is_allowed(result):
    cut_off = 0
    for cell in result.cells:
        allowed = [
            each
            for each in cell.reducers
            if make_reducer(each.reducer).traits.lossless or each.error_relative_l2 <= result.spec.max_error
        ]
        assert cell.fastest in allowed
        assert cell.fastest.total_ps == min(each.total_ps for each in allowed)
        assert cell.speedup_vs_dense >= 1
        cut_off += min(each.total_ps for each in cell.reducers) < cell.fastest.total_ps
    # The limit has to matter somewhere, or nothing was tested.
    assert cut_off


def test_more_latency_and_less_rate_take_longer(result):
    for each in REDUCERS:

        def total(rate_Bps, latency_s, reducer=each):
            cell = at(result, density=0.2, overlap=1.0, rate_Bps=rate_Bps, latency_s=latency_s)
            return next(item.total_ps for item in cell.reducers if item.reducer == reducer)

        assert total(1.25e10, 1e-6) < total(1.25e10, 5e-5) < total(1.25e8, 5e-5)


def make_cell(**totals):
    contenders = [Contender(name.replace("_", "-"), total, 0.0, 1, acceptable=True) for name, total in totals.items()]
    return Cell(0.1, 0.5, 1e9, 1e-6, tuple(contenders))


def test_less_than_one_per_cent_is_a_tie():
    cell = make_cell(dense=20_000, union=10_099, owner_reduce=10_000, gather_rows=10_100)
    assert cell.winner == "owner-reduce"
    assert cell.ties == ("union",)
    assert cell.runner_up == "union"
    assert cell.margin == pytest.approx(0.0099)
    assert cell.speedup_vs_dense == 2
    assert cell.compress


def test_dense_wins_what_it_shares_and_nothing_pays_that_gains_less_than_one_per_cent():
    assert make_cell(union=100, dense=100).winner == "dense"
    assert not make_cell(union=10_000, dense=10_050).compress
    assert make_cell(union=10_000, dense=10_100).compress
    alone = make_cell(dense=100)
    assert (alone.runner_up, alone.margin, alone.ties, alone.speedup_vs_dense) == (None, None, (), 1)


def test_a_density_that_nothing_serves_falls_to_dense():
    result = run_regimes(small(densities=(1.0,), overlaps=(1.0,), reducers=("dense", "union", "gather-rows")))
    assert {cell.winner for cell in result.cells} == {"dense"}
    assert "Do not compress in 4 cells" in result.summary


def test_the_summary_counts_the_cells(result):
    counts = re.findall(r"([\w:=,.-]+) (\d+)[,.]", result.summary.partition(": ")[2].partition(". ")[0] + ".")
    won = {name: int(count) for name, count in counts}
    winners = [cell.winner for cell in result.cells]
    assert won == {name: winners.count(name) for name in set(winners)}
    assert sum(won.values()) == len(result.cells) == 16
    assert "too far from the exact mean" in result.summary


def test_wins_range_over_what_estimated_constants_may_be(result):
    """As many as other GPUs give, whose launches and synchronisations take the least and the most."""
    taken = Counter(cell.winner for cell in result.cells)
    assert {name: each.cells for name, each in result.wins.items() if each.cells} == taken
    assert all(each.least <= each.cells <= each.most for each in result.wins.values())
    assert any(each.least < each.most for each in result.wins.values())
    assert (
        "Over what estimated constants may be (kernel launch 2 us to 10 us, host sync 5 us to 50 us): "
        in result.summary
    )
    gpu = load_gpu("a100")
    corners = {(corner.kernel_launch_ps, corner.host_sync_ps) for corner in gpu_corners(gpu)}
    assert corners == {(launch, sync) for launch in (2_000_000, 10_000_000) for sync in (5_000_000, 50_000_000)}
    assert not list(gpu_corners(replace(gpu, quantities=())))


def test_the_summary_says_where_s2_wins_or_how_close_it_comes():
    near, far = make_cell(dense=300, union=100, s2=150), make_cell(dense=300, union=100, s2=200)
    text = summarise_map([far, near], 0.1, {}, {})
    assert "s2 wins nowhere: at best it takes 1.5 times as long as union (density 0.1, " in text
    won = make_cell(dense=300, union=100, s2=50)
    text = summarise_map([far, won], 0.1, {}, {})
    assert "s2 wins 1 cell, where the next takes up to 100% longer (density 0.1, " in text
    assert "s2" not in summarise_map([make_cell(dense=300, union=100)], 0.1, {}, {})


class Interrupting:
    """Presses Ctrl-C after some advances."""

    def __init__(self, advances):
        self.advances = advances

    def start(self, total, _what):
        self.total = total

    def advance(self):
        self.advances -= 1
        if self.advances == 0:
            raise KeyboardInterrupt

    def stop(self):
        pass


def test_ctrl_c_keeps_the_cells_that_are_finished():
    # Two reducers and four networks for each density and overlap: the second of the next four is cut off.
    spec = small(reducers=("dense", "union"))
    result = run_regimes(spec, Interrupting(6 + 2 + 2))
    assert len(result.cells) == 4 + 2
    assert not result.complete
    assert INTERRUPTED_NOTE in result.notes
    assert result.cells == run_regimes(spec).cells[:6]
    assert result.to_json()["complete"] is False
    with pytest.raises(KeyboardInterrupt):
        run_regimes(spec, Interrupting(2))


def test_progress_ends_where_it_said():
    progress = Interrupting(-1)
    run_regimes(small(reducers=("dense", "union")), progress)
    assert progress.total == -1 - progress.advances


@pytest.mark.slow
def test_a_reducer_that_refuses_some_gradients_is_noted():
    result = run_regimes(small(reducers=("dense", "s2:rows=1,error=0.01"), rates=("1Gbps",), latencies=("1us",)))
    assert all([each.reducer for each in cell.reducers] == ["dense"] for cell in result.cells)
    note = next(note for note in result.notes if note.startswith("s2:rows=1,error=0.01 refuses some gradients"))
    assert "more than 4096 cells a value" in note
    assert "density 0.01, overlap 0; density 0.01, overlap 1" in note


def test_the_json_has_every_reducer_of_every_cell(result):
    def refuse(constant):
        raise AssertionError(constant)

    value = json.loads(json.dumps(result.to_json(), allow_nan=False), parse_constant=refuse)
    described = {"schema_version", "spec", "provenance", "cluster", "notes", "summary", "complete"}
    assert described | {"cells", "wins"} == set(value)
    assert value["spec"]["rates"] == ["1Gbps", "100Gbps"]
    assert value["provenance"]["spec_sha256"]
    for cell in value["cells"]:
        reducers = {each["reducer"]: each for each in cell["reducers"]}
        assert set(reducers) == set(REDUCERS)
        assert set(reducers["union"]) == {
            "reducer",
            "total_s",
            "error_relative_l2",
            "bytes_sent_per_rank",
            "acceptable",
        }
        assert cell["speedup_vs_dense"] == pytest.approx(
            reducers["dense"]["total_s"] / reducers[cell["winner"]]["total_s"]
        )
    varied = {"nic.rate", "nic.latency"}
    assert not varied & set(value["provenance"]["inputs"]["topology"]["fields"])


def test_every_default_can_be_made_and_s2_is_sized_for_the_error_that_is_allowed():
    for prefetch in (False, True):
        texts = default_reducers(0.25, prefetch=prefetch)
        assert [item.option_string for item in resolve_regimes(small(reducers=texts)).reducers] == list(texts)
        assert ("union:prefetch=true" in texts) == prefetch
    assert make_reducer(texts[-2]).inner.error == 0.25


def test_a_note_says_what_prefetch_presumes_or_that_it_is_left_out():
    few = {"densities": (0.01,), "overlaps": (1.0,), "rates": ("1Gbps",), "latencies": ("1us",)}
    assert any("--prefetch adds" in note for note in run_regimes(small(**few)).notes)
    prefetched = run_regimes(small(**few, reducers=("dense", "union", "union:prefetch=true")))
    assert any("presumes that the batch tells the rows" in note for note in prefetched.notes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"densities": ()}, "--density was given no value"),
        ({"densities": (0.1, 0.1)}, r"--density: 0\.1 and 0\.1 are the same value"),
        ({"rates": ("1Gbps", "1000Mbps")}, "--rate: 1Gbps and 1000Mbps are the same value"),
        ({"latencies": ("1",)}, "has no unit"),
        ({"densities": (1.5,)}, r"density=1\.5 is not above 0 and at most 1"),
        ({"densities": (float("nan"),)}, "density=nan is not above 0"),
        ({"densities": (1e-5,)}, "less than one row"),
        ({"overlaps": (2.0,)}, r"overlap=2\.0 is not between 0 and 1"),
        ({"tail": "fat"}, "tail=fat is neither gaussian"),
        ({"max_error": 1.0}, "must lie above 0 and below 1"),
        ({"max_error": 0.0}, r"0\.0 must lie above 0 and below 1"),
        ({"reducers": ("union",)}, "dense, which the others are compared with, is missing"),
        ({"reducers": ("dense", "topk", "topk:density=0.01")}, "asked for twice"),
        ({"reducers": ("dense", "onion")}, "did you mean 'union'"),
        ({"overrides": ("nic.rate=10Gbps",)}, "give its values by --rate"),
        ({"overrides": ("nic.latency = 1us",)}, "give its values by --latency"),
        ({"seed": -1}, "must not be negative"),
    ],
)
def test_what_a_spec_refuses(changes, message):
    with pytest.raises(S2SimError, match=message):
        resolve_regimes(small(**changes))


def test_one_worker_and_one_node_are_refused():
    with pytest.raises(OptionError, match="at least 2"):
        RegimeSpec("fat-tree", 1)
    with pytest.raises(OptionError, match="all 4 workers are in one node of fat-tree"):
        run_regimes(RegimeSpec("fat-tree", 4, **SMALL))


def test_interfaces_that_the_map_cannot_vary_are_refused(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        '[node]\ngpus = 1\n[nic]\nrate = "50GiB/s"\n[fabric]\nkind = "single-switch"\n'
        '[[nodes]]\ncount = 2\nnic.rate = "10Gbps"\n[[nodes]]\n'
    )
    with pytest.raises(OptionError, match=r"nic\.rate or nic\.latency of their own"):
        run_regimes(RegimeSpec(str(path), 4, **SMALL))


def test_rates_above_the_cables_are_told():
    spec = small(overrides=("fabric.link.rate=10Gbps",), latencies=("1us",), reducers=("dense",))
    with pytest.warns(S2SimWarning, match="--rate 100Gbps is cut to 10 Gbps by fabric.link.rate"):
        run_regimes(spec)


def test_options_that_act_later_are_told():
    spec = small(reducers=("dense", "s2:margin=1.5"), densities=(0.01,), overlaps=(1.0,))
    with pytest.warns(S2SimWarning, match="margin acts from the second step on"):
        run_regimes(spec)
