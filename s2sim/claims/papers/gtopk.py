"""gTop-k: 2.7 to 12 times the scaling of dense, 1.1 to 1.7 times that of top-k, on 32 GPUs with 1 GbE."""

from dataclasses import dataclass
from math import log2

from s2sim.claims.grid import compare_rows, milliseconds, normal_gradient
from s2sim.claims.paper import PaperEffort, PaperPart, PaperTexts, listed, on_both_bases
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import count_rounds

_TEXTS = PaperTexts("gtopk")
_DENSE, _TOPK, _GTOPK = "dense", "topk:density=0.001", "gtopk:density=0.001"
_REDUCERS = (_DENSE, _TOPK, _GTOPK)


@dataclass(frozen=True, slots=True)
class PublishedThroughput:
    """A model as it was measured: samples a second of a worker, alone and among 32 with each method."""

    batch: int
    size: dict[str, str]
    alone: float
    among: dict[str, float]

    @property
    def compute_s(self) -> float:
        """Seconds of forward and backward, which a worker alone takes."""
        return self.batch / self.alone


MEASURED = {name: PublishedThroughput(**measured) for name, measured in _TEXTS.figures["models"].items()}


def _speed(effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    claims, rows = [], []
    ours: dict[str, dict[str, float]] = {}
    for name, measured in MEASURED.items():
        compute = f"{1e3 * measured.compute_s:.3f}ms"
        run = {**_TEXTS.figures["run"], **measured.size, "reducers": _REDUCERS, "compute": compute}
        found = compare_rows(effort, progress, **run)
        for option in _REDUCERS:
            time_s, published = found[option].iteration_s or 0.0, measured.among[option]
            ours.setdefault(name, {})[option] = measured.batch / time_s
            exchanges = (milliseconds(each - measured.compute_s) for each in (measured.batch / published, time_s))
            rows.append((name, option, f"{published:.4g}", f"{ours[name][option]:.4g}", *exchanges))
    for against, label, said in ((_DENSE, "dense", "2.7 to 12 times"), (_TOPK, "top-k", "1.1 to 1.7 times")):
        for name, measured in MEASURED.items():
            published, own = measured.among[_GTOPK] / measured.among[against], ours[name][_GTOPK] / ours[name][against]
            own_s, theirs_s = (
                [measured.batch / by[each] - measured.compute_s for each in (_GTOPK, against)]
                for by in (ours[name], measured.among)
            )
            reason = _TEXTS.line("host-resnet" if name == "ResNet-50" else "host")
            figures = {"model": name, "label": label, "said": said, "method": against.partition(":")[0]}
            spent = {"own_s": own_s[1], "theirs_s": theirs_s[1], "reason": reason}
            claims.append(_TEXTS.figure("ratio", published, own, zip(own_s, theirs_s, strict=True), **figures, **spent))
    order = all(each[_GTOPK] > each[_TOPK] > each[_DENSE] for each in ours.values())
    claims.append(_TEXTS.claim("order", order, ours="in all models" if order else "not in all models"))
    claims.append(_TEXTS.figure("throughput", MEASURED["VGG-16"].among[_DENSE], ours["VGG-16"][_DENSE]))
    return PaperPart(tuple(claims), (_TEXTS.table("speed", rows),))


def tree_rounds(ranks: int) -> int:
    """Return how many messages follow one another up the tree, those of the broadcast left out, from a real run.

    >>> tree_rounds(8)
    3
    """
    ran = run_reducer(make_reducer(_GTOPK), [normal_gradient([(1000,)], rank) for rank in range(ranks)], seed=0)
    return count_rounds(ran.recording).after_gradient - 1


def _growth(_effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    found = {ranks: tree_rounds(ranks) for ranks in watched(progress, "rounds of gTop-k", (4, 8, 16, 32))}
    published = listed({ranks: log2(ranks) for ranks in found}, "{1:.0f} (P={0})")
    as_many = all(rounds == log2(ranks) for ranks, rounds in found.items())
    return PaperPart((_TEXTS.claim("rounds", as_many, published=published, ours=listed(found, "{1} (P={0})")),))


PAPER = _TEXTS.paper(_growth, on_both_bases(_speed))
