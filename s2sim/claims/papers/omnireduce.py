"""OmniReduce: non-zero blocks alone, up to 8.2 times faster training, 1.4 to 2.9 times at 100 Gb/s."""

from collections.abc import Iterable
from typing import Any

from s2sim.claims import grid, paper
from s2sim.experiment.progress import ProgressWatcher
from s2sim.experiment.rows import Row

_TEXTS = paper.PaperTexts("omnireduce")
_OURS = "omnireduce"

PUBLISHED_MS = dict(_TEXTS.figures["ms"])
_RDMA_MS, _NCCL_MS = dict(_TEXTS.figures["staged_ms"]), _TEXTS.figures["nccl_ms"]
_END_TO_END = _TEXTS.figures["end_to_end"]


def _both(effort: paper.PaperEffort, progress: ProgressWatcher, *overrides: str, **work: Any) -> dict[str, Row]:
    return grid.compare_rows(effort, progress, **_TEXTS.figures["run"], overrides=overrides, **work)


def _blocks(density: float, path: str, effort: paper.PaperEffort, progress: ProgressWatcher) -> dict[str, Row]:
    trace = f"synthetic:rows=102400,width=256,density={density:g},overlap=0"
    return _both(effort, progress, f"nic.path={path}", trace=trace)


def _micro_benchmark(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    densities = (0.2, 0.1, 0.04, 0.02, 0.01) if effort.quick else tuple(PUBLISHED_MS)
    found = {density: _blocks(density, "switch", effort, progress) for density in densities}
    staged = {density: _blocks(density, "staged", effort, progress)[_OURS].time_s.total for density in _RDMA_MS}
    nccl = 1e3 * next(iter(found.values()))["dense"].time_s.total
    ours = {density: 1e3 * rows[_OURS].time_s.total for density, rows in found.items()}
    least = min(densities)
    published, own = _NCCL_MS / PUBLISHED_MS[least], nccl / ours[least]
    said = {density: PUBLISHED_MS[density] for density in densities}
    staged_ms = {density: 1e3 * seconds for density, seconds in staged.items()}
    claims = (
        _TEXTS.figure("nccl", _NCCL_MS, nccl),
        _TEXTS.claim(
            "zeros",
            paper.all_within(ours, said),
            published=paper.listed(said, "{1} ms ({0:.0%} not zero)"),
            ours=paper.listed(ours, "{1:.1f} ms ({0:.0%})"),
        ),
        _TEXTS.figure("sparsest", published, own),
        _TEXTS.claim(
            "staged",
            paper.all_within(staged_ms, _RDMA_MS),
            published=paper.listed(_RDMA_MS, "{1} ms ({0:.0%})"),
            ours=paper.listed(staged_ms, "{1:.1f} ms ({0:.0%})"),
        ),
    )
    ascending = sorted(densities)
    x = tuple(100 * density for density in ascending)
    times = {"published": PUBLISHED_MS, "ours": ours, "NCCL, ours": dict.fromkeys(ascending, nccl)}
    lines = tuple(paper.Line(name, x, tuple(ms[density] for density in ascending)) for name, ms in times.items())
    title, axes = "All-reduce of 100 MiB on 8 workers, 100 Gb/s with GPUDirect", ("blocks that are not zero in %", "ms")
    return paper.PaperPart(claims, (), (paper.Chart(title, *axes, lines, log_x=True, log_y=True),))


def _end_to_end(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    def speedups(names: Iterable[str], *overrides: str) -> dict[str, float]:
        found = {}
        for name in names:
            profile, batch = _END_TO_END[name]["profile"], _END_TO_END[name].get("batch")
            found[name] = _both(effort, progress, *overrides, profile=profile, batch=batch)[_OURS].speedup_vs_dense
        return found

    found = speedups(_END_TO_END)
    slow = speedups(("DeepLight", "NCF"), "nic.rate=10Gbps", "nic.transport=tcp", "nic.path=staged")
    claims = [_TEXTS.figure(name, known["speedup"], found[name], (), name=name) for name, known in _END_TO_END.items()]
    best = max(slow, key=lambda name: slow[name])
    claims.append(_TEXTS.figure("slow", 8.2, slow[best], best=best))
    rows = [
        (name, f"{known['speedup']}x", f"{found[name]:.2f}x", f"{slow[name]:.2f}x" if name in slow else "-")
        for name, known in _END_TO_END.items()
    ]
    return paper.PaperPart(tuple(claims), (_TEXTS.table("end_to_end", rows),))


PAPER = _TEXTS.paper(paper.on_both_bases(_micro_benchmark), paper.on_both_bases(_end_to_end))
