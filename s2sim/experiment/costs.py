"""What a run, collective or import takes, CPU time and memory, as ``benchmarks/costs.py`` fitted in ``costs.toml``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from s2sim.errors import S2SimError
from s2sim.files import own_tables
from s2sim.provenance import free_memory_bytes
from s2sim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from s2sim.experiment.scenario.reducers import ReducerScenario
    from s2sim.experiment.scenario.training import TrainingIteration

# Less is not worth a line.
_LONG_S, _LARGE_BYTES, _MB = 10.0, 2e9, 1e6
ONCE = ("gradients", "recorded", "checks", "layers", "widest", "steps", "layer_steps")
"""Features of what cells of a sweep share that have one recording."""
_SEARCH = 30  # Replays that find where one reducer pays, of rates and of mini-batches
_ALWAYS = 3  # At the ends of estimated constants too
_NAMED = 2  # Reducers that a verdict names, which alone are looked for unless all are


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


def run_features(
    scenario: ReducerScenario, counts: Sequence[int], *, search: bool = False, thorough: bool = False
) -> dict[str, float]:
    """Return the features of a comparison by name; ``search``: also of where all pay if ``thorough``, or some do."""
    from s2sim.experiment.scenario.reducers import held_bytes
    from s2sim.gradients.models import Model
    from s2sim.reducers.systems.dense import summed_dtype

    reducers, held_MB, training = len(scenario.reducers), held_bytes(scenario.trace) / _MB, scenario.training
    tensors = 0 if training is None else len(training.profile.tensors)
    layers = len(scenario.target.layers) if isinstance(scenario.target, Model) else tensors
    others = (*ONCE, "buckets", "replayed", "unequal", "contended")
    found = {"start": 1.0, "reducers": 1.0 * reducers * len(counts)} | dict.fromkeys(others, 0.0)
    for ranks in counts:
        found["gradients"] += ranks * held_MB / 1e3
        for few, item in ((few, item) for few, items in scenario.by_recorded_ranks(ranks).items() for item in items):
            found["recorded"] += few * held_MB / 1e3
            found["steps"] += few * (item.reducer.period - 1) / 1e3
            found["layer_steps"] += few * (item.reducer.period - 1) * layers / 1e6
            if summed_dtype(item.reducer) is None:
                # Of layers with other sizes, which a sum of all takes as one.
                found["checks"] += bool(layers) / 1e3
                found["layers"] += few * layers / 1e6
                found["widest"] = max(found["widest"], few * layers / 1e6)
        found["buckets"] += tensors * reducers / 1e3
        if training is not None:
            searched = (reducers if thorough else _NAMED) if search and ranks == max(counts) else 0
            for name, exchanges in _replayed_exchanges(scenario, training, ranks, searched):
                found[name] += exchanges / 1e6
    return found


def _replayed_exchanges(
    scenario: ReducerScenario, training: TrainingIteration, ranks: int, searched: int
) -> Iterator[tuple[str, float]]:
    """Yield the feature and the exchanges of each reducer's replays; more where so many are ``searched`` for rates."""
    from s2sim.reducers.rank import Reducer
    from s2sim.reducers.systems.dense import summed_dtype
    from s2sim.reducers.wrappers.wrapper import Wrapper, unwrap_all
    from s2sim.simulation.bucketing.sharded import ShardedDiscipline
    from s2sim.simulation.faults.fault import straggler_delays

    slower, discipline = training.conditions(ranks, 1, scenario.seed).slower, training.discipline
    unequal = any((each != each[..., :1]).any() for each in (slower, *straggler_delays(scenario.faults, ranks)))
    sharded, in_groups, exchanges = False, False, len(scenario.buckets(ranks)) * len(slower)
    if isinstance(discipline, ShardedDiscipline):
        sharded, exchanges = True, exchanges * (1 + 2 * training.accumulate)  # With all-gathers of parameters
        in_groups = bool(discipline.groups(scenario.healthy(ranks).node_of_rank.tolist()))
    others = max(1, len(scenario.reducers) - 1)
    for item in scenario.reducers:
        share = min(1.0, searched if item.reducer.traits.baseline else searched / others)
        # Groups of ranks that exchange beside collectives of all ranks share links with these.
        placed = any(type(each).placed not in (Reducer.placed, Wrapper.placed) for each in unwrap_all(item.reducer))
        beside = placed or (in_groups and summed_dtype(item.reducer) is None)
        # One rank stands for all unless they compute or send unequally, or share links.
        name = "contended" if sharded and beside else "unequal" if unequal or not item.reducer.size_only else "replayed"
        yield name, (_ALWAYS + _SEARCH * share) * exchanges * (1 if name == "replayed" else ranks)


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


def run_cost(scenario: ReducerScenario, counts: Sequence[int], *, search: bool = False, thorough: bool = False) -> Cost:
    """Return the cost of a comparison of reducers on some numbers of ranks; see `run_features`."""
    return cost_of("run", run_features(scenario, counts, search=search, thorough=thorough))
