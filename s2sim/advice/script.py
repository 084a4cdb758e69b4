"""Lines for a training script: the hook, the buckets and the variables with which a prediction was made."""

import shlex

from s2sim.errors import OptionError
from s2sim.experiment.rows import Row
from s2sim.experiment.spec import RunSpec
from s2sim.options import split_option_string
from s2sim.profiles.read import RecordedJob
from s2sim.pytorch.hook import hook_notes, reducer_for_training
from s2sim.reducers.registry import leaves_feedback_out, option_string, resolved_options
from s2sim.simulation.bucketing.overlap import Ddp
from s2sim.simulation.bucketing.policy import make_discipline
from s2sim.traffic.size_sweep import NCCL_ALGORITHMS

_HOOKS = "from torch.distributed.algorithms.ddp_comm_hooks"
_NCCL = ("nccl", "rccl")
# By the name that NCCL's tuner has for it.
_NCCL_ALGO = {"ring": "Ring", "tree": "Tree", "nvls_tree": "NVLSTree", "nvls": "NVLS", "pat": "PAT"}


def script_lines(spec: RunSpec, row: Row) -> tuple[str, ...]:
    """Return lines of Python that give a training what a row of a recorded job was predicted with; none without a job.

    ``model`` is the name of the module there. Hooks are PyTorch's own where it has the reducer.
    """
    if spec.recorded is None:
        return ()
    job, library = RecordedJob.read(spec.recorded), split_option_string(row.real_library)[0]
    text = spec.discipline or job.discipline or "ddp"
    predicted, views = make_discipline(text), job.bucket_views is not False
    done = predicted if isinstance(predicted, Ddp) else Ddp()
    part = "the limit alone" if done is predicted else "nothing"
    said = f"# {text} was predicted, of which DistributedDataParallel does {part}"
    why = "as the job had it" if job.bucket_views is not None else "copies into buckets are not predicted"
    options = f"bucket_cap_mb={done.bucket.bytes / 2**20:g}, gradient_as_bucket_view={views}"
    return (
        f"# {row.reducer} on {row.workers} workers of {spec.topology}, as predicted; backend: {library}",
        *_library_lines(spec, row, library),
        "from torch.nn.parallel import DistributedDataParallel",
        *[said] * (predicted != Ddp(bucket=done.bucket)),
        f"model = DistributedDataParallel(model, {options})  # views: {why}",
        *_hook_lines(row.option_string, library, measured=str(spec.gpu).endswith(".toml")),
    )


def _library_lines(spec: RunSpec, row: Row, library: str) -> list[str]:
    """Return what makes NCCL run the same algorithms."""
    ran = ((each.kind, NCCL_ALGORITHMS.get(each.algorithm.partition(":")[0])) for each in row.collectives)
    chosen = sorted({(kind, _NCCL_ALGO[name]) for kind, name in ran if name is not None})
    if library not in _NCCL or not chosen:
        return []
    if spec.collective != "auto" or row.options.get("collective"):
        value = ",".join(sorted({name for _, name in chosen}))
        return ["import os", f'os.environ["NCCL_ALGO"] = "{value}"  # before init_process_group']
    own = ", ".join(f"{name} for {kind}" for kind, name in chosen)
    where = shlex.join(["--topology", spec.topology, *(f"--set={each}" for each in spec.overrides)])
    command = f"s2sim collective table all_reduce {where} --workers {row.workers} --library nccl --from 1KiB --to 1GiB"
    return [
        f"# NCCL_ALGO and NCCL_PROTO: unset; what NCCL then chooses is predicted to be {own}",
        *[f"# a tuner file of what is predicted to be best: {command} --tuner nccl.conf"] * (library == "nccl"),
    ]


def _hook_lines(text: str, library: str, *, measured: bool) -> list[str]:
    """Return the hook of a reducer; ``measured``: whether the time of codecs is that of hooks."""
    try:
        reducer = reducer_for_training(text, feedback=True)
    except OptionError as error:
        return [f"# no hook: {error}"]
    name, given = resolved_options(text)
    own, options = set(given) - {"ef", "collective", "cast"}, reducer.options()
    if name == "dense" and options["dtype"] == "fp32" and own <= {"dtype"}:
        return []
    hook = f"{options.get('dtype', 'fp16')}_compress_hook"
    # In bfloat16 PyTorch's own refuses other libraries.
    if name in ("fp16", "dense") and own <= {"dtype"} and (hook.startswith("fp16") or library in _NCCL):
        return [f"{_HOOKS}.default_hooks import {hook}", f"model.register_comm_hook(None, {hook})"]
    if name == "powersgd" and own <= {"rank", "min_compression", "reuse_query"} and options.get("ef") is True:
        return [
            f"{_HOOKS} import powerSGD_hook",
            f"state = powerSGD_hook.PowerSGDState(None, {options['rank']}, start_powerSGD_iter=2,",
            f"    min_compression_rate={options['min_compression']:g}, warm_start={options['reuse_query']})",
            "model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)",
        ]
    return [
        *(f"# {note}" for note in hook_notes(reducer)),
        *["# s2sim's hook compresses in NumPy on the host: the loss is right, the time is of kernels on a GPU"]
        * (not measured),
        "from s2sim.pytorch.hook import HookState, hook",
        f'state = HookState(model, "{option_string(reducer)}"{", feedback=False" * leaves_feedback_out(text)})',
        "model.register_comm_hook(state, hook)",
    ]
