"""Conformance kits: ``check_algorithm(MyAlgorithm())`` and, for buckets, ``check_discipline(MyDiscipline())``."""

import dataclasses
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise, product
from typing import Any

import numpy as np

from s2sim.collectives import KINDS, Kind
from s2sim.collectives.algorithms.registry import Algorithm, make_algorithm
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand, barrier
from s2sim.collectives.schedules.exchange import Hop, Hops
from s2sim.collectives.schedules.schedule import Schedule
from s2sim.collectives.timing.bounds import duration_ps, lower_bound, simulate_ps
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.errors import ContendedError, OptionError, TopologyError
from s2sim.simulation.bucketing.policy import Discipline, ReadyTensors, make_discipline
from s2sim.topology.cluster import Cluster, build_cluster
from s2sim.topology.read_file import load_shape
from s2sim.units import PS_PER_S

RANK_COUNTS = (*range(1, 18), 33, 65)
"""All small counts up to one more than a power of two, and two more of those."""

FEW_RANK_COUNTS = (1, 2, 3, 5, 8)
"""Rank counts of a check that is not exhaustive."""

TOPOLOGIES = {"fat-tree": ("node.gpus=4",), "single-switch": ()}
"""Shipped clusters, with overrides: nodes of four GPUs that share an interface, and of one."""

ITEM_BYTES = 4

_UNEVEN = 101
_LARGE = 1_000_000  # Elements, limited by bandwidth; fewer are limited by latency.
COUNTS = (0, 1, 2, 3, 10, 161, 400)
"""Numbers of gradients: none, one, few, those of a ResNet-50 and of a BERT-large."""


def require(condition: object, message: str) -> None:
    """Raise `AssertionError` with ``message`` unless ``condition`` is true."""
    if not condition:
        raise AssertionError(message)


@cache
def example_cluster(topology: str, overrides: tuple[str, ...], workers: int) -> Cluster:
    """Return a cluster of a shipped topology."""
    return build_cluster(load_shape(topology, overrides), workers)


def require_options(plugin: Any, *lines: str) -> None:
    """Check that a plug-in is a frozen dataclass with name, source and texts of a line, equal to a copy of it."""
    cls = type(plugin)
    require(dataclasses.is_dataclass(cls), f"{cls.__name__} is no dataclass: its fields are its options")
    require(cls.__dataclass_params__.frozen, f"{cls.__name__} is not frozen: add frozen=True")
    for attribute in ("name", "source"):
        text = getattr(plugin, attribute, None)
        require(isinstance(text, str) and text.strip(), f"{cls.__name__} has no {attribute}")
    require(dataclasses.replace(plugin) == plugin, f"{plugin.name} does not equal another one with equal options")
    for attribute in lines:
        text = getattr(plugin, attribute, None)
        require(isinstance(text, str) and text.strip(), f"{plugin.name} has no {attribute}")
        require("\n" not in str(text), f"the {attribute} of {plugin.name} is more than a line")


def check_algorithm(algorithm: Algorithm, *, exhaustive: bool = True) -> None:
    """Check an algorithm for all its kinds; `AssertionError` names the first broken law.

    An algorithm may refuse some numbers of ranks or clusters with `OptionError` or `TopologyError`. An exhaustive check
    tries all of `RANK_COUNTS`; `FEW_RANK_COUNTS` take a tenth of the time.
    """
    require_options(algorithm)
    require(algorithm.kinds, f"{algorithm.name} runs no kind of collective")
    for kind in algorithm.kinds:
        require(kind in KINDS, f"{algorithm.name} runs {kind!r}, which is none of {', '.join(KINDS)}")
    for kind in algorithm.auto:
        require(kind in algorithm.kinds, f"{algorithm.name} is in auto for {kind!r}, which it does not run")
    rank_counts = RANK_COUNTS if exhaustive else FEW_RANK_COUNTS
    for kind in (known for known in KINDS if known in algorithm.kinds):
        checked = 0
        for demand in chain.from_iterable(_demands(kind, ranks) for ranks in rank_counts):
            _check_closed_form(algorithm, demand)
            checked += sum(_check_demand(algorithm, demand, topology) for topology in TOPOLOGIES)
        require(checked, f"{algorithm.name} refuses {kind} over any of {rank_counts} ranks")


def _demands(kind: Kind, ranks: int) -> Iterator[Demand]:
    """Yield demands of an odd number of elements, one, one per rank, none and many; unequal ones if the kind allows."""
    if kind == "barrier":
        yield barrier(ranks)
        return
    generator = np.random.default_rng(ranks)
    for size in (_UNEVEN, 1, ranks, 0, _LARGE):
        equal = (size,) * ranks
        shared = kind in ("all_reduce", "broadcast", "reduce")
        unequal = tuple(generator.integers(0, size + 1, ranks).tolist())
        root = ranks // 2 if kind in ("broadcast", "reduce") else 0
        yield Demand(kind, equal if shared else unequal, ITEM_BYTES, root)


def _check_closed_form(algorithm: Algorithm, demand: Demand) -> None:
    try:
        seconds = algorithm.closed_form_s(demand, Hops((), (Hop(1e-6, 1e9),), demand.ranks))
    except (ContendedError, OptionError):
        return
    require(seconds >= 0, f"the closed form of {demand.kind} over {demand.ranks} ranks is {seconds} s")
    require(demand.ranks > 1 or seconds == 0, f"the closed form of {demand.kind} on one rank is {seconds} s, not 0")


def _check_demand(algorithm: Algorithm, demand: Demand, topology: str) -> bool:
    """Check the schedule of a demand on a shipped topology; return whether the algorithm takes it."""
    cluster = example_cluster(topology, TOPOLOGIES[topology], demand.ranks)
    where = f"in {demand.kind} of {demand.buffer_elements} elements over {demand.ranks} ranks on {topology}"
    try:
        schedule = algorithm.schedule(demand, cluster)
    except (OptionError, TopologyError):
        return False
    require(schedule.demand == demand, f"the schedule is for another demand {where}")
    _check_rounds(schedule, where)
    if max(demand.elements) <= _UNEVEN:
        check_schedule(schedule)
    again = make_algorithm(schedule.algorithm, schedule.demand.kind).schedule(schedule.demand, cluster)
    same = len(schedule.steps) == len(again.steps) and schedule.algorithm == again.algorithm
    for left, right in zip(schedule.steps, again.steps, strict=False):
        same = same and (left.times, left.after, left.after_sent) == (right.times, right.after, right.after_sent)
        arrays, others = ([step.round.pattern.src, step.round.pattern.dst, step.round.bytes] for step in (left, right))
        same = same and all(map(np.array_equal, arrays, others))
    require(same, f"{schedule.algorithm!r} reads back to an algorithm with another schedule {where}")

    rounds_ps = duration_ps(schedule, cluster, RoundTimes(cluster, schedule.release))
    simulated_ps = simulate_ps(schedule, cluster)
    require(rounds_ps == simulated_ps, f"rounds take {rounds_ps} ps, but {simulated_ps} in the network {where}")
    bound = lower_bound([schedule.demand], cluster.cuts(), assisted=schedule.assisted)
    for how, ps in (("", rounds_ps), (" by message", simulate_ps(schedule, cluster, by_message=True))):
        require(ps / PS_PER_S >= bound.seconds, f"{ps} ps{how} are under the lower bound: {bound.derivation} {where}")
    return True


def _check_rounds(schedule: Schedule, where: str) -> None:
    """Check that messages lead from a rank to another, and that bytes are those of the elements sent."""
    for index, step in enumerate(schedule.steps):
        pattern = step.round.pattern
        require(len(step.round.bytes) == pattern.messages, f"step {index} counts bytes of other messages {where}")
        ends = np.concatenate([pattern.src, pattern.dst])
        inside = (ends >= 0) & (ends < schedule.places)
        require(inside.all(), f"step {index} leads to or from a rank that does not exist {where}")
        if not pattern.through_switch:
            require((pattern.src != pattern.dst).all(), f"step {index} leads from a rank to itself {where}")
        earlier = all(before < index for before in (*step.waits(index), *step.after_sent))
        require(earlier, f"step {index} waits for a later one {where}")
    total = np.zeros((2, schedule.places), np.int64)
    itemsize = schedule.demand.itemsize
    for index, time in ((index, time) for index, step in enumerate(schedule.steps) for time in range(step.times)):
        pieces, sent = schedule.stage.pieces(index, time), schedule.steps[index].round
        messages, sizes = sent.pattern.messages, pieces.stop - pieces.start
        carried = np.bincount(pieces.message, sizes, messages)
        known = len(carried) == messages
        require(known, f"round {time} of step {index} carries a message that it does not have {where}")
        # A nominal share may differ from whole elements by the rounding at both ends of each piece.
        off = np.abs(sent.bytes - carried * itemsize)
        slack = 2 * np.maximum(np.bincount(pieces.message, minlength=messages), 1) * itemsize
        require((off <= slack).all(), f"round {time} of step {index} counts other bytes than it sends {where}")
        for side, ends in zip(total, (sent.pattern.src, sent.pattern.dst), strict=True):
            if sent.pattern.through_switch:
                side[ends] += sizes.sum()
            else:
                np.add.at(side, ends[pieces.message], sizes)
    same = np.array_equal(total * itemsize, np.stack(schedule.traffic()))
    require(same, f"the traffic of the ranks is not the sum of what they send {where}")


def exchange_ps(size_bytes: int) -> int:
    """Return the duration of an exchange of ``size_bytes`` on a network of 100 us and 10 Gbit/s."""
    return 10**8 + size_bytes * 800


def check_discipline(discipline: Discipline) -> None:
    """Check a discipline on gradients of all sizes; `AssertionError` names the first broken law.

    Every gradient is in exactly one bucket, positions increase inside buckets, no bucket is empty, an exchange may take
    no time, arguments stay unchanged, and results are reproducible.
    """
    require_options(discipline, "summary", "example")
    require(isinstance(discipline.waits_for_all, bool), f"{discipline.name}: waits_for_all is neither true nor false")
    again = make_discipline(discipline.text)
    require(again == discipline, f"{discipline.text!r} reads back to {again.text!r}")
    example = make_discipline(discipline.example)
    require(type(example) is type(discipline), f"the example {discipline.example!r} is another discipline")
    for tensors, where in _cases():
        for exchange in (exchange_ps, lambda _: 0):
            before = [array.copy() for array in (tensors.bytes, tensors.ready_ps, tensors.sparse)]
            buckets = discipline.buckets(tensors, exchange)
            after = (tensors.bytes, tensors.ready_ps, tensors.sparse)
            same = all(np.array_equal(old, new) for old, new in zip(before, after, strict=True))
            require(same, f"{discipline.name} changes the gradients that it is given {where}")
            require(isinstance(buckets, tuple), f"{discipline.name} returns no tuple of buckets {where}")
            for bucket in buckets:
                require(bucket.tensors, f"{discipline.name} makes an empty bucket {where}")
                increasing = all(left < right for left, right in pairwise(bucket.tensors))
                require(increasing, f"the places in a bucket of {discipline.name} do not increase {where}")
            positions = sorted(chain.from_iterable(bucket.tensors for bucket in buckets))
            once = positions == list(range(len(tensors.bytes)))
            require(once, f"{discipline.name} does not put every gradient in exactly one bucket {where}")
            require(buckets == discipline.buckets(tensors, exchange), f"{discipline.name} gives another answer {where}")


def _cases() -> Iterator[tuple[ReadyTensors, str]]:
    """Yield gradients of all sizes, of none and of one size, dense or partly sparse, ready together or in turn."""
    for count in COUNTS:
        generator = np.random.default_rng(count)
        spread = np.exp(generator.uniform(0, np.log(2**27), count)).astype(np.int64)
        sizes = {"of all sizes": spread, "of no bytes": np.zeros(count, np.int64), "of 4 MB": np.full(count, 4 * 10**6)}
        later = np.cumsum(generator.integers(0, 10**9, count), dtype=np.int64)
        times = {"at once": np.zeros(count, np.int64), "one by one": later}
        sparse = {"dense": np.zeros(count, bool), "some sparse": generator.random(count) < 0.1}
        for options in product(sizes.items(), times.items(), sparse.items()):
            (size, size_bytes), (time, ready_ps), (kind, mask) = options
            yield ReadyTensors(size_bytes, ready_ps, mask), f"for {count} gradients {size}, ready {time}, {kind}"
