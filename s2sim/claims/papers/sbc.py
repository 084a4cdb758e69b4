"""Sparse Binary Compression: four orders of magnitude less upstream on ResNet-50."""

from s2sim.claims.grid import message_bytes, normal_gradient
from s2sim.claims.paper import PaperEffort, PaperPart, PaperTexts
from s2sim.claims.training_outcomes import in_the_loop
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.gradients.models import load_model

_TEXTS = PaperTexts("sbc")
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
    claims = [
        _TEXTS.figure("bits", published, ratios[name], steps=steps)
        for name, (_, steps, published) in _PRESETS.items()
        if published is not None
    ]
    most = max(ratios.values())
    claims.append(_TEXTS.claim("orders", most > 1e4, most=most))
    return PaperPart(tuple(claims), (_TEXTS.table("sizes", rows),))


_in_the_loop = in_the_loop(_TEXTS)
PAPER = _TEXTS.paper(_sizes, _in_the_loop)
