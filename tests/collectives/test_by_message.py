"""Ranks that wait for their own messages alone: against clocked rounds, GOAL text, and times by hand."""

from collections import defaultdict

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.registry import ALGORITHMS, make_algorithm
from s2sim.collectives.schedules.check import to_goal
from s2sim.collectives.schedules.demand import Demand, barrier
from s2sim.collectives.schedules.schedule import Pattern, Pieces, Round, Schedule, Stage, Step
from s2sim.collectives.timing.bounds import duration_ps, simulate_ps
from s2sim.collectives.timing.by_message import MessageLevelRun, messages_by_rank
from s2sim.collectives.timing.critical_path import UncontendedRun, critical_path
from s2sim.collectives.timing.library_profile import apply_overheads
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.collectives.timing.routes import find_routes
from s2sim.errors import OptionError, TopologyError
from s2sim.libraries.lowering import choose_library
from s2sim.network.fluid import FluidNetwork
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

from .goal_text import parse

CHUNKED = [
    ("ring:chunks=4", "all_reduce"),
    ("ring:chunks=4,release=sent", "all_reduce"),
    ("ring:chunks=5,in_flight=2,release=sent", "all_gather"),
    ("pairwise:release=sent", "all_to_all"),
]
LATENCY_PS = 1_000_000  # of every way through the single switch
REGISTERED = [(name, kind) for name in ALGORITHMS.names() for kind in ALGORITHMS.get(name).kinds]


def make(text, kind, ranks, elements, cluster):
    demand = barrier(ranks) if kind == "barrier" else Demand(kind, (elements,) * ranks, 4)
    return make_algorithm(text, kind).schedule(demand, cluster)


def run(schedule, cluster, posts=None, **options):
    """Return when each rank's part is done, int64 (places,), with the moment at which each rank posts."""
    env = simpy.Environment(initial_time=0)
    network = FluidNetwork(env, cluster.fabric)
    ends = np.full(schedule.places, -1)
    whole = []
    running = MessageLevelRun(
        network,
        schedule,
        cluster,
        lambda: whole.append(env.now),
        on_rank_done=lambda rank: ends.__setitem__(rank, env.now),
        **options,
    )

    def post(rank, moment_ps):
        yield env.timeout(moment_ps)
        running.post([rank])

    for rank, moment_ps in enumerate(posts or [0] * schedule.places):
        env.process(post(rank, moment_ps))
    env.run()
    assert whole == [ends.max()]
    return ends


def in_step(schedule, cluster):
    """Return whether all ranks do alike in every round, over links of their own: then nobody is ever ahead."""
    times = RoundTimes(cluster, schedule.release)
    for step in schedule.steps:
        sent = step.round
        if sent.pattern.messages == 0 or sent.pattern.through_switch:
            return False
        everybody = set(sent.pattern.src.tolist()) == set(sent.pattern.dst.tolist()) == set(range(schedule.places))
        ends_ps = times.message_ps(sent)[1]
        if not (everybody and times._ways.of(sent.pattern).alone.all() and (ends_ps == ends_ps[0]).all()):
            return False
    return True


@pytest.mark.slow
def test_ranks_in_step_take_what_rounds_take(clusters):
    equal = set()
    for ranks in (2, 3, 4, 7, 8, 16):
        for text, kind in [*REGISTERED, *CHUNKED]:
            try:
                schedule = make(text, kind, ranks, 1000 * ranks, clusters[ranks])
            except (OptionError, TopologyError):
                continue
            if in_step(schedule, clusters[ranks]):
                clocked_ps = duration_ps(schedule, clusters[ranks], RoundTimes(clusters[ranks], schedule.release))
                assert simulate_ps(schedule, clusters[ranks], by_message=True) == clocked_ps, (text, kind, ranks)
                equal.add((text, kind, ranks))
    names = {text for text, _, ranks in equal if ranks == 8}
    assert {"ring", "pairwise", "halving-doubling", "recursive-doubling", "bruck", "pat"} <= names
    assert {text for text, _ in CHUNKED} <= names


@pytest.mark.parametrize("text", ["in-network", "binomial", "double-binary-tree:chunks=4", "hierarchical", "torus"])
def test_messages_of_several_ranks_and_ranks_without_a_part(clusters, text):
    kind = "broadcast" if text == "binomial" else "all_reduce"
    schedule = make(text, kind, 8, 100_000, clusters[8])
    clocked_ps = simulate_ps(schedule, clusters[8])
    assert 0 < simulate_ps(schedule, clusters[8], by_message=True) <= clocked_ps


@pytest.mark.slow
def test_a_library_s_launch_hops_and_clock():
    cluster = build_cluster(load_shape("dgx-h100"), 16)
    library = choose_library("nccl").on(load_shape("dgx-h100"))
    for text in ("ring", "double-binary-tree", "nvls-tree"):
        plain = make(text, "all_reduce", 16, 1_000_000, cluster)
        schedule = apply_overheads(plain, cluster, library.profile.protocols(plain, cluster)[0])
        assert schedule.launch_ps > 0
        clocked_ps = simulate_ps(schedule, cluster)
        by_message_ps = simulate_ps(schedule, cluster, by_message=True)
        assert clocked_ps / 2 < by_message_ps <= clocked_ps
        if text == "ring":
            assert by_message_ps == clocked_ps


class Instant:
    """A network whose messages arrive as they are sent, so that nothing but lateness takes time."""

    def __init__(self, env):
        self.env = env
        self.owners = []

    def add_routes(self, routes):
        return np.arange(len(routes.latency_ps))

    def add_owner(self, on_delivered):
        self.owners.append(on_delivered)
        return len(self.owners) - 1

    def send(self, routes, sizes_bytes, owner, tags):
        assert len(routes) == len(sizes_bytes) == len(tags)
        self.env.timeout(0).callbacks.append(lambda _: self.owners[owner](tags))


def goal_ends(schedule, flight_ps):
    """Return when each rank's operations have ended by the GOAL text, with a duration for each message."""
    flights = []
    for index, step in enumerate(schedule.steps):
        for time in range(step.times):
            flights += flight_ps(index, time, step.round.pattern.messages).tolist()
    operations, dependencies = parse(to_goal(schedule))
    waits = [defaultdict(list) for _ in operations]
    for own, each in zip(waits, dependencies, strict=True):
        for label, word, before in each:
            own[label].append((word, before))
    sender = {
        rest[2]: (rank, label)
        for rank, own in enumerate(operations)
        for label, (kind, *rest) in own.items()
        if kind == "send"
    }
    known = {}
    pending = [(rank, label) for rank, own in enumerate(operations) for label in own]
    while pending:
        asked, pending = pending, []
        for rank, label in asked:
            kind, *rest = operations[rank][label]
            needed = [(rank, before) for _, before in waits[rank][label]]
            needed += [sender[rest[2]]] if kind == "recv" else []
            if not all(each in known for each in needed):
                pending.append((rank, label))
                continue
            begin = max((known[rank, before][word == "requires"] for word, before in waits[rank][label]), default=0)
            end = begin
            if kind == "send":
                end += flights[rest[2]]
            elif kind == "recv":
                end = max(begin, known[sender[rest[2]]][1])
            known[rank, label] = (begin, end)
        assert len(pending) < len(asked), "deadlock"
    return [max((known[rank, label][1] for label in own), default=0) for rank, own in enumerate(operations)]


@given(
    case=st.sampled_from(
        [
            ("ring", "all_reduce"),
            ("ring:chunks=3,in_flight=2", "reduce_scatter"),
            ("ring:chunks=3,release=sent", "all_gather"),
            ("double-binary-tree:chunks=4", "all_reduce"),
            ("binary-tree", "all_reduce"),
            ("binomial", "reduce"),
            ("chain:chunks=5", "broadcast"),
            ("pairwise:release=sent", "all_to_all"),
            ("spread:partners=2", "all_to_all"),
            ("recursive-doubling", "all_reduce"),
            ("halving-doubling", "all_reduce"),
            ("bruck", "barrier"),
        ]
    ),
    ranks=st.integers(2, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_ranks_wait_for_what_goal_text_says(clusters, case, ranks, seed):
    schedule = make(*case, ranks, 5 * ranks, clusters[ranks])
    # Where steps follow the last byte of others, latency passes after the bytes.
    after_ps = LATENCY_PS if schedule.release == "sent" else 0

    def late_ps(step, time, messages):
        return np.random.default_rng([seed, step, time]).integers(1, 1000, messages)

    def flight_ps(step, time, messages):
        return after_ps + late_ps(step, time, messages)

    env = simpy.Environment(initial_time=0)
    ends = [0] * ranks
    MessageLevelRun(
        Instant(env),
        schedule,
        clusters[ranks],
        lambda: None,
        on_rank_done=lambda rank: ends.__setitem__(rank, env.now),
        late_ps=late_ps,
    ).start()
    env.run()
    assert ends == goal_ends(schedule, flight_ps)


def steps_by_hand(*rounds):
    """Return a schedule over three ranks of rounds [(src, dst, bytes)], one after the other."""
    steps = tuple(
        Step(Round(Pattern(np.array(src), np.array(dst)), np.array(sizes, float))) for src, dst, sizes in rounds
    )

    def pieces(_step, _time):
        nothing = np.zeros(0, np.int64)
        return Pieces(nothing, nothing, nothing, np.zeros(0, bool))

    return Schedule(Demand("all_reduce", (1, 1, 1), 4), "by hand", Stage(steps, pieces))


def test_two_ranks_go_on_while_the_third_receives(clusters):
    cluster = clusters[3]
    alone = steps_by_hand(([0], [1], [0]))
    latency_ps = int(run(alone, cluster).max())
    # Rank 0 sends much to rank 2, and rank 1 nothing to nobody: it sends to rank 2 as soon as the round begins for it.
    large = 8 * latency_ps * cluster.fabric.rate_Bps.min() / 1e12
    schedule = steps_by_hand(([0], [2], [large]), ([1], [0], [0]), ([1], [2], [0]))
    ends = run(schedule, cluster)
    first_ps = latency_ps + 8 * latency_ps
    # Rank 1 has no part in the first round: its first message leaves at once, and its second when that has arrived.
    assert ends == pytest.approx([first_ps, 2 * latency_ps, first_ps], abs=2)
    assert simulate_ps(schedule, cluster) == pytest.approx(first_ps + 2 * latency_ps, abs=2)


def test_a_late_rank_delays_those_whom_messages_tell(clusters):
    ranks, delay_ps = 8, 50_000_000
    schedule = make("ring", "all_gather", ranks, 1000, clusters[ranks])
    hop_ps = int(run(schedule, clusters[ranks]).max()) // (ranks - 1)
    posts = [delay_ps if rank == 3 else 0 for rank in range(ranks)]
    ends = run(schedule, clusters[ranks], posts)
    # Rank 2's first message waits for rank 3 to be there, as 3's own first one does.
    expected = recursion(ranks, ranks - 1, hop_ps, np.maximum(posts, np.roll(posts, -1)), np.array(posts))
    assert ends.tolist() == expected.tolist()
    # In a chain nobody before the late one waits for it but who sends to it.
    chain = make("chain:chunks=1", "broadcast", ranks, 1000, clusters[ranks])
    on_time, late = run(chain, clusters[ranks]), run(chain, clusters[ranks], posts)
    assert late[:2].tolist() == on_time[:2].tolist()
    assert (late[2:] > on_time[2:]).all()
    # A leaf at the end of it is late itself, and its parent.
    last = run(chain, clusters[ranks], [0] * (ranks - 1) + [delay_ps])
    assert last[:-2].tolist() == on_time[:-2].tolist()
    assert (last[-2:] == delay_ps + hop_ps).all()


def recursion(ranks, rounds, hop_ps, first_ps, own_ps, late_ps=None):
    """Return when each rank's part is done: message t from i leaves when the last one from i and from i - 1 is there.

    The first ones leave at ``first_ps``; ranks come at ``own_ps``.
    """
    end = np.zeros(ranks, np.int64)
    for time in range(rounds):
        begin = np.maximum(first_ps, own_ps) if time == 0 else np.maximum(np.maximum(end, np.roll(end, 1)), first_ps)
        end = begin + hop_ps + (0 if late_ps is None else late_ps(time))
    return np.maximum(np.maximum(end, np.roll(end, 1)), own_ps)


@pytest.mark.parametrize("ranks", [16, pytest.param(64, marks=pytest.mark.slow)])
def test_jitter_in_a_ring_is_last_passage(ranks):
    cluster = build_cluster(load_shape("single-switch"), ranks)
    schedule = make("ring", "all_reduce", ranks, 1000 * ranks, cluster)
    hop_ps = RoundTimes(cluster).time_ps(schedule.steps[0].round)
    rounds = [(index, time) for index, step in enumerate(schedule.steps) for time in range(step.times)]
    draws = np.rint(np.random.default_rng(ranks).exponential(1e6, (len(rounds), ranks))).astype(np.int64)
    nothing = np.zeros(ranks, np.int64)
    expected = recursion(ranks, len(rounds), hop_ps, nothing, nothing, lambda time: draws[time])
    ends = run(schedule, cluster, late_ps=lambda step, time, _: draws[rounds.index((step, time))])
    assert ends.tolist() == expected.tolist()
    # Rounds would have waited for the latest message of each.
    clocked_ps = len(rounds) * hop_ps + int(draws.max(axis=1).sum())
    assert expected.max() - len(rounds) * hop_ps < 0.8 * (clocked_ps - len(rounds) * hop_ps)


def test_ranks_post_when_they_like_and_are_told_when_they_are_done(clusters):
    schedule = make("binomial", "broadcast", 8, 1000, clusters[8])
    moments = [0, 9_000_000, 3_000_000, 0, 40_000_000, 0, 0, 1]
    ends = run(schedule, clusters[8], moments)
    assert (ends >= moments).all()
    assert (ends >= run(schedule, clusters[8])).all()
    one = make("ring", "all_reduce", 1, 1000, clusters[1])
    assert run(one, clusters[1], [7]).tolist() == [7]


def test_rounds_are_told_with_when_each_message_was_sent(clusters):
    schedule = make("binomial", "reduce", 8, 1000, clusters[8])
    told = []
    ends = run(schedule, clusters[8], on_round=told.append)
    assert sorted((ran.step, ran.time) for ran in told) == [
        (index, time) for index, step in enumerate(schedule.steps) for time in range(step.times)
    ]
    latest = np.zeros(8, np.int64)
    for ran in told:
        assert ran.start_ps == ran.sent_ps.min()
        assert (ran.sent_ps < ran.end_ps).all()
        for side in (ran.round.pattern.src, ran.round.pattern.dst):
            np.maximum.at(latest, side, ran.end_ps)
    assert latest.tolist() == ends.tolist()


@given(
    case=st.sampled_from(
        [
            ("ring", "all_reduce"),
            ("ring", "reduce_scatter"),
            ("chain:chunks=6", "broadcast"),
            ("halving-doubling", "all_gather"),
            ("in-network", "all_reduce"),
            ("bruck", "barrier"),
        ]
    ),
    ranks=st.integers(1, 9),
    elements=st.sampled_from([0, 100, 40_000]),
    posts=st.lists(st.integers(0, 30_000_000), min_size=9, max_size=9),
    seed=st.none() | st.integers(0, 2**32 - 1),
)
def test_what_meets_nothing_is_foreseen(clusters, case, ranks, elements, posts, seed):
    cluster = clusters[ranks]
    schedule = make(*case, ranks, elements, cluster)

    def late_ps(step, time, messages):
        return np.random.default_rng([seed, step, time]).integers(0, 3_000_000, messages)

    options = {} if seed is None else {"late_ps": late_ps}
    passage = critical_path(schedule, cluster, lambda pattern: find_routes(cluster, pattern))
    if passage is None:
        assert case[0] in ("halving-doubling", "bruck")
        return
    env = simpy.Environment(initial_time=0)
    ends, whole = [None] * schedule.places, []
    foreseen = UncontendedRun(
        env,
        schedule,
        passage,
        lambda: whole.append(env.now),
        on_rank_done=lambda rank: ends.__setitem__(rank, env.now),
        **options,
    )

    def post(rank, moment_ps):
        yield env.timeout(moment_ps)
        foreseen.post([rank])

    for rank in range(ranks):
        env.process(post(rank, posts[rank]))
    env.run()
    assert ends == run(schedule, cluster, posts[:ranks], **options).tolist()
    assert whole == [max(ends)]


def test_what_may_meet_is_not_foreseen(clusters):
    def passage(text, kind, cluster):
        schedule = make(text, kind, cluster.workers, 1000, cluster)
        return critical_path(schedule, cluster, lambda pattern: find_routes(cluster, pattern))

    # Two ranks that drift apart send to the same one, and pieces in flight share links.
    assert passage("pairwise", "all_to_all", clusters[8]) is None
    assert passage("ring:chunks=4", "all_reduce", clusters[8]) is None
    assert passage("ring", "all_reduce", clusters[8]) is not None
    oversubscribed = build_cluster(load_shape("leaf-spine"), 64, placement="round-robin")
    assert passage("ring", "all_reduce", oversubscribed) is None


def test_groups_have_a_message_each_through_their_switches():
    pattern = Pattern(np.array([0, 3, 1, 4, 2, 5]), np.array([0, 3, 1, 4, 2, 5]), through_switch=True, groups=2)
    parts = messages_by_rank(pattern)
    assert parts.senders == parts.ends == [[0, 1, 2], [3, 4, 5]]
    assert parts.sends == parts.has == {rank: [rank // 3] for rank in range(6)}


def test_ranks_that_post_one_by_one_draw_once(clusters):
    schedule = make("ring", "all_reduce", 5, 1000, clusters[5])
    passage = critical_path(schedule, clusters[5], lambda pattern: find_routes(clusters[5], pattern))
    asked = []

    def late_ps(step, time, messages):
        asked.append((step, time))
        return np.zeros(messages, np.int64)

    env = simpy.Environment(initial_time=0)
    foreseen = UncontendedRun(env, schedule, passage, lambda: None, late_ps=late_ps)
    for rank in range(5):
        foreseen.post([rank])
        env.run(until=env.now + 10_000_000)
    env.run()
    assert len(asked) == len(set(asked)) == 8


@pytest.mark.parametrize(
    ("topology", "overrides", "ranks"),
    [
        pytest.param("fat-tree", ("node.gpus=4",), 16, marks=pytest.mark.slow),
        pytest.param("dgx-h100", (), 16, marks=pytest.mark.slow),
        pytest.param("dgx-h100", (), 8, marks=pytest.mark.slow),
        pytest.param("torus", (), 8, marks=pytest.mark.slow),
        pytest.param("dgx-1-v100", (), 8, marks=pytest.mark.slow),
        pytest.param("rail-optimised", (), 32, marks=pytest.mark.slow),
    ],
)
def test_every_algorithm_that_is_foreseen_ends_as_its_messages_do(topology, overrides, ranks):
    shape = load_shape(topology, overrides)
    cluster = build_cluster(shape, ranks)
    profile = choose_library("nccl").on(shape).profile
    generator = np.random.default_rng(ranks)
    posts = generator.integers(0, 40_000_000, ranks)
    foreseen = set()

    def late_ps(step, time, messages):
        return np.random.default_rng([step, time]).integers(0, 3_000_000, messages)

    for text, kind in REGISTERED:
        try:
            plain = make(text, kind, ranks, 10_000 * ranks, cluster)
        except (OptionError, TopologyError):
            continue
        for schedule in [plain, *(apply_overheads(plain, cluster, each) for each in profile.protocols(plain, cluster))]:
            passage = critical_path(schedule, cluster, lambda pattern: find_routes(cluster, pattern))
            if passage is None or schedule.helpers:
                continue
            ends = passage.ends_ps(posts + schedule.launch_ps, late_ps)
            assert ends.tolist() == run(schedule, cluster, posts.tolist(), late_ps=late_ps).tolist(), (text, kind)
            foreseen.add(text)
    assert {"ring", "chain", "binomial"} <= foreseen
