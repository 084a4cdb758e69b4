"""Deep Gradient Compression: 270 to 600 times less, without loss of accuracy."""

from math import prod

from s2sim.claims import grid, paper, training_outcomes
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.gradients.models import load_model

_TEXTS = paper.PaperTexts("dgc")
_MIB = 2**20

_PUBLISHED = _TEXTS.figures["mib"]


def _shapes(name: str) -> tuple[tuple[int, ...], ...]:
    known = _TEXTS.figures["shapes"].get(name)
    return tuple(map(tuple, known)) if known else tuple(layer.shape for layer in load_model("resnet-50").layers)


def _sizes(_effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    """Return what one message takes: the largest thousandth of matrices by distances, vectors densely."""
    claims, rows = [], []
    coding = watched(progress, "coding gradients of ResNet-50, AlexNet and an LSTM", _PUBLISHED.items())
    for name, (whole_mib, sent_mib, ratio) in coding:
        shapes = _shapes(name)
        dense = 4 * sum(map(prod, shapes))
        vectors = 4 * sum(prod(shape) for shape in shapes if len(shape) == 1)
        matrices = grid.normal_gradient(shape for shape in shapes if len(shape) > 1)
        kept = grid.message_bytes("dgc-select:coding=distance16", matrices)
        ours = dense / (kept + vectors)
        sent = kept + vectors
        mib = {"whole_mib": whole_mib, "sent_mib": sent_mib, "from_mib": dense / _MIB, "to_mib": sent / _MIB}
        claims.append(_TEXTS.figure("size", ratio, ours, name=name, vectors=vectors / sent, **mib))
        sizes = f"{dense / _MIB:.2f} MB", f"{kept / _MIB:.3f} MB", f"{vectors / _MIB:.3f} MB"
        int64 = dense / grid.message_bytes("dgc-select:coding=int64", matrices)
        rows.append((name, *sizes, f"{ours:.0f}x", f"{int64:.0f}x"))
    return paper.PaperPart(tuple(claims), (_TEXTS.table("sizes", rows),))


_in_the_loop = training_outcomes.in_the_loop(_TEXTS)
PAPER = _TEXTS.paper(_sizes, _in_the_loop)
