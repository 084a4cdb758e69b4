"""Papers of what one message takes, and of accuracy in the loop: SBC, DGC, DeepReduce and random blocks."""

from math import ceil, log2, prod

from s2sim.claims import grid, paper
from s2sim.claims.training_outcomes import in_the_loop
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.gradients.gradient import Gradient
from s2sim.gradients.models import load_model

_SBC, _DGC = paper.PaperTexts("sbc"), paper.PaperTexts("dgc")
_DEEPREDUCE, _RANDOM_BLOCK = paper.PaperTexts("deepreduce"), paper.PaperTexts("random-block")
# Of SBC: density, local steps, and how many times fewer bits ResNet-50 sends by the abstract.
_PRESETS = {"sbc-1": (0.001, 1, None), "sbc-2": (0.01, 10, 3531), "sbc-3": (0.01, 100, 37208)}
_MIB = 2**20


def _shapes(name: str) -> tuple[tuple[int, ...], ...]:
    known = _DGC.figures["shapes"].get(name)
    return tuple(map(tuple, known)) if known else tuple(layer.shape for layer in load_model("resnet-50").layers)


def _sbc_sizes(_effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    gradient = grid.normal_gradient(_shapes("ResNet-50"))
    dense = 4 * gradient.size
    ratios: dict[str, float] = {}
    claims, rows = [], []
    for name, (density, steps, published) in watched(progress, "coding a gradient of ResNet-50", _PRESETS.items()):
        option = f"sbc:density={density}"
        size = grid.message_bytes(option, gradient)
        ratios[name] = steps * dense / size
        # Six bits of a position after its run of zeros suit 1 %; the paper's example of 8.38 bits comes from seven.
        low_bits_7 = f"{option},low_bits=7"
        seven = "-" if density < 0.01 else f"{steps * dense / grid.message_bytes(low_bits_7, gradient):,.0f}x"
        ours = f"{size / 1e3:.1f} kB", f"{ratios[name]:,.0f}x", seven
        rows.append((name, f"{density:.1%}", str(steps), *ours, "-" if published is None else f"{published:,}x"))
        if published is not None:
            claims.append(_SBC.figure("bits", published, ratios[name], steps=steps))
    most = max(ratios.values())
    claims.append(_SBC.claim("orders", most > 1e4, most=most))
    return paper.PaperPart(tuple(claims), (_SBC.table("sizes", rows),))


def _dgc_sizes(_effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    """Return what one message takes: the largest thousandth of matrices by distances, vectors densely."""
    claims, rows = [], []
    coding = watched(progress, "coding gradients of ResNet-50, AlexNet and an LSTM", _DGC.figures["mib"].items())
    for name, (whole_mib, sent_mib, ratio) in coding:
        shapes = _shapes(name)
        dense = 4 * sum(map(prod, shapes))
        vectors = 4 * sum(prod(shape) for shape in shapes if len(shape) == 1)
        matrices = grid.normal_gradient(shape for shape in shapes if len(shape) > 1)
        kept = grid.message_bytes("dgc-select:coding=distance16", matrices)
        sent = kept + vectors
        ours = dense / sent
        mib = {"whole_mib": whole_mib, "sent_mib": sent_mib, "from_mib": dense / _MIB, "to_mib": sent / _MIB}
        claims.append(_DGC.figure("size", ratio, ours, name=name, vectors=vectors / sent, **mib))
        sizes = f"{dense / _MIB:.2f} MB", f"{kept / _MIB:.3f} MB", f"{vectors / _MIB:.3f} MB"
        int64 = dense / grid.message_bytes("dgc-select:coding=int64", matrices)
        rows.append((name, *sizes, f"{ours:.0f}x", f"{int64:.0f}x"))
    return paper.PaperPart(tuple(claims), (_DGC.table("sizes", rows),))


def _relative_to_pairs(option: str, gradient: Gradient) -> float:
    return grid.message_bytes(option, gradient) / grid.message_bytes("topk:density=0.01", gradient)


def _bloom(_effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    gradient = grid.normal_gradient([(269_722,)])
    shares = {
        rate: _relative_to_pairs(f"deepreduce:density=0.01,fpr={rate}", gradient)
        for rate in watched(progress, "coding a gradient of ResNet-20", _DEEPREDUCE.figures["rates"])
    }
    turns = min(rate for rate, share in shares.items() if share > 1)
    below = max(rate for rate, share in shares.items() if share <= 1)
    poly = _relative_to_pairs("deepreduce:density=0.01,index=raw,values=poly", gradient)
    claims = (
        _DEEPREDUCE.figure("bloom", 0.33, 1 - shares[0.001]),
        _DEEPREDUCE.claim("turns", below <= 0.004 <= turns, below=below, turns=turns, share=shares[0.004]),
        _DEEPREDUCE.figure("poly", 0.40, 1 - poly),
    )
    rows = [(f"{rate:g}", f"{share:.2f}") for rate, share in shares.items()]
    line = paper.Line("BF-P0", *zip(*sorted(shares.items()), strict=True))
    axes = "rate of false positives", "bytes over those of plain pairs"
    chart = paper.Chart("BF-P0 at 1 %", *axes, (line,), log_x=True, log_y=True)
    return paper.PaperPart(claims, (_DEEPREDUCE.table("bloom", rows),), (chart,))


def _volumes(_effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    claims, rows = [], []
    codes, volumes = _DEEPREDUCE.figures["codes"], _DEEPREDUCE.figures["volumes"]
    for name, published in watched(progress, "coding gradients of an LSTM and MobileNet", volumes.items()):
        size = published["size"]
        gradient = grid.normal_gradient([(size,)])
        dense = 4 * size
        pairs = grid.message_bytes("topk:density=0.1", gradient) / dense
        beside = published["pairs"] - pairs
        found = {code: grid.message_bytes(option, gradient) / dense + beside for code, option in codes.items()}
        # Which value is at each place of the falling order takes ceil(log2 k) bits a value.
        kept = size // 10
        order = kept * ceil(log2(kept)) / 8 / dense
        found["Fit-Poly"] -= order
        for code, volume in published["codes"].items():
            texts = {"code": code, "model": name, "beside": beside, "order": order}
            key = code if code == "Fit-Poly" else "volume"
            claims.append(_DEEPREDUCE.figure(key, volume, found[code], **texts))
        rows.append((name, f"{pairs + beside:.4f}", *(f"{found[code]:.4f}" for code in codes)))
    return paper.PaperPart(tuple(claims), (_DEEPREDUCE.table("volumes", rows),))


@paper.on_both_bases
def _blocks_in_time(effort: paper.PaperEffort, progress: ProgressWatcher) -> paper.PaperPart:
    published, reducers = _RANDOM_BLOCK.figures["published"], _RANDOM_BLOCK.figures["reducers"]
    dense_mb, dense_ms = published["dense"]
    run = paper.PaperTexts("powersgd").figures["run"]
    timed = grid.compare_rows(effort, progress, **run, reducers=tuple(reducers.values()), model="resnet-18")
    found = {name: timed[option] for name, option in reducers.items()}
    ratio = found["dense"].bytes_sent_per_rank / found["random block"].bytes_sent_per_rank
    # What a batch computes is the same for all: the differences to dense are what compression saves.
    time_ms = {name: 1e3 * each.time_s.total for name, each in found.items()}
    others = (time_ms[name] for name in ("dense", "random k", "top k"))
    in_order = time_ms["random block"] < min(others) and time_ms["random k"] >= time_ms["dense"]
    claims = (
        _RANDOM_BLOCK.figure("bytes", dense_mb / published["random block"][0], ratio),
        _RANDOM_BLOCK.claim("fastest", in_order, ours=paper.listed(time_ms, "{1:.1f} ms ({0})")),
    )
    rows = []
    for name, each in found.items():
        saved_ms = time_ms["dense"] - time_ms[name]
        ours = f"{time_ms[name]:.1f} ms", f"{saved_ms:.1f} ms", f"{each.bytes_sent_per_rank / 1e6:.2f} MB"
        rows.append((name, *ours, f"{published[name][1]:.0f} ms", f"{dense_ms - published[name][1]:.0f} ms"))
    return paper.PaperPart(claims, (_RANDOM_BLOCK.table("time", rows),))


SBC = _SBC.paper(_sbc_sizes, in_the_loop(_SBC))
DGC = _DGC.paper(_dgc_sizes, in_the_loop(_DGC))
DEEPREDUCE = _DEEPREDUCE.paper(_bloom, _volumes, in_the_loop(_DEEPREDUCE))
RANDOM_BLOCK = _RANDOM_BLOCK.paper(_blocks_in_time, in_the_loop(_RANDOM_BLOCK))
