"""PowerSGD: hundreds of times fewer bytes, and the only compressor of its day that saved time over NCCL."""

from functools import partial

from s2sim.claims import paper
from s2sim.claims.grid import compare_rows, message_bytes, milliseconds, normal_gradient
from s2sim.experiment.progress import ProgressWatcher, watched

_TEXTS = paper.PaperTexts("powersgd")
STEPS_PER_EPOCH = 50_000 // (16 * 128)
"""Of CIFAR-10 by 16 workers with 128 images each."""
_PUBLISHED_MS, _LSTM_MS = _TEXTS.figures["batch_ms"], _TEXTS.figures["lstm_ms"]
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
    gradient = normal_gradient(resnet18_shapes())
    claims = tuple(
        _TEXTS.figure(
            "bytes",
            published,
            message_bytes(name, gradient) * STEPS_PER_EPOCH / 2**20,
            name=name,
            steps=STEPS_PER_EPOCH,
        )
        for name, published in watched(progress, "messages of ResNet-18", _TEXTS.figures["mib"].items())
    )
    return paper.PaperPart(claims)


def _time(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    """Return what each method saves of a batch: dense's exchange less its own with encoding and decoding."""
    rows = compare_rows(effort, progress, **_TEXTS.figures["run"], reducers=tuple(_PUBLISHED_MS), model="resnet-18")
    saved = {name: rows["dense"].time_s.total - row.time_s.total for name, row in rows.items()}
    theirs = {name: 1e-3 * (_PUBLISHED_MS["dense"] - ms) for name, ms in _PUBLISHED_MS.items()}
    claims = []
    for name in _SHOWN:
        judged = paper.judge_within(saved[name], theirs[name])
        figures = {"published": milliseconds(theirs[name]), "ours": milliseconds(saved[name])}
        less_ms = _PUBLISHED_MS["dense"] - _PUBLISHED_MS[name]
        claims.append(_TEXTS.claim(name, judged, name=name, saved=less_ms, **figures))
    faster = [name for name, seconds in saved.items() if name != "dense" and seconds > 0]
    others = [name for name in faster if not name.startswith("powersgd")]
    claims.append(_TEXTS.claim("only", not others, faster=len(faster), tested=len(saved) - 1))
    cells = [(name, *map(milliseconds, (row.time_s.total, saved[name], theirs[name]))) for name, row in rows.items()]
    return paper.PaperPart(tuple(claims), (_TEXTS.table("time", cells),))


def _language_model(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    run = partial(compare_rows, effort, progress, **_TEXTS.figures["run"])
    dense_s = run(reducers=("dense",), scale_to=_LSTM_PARAMETERS)["dense"].time_s.total
    own_s = run(reducers=("dense", "powersgd:rank=4"), model="lstm")["powersgd:rank=4"].time_s.total
    saved, published = dense_s - own_s, 1e-3 * (_LSTM_MS["dense"] - _LSTM_MS["powersgd:rank=4"])
    return paper.PaperPart((_TEXTS.figure("lstm", 1e3 * published, 1e3 * saved, parameters=_LSTM_PARAMETERS),))


PAPER = _TEXTS.paper(_bytes, paper.on_both_bases(_time), paper.on_both_bases(_language_model))
