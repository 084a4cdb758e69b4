"""From the name or file of a compute profile to the profile, on any GPU and for any mini-batch."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from s2sim.errors import S2SimError, UnknownNameError, unknown_name
from s2sim.files import StrictFields, check_tables, is_toml_path, read_text, read_toml, shipped_tables, user_path
from s2sim.gradients.models import Model, load_model
from s2sim.options import build, split_option_string
from s2sim.profiles.compute import computed_profile, measured_profile, on_gpu, with_batch
from s2sim.profiles.profile import (
    PS_PER_US,
    VALUE_BYTES,
    ComputeProfile,
    Precision,
    ProfileFile,
    TensorTiming,
    relative_efficiency,
)
from s2sim.topology.hardware import Gpu, load_gpu
from s2sim.units import PS_PER_S, format_bytes, format_seconds

_MAX_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What may stand behind a profile's name, as in ``resnet-50:precision=tf32``."""

    precision: Precision | None = None  # Of matrix products and activations; see `ProfileSource.precision_on`
    efficiency: float | None = None  # Share of the peak that matrix products reach, of a computed profile


def profile_names() -> list[str]:
    """Return the names of all shipped profiles."""
    return list(shipped_tables("profiles"))


# No iteration takes longer; beyond that times overflow.
_MAX_PS = 10**6 * PS_PER_S


@dataclass(frozen=True)
class ProfileSource:
    """The file of a compute profile with the layer table and the GPU that it names, each read once."""

    text: str  # Name or path, with options behind it
    name: str
    file: ProfileFile
    options: ProfileOptions

    @cached_property
    def model(self) -> Model:
        """The layer table of a computed profile."""
        return load_model(self.file.model)

    @cached_property
    def gpu(self) -> Gpu:
        """What the profile was measured on, or is computed for unless another is given."""
        return load_gpu(self.file.gpu)

    @cached_property
    def as_measured(self) -> ComputeProfile:
        """A measured profile as it stands in the file."""
        return measured_profile(self.name, self.file, None if self.file.optimizer.rule is None else self.gpu)

    @cached_property
    def _sparse(self) -> bool:
        measured = self.file.efficiency is None
        return any(each.sparse for each in (self.as_measured.tensors if measured else self.model.layers))

    def _carried_from(self, gpu: Gpu | None) -> Gpu | None:
        """Return the file's GPU where another is asked for; None if that is none of the catalogue."""
        if gpu is None or gpu.name == self.file.gpu:
            return None
        try:
            return self.gpu
        except UnknownNameError:
            return None

    def precision_on(self, gpu: Gpu | None = None) -> Precision:
        """Return the precision that is asked for, or else that in use on a GPU (default: the file's).

        That is the file's, and bf16 on a GPU that has it in place of float32 on one that has not.
        """
        held = self.file.precision
        here = self._carried_from(gpu)
        newer = gpu is not None and here is not None and gpu.multiplies("bf16") and not here.multiplies("bf16")
        return self.options.precision or ("bf16" if newer and held == "fp32" else held)

    def batch_on(self, gpu: Gpu | None = None) -> tuple[int, str]:
        """Return the mini-batch that a GPU (default: the file's) is used with, and why where it is another GPU.

        The file's is doubled as often as the memory holds what it takes of the memory of its own GPU. It stays where
        somebody chose it or trained row-sparse tables with it, whose rows depend on it, and where a memory is unknown.
        """
        file, here = self.file, self._carried_from(gpu)
        stated = int(file.batch.value)
        if gpu is None or here is None:
            return stated, ""
        kept = f"the profile's mini-batch of {stated}"
        if file.batch.kind == "user":
            return stated, f"{kept}, as its file has it"
        if file.batch.kind == "measured" and self._sparse:
            return stated, f"{kept}, of training whose tables have the rows of that many"
        if gpu.memory_bytes is None or here.memory_bytes is None:
            return stated, f"{kept}: what more the memory holds is not known"
        precision = self.precision_on(gpu)
        room = gpu.memory_bytes / VALUE_BYTES[precision] * VALUE_BYTES[file.precision] / here.memory_bytes
        batch = stated << max(0, int(room).bit_length() - 1)
        there = f"{format_bytes(gpu.memory_bytes)} of {gpu.name} in {precision}"
        held = f"{format_bytes(here.memory_bytes)} of {here.name} in {file.precision}"
        if batch == stated:
            return stated, f"{kept}: {there} hold less than twice what {held} do"
        return batch, f"a mini-batch of {batch} for {there}, as of {stated} for {held}"

    def on(self, gpu: Gpu | None = None, batch: int | None = None) -> ComputeProfile:
        """Return the profile for a GPU and mini-batch, computed or, if measured, scaled.

        By default they are the file's GPU, and what `batch_on` says.
        """
        try:
            chosen, why = self.batch_on(gpu) if batch is None else (batch, "")
            found = self._on(gpu, chosen)
            _check_duration(found)
        except S2SimError as error:
            raise type(error)(f"profile {self.text}: {error}") from None
        return replace(found, source=f"{found.source}; {why}") if why else found

    def _on(self, gpu: Gpu | None, batch: int) -> ComputeProfile:
        file, options = self.file, self.options
        precision = self.precision_on(gpu)
        if batch < 1:
            raise S2SimError(f"a mini-batch of {batch} is none: ask for at least 1")
        if file.efficiency is not None:
            # Of the catalogue, also where another is asked for.
            own = gpu if gpu is not None and gpu.name == file.gpu else self.gpu
            on = gpu or own
            stated = float(file.efficiency.value) * relative_efficiency(precision, file.precision)
            # Libraries reach no more of the peak of float32.
            most = stated if precision == file.precision else on.flops_efficiency or stated
            return computed_profile(
                self.model,
                on,
                batch,
                min(stated, most) if options.efficiency is None else options.efficiency,
                precision=precision,
                rule=file.optimizer.rule or "sgd-momentum",
                name=self.name,
            )
        if options.efficiency is not None:
            raise S2SimError("it is measured, so that an efficiency changes nothing: leave it out")
        profile = with_batch(self.as_measured, batch)
        if gpu is None and precision == file.precision:
            return profile
        try:
            here = self.gpu
        except UnknownNameError:
            if precision != file.precision:
                raise S2SimError(f"its times in {file.precision} on {file.gpu} say nothing of {precision}") from None
            why = f"as it was on {file.gpu}, which is no GPU of the catalogue: not scaled to {gpu and gpu.name}"
            return replace(profile, source=f"{profile.source}; {why}")
        return on_gpu(profile, (here, file.precision), (gpu or here, precision))


def open_profile(name_or_path: str) -> ProfileSource:
    """Return the source of a shipped profile, or of a file of its form, see `load_profile`, for any GPU."""
    name, given = split_option_string(name_or_path)
    options = build(ProfileOptions, given, f"profile {name}")
    shipped = shipped_tables("profiles")
    if name not in shipped and not is_toml_path(name):
        raise unknown_name("profile", name, shipped)
    path = shipped.get(name) or user_path(name, S2SimError)
    if not (tables := read_toml(path, S2SimError)):
        raise S2SimError(f"{path} is empty: a profile says model, gpu, batch and times (s2sim profile show --help)")
    file = check_tables(tables, ProfileFile, path, "compute profile", _MAX_PROBLEMS)
    return ProfileSource(name_or_path, path.stem, file, options)


def load_profile(name_or_path: str, *, gpu: str | None = None, batch: int | None = None) -> ComputeProfile:
    """Return a compute profile on a GPU and for a mini-batch.

    ``name_or_path`` is a shipped profile or the path of a TOML file (with a slash, or ending in ``.toml``), optionally
    followed by ``:precision=fp32|tf32|fp16|bf16`` and, for a computed profile, ``:efficiency=0.4``. ``gpu`` is a GPU of
    the hardware catalogue or a file with one (default: the profile's), ``batch`` the mini-batch of one GPU; precision
    and mini-batch default to those that `ProfileSource.precision_on` and `ProfileSource.batch_on` say. A computed
    profile is computed for them; a measured one is scaled, and then an estimate. `S2SimError` if there is no such
    profile or its file is invalid.
    """
    try:
        asked = None if gpu is None else load_gpu(gpu)
    except S2SimError as error:
        raise type(error)(f"profile {name_or_path}: {error}") from None
    return open_profile(name_or_path).on(asked, batch)


TRACE, PROFILE, CODECS, _JOB = "gradients", "profile.toml", "codecs.toml", "job.json"
"""What is in the folder of a recorded job: the gradients of its ranks, the compute of one, what ``s2sim dev calibrate
codecs`` adds, and what ran."""
PROCESSORS = "CPU"
"""What profiles of a host have for their GPU."""


@dataclass(frozen=True, slots=True)
class IterationSeconds(StrictFields):
    """The parts of an iteration in seconds, which add up to it; backward includes loss and codecs."""

    forward_s: float
    backward_s: float
    exposed_communication_s: float  # From the last gradient to the optimizer
    optimizer_s: float
    other_s: float  # Of the host before forward and after the optimizer

    def __post_init__(self) -> None:
        if not all(0 <= each < _MAX_PS / PS_PER_S for each in asdict(self).values()):
            raise ValueError("a part of an iteration takes no time that there is")


@dataclass(frozen=True, slots=True)
class AllReduceTime(StrictFields):
    """The median time of an all-reduce of the job's process group."""

    size_bytes: int
    time_s: float


@dataclass(frozen=True, slots=True)
class RecordedJob(StrictFields):
    """What ran where a job was recorded."""

    iteration_s: float  # Median of steps without hooks, with what communication and waiting took
    ranks: int
    host: str
    device: str
    torch: str
    bucket_bytes: int | None  # Limit of DDP's buckets; None without DDP
    bucket_views: bool | None = None  # Whether gradients were views of DDP's buckets; None where it is not known
    buckets: tuple[tuple[str, ...], ...] = ()  # Parameters of DDP's buckets; empty where it did not tell them
    parts: IterationSeconds | None = None  # Of steps with few marks, under the job's communication
    mini_batches: int = 1  # Of a step
    compute_alone: bool = False  # Whether the profile's forward and backward ran without communication beside them
    backend: str | None = None  # Of torch.distributed
    # hosts, nodes: of each rank, nodes by host and network namespace
    hosts: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    interface: str | None = None  # That the backend was told to use
    processors: int | None = None  # That a process may use
    all_reduces: tuple[AllReduceTime, ...] = ()
    by_rows: tuple[str, ...] = ()  # Parameters whose gradients DDP sends by rows, as those of tables with sparse=True

    def __post_init__(self) -> None:
        if not 0 < self.iteration_s < _MAX_PS / PS_PER_S or min(self.ranks, self.mini_batches) < 1:
            raise ValueError(f"an iteration of {self.iteration_s} s on {self.ranks} ranks is none")
        if not all(each.size_bytes > 0 and 0 < each.time_s < _MAX_PS / PS_PER_S for each in self.all_reduces):
            raise ValueError("an all-reduce of no bytes or no time is none")
        if len(self.nodes) not in (0, self.ranks):
            raise ValueError(f"{len(self.nodes)} nodes of {self.ranks} ranks are told of")

    @property
    def processes_per_processor(self) -> float:
        """How many of its processes shared a processor, at least 1."""
        here = max(Counter(self.hosts).values(), default=1)
        return max(1.0, here / (self.processors or here))

    @property
    def discipline(self) -> str | None:
        """The option string of its buckets; None for the default ones."""
        return None if self.bucket_bytes in (None, 25 << 20) else f"ddp:bucket={self.bucket_bytes}B"

    def write(self, folder: Path) -> None:
        """Write it into the folder of the job."""
        (folder / _JOB).write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")

    @classmethod
    def read(cls, folder: str) -> "RecordedJob":
        """Return that of a folder; `S2SimError` where there is none."""
        path = Path(folder) / _JOB
        try:
            tables = json.loads(read_text(path, noun="the recorded job "))
        except (ValueError, RecursionError) as error:
            raise S2SimError(f"{path} is not valid JSON: {error}") from None
        return check_tables(tables, cls, path, "recorded job", _MAX_PROBLEMS)


def _check_duration(profile: ComputeProfile) -> None:
    if profile.forward_ps + profile.backward_ps + profile.optimizer_ps > _MAX_PS:
        raise S2SimError(
            f"a mini-batch of {profile.batch} computes for more than {format_seconds(_MAX_PS / PS_PER_S)} on "
            f"{profile.gpu}: ask for a smaller one"
        )


def list_profiles() -> list[tuple[str, str, str]]:
    """Return (name, one-line summary with units, source) of every shipped profile."""
    rows = []
    for name in profile_names():
        source = open_profile(name)
        file, profile = source.file, source.on()
        forward, backward = (format_seconds(ps / PS_PER_S) for ps in (profile.forward_ps, profile.backward_ps))
        on = f"{profile.gpu}, {profile.batch} x {profile.sample}"
        what = f"{file.description}; {on}: forward {forward}, backward {backward}; {file.kind}"
        rows.append((name, what, file.source))
    return rows


def profile_text(profile: ComputeProfile, *, description: str, batch_source: str, memory_bound_source: str) -> str:
    """Return the TOML of a measured profile with the sources of its mini-batch and memory-bound share."""
    check_model_name(profile.model)
    stated = {
        "batch": (f"value = {profile.batch!r}", "user", batch_source),
        "memory_bound": (f"value = {profile.memory_bound!r}", "estimated", memory_bound_source),
        "optimizer": (f"time = {_quoted(_time(profile.optimizer_ps))}", profile.kind, profile.source),
    }
    names = ("model", "gpu", "precision", "sample", "kind", "source")
    lines = [
        "# Compute profile. backward: from when the gradient before was ready, or backward began, until this one is.",
        f"description = {_quoted(description)}",
        *(f"{name} = {_quoted(getattr(profile, name))}" for name in names),
        "tensors = [",
        *(f"  {_tensor_line(tensor)}," for tensor in profile.tensors),
        "]",
    ]
    for name, (value, kind, source) in stated.items():
        lines += ["", f"[{name}]", value, f"kind = {_quoted(kind)}", f"source = {_quoted(source)}"]
    return "\n".join([*lines, ""])


def check_model_name(model: str) -> None:
    """Refuse to call a model by what a profile's reader takes for the path of a layer table."""
    if is_toml_path(model):
        raise S2SimError(f"model {model!r} is a path: call it by a name or a few words without a slash")


def _tensor_line(tensor: TensorTiming) -> str:
    shape = ", ".join(map(str, tensor.shape))
    times = f"forward = {_quoted(_time(tensor.forward_ps))}, backward = {_quoted(_time(tensor.backward_ps))}"
    sparse = "sparse = true, " if tensor.sparse else ""
    return f"{{ name = {_quoted(tensor.name)}, shape = [{shape}], {sparse}{times} }}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _time(time_ps: int) -> str:
    """Return a time to the picosecond.

    >>> _time(1_250_000), _time(3_000_000)
    ('1.25us', '3us')
    """
    whole, rest = divmod(time_ps, PS_PER_US)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + "us"
