"""Bands: quantiles of what others were off by, wider where less is alike, and blind to a source that is left out."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import pytest

import s2sim
from s2sim.cli.main import main
from s2sim.collectives.schedules.demand import make_demand
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimError
from s2sim.experiment.choice import Candidate, choose
from s2sim.experiment.prediction import choice_factors
from s2sim.experiment.robustness import IntervalRobustness, interval_robustness
from s2sim.libraries.nccl import NcclProfile
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape
from s2sim.uncertainty import interval as module
from s2sim.uncertainty.interval import (
    VERSION,
    Band,
    CurveErrorSamples,
    PredictionErrors,
    RunClass,
    error_model_path,
    format_interval,
    run_class,
    shipped_error_model,
)
from s2sim.validation.curve import read_folder, resolve_curves_folder
from s2sim.validation.curve_files import error_samples, fit_curves, replace_values
from s2sim.validation.curve_result import Parameter
from s2sim.validation.validate_curves import is_fit_for_calibration

HERE = RunClass("h100", "ib-verbs", "all_reduce", "gpu")
SIZE = 2**20


def curve(source, errors, run=HERE, size_bytes=SIZE, doubtful=False):
    return CurveErrorSamples(f"{source} curve", source, run[:4], (size_bytes,) * len(errors), tuple(errors), doubtful)


def bands_of(*curves):
    return PredictionErrors(VERSION, "a test", "", curves)


def test_a_band_reaches_over_nine_tenths_of_the_errors():
    errors = np.linspace(-1, 1, 2001)
    low, high = bands_of(curve("a", errors)).around(HERE, SIZE)
    assert (math.log(low), math.log(high)) == (pytest.approx(-0.92, abs=0.002), pytest.approx(0.92, abs=0.002))


def test_what_was_predicted_is_never_outside():
    low, high = bands_of(curve("a", [0.5, 0.6, 0.7])).around(HERE, SIZE)
    assert low == 1
    assert high > math.exp(0.6)


def test_a_source_has_one_voice_however_many_points_it_has():
    three = [curve("b", [-0.1]), curve("c", [0.0])]
    many = bands_of(curve("a", [0.1] * 1000), *three).around(HERE, SIZE)
    few = bands_of(curve("a", [0.1] * 10), *three).around(HERE, SIZE)
    assert many == pytest.approx(few, rel=1e-2)


def test_what_is_alike_counts_more():
    other = HERE._replace(network="tcp", gpu="v100")
    bands = bands_of(curve("a", np.linspace(-0.1, 0.1, 101)), curve("b", np.linspace(-1, 1, 101), other))
    near, far = bands.around(HERE, SIZE), bands.around(other, SIZE)
    assert near[1] < far[1]
    assert near[0] > far[0]


def test_sizes_far_away_count_less():
    bands = bands_of(curve("a", np.linspace(-0.1, 0.1, 101)), curve("b", np.linspace(-1, 1, 101), size_bytes=8))
    assert bands.around(HERE, SIZE)[1] < bands.around(HERE, 8)[1]


def test_a_source_that_is_left_out_tells_nothing():
    quiet, loud = curve("a", np.linspace(-0.1, 0.1, 101)), curve("b", np.linspace(-1, 1, 101))
    assert bands_of(quiet, loud).around(HERE, SIZE, without=("b",)) == bands_of(quiet).around(HERE, SIZE)


def test_doubtful_networks_tell_of_those_whose_fields_are_assumed():
    quiet, loud = curve("a", np.linspace(-0.1, 0.1, 101)), curve("b", np.linspace(-1, 1, 101), doubtful=True)
    bands = bands_of(quiet, loud)
    assert bands.sources == {"a"}
    assert bands.around(HERE, SIZE) == bands_of(quiet).around(HERE, SIZE)
    assert bands.around(HERE._replace(assumed=("nic.path",)), SIZE)[1] > 2


@pytest.mark.parametrize(
    ("topology", "overrides", "assumed"),
    [
        ("kestrel", [], ("nic.path",)),
        ("alps", [], ()),
        ("gcp-a4", [], ("nic.queue_pairs",)),
        ("gcp-a4", ["nic.queue_pairs=4"], ()),
    ],
)
def test_interfaces_are_assumed_where_nothing_states_their_way_or_enough_queue_pairs(topology, overrides, assumed):
    cluster = build_cluster(load_shape(topology, overrides), 16)
    assert run_class(cluster, NcclProfile("nccl"), "all_reduce").assumed == assumed
    alone = build_cluster(load_shape(topology, overrides), 4)
    assert run_class(alone, NcclProfile("nccl"), "all_reduce").assumed == ()


def held(bands, curves):
    """Return which points lie in the band that other sources tell."""
    found = []
    for each in curves:
        run = RunClass(*each.alike)
        for size_bytes, error in zip(each.sizes_bytes, each.errors, strict=True):
            low, high = bands.around(run, size_bytes, without=(each.source,))
            found.append(math.log(low) <= error <= math.log(high))
    return float(np.mean(found))


@pytest.mark.slow
def test_shipped_bands_hold_nine_of_ten_points_of_sources_that_they_have_not_seen():
    bands = shipped_error_model()
    assert {each.id for each in bands.curves} <= {each.id for each in read_folder(resolve_curves_folder(None))}
    assert len(bands.sources) > 15
    assert held(bands, [each for each in bands.curves if not each.doubtful]) == pytest.approx(0.9, abs=0.02)


@pytest.mark.slow
@pytest.mark.usefixtures("one_validation")
def test_the_command_writes_what_is_shipped():
    """Constants stay where a fit to the public curves puts them, and bands are those of their errors."""
    fits, found = fit_curves(
        [each for each in read_folder(resolve_curves_folder(None)) if is_fit_for_calibration(each)]
    )
    assert np.abs(fits.whole).max() < 0.05
    shipped = {each.id: each for each in shipped_error_model().curves}
    for each in error_samples(fits.left_out(found), doubtful=False):
        assert each.alike == shipped[each.id].alike
        assert each.errors == pytest.approx(shipped[each.id].errors, abs=0.1)


def test_draws_of_a_machine_are_correlated_as_measured_points_are():
    """Normal scores of one curve at sizes 1 to 16 octaves apart, and of two collectives of one source."""
    bands = bands_of(curve("a", np.linspace(-1, 1, 2001)))
    normal = np.vectorize(NormalDist(0, 1).inv_cdf)

    def scores(run, size_bytes):
        return normal((np.log(bands.factors(run, size_bytes)) + 1) / 2)

    here = scores(HERE, SIZE)
    for octaves, expected in ((1, 0.86), (4, 0.54), (8, 0.29), (16, 0.08)):
        assert np.corrcoef(here, scores(HERE, SIZE << octaves))[0, 1] == pytest.approx(expected, abs=0.1)
    assert np.corrcoef(here, scores(HERE._replace(collective="all_gather"), SIZE))[0, 1] == pytest.approx(
        0.33, abs=0.12
    )


@pytest.mark.slow
def test_the_correlation_of_draws_is_that_of_the_shipped_errors():
    """Ranks of a curve's errors among those of other sources, as normal scores: what the two constants rest on."""
    bands, products = shipped_error_model(), {1: [], 4: [], 8: [], 16: []}
    for each in (each for each in bands.curves if not each.doubtful):
        scores = {}
        for size_bytes, error in zip(each.sizes_bytes, each.errors, strict=True):
            drawn = np.log(bands.factors(RunClass(*each.alike), size_bytes, without=(each.source,)))
            scores[math.log2(size_bytes)] = NormalDist().inv_cdf(np.clip(np.mean(drawn < error), 0.01, 0.99))
        for octaves, found in products.items():
            found += [scores[size] * scores[size + octaves] for size in scores if size + octaves in scores]
    for octaves, found in products.items():
        assert np.mean(found) == pytest.approx(math.exp(-octaves / 6.4), abs=0.07)


@pytest.mark.parametrize("text", ["{}", "nothing"])
def test_a_bands_file_that_cannot_be_read_says_what_to_do(text, tmp_path, monkeypatch):
    path = tmp_path / "bands.json"
    path.write_text(text)
    monkeypatch.setattr(module, "error_model_path", lambda: path)
    shipped_error_model.cache_clear()
    with pytest.raises(S2SimError, match=r"bands\.json.*--write"):
        shipped_error_model()
    monkeypatch.undo()
    shipped_error_model.cache_clear()
    assert json.loads(error_model_path().read_text())["version"] == VERSION


def test_constants_are_written_with_what_they_are_fitted_on():
    text = (
        '[launch]\ncollective = { value = "5us", kind = "measured", source = "fitted on 2 curves; 6.6 us in NCCL" }\n'
        'gpu = { value = "3us", kind = "estimated", source = "a guess" }\n[network.efa]\n'
        'share = { value = 0.9, kind = "measured", source = "AWS" }\n'
    )

    def parameter(name, unit, refitted):
        return Parameter(name, "nccl", 1, unit, "measured", "", 1, "", refitted, ("a", "b"), 3, None, 0.0)

    new = {
        "launch.collective": parameter("launch.collective", "s", 4.321e-6),
        "launch.gpu": parameter("launch.gpu", "s", 1e-6),
        "network.efa.share": parameter("network.efa.share", "share", 0.87654),
    }
    lines = replace_values(text, new, "58 public curves of 21 sources").splitlines()
    fitted = "fitted on 58 public curves of 21 sources (2 tell it)"
    assert lines[1] == f'collective = {{ value = "4.32us", kind = "measured", source = "{fitted}; 6.6 us in NCCL" }}'
    assert lines[2] == 'gpu = { value = "3us", kind = "estimated", source = "a guess" }'
    assert lines[4] == f'share = {{ value = 0.877, kind = "measured", source = "{fitted}; AWS" }}'


def test_a_collective_on_measured_hardware_has_a_band(capsys):
    library = "nccl:timing=measured"
    asked = {"workers": 16, "size_bytes": 2**26, "overrides": ["nic.transport=ib-verbs"]}
    found = s2sim.run_collective("all_reduce", "dgx-h100", library=library, **asked)
    assert found.band.low_s <= found.time_s <= found.band.high_s
    assert found.band.high_s > found.band.low_s
    assert found.to_json()["band"]["low_s"] == found.band.low_s
    plain = s2sim.run_collective("all_reduce", "ring", workers=4, size_bytes=2**20)
    assert plain.band is None
    assert "band" not in plain.to_json()
    options = ["--workers", "16", "--size", "64MiB", "--set", "nic.transport=ib-verbs", "--library", library]
    assert main(["collective", "all_reduce", "--topology", "dgx-h100", *options]) == 0
    assert " to " in capsys.readouterr().out


@pytest.mark.slow
def test_an_answer_says_how_much_of_the_band_it_survives():
    asked = {"workers": 16, "reducers": ["union", "fp16"]}
    found = s2sim.run("polaris", library="nccl:timing=measured", **asked)
    verdict = found.verdicts[0]
    assert verdict.probability > 0.9
    assert "this is right with a probability" in verdict.lines[2]
    dense = next(row for row in found.rows if row.baseline)
    band = dense.band
    assert band.low_s < dense.time_s.total < band.high_s
    assert dense.to_json()["band"]["high_s"] == band.high_s
    assert format_interval(band.low_s, dense.time_s.total, band.high_s) in verdict.lines[1]
    plain = s2sim.run("polaris", library="ideal", **asked).verdicts[0]
    assert plain.probability is None
    assert "probability" not in plain.text


@dataclass(frozen=True)
class FakeRow:
    reducer: str
    band: Band | None
    band_draws_s: tuple[float, ...] = ()


def test_the_answer_is_chosen_anew_with_each_draw_of_what_rows_share():
    candidates = [Candidate("dense", 2.0, 0.0, True, baseline=True), Candidate("union", 1.5, 0.0, exact=True)]

    def within(*drawn):
        rows = [FakeRow(name, Band(1, 2, ""), each) for name, each in zip(("dense", "union"), drawn, strict=True)]
        return interval_robustness(rows, candidates, None)

    shared = within((0.0, 1.0, 2.0), (0.0, 1.0, 2.0))
    assert shared.sentence("union") == "as far as the network goes, this is right with a probability above 99%"
    apart = within((0.0, -1.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.1))
    assert apart.shares == (("union", 0.75), ("dense", 0.25))
    assert apart.sentence("union").startswith("union is best with a probability of 75%, dense of 25%: too close")
    assert (shared.qualifier("union"), apart.qualifier("union")) == ("", "Probably ")
    assert apart.qualifier("dense").startswith("Too close to decide")
    # Where the draws agree on another one, nothing is close.
    against = IntervalRobustness((("fp16", 0.95), ("union", 0.05)))
    assert against.qualifier("union") == "By predicted times "
    assert against.sentence("union") == "fp16 is best with a probability of 95%, union of 5%"
    told = apart.sentence("dense", "undecided")
    assert told.startswith("compressing pays with a probability of 75%, most often with union: too close to decide")
    assert interval_robustness([FakeRow("dense", None), FakeRow("union", None)], candidates, None) is None


@pytest.mark.slow
def test_one_distribution_gives_the_band_of_a_collective_and_of_a_run_of_it():
    """Dense sends one all-reduce: its time in a run has the band that `collective` prints, of the same draws."""
    asked = {"workers": 32, "library": "nccl:timing=measured"}
    run = s2sim.run("polaris", trace="cnn", reducers=["fp16"], **asked)
    dense = next(row for row in run.rows if row.baseline)
    (call,) = dense.collectives
    alone = s2sim.run_collective("all_reduce", "polaris", size_bytes=call.bytes, **asked)
    shares = [end / dense.time_s.total for end in (dense.band.low_s, dense.band.high_s)]
    assert alone.alternatives == ()
    assert shares == pytest.approx([alone.band.low_s / alone.time_s, alone.band.high_s / alone.time_s], rel=1e-6)


@pytest.mark.slow
def test_draws_of_an_iteration_are_about_its_replay_with_other_rates():
    """Half the rates are about twice the communication, of which backward hides what it did."""
    asked = {"workers": 32, "profile": "resnet-50", "reducers": ["fp16"], "library": "nccl:timing=measured"}
    fast, slow = (
        s2sim.run("dgx-a100", overrides=[f"nic.rate={rate}Gbps"], break_even=False, **asked) for rate in (50, 25)
    )
    for row, slower in zip(fast.rows, slow.rows, strict=True):
        parts, more = row.iteration, slower.iteration
        sums = [each.exposed_communication + each.hidden_communication for each in (parts, more)]
        longer = sums[1] / sums[0]
        room_s = max(parts.hidden_communication, parts.backward)
        exposed_s = max(longer * parts.exposed_communication, longer * sums[0] - room_s)
        assert exposed_s == pytest.approx(more.exposed_communication, abs=0.1 * slower.iteration_s)


def test_what_a_library_may_choose_as_well_is_drawn_with_errors_and_told():
    """NCCL's estimates of LL and Simple differ by one and a half per cent here, and the times of both by a quarter."""
    asked = {"workers": 16, "trace": "ncf", "reducers": ["union"]}
    found = s2sim.run("leaf-spine", overrides=["nic.rate=100Gbps"], **asked)
    found_on = build_cluster(load_shape("leaf-spine", ["nic.rate=100Gbps"]), 16)
    dense, timer = found.rows[0], Timer(found_on, profile=NcclProfile("nccl"))
    timed = timer.time(make_demand("all_reduce", dense.payload_bytes_per_rank, 16))
    (_, near), (_, far) = timer.alternatives(timed)
    shares = {factor: np.mean(choice_factors(timed, timer) == factor) for factor in choice_factors(timed, timer)}
    by_near, by_far = (shares.pop(each.duration_ps / timed.duration_ps) for each in (near, far))
    assert set(shares) == {1.0}
    assert 0.3 < by_near < 0.5
    assert 0.02 < by_far < 0.2
    assert dense.band.low_s < 0.7 * dense.time_s.total
    (told,) = [note for note in found.caveats if "may run" in note]
    assert near.schedule.text in told
    # Where dense is slower at higher rates, nothing else can be what limits it.
    assert "limits communication" not in found.verdict.text


def test_draws_that_compare_alike_are_chosen_from_once():
    """The shares are those of a choice in each draw."""
    rng = np.random.default_rng(3)
    for _ in range(100):
        exact = rng.random(5) < 0.4
        candidates = [Candidate("dense", 1.0, 0.0, True, baseline=True)]
        candidates += [
            Candidate(
                f"reducer-{place}",
                float(rng.choice([0.5, 0.8, 0.99, 1.0, 1.01, 1.3])),
                None if exact[place] else float(rng.choice([0.01, 0.3, 0.6])),
                bool(exact[place]),
                assumes="rows are known" if rng.random() < 0.3 else None,
                rejected="worse than zeros" if rng.random() < 0.2 else None,
                doubt=float(rng.choice([1.0, 1.1, 2.0])),
                feedback=not exact[place] and rng.random() < 0.5,
            )
            for place in range(5)
        ]
        drawn = {each.name: rng.normal(0, 0.3, 30).round(1).tolist() for each in candidates}
        winners = Counter(
            choose(
                [replace(each, time_s=max(each.time_s + drawn[each.name][draw], 0.0)) for each in candidates], None
            ).best.name
            for draw in range(30)
        )
        rows = [FakeRow(each.name, None, tuple(drawn[each.name])) for each in candidates]
        shares = interval_robustness(rows, candidates, None).shares
        assert dict(shares) == {name: count / 30 for name, count in winners.items()}
