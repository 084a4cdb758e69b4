"""GOAL text, read back by its grammar and executed in random order: it matches, ends, and computes what it should."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.check import expected_positions, initial_buffers, to_goal
from s2sim.collectives.schedules.demand import Demand, barrier
from s2sim.collectives.schedules.schedule import Pattern, Pieces, Round, Schedule, Stage, Step
from s2sim.errors import OptionError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

from .goal_text import parse

CASES = (
    ("ring", "all_reduce"),
    ("ring:chunks=3,in_flight=2", "reduce_scatter"),
    ("ring:chunks=3,release=sent", "all_gather"),
    ("double-binary-tree:chunks=4", "all_reduce"),
    ("binary-tree", "all_reduce"),
    ("binomial", "reduce"),
    ("chain:chunks=5", "broadcast"),
    ("pairwise", "all_to_all"),
    ("pairwise:release=sent", "all_to_all"),
    ("spread", "all_to_all"),
    ("spread", "send_recv"),
    ("recursive-doubling", "all_reduce"),
    ("bruck", "barrier"),
)


@pytest.fixture(scope="module")
def clusters():
    return {ranks: build_cluster(load_shape("single-switch"), ranks) for ranks in range(1, 18)}


def make(text, kind, ranks, elements, clusters):
    demand = barrier(ranks) if kind == "barrier" else Demand(kind, (elements,) * ranks, 4)
    return make_algorithm(text, kind).schedule(demand, clusters[ranks])


def messages_of(schedule):
    """Return step, time and number in its round of each message, in order of tags."""
    return [
        (index, time, message)
        for index, step in enumerate(schedule.steps)
        for time in range(step.times)
        for message in range(step.round.pattern.messages)
    ]


def parts_of(schedule, message):
    """Return what a message carries: [(start, stop, adds)]."""
    index, time, number = message
    pieces = schedule.stage.pieces(index, time)
    chosen = pieces.message == number
    return list(zip(pieces.start[chosen], pieces.stop[chosen], pieces.adds[chosen], strict=True))


def execute(schedule, values, rng):
    """Run the text in random order: sends leave at once, receives wait for their message. Return the values.

    What a rank receives in a round counts once it has done its part of the round, as in a send-receive.
    """
    operations, dependencies = parse(to_goal(schedule))
    messages = messages_of(schedule)
    values = values.copy()
    done = [set() for _ in operations]
    waits = [defaultdict(set) for _ in operations]
    for own, each in zip(waits, dependencies, strict=True):
        for label, _, before in each:
            own[label].add(before)
    # Operations of each rank in each round that are still to be done.
    open_parts = Counter(
        (rank, *messages[tag][:2])
        for rank, own in enumerate(operations)
        for _, *rest in own.values()
        for tag in rest[2:]
    )
    mail, kept = {}, defaultdict(list)
    left = {(rank, label) for rank, own in enumerate(operations) for label in own}

    def may_run(rank, label):
        kind, *rest = operations[rank][label]
        return waits[rank][label] <= done[rank] and (kind != "recv" or (rest[1], rank, rest[2]) in mail)

    while left:
        ready = [each for each in sorted(left) if may_run(*each)]
        assert ready, "deadlock"
        rank, label = ready[rng.integers(len(ready))]
        left.discard((rank, label))
        done[rank].add(label)
        kind, *rest = operations[rank][label]
        if kind == "calc":
            continue
        size, other, tag = rest
        parts = parts_of(schedule, messages[tag])
        part = rank, *messages[tag][:2]
        if kind == "send":
            mail[rank, other, tag] = size, [values[rank, start:stop].copy() for start, stop, _ in parts]
        else:
            sent, arrays = mail.pop((other, rank, tag))
            assert sent == size
            kept[part] += zip(parts, arrays, strict=True)
        open_parts[part] -= 1
        if open_parts[part] == 0:
            for (start, stop, adds), array in kept[part]:
                values[rank, start:stop] = array + (values[rank, start:stop] if adds else 0)
    assert not mail
    return values


@pytest.mark.slow
@pytest.mark.parametrize(("text", "kind"), CASES)
@given(ranks=st.integers(2, 8), elements=st.integers(0, 40), seed=st.integers(0, 2**32))
def test_any_order_that_the_text_allows_computes_the_collective(clusters, text, kind, ranks, elements, seed):
    schedule = make(text, kind, ranks, elements, clusters)
    rng = np.random.default_rng(seed)
    values = initial_buffers(schedule.demand, rng)
    result = execute(schedule, values, rng)
    wanted = expected_positions(schedule.demand)
    np.testing.assert_array_equal(result[wanted], np.broadcast_to(values.sum(axis=0), wanted.shape)[wanted])


@pytest.mark.parametrize(("text", "kind"), CASES)
def test_every_send_has_its_receive_and_bytes_are_those_of_the_schedule(clusters, text, kind):
    schedule = make(text, kind, 7, 210, clusters)
    operations, _ = parse(to_goal(schedule))
    sends, receives = [], []
    for rank, own in enumerate(operations):
        for word, *rest in own.values():
            if word == "send":
                sends.append((rank, rest[1], rest[2], rest[0]))
            elif word == "recv":
                receives.append((rest[1], rank, rest[2], rest[0]))
    assert sorted(sends) == sorted(receives)
    assert len({tag for _, _, tag, _ in sends}) == len(sends)
    assert len(sends) == sum(step.times * step.round.pattern.messages for step in schedule.steps)
    if kind != "barrier":
        assert sum(size for *_, size in sends) == schedule.traffic()[0].sum()


def test_text_of_two_ranks(clusters):
    text = to_goal(make("ring", "all_reduce", 2, 5, clusters))
    assert text.endswith(
        "num_ranks 2\n"
        "\nrank 0 {\nl1: send 8b to 1 tag 0\nl2: recv 12b from 1 tag 1\n"
        "l3: send 12b to 1 tag 2\nl4: recv 8b from 1 tag 3\n"
        "l3 requires l1\nl3 requires l2\nl4 requires l1\nl4 requires l2\n}\n"
        "\nrank 1 {\nl1: recv 8b from 0 tag 0\nl2: send 12b to 0 tag 1\n"
        "l3: recv 12b from 0 tag 2\nl4: send 8b to 0 tag 3\n"
        "l3 requires l1\nl3 requires l2\nl4 requires l1\nl4 requires l2\n}\n"
    )


def test_a_round_that_follows_the_last_byte_waits_for_the_start_of_sends(clusters):
    _, dependencies = parse(to_goal(make("pairwise:release=sent", "all_to_all", 4, 8, clusters)))
    for waits in dependencies:
        assert {word for _, word, _ in waits} == {"irequires"}
    _, dependencies = parse(to_goal(make("pairwise", "all_to_all", 4, 8, clusters)))
    assert {word for waits in dependencies for _, word, _ in waits} == {"requires"}


@pytest.mark.parametrize(
    ("pairs", "waits", "expected"),
    [
        # Rank 1 has a part in both steps that the third waits for.
        (
            [(0, 1), (2, 1), (1, 3)],
            [((), ()), ((), ()), ((0, 1), ())],
            [("l3", "requires", "l1"), ("l3", "requires", "l2")],
        ),
        # It has none in the second step, which waits for the first.
        ([(0, 1), (2, 3), (1, 2)], [((), ()), ((0,), ()), ((1,), ())], [("l2", "requires", "l1")]),
        # It only receives in the second step: nothing of its own has to leave, but that step starts after the first.
        (
            [(0, 1), (2, 1), (1, 3)],
            [((), ()), ((0,), ()), ((), (1,))],
            [("l2", "requires", "l1"), ("l3", "requires", "l1")],
        ),
        # It sends in both.
        (
            [(1, 0), (1, 2), (1, 3)],
            [((), ()), ((), ()), ((0,), (1,))],
            [("l3", "requires", "l1"), ("l3", "irequires", "l2")],
        ),
        # What waits until the bytes of a step without a part of its own have left waits for what started that step.
        ([(1, 0), (2, 3), (1, 3)], [((), ()), ((), (0,)), ((), (1,))], [("l2", "irequires", "l1")]),
    ],
)
def test_what_rank_one_waits_for(pairs, waits, expected):
    steps = [
        Step(Round(Pattern(np.array([src]), np.array([dst])), np.array([4.0])), after=after, after_sent=after_sent)
        for (src, dst), (after, after_sent) in zip(pairs, waits, strict=True)
    ]
    one = Pieces(np.array([0]), np.array([0]), np.array([1]), np.array([True]))
    stage = Stage(steps, lambda _step, _time: one, chain=False)
    _, dependencies = parse(to_goal(Schedule(Demand("all_reduce", (1,) * 4, 4), "by hand", stage)))
    assert dependencies[1] == expected


def test_many_operations_wait_by_way_of_one_point(clusters):
    """Sixteen sends and receives before thirty others would be hundreds of dependencies."""
    once = make("spread", "all_to_all", 17, 17, clusters)
    steps = (*once.steps, *once.steps)
    twice = Schedule(once.demand, "twice", Stage(steps, lambda _step, time: once.stage.pieces(0, time)))
    operations, dependencies = parse(to_goal(twice))
    assert all(len(own) == 64 + 1 for own in operations)
    assert all(len(waits) == 64 for waits in dependencies)


def test_messages_without_bytes_and_ranks_without_messages(clusters):
    assert "send 1b to" in to_goal(make("bruck", "barrier", 3, 0, clusters))
    assert to_goal(make("ring", "all_reduce", 1, 8, clusters)).endswith("num_ranks 1\n\nrank 0 {\nl1: calc 0\n}\n")


def test_refusals():
    everyone = np.arange(4)
    through = Step(Round(Pattern(everyone, everyone, through_switch=True), np.array([8.0])))
    nothing = Pieces(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))
    demand = Demand("all_reduce", (2,) * 4, 4)
    with pytest.raises(OptionError, match="switches that sum and multicast"):
        to_goal(Schedule(demand, "in-network", Stage((through,), lambda _step, _time: nothing)))
    cluster = build_cluster(load_shape("single-switch"), 600)
    schedule = make_algorithm("ring", "all_reduce").schedule(Demand("all_reduce", (600,) * 600, 4), cluster)
    with pytest.raises(OptionError, match=r"1437600 sends and receives, and at most 500000.*fewer ranks or chunks"):
        to_goal(schedule)
