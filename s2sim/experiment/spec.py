"""A comparison of reducers as people write it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from s2sim.errors import OptionError, suggest_nearest
from s2sim.experiment import cluster_spec

BASELINES = ("union", "owner-reduce", "gather-rows")
"""What is exact and sends rows, without which no comparison of sparse compressors is fair."""

PREFETCH = "union:prefetch=true"
"""Presumes that the batch tells the rows before forward, as it does for embeddings."""

FOR_TABLES = ("dense", "fp16", "topk:density=0.01", PREFETCH, *BASELINES, "s2-exact", "s2:rows=3,cells=2")
"""What suits gradients of embedding tables: compressors, those baselines, and S2."""

FOR_DENSE_LAYERS = (
    "dense",
    "bf16",
    "fp16",
    "fp8",
    "int8",
    "qsgd",
    "powersgd",
    "topk:density=0.01,ef=true",
    "ef-signsgd",
)
"""What suits gradients of dense layers: types of fewer bytes, quantization, low rank, sparsification and signs."""

FOR_BOTH = ("dense", "bf16", "fp16", "powersgd", "topk:density=0.01,ef=true", PREFETCH, "union", "s2-exact")
"""What suits models with tables and dense layers of like size."""

COMPARED = (
    "dense",
    "fp16",
    "topk:density=0.001",
    "topk:density=0.01",
    "topk:density=0.1",
    PREFETCH,
    *BASELINES,
    "s2-exact",
    "s2-exact:warm=true",
    "s2-exact:dtype=int64,warm=true",
    "s2:rows=1,cells=0.25,warm=true",
    "s2:rows=1,cells=1,warm=true",
    "s2:rows=1,cells=4,warm=true",
    "s2:rows=3,cells=0.5,warm=true",
    "s2:rows=3,cells=1,warm=true",
    "s2:rows=3,cells=2,warm=true",
    "s2:rows=3,cells=4,warm=true",
    "s2:rows=3,cells=8,warm=true",
    "s2:preset=authors-gnmt",
)
"""Sketches as in all steps but the first, in which they are at their best; exact ones in both."""

DEFAULT_TRACE = "lstm-lm"
DTYPES = ("fp32", "bf16")
_MAX_COUNTED = 1_000_000


@cluster_spec.document_options
@dataclass(frozen=True, slots=True)
class RunSpec(cluster_spec.ClusterSpec):
    """What `s2sim.run` computes, on the cluster of a `ClusterSpec`."""

    what: ClassVar[str] = "run"

    topology: str = field(
        metadata=cluster_spec.described(
            cluster_spec.TOPOLOGY["metavar"],
            "Name of a shipped topology (see s2sim list topologies) or path of a TOML file; several separated by "
            "commas for a table of clusters.",
        )
    )
    workers: tuple[int, ...] = field(
        metadata=cluster_spec.described(
            "N[,N...]",
            "Number of workers (ranks, GPUs), or several separated by commas for a scaling table; more than the trace "
            "has ranks are extrapolated.",
            parse=cluster_spec.parse_worker_list,
        )
    )
    reducers: tuple[str, ...] = cluster_spec.option((), **cluster_spec.REDUCER)
    trace: str = cluster_spec.option(
        DEFAULT_TRACE,
        "NAME|DIR",
        "Gradients: name of a shipped trace (see s2sim list traces), path of one, or "
        "synthetic:density=0.01,overlap=0.5,tail=2.5 (also rows, width, layers, dense, steps).",
    )
    dtype: str | None = cluster_spec.option(
        None,
        "fp32|bf16",
        "Type that training holds gradients in, in which all is sent that is not compressed.",
        none="as the trace says, else fp32",
    )
    collective: str = cluster_spec.option(
        "auto",
        "ALGORITHM",
        "Algorithm of collectives, such as ring (see s2sim list collectives), or auto: what libraries run.",
    )
    library: str | None = cluster_spec.option(None, **cluster_spec.LIBRARY)
    gpu: str | None = cluster_spec.option(None, **cluster_spec.GPU)
    compute: str | None = cluster_spec.option(
        None,
        "TIME",
        "Forward and backward time of an iteration with its unit, for example 120ms; added without overlap.",
        none="communication phase only",
    )
    max_error: float | None = cluster_spec.option(
        None,
        "RATIO",
        "Largest relative L2 error (a ratio) with which a lossy reducer may win, 0 for none. One of 1 or more never "
        "does, nor one of 0.995 or more unless --steps follows error feedback.",
        none="no limit but those",
    )
    scale_to: str | None = cluster_spec.option(
        None,
        "PARAMETERS",
        "Scale the trace's layers to so many parameters, for example 350M, by the trace's own statistics.",
        none="as recorded",
    )
    model: str | None = cluster_spec.option(
        None,
        "NAME",
        "Scale the trace's statistics to the layers of a known model (see s2sim list models) or of a TOML file.",
        none="the trace's own layers",
    )
    steps: int = cluster_spec.option(
        1,
        "K",
        "Follow every reducer over the first K steps of the trace, lossy ones with error feedback: residual norms by "
        "step, error, time and bytes.",
    )
    profile: str | None = cluster_spec.option(
        None,
        "NAME",
        "Compute profile (see s2sim list profiles) or a file of one: forward, backward and when each gradient is "
        "ready. Whole iterations are compared, on the profile's layers.",
        none="communication phase only",
    )
    discipline: str | None = cluster_spec.option(
        None,
        "NAME",
        "Which gradients are exchanged together, and when: DDP buckets that overlap with backward, such "
        "as ddp:bucket=50MiB, or others (see s2sim list disciplines). With --model NAME it takes the profile "
        "of that name.",
        none="ddp",
    )
    batch: int | None = cluster_spec.option(
        None, "N", "Samples of one GPU's mini-batch.", none="as many as suit the GPU"
    )
    accumulate: int = cluster_spec.option(1, "N", "Mini-batches before gradients are exchanged.")
    streams: int = cluster_spec.option(
        1,
        "1|2",
        "1: codec kernels stand between those of backward; 2: they run beside them and share memory bandwidth.",
    )
    host_loop: str | None = cluster_spec.option(
        None,
        "TIME",
        "What a Python loop over tensors takes for each, before a bucket is encoded and before it is decoded; about "
        "100us in published implementations.",
        none="none: buckets are coded as one",
    )
    compute_cv: float = cluster_spec.option(
        0.0,
        "SHARE",
        "Standard deviation of ranks' compute times over their mean, drawn anew in every iteration (lognormal).",
    )
    compute_times: str | None = cluster_spec.option(
        None,
        "FILE",
        "CSV of measured forward and backward times in ms, a row an iteration and a column a rank, in turn where there "
        "are fewer.",
        none="all ranks alike",
    )
    iterations: int | None = cluster_spec.option(
        None,
        "N",
        "Iterations that are simulated; the median of all but the first counts.",
        none="as many as are needed",
    )
    instead: tuple[str, ...] = cluster_spec.option(
        (),
        "FIELD=VALUE,...",
        "Ask the same of other hardware too, for example nic.count=2,nic.rate=400Gbps, to weigh it against a "
        "compressor; repeatable.",
        none="nothing else",
    )
    groups: str | None = cluster_spec.option(
        None,
        "tp=N,pp=N,dp=rest",
        "tp tensor-parallel ranks share each layer of the profile, pp stages follow each other, and dp replicas "
        "exchange gradients, all groups at once; ranks are numbered tp, dp, pp (or order=tp-pp-dp).",
        none="replicas alone",
    )

    def __post_init__(self) -> None:
        cluster_spec.ClusterSpec.__post_init__(self)
        cluster_spec.check_tuples(self, "workers", "reducers", "instead")
        whole = (self.batch, self.iterations)
        cluster_spec.check_integer(
            *self.workers, self.steps, self.accumulate, self.streams, *(each for each in whole if each is not None)
        )
        _check_values(self)
        _check_training(self)

    @property
    def topologies(self) -> tuple[str, ...]:
        """The topologies that stand between commas; a comma may be part of the path of a file."""
        several = "," in self.topology and not Path(self.topology).exists()
        return tuple(each.strip() for each in self.topology.split(",")) if several else (self.topology,)

    @property
    def by_default(self) -> bool:
        """Whether nobody has named the reducers."""
        return self.reducers in ((), FOR_TABLES, FOR_DENSE_LAYERS, FOR_BOTH, COMPARED)

    @property
    def scaled(self) -> bool:
        """Whether sizes are scaled to other than those recorded."""
        return self.scale_to is not None or self.model is not None


def _check_values(spec: RunSpec) -> None:
    if not spec.workers:
        raise OptionError("no number of workers was given; for example --workers 64")
    if min(spec.workers) < 1:
        raise OptionError(f"{min(spec.workers)} workers were asked for; at least 1 is needed")
    if len(set(spec.workers)) < len(spec.workers):
        raise OptionError(f"a number of workers stands twice in {','.join(map(str, spec.workers))}")
    if spec.dtype not in (None, *DTYPES):
        raise OptionError(f"--dtype {spec.dtype} is unknown{suggest_nearest(str(spec.dtype), DTYPES)}")
    if spec.max_error is not None and not 0 <= spec.max_error < 1:
        raise OptionError(
            f"--max-error {spec.max_error} must be at least 0 and below 1: an error of 1 or more never wins anyway"
        )
    if spec.steps < 1:
        raise OptionError(f"--steps {spec.steps}: at least 1 step is needed")
    if spec.scale_to is not None and spec.model is not None:
        raise OptionError(f"--scale-to {spec.scale_to} and --model {spec.model} both set the size: give one")
    if spec.scaled and spec.steps > 1:
        raise OptionError(
            f"--steps {spec.steps} follows what is carried over on recorded gradients, --scale-to and --model scale "
            "scripts without any: leave one of them out"
        )


def _check_training(spec: RunSpec) -> None:
    counts = {"--batch": spec.batch, "--accumulate": spec.accumulate, "--iterations": spec.iterations}
    for flag, count in counts.items():
        if count is not None and not 1 <= count <= _MAX_COUNTED:
            raise OptionError(f"{flag} {count} must lie between 1 and {_MAX_COUNTED:,}")
    if spec.streams not in (1, 2):
        raise OptionError(f"--streams {spec.streams}: codec work shares a stream with compute (1) or has its own (2)")
    if not 0 <= spec.compute_cv <= 1:
        raise OptionError(f"--compute-cv {spec.compute_cv} must lie between 0 and 1: 0.05 for 5 % of the mean")
    if spec.compute_cv and spec.compute_times is not None:
        raise OptionError("--compute-cv draws what --compute-times gives: leave one of them out")
    if spec.profile is not None:
        _check_beside_profile(spec, spec.profile)
    if spec.groups is not None and spec.faults:
        raise OptionError(
            f"--groups {spec.groups} and --fault {spec.faults[0]}: what a fault does is known of one group of all "
            "workers alone: leave either out"
        )
    if spec.groups is not None and spec.steps > 1:
        raise OptionError(f"--steps {spec.steps} follows one group of all workers: leave it or --groups out")


def _check_beside_profile(spec: RunSpec, profile: str) -> None:
    if spec.compute is not None:
        raise OptionError(f"--compute {spec.compute} and --profile {profile} both say what is computed: give one")
    if spec.scale_to is not None:
        raise OptionError(f"--scale-to {spec.scale_to} is not the size of the profile {profile}: leave one out")
    if spec.model is not None and spec.model != profile:
        raise OptionError(f"--model {spec.model} is not the model of --profile {profile}: leave one out")
    if spec.steps > 1:
        raise OptionError(f"--steps {spec.steps} follows gradients without iterations: leave it or --profile out")
