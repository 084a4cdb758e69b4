"""Papers that print the time of each exchange, compared with runs: PowerSGD and OmniReduce."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from s2sim.claims import grid, paper
from s2sim.claims.grid import compare_rows, milliseconds
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.experiment.rows import Row

_POWERSGD, _OMNIREDUCE = paper.PaperTexts("powersgd"), paper.PaperTexts("omnireduce")
STEPS_PER_EPOCH = 50_000 // (16 * 128)
"""Of CIFAR-10 by 16 workers with 128 images each."""
_BATCH_MS, _LSTM_MS = _POWERSGD.figures["batch_ms"], _POWERSGD.figures["lstm_ms"]
# Whose savings are claims.
_SHOWN = ("powersgd:rank=2", "powersgd:rank=7", "random-block:density=0.024", "topk:density=0.016", "ef-signsgd")
# Its decoder is tied to the embedding, which is sent once.
_LSTM_PARAMETERS = "28.9M"


def resnet18_shapes() -> list[tuple[int, ...]]:
    """Return the shapes of ResNet-18's parameters with a stem for images of 32 x 32 (K. He et al., CVPR 2016)."""
    shapes: list[tuple[int, ...]] = [(64, 3, 3, 3), (64,), (64,)]
    width = 64
    for channels in (64, 128, 256, 512):
        for _ in range(2):
            shapes += [(channels, width, 3, 3), (channels, channels, 3, 3), *[(channels,)] * 4]
            if width != channels:
                shapes += [(channels, width, 1, 1), (channels,), (channels,)]
            width = channels
    return [*shapes, (10, 512), (10,)]


def _bytes(_effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    gradient = grid.normal_gradient(resnet18_shapes())
    claims = []
    for name, published in watched(progress, "messages of ResNet-18", _POWERSGD.figures["mib"].items()):
        ours = grid.message_bytes(name, gradient) * STEPS_PER_EPOCH / 2**20
        claims.append(_POWERSGD.figure("bytes", published, ours, name=name, steps=STEPS_PER_EPOCH))
    return paper.PaperPart(tuple(claims))


@paper.on_both_bases
def _time(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    """Return what each method saves of a batch: dense's exchange less its own with encoding and decoding."""
    rows = compare_rows(effort, progress, **_POWERSGD.figures["run"], reducers=tuple(_BATCH_MS), model="resnet-18")
    saved = {name: rows["dense"].time_s.total - row.time_s.total for name, row in rows.items()}
    theirs = {name: 1e-3 * (_BATCH_MS["dense"] - ms) for name, ms in _BATCH_MS.items()}
    claims = []
    for name in _SHOWN:
        judged = paper.judge_saved(rows["dense"].time_s.total, saved[name], theirs[name])
        figures = {"published": milliseconds(theirs[name]), "ours": milliseconds(saved[name])}
        less_ms = _BATCH_MS["dense"] - _BATCH_MS[name]
        claims.append(_POWERSGD.claim(name, judged, name=name, saved=less_ms, **figures))
    faster = [name for name, seconds in saved.items() if name != "dense" and seconds > 0]
    alone = all(name.startswith("powersgd") for name in faster)
    claims.append(_POWERSGD.claim("only", alone, faster=len(faster), tested=len(saved) - 1))
    cells = [(name, *map(milliseconds, (row.time_s.total, saved[name], theirs[name]))) for name, row in rows.items()]
    return paper.PaperPart(tuple(claims), (_POWERSGD.table("time", cells),))


@paper.on_both_bases
def _language_model(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    run = partial(compare_rows, effort, progress, **_POWERSGD.figures["run"])
    dense_s = run(reducers=("dense",), scale_to=_LSTM_PARAMETERS)["dense"].time_s.total
    own_s = run(reducers=("dense", "powersgd:rank=4"), model="lstm")["powersgd:rank=4"].time_s.total
    saved, published = dense_s - own_s, 1e-3 * (_LSTM_MS["dense"] - _LSTM_MS["powersgd:rank=4"])
    figures = {"published": 1e3 * published, "ours": 1e3 * saved, "parameters": _LSTM_PARAMETERS}
    return paper.PaperPart((_POWERSGD.claim("lstm", paper.judge_saved(dense_s, saved, published), **figures),))


PUBLISHED_MS = dict(_OMNIREDUCE.figures["ms"])
_RDMA_MS, _NCCL_MS = dict(_OMNIREDUCE.figures["staged_ms"]), _OMNIREDUCE.figures["nccl_ms"]
_END_TO_END = _OMNIREDUCE.figures["end_to_end"]


def _both(effort: paper.PaperEffort, progress: ProgressWatcher, *overrides: str, **work: Any) -> tuple[Row, Row]:
    rows = compare_rows(effort, progress, **_OMNIREDUCE.figures["run"], overrides=overrides, **work)
    return rows["dense"], rows["omnireduce"]


@paper.on_both_bases
def _micro_benchmark(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    def times_ms(density: float, path: str) -> tuple[float, float]:
        trace = f"synthetic:rows=102400,width=256,density={density:g},overlap=0"
        dense, own = _both(effort, progress, f"nic.path={path}", trace=trace)
        return 1e3 * dense.time_s.total, 1e3 * own.time_s.total

    densities = (0.2, 0.1, 0.04, 0.02, 0.01) if effort.quick else tuple(PUBLISHED_MS)
    found = {density: times_ms(density, "switch") for density in densities}
    staged_ms = {density: times_ms(density, "staged")[1] for density in _RDMA_MS}
    nccl = found[densities[0]][0]
    ours = {density: own for density, (_, own) in found.items()}
    least = min(densities)
    said = {density: PUBLISHED_MS[density] for density in densities}

    def claim(key: str, own_ms: dict[float, float], their_ms: dict[float, float], form: str) -> paper.Claim:
        texts = {"published": paper.listed(their_ms, form), "ours": paper.listed(own_ms, "{1:.1f} ms ({0:.0%})")}
        return _OMNIREDUCE.claim(key, paper.all_within(own_ms, their_ms), **texts)

    claims = (
        _OMNIREDUCE.figure("nccl", _NCCL_MS, nccl),
        claim("zeros", ours, said, "{1} ms ({0:.0%} not zero)"),
        _OMNIREDUCE.figure("sparsest", _NCCL_MS / PUBLISHED_MS[least], nccl / ours[least]),
        claim("staged", staged_ms, _RDMA_MS, "{1} ms ({0:.0%})"),
    )
    ascending = sorted(densities)
    x = tuple(100 * density for density in ascending)
    times = {"published": PUBLISHED_MS, "ours": ours, "NCCL, ours": dict.fromkeys(ascending, nccl)}
    lines = tuple(paper.Line(name, x, tuple(ms[density] for density in ascending)) for name, ms in times.items())
    title, axes = "All-reduce of 100 MiB on 8 workers, 100 Gb/s with GPUDirect", ("blocks that are not zero in %", "ms")
    return paper.PaperPart(claims, (), (paper.Chart(title, *axes, lines, log_x=True, log_y=True),))


@paper.on_both_bases
def _end_to_end(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    def speedups(names: Iterable[str], *overrides: str) -> dict[str, float]:
        found = {}
        for name in names:
            profile, batch = _END_TO_END[name]["profile"], _END_TO_END[name].get("batch")
            found[name] = _both(effort, progress, *overrides, profile=profile, batch=batch)[1].speedup_vs_dense
        return found

    found = speedups(_END_TO_END)
    slow = speedups(("DeepLight", "NCF"), "nic.rate=10Gbps", "nic.transport=tcp", "nic.path=staged")
    claims, rows = [], []
    for name, known in _END_TO_END.items():
        claims.append(_OMNIREDUCE.figure(name, known["speedup"], found[name], (), name=name))
        at_10g = f"{slow[name]:.2f}x" if name in slow else "-"
        rows.append((name, f"{known['speedup']}x", f"{found[name]:.2f}x", at_10g))
    best = max(slow, key=lambda name: slow[name])
    claims.append(_OMNIREDUCE.figure("slow", 8.2, slow[best], best=best))
    return paper.PaperPart(tuple(claims), (_OMNIREDUCE.table("end_to_end", rows),))


POWERSGD = _POWERSGD.paper(_bytes, _time, _language_model)
OMNIREDUCE = _OMNIREDUCE.paper(_micro_benchmark, _end_to_end)
