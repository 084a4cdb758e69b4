"""Random blocks: little to send, nothing to compute, close to plain SGD."""

from s2sim.claims import grid, paper, training_outcomes
from s2sim.experiment.progress import ProgressWatcher
from s2sim.experiment.spec import RunSpec

_TEXTS = paper.PaperTexts("random-block")
_PUBLISHED, _REDUCERS = _TEXTS.figures["published"], _TEXTS.figures["reducers"]
_DENSITY = _PUBLISHED["random block"][0] / _PUBLISHED["dense"][0]


def _in_time(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    spec = RunSpec.of(**_TEXTS.figures["run"], reducers=tuple(_REDUCERS.values()))
    timed = grid.sweep(spec, {"10 Gb/s": ("nic.rate=10Gbps",)}, effort, progress)["10 Gb/s"]
    found = {name: timed[option] for name, option in _REDUCERS.items()}
    dense = found["dense"]
    ratio = dense.sent_bytes / found["random block"].sent_bytes
    # What a batch computes is the same for all: the differences to dense are what compression saves.
    saved = {name: 1e3 * (dense.time_s - each.time_s) for name, each in found.items()}
    time_ms = {name: 1e3 * each.time_s for name, each in found.items()}
    others = (time_ms[name] for name in ("dense", "random k", "top k"))
    in_order = time_ms["random block"] < min(others) and time_ms["random k"] >= time_ms["dense"]
    claims = (
        _TEXTS.figure("bytes", 1 / _DENSITY, ratio),
        _TEXTS.claim("fastest", in_order, ours=paper.listed(time_ms, "{1:.1f} ms ({0})")),
        _TEXTS.figure("saved", _PUBLISHED["dense"][1] - _PUBLISHED["random block"][1], saved["random block"]),
    )
    rows = []
    for name, each in found.items():
        ours = f"{1e3 * each.time_s:.1f} ms", f"{saved[name]:.1f} ms", f"{each.sent_bytes / 1e6:.2f} MB"
        batch_ms = _PUBLISHED[name][1]
        rows.append((name, *ours, f"{batch_ms:.0f} ms", f"{_PUBLISHED['dense'][1] - batch_ms:.0f} ms"))
    return paper.PaperPart(claims, (_TEXTS.table("time", rows),))


_in_the_loop = training_outcomes.in_the_loop(_TEXTS)
PAPER = _TEXTS.paper(paper.on_both_bases(_in_time), _in_the_loop)
