"""Conformance kit for disciplines of exchange: what every one must do, whatever company it gives gradients.

A plug-in's test is one line, once its entry point is installed: ``check_discipline(MyDiscipline())``.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from s2sim.replay.iteration.disciplines.discipline import ReadyTensors
from s2sim.replay.iteration.disciplines.registry import make_discipline
from s2sim.testing.require import require, require_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s2sim.replay.iteration.disciplines.discipline import Discipline

COUNTS = (0, 1, 2, 3, 10, 161, 400)
"""Numbers of gradients: none, one, few, and as many as a ResNet-50 or a BERT-large have."""

_LARGEST_BYTES = 2**27
_LATENCY_PS = 10**8
_PS_PER_BYTE = 800  # 10 Gbit/s


def exchange_ps(size_bytes: int) -> int:
    """Return how long an exchange of so many bytes takes on a network of 100 us and 10 Gbit/s."""
    return _LATENCY_PS + size_bytes * _PS_PER_BYTE


def check_discipline(discipline: Discipline) -> None:
    """Check that a discipline does what every one must, on gradients of all sizes.

    Every gradient is in exactly one bucket, places increase inside buckets, no bucket is empty, an exchange that takes
    no time is no obstacle, what is given stays as it is, and the same comes of the same.
    """
    require_options(discipline)
    for attribute in ("summary", "example"):
        text = getattr(discipline, attribute, None)
        require(isinstance(text, str) and text.strip(), f"{discipline.name} has no {attribute}")
        require("\n" not in str(text), f"the {attribute} of {discipline.name} is more than a line")
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
                increasing = all(left < right for left, right in zip(bucket.tensors, bucket.tensors[1:], strict=False))
                require(increasing, f"the places in a bucket of {discipline.name} do not increase {where}")
            places = sorted(chain.from_iterable(bucket.tensors for bucket in buckets))
            once = places == list(range(len(tensors.bytes)))
            require(once, f"{discipline.name} does not put every gradient in exactly one bucket {where}")
            require(buckets == discipline.buckets(tensors, exchange), f"{discipline.name} gives another answer {where}")


def _cases() -> Iterator[tuple[ReadyTensors, str]]:
    """Yield gradients of all sizes, of none and of one size, some of them sparse, all at once and one by one."""
    for count in COUNTS:
        generator = np.random.default_rng(count)
        spread = np.exp(generator.uniform(0, np.log(_LARGEST_BYTES), count)).astype(np.int64)
        sizes = {"of all sizes": spread, "of no bytes": np.zeros(count, np.int64), "of 4 MB": np.full(count, 4 * 10**6)}
        later = np.cumsum(generator.integers(0, 10**9, count), dtype=np.int64)
        times = {"at once": np.zeros(count, np.int64), "one by one": later}
        sparse = {"dense": np.zeros(count, bool), "some sparse": generator.random(count) < 0.1}
        for size, size_bytes in sizes.items():
            for time, ready_ps in times.items():
                for kind, mask in sparse.items():
                    where = f"for {count} gradients {size}, ready {time}, {kind}"
                    yield ReadyTensors(size_bytes, ready_ps, mask), where
