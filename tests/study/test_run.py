"""Whole experiments in Python: rows against each other and against what they are made of."""

import dataclasses
import json
import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

import s2sim
from s2sim.errors import OptionError, S2SimError, S2SimWarning
from s2sim.experiment.break_even import HIGHEST_BPS, LOWEST_BPS, find_crossings, pays, search_loads
from s2sim.experiment.lower_bounds import stages
from s2sim.experiment.progress import ProgressWatcher
from s2sim.experiment.scenario.reducers import resolve_run
from s2sim.experiment.spec import FOR_BOTH, FOR_DENSE_LAYERS, FOR_TABLES, RunSpec

SMALL = "synthetic:density=0.02,overlap=0.5,rows=2000,width=16"


@pytest.fixture(scope="module")
def result():
    return s2sim.run("fat-tree", workers=8)


@pytest.fixture(scope="module")
def rows(result):
    return {row.option_string: row for row in result.rows}


def test_the_default_comparison(result, rows):
    assert tuple(rows) == FOR_TABLES
    assert result.spec.trace == "lstm-lm"
    assert result.cluster.startswith("fat-tree: 2 nodes x 4 GPUs")


def test_lossless_reducers_are_exact_and_lossy_ones_are_not(rows):
    for text, row in rows.items():
        # With cells of 32 bits an exact sketch rounds to units of its own, so that it counts as lossy.
        assert (row.error.relative_l2 <= 1e-6) == (row.lossless or row.name == "s2-exact"), text
    assert rows["fp16"].error.relative_l2 < 1e-3
    assert rows["fp16"].error.cosine > 0.999


def test_no_time_is_under_its_bound(rows):
    for row in rows.values():
        assert row.time_s.communication >= row.lower_bound_s > 0


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["a100", "rtx-2080"])
@pytest.mark.parametrize("topology", ["fat-tree", "single-switch"])
def test_no_time_is_under_its_bound_without_latency_either(topology, gpu):
    overrides = ["nic.latency=0s", "fabric.link.latency=0s"]
    reducers = [*FOR_TABLES, "s2:preset=authors-lstm", "union:bitmap=byte", "s2:layers=all,rows=1,cells=4"]
    options = {"reducers": reducers, "overrides": tuple(overrides), "gpu": gpu, "break_even": False}
    for row in s2sim.run(topology, workers=16, **options).rows:
        assert row.time_s.communication >= row.lower_bound_s > 0
        assert row.time_s.total == pytest.approx(
            row.time_s.encode + row.time_s.communication + row.time_s.decode, abs=1e-12
        )


def test_break_even_stops_where_faster_interfaces_change_nothing():
    result = s2sim.run("fat-tree", workers=8, trace=SMALL, reducers=["fp16"], overrides=("fabric.link.rate=10Gbps",))
    assert "10 Mbps to 10 Gbps" in result.verdict.text


def test_times_add_up(rows):
    for row in rows.values():
        assert row.time_s.total == pytest.approx(
            row.time_s.encode + row.time_s.communication + row.time_s.decode, abs=1e-12
        )
        assert row.speedup_vs_dense == pytest.approx(rows["dense"].time_s.total / row.time_s.total)


def test_bytes_and_ratio(rows):
    dense = rows["dense"]
    assert dense.ratio == 1
    assert rows["fp16"].ratio == pytest.approx(2, rel=1e-5)
    elements = dense.collectives[0].bytes // 4
    assert dense.bytes_sent_per_rank == pytest.approx(2 * 7 / 8 * 4 * elements, rel=1e-5)
    kept = int(elements * 0.01)
    assert rows["topk:density=0.01"].bytes_sent_per_rank == 7 * 8 * kept
    for row in rows.values():
        assert row.ratio == pytest.approx(dense.bytes_sent_per_rank / row.bytes_sent_per_rank)


def test_a_reducer_with_an_error_above_one_never_wins():
    result = s2sim.run("fat-tree", workers=8, reducers=["s2:preset=authors-gnmt"])
    dense, authors = result.rows
    assert authors.error.relative_l2 > 1
    assert authors.time_s.total < dense.time_s.total
    assert (result.verdict.best, result.verdict.best_lossy) == ("dense", None)
    assert result.verdict.pays["s2:preset=authors-gnmt"] == "pays at no nic.rate: worse than zeros"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"trace": "lstm-lm"}, FOR_TABLES),
        ({"trace": "cnn"}, FOR_DENSE_LAYERS),
        ({"model": "gnmt-8"}, FOR_BOTH),
        ({"profile": "resnet-50"}, FOR_DENSE_LAYERS),
    ],
)
def test_by_default_reducers_suit_the_gradients(options, expected):
    scenario = resolve_run(RunSpec("fat-tree", (4,), **options))
    assert tuple(item.option_string for item in scenario.reducers) == expected


@pytest.mark.parametrize("limit", [1e-6, 1e-2, 0.5])
def test_the_error_limit_keeps_lossy_reducers_honest(limit):
    result = s2sim.run("fat-tree", workers=4, trace=SMALL, reducers=["fp16", "topk", "union", "s2"], max_error=limit)
    allowed = [row for row in result.rows if not row.lossless and row.error.relative_l2 <= limit]
    exact = min(row.time_s.total for row in result.rows if row.lossless)
    gaining = [row for row in allowed if row.time_s.total * 1.01 <= exact]
    chosen = next((row for row in allowed if row.option_string == result.verdict.best_lossy), None)
    assert (chosen is None) == (not gaining)
    if chosen is not None:
        assert chosen.time_s.total <= 1.01 * min(row.time_s.total for row in gaining)


@pytest.mark.slow
def test_break_even_is_where_a_new_run_says_so():
    crossings = s2sim.run("dgx-a100", workers=16).verdict.break_even
    assert crossings
    for crossing in crossings[:2]:
        gains = []
        for factor in (0.97, 1.03):
            override = f"{crossing.field}={crossing.at_Bps * factor!r}B/s"
            again = s2sim.run(
                "dgx-a100", workers=16, reducers=[crossing.reducer], overrides=(override,), break_even=False
            )
            gains.append(again.rows[1].speedup_vs_dense)
        assert (gains[0] > 1 > gains[1]) if crossing.pays == "below" else (gains[0] < 1 < gains[1])


def test_all_crossings_of_a_known_curve_are_found():
    """Dense takes 1e12 / rate + 1e6 ps; the other pays between two rates by construction."""

    def times_at(rate):
        dense = 1e18 / rate + 1e6
        return dense, dense - 1e5 * (np.log10(rate) - 8.2) * (10.1 - np.log10(rate))

    known = search_loads(lambda load: times_at(1 / load), 1 / HIGHEST_BPS, 1 / LOWEST_BPS)
    crossings = find_crossings("x", "nic.rate", times_at, [1 / load for load in reversed(known)])
    assert [crossing.pays for crossing in crossings] == ["above", "below"]
    assert [np.log10(crossing.at_Bps) for crossing in crossings] == pytest.approx([8.2, 10.1], abs=1e-3)
    assert not pays(known[1 / LOWEST_BPS])
    assert not pays(known[1 / HIGHEST_BPS])


@pytest.mark.parametrize("seed", range(20))
def test_what_is_not_replayed_follows_from_what_is(seed):
    """Times as of links that take turns at being the slowest: between searched loads nothing changes twice."""
    generator = np.random.default_rng(seed)

    def drawn():
        latency, size, other, fixed = 10.0 ** generator.uniform((5, -6, -6, 5), (8, -2, -2, 8))
        return lambda load: latency + max(size * load, fixed, other * load / (1 + load / 1e10))

    dense, own = drawn(), drawn()
    searched = []

    def times_at(load):
        searched.append(load)
        return dense(load), own(load)

    known = search_loads(times_at, 1e6, 1e12)
    assert len(searched) == len(set(searched)) <= 56
    for (low, first), (high, last) in pairwise(known.items()):
        if pays(first) == pays(last):
            between = np.geomspace(low, high, 50)
            assert {pays((dense(load), own(load))) for load in between} == {pays(first)} or high < 1.31 * low
        else:
            assert high < 1.31 * low
    searched.clear()
    search_loads(lambda load: searched.append(load) or (1e12, own(load)), 1e6, 1e8)
    assert len(searched) <= 3


@pytest.mark.parametrize("seed", range(20))
def test_what_is_chosen_otherwise_is_searched_from_both_sides(seed):
    """Dense takes up to four times as long from a drawn load on, or up to another one."""
    generator = np.random.default_rng(seed)
    first, last = sorted(10.0 ** generator.uniform(6, 12, 2))
    slow, gain = generator.uniform(1, 4), generator.uniform(0.8, 2)

    def choice(load):
        return first <= load < last

    def times_at(load):
        dense = (slow if choice(load) else 1.0) * (1e6 + load)
        return dense, (1e6 + load) * gain

    known = search_loads(times_at, 1e6, 1e12, choice_at=choice)
    for (low, at_low), (high, _) in pairwise(known.items()):
        if choice(low) != choice(high):
            assert high < 1.31 * low
        elif high > 1.31 * low:
            between = [load for load in np.geomspace(low, high, 50) if choice(load) == choice(low)]
            assert {pays(times_at(load)) for load in between} == {pays(at_low)}


@pytest.mark.slow
def test_same_spec_same_answer(result):
    again = s2sim.run(spec=result.spec)
    assert again.to_json()["results"] == result.to_json()["results"]
    assert again.to_json()["verdict"] == result.to_json()["verdict"]


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_same_answer_in_another_process(result, hash_seed):
    program = "import json, s2sim; print(json.dumps(s2sim.run('fat-tree', workers=8).to_json()))"
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    printed = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True).stdout
    again = json.loads(printed)
    expected = json.loads(json.dumps(result.to_json()))
    assert again["results"] == expected["results"]
    assert again["verdict"] == expected["verdict"]


@pytest.mark.slow
def test_the_order_of_reducers_does_not_matter(rows):
    turned = s2sim.run("fat-tree", workers=8, reducers=FOR_TABLES[::-1], break_even=False)
    for row in turned.rows:
        assert row == dataclasses.replace(rows[row.option_string])


def test_a_result_is_strict_json_with_the_promised_keys(result):
    value = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert {"spec", "provenance", "results", "verdict"} <= value.keys()
    promised = {
        "reducer",
        "options",
        "collectives",
        "workers",
        "time_s",
        "bytes_sent_per_rank",
        "bytes_received_per_rank",
        "ratio",
        "error",
        "error_compressed",
        "lower_bound_s",
        "speedup_vs_dense",
        "lowering",
        "extrapolated",
    }
    for row in value["results"]:
        assert promised <= row.keys()
        assert row["time_s"].keys() == {"encode", "communication", "decode", "total", "iteration"}
        assert row["error"].keys() == row["error_compressed"].keys() == {"relative_l2", "cosine"}
        assert all({"kind", "algorithm", "bytes", "time_s"} <= item.keys() for item in row["collectives"])
        assert row["extrapolated"] is None
    assert {"text", "best_exact", "best_lossy", "break_even", "bottleneck"} <= value["verdict"].keys()
    for crossing in value["verdict"]["break_even"]:
        assert crossing.keys() == {"reducer", "field", "pays", "at_Bps"}


def test_every_number_that_went_in_has_an_origin(result):
    inputs = result.provenance["inputs"]
    choices = {"name", "description", "source", "routing", "fabric.kind"}
    for part in ("topology", "gpu"):
        numbers = {name: item for name, item in inputs[part]["fields"].items() if name not in choices}
        assert numbers
        assert all(number["kind"] and number["source"] for number in numbers.values())
        assert len(inputs[part]["sha256"]) == 64
    assert inputs["trace"]["kind"] == "recorded"
    assert result.provenance["spec_sha256"]


@pytest.mark.parametrize("workers", [1, 2, 3, 7, pytest.param(64, marks=pytest.mark.slow)])
def test_any_number_of_workers(workers):
    result = s2sim.run("leaf-spine", workers=workers, trace=SMALL, break_even=workers == 1)
    for row in result.rows:
        assert row.time_s.communication >= row.lower_bound_s
        assert (row.bytes_sent_per_rank > 0) == (workers > 1)
    if workers == 1:
        assert result.verdict.decision == "do not compress"
        assert result.verdict.best == "dense"
        assert result.verdict.break_even == ()


def test_inside_one_node_the_break_even_is_over_the_link_there():
    result = s2sim.run("fat-tree", workers=4, trace=SMALL, reducers=["union"])
    assert "nvlink.rate" in result.verdict.text


def test_several_worker_counts_and_compute():
    result = s2sim.run("fat-tree", workers=[2, 8], trace=SMALL, reducers=["union"], compute="3ms")
    assert [(row.workers, row.option_string) for row in result.rows] == [
        (2, "dense"),
        (2, "union"),
        (8, "dense"),
        (8, "union"),
    ]
    for dense, union in zip(result.rows[::2], result.rows[1::2], strict=True):
        assert union.iteration_s == pytest.approx(3e-3 + union.time_s.total)
        assert union.speedup_vs_dense == pytest.approx(dense.iteration_s / union.iteration_s)
    assert [verdict.workers for verdict in result.verdicts] == [2, 8]
    assert result.verdict is result.verdicts[1]


@pytest.mark.slow
def test_an_algorithm_that_is_asked_for_runs_and_counts_its_own_bytes():
    tree = s2sim.run("fat-tree", workers=8, trace=SMALL, reducers=["fp16"], collective="double-binary-tree").rows[0]
    ring = s2sim.run("fat-tree", workers=8, trace=SMALL, reducers=["fp16"], collective="ring").rows[0]
    assert tree.collectives[0].algorithm.startswith("double-binary-tree")
    assert ring.collectives[0].algorithm == "ring"
    assert tree.bytes_sent_per_rank != ring.bytes_sent_per_rank


def test_an_algorithm_that_cannot_run_a_kind_is_replaced_with_a_note():
    result = s2sim.run("fat-tree", workers=8, trace=SMALL, reducers=["topk"], collective="double-binary-tree")
    assert result.rows[1].collectives[0].algorithm == "ring"
    assert "double-binary-tree does not run all_gather: the fastest that does ran instead" in result.notes


class Interrupting:
    """Presses Ctrl-C at the n-th advance of a phase."""

    def __init__(self, phase, advances):
        self.phase, self.advances = phase, advances

    def start(self, total, what):
        assert total > 0
        self.running = what

    def advance(self):
        if self.phase in self.running:
            self.advances -= 1
            if self.advances == 0:
                raise KeyboardInterrupt

    def stop(self):
        pass


class Listening(ProgressWatcher):
    """Keeps the results that it is told."""

    def __init__(self):
        self.told = []

    def tell(self, line):
        self.told.append(line)


def test_rows_are_told_as_they_are_finished():
    listening = Listening()
    spec = RunSpec("fat-tree", workers=(2, 4), trace=SMALL, reducers=("fp16",))
    result = s2sim.run(spec=spec, progress=listening, break_even=False)
    assert [line.partition(":")[0] for line in listening.told] == [
        f"{row.workers} workers, {row.reducer}" for row in result.rows
    ]


def test_every_search_is_a_phase_that_is_watched():
    class Naming(ProgressWatcher):
        def __init__(self):
            self.phases = []

        def start(self, total, what):
            self.phases.append(what)

    naming = Naming()
    s2sim.run("tcp-10g", workers=2, profile="resnet-18", reducers=["fp16"], progress=naming)
    assert naming.phases[-2:] == ["looking for break-even over pcie.rate", "looking for break-even over mini-batches"]


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished():
    def interrupted(phase, advances):
        spec = RunSpec("fat-tree", workers=(2, 8), trace=SMALL, reducers=("union",))
        return s2sim.run(spec=spec, progress=Interrupting(phase, advances))

    result = interrupted("break-even", 1)
    assert [row.workers for row in result.rows] == [2, 2, 8, 8]
    assert result.verdict.break_even == ()
    assert any("interrupted" in note for note in result.notes)
    # 2 ranks and 2 reducers are one count; the next advance is in the middle of the second.
    result = interrupted("reducers", 2 + 2 + 3)
    assert [row.workers for row in result.rows] == [2, 2]
    assert result.verdict.workers == 2
    with pytest.raises(KeyboardInterrupt):
        interrupted("reducers", 3)


@pytest.mark.slow
def test_the_real_library_is_that_of_a_run_with_it():
    reducers = ("union", "owner-reduce", "gather-rows", "s2-exact:warm=true", "s2:rows=3,cells=2")
    ideal, nccl, wire = (
        s2sim.run("fat-tree", workers=8, trace=SMALL, reducers=reducers, library=text, break_even=False).rows
        for text in ("ideal", "nccl", "nccl:timing=wire")
    )
    for one, other, bare in zip(ideal, nccl, wire, strict=True):
        assert one.real_library == other.real_library == "nccl"
        assert one.total_real_s == other.time_s.total == other.total_real_s
        assert one.total_ideal_s == one.time_s.total == bare.total_ideal_s <= other.total_ideal_s
        assert one.bytes_sent_real_per_rank == other.bytes_sent_per_rank
        assert one.host_syncs == one.host_syncs_ideal == other.host_syncs_ideal
        assert one.host_syncs_real == other.host_syncs == other.host_syncs_real
        assert other.time_s.communication >= other.lower_bound_s
    # Each exchange of sizes is read by the host.
    syncs = {row.option_string: (row.host_syncs_ideal, row.host_syncs_real) for row in ideal}
    assert syncs["owner-reduce"] == (2, 4)
    assert syncs["gather-rows"] == (1, 2)
    assert syncs["union"] == (1, 1)
    assert (ideal[1].rounds, ideal[1].rounds_before_gradient) == (2, 0)


def test_rows_hold_what_is_known_of_their_errors():
    rows = s2sim.run(
        "fat-tree", workers=8, trace=SMALL, reducers=["s2:rows=1,cells=2", "s2-exact", "union"], break_even=False
    ).rows
    bounds = {row.option_string: row.error_bound for row in rows}
    assert bounds["dense"] is bounds["union"] is None
    assert bounds["s2-exact"].share == bounds["s2-exact"].share_found == 1
    assert rows[2].error_compressed_largest <= bounds["s2-exact"].element
    sketch = bounds["s2:rows=1,cells=2"]
    assert 2 / 3 < sketch.share_found <= 1
    assert rows[1].error_compressed.relative_l2 == pytest.approx(sketch.relative_l2, rel=0.1)
    assert rows[1].to_json()["error_bound"]["element"] == sketch.element


@pytest.mark.slow
def test_notes_say_what_is_carried_over_from_where_and_by_what_layers_are_sent():
    def notes(trace, **options):
        reducers = ("union", "owner-reduce", "s2:cells=2", "s2-exact:warm=true")
        found = s2sim.run("fat-tree", workers=2, trace=trace, reducers=reducers, break_even=False, **options)
        return " ".join(found.notes)

    one, two, scaled = notes(SMALL), notes(f"{SMALL},steps=2"), notes(f"{SMALL},steps=2", scale_to="1M")
    assert "s2-exact:warm=true: a later step, whose sizes, units or matrices are those of the same" in one
    assert "are those of the trace's second step" in two
    assert "are those of the same" in scaled
    assert "row, with a bit of a bitmap for each (union, s2-exact:warm=true)" in one
    assert "row number (owner-reduce)" in one
    assert "element, with a bit of a bitmap for each row (s2:cells=2)" in one


def test_dense_always_runs_and_nothing_runs_twice():
    assert [row.option_string for row in s2sim.run("ring", workers=2, trace=SMALL, reducers=["union"]).rows] == [
        "dense",
        "union",
    ]
    with pytest.raises(OptionError, match=r"asked for twice: topk and topk:density=0\.01"):
        s2sim.run("ring", workers=2, trace=SMALL, reducers=["topk", "topk:density=0.01"])


def test_stages_are_what_waits_for_what():
    from s2sim.experiment.record import record
    from s2sim.experiment.scenario.reducers import ReducerSpec
    from s2sim.gradients.synthetic import load_trace
    from s2sim.reducers.registry import make_reducer

    gradients = [load_trace("lstm-lm", workers=2).gradient(0, rank) for rank in range(2)]
    ((recorded,), _) = record([ReducerSpec("union", make_reducer("union"))], gradients, seed=0)
    calls = recorded.recording.calls
    assert [[calls[number].label for number in group] for group in stages(recorded.recording.scripts[0])] == [
        ["support"],
        ["values", "dense layers"],
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "0 workers"),
        ({"workers": [4, 4]}, "stands twice"),
        ({"workers": 2, "topology": "fat-tre"}, "did you mean 'fat-tree'"),
        ({"workers": 2, "trace": "lstm"}, "did you mean 'lstm-lm'"),
        ({"workers": 2, "gpu": "a100x"}, "did you mean 'a100'"),
        ({"workers": 2, "reducers": ["unoin"]}, "did you mean 'union'"),
        ({"workers": 2, "reducers": ["s2:row=3"]}, "did you mean 'rows'"),
        ({"workers": 2, "collective": "rng"}, "did you mean 'ring'"),
        ({"workers": 2, "placement": "lineal"}, "did you mean 'linear'"),
        ({"workers": 2, "compute": "120"}, "has no unit"),
        ({"workers": 2, "max_error": -1.0}, "at least 0 and below 1"),
        ({"workers": 2, "overrides": ("nic.rat=1Gbps",)}, "did you mean 'nic.rate'"),
        ({"workers": 2, "overrides": ("nic.rate=1",)}, "unit"),
        ({"workers": 2, "colour": "red"}, "colour"),
    ],
)
def test_mistakes_are_told_in_one_line(options, message):
    options = {"topology": "fat-tree", "trace": SMALL} | options
    with pytest.raises(S2SimError, match=message) as caught:
        s2sim.run(options.pop("topology"), **options)
    assert "\n" not in str(caught.value)


def test_specs_round_trip_and_wrong_ones_are_refused(tmp_path, result):
    assert RunSpec.from_json(json.loads(json.dumps(result.spec.to_json())), "x") == result.spec
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result.to_json()))
    assert RunSpec.load(path) == result.spec
    with pytest.raises(S2SimError, match="workers: Field required"):
        RunSpec.from_json({"topology": "ring"}, "x")
    with pytest.raises(S2SimError, match="wokers"):
        RunSpec.from_json({"topology": "ring", "workers": [2], "wokers": 3}, "x")
    path.write_text("{")
    with pytest.raises(S2SimError, match="is not JSON"):
        RunSpec.load(path)
    with pytest.raises(S2SimError, match="cannot read"):
        RunSpec.load(tmp_path / "missing.json")


def test_a_spec_needs_workers():
    with pytest.raises(OptionError, match="no number of workers"):
        RunSpec(topology="ring", workers=())


@pytest.mark.parametrize(
    ("override", "workers", "reason"),
    [("nic.rate=1Gbps", 2, "one node"), ("routing=spray", 4, "one node"), ("fabric.link.rate=1Gbps", 3, "one node")],
)
def test_overrides_that_change_nothing_are_told(override, workers, reason):
    with pytest.warns(S2SimWarning, match=rf"^{override} changes nothing here.*{reason}"):
        s2sim.run("fat-tree", workers=workers, trace=SMALL, reducers=["union"], overrides=(override,))
    with pytest.warns(S2SimWarning, match="changes nothing here"):
        s2sim.run_collective("all_reduce", "fat-tree", workers=workers, size_bytes=100, overrides=[override])


def test_options_for_later_steps_are_told():
    with pytest.warns(S2SimWarning, match="margin acts from the second step on"):
        s2sim.run("fat-tree", workers=2, trace=SMALL, reducers=["s2:margin=2"])


def test_a_reducer_that_cannot_take_the_gradients_is_named(tmp_path):
    from s2sim.gradients.import_trace import import_trace

    for rank in range(2):
        np.save(tmp_path / f"{rank}.npy", np.full((4, 2), 3e38 if rank else 1.0, np.float32))
    import_trace([tmp_path / "0.npy", tmp_path / "1.npy"], tmp_path / "huge")
    with pytest.raises(S2SimError, match=r"fp16 cannot take these gradients.*leave it out"):
        s2sim.run("fat-tree", workers=2, trace=str(tmp_path / "huge"), reducers=["fp16"])


@pytest.mark.parametrize("wrong", [{"workers": 2.5}, {"workers": "x"}, {"workers": True}, {"seed": 1.5}])
def test_wrong_types_are_told(wrong):
    with pytest.raises(OptionError, match="valid integer"):
        s2sim.run("fat-tree", **({"workers": 2, "trace": SMALL} | wrong))


def test_one_reducer_may_stand_without_a_list():
    result = s2sim.run("fat-tree", workers=2, trace=SMALL, reducers="union")
    assert [row.option_string for row in result.rows] == ["dense", "union"]


def test_s2_without_its_honest_rivals_is_told():
    def fair(*reducers):
        notes = s2sim.run("fat-tree", workers=2, trace=SMALL, reducers=reducers, break_even=False).notes
        return [note for note in notes if "makes it fair" in note]

    (note,) = fair("s2:cells=2", "union")
    assert "--reducer owner-reduce --reducer gather-rows makes it fair" in note
    assert fair("s2-exact:warm=true", "union:prefetch=true", "owner-reduce", "gather-rows") == []
    assert fair("topk") == []
