"""Random blocks: little to send, nothing to compute, close to plain SGD."""

from __future__ import annotations

from s2sim.claims.grid import sweep
from s2sim.claims.paper import Claim, Paper, PaperEffort, PaperPart, Table, figure_claim, judge_condition, not_testable
from s2sim.claims.training_outcomes import SAME_POINTS, TrainingComparison, accuracy_claim, loop_part
from s2sim.experiment.progress import ProgressWatcher
from s2sim.experiment.spec import RunSpec

# Megabytes an epoch and milliseconds a batch of the same lab's comparison, dense first.
_PUBLISHED = {
    "dense": (1023.0, 312.0),
    "random block": (24.0, 243.0),
    "random k": (24.0, 540.0),
    "top k": (32.0, 444.0),
}
_DENSITY = _PUBLISHED["random block"][0] / _PUBLISHED["dense"][0]
_REDUCERS = {
    "dense": "dense",
    "random block": f"random-block:density={_DENSITY:.4f}",
    "random k": f"random-k:density={_DENSITY:.4f}",
    # A value and its index: as many bytes as a third more would have without.
    "top k": f"topk:density={_PUBLISHED['top k'][0] / _PUBLISHED['dense'][0] / 2:.4f},granularity=layer",
}
_TABLE = "PowerSGD (arXiv:1905.13727), ResNet-18 on CIFAR-10, 16 workers, 10 Gb/s, as recalled; of the same lab"


def _in_time(_effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    spec = RunSpec.of(
        "tcp-10g",
        workers=(16,),
        reducers=tuple(_REDUCERS.values()),
        trace="cnn",
        model="resnet-18",
        overrides=("node.gpus=1",),
    )
    timed = sweep(spec, {"10 Gb/s": ("nic.rate=10Gbps",)}, progress)["10 Gb/s"]
    found = {name: timed[option] for name, option in _REDUCERS.items()}
    dense = found["dense"]
    ratio = dense.sent_bytes / found["random block"].sent_bytes
    # What a batch computes is the same for all: the differences to dense are what compression saves.
    saved = {name: 1e3 * (dense.time_s - each.time_s) for name, each in found.items()}
    claims = (
        figure_claim(
            "random blocks send 43 times less, by all-reduce, and nothing but values",
            _TABLE,
            1 / _DENSITY,
            ratio,
            "the block begins where a shared seed draws it, so that no index travels",
            form="{:.1f}x",
            published_form="{:.0f}x",
        ),
        Claim(
            "of equal size, blocks are the fastest: faster than random elements, and these no faster than dense",
            _TABLE,
            "243 ms against 312 ms (dense), 444 ms (top k), 540 ms (random k)",
            ", ".join(f"{1e3 * each.time_s:.1f} ms ({name})" for name, each in found.items()),
            judge_condition(
                found["random block"].time_s < min(dense.time_s, found["random k"].time_s, found["top k"].time_s)
                and found["random k"].time_s >= dense.time_s
            ),
            "reproduced where communication with its coding is in the order that times of batches are in",
            "blocks are the fastest here too; that random elements cost their authors 230 ms more than dense is what "
            "PyTorch of then took to draw and copy them, which kernels that read and write once do not",
        ),
        figure_claim(
            "random blocks save 69 ms of a batch over dense",
            _TABLE,
            312.0 - 243.0,
            saved["random block"],
            "an all-reduce by NCCL over TCP, one GPU a node; their machines, and what overlapped, are not known",
            form="{:.0f} ms",
        ),
    )
    rows = []
    for name, each in found.items():
        ours = f"{1e3 * each.time_s:.1f} ms", f"{saved[name]:.1f} ms", f"{each.sent_bytes / 1e6:.2f} MB"
        batch_ms = _PUBLISHED[name][1]
        rows.append((name, *ours, f"{batch_ms:.0f} ms", f"{_PUBLISHED['dense'][1] - batch_ms:.0f} ms"))
    columns = ("", "communication", "saved", "sent", "published batch", "published saved")
    return PaperPart(claims, (Table("ResNet-18, 16 workers, 10 Gb/s", columns, tuple(rows)),))


def _in_the_loop(effort: PaperEffort, progress: ProgressWatcher) -> PaperPart:
    reducers = {"random block": "random-block:density=0.1,ef=true", "random k": "random-k:density=0.1,ef=true"}
    text = "a tenth of the elements {}: close to plain SGD in the loop (small network)"
    claimed = {
        "random block": (text.format("as random blocks"), "abstract, without a figure", "close to SGD"),
        "random k": (text.format("one by one"), _TABLE, "-0.3 points"),
    }
    return loop_part(
        TrainingComparison.small(effort, "cnn:optimizer=sgd,learning_rate=0.1", reducers),
        progress,
        claimed.values(),
        lambda found: [accuracy_claim(found, name, SAME_POINTS, *about) for name, about in claimed.items()],
    )


_PARAMETERS = not_testable(
    "three key parameters govern how well sparse communication performs",
    "abstract, which does not name them",
    "needs the names of the three parameters, and tables and cluster of the paper, which were not read",
    "which elements are picked and whether ranks share them, layer or whole gradient, and feedback are options here: "
    "topk, random-k, random-block, seed=, granularity=, ef=",
)


PAPER = Paper(
    name="random-block",
    title="Sparse Communication for Training Deep Networks",
    source="Foroutan Eghlidi and Jaggi, 2020, arXiv:2009.09271; github.com/epfml/powersgd",
    claimed="random blocks send little, cost nothing to find, and train almost like plain SGD",
    setup=(
        (
            f"time: ResNet-18 by its layer table, 16 nodes of one RTX 2080 Ti, TCP at 10 Gb/s, NCCL; {_DENSITY:.1%} of "
            "the elements, as 24 of 1023 MB an epoch"
        ),
    ),
    assumed=(
        "of the paper the abstract was read; figures of time are those of the same lab in PowerSGD's paper",
        "gradients are those of a small convolutional network, scaled to the layers",
    ),
    parts=(_in_time, _in_the_loop, PaperPart((_PARAMETERS,))),
)
