"""DeepReduce: indices and values of a sparse gradient coded by themselves."""

from math import ceil, log2

from s2sim.claims import grid, paper, training_outcomes
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.gradients.gradient import Gradient

_TEXTS = paper.PaperTexts("deepreduce")
_RATES, _CODES, _VOLUMES = (_TEXTS.figures[name] for name in ("rates", "codes", "volumes"))


def _relative_to_pairs(option: str, gradient: Gradient) -> float:
    return grid.message_bytes(option, gradient) / grid.message_bytes("topk:density=0.01", gradient)


def _bloom(_effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    gradient = grid.normal_gradient([(269_722,)])
    shares = {
        rate: _relative_to_pairs(f"deepreduce:density=0.01,fpr={rate}", gradient)
        for rate in watched(progress, "coding a gradient of ResNet-20", _RATES)
    }
    turns = min(rate for rate, share in shares.items() if share > 1)
    below = max(rate for rate, share in shares.items() if share <= 1)
    claims = (
        _TEXTS.figure("bloom", 0.33, 1 - shares[0.001]),
        _TEXTS.claim("turns", below <= 0.004 <= turns, below=below, turns=turns, share=shares[0.004]),
        _TEXTS.figure("poly", 0.40, 1 - _relative_to_pairs("deepreduce:density=0.01,index=raw,values=poly", gradient)),
    )
    rows = [(f"{rate:g}", f"{share:.2f}") for rate, share in shares.items()]
    line = paper.Line("BF-P0", tuple(sorted(shares)), tuple(shares[rate] for rate in sorted(shares)))
    chart = paper.Chart(
        "BF-P0 at 1 %", "rate of false positives", "bytes over those of plain pairs", (line,), True, True
    )
    return paper.PaperPart(claims, (_TEXTS.table("bloom", rows),), (chart,))


def _volumes(_effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    claims, rows = [], []
    for name, published in watched(progress, "coding gradients of an LSTM and MobileNet", _VOLUMES.items()):
        size = published["size"]
        gradient = grid.normal_gradient([(size,)])
        dense = 4 * size
        pairs = grid.message_bytes("topk:density=0.1", gradient) / dense
        beside = published["pairs"] - pairs
        found = {code: grid.message_bytes(option, gradient) / dense + beside for code, option in _CODES.items()}
        # Which value is at each place of the falling order takes ceil(log2 k) bits a value.
        kept = size // 10
        order = kept * ceil(log2(kept)) / 8 / dense
        found["Fit-Poly"] -= order
        for code, volume in published["codes"].items():
            texts = {"code": code, "model": name, "beside": beside, "order": order}
            claims.append(_TEXTS.figure(code if code == "Fit-Poly" else "volume", volume, found[code], **texts))
        rows.append((name, f"{pairs + beside:.4f}", *(f"{found[code]:.4f}" for code in _CODES)))
    return paper.PaperPart(tuple(claims), (_TEXTS.table("volumes", rows),))


PAPER = _TEXTS.paper(_bloom, _volumes, training_outcomes.in_the_loop(_TEXTS))
