"""Advice: answers are those of trying everything, and each cell is what a run says."""

import re
import shlex
from itertools import product

import pytest

import s2sim
from s2sim.advice.cells import command_of
from s2sim.advice.search import Changes, changed_spec
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.choice import WORTHWHILE
from s2sim.experiment.spec import RunSpec

JOB = {"topology": "leaf-spine", "workers": 8, "trace": "ncf", "compute": "500us"}
SHARE = 0.5
MANY = [
    {"name": field, "options": [{field: number} for number in range(2, 12)]}
    for field in ("seed", "batch", "accumulate", "streams", "steps", "iterations")
]
CHANGES = {
    "change": [
        {
            "name": "interfaces",
            "options": [
                {"nic.rate": "100Gbps", "price": "1500 USD/node"},
                {"nic.rate": "25Gbps", "price": "400 USD/node"},
            ],
        },
        {
            "name": "compressor",
            "options": [{"reducer": "fp16", "price": "10 USD"}, {"reducer": "union", "price": "9 USD"}],
        },
        {"name": "library", "options": [{"library": "nccl"}, {"library": "gloo", "price": "1 USD/GPU"}]},
    ]
}

GPT2 = {"topology": "leaf-spine", "workers": 16, "profile": "gpt2"}
FOR_GPT2 = {
    "change": [
        {
            "name": "rate",
            "options": [
                {"nic.rate": "50Gbps", "price": "400 USD/node"},
                {"nic.rate": "100Gbps", "price": "1500 USD/node"},
            ],
        },
        {"name": "interfaces", "options": [{"nic.count": 2, "price": "900 USD/node"}]},
        {"name": "compressor", "options": [{"reducer": "fp16"}, {"reducer": "powersgd"}]},
    ]
}


@pytest.fixture(scope="module")
def every():
    """The price and the time of a step of every combination, each from a run of its own."""
    known = Changes.load(CHANGES, nodes=2, workers=8)
    base = RunSpec.of(**JOB | {"workers": (8,)})
    found = {}
    for combination in product(*(change.options for change in known.changes)):
        fields = {"reducers": "dense"}
        for option in combination:
            fields |= option.fields
        rows = s2sim.run(spec=changed_spec(base, fields), break_even=False, thorough=False).rows
        row = next(row for row in rows if row.reducer == fields["reducers"])
        price = sum(option.price for option in combination)
        found[tuple(option.text for option in combination)] = price, row.judgement.time_s * row.judgement.doubt
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
@pytest.mark.parametrize("faster", [0.001, 0.02, 0.1, 0.2, 0.9])
def test_the_cheapest_is_that_of_trying_all(every, faster):
    advice = s2sim.advise("cheapest", **JOB, changes=CHANGES, faster=faster)
    today = every["as it is", "as it is", "as it is"][1]
    able = [item for item in every.values() if item[1] <= today * (1 - faster)]
    if not able:
        assert advice.lines[0].startswith("Nothing")
        return
    best = advice.cells[1]
    assert (best.price, best.compared_s * best.doubt) == min(able)
    assert advice.combinations == len(every) == 27


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
def test_nothing_betters_a_cell_of_the_frontier(every):
    advice = s2sim.advise("frontier", **JOB, changes=CHANGES)
    # What rounding loses is no loss: among exact ones a dearer cell has to be quicker.
    exact = sorted((cell.compared_s, cell.price) for cell in advice.cells if cell.exact)
    prices = [price for _, price in exact]
    assert prices == sorted(set(prices), reverse=True)
    for cell in advice.cells:
        name = "as it is" if cell.reducer == "dense" else f"reducer={cell.reducer}"
        alike = [item for names, item in every.items() if names[1] == name]
        assert alike
        assert not [item for item in alike if item[0] <= cell.price and item[1] * WORTHWHILE <= cell.longest_s], cell


@pytest.fixture(scope="module")
def of_gpt2():
    """The price, the time and the row of every combination."""
    known = Changes.load(FOR_GPT2, nodes=4, workers=16)
    names = [option.fields.get("reducers", "dense") for option in known.changes[2].options]
    found = []
    for options in product(*(change.options for change in known.changes[:2])):
        fields = {name: value for option in options for name, value in option.fields.items()}
        spec = changed_spec(RunSpec.of(**GPT2 | {"workers": (16,)}), fields | {"reducers": tuple(names)})
        rows = s2sim.run(spec=spec, break_even=False, thorough=False).rows
        found += [(sum(option.price for option in options), row.judgement.time_s, row) for row in rows]
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
@pytest.mark.parametrize("faster", [0.1, 0.2, 0.22, 0.9])
def test_what_training_has_to_confirm_is_said_with_the_cheapest_beside_it(of_gpt2, faster):
    advice = s2sim.advise("cheapest", **GPT2, changes=FOR_GPT2, faster=faster)
    today = next(item[1] for item in of_gpt2 if item[2].baseline)
    able = [item for item in of_gpt2 if item[1] <= today * (1 - faster)]
    sure = [item for item in able if item[2].feedback == "no"]
    wanted = [min(items, key=lambda item: item[:2]) for items in (able, sure) if items]
    wanted = wanted[:1] if wanted and wanted[0][2].feedback == "no" else wanted
    if able:
        assert [(cell.price, cell.time_s) for cell in advice.cells[1:]] == [item[:2] for item in wanted]
        assert [cell.feedback for cell in advice.cells[1:]] == [item[2].feedback != "no" for item in wanted]
    of_feedback = "powersgd with error feedback (error 0.25 to 1 or more in one step) if training confirms it"
    *_, of_fp16 = s2sim.run(**GPT2, reducers=("fp16",), break_even=False).verdict.lines[0].split(";")[0].split("Use ")
    if faster == 0.2:
        assert advice.lines[0].startswith(f"{of_feedback}: ")
        assert advice.lines[1].startswith(f"Else nic.rate=50Gbps, nic.count=2 and {of_fp16}: ")
        assert "~0.923" in str(advice)
    elif faster == 0.22:
        assert advice.lines[1] == "Nothing does so without that condition."
    elif faster == 0.9:
        assert advice.lines[0].startswith("Nothing makes it 90% shorter.")
        assert advice.lines[0].endswith(f"takes 23% less: {of_feedback}.")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
def test_times_that_no_model_can_tell_apart_are_one_on_the_frontier():
    advice = s2sim.advise("frontier", **GPT2 | {"profile": "bert-large"}, changes=FOR_GPT2)
    assert [cell.changes for cell in advice.cells if cell.reducer == "powersgd"] == ["as it is"]
    for one, other in product(advice.cells, advice.cells):
        better = (
            one.time_s <= other.time_s * WORTHWHILE,
            one.price <= other.price,
            one.relative_l2 <= other.relative_l2,
        )
        assert one == other or not all(better)
    assert "training has to tell whether error feedback allows powersgd" in advice.notes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
def test_buckets_that_come_to_the_same_are_one():
    job = {"topology": "leaf-spine", "workers": 8, "profile": "resnet-18", "reducers": ("int8", "powersgd")}
    advice = s2sim.advise("best", **job, max_error=0.99)
    # The gradients fill one bucket of 100 MiB, and bare ddp has 25 MiB.
    settings = {cell.changes.removeprefix("discipline=ddp:bucket=") for cell in advice.cells}
    assert settings == {"as it is", "1MiB", "5MiB", "100MiB"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
def test_what_is_there_decides_among_times_that_no_model_can_tell_apart_with_error_feedback():
    advice = s2sim.advise("best", **GPT2 | {"profile": "bert-large"}, reducers=("powersgd",), max_error=0.99)
    able = [cell for cell in advice.cells if cell.reducer == "powersgd"]
    (today,) = (cell for cell in able if cell.changes == "as it is")
    quickest = min(cell.time_s for cell in able)
    assert quickest < today.time_s <= quickest * WORTHWHILE
    ends = r"\(error 0\.19 to 1 or more in one step, allowed 0\.99\) if training confirms it"
    assert re.match(rf"powersgd with error feedback {ends}: 345 ms, ", advice.lines[0])


@pytest.mark.slow
def test_the_best_density_is_the_least_with_an_error_that_is_allowed():
    advice = s2sim.advise("best", "leaf-spine", workers=4, reducers=("topk",), max_error=0.3)
    best = advice.cells[1]
    density = float(best.reducer.partition("=")[2])
    assert best.relative_l2 <= 0.3
    less = s2sim.run("leaf-spine", workers=4, reducers=(f"topk:density={density / 2:g}",), break_even=False)
    assert less.rows[-1].error.relative_l2 > 0.3


@pytest.mark.slow
def test_nothing_helps_where_communication_hides():
    job = {"topology": "dgx-h100", "workers": 4, "profile": "resnet-18", "discipline": "ddp:bucket=25MiB"}
    advice = s2sim.advise("best", **job, reducers=("fp16",), max_error=0.1)
    assert advice.lines[0].startswith("Nothing with an error below 0.1 is clearly faster than dense: dense hides")


@pytest.mark.slow
def test_the_largest_cluster_keeps_its_share_and_the_next_does_not():
    advice = s2sim.advise("largest", **JOB, reducers=("fp16",), efficiency=SHARE, most_workers=64)
    assert advice.cells[0].workers == 1
    keeps = [cell for cell in advice.cells if cell.efficiency >= SHARE]
    last = keeps[-1]
    assert advice.lines[0].startswith(f"With fp16 if an error of 0.00024 is acceptable, {last.workers} workers keep")
    after = next(cell for cell in advice.cells if cell.workers > last.workers)
    assert after.workers == last.workers + 4
    assert after.efficiency < SHARE
    all_of_it = s2sim.advise("largest", **JOB, reducers=("fp16",), efficiency=0.01, most_workers=16)
    assert "16 workers" in all_of_it.lines[0]
    assert "the largest that was tried" in all_of_it.lines[0]


@pytest.mark.slow
def test_the_cheapest_needs_no_compressor_that_a_run_cannot_tell_from_dense():
    changes = {
        "change": [
            {"name": "batch", "options": [{"batch": 128, "price": "20 USD"}]},
            {"name": "compressor", "options": [{"reducer": "fp16"}]},
        ]
    }
    job = {"topology": "leaf-spine", "workers": 16, "profile": "resnet-50"}
    cell = s2sim.advise("cheapest", changes=changes, faster=0.06, **job).cells[-1]
    row = s2sim.run(**job, batch=128, reducers=["fp16"], break_even=False, thorough=False).rows[1]
    assert row.judgement.rule == "gains less than 1% on dense"
    assert (cell.changes, cell.reducer) == ("batch=128", "dense")


@pytest.mark.slow
def test_whichever_rank_is_slow_the_speed_of_one_is_that_of_a_healthy_worker():
    job = {"topology": "fat-tree", "workers": 8, "profile": "resnet-18", "reducers": ["fp16"], "compute_cv": 0.0}
    slow = [
        s2sim.advise("largest", efficiency=0.6, most_workers=8, faults=[f"slow-rank:rank={rank},factor=1.3"], **job)
        for rank in (0, 3)
    ]
    healthy = s2sim.advise("largest", efficiency=0.6, most_workers=8, **job).cells[0].time_s
    for found in slow:
        assert found.cells[0].time_s == healthy
        assert found.cells[-1].efficiency < 0.8
    assert slow[0].cells[-1].efficiency == pytest.approx(slow[1].cells[-1].efficiency, rel=0.01)


def test_one_worker_has_nothing_to_gain():
    alone = {"topology": "leaf-spine", "workers": 1, "trace": "ncf", "reducers": ("fp16",)}
    assert s2sim.advise("best", **alone, max_error=0.1).lines[0].startswith("Nothing")
    assert s2sim.advise("flips", **alone).lines[0].startswith("Do not compress: 1 worker")
    with pytest.raises(OptionError, match="nothing is shorter"):
        s2sim.advise("cheapest", **alone | {"reducers": ()}, changes={"change": CHANGES["change"][1:2]}, faster=0.1)
    assert s2sim.advise("largest", **alone, compute="1ms", efficiency=0.5, most_workers=1).cells[-1].workers == 1


def test_what_flips_the_answer_is_what_the_run_says():
    advice = s2sim.advise("flips", **JOB, reducers=("fp16",))
    verdict = s2sim.run(**JOB, reducers=("fp16",)).verdict
    assert advice.lines[0] == verdict.lines[0]
    assert f"fp16 {verdict.pays['fp16']}; here it is 25 Gbps." in advice.lines
    assert advice.runs == 1


@pytest.mark.parametrize(
    ("question", "options", "said"),
    [
        ("quickest", {}, "the questions are best"),
        ("best", {}, "--max-error"),
        ("cheapest", {"changes": CHANGES}, "--faster 20%"),
        ("cheapest", {"faster": 0.2}, "--changes"),
        ("cheapest", {"changes": CHANGES, "faster": 20.0}, "between 0 and 100%"),
        ("largest", {}, "--efficiency"),
        ("largest", {"efficiency": 0.5, "compute": None}, "give their compute"),
        ("largest", {"efficiency": 0.5, "most_workers": 0}, "at least 1"),
        ("best", {"workers": (4, 8), "max_error": 0.1}, "one number of workers"),
        ("frontier", {"changes": CHANGES, "reducers": ("fp16", "union")}, "--reducer is the one in use"),
        ("cheapest", {"changes": {"change": MANY}, "faster": 0.1}, "1,771,561 combinations, above 1,000,000"),
    ],
)
def test_what_is_missing_is_said(question, options, said):
    with pytest.raises(OptionError, match=said):
        s2sim.advise(question, **JOB | {"reducers": ("fp16",)} | options)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "a", "options": [{"nic.rate": "1Gbps", "price": "lots"}]}, "no price: write for example"),
        ({"name": "a", "options": [{"nic.rate": "1Gbps", "price": "1 USD/rack"}]}, "no price: write for example"),
        ({"name": "a", "options": [{"price": "1 USD"}]}, "changes nothing"),
        ({"name": "a", "options": [{"wrokers": 4}]}, "did you mean 'workers'"),
        (
            {"name": "a", "options": [{"nic.rat": "4Gbps"}]},
            "the changes: unknown field 'nic.rat'.*did you mean 'nic.rate'",
        ),
        ({"name": "a", "options": [{"set": "nic.rat=4Gbps"}]}, "did you mean 'nic.rate'"),
        ({"name": "a", "option": []}, "option"),
        ({"name": "a", "options": [{"reducer": "fp16", "gpu": "v100"}]}, "make a change of its own"),
        (
            {"name": "a", "options": [{"gpu": "v100", "price": "1 EUR"}, {"gpu": "a100", "price": "1 USD"}]},
            "one currency",
        ),
    ],
)
def test_wrong_changes_are_refused(change, said):
    with pytest.raises(S2SimError, match=said):
        s2sim.advise("cheapest", **JOB, changes={"change": [change]}, faster=0.1)


def test_a_change_that_cannot_run_is_left_out_with_its_reason():
    changes = {"change": [{"name": "rate", "options": [{"nic.rate": "no rate"}, {"nic.rate": "200Gbps"}]}]}
    advice = s2sim.advise("cheapest", **JOB, changes=changes, faster=0.001)
    assert advice.cells[1].changes == "nic.rate=200Gbps"
    assert any("no rate" in note for note in advice.notes)


def test_reasons_are_told_once_and_where_all_is_refused_nothing_was_tried():
    changes = {"change": [{"name": "batch", "options": [{"batch": 32}, {"batch": 64}, {"batch": 128}]}]}
    advice = s2sim.advise("cheapest", **JOB, reducers=("fp16",), changes=changes, faster=0.1)
    assert advice.lines == ("No change could be tried: notes say why.",)
    assert len(advice.notes) == 1
    assert "--batch 32 and 2 more were left out: --batch needs" in advice.notes[0]


def test_prices_are_those_of_the_cluster_as_it_is():
    known = Changes.load(CHANGES, nodes=2, workers=8)
    assert [option.price for option in known.changes[0].options] == [0, 800, 3000]
    assert [option.text for option in known.changes[2].options] == ["as it is", "library=nccl", "library=gloo"]
    assert known.changes[2].options[2].price == 8


def test_a_spec_is_a_command():
    assert command_of(RunSpec("fat-tree", (8, 16))) == "s2sim run --topology fat-tree --workers 8,16"
    options = {"reducers": ("fp16", "union"), "overrides": ("nic.rate=25Gbps",), "max_error": 0.1}
    words = shlex.split(command_of(RunSpec.of("fat-tree", workers=(8,), **options)))
    assert words[:2] == ["s2sim", "run"]
    assert [words[place + 1] for place, word in enumerate(words) if word == "--reducer"] == ["fp16", "union"]
    assert words[words.index("--set") + 1] == "nic.rate=25Gbps"
    assert words[words.index("--max-error") + 1] == "0.1"


@pytest.mark.slow
def test_the_quickest_is_named_with_what_it_assumes_and_the_quickest_without():
    reducers = ("union", "union:prefetch=true", "topk:density=0.01")
    advice = s2sim.advise("best", "leaf-spine", workers=8, trace="ncf", reducers=reducers, max_error=0.3)
    ends = r"\(error [0-9.]+ in one step, allowed 0\.3\) if training confirms it: "
    assert re.match(rf"topk:density=0\.01 with error feedback {ends}", advice.lines[0])
    assert advice.lines[1].startswith("union:prefetch=true (exact) if rows are known before forward: ")
    assert advice.lines[2].startswith("union (exact): ")
    assert len(advice.lines) == 3
    assert min(cell.time_s for cell in advice.cells) == next(c.time_s for c in advice.cells if c.reducer == reducers[2])
