"""Codecs as fast as the processors of a machine run them, measured between real processes."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from s2sim import __version__
from s2sim.experiment.json_form import JsonForm
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.experiment.spec import FOR_BOTH, FOR_DENSE_LAYERS, FOR_TABLES, PREFETCH
from s2sim.files import toml_text
from s2sim.gradients.gradient import Gradient
from s2sim.gradients.synthetic import load_trace
from s2sim.profiles.read import CODECS, TRACE, RecordedJob
from s2sim.provenance import usable_cores
from s2sim.pytorch.launch import ProcessPlace, run_job
from s2sim.reducers.registry import make_reducer, with_feedback
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import Work
from s2sim.reducers.systems.dense import summed_dtype
from s2sim.reducers.wrappers.error_feedback import FeedbackPasses
from s2sim.testbed.measured import read_measured
from s2sim.testbed.training import DENSE, PYTORCH

REDUCERS = tuple(
    dict.fromkeys(each for each in (*FOR_TABLES, *FOR_DENSE_LAYERS, *FOR_BOTH) if each not in ("dense", PREFETCH))
)
"""What is measured unless somebody names others: what `s2sim run` compares."""

_PROCESSES, _TIMEOUT_S = 2, 300.0
# Row-sparse layers and a dense one, so that each kind of codec has something to do, in three sizes.
_SYNTHETIC = "synthetic:density=0.1,rows=4000,width=64,layers=3,dense=1000000"
_SIZES = (("sparse0",), ("sparse1", "sparse2"), ("sparse0", "dense"))
# What a byte, a kernel, a host's step and a byte that a hook copies take in seconds, as a fit is pulled to.
_USUAL_S = np.array([2e-10, 2e-6, 2e-9, 1e-9])
_PULL, _LEAST = 0.1, 0.02
# Bytes of a dense table pass the memory so often where it is converted: read and written.
_PASSES = 2
_HEAD = """\
# The processors of one machine, as s2sim dev calibrate codecs measured codecs on them; --gpu THIS_FILE takes it.
# The codec of a reducer takes its factor times as long as the constants say. Products count by their bytes.
"""


@dataclass(frozen=True, slots=True)
class CodecTime:
    """One bucket in a hook."""

    reducer: str
    size_bytes: int  # Of the dense gradient
    measured_s: float  # Without its collectives
    predicted_s: float  # By the constants and the factor of the reducer


@dataclass(frozen=True, slots=True)
class CodecCalibration(JsonForm):
    """What codecs take on this machine, and the file that says so."""

    times: tuple[CodecTime, ...]
    factors: dict[str, float]  # By the name of a reducer
    median_error: float  # Of |ln(predicted/measured)|
    text: str  # Of a file for ``--gpu``


def calibrate_codecs(reducers: Sequence[str], recorded: str | None, progress: ProgressWatcher) -> CodecCalibration:
    """Return what the codecs of reducers take of synthetic buckets, or of those of a recorded job's folder.

    Two processes on loopback run them as a hook does: with copies, the check for infinities, and error feedback where
    training needs it.
    """
    texts = [text for text in reducers or REDUCERS if not make_reducer(text).traits.warm]
    trace_name = _SYNTHETIC if recorded is None else f"{recorded}/{TRACE}"
    trace = load_trace(trace_name, workers=_PROCESSES)
    buckets = _SIZES if recorded is None else RecordedJob.read(recorded).buckets or (tuple(trace.gradient(0, 0).names),)
    tasks = [(text, names) for text in texts for names in buckets]
    seconds: list[list[list[tuple[float, list[float]]]]] = [[] for _ in tasks]
    progress.start(_PROCESSES * len(tasks), "measuring codecs")

    def hear(_: int, told: Any) -> None:
        seconds[told["task"]].append(told["seconds"])
        progress.advance()

    arguments = {"trace": trace_name, "tasks": tasks}
    places = [ProcessPlace()] * _PROCESSES
    run_job("s2sim.pytorch.hook_buckets:time_codecs", arguments, places, timeout_s=_TIMEOUT_S, hear=hear)
    progress.stop()
    gradients = [trace.gradient(0, rank) for rank in range(_PROCESSES)]
    # Of one process that has a processor to itself.
    turns = max(1.0, _PROCESSES / usable_cores())
    coded: list[tuple[str, list[Work], float, int, int]] = []
    for number, (text, names) in enumerate(tasks):
        parts = [Gradient(tuple(names), tuple(dict(each)[name] for name in names)) for each in gradients]
        reducer = make_reducer(text).fitted(parts, 0)
        recording = run_reducer(with_feedback(reducer, FeedbackPasses), parts).recording
        # What sends a bucket densely has no codec there.
        if works := [step for step in recording.scripts[0] if isinstance(step, Work)]:
            values = parts[0].size
            took_s = median(map(_without_collectives_s, zip(*seconds[number], strict=True))) / turns
            copied = 4 * values if summed_dtype(reducer) is None else 0
            coded.append((text, works, took_s, 4 * values, copied))
    return fit_codecs(coded)


def calibrate_hooks(folder: Path, training: str, progress: ProgressWatcher = SILENT, *, anew: bool) -> None:
    """Measure the codecs of all hooks of a training on a testbed, for each recording of it, or those that lack them."""
    texts = [row.what for row in read_measured(folder).training if row.trace == training]
    hooks = [text for text in dict.fromkeys(texts) if text != DENSE and not text.startswith(PYTORCH)]
    for job in sorted((folder / "recorded").glob(f"*/{training}/job.json")) if hooks else ():
        if anew or not job.with_name(CODECS).exists():
            job.with_name(CODECS).write_text(calibrate_codecs(hooks, str(job.parent), progress).text, "utf-8")


def fit_codecs(measured: Sequence[tuple[str, Sequence[Work], float, int, int]]) -> CodecCalibration:
    """Return constants that fit all reducers best, and by which factor each takes longer.

    ``measured``: option string, work, seconds, bytes of the dense gradient, and of these copied, of each bucket.
    """
    from scipy.optimize import lsq_linear

    texts, works, times_s, sizes_bytes, copied = zip(*measured, strict=True)
    features = np.array([[*_sum_work(each), size] for each, size in zip(works, copied, strict=True)], np.float64)
    measured_s = np.array(times_s)
    # In units of the usual ones, relative to what was measured; what no codec does stays as usual.
    matrix = np.concatenate([features * _USUAL_S / measured_s[:, None], _PULL * np.eye(len(_USUAL_S))])
    target = np.concatenate([np.ones(len(works)), np.full(len(_USUAL_S), _PULL)])
    units_s = _USUAL_S * lsq_linear(matrix, target, (_LEAST, np.inf)).x
    base_s, copied_s = features[:, :-1] @ units_s[:-1], features[:, -1] * units_s[-1]
    names = np.array([make_reducer(text).traits.name for text in texts])
    ratios = np.maximum(measured_s - copied_s, _LEAST * measured_s) / base_s
    factors = {name: float(np.median(ratios[names == name])) for name in dict.fromkeys(names.tolist())}
    predicted_s = base_s * [factors[name] for name in names.tolist()] + copied_s
    constants = {
        "description": f"processors of {platform.node()}: codecs in NumPy",
        "source": f"{len(texts)} buckets between {_PROCESSES} processes, s2sim {__version__}",
        "kind": "measured",
        "memory_bandwidth": f"{1 / units_s[0]:.5g}B/s",
        "memory_efficiency": 1.0,
        "kernel_launch": f"{1e6 * units_s[1]:.5g}us",
        "host_sync": "0us",
        "dense_encode_passes": _PASSES,
        "dense_decode_passes": _PASSES,
        "fp32_flops": "1TFLOP/s",
        "flops_efficiency": 1.0,
        "host_step": f"{1e9 * units_s[2]:.5g}ns",
        "hook_copy": f"{1 / units_s[3]:.5g}B/s",
    }
    values: dict[str, Any] = {f"gpu.cpu.{name}": value for name, value in constants.items()}
    values |= {f"codec.{name}.factor": float(f"{factor:.4g}") for name, factor in factors.items()}
    rows = zip(texts, sizes_bytes, times_s, predicted_s.tolist(), strict=True)
    error = float(np.median(np.abs(np.log(predicted_s / measured_s))))
    return CodecCalibration(tuple(CodecTime(*row) for row in rows), factors, error, toml_text(values, _HEAD))


def _without_collectives_s(ranks: Sequence[tuple[float, list[float]]]) -> float:
    """Return the seconds of a step less those of its collectives, from each rank's whole and its waits.

    The last of the ranks waits for a collective alone, the others for it too, as after each piece of a codec.
    """
    alone_s: list[float] = [min(each) for each in zip(*(waits_s for _, waits_s in ranks), strict=False)]
    return max(whole_s for whole_s, _ in ranks) - sum(alone_s)


def _sum_work(works: Sequence[Work]) -> list[int]:
    """Return the bytes, kernels and steps of the host of work."""
    moved = (each.bytes_moved or _PASSES * (each.dense_encode_bytes + each.dense_decode_bytes) for each in works)
    return [sum(moved), sum(each.launches for each in works), sum(each.host_steps for each in works)]
