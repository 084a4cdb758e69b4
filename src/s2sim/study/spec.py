"""A comparison of reducers as people write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from s2sim.errors import OptionError, nearest
from s2sim.study.cluster_spec import ClusterSpec, check_tuples, check_whole

BASELINES = ("union", "owner-reduce", "gather-rows")
"""What is exact and sends rows, without which no comparison of sparse compressors is fair."""

PREFETCH = "union:prefetch=true"
"""Presumes that the batch tells the rows before forward, as it does for embeddings."""

DEFAULT_REDUCERS = (
    "dense",
    "fp16",
    "topk:density=0.01",
    PREFETCH,
    *BASELINES,
    "s2-exact",
    "s2-exact:warm=true",
    "s2:rows=3,cells=2",
    "s2:rows=3,cells=2,warm=true",
    "s2:preset=authors-gnmt",
)
"""Compressors beside those baselines; what carries sizes over as in its first step and as in all later ones."""

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
_MOST_COUNTED = 1_000_000


@dataclass(frozen=True, slots=True)
class RunSpec(ClusterSpec):
    """What `s2sim.run` computes, on the cluster of a `ClusterSpec`.

    Attributes
    ----------
    workers : tuple of int
        Numbers of ranks, one result row each and reducer.
    reducers : tuple of str
        Option strings; ``dense`` is added when it is missing.
    trace : str
        Name or path of a gradient trace, or ``synthetic:...``.
    dtype : str or None
        Type that training holds gradients in, ``fp32`` or ``bf16``; None for the trace's.
    collective : str
        Option string of an algorithm, or ``auto``.
    library : str or None
        Option string of a communication library, ``ideal`` executes everything as asked; None for the topology's.
    gpu : str or None
        Name in the hardware catalogue, or path of a file of its form; None for the topology's.
    compute : str or None
        Time of forward and backward, added without overlap.
    max_error : float or None
        A lossy reducer with a larger relative L2 error does not win a verdict.
    scale_to : str or None
        Parameters, for example ``350M``, to which the trace's layers are scaled.
    model : str or None
        Name or path of a layer table to which the trace's statistics are scaled.
    steps : int
        Steps of the trace over which reducers are followed, with error feedback; 1 for the first alone.
    profile : str or None
        Name or path of a compute profile: when which gradient is ready; with one, whole iterations are compared.
    discipline : str or None
        Option string of what leaves together and when; None for PyTorch's DDP where there is a profile.
    batch : int or None
        Samples of one GPU's mini-batch; None for the profile's.
    accumulate : int
        Mini-batches before gradients are exchanged.
    streams : int
        1 where codec work stands between kernels of compute, 2 where it runs beside them.
    host_loop : str or None
        Time that a loop of the host over tensors takes for each, before a bucket is encoded and before it is decoded.
    compute_cv : float
        Standard deviation of ranks' compute times over their mean.
    compute_times : str or None
        Path of a CSV file with measured compute times in milliseconds: a row an iteration, a column a rank.
    iterations : int or None
        Iterations that are simulated; None for as many as are needed.
    groups : str or None
        Groups of ranks beside each other, as ``tp=8,pp=4,dp=rest``: gradients are those of a rank of the first stage,
        and every data-parallel group exchanges its own; None for one group of all.
    """

    what: ClassVar[str] = "run"

    workers: tuple[int, ...]
    reducers: tuple[str, ...] = DEFAULT_REDUCERS
    trace: str = DEFAULT_TRACE
    dtype: str | None = None
    collective: str = "auto"
    library: str | None = None
    gpu: str | None = None
    compute: str | None = None
    max_error: float | None = None
    scale_to: str | None = None
    model: str | None = None
    steps: int = 1
    profile: str | None = None
    discipline: str | None = None
    batch: int | None = None
    accumulate: int = 1
    streams: int = 1
    host_loop: str | None = None
    compute_cv: float = 0.0
    compute_times: str | None = None
    iterations: int | None = None
    groups: str | None = None

    def __post_init__(self) -> None:
        ClusterSpec.__post_init__(self)
        check_tuples(self, "workers", "reducers")
        whole = (self.batch, self.iterations)
        check_whole(
            *self.workers, self.steps, self.accumulate, self.streams, *(each for each in whole if each is not None)
        )
        _check_values(self)
        _check_training(self)
        _check_groups(self)

    @property
    def by_default(self) -> bool:
        """Whether nobody has named the reducers."""
        return self.reducers in (DEFAULT_REDUCERS, COMPARED)

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
    if not spec.reducers:
        raise OptionError("no reducer was given; for example --reducer union")
    if spec.dtype not in (None, *DTYPES):
        raise OptionError(f"--dtype {spec.dtype} is unknown{nearest(str(spec.dtype), DTYPES)}")
    if spec.max_error is not None and not 0 < spec.max_error < 1:
        raise OptionError(
            f"--max-error {spec.max_error} must lie between 0 and 1: an error of 1 or more never wins anyway"
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


def _check_groups(spec: RunSpec) -> None:
    if spec.groups is None:
        return
    if spec.faults:
        raise OptionError(
            f"--groups {spec.groups} and --fault {spec.faults[0]}: what a fault does is known of one group of all "
            "workers alone: leave either out"
        )
    if spec.steps > 1:
        raise OptionError(f"--steps {spec.steps} follows one group of all workers: leave it or --groups out")


def _check_training(spec: RunSpec) -> None:
    counts = {"--batch": spec.batch, "--accumulate": spec.accumulate, "--iterations": spec.iterations}
    for option, count in counts.items():
        if count is not None and not 1 <= count <= _MOST_COUNTED:
            raise OptionError(f"{option} {count} must lie between 1 and {_MOST_COUNTED:,}")
    if spec.streams not in (1, 2):
        raise OptionError(f"--streams {spec.streams}: codec work shares a stream with compute (1) or has its own (2)")
    if not 0 <= spec.compute_cv <= 1:
        raise OptionError(f"--compute-cv {spec.compute_cv} must lie between 0 and 1: 0.05 for 5 % of the mean")
    if spec.compute_cv and spec.compute_times is not None:
        raise OptionError("--compute-cv draws what --compute-times gives: leave one of them out")
    if spec.profile is not None:
        _check_beside_profile(spec, spec.profile)


def _check_beside_profile(spec: RunSpec, profile: str) -> None:
    if spec.compute is not None:
        raise OptionError(f"--compute {spec.compute} and --profile {profile} both say what is computed: give one")
    if spec.scale_to is not None:
        raise OptionError(f"--scale-to {spec.scale_to} is not the size of the profile {profile}: leave one out")
    if spec.model is not None and spec.model != profile:
        raise OptionError(f"--model {spec.model} is not the model of --profile {profile}: leave one out")
    if spec.steps > 1:
        raise OptionError(f"--steps {spec.steps} follows gradients without iterations: leave it or --profile out")
