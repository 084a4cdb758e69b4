"""A recorded job, predicted on its own network before any other: what that corrects, and by how much it stays off."""

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.schedules.demand import make_demand
from s2sim.collectives.timing.timer import Timer
from s2sim.experiment.json_form import LEFT_OUT
from s2sim.gradients.gradient import Gradient
from s2sim.gradients.synthetic import AnyTrace
from s2sim.libraries.constants import ConstantOverrides, load_constants
from s2sim.libraries.gloo import HostLibraryProfile
from s2sim.libraries.library import Library
from s2sim.libraries.lowering import choose_library
from s2sim.profiles.profile import ComputeProfile
from s2sim.profiles.read import IterationSeconds, RecordedJob
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer, run_symmetric
from s2sim.simulation.accounting import IterationParts, IterationSettings
from s2sim.simulation.bucketing import policy
from s2sim.simulation.iteration import replay_iterations
from s2sim.topology.cluster import build_cluster
from s2sim.topology.hardware import Gpu
from s2sim.topology.quantity import Quantity
from s2sim.topology.read_file import parse_shape
from s2sim.uncertainty.machine_fit import FittedConstant, HostFit, fit_host_constants
from s2sim.units import PS_PER_S, format_rate, format_seconds

if TYPE_CHECKING:
    from s2sim.experiment.scenario.cluster import Machines
    from s2sim.experiment.scenario.training import TrainingIteration

# Whose constants are fitted to times of all-reduces; other backends are links with the latency and rate of a ring.
_FITTED = ("gloo",)
# TCP hands so much at once to an interface that cuts it into packets.
_SEGMENT = "64KiB"
_PASSES, _FIT_STEPS = 4, 6


@dataclass(frozen=True, slots=True)
class RecordedBuckets(policy.Discipline):
    """The buckets that DistributedDataParallel had in the recorded job, as places in the order of readiness."""

    name: ClassVar[str] = "ddp"
    places: tuple[tuple[int, ...], ...] = ()

    @property
    def text(self) -> str:
        """The name: no option string says the rest."""
        return self.name

    def buckets(self, tensors: policy.ReadyTensors, exchange_ps: policy.Exchange) -> tuple[policy.Bucket, ...]:
        """Return them."""
        return tuple(map(policy.Bucket, self.places))


def recorded_discipline(job: RecordedJob, profile: ComputeProfile) -> policy.Discipline:
    """Return the buckets of a job on the tensors of its profile; those of DDP's limit where it does not tell them."""
    place = {each.name: number for number, each in enumerate(profile.tensors)}
    if sorted(place) != sorted(name for bucket in job.buckets for name in bucket):
        return policy.make_discipline(job.discipline or "ddp")
    return RecordedBuckets(tuple(tuple(sorted(place[name] for name in bucket)) for bucket in job.buckets))


@dataclass(frozen=True, slots=True)
class RecordedComparison:
    """A recorded job's iteration of dense on its own network, as measured and as predicted."""

    measured_iteration_s: float
    predicted_iteration_s: float
    uncorrected_iteration_s: float  # As predicted with the library's shipped constants and without corrections
    # By which share of the smaller the two may differ: what is left, waiting_s as well, or what all-reduces are off
    error: float
    # measured, predicted: the parts; of the measured ones the sum differs from the iteration by what marks take
    measured: IterationSeconds
    predicted: IterationSeconds
    most_off: str  # The part that differs most
    rate_bytes_per_s: float | None  # Of each node's link, that the times of all-reduces tell; None for one rank
    all_reduce_error: float  # Median of |ln(predicted/measured)| of these times
    constants: tuple[FittedConstant, ...]  # Of the backend, fitted to them
    # Exposed communication that the times of all-reduces do not explain, as of ranks that wait for each other; it is
    # added to every iteration that follows
    waiting_s: float
    # Seconds that compute loses to each byte of an all-reduce beside it
    processor_s_per_byte: float
    own: ConstantOverrides = field(default=(), metadata=LEFT_OUT)  # The same constants as a library's file has them

    @property
    def text(self) -> str:
        """All of it in a sentence."""
        waits = f" ({format_seconds(self.waiting_s)} of it unexplained by all-reduces)" if self.waiting_s else ""
        parts = (
            f"{name.removesuffix('_s').replace('_', ' ')} {format_seconds(value)} -> "
            f"{format_seconds(asdict(self.predicted)[name])}{waits if name == 'exposed_communication_s' else ''}"
            for name, value in asdict(self.measured).items()
        )
        off = self.predicted_iteration_s / self.measured_iteration_s - 1
        times = f"{format_seconds(self.measured_iteration_s)} -> {format_seconds(self.predicted_iteration_s)}"
        network = "" if self.rate_bytes_per_s is None else f" of {format_rate(self.rate_bytes_per_s)}"
        return (
            f"the recorded job on its own network{network}, measured -> predicted: {times} ({off:+.0%}); "
            f"{', '.join(parts)}; {self.most_off} is most off, and gains below {self.error:.1%} are undecided"
        )


def predict_recorded(
    training: "TrainingIteration", job: RecordedJob, gpu: Gpu, trace: AnyTrace
) -> RecordedComparison | None:
    """Return the comparison of a job and its trace; None if it has no parts of its iteration, or no network.

    Tables whose gradients it sends by rows are gathered, with the rows of its ranks.
    """
    if job.parts is None or (job.ranks > 1 and not job.all_reduces):
        return None
    profile, held = training.source.as_measured, trace.manifest.dtype
    own = replace(training, profile=profile, discipline=recorded_discipline(job, profile), accumulate=job.mini_batches)
    timer = _timer(job)
    fit = _fit(replace(job, iteration_s=1.0, parts=None, buckets=(), mini_batches=1, bucket_bytes=None))
    library = choose_library(job.backend or "ideal")
    if fit.own:
        library = with_constants(library, ())
    compute, sizes = own.compute, own.ready_tensors(held).elements
    dense, gather = (make_reducer(each).with_dtype(held) for each in ("dense", "gather-rows:layers=all"))
    exchange = []
    for bucket in own.buckets(timer.with_profile(library.profile), held):
        names = tuple(profile.tensors[place].name for place in bucket.tensors)
        if job.ranks > 1 and set(names) <= set(job.by_rows):
            ranks = [dict(trace.gradient(0, rank)) for rank in range(job.ranks)]
            rows = [Gradient(names, tuple(layers[name] for name in names)) for layers in ranks]
            exchange.append(policy.BucketExchange(bucket, run_reducer(gather, rows).recording))
            continue
        gradient = Gradient(("bucket",), (np.zeros(int(sizes[list(bucket.tensors)].sum()), np.float32),))
        exchange.append(policy.BucketExchange(bucket, run_symmetric(dense, gradient, job.ranks)))

    def simulated(using: Library, lost_s_per_byte: float, host_s: float = 0.0) -> IterationParts:
        worked = replace(compute, host_ps=round(host_s * PS_PER_S))
        settings = IterationSettings(
            np.ones((1, job.ranks)), accumulate=job.mini_batches, processor_s_per_byte=lost_s_per_byte
        )
        return replay_iterations(exchange, worked, timer, gpu, using, settings).typical

    uncorrected = simulated(library, 0.0)
    fitted = with_constants(library, fit.own) if fit.own else library
    found, lost_s_per_byte = simulated(fitted, 0.0), 0.0
    slower_ps = round(job.parts.backward_s * PS_PER_S) - found.backward // job.mini_batches
    if job.compute_alone and slower_ps > 0 and found.hidden_communication:
        alone, communication = found.backward, found.hidden_communication + found.exposed_communication
        beside_bytes = int(sizes.sum()) * 4 * found.hidden_communication / communication
        lost_s_per_byte = slower_ps / PS_PER_S / beside_bytes
        for _ in range(_PASSES):
            found = simulated(fitted, lost_s_per_byte)
            # Of a time in which compute w has lost e, its share is e / (e + w), to which what a byte takes is in ratio.
            lost_ps = max(found.backward - alone, 1)
            beside_ps = max(found.hidden_communication - lost_ps, 0)
            lost_s_per_byte *= slower_ps * (lost_ps + beside_ps) / (slower_ps + beside_ps) / lost_ps
        found = simulated(fitted, lost_s_per_byte)
    before_s = (job.mini_batches - 1) * (found.forward + found.backward) / job.mini_batches / PS_PER_S
    measured = replace(job.parts, other_s=max(0.0, job.parts.other_s - before_s))
    if job.ranks == 1:  # Before the optimizer the host works: nothing is exchanged.
        host_s = measured.other_s + measured.exposed_communication_s
        measured = replace(measured, exposed_communication_s=0.0, other_s=host_s)
    exposed_s = (found.exposed_communication + found.waiting) / PS_PER_S
    waiting_s = max(0.0, measured.exposed_communication_s - exposed_s)
    whole_s = simulated(fitted, lost_s_per_byte, measured.other_s + waiting_s).iteration / PS_PER_S
    explained = IterationSeconds(
        forward_s=found.forward / job.mini_batches / PS_PER_S,
        backward_s=(found.backward / job.mini_batches + found.codec) / PS_PER_S,
        exposed_communication_s=exposed_s,
        optimizer_s=found.optimizer / PS_PER_S,
        other_s=measured.other_s,
    )
    off = {name: abs(value - asdict(explained)[name]) for name, value in asdict(measured).items()}
    left = max(max(each / job.iteration_s, job.iteration_s / each) for each in (whole_s, whole_s - waiting_s)) - 1
    return RecordedComparison(
        measured_iteration_s=job.iteration_s,
        predicted_iteration_s=whole_s,
        uncorrected_iteration_s=uncorrected.iteration / PS_PER_S,
        error=max(left, fit.after * exposed_s / whole_s),
        measured=measured,
        predicted=replace(explained, exposed_communication_s=exposed_s + waiting_s),
        most_off=max(off, key=off.__getitem__).removesuffix("_s").replace("_", " "),
        rate_bytes_per_s=_link_rate(job),
        all_reduce_error=fit.after,
        constants=fit.constants,
        waiting_s=waiting_s,
        processor_s_per_byte=lost_s_per_byte,
        own=fit.own,
    )


def with_constants(library: Library, own: ConstantOverrides) -> Library:
    """Return a library between hosts with its own constants, some of them replaced."""
    return replace(library, profile=HostLibraryProfile(library.name, own))


def corrected_machines(machines: "Machines", job: RecordedJob, compared: RecordedComparison) -> "Machines":
    """Return machines whose library, if it is the job's backend by its shipped constants, has those of the job."""
    library, profile = machines.library, machines.library.profile
    if library.name != job.backend or not isinstance(profile, HostLibraryProfile) or profile.own or not compared.own:
        return machines
    text = f"{machines.text}; constants of {library.name} by the all-reduces of the recorded job"
    return replace(machines, library=with_constants(library, compared.own), text=text)


def _link_rate(job: RecordedJob) -> float | None:
    """Return the bytes per second of a node's link by the two largest all-reduces of the job, which a ring sends."""
    if not job.all_reduces:
        return None
    *others, last = job.all_reduces
    more_bytes, longer_s = float(last.size_bytes), last.time_s
    if others and last.time_s > others[-1].time_s:
        more_bytes, longer_s = more_bytes - others[-1].size_bytes, longer_s - others[-1].time_s
    share = load_constants(job.backend)["network.any.share"] if job.backend in _FITTED else 1.0
    return 2 * (job.ranks - 1) / job.ranks * more_bytes / longer_s / share


def _timer(job: RecordedJob) -> Timer:
    """Return the timer on a star of the job's nodes: of processes, where all are on one host and share processors."""
    one_host, fitted = len(set(job.hosts)) <= 1, job.backend in _FITTED
    messages = 2 * max(job.ranks - 1, 1)
    # A path has two links.
    latency_s = 0.0 if fitted or not job.all_reduces else job.all_reduces[0].time_s / messages / 2
    fields: dict[str, str | int] = {
        "name": "recorded",
        "description": "the hosts of the recorded job",
        "node.gpus": 1 if one_host or not fitted else max(Counter(job.nodes).values()),
        "nic.latency": f"{1e6 * latency_s:.6f}us",
        "nic.rate": f"{_link_rate(job) or 1e12:.0f}B/s",
        "nic.transport": "tcp",
        "fabric.kind": "single-switch",
    }
    if one_host and job.processors is not None:
        fields |= {"machine.processors": job.processors, "machine.packet": _SEGMENT}
    given = {name: Quantity(name, value, "measured", "the recorded job") for name, value in fields.items()}
    return Timer(build_cluster(parse_shape(given, Path("recorded.toml")), job.ranks))


@cache
def _fit(job: RecordedJob) -> HostFit:
    """Return the constants of the backend that fit best to the job's all-reduces; none where none are fitted."""
    if job.backend not in _FITTED:
        return HostFit((), (), 0.0, 0.0)
    timer, backend = _timer(job), job.backend
    # Every other size tells as much, in half the time.
    times = job.all_reduces[::-2]
    demands = [make_demand("all_reduce", each.size_bytes, job.ranks) for each in times]

    def predicted_s(own: ConstantOverrides) -> list[float]:
        there = timer.with_profile(HostLibraryProfile(backend, own))
        return [there.time(demand).duration_ps / PS_PER_S for demand in demands]

    return fit_host_constants(backend, predicted_s, [each.time_s for each in times], steps=_FIT_STEPS)
