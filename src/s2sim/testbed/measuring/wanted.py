"""What somebody wants to have measured, as tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.errors import OptionError, S2SimError, nearest
from s2sim.testbed.measured_folder import KINDS, Kind
from s2sim.testbed.measuring.task import COLLECTIVES, ITEM_BYTES, Effort, Plan, Task, collective_task
from s2sim.units import PS_PER_S, parse_option, parse_size_bytes, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REDUCERS = ("dense", "fp16", "union", "gather-rows", "owner-reduce", "topk", "s2", "s2-exact")
COLLECTIVES_BY_DEFAULT = ("all_reduce", "all_gather", "all_to_all")
_MOST_BYTES = 2**32
_STEP = 4


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured on every testbed.

    Raises
    ------
    S2SimError
        If there is no such thing, or none that one step tells the time of.
    """

    kinds: tuple[Kind, ...]  # ``collectives``, ``reducers`` and ``iterations``, or some of them
    collectives: tuple[str, ...] = COLLECTIVES_BY_DEFAULT  # By name
    sizes_bytes: tuple[int, ...] = ()  # Buffers of collectives
    reducers: tuple[str, ...] = REDUCERS  # Option strings; each does its first step, or with ``warm=true`` a later one
    trace: str = "ncf"  # What they reduce
    compute_s: float = 0.05  # Seconds that ranks compute before they reduce, in iterations

    def __post_init__(self) -> None:
        for name in self.collectives:
            if name not in COLLECTIVES:
                raise OptionError(f"--collective {name!r} is none that is timed{nearest(name, COLLECTIVES)}")
        if any(kind != "collectives" for kind in self.kinds):
            for reducer in self.reducers:
                _check_reducer(reducer)
        if "iterations" in self.kinds and not self.compute_s:
            raise OptionError("--compute 0s: iterations compute before they exchange; without that measure reducers")

    def tasks(self, workers: int) -> Mapping[Kind, Sequence[Task]]:
        """Return what is measured between so many workers, each once."""
        found: dict[Kind, Sequence[Task]] = {}
        for kind in self.kinds:
            if kind == "collectives":
                pairs = [(name, size) for name in self.collectives for size in self.sizes_bytes]
                tasks = [collective_task(name, size, workers) for name, size in pairs]
            else:
                size = _dense_bytes(self.trace, workers)
                compute_s = self.compute_s if kind == "iterations" else 0.0
                tasks = [Task(reducer, self.trace, compute_s, size) for reducer in self.reducers]
            found[kind] = list(dict.fromkeys(tasks))
        return found


def plan_of(
    *,
    what: str,
    collectives: Sequence[str],
    sizes: str,
    reducers: Sequence[str],
    trace: str,
    compute: str,
    repeats: int,
    budget: str,
    seed: int,
) -> tuple[tuple[Kind, ...], Plan]:
    """Return the kinds of things that texts of the command line ask for, and the plan to measure them."""
    kinds = parse_kinds(what)
    wanted = Wanted(
        kinds,
        tuple(collectives) or COLLECTIVES_BY_DEFAULT,
        parse_sizes(sizes),
        tuple(reducers) or REDUCERS,
        trace,
        parse_option("--compute", parse_time_ps, compute) / PS_PER_S,
    )
    budget_s = parse_option("--budget", parse_time_ps, budget) / PS_PER_S
    return kinds, Plan(wanted.tasks, Effort(repeats, budget_s), seed)


def parse_kinds(text: str) -> tuple[Kind, ...]:
    """Return kinds of things by a list of them.

    >>> parse_kinds("collectives, reducers")
    ('collectives', 'reducers')
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in KINDS:
            raise OptionError(f"--what {name!r} is nothing that is measured{nearest(name, KINDS)}")
    return tuple(kind for kind in KINDS if kind in names)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return sizes in bytes: a list, or from the first to the last, each four times the one before.

    >>> parse_sizes("1KiB,3KiB"), parse_sizes("1KiB-16KiB"), parse_sizes("1KiB-10KiB")
    ((1024, 3072), (1024, 4096, 16384), (1024, 4096, 10240))
    """
    first, dash, last = text.partition("-")
    if not dash:
        return tuple(sorted({_size(part) for part in text.split(",")}))
    size, end = _size(first), _size(last)
    if size > end:
        raise OptionError(f"--sizes {text}: the first size is larger than the last; write the smaller one first")
    sizes = []
    while size < end:
        sizes.append(size)
        size *= _STEP
    return (*sizes, end)


def _size(text: str) -> int:
    size = parse_option("--sizes", parse_size_bytes, text.strip())
    if not ITEM_BYTES <= size <= _MOST_BYTES:
        raise OptionError(f"--sizes {text.strip()}: a buffer has {ITEM_BYTES} bytes to 4GiB")
    return size


def _check_reducer(text: str) -> None:
    from s2sim.reducers.registry import make_reducer

    made = make_reducer(text)
    if made.period > 1 or made.settles_after:
        raise OptionError(f"--reducer {text}: what is measured is a step by itself, and its steps are not alike")


def _dense_bytes(trace: str, workers: int) -> int:
    from s2sim.gradients.load import load_trace

    try:
        return ITEM_BYTES * load_trace(trace, workers=workers).gradient(0, 0).size
    except OSError as error:
        raise S2SimError(f"cannot read the trace {trace}: {error.strerror or error}") from None
