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

    def __post_init__(self) -> None:
        ClusterSpec.__post_init__(self)
        check_tuples(self, "workers", "reducers")
        check_whole(*self.workers, self.steps)
        _check_values(self)

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
