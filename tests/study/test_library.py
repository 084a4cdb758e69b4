"""Whole experiments with a communication library: what is shown beside the ideal, and the laws for every library."""

import dataclasses
import json
import warnings

import numpy as np
import pytest

import s2sim
from s2sim.collectives.schedules.demand import Demand
from s2sim.errors import OptionError, S2SimWarning, UnknownNameError
from s2sim.experiment.execute import demand_bytes, ring_traffic
from s2sim.experiment.spec import RunSpec
from s2sim.libraries.lowering import LaunchStep, LocalWork, LoweredCall
from s2sim.reducers.script import Call, ring_bytes

SMALL = "synthetic:density=0.02,overlap=0.5,rows=2000,width=16,dense=300"
LIBRARIES = ("ideal", "nccl", "nccl:or=gather", "nccl:or=owners", "gloo", "mpi", "mpi:half=user-op,buffers=device")
MEASURED = ("nccl:timing=measured", "mpi:timing=measured", "gloo:timing=measured")
TIMED = [*LIBRARIES, *(pytest.param(text, marks=pytest.mark.slow) for text in MEASURED)]


def of_wire(text):
    """Return a library without what it adds to the wire, so that what it executes is all that differs."""
    return text if text == "ideal" or text in MEASURED else f"{text}{',' if ':' in text else ':'}timing=wire"


GAP_KEYS = {"call", "asked", "executes", "bytes_ideal", "bytes_sent", "time_ideal_s", "time_s", "gap_s", "why"}


class Once(dict):
    """Find what is looked up, once."""

    def __init__(self, find):
        super().__init__()
        self.find = find

    def __missing__(self, key):
        self[key] = self.find(key)
        return self[key]


def run_with(library, **options):
    overrides = ("nic.latency=0s",)
    return s2sim.run("leaf-spine", workers=9, trace=SMALL, library=of_wire(library), overrides=overrides, **options)


@pytest.fixture(scope="module")
def results():
    return Once(lambda library: run_with(library, break_even=False))


@pytest.fixture(scope="module")
def rows(results):
    return Once(lambda library: {row.option_string: row for row in results[library].rows})


@pytest.mark.parametrize("library", TIMED)
def test_no_time_is_under_its_bound(rows, library):
    for row in rows[library].values():
        assert row.time_s.communication >= row.lower_bound_s > 0
        assert row.time_s.total == pytest.approx(
            row.time_s.encode + row.time_s.communication + row.time_s.decode, abs=1e-12
        )


@pytest.mark.parametrize("library", LIBRARIES)
def test_bytes_are_those_of_what_is_executed(rows, library):
    for row in rows[library].values():
        each = sum(item.bytes_sent for item in row.lowering)
        # The rank that owns most rows is not the one that holds most.
        assert row.bytes_sent_per_rank == pytest.approx(each, rel=0.02 if row.name == "owner-reduce" else 1e-3)
        assert row.bytes_sent_per_rank <= each
        assert [item.bytes_ideal for item in row.lowering] == [
            item.bytes_ideal for item in rows["ideal"][row.option_string].lowering
        ]


def test_ideal_executes_what_is_asked(rows):
    for row in rows["ideal"].values():
        assert row.total_ideal_s == row.time_s.total
        assert row.order_gap_s == 0
        for item in row.lowering:
            assert item.executes == item.asked
            assert (item.bytes_sent, item.time_s, item.gap_s) == (item.bytes_ideal, item.time_ideal_s, 0)


@pytest.mark.parametrize("library", LIBRARIES[1:])
def test_the_ideal_beside_a_library_is_that_of_the_ideal(rows, library):
    for text, row in rows[library].items():
        assert row.total_ideal_s == rows["ideal"][text].time_s.total
        assert [item.time_ideal_s for item in row.lowering] == [item.time_s for item in rows["ideal"][text].lowering]


def test_each_library_differs_where_it_lacks_something(rows):
    def support(library):
        (item,) = (item for item in rows[library]["union"].lowering if item.call == "support")
        return item

    packed = support("ideal").bytes_sent
    assert support("nccl").bytes_sent == pytest.approx(8 * packed, rel=0.01)
    # Everybody's bits to everybody, against two passes of one bitmap.
    assert support("nccl:or=gather").bytes_sent == pytest.approx(packed * 9 / 2, rel=0.01)
    assert support("nccl:or=owners").bytes_sent == pytest.approx(packed, rel=0.05)
    assert support("mpi").bytes_sent == packed
    assert support("nccl").gap_s > 0
    half = {library: rows[library]["fp16"] for library in LIBRARIES}
    assert half["mpi"].bytes_sent_per_rank == pytest.approx(2 * half["ideal"].bytes_sent_per_rank, rel=1e-3)
    assert half["mpi"].ratio == pytest.approx(1)
    assert half["mpi:half=user-op,buffers=device"].bytes_sent_per_rank == half["ideal"].bytes_sent_per_rank
    assert half["nccl"].time_s.total == half["ideal"].time_s.total


def test_one_gap_alone_explains_all_of_it(rows):
    """With one call that differs and no queue, closing it gives the ideal total."""
    row = rows["mpi:half=user-op,buffers=device"]["fp16"]
    assert row.lowering[0].gap_s == 0
    row = rows["mpi"]["fp16"]
    assert row.lowering[0].gap_s == pytest.approx(row.time_s.total - row.total_ideal_s, abs=1e-12)
    row = rows["nccl"]["union"]
    assert sum(item.gap_s for item in row.lowering) == pytest.approx(row.time_s.total - row.total_ideal_s, abs=1e-12)


def test_what_cannot_be_grouped_costs_latency(rows):
    assert rows["mpi:half=user-op,buffers=device"]["union"].order_gap_s > 0
    assert rows["nccl"]["union"].order_gap_s == 0


def test_json_has_the_promised_keys(results):
    value = json.loads(json.dumps(results["nccl"].to_json(), allow_nan=False))
    assert value["spec"]["library"] == "nccl:timing=wire"
    for row in value["results"]:
        assert row["lowering"]
        assert all(set(item) == GAP_KEYS for item in row["lowering"])
        assert isinstance(row["total_ideal_s"], float)
        assert isinstance(row["order_gap_s"], float)


def test_launches_are_listed_as_they_ran(rows):
    listed = [(item.kind, item.label) for item in rows["nccl:or=owners"]["union"].collectives]
    assert listed[:2] == [
        ("all_to_all", "support: stretches to their owners"),
        ("all_gather", "support: merged stretches"),
    ]


def test_notes_say_what_differs(results):
    ideal, nccl, gloo = (" ".join(results[text].notes) for text in ("ideal", "nccl", "gloo"))
    assert "OR, which MPI has and NCCL has not" in ideal
    assert "OR, which" not in nccl + gloo
    sends = "nccl:timing=wire sends something else than is asked"
    (different,) = (note for note in results["nccl"].notes if sends in note)
    for text in ("union", "owner-reduce", "gather-rows", "s2-exact", "s2"):
        assert text in different
    assert "gloo:timing=wire works in host memory: buffers are copied out and back over each GPU's PCIe" in gloo
    assert "host memory" not in nccl
    # Gloo has an OR, but exchanges of unequal sizes take one of the sizes first.
    assert "owner-reduce, gather-rows: gloo:timing=wire sends something else" in gloo
    without = s2sim.run("fat-tree", workers=2, trace=SMALL, reducers=["union"], library="mpi", break_even=False)
    assert any("because fat-tree has no pcie.rate" in note for note in without.notes)


@pytest.mark.slow
def test_the_verdict_and_its_rates_are_those_of_the_library(results):
    assert "; 9 workers, ideal library on " in results["ideal"].verdict.text
    assert "; 9 workers, mpi:timing=wire on " in results["mpi"].verdict.text
    reducers = ("union", "fp16")
    crossings = {text: run_with(text, reducers=reducers).verdict.break_even for text in ("ideal", "mpi")}
    assert crossings["mpi"] != crossings["ideal"]
    # Half precision does not halve what MPI sends.
    assert not any(crossing.reducer == "fp16" and crossing.pays == "below" for crossing in crossings["mpi"])


@pytest.mark.slow
def test_break_even_is_where_a_new_run_with_the_library_says_so():
    options = {"workers": 8, "trace": SMALL, "reducers": ["union"], "library": "nccl:or=gather"}
    (crossing,) = s2sim.run("fat-tree", **options).verdict.break_even
    gains = [
        s2sim.run("fat-tree", **options, overrides=(f"nic.rate={crossing.at_Bps * factor!r}B/s",), break_even=False)
        .rows[1]
        .speedup_vs_dense
        for factor in (0.97, 1.03)
    ]
    assert gains[0] > 1 > gains[1]


def test_an_algorithm_that_was_asked_for_runs_what_it_can():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = s2sim.run(
            "leaf-spine",
            workers=4,
            trace=SMALL,
            reducers=["union"],
            library="nccl:or=owners",
            collective="ring",
            break_even=False,
        )
    assert any("ring does not run all_to_all" in note for note in found.notes)
    other = s2sim.run(
        "leaf-spine",
        workers=4,
        trace=SMALL,
        reducers=["union"],
        library="nccl",
        collective="double-binary-tree",
        break_even=False,
    )
    for row in other.rows:
        assert row.time_s.communication >= row.lower_bound_s


def test_options_that_decide_nothing_are_told():
    options = {"workers": 2, "trace": SMALL, "break_even": False}
    with pytest.warns(S2SimWarning, match="--library nccl:gather=broadcast: gather changes nothing here"):
        s2sim.run("fat-tree", reducers=["union"], library="nccl:gather=broadcast", **options)
    with pytest.warns(S2SimWarning, match="or changes nothing here"):
        s2sim.run("fat-tree", reducers=["fp16"], library="nccl:or=bytes", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        s2sim.run("fat-tree", reducers=["union"], library="nccl:or=bytes", **options)
        s2sim.run("fat-tree", reducers=["fp16"], library="mpi:buffers=device,half=user-op", **options)


def test_unknown_libraries_are_told_before_anything_runs(monkeypatch):
    monkeypatch.delattr("s2sim.experiment.run.record")
    with pytest.raises(UnknownNameError, match="did you mean 'nccl'"):
        s2sim.run("fat-tree", workers=2, trace=SMALL, library="ncll")
    with pytest.raises(OptionError, match="did you mean 'bytes'"):
        s2sim.run("fat-tree", workers=2, trace=SMALL, library="nccl:or=byte")


def test_a_spec_saved_before_there_were_libraries_still_loads():
    value = RunSpec(topology="ring", workers=(2,)).to_json()
    assert value.pop("library") is None
    assert RunSpec.from_json(value, "old").library is None
    assert RunSpec.from_json({**value, "library": "gloo"}, "new").library == "gloo"


def test_one_worker_lowers_nothing():
    result = s2sim.run("fat-tree", workers=1, trace=SMALL, library="nccl:timing=wire")
    for row in result.rows:
        assert all(item.executes == item.asked and item.bytes_sent == 0 for item in row.lowering)
        assert row.time_s.total == row.total_ideal_s


@pytest.mark.slow
def test_the_same_spec_gives_the_same_answer(results):
    again = s2sim.run(spec=results["mpi"].spec, break_even=False)
    assert again.rows == results["mpi"].rows
    assert again.verdict == results["mpi"].verdict


@pytest.mark.parametrize("elements", [(7, 7, 7, 7), (0, 0, 0, 0), (5, 0, 9, 2)])
def test_wire_bytes_against_a_count_of_all_messages(elements):
    """Every message of every algorithm, one by one."""
    ranks = len(elements)
    gather = Call("all_gather", "gather", "float32", 4, elements, size_from_data=False, label="")
    assert (demand_bytes(Demand("all_gather", elements, 4))[0] == ring_bytes(gather)[0]).all()
    sent, received = np.zeros((2, ranks), np.int64)
    for root, size in enumerate(elements):
        for hop in range(ranks - 1):
            sent[(root + hop) % ranks] += 4 * size
            received[(root + hop + 1) % ranks] += 4 * size
    group = LaunchStep(tuple(Demand("broadcast", (size,) * ranks, 4, root) for root, size in enumerate(elements)))
    lowered = LoweredCall((group,), LocalWork(), "", "", "")
    assert [side.tolist() for side in ring_traffic([lowered], ranks)] == [sent.tolist(), received.tolist()]
    # What grouped broadcasts send is what a ring all-gather of the same sizes sends.
    assert sent.tolist() == ring_bytes(gather)[0].tolist()
    sent, received = np.zeros((2, ranks), np.int64)
    for source, size in enumerate(elements):
        for target in range(ranks):
            if source != target:
                block = (target + 1) * size // ranks - target * size // ranks
                sent[source] += 4 * block
                received[target] += 4 * block
    exchange = Demand("all_to_all", elements, 4)
    assert [side.tolist() for side in demand_bytes(exchange)] == [sent.tolist(), received.tolist()]


def test_the_library_is_part_of_the_spec():
    spec = RunSpec(topology="ring", workers=(2,), library="nccl:or=owners")
    assert RunSpec.from_json(spec.to_json(), "again") == spec
    assert dataclasses.replace(spec, library="ideal") != spec


@pytest.mark.slow
def test_what_groups_ask_alike_is_one_row_and_its_gap_is_closed_for_all():
    options = {"reducers": ["owner-reduce:hierarchical=true"], "trace": "ncf", "break_even": False}
    row = next(row for row in s2sim.run("fat-tree", workers=8, **options).rows if row.name == "owner-reduce")
    asked = [each for each in row.lowering if each.call == "rows of all shards"]
    assert len(asked) == 1
    # Sizes, a wait for them and padding, in both nodes: closing one of two would gain nothing.
    assert asked[0].gap_s > 20e-6
