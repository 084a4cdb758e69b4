"""Sparse Binary Compression: four orders of magnitude less upstream on ResNet-50."""

from __future__ import annotations

from s2sim.claims.grid import message_bytes, normal_gradient
from s2sim.claims.paper import Claim, Paper, PaperEffort, PaperPart, Table, figure_claim, judge_condition, not_testable
from s2sim.claims.training_outcomes import SAME_POINTS, TrainingComparison, accuracy_claim, loop_part
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.gradients.models import load_model

# Density, local steps, and how many times fewer bits ResNet-50 sends by the abstract.
_PRESETS = {"sbc-1": (0.001, 1, None), "sbc-2": (0.01, 10, 3531), "sbc-3": (0.01, 100, 37208)}


def _sizes(_effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    gradient = normal_gradient(layer.shape for layer in load_model("resnet-50").layers)
    dense = 4 * gradient.size
    ratios: dict[str, float] = {}
    rows = []
    for name, (density, steps, published) in watched(progress, "coding a gradient of ResNet-50", _PRESETS.items()):
        option = f"sbc:density={density}"
        size = message_bytes(option, gradient)
        ratios[name] = steps * dense / size
        # Six bits of a position after its run of zeros suit 1 %; the paper's example of 8.38 bits comes from seven.
        seven = "-" if density < 0.01 else f"{steps * dense / message_bytes(f'{option},low_bits=7', gradient):,.0f}x"
        ours = f"{size / 1e3:.1f} kB", f"{ratios[name]:,.0f}x", seven
        rows.append((name, f"{density:.1%}", str(steps), *ours, "-" if published is None else f"{published:,}x"))
    columns = ("preset", "kept", "local steps", "message", "fewer bits", "with 7 low bits", "published")
    table = Table("Upstream of one rank, ResNet-50, 161 tensors", columns, tuple(rows))
    claims = tuple(
        figure_claim(
            f"ResNet-50 sends {published:,} times fewer bits: 1 % of each tensor once in {steps} steps",
            "abstract; which preset it belongs to is inferred from the length of its code",
            published,
            ratios[name],
            "positions as a Golomb stream and one float32 a tensor, of a real message; the paper may count a header or "
            "a longer code of positions",
            form="{:,.0f}x",
        )
        for name, (_, steps, published) in _PRESETS.items()
        if published is not None
    )
    most = max(ratios.values())
    orders = Claim(
        "saves over four orders of magnitude upstream",
        "abstract",
        "> 10,000x",
        f"{most:,.0f}x",
        judge_condition(most > 1e4),
        "reproduced where some preset saves more than 10,000 times",
        "a hundred local steps are a hundred times of it; downstream, and what all ranks gather, is not counted",
    )
    return PaperPart((*claims, orders), (table,))


_IMAGENET = tuple(
    not_testable(
        f"ResNet-50 on ImageNet {what} at {ratio}",
        "abstract",
        "needs ImageNet and weeks of GPUs",
        "the same presets are trained on small models instead",
        published=accuracy,
    )
    for ratio, what, accuracy in (
        ("3,531x", "reaches baseline accuracy in the same number of iterations", "no loss"),
        ("37,208x", "loses one point of accuracy", "1 point"),
    )
)


# What is lost by the abstract, and at most for it to count as that.
_ACCURACY = {"sbc-2": ("no loss", SAME_POINTS), "sbc-3": ("1 point", 1 + SAME_POINTS)}


def _in_the_loop(effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    model = "cnn:optimizer=sgd,learning_rate=0.05,momentum=0.9"
    loop = TrainingComparison.small(effort, model, {name: name for name in _ACCURACY})
    texts = {
        name: f"{name}, {_PRESETS[name][2]:,}x: {published} of accuracy in the loop (small convolutional network)"
        for name, (published, _) in _ACCURACY.items()
    }
    return loop_part(
        loop,
        progress,
        [(texts[name], "abstract", published) for name, (published, _) in _ACCURACY.items()],
        lambda found: [
            accuracy_claim(found, name, most, texts[name], "abstract, of ResNet-50 on ImageNet", published)
            for name, (published, most) in _ACCURACY.items()
        ],
    )


PAPER = Paper(
    name="sbc",
    title="Sparse Binary Compression: Towards Distributed Deep Learning with Minimal Communication",
    source="Sattler, Wiedemann, Mueller and Samek, IJCNN 2019, arXiv:1805.08768",
    claimed="ResNet-50 sends 3,531 times fewer bits at the same accuracy, 37,208 times fewer at one point less",
    setup=(
        (
            "messages: real ones of one rank's gradient with the 161 tensors of ResNet-50, of every tensor the largest "
            "elements of one sign"
        ),
    ),
    assumed=(
        "the algorithm is recalled, its code of positions was read in the first author's later code",
        "gradients are standard normal, as the length of a code depends on how many are kept and hardly on which",
    ),
    parts=(_sizes, _in_the_loop, PaperPart(_IMAGENET)),
)
