"""One rule of decision: what sentences about rates and mini-batches foretell is the verdict of a run there."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import s2sim
from s2sim.experiment.choice import Candidate, choose, required_dense
from s2sim.units import parse_rate_Bps

TIMES = st.floats(1e-6, 1.0)


@given(
    time_s=TIMES,
    dense_s=TIMES,
    near=st.sampled_from([None, 0.99, 1 / 1.01, 1.0]),
    doubt=st.sampled_from([1.0, 1.005, 1.2]),
    error=st.sampled_from([0.0, 0.3, 1.5]),
    assumes=st.sampled_from([None, "rows are known before forward"]),
)
def test_a_reducer_pays_where_it_is_chosen_before_dense(time_s, dense_s, near, doubt, error, assumes):
    dense = Candidate("dense", dense_s, 0.0, exact=True, baseline=True)
    own = Candidate(
        "own",
        time_s if near is None else dense_s * near,
        error,
        exact=error == 0,
        assumes=assumes,
        rejected="worse than zeros" if error > 1 else None,
        doubt=doubt,
    )
    assert own.pays_over(dense) == (choose([dense, own], None).decision == "use")


# Seeds of runs that take less than .3 s, and of others, so that each topology, number of workers and reducer stands
# with gradients of a profile and of a table, as far as the first 30 seeds have them.
QUICK = (5, 6, 13, 15, 18, 27)
SEEDS = (*QUICK, 1, 2, 3, 7, 8, 11, 14, 19, 23, 24, 29)
TOPOLOGIES = ("fat-tree", "leaf-spine", "dgx-a100", "dgx-h100", "single-switch", "torus")
REDUCERS = ("fp16", "bf16", "topk:density=0.01", "union", "s2-exact", "powersgd", "qsgd", "s2:rows=3,cells=2", "int8")


@pytest.fixture(scope="module", autouse=True)
def recorded_once(tmp_path_factory):
    """Take what reducers record from a store: here the same gradients are asked at many rates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S2SIM_CACHE", str(tmp_path_factory.mktemp("store")))
        yield


def draw_run(seed):
    generator = random.Random(seed)
    density, rows = generator.choice([0.01, 0.05]), generator.choice([2000, 100_000])
    gradients = (
        {"profile": generator.choice(["resnet-50", "resnet-18"])}
        if generator.random() < 0.5
        else {"trace": f"synthetic:density={density},overlap=0.5,rows={rows},width=16"}
    )
    return generator, {
        "topology": generator.choice(TOPOLOGIES),
        "workers": generator.choice([2, 4, 8, 16]),
        "reducers": [generator.choice(REDUCERS)],
        **gradients,
    }


def pays_at(verdict, reducer, rate_Bps):
    """Return what the crossings say, and that the sentence says the same."""
    crossings = sorted(item.at_Bps for item in verdict.break_even if item.reducer == reducer)
    text = verdict.pays[reducer]
    lowest = text.startswith(("pays below", "pays at any"))
    assert lowest == (not text.startswith(("pays above", "pays from", "pays at no")))
    return lowest ^ (sum(each < rate_Bps for each in crossings) % 2 == 1)


@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[] if seed in QUICK else pytest.mark.slow) for seed in SEEDS]
)
def test_the_verdict_at_a_rate_is_the_one_that_was_foretold(seed):
    generator, options = draw_run(seed)
    (reducer,) = options["reducers"]
    verdict = s2sim.run(**options).verdict
    if not verdict.pays:
        pytest.skip("nothing crosses a link")
    field = next(name for name in ("nic.rate", "nvlink.rate", "pcie.rate") if name in verdict.pays[reducer])
    for _ in range(2):
        rate_Bps = 10 ** generator.uniform(6.2, 11.5)
        there = s2sim.run(**options, overrides=(f"{field}={rate_Bps!r}B/s",), break_even=False, thorough=False)
        assert (there.verdict.decision == "use") == pays_at(verdict, reducer, rate_Bps), (options, rate_Bps)
    for over in verdict.pays_over:
        batch = round(2 ** generator.uniform(0, 10))
        there = s2sim.run(**options, batch=batch, break_even=False, thorough=False)
        foretold = any(first <= batch <= last for first, last in over.spans)
        assert (there.verdict.decision == "use") == foretold, (options, batch)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
@pytest.mark.parametrize(
    ("topology", "reducer", "density"), [("tcp-10g", "int8", 0.01), ("tcp-10g", "powersgd", 0.002)]
)
def test_rates_between_which_a_library_chooses_something_slow_are_found(topology, reducer, density):
    """What NCCL chooses by its estimates may be slower at a lower rate by more than the rates differ."""
    trace = f"synthetic:density={density},overlap=0.9,rows=2000,width=16"
    options = {"topology": topology, "workers": 32, "reducers": [reducer], "trace": trace}
    verdict = s2sim.run(**options).verdict
    assert len([item for item in verdict.break_even if item.reducer == reducer]) > 1
    for exponent in range(18):
        rate_Bps = 1.7e6 * 2**exponent
        there = s2sim.run(**options, overrides=(f"nic.rate={rate_Bps!r}B/s",), break_even=False, thorough=False)
        assert (there.verdict.decision == "use") == pays_at(verdict, reducer, rate_Bps), rate_Bps


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
def test_how_far_off_extrapolated_times_may_be_is_asked_at_each_rate():
    """At lower rates bytes weigh more than latency, and the gain of 25 % is less than these may be off."""
    options = {"topology": "dgx-h100", "workers": 2, "profile": "bert-base", "reducers": ["gather-rows"]}
    verdict = s2sim.run(**options).verdict
    doubts = set()
    for rate in ("10Gbps", "200Gbps"):
        there = s2sim.run(**options, overrides=(f"nvlink.rate={rate}",), break_even=False, thorough=False)
        assert (there.verdict.decision == "use") == pays_at(verdict, "gather-rows", parse_rate_Bps(rate))
        doubts.add(there.rows[1].extrapolated.doubt)
    assert len(doubts) == 2


def choice_of_json(rows, max_error):
    """Return the choice of rows of JSON, from what stands in them alone."""
    return choose(
        [
            Candidate(
                row["reducer"],
                row["judgement"]["time_s"],
                row["error"]["relative_l2"],
                row["judgement"]["exact"],
                row["baseline"],
                row["assumes"],
                row["judgement"]["rejected"],
                row["judgement"]["doubt"],
            )
            for row in rows
        ],
        max_error,
    )


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"topology": "fat-tree", "workers": 8}, marks=pytest.mark.slow),
        {"topology": "fat-tree", "workers": 8, "max_error": 0.1, "reducers": ["fp16", "topk", "union", "s2:cells=4"]},
        pytest.param(
            {"topology": "leaf-spine", "workers": 4, "profile": "resnet-18", "reducers": ["fp16"]},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"topology": "leaf-spine", "workers": 16, "profile": "resnet-18", "reducers": ["fp16", "bf16", "powersgd"]},
            marks=pytest.mark.slow,
        ),
        {"topology": "leaf-spine", "workers": 4, "reducers": ["signsgd-vote", "topk:density=0.1", "random-k"]},
    ],
)
@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
def test_the_best_follows_from_rows_alone_and_each_row_says_why_it_is_not(options):
    result = s2sim.run(**options, break_even=False, thorough=False)
    saved = result.to_json()
    verdict, rows = saved["verdict"], saved["results"]
    choice = choice_of_json(rows, options.get("max_error"))
    assert choice.decision == verdict["decision"]
    assert verdict["best"] == (choice.best.name if choice.decision == "use" else "dense")
    chosen = [row["reducer"] for row in rows if row["judgement"]["rule"] == "chosen"]
    assert chosen == ([verdict["best"]] if choice.decision == "use" else [])
    dense_s = next(row["judgement"]["time_s"] for row in rows if row["baseline"])
    for row in rows:
        judgement = row["judgement"]
        assert judgement["rule"]
        if judgement["rule"].startswith(("gains less", "not faster")):
            # With the speed-up of the threshold it would pay.
            needed = dense_s / judgement["threshold"] * (1 - 1e-9)
            able = replace(Candidate(row["reducer"], needed, 0.0, exact=True), doubt=judgement["doubt"])
            assert able.pays_over(Candidate("dense", dense_s, 0.0, exact=True, baseline=True))


@pytest.mark.slow
def test_the_least_time_of_dense_is_the_threshold_of_the_choice():
    options = {"workers": 4, "profile": "resnet-18", "reducers": ["fp16"], "break_even": False, "thorough": False}
    row = s2sim.run("leaf-spine", **options).rows[1]
    phase_s, time_s = row.time_s.total, row.judgement.time_s
    needed_s = required_dense(time_s, row, row.extrapolated.doubt, phase_s)
    own = Candidate(row.reducer, time_s, 0.1, exact=False, doubt=row.judgement.doubt)
    for factor, pays in ((1 + 1e-9, True), (1 - 1e-9, False)):
        assert own.pays_over(Candidate("dense", needed_s * factor, 0.0, exact=True, baseline=True)) == pays


@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[] if seed == QUICK[0] else pytest.mark.slow) for seed in (*QUICK, 1, 3, 8, 24)]
)
def test_constants_that_flip_a_choice_are_those_of_all_replays(seed, monkeypatch):
    """What is left out because it stays slower than dense, or takes the same time, would change none."""
    _, options = draw_run(seed)
    options["reducers"] = list(dict.fromkeys(["fp16", "powersgd", "topk:density=0.01", *options["reducers"]]))
    found = s2sim.run(**options, break_even=False, thorough=False).verdict
    monkeypatch.setattr("s2sim.experiment.robustness.work_ratios", lambda *_: (0.0, float("inf")))
    assert s2sim.run(**options, break_even=False, thorough=False).verdict.flips == found.flips
