"""Deep Gradient Compression: 270 to 600 times less, without loss of accuracy."""

from __future__ import annotations

from math import prod

from s2sim.claims.grid import message_bytes, normal_gradient
from s2sim.claims.paper import Paper, PaperEffort, PaperPart, Table, figure_claim, not_testable
from s2sim.claims.training_outcomes import SAME_POINTS, TrainingComparison, accuracy_claim, loop_part
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.gradients.models import load_model

_MIB = 2**20

# Caffe's AlexNet, whose second, fourth and fifth convolution have two groups: Krizhevsky et al., NIPS 2012.
_ALEXNET = (
    *((96, 3, 11, 11), (96,), (256, 48, 5, 5), (256,), (384, 256, 3, 3), (384,)),
    *((384, 192, 3, 3), (384,), (256, 192, 3, 3), (256,)),
    *((4096, 9216), (4096,), (4096, 4096), (4096,), (1000, 4096), (1000,)),
)
# The large LSTM for the Penn Treebank: two layers of 1500, 10,000 words, the decoder tied to the embedding.
_PTB_LSTM = (
    (10_000, 1500),
    *(shape for _ in range(2) for shape in ((6000, 1500), (6000, 1500), (6000,), (6000,))),
    (10_000,),
)
# MB before and after, and their ratio, as recalled from the paper's tables; MB are 2^20 bytes, as the left column says.
_PUBLISHED = {"ResNet-50": (97.49, 0.35, 277), "AlexNet": (232.56, 0.39, 597), "PTB LSTM": (194.68, 0.42, 462)}


def _shapes(name: str) -> tuple[tuple[int, ...], ...]:
    known = {"AlexNet": _ALEXNET, "PTB LSTM": _PTB_LSTM}
    return known.get(name) or tuple(layer.shape for layer in load_model("resnet-50").layers)


def _sizes(_effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    """Return what one message takes: the largest thousandth of matrices by distances, vectors densely."""
    claims, rows = [], []
    coding = watched(progress, "coding gradients of ResNet-50, AlexNet and an LSTM", _PUBLISHED.items())
    for name, (whole_mib, sent_mib, ratio) in coding:
        shapes = _shapes(name)
        dense = 4 * sum(map(prod, shapes))
        vectors = 4 * sum(prod(shape) for shape in shapes if len(shape) == 1)
        matrices = normal_gradient(shape for shape in shapes if len(shape) > 1)
        kept = message_bytes("dgc-select:coding=distance16", matrices)
        ours = dense / (kept + vectors)
        claims.append(
            figure_claim(
                f"{name}: a gradient of {whole_mib} MB travels as {sent_mib} MB",
                "table of the paper, as recalled",
                ratio,
                ours,
                f"of what travels {vectors / (kept + vectors):.0%} are biases and the like, which stay dense",
                form=f"{{:.0f}}x ({dense / _MIB:.2f} to {(kept + vectors) / _MIB:.2f} MB)",
                published_form="{}x",
            )
        )
        sizes = f"{dense / _MIB:.2f} MB", f"{kept / _MIB:.3f} MB", f"{vectors / _MIB:.3f} MB"
        int64 = dense / message_bytes("dgc-select:coding=int64", matrices)
        rows.append((name, *sizes, f"{ours:.0f}x", f"{int64:.0f}x"))
    columns = ("model", "dense", "1 in 1000", "vectors", "ratio", "matrices alone, 64-bit indices")
    return PaperPart(tuple(claims), (Table("Messages of one rank", columns, tuple(rows)),))


def _in_the_loop(effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    whole, bare = "dgc with warm-up", "top 0.1 %, no momentum correction"
    reducers = {whole: "dgc:warmup=5,epoch=20", bare: "topk:density=0.001,granularity=layer"}
    text = "no loss of accuracy in the loop at a thousandth of the elements (small convolutional network)"
    about = (text, "abstract, of ResNet-50 on ImageNet and others", "no loss")
    loop = TrainingComparison.small(effort, "cnn:optimizer=sgd,learning_rate=0.05,momentum=0.9", reducers)
    return loop_part(loop, progress, [about], lambda found: [accuracy_claim(found, whole, SAME_POINTS, *about)])


_UNTESTABLE = tuple(
    not_testable(text, "abstract", f"needs {needs}", "nothing stands in for it", published=published)
    for text, published, needs in (
        ("ResNet-50 and AlexNet on ImageNet keep their accuracy", "no loss", "ImageNet and weeks of GPUs"),
        ("DeepSpeech: 488 MB travel as 0.74 MB", "608x", "the shapes of its layers"),
    )
)


PAPER = Paper(
    name="dgc",
    title="Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed Training",
    source="Lin, Han, Mao, Wang and Dally, Deep Gradient Compression, ICLR 2018, arXiv:1712.01887",
    claimed="270 to 600 times less communication without losing accuracy",
    setup=(
        (
            "messages: real ones of one rank's gradient with the layers of each model: the largest thousandth of every "
            "matrix as 32 bits of value and 16 of distance, vectors such as biases in float32"
        ),
    ),
    assumed=(
        "gradients are standard normal, as lengths depend on how many are kept and hardly on which",
        "an MB is 2^20 bytes, as the published sizes of the models say",
    ),
    parts=(_sizes, _in_the_loop, PaperPart(_UNTESTABLE)),
)
