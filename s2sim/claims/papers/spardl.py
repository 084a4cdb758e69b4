"""SparDL: 4k words in 2 ceil(log2 P) rounds, for any number of ranks, and less time than all before it."""

from math import ceil, log2

from s2sim.claims.grid import compare_rows, milliseconds, normal_gradient
from s2sim.claims.paper import PaperEffort, PaperPart, PaperTexts, all_within, listed, on_both_bases
from s2sim.experiment.execute import ring_traffic
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.reducers import registry, run, script
from s2sim.simulation.plan import make_plan

_TEXTS = PaperTexts("spardl")
_ELEMENTS, _DENSITY = 100_000, 0.01

_RATES = ("1Gbps", "10Gbps")


def cost(ranks: int) -> tuple[float, int]:
    """Return the words that a rank sends for each element kept, and the rounds, of SparDL without teams.

    >>> cost(4)
    (3.0, 4)
    """
    return 4 * (ranks - 1) / ranks, 2 * ceil(log2(ranks))


def measured_cost(ranks: int) -> tuple[float, int]:
    """Return the same of a real run, an all-gather counted as the Bruck algorithm of ceil(log2 P) rounds."""
    gradients = [normal_gradient([(_ELEMENTS,)], rank) for rank in range(ranks)]
    recording = run.run_reducer(registry.make_reducer(f"spardl:density={_DENSITY}"), gradients, seed=0).recording
    sent, _ = ring_traffic(make_plan(recording).lowered, ranks)
    gathered = ceil(log2(ranks))
    return int(sent.max()) / 4 / (_ELEMENTS * _DENSITY), script.count_rounds(recording).after_gradient - 1 + gathered


def _cost(_effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    counts = (6, 8, 14, 16)
    words, rounds = {}, {}
    for ranks in watched(progress, "messages of SparDL", counts):
        words[ranks], rounds[ranks] = measured_cost(ranks)
    said_words, said_rounds = ({ranks: cost(ranks)[part] for ranks in counts} for part in (0, 1))
    in_words, in_rounds = "{1:.2f}k (P={0})", "{1} (P={0})"
    claims = (
        _TEXTS.claim(
            "words", all_within(words, said_words), published=listed(said_words, in_words), ours=listed(words, in_words)
        ),
        _TEXTS.claim(
            "rounds", rounds == said_rounds, published=listed(said_rounds, in_rounds), ours=listed(rounds, in_rounds)
        ),
    )
    return PaperPart(claims)


def _time(effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    counts = (6, 14) if effort.quick else (6, 8, 14, 32)
    rows, faster, teams = [], [], []
    for ranks in counts:
        for rate in _RATES:
            overrides = (f"nic.rate={rate}", "nic.transport=tcp", "nic.path=staged")
            by_reducer = compare_rows(effort, progress, **_TEXTS.figures["run"], overrides=overrides, workers=(ranks,))
            found = [row.time_s.total for row in by_reducer.values()]
            rows.append((f"{ranks} nodes, {rate}", *map(milliseconds, found)))
            faster.append(min(found[1:-2]) / found[-2])
            teams.append(found[-2] / found[-1])
    over_best = {"low": min(faster), "high": max(faster)}
    claims = (
        _TEXTS.claim("fastest", min(faster) > 1, **over_best),
        _TEXTS.claim("teams", min(teams) > 1, low=min(teams), high=max(teams)),
        _TEXTS.claim("several", "not testable", **over_best),
    )
    return PaperPart(claims, (_TEXTS.table("time", rows),))


PAPER = _TEXTS.paper(_cost, on_both_bases(_time))
