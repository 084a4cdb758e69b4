"""Programs of MSCCL: proved, timed as our own algorithms of the same messages, and refused in one line."""

import random
import re

import pytest

from s2sim.cli.main import main
from s2sim.collectives.algorithms.registry import make_algorithm, read_algorithm
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import make_demand
from s2sim.collectives.timing.bounds import simulate_ps
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError, S2SimWarning
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape
from s2sim.traffic.collective_run import run_collective

from .msccl_text import all_pairs, all_to_all, recursive_doubling, ring, xml

SAME = {
    "ring": (ring, "all_reduce", "ring"),
    "ring all-gather": (lambda ranks: ring(ranks, "allgather"), "all_gather", "ring"),
    "ring reduce-scatter": (lambda ranks: ring(ranks, "reduce_scatter"), "reduce_scatter", "ring"),
    "all-pairs": (all_pairs, "all_reduce", "direct"),
    "recursive doubling": (recursive_doubling, "all_reduce", "recursive-doubling"),
    "all-to-all": (all_to_all, "all_to_all", "spread"),
}


@pytest.fixture
def write(tmp_path):
    def write(text, name="program.xml"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_same_messages_take_the_time_of_our_own(name, ranks, write):
    make, kind, ours = SAME[name]
    each = {"workers": ranks, "size_bytes": 8 << 20}
    program = run_collective(kind, "single-switch", algorithm=write(make(ranks)), **each)
    own = run_collective(kind, "single-switch", algorithm=ours, **each)
    assert program.time_s == pytest.approx(own.time_s, rel=1e-9)
    assert program.time_s >= program.lower_bound_s
    assert program.bytes_per_rank == own.bytes_per_rank
    if own.closed_form_s is not None:
        assert program.time_s == pytest.approx(own.closed_form_s, rel=1e-6)
    assert program.closed_form_s is None


# Without those that keep two values of a chunk, one in scratch, as buffers of a schedule cannot.
@pytest.mark.parametrize("name", sorted(SAME.keys() - {"recursive doubling"}))
def test_schedules_run_on_values(name, write):
    make, kind, _ = SAME[name]
    cluster, algorithm = build_cluster(load_shape("leaf-spine"), 4), make_algorithm(write(make(4)), kind)
    for size_bytes in (0, 4, 52, 4096):
        schedule = algorithm.schedule(make_demand(kind, size_bytes, 4), cluster)
        check_schedule(schedule)
        by_rounds = simulate_ps(schedule, cluster)
        assert Timer(cluster, algorithm).time(schedule.demand).duration_ps == by_rounds
        assert simulate_ps(schedule, cluster, by_message=True) <= by_rounds


def test_a_block_sends_the_next_chunk_when_the_last_byte_has_left(write):
    """Two chunks one after the other take one latency, and the time of their bytes."""
    blocks = []
    for rank in (0, 1):
        own = [("s", ("o", 2 * rank + at), ("o", 0), 1) for at in (0, 1)]
        others = [("r", ("o", 0), ("o", 2 * (1 - rank) + at), 1) for at in (0, 1)]
        blocks += [(rank, 1 - rank, -1, 0, own), (rank, -1, 1 - rank, 0, others)]
    each = {"workers": 2, "size_bytes": 1 << 20}
    program = run_collective("all_gather", "single-switch", algorithm=write(xml("allgather", 4, blocks)), **each)
    assert program.time_s == pytest.approx(1e-6 + (1 << 19) / 12.5e9, rel=1e-6)


def test_sizes_that_a_program_is_not_for_are_said(write):
    path = write(ring(4).replace("<algo ", '<algo minBytes="1024" maxBytes="65536" ', 1))

    def run(size):
        return run_collective("all_reduce", "single-switch", algorithm=path, workers=4, size_bytes=size)

    assert run(65536).time_s > 0
    with pytest.warns(S2SimWarning, match="is for .* to .*: MSCCL would not run it for "):
        run(1 << 20)


def test_the_command_lists_times_and_refuses(write, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(ring(4), "ring.xml")
    asked = ["collective", "all_reduce", "--topology", "single-switch", "--size", "1MiB", "--algorithm", "ring.xml"]
    assert main([*asked, "--workers", "4", "--show"]) == 0
    assert "algorithm      ring.xml (asked for)" in capsys.readouterr().out
    assert main([*asked, "--workers", "8"]) == 2
    assert "ring.xml is for 4 ranks, and 8 were asked for" in capsys.readouterr().err
    assert main(["collective", "all_gather", *asked[2:], "--workers", "4"]) == 2
    assert "does not run all_gather" in capsys.readouterr().err
    assert read_algorithm("ring.xml") == read_algorithm(str(tmp_path / "ring.xml"))


_RECEIVE, _SEND = [("r", ("s", 0), ("i", 0), 1)], [("s", ("i", 0), ("i", 0), 1)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("algo ", "system ").replace("</algo", "</system"), "begins with <system> and not"),
        (lambda text: "<!DOCTYPE a [<!ENTITY b 'c'>]>" + text, "is no XML of MSCCL: DTDForbidden"),
        (lambda text: text.replace("allreduce", "custom"), "coll='custom' is none of allreduce, allgather"),
        (lambda text: text.replace('ngpus="4"', 'ngpus="5"'), "has 4 of 5 <gpu>"),
        (lambda text: text.replace('ngpus="4"', 'ngpus="many"'), "<algo> has ngpus='many', which is not 1 to 1024"),
        (lambda text: text.replace('type="rrs"', 'type="xyz"', 1), "rank 0, thread block 0, step 1: s=1, type='xyz'"),
        (lambda text: text.replace('srcoff="3"', 'srcoff="4"', 1), "step 0: srcoff=4, cnt=1 is in no buffer"),
        (lambda text: text.replace('depid="-1" deps="-1"', 'depid="7" deps="0"', 1), "step 0 of thread block 7 is not"),
        (
            lambda text: text.replace('send="1"', 'send="-1"', 1),
            "step 0: s needs a rank, and its thread block has none",
        ),
        # Both receive before they send.
        (
            lambda _: xml("allreduce", 1, [(rank, 1 - rank, 1 - rank, 0, [*_RECEIVE, *_SEND]) for rank in (0, 1)]),
            "rank 0, thread block 0, step 0: it hangs: a message of rank 1 never comes",
        ),
        (
            lambda _: xml("allreduce", 1, [(0, 1, -1, 0, _SEND), (1, 0, -1, 0, _SEND)]),
            "rank 1 sends rank 0 what it does not receive",
        ),
        (
            lambda text: text.replace('type="rrs"', 'type="rcs"', 1),
            "rank 0 ends with a wrong chunk 2 of 4, as thread block 0, step 5 leaves it",
        ),
        (
            lambda text: text.replace('srcoff="2"', 'srcoff="1"', 1),
            "rank 0, thread block 0, step 1: chunks [2] come for 1 chunks [1] (-1: not written)",
        ),
        (
            lambda text: text.replace('depid="-1" deps="-1"', 'depid="0" deps="0"', 1),
            "rank 0, thread block 0, step 0: it hangs: what depid=(0, 0, 0) says never comes",
        ),
    ],
)
def test_what_is_wrong_is_one_line(change, said, write):
    path = write(change(ring(4)))
    with pytest.raises(OptionError) as caught:
        read_algorithm(path)
    assert said in str(caught.value)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_dependency_that_is_missing_shows_in_one_of_two_orders(write):
    """Without its wait, the sum of all pairs may be sent before it is complete."""
    text = all_pairs(3)
    assert 'depid="0" deps="3"' in text
    with pytest.raises(OptionError, match=r"rank \d ends with a wrong chunk"):
        read_algorithm(write(text.replace('depid="0" deps="3"', 'depid="-1" deps="-1"')))


@pytest.mark.parametrize("cases", [60, pytest.param(2_000, marks=pytest.mark.slow)])
def test_damage_is_a_time_or_one_line(cases, write):
    rng, cluster = random.Random(cases), build_cluster(load_shape("single-switch"), 4)
    whole = [(SAME[name][0](4), SAME[name][1]) for name in SAME]
    for case in range(cases):
        text, kind = rng.choice(whole)
        found = rng.choice(list(re.finditer(r'"[^"]*"|<[^>]*>\n', text)))
        put = rng.choice(['"0"', '"1"', '"2"', '"-1"', '"s"', '"rcs"', '"nop"', '"o"', "", '"99999999"', "<step/>"])
        said = ""
        try:
            algorithm = read_algorithm(write(text[: found.start()] + put + text[found.end() :]))
            if kind in algorithm.kinds and algorithm.demand.ranks == 4:
                assert Timer(cluster, algorithm).time(make_demand(kind, 4096, 4)).duration_ps >= 0, case
        except OptionError as error:
            said = str(error)
        assert "\n" not in said, case


def test_a_program_runs_by_the_protocol_that_it_is_made_for(write):
    asked = {"topology": "dgx-h100", "workers": 8, "size_bytes": 64 << 20, "library": "nccl"}
    text = ring(8)
    times = {}
    for protocol in ("Simple", "LL128", "LL"):
        found = run_collective(
            "all_reduce", algorithm=write(text.replace('proto="Simple"', f'proto="{protocol}"')), **asked
        )
        assert found.protocol == protocol
        times[protocol] = found.time_s
    assert times["Simple"] < times["LL128"] < times["LL"]
