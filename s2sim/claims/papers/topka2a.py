"""TopKA2A: 1.73 times as fast as DDP on 32 GPUs, between two densities."""

from collections.abc import Callable
from functools import partial

import numpy as np

from s2sim.claims import grid, paper
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.reducers.run import reduce_once

_TEXTS = paper.PaperTexts("topka2a")
PUBLISHED_LEAST = dict(_TEXTS.figures["least"])
PUBLISHED_MOST = 0.5
_ELEMENTS = 1000

_REDUCERS = ("dense", *(f"topka2a:density={density}" for density in (0.02, 0.05, 0.1)))
_MODELS, _RATES = _TEXTS.figures["models"], _TEXTS.figures["rates"]
_BEST = 1.73


def sent_bytes(reducer: str, ranks: int) -> int:
    """Return the bytes that the busiest rank sends of a thousand elements per rank."""
    return max(reduce_once(reducer, [np.ones(_ELEMENTS * ranks, np.float32)] * ranks).bytes_sent)


def crossing(sends_less: Callable[[float], bool], low: float, high: float) -> float:
    """Return the density, to 1 %, from which on something holds that does not at ``low``, and does at ``high``.

    >>> round(crossing(lambda density: density > 0.25, 0.0, 1.0), 2)
    0.25
    """
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if sends_less(middle) else (middle, high)
    return (low + high) / 2


def _thresholds(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    def less_than_pairs(density: float, ranks: int) -> bool:
        own, pairs = (sent_bytes(f"{name}:density={density:.6f}", ranks) for name in ("topka2a", "topk"))
        return own < pairs

    counts = [ranks for ranks in PUBLISHED_LEAST if not effort.quick or ranks <= 32]
    least = {
        ranks: crossing(partial(less_than_pairs, ranks=ranks), PUBLISHED_LEAST[ranks] / 2, 2 * PUBLISHED_LEAST[ranks])
        for ranks in watched(progress, "bytes of TopKA2A, gathered pairs and dense", counts)
    }
    dense = sent_bytes("dense", 8)
    most = crossing(lambda density: sent_bytes(f"topka2a:density={density:.6f}", 8) >= dense, 0.3, 0.7)
    published = {ranks: PUBLISHED_LEAST[ranks] for ranks in counts}
    texts = {"published": paper.listed(published, "{1:g} (P={0})"), "ours": paper.listed(least, "{1:.4g} (P={0})")}
    claims = (
        _TEXTS.claim("least", paper.all_within(least, published), **texts),
        _TEXTS.figure("most", PUBLISHED_MOST, most),
    )
    return paper.PaperPart(claims)


def _speed(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    places = [grid.ClusterSetting(name, "tcp-10g", tuple(fields)) for name, fields in _RATES.items()]
    disciplines = ("ddp",) if effort.quick else ("ddp", "topka2a")
    progress.start(len(_MODELS) * len(places) * len(disciplines), "iterations of 32 GPUs")
    found: dict[str, list[grid.SettingGain]] = {model: [] for model in _MODELS}
    for discipline in disciplines:
        recorder = grid.GridRecorder(_REDUCERS, 32, discipline, effort)
        for model, (_, batches, _) in _MODELS.items():
            for place in places:
                for batch in batches:
                    found[model] += recorder.gains(model, place, batch)
                progress.advance()
    slow = {model: [gain for gain in gains if gain.cluster == "10 GbE"] for model, gains in found.items()}
    best = max((gain for gains in slow.values() for gain in gains), key=lambda gain: gain.speedup)
    rows = []
    for gain in (gain for gains in found.values() for gain in gains):
        setting = f"{_MODELS[gain.model][0]}, batch {gain.batch}", gain.cluster, gain.reducer.partition("=")[2]
        rows.append((*setting, f"{1e3 * gain.dense_s:.0f} ms", f"{1e3 * gain.time_s:.0f} ms", f"{gain.speedup:.2f}x"))
    which = {"model": _MODELS[best.model][0], "batch": best.batch, "kept": best.reducer.partition("=")[2]}
    setups, judged = sum(map(len, slow.values())), paper.judge_within(best.speedup, _BEST)
    claims = [_TEXTS.claim("best", judged, published=_BEST, ours=best.speedup, setups=setups, **which)]
    for model, (name, _, published) in _MODELS.items():
        speedups = [gain.speedup for gain in slow[model]]
        span = {"low": min(speedups), "high": max(speedups), "published": published, "more": published - 1}
        claims.append(_TEXTS.claim("model", paper.judge_in_range(speedups, published), model=name, **span))
    fast = [gain.speedup for gains in found.values() for gain in gains if gain.cluster != "10 GbE"]
    orders = " and as with ".join(disciplines)
    setup = (_TEXTS.line("fast", low=min(fast), high=max(fast)), _TEXTS.line("orders", orders=orders))
    return paper.PaperPart(tuple(claims), (_TEXTS.table("speed", rows),), (), setup)


PAPER = _TEXTS.paper(_thresholds, paper.on_both_bases(_speed))
