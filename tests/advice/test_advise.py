"""Advice: answers are those of trying everything, and each cell is what a run says."""

import shlex
from itertools import product

import pytest

import s2sim
from s2sim.advice.cells import command_of
from s2sim.advice.search import Changes, changed_spec
from s2sim.errors import OptionError, S2SimError
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
        assert not [item for item in alike if item[0] <= cell.price and item[1] < cell.compared_s * cell.doubt], cell


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
    assert advice.lines[0].startswith(f"{last.workers} workers with {last.reducer} keep")
    after = next(cell for cell in advice.cells if cell.workers > last.workers)
    assert after.workers == last.workers + 4
    assert after.efficiency < SHARE
    all_of_it = s2sim.advise("largest", **JOB, reducers=("fp16",), efficiency=0.01, most_workers=16)
    assert "16 workers" in all_of_it.lines[0]
    assert "the largest that was tried" in all_of_it.lines[0]


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
    assert [line.partition(":")[0] for line in advice.lines] == ["topk", "union", "union"]
    assert advice.lines[0].endswith("(allowed 0.3).")
    assert "union:prefetch=true if rows are known before forward: " in advice.lines[1]
    assert advice.lines[2].startswith("union: ")
    assert min(cell.time_s for cell in advice.cells) == next(c.time_s for c in advice.cells if c.reducer == reducers[2])
