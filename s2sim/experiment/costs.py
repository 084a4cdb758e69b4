"""What a run, collective or import takes, CPU time and memory, as ``benchmarks/costs.py`` fitted in ``costs.toml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from s2sim.errors import S2SimError
from s2sim.files import own_tables
from s2sim.provenance import free_memory_bytes
from s2sim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from s2sim.experiment.scenario.reducers import ReducerScenario

# Less is not worth a line.
_LONG_S, _LARGE_BYTES, _MB = 10.0, 2e9, 1e6
ONCE = ("gradients", "recorded", "scaled")
"""Features of what cells of a sweep share that have one recording."""
_SEARCH = 80  # Replays that find where one reducer pays, of rates and of mini-batches


class Cost(NamedTuple):
    """The CPU time and the memory of a computation."""

    seconds: float
    bytes: float

    @classmethod
    def of_all(cls, costs: Sequence[Cost]) -> Cost:
        """Return the cost of computations one after the other."""
        return cls(sum(cost.seconds for cost in costs), max((cost.bytes for cost in costs), default=0.0))

    def text(self) -> str:
        """Return both for people."""
        return f"about {format_seconds(self.seconds)} of CPU and {format_bytes(self.bytes)} of memory"


class TooLargeError(S2SimError):
    """A computation that needs more memory than there is."""


Gate = Callable[[Cost], None]


def accept_any(_cost: Cost) -> None:
    """Accept any cost without a word."""


def make_gate(say: Callable[[str], None], *, force: bool, less: str = "fewer workers, reducers or parameters") -> Gate:
    """Return a check of a cost: large ones are said first, those beyond free memory refused unless ``force``."""

    def check(cost: Cost) -> None:
        if not force:
            refuse_too_large(cost, f"ask for {less}, or add --force")
        if cost.seconds > _LONG_S or cost.bytes > _LARGE_BYTES:
            say(f"this takes {cost.text()}")

    return check


def refuse_too_large(cost: Cost, advice: str = "ask for fewer workers, reducers or parameters") -> None:
    """Raise `TooLargeError` with an advice for a cost beyond free memory."""
    free = free_memory_bytes()
    if free is not None and cost.bytes > free:
        raise TooLargeError(f"it takes {cost.text()}, and {format_bytes(free)} are free: {advice}")


def run_features(scenario: ReducerScenario, counts: Sequence[int], *, search: bool = False) -> dict[str, float]:
    """Return the features of a comparison of reducers by name; ``search``: also of where they pay."""
    from s2sim.experiment.scenario.reducers import held_bytes
    from s2sim.simulation.faults.fault import straggler_delays

    reducers, held_MB, training = len(scenario.reducers), held_bytes(scenario.trace) / _MB, scenario.training
    tensors = 0 if training is None else len(training.profile.tensors)
    found = {"start": 1.0} | dict.fromkeys(("pairs", "gradients", "recorded", "scaled", "buckets", "unequal"), 0.0)
    for ranks in counts:
        run = sum(few * len(items) for few, items in scenario.by_recorded_ranks(ranks).items())
        found["pairs"] += ranks * reducers / 1e3
        found["gradients"] += ranks * held_MB / 1e3
        found["recorded"] += run * held_MB / 1e3
        found["scaled"] += 0.0 if scenario.target is None and tensors == 0 else run / 1e3
        found["buckets"] += tensors * reducers / 1e3
        slower = np.ones(ranks) if training is None else training.conditions(ranks, 1, scenario.seed).slower
        if any((each != each[..., :1]).any() for each in (slower, *straggler_delays(scenario.faults, ranks))):
            # Each rank is simulated alone.
            replays = reducers + _SEARCH * (search and ranks == max(counts))
            found["unequal"] += replays * slower.size * len(scenario.buckets(ranks)) / 1e6
    return found


def collective_features(kind: str, algorithm: str, ranks: int) -> dict[str, float]:
    """Return the features of one collective by name."""
    return {
        "start": 1.0,
        "ranks": ranks / 1e3,
        "trees": ranks / 1e3 if "tree" in algorithm or algorithm == "auto" else 0.0,
        "exchanges": (ranks / 1e3) ** 2 if kind == "all_to_all" else 0.0,
        # All pairs at once, where they do not go in turns.
        "at_once": (ranks / 1e3) ** 2 if kind == "all_to_all" and not algorithm.startswith("pairwise") else 0.0,
    }


def import_features(paths: Sequence[str]) -> dict[str, float]:
    """Return the features of an import of files of gradients by name; what cannot be read counts nothing."""
    from s2sim.gradients.import_trace import begins_right

    sizes_MB = [path.stat().st_size / _MB for path in map(Path, paths) if path.is_file() and begins_right(path)]
    return {"start": 1.0, "largest": max(sizes_MB, default=0.0) / 1e3, "files": sum(sizes_MB) / 1e3}


def cost_of(what: str, features: Mapping[str, float], seconds: str = "cpu_s") -> Cost:
    """Return the cost of a ``run``, ``collective`` or ``import`` of some features; of a cell of a sweep ``cell_s``."""
    table = own_tables(__file__, "costs.toml")[what]
    return Cost(*(sum(table[each][name] * value for name, value in features.items()) for each in (seconds, "bytes")))


def run_cost(scenario: ReducerScenario, counts: Sequence[int], *, search: bool = False) -> Cost:
    """Return the cost of a comparison of reducers on some numbers of ranks; ``search``: also of where they pay."""
    return cost_of("run", run_features(scenario, counts, search=search))
