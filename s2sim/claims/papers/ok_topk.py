"""Ok-Topk: fewer than 6k words whatever the number of ranks, and 3.29 to 12.95 times faster on 256 GPUs."""

from itertools import product

import numpy as np

from s2sim.claims.grid import ClusterSetting, GridRecorder
from s2sim.claims.paper import PaperEffort, PaperPart, PaperTexts, Table, listed, on_both_bases
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.reducers.run import reduce_once

_TEXTS = PaperTexts("ok-topk")
MAX_WORDS, MIN_WORDS = 6, 2
"""Words a kept element that Ok-Topk sends at most, and that any all-reduce of pairs sends at least, times (P-1)/P."""
_ELEMENTS, _DENSITY = 100_000, 0.01
_REDUCERS = ("dense", "topk:density=0.01", "gtopk:density=0.01", "sparcml:density=0.01", "ok-topk:density=0.01")
_OURS = _REDUCERS[-1]
_NOTICED = 0.01


def words_sent(reducer: str, ranks: int, *, skewed: bool) -> float:
    """Return the busiest rank's words per kept element over (P-1)/P, of gradients that are normal, or ``skewed``."""
    fade = np.linspace(3, 0.1, _ELEMENTS, dtype=np.float32) ** 2 if skewed else np.ones(_ELEMENTS, np.float32)
    arrays = [np.random.default_rng(rank).standard_normal(_ELEMENTS, np.float32) * fade for rank in range(ranks)]
    kept = _ELEMENTS * _DENSITY
    return max(reduce_once(f"{reducer}:density={_DENSITY}", arrays).bytes_sent) / 4 / kept * ranks / (ranks - 1)


def _volume(effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    counts = (8, 16, 32, 64) if effort.quick else (8, 16, 32, 64, 128, 256)
    names = ("ok-topk", "spardl", "topk")
    found = {
        (name, ranks): (words_sent(name, ranks, skewed=False), words_sent(name, ranks, skewed=True))
        for name, ranks in watched(progress, "words that Ok-Topk and others send", [*product(names, counts)])
    }
    own = [value for (name, _), values in found.items() if name == "ok-topk" for value in values]
    growth = max(found["topk", counts[-1]]) / max(found["topk", counts[0]])
    ours = max(found["ok-topk", counts[-1]]) / max(found["ok-topk", counts[0]])
    low, high, first, last = min(own), max(own), counts[0], counts[-1]
    bounds = {"least": MIN_WORDS, "most": MAX_WORDS, "low": low, "high": high, "first": first, "last": last}
    claims = (
        _TEXTS.claim("words", low >= MIN_WORDS and high < MAX_WORDS, **bounds),
        _TEXTS.claim("growth", ours < last / first / 4 < growth, first=first, last=last, own=ours, pairs=growth),
    )
    rows = tuple(
        (name, *(f"{found[name, ranks][0]:.2f}k / {found[name, ranks][1]:.2f}k" for ranks in counts)) for name in names
    )
    columns = ("words over (P-1)/P, even / uneven", *(f"P={ranks}" for ranks in counts))
    return PaperPart(claims, (Table("What the busiest rank sends", columns, rows),))


def _speed(effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    counts = (32,) if effort.quick else (16, 32, 64)
    node = "node.gpus=1", "nic.count=1", "nic.path=staged"
    # Of one node's interface; what MPI gets of it is not public.
    rates = "40Gbps", "80Gbps"
    places = [ClusterSetting(rate, "dragonfly", (*node, f"nic.rate={rate}"), "p100-pcie") for rate in rates]
    progress.start(len(counts) * len(places), "iterations of BERT-base on a dragonfly")
    rows = []
    over: dict[str, list[float]] = {}
    for ranks in counts:
        recorder = GridRecorder(_REDUCERS, ranks, "after-backward", effort)
        for place in places:
            gains = recorder.gains("bert-base", place, 8)
            times_s = {"dense": gains[0].dense_s, **{gain.reducer: gain.time_s for gain in gains}}
            for name in _REDUCERS[:-1]:
                over.setdefault(name, []).append(times_s[name] / times_s[_OURS])
            rows.append((f"{ranks} GPUs, {place.name}", *(f"{1e3 * seconds:.0f} ms" for seconds in times_s.values())))
            progress.advance()
    every = [value for values in over.values() for value in values]
    spans = {name.partition(":")[0]: f"{min(values):.2f}x to {max(values):.2f}x" for name, values in over.items()}
    claims = (
        _TEXTS.claim("bert", "not testable", low=min(every), high=max(every), counts=" and ".join(map(str, counts))),
        _TEXTS.claim("fastest", min(every) > 1 + _NOTICED, ours=listed(spans, "{0} {1}"), noticed=_NOTICED),
    )
    return PaperPart(claims, (_TEXTS.table("bert", rows),))


PAPER = _TEXTS.paper(_volume, on_both_bases(_speed))
