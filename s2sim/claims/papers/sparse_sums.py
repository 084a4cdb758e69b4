"""Papers of sums of sparse gradients, by words, rounds and time: gTop-k, Ok-Topk, SparDL and TopKA2A."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import ceil, log2

import numpy as np

from s2sim.claims import grid, paper
from s2sim.experiment.execute import ring_traffic
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once, run_reducer
from s2sim.reducers.script import Recording, count_rounds
from s2sim.simulation.plan import make_plan

_GTOPK, _OK_TOPK = paper.PaperTexts("gtopk"), paper.PaperTexts("ok-topk")
_SPARDL, _TOPKA2A = paper.PaperTexts("spardl"), paper.PaperTexts("topka2a")
_ELEMENTS, _DENSITY = 100_000, 0.01
_BY_RANKS = "{1} (P={0})"


def _record(reducer: str, ranks: int, elements: int) -> Recording:
    gradients = [grid.normal_gradient([(elements,)], rank) for rank in range(ranks)]
    return run_reducer(make_reducer(reducer), gradients, seed=0).recording


@dataclass(frozen=True, slots=True)
class PublishedThroughput:
    """A model as it was measured with gTop-k: samples a second of a worker, alone and among 32 with each method."""

    batch: int
    size: dict[str, str]
    alone: float
    among: dict[str, float]

    @property
    def compute_s(self) -> float:
        """Seconds of forward and backward, which a worker alone takes."""
        return self.batch / self.alone


MEASURED = {name: PublishedThroughput(**measured) for name, measured in _GTOPK.figures["models"].items()}
_METHODS = _DENSE_SUM, _PAIRS, _TREE = "dense", "topk:density=0.001", "gtopk:density=0.001"


def tree_rounds(ranks: int) -> int:
    """Return how many messages follow one another up gTop-k's tree, its broadcast left out, from a real run.

    >>> tree_rounds(8)
    3
    """
    return count_rounds(_record(_TREE, ranks, 1000)).after_gradient - 1


def _gtopk_growth(_effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    found = {ranks: tree_rounds(ranks) for ranks in watched(progress, "rounds of gTop-k", (4, 8, 16, 32))}
    published = paper.listed({ranks: log2(ranks) for ranks in found}, "{1:.0f} (P={0})")
    as_many = all(rounds == log2(ranks) for ranks, rounds in found.items())
    return paper.PaperPart((_GTOPK.claim("rounds", as_many, published=published, ours=paper.listed(found, _BY_RANKS)),))


@paper.on_both_bases
def _gtopk_speed(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    claims, rows = [], []
    ours: dict[str, dict[str, float]] = {}
    for name, measured in MEASURED.items():
        compute = f"{1e3 * measured.compute_s:.3f}ms"
        run = {**_GTOPK.figures["run"], **measured.size, "reducers": _METHODS, "compute": compute}
        found = grid.compare_rows(effort, progress, **run)
        for option in _METHODS:
            time_s, published = found[option].iteration_s or 0.0, measured.among[option]
            ours.setdefault(name, {})[option] = measured.batch / time_s
            exchanges = (grid.milliseconds(each - measured.compute_s) for each in (measured.batch / published, time_s))
            rows.append((name, option, f"{published:.4g}", f"{ours[name][option]:.4g}", *exchanges))
    for against, label, said in ((_DENSE_SUM, "dense", "2.7 to 12 times"), (_PAIRS, "top-k", "1.1 to 1.7 times")):
        for name, measured in MEASURED.items():
            published, own = (by[_TREE] / by[against] for by in (measured.among, ours[name]))
            own_s, theirs_s = (
                [measured.batch / by[each] - measured.compute_s for each in (_TREE, against)]
                for by in (ours[name], measured.among)
            )
            reason = _GTOPK.line("host-resnet" if name == "ResNet-50" else "host")
            figures = {"model": name, "label": label, "said": said, "method": against.partition(":")[0]}
            spent = {"own_s": own_s[1], "theirs_s": theirs_s[1], "reason": reason}
            claims.append(_GTOPK.figure("ratio", published, own, zip(own_s, theirs_s, strict=True), **figures, **spent))
    order = all(each[_TREE] > each[_PAIRS] > each[_DENSE_SUM] for each in ours.values())
    claims.append(_GTOPK.claim("order", order, ours="in all models" if order else "not in all models"))
    claims.append(_GTOPK.figure("throughput", MEASURED["VGG-16"].among[_DENSE_SUM], ours["VGG-16"][_DENSE_SUM]))
    return paper.PaperPart(tuple(claims), (_GTOPK.table("speed", rows),))


MAX_WORDS, MIN_WORDS = 6, 2
"""Words a kept element that Ok-Topk sends at most, and that any all-reduce of pairs sends at least, times (P-1)/P."""
_SUMS = ("dense", "topk:density=0.01", "gtopk:density=0.01", "sparcml:density=0.01", "ok-topk:density=0.01")
_NOTICED = 0.01


def words_sent(reducer: str, ranks: int, *, skewed: bool) -> float:
    """Return the busiest rank's words per kept element over (P-1)/P, of gradients that are normal, or ``skewed``."""
    fade = np.linspace(3, 0.1, _ELEMENTS, dtype=np.float32) ** 2 if skewed else np.ones(_ELEMENTS, np.float32)
    arrays = [np.random.default_rng(rank).standard_normal(_ELEMENTS, np.float32) * fade for rank in range(ranks)]
    kept = _ELEMENTS * _DENSITY
    return max(reduce_once(f"{reducer}:density={_DENSITY}", arrays).bytes_sent) / 4 / kept * ranks / (ranks - 1)


def _ok_topk_volume(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    counts = (8, 16, 32, 64) if effort.quick else (8, 16, 32, 64, 128, 256)
    names = ("ok-topk", "spardl", "topk")
    found = {
        (name, ranks): (words_sent(name, ranks, skewed=False), words_sent(name, ranks, skewed=True))
        for name, ranks in watched(progress, "words that Ok-Topk and others send", [*product(names, counts)])
    }
    own = [value for (name, _), values in found.items() if name == "ok-topk" for value in values]
    low, high, first, last = min(own), max(own), counts[0], counts[-1]
    growth, ours = (max(found[name, last]) / max(found[name, first]) for name in ("topk", "ok-topk"))
    bounds = {"least": MIN_WORDS, "most": MAX_WORDS, "low": low, "high": high, "first": first, "last": last}
    claims = (
        _OK_TOPK.claim("words", low >= MIN_WORDS and high < MAX_WORDS, **bounds),
        _OK_TOPK.claim("growth", ours < last / first / 4 < growth, first=first, last=last, own=ours, pairs=growth),
    )
    rows = tuple(
        (name, *(f"{found[name, ranks][0]:.2f}k / {found[name, ranks][1]:.2f}k" for ranks in counts)) for name in names
    )
    columns = ("words over (P-1)/P, even / uneven", *(f"P={ranks}" for ranks in counts))
    return paper.PaperPart(claims, (paper.Table("What the busiest rank sends", columns, rows),))


@paper.on_both_bases
def _ok_topk_speed(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    counts = (32,) if effort.quick else (16, 32, 64)
    node = "node.gpus=1", "nic.count=1", "nic.path=staged"
    # Of one node's interface; what MPI gets of it is not public.
    rates = "40Gbps", "80Gbps"
    places = [grid.ClusterSetting(rate, "dragonfly", (*node, f"nic.rate={rate}"), "p100-pcie") for rate in rates]
    progress.start(len(counts) * len(places), "iterations of BERT-base on a dragonfly")
    rows = []
    over: dict[str, list[float]] = {}
    for ranks in counts:
        recorder = grid.GridRecorder(_SUMS, ranks, "after-backward", effort)
        for place in places:
            gains = recorder.gains("bert-base", place, 8)
            times_s = {"dense": gains[0].dense_s, **{gain.reducer: gain.time_s for gain in gains}}
            for name in _SUMS[:-1]:
                over.setdefault(name, []).append(times_s[name] / times_s[_SUMS[-1]])
            rows.append((f"{ranks} GPUs, {place.name}", *(f"{1e3 * seconds:.0f} ms" for seconds in times_s.values())))
            progress.advance()
    every = [value for values in over.values() for value in values]
    spans = {name.partition(":")[0]: f"{min(values):.2f}x to {max(values):.2f}x" for name, values in over.items()}
    claims = (
        _OK_TOPK.claim("bert", "not testable", low=min(every), high=max(every), counts=" and ".join(map(str, counts))),
        _OK_TOPK.claim("fastest", min(every) > 1 + _NOTICED, ours=paper.listed(spans, "{0} {1}"), noticed=_NOTICED),
    )
    return paper.PaperPart(claims, (_OK_TOPK.table("bert", rows),))


def cost(ranks: int) -> tuple[float, int]:
    """Return the words that a rank sends for each element kept, and the rounds, of SparDL without teams.

    >>> cost(4)
    (3.0, 4)
    """
    return 4 * (ranks - 1) / ranks, 2 * ceil(log2(ranks))


def measured_cost(ranks: int) -> tuple[float, int]:
    """Return the same of a real run, an all-gather counted as the Bruck algorithm of ceil(log2 P) rounds."""
    recording = _record(f"spardl:density={_DENSITY}", ranks, _ELEMENTS)
    sent, _ = ring_traffic(make_plan(recording).lowered, ranks)
    return int(sent.max()) / 4 / (_ELEMENTS * _DENSITY), count_rounds(recording).after_gradient - 1 + ceil(log2(ranks))


def _spardl_cost(_effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    counts = (6, 8, 14, 16)
    found = {ranks: measured_cost(ranks) for ranks in watched(progress, "messages of SparDL", counts)}
    words, rounds = ({ranks: each[part] for ranks, each in found.items()} for part in (0, 1))
    said_words, said_rounds = ({ranks: cost(ranks)[part] for ranks in counts} for part in (0, 1))
    texts = [
        {"published": paper.listed(said, form), "ours": paper.listed(own, form)}
        for said, own, form in ((said_words, words, "{1:.2f}k (P={0})"), (said_rounds, rounds, _BY_RANKS))
    ]
    same_words = paper.all_within(words, said_words)
    return paper.PaperPart(
        (_SPARDL.claim("words", same_words, **texts[0]), _SPARDL.claim("rounds", rounds == said_rounds, **texts[1]))
    )


@paper.on_both_bases
def _spardl_time(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    rows, faster, teams = [], [], []
    for ranks, rate in product((6, 14) if effort.quick else (6, 8, 14, 32), ("1Gbps", "10Gbps")):
        fields = {"overrides": (f"nic.rate={rate}", "nic.transport=tcp", "nic.path=staged"), "workers": (ranks,)}
        by_reducer = grid.compare_rows(effort, progress, **_SPARDL.figures["run"], **fields)
        found = [row.time_s.total for row in by_reducer.values()]
        rows.append((f"{ranks} nodes, {rate}", *map(grid.milliseconds, found)))
        faster.append(min(found[1:-2]) / found[-2])
        teams.append(found[-2] / found[-1])
    claims = (
        _SPARDL.claim("fastest", min(faster) > 1, low=min(faster), high=max(faster)),
        _SPARDL.claim("teams", min(teams) > 1, low=min(teams), high=max(teams)),
        _SPARDL.claim("several", "not testable", low=min(faster), high=max(faster)),
    )
    return paper.PaperPart(claims, (_SPARDL.table("time", rows),))


PUBLISHED_LEAST = dict(_TOPKA2A.figures["least"])
PUBLISHED_MOST = 0.5
_MODELS, _RATES = _TOPKA2A.figures["models"], _TOPKA2A.figures["rates"]
_BEST = 1.73


def sent_bytes(reducer: str, ranks: int) -> int:
    """Return the bytes that the busiest rank sends of a thousand elements per rank."""
    return max(reduce_once(reducer, [np.ones(1000 * ranks, np.float32)] * ranks).bytes_sent)


def crossing(sends_less: Callable[[float], bool], low: float, high: float) -> float:
    """Return the density, to 1 %, from which on something holds that does not at ``low``, and does at ``high``.

    >>> round(crossing(lambda density: density > 0.25, 0.0, 1.0), 2)
    0.25
    """
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if sends_less(middle) else (middle, high)
    return (low + high) / 2


def _topka2a_thresholds(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    def less_than_pairs(density: float, ranks: int) -> bool:
        own, pairs = (sent_bytes(f"{name}:density={density:.6f}", ranks) for name in ("topka2a", "topk"))
        return own < pairs

    published = {ranks: least for ranks, least in PUBLISHED_LEAST.items() if not effort.quick or ranks <= 32}
    least = {
        ranks: crossing(partial(less_than_pairs, ranks=ranks), said / 2, 2 * said)
        for ranks, said in watched(progress, "bytes of TopKA2A, gathered pairs and dense", published.items())
    }
    dense = sent_bytes("dense", 8)
    most = crossing(lambda density: sent_bytes(f"topka2a:density={density:.6f}", 8) >= dense, 0.3, 0.7)
    texts = {"published": paper.listed(published, "{1:g} (P={0})"), "ours": paper.listed(least, "{1:.4g} (P={0})")}
    as_published = _TOPKA2A.claim("least", paper.all_within(least, published), **texts)
    return paper.PaperPart((as_published, _TOPKA2A.figure("most", PUBLISHED_MOST, most)))


@paper.on_both_bases
def _topka2a_speed(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    reducers = ("dense", *(f"topka2a:density={density}" for density in (0.02, 0.05, 0.1)))
    places = [grid.ClusterSetting(name, "tcp-10g", tuple(fields)) for name, fields in _RATES.items()]
    disciplines = ("ddp",) if effort.quick else ("ddp", "topka2a")
    progress.start(len(_MODELS) * len(places) * len(disciplines), "iterations of 32 GPUs")
    found: dict[str, list[grid.SettingGain]] = {model: [] for model in _MODELS}
    for discipline in disciplines:
        recorder = grid.GridRecorder(reducers, 32, discipline, effort)
        for model, (_, batches, _) in _MODELS.items():
            for place in places:
                for batch in batches:
                    found[model] += recorder.gains(model, place, batch)
                progress.advance()
    every = [gain for gains in found.values() for gain in gains]
    slow = {model: [gain for gain in gains if gain.cluster == "10 GbE"] for model, gains in found.items()}
    best = max((gain for gains in slow.values() for gain in gains), key=lambda gain: gain.speedup)
    rows = []
    for gain in every:
        setting = f"{_MODELS[gain.model][0]}, batch {gain.batch}", gain.cluster, gain.reducer.partition("=")[2]
        rows.append((*setting, f"{1e3 * gain.dense_s:.0f} ms", f"{1e3 * gain.time_s:.0f} ms", f"{gain.speedup:.2f}x"))
    which = {"model": _MODELS[best.model][0], "batch": best.batch, "kept": best.reducer.partition("=")[2]}
    setups, judged = sum(map(len, slow.values())), paper.judge_within(best.speedup, _BEST)
    claims = [_TOPKA2A.claim("best", judged, published=_BEST, ours=best.speedup, setups=setups, **which)]
    for model, (name, _, published) in _MODELS.items():
        speedups = [gain.speedup for gain in slow[model]]
        figures = {"low": min(speedups), "high": max(speedups), "published": published, "more": published - 1}
        claims.append(_TOPKA2A.claim("model", paper.judge_within(max(speedups), published), model=name, **figures))
    fast = [gain.speedup for gain in every if gain.cluster != "10 GbE"]
    orders = " and as with ".join(disciplines)
    setup = (_TOPKA2A.line("fast", low=min(fast), high=max(fast)), _TOPKA2A.line("orders", orders=orders))
    return paper.PaperPart(tuple(claims), (_TOPKA2A.table("speed", rows),), (), setup)


GTOPK = _GTOPK.paper(_gtopk_growth, _gtopk_speed)
OK_TOPK = _OK_TOPK.paper(_ok_topk_volume, _ok_topk_speed)
SPARDL = _SPARDL.paper(_spardl_cost, _spardl_time)
TOPKA2A = _TOPKA2A.paper(_topka2a_thresholds, _topka2a_speed)
