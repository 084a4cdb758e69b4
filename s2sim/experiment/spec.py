"""A comparison of reducers as people write it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, get_args

from s2sim.errors import OptionError, check_known, suggest_nearest
from s2sim.experiment import cluster_spec
from s2sim.files import own_tables

PREFETCH = "union:prefetch=true"
"""Presumes that the batch tells the rows before forward, as it does for embeddings."""

_LISTS: dict[str, tuple[str, ...]] = {name: tuple(of) for name, of in own_tables(__file__, "compared.toml").items()}
BASELINES, COMPARED = _LISTS["baselines"], _LISTS["compared"]
FOR_TABLES, FOR_DENSE_LAYERS, FOR_BOTH = (_LISTS[f"for_{what}"] for what in ("tables", "dense_layers", "both"))

DEFAULT_TRACE = "lstm-lm"
DTYPES = ("fp32", "bf16")
CodecBasis: TypeAlias = Literal["kernels", "published", "framework"]
CODEC_BASES = get_args(CodecBasis)
# Mini-batches of NCF have 2**20 samples on 16 GB, and more on GPUs with more memory.
_MAX_COUNTED, _MAX_BATCH = 1_000_000, 2**24


@cluster_spec.document_options
@dataclass(frozen=True, slots=True)
class RunSpec(cluster_spec.ClusterSpec):
    """What `s2sim.run` computes, on the cluster of a `ClusterSpec`."""

    what: ClassVar[str] = "run"

    topology: str
    workers: tuple[int, ...] = cluster_spec.parsed(cluster_spec.parse_worker_list)
    reducers: tuple[str, ...] = ()
    trace: str = DEFAULT_TRACE
    dtype: str | None = None
    collective: str = "auto"
    library: str | None = None
    gpu: str | None = None
    codec_as: str = "kernels"
    compute: str | None = None
    max_error: float | None = None
    scale_to: str | None = None
    model: str | None = None
    steps: int = 1
    profile: str | None = None
    discipline: str | None = None
    batch: int | None = None
    accumulate: int | None = None
    streams: int = 1
    host_loop: str | None = None
    compute_cv: float = 0.0
    compute_times: str | None = None
    iterations: int | None = None
    instead: tuple[str, ...] = ()
    groups: str | None = None

    recorded: str | None = None

    def __post_init__(self) -> None:
        cluster_spec.ClusterSpec.__post_init__(self)
        cluster_spec.check_tuples(self, "workers", "reducers", "instead")
        if self.recorded is not None:
            _take_recorded(self, self.recorded)
        given = (each for each in (self.batch, self.accumulate, self.iterations) if each is not None)
        cluster_spec.check_integer(*self.workers, self.steps, self.streams, *given)
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


def _take_recorded(spec: RunSpec, folder: str) -> None:
    from s2sim.profiles.read import CODECS, PROFILE, TRACE

    for name, file, default in (("trace", TRACE, DEFAULT_TRACE), ("profile", PROFILE, None)):
        own, there = getattr(spec, name), str(Path(folder) / file)
        if own not in (default, there):
            raise OptionError(f"--{name} {own} and --recorded {folder} both name a {name}: leave one out")
        object.__setattr__(spec, name, there)
    codecs = Path(folder) / CODECS
    if spec.gpu is None and codecs.exists():
        object.__setattr__(spec, "gpu", str(codecs))


def check_codec_basis(text: str) -> None:
    """Raise `OptionError` for what is none of `CODEC_BASES`."""
    check_known(text, CODEC_BASES, f"--codec-as {text} is unknown")


def _check_values(spec: RunSpec) -> None:
    if not spec.workers:
        raise OptionError("no number of workers was given; for example --workers 64")
    if min(spec.workers) < 1:
        raise OptionError(f"{min(spec.workers)} workers were asked for; at least 1 is needed")
    if len(set(spec.workers)) < len(spec.workers):
        raise OptionError(f"a number of workers stands twice in {','.join(map(str, spec.workers))}")
    if spec.dtype not in (None, *DTYPES):
        raise OptionError(f"--dtype {spec.dtype} is unknown{suggest_nearest(str(spec.dtype), DTYPES)}")
    check_codec_basis(spec.codec_as)
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
        most = _MAX_BATCH if flag == "--batch" else _MAX_COUNTED
        if count is not None and not 1 <= count <= most:
            raise OptionError(f"{flag} {count} must lie between 1 and {most:,}")
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
