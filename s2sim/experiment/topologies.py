"""The same question on several clusters: which is fastest, and which is cheapest where prices are known."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from s2sim.errors import OptionError
from s2sim.experiment.choice import WORTHWHILE
from s2sim.experiment.cluster_spec import accept_fields_of
from s2sim.experiment.costs import Cost, Gate, accept_any, run_cost
from s2sim.experiment.json_form import MayBeInfinite, ResultForm
from s2sim.experiment.progress import ProgressWatcher
from s2sim.experiment.rows import Result, Row
from s2sim.experiment.run import run, spec_of
from s2sim.experiment.scenario.reducers import resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.units import format_money, format_seconds


@dataclass(frozen=True, slots=True)
class TopologyRow:
    """The answer on one topology with one number of workers."""

    topology: str  # As it was given
    workers: int  # Ranks
    decision: str  # Of the verdict there
    best: str  # Option string of what to use there; ``dense`` where nothing is to be compressed
    # dense_s, time_s: of dense and of ``best``: the communication phase or, where compute was given, the iteration
    dense_s: float
    time_s: float
    speedup: MayBeInfinite  # Of ``best`` over dense
    samples_per_s: float | None  # With ``best``, of all workers; None where the mini-batch is not known
    samples: int | None  # Of all workers in an iteration
    # per_hour, currency: what the cluster costs for an hour; None where the topology states no price
    per_hour: float | None
    currency: str | None
    # With ``best``: of 1,000 exchanges or iterations; of a million samples, where the mini-batch is known
    cost_of_1000: float | None
    cost_of_million_samples: float | None

    @property
    def name(self) -> str:
        """The topology; of a file its name without folder and ending."""
        return topology_name(self.topology)

    @property
    def cost(self) -> float | None:
        """What the same work costs on all: a million samples or, where mini-batches are not known, 1,000 steps."""
        return self.cost_of_1000 if self.samples_per_s is None else self.cost_of_million_samples

    @property
    def compared_s(self) -> float:
        """Seconds of the same work on all: of a sample or, where mini-batches are not known, of a step."""
        return 1 / self.samples_per_s if self.samples_per_s else self.time_s


@dataclass(frozen=True, slots=True, repr=False)
class TopologiesResult(ResultForm):
    """What `s2sim.run_topologies` returns."""

    spec: RunSpec  # What was computed; its topology has all names between commas
    lines: tuple[str, ...]  # Which is fastest with the largest number of workers, and which is cheapest
    topologies: tuple[TopologyRow, ...]  # One a topology and number of workers
    results: tuple[Result, ...]  # What `s2sim.run` gives on each

    @property
    def interrupted(self) -> bool:
        """Whether somebody did not want to wait for all of it."""
        return len(self.results) < len(self.spec.topologies) or any(each.interrupted for each in self.results)


@accept_fields_of(RunSpec)
def run_topologies(
    topology: str | Sequence[str] | None = None,
    *,
    spec: RunSpec | None = None,
    progress: ProgressWatcher | None = None,
    break_even: bool = False,
    thorough: bool = False,
    gate: Gate = accept_any,
    **options: Any,
) -> TopologiesResult:
    """Compare gradient reducers on several clusters; arguments are those of `s2sim.run`.

    ``topology`` has names of shipped topologies or paths of TOML files, as a sequence or as a text of them between
    commas. The result is a row a topology, which is fastest and cheapest, and the whole result of each; after Ctrl-C of
    those that were finished. `S2SimError` if the experiment cannot be run as given on one of them.
    """
    names = topology if topology is None or isinstance(topology, str) else ",".join(topology)
    spec = spec_of(names, options.pop("workers", None), options.pop("reducers", None), spec, options)
    each = [replace(spec, topology=name) for name in spec.topologies]
    if len({one.topology for one in each}) < len(each):
        raise OptionError(f"--topology {spec.topology}: a topology stands there twice")
    # What is wrong with one is refused before anything runs.
    gate(Cost.of_all([run_cost(resolve_run(one), one.workers, search=break_even, thorough=thorough) for one in each]))
    results: list[Result] = []
    try:
        for one in each:
            results.append(run(spec=one, progress=progress, break_even=break_even, thorough=thorough))
            if results[-1].interrupted:
                break
    except KeyboardInterrupt:
        if not results:
            raise
    rows = tuple(row for result in results for row in _rows(result))
    largest = [row for row in rows if row.workers == max(row.workers for row in rows)]
    return TopologiesResult(spec, tuple(_lines(largest, results[0].results[0])), rows, tuple(results))


def _rows(result: Result) -> list[TopologyRow]:
    rows = []
    for place, verdict in enumerate(result.verdicts):
        beside = {row.reducer: row for row in result.results if row.workers == verdict.workers}
        best, dense = beside[verdict.best], next(row for row in beside.values() if row.baseline)
        time_s, rate = best.judged.time_s, None if best.iteration is None else best.iteration.samples_per_s
        price = result.prices[place] if result.prices else None
        rows.append(
            TopologyRow(
                topology=result.spec.topology,
                workers=verdict.workers,
                decision=verdict.decision,
                best=verdict.best,
                dense_s=dense.judged.time_s,
                time_s=time_s,
                speedup=best.judged.speedup,
                samples_per_s=rate,
                samples=None if rate is None else round(rate * time_s),
                per_hour=None if price is None else price.per_hour,
                currency=None if price is None else price.currency,
                cost_of_1000=None if price is None else price.of_steps(time_s),
                cost_of_million_samples=None if price is None or not rate else price.of(1_000_000 / rate),
            )
        )
    return rows


def _lines(rows: Sequence[TopologyRow], first: Row) -> list[str]:
    """Return which topology is fastest, which is cheapest, and what stands in the way of comparing them."""
    scope = "communication" if first.time_s.iteration is None else "an iteration"
    fastest, *others = sorted(rows, key=lambda row: row.compared_s)
    rate = "" if fastest.samples_per_s is None else f"{fastest.samples_per_s:,.0f} samples/s, "
    lines = [f"{fastest.name} is fastest: {rate}{scope} takes {format_seconds(fastest.time_s)} with {fastest.best}"]
    if others:
        how = "as long" if len({row.samples for row in rows}) == 1 else "as long for each sample"
        lines[0] += _follows(others[0], others[0].compared_s, fastest.compared_s, "takes", how)
    priced = sorted((row for row in rows if row.cost is not None), key=lambda row: row.cost or 0.0)
    currencies = sorted({str(row.currency) for row in priced})
    if len(currencies) > 1:
        lines.append(f"Prices are in {' and '.join(currencies)}, which are not converted")
    elif len(priced) > 1:
        cheapest, second = priced[:2]
        of = " of those with a price" if len(priced) < len(rows) else ""
        cost = format_money(cheapest.cost or 0.0, str(cheapest.currency))
        lines.append(
            f"{cheapest.name} is cheapest{of}: {cost} for {cost_unit(first)} with {cheapest.best}"
            f"{_follows(second, second.cost or 0.0, cheapest.cost or 0.0, 'costs', 'as much')}"
        )
    if len({row.samples for row in rows}) > 1:
        each = ", ".join(f"{row.samples:,} on {row.name}" for row in rows)
        lines.append(f"Samples an iteration differ: {each}; --batch sets one for all")
    return [f"{line}." for line in lines]


def _follows(row: TopologyRow, value: float, least: float, verb: str, how: str) -> str:
    if value <= WORTHWHILE * least:
        return f", and {row.name} within 1 % of that"
    return f"; {row.name} {verb} {f'{value / least:.2f}x' if least else 'many times'} {how}"


def topology_name(topology: str) -> str:
    """Return a topology in short.

    >>> topology_name("dgx-h100"), topology_name("/clusters/ours.toml")
    ('dgx-h100', 'ours')
    """
    return Path(topology).name.removesuffix(".toml")


def cost_unit(row: Row) -> str:
    """Return what the cost on a topology is of, with one of the reducers there."""
    if row.iteration is not None and row.iteration.samples_per_s is not None:
        return "a million samples"
    return "1,000 exchanges" if row.time_s.iteration is None else "1,000 iterations"
