"""What codecs cost: idealised kernels, the code that a paper published, or what a framework runs today.

A paper's reducer and the code that was measured are at times not the same: code that a framework runs operation by
operation makes its host start each of them on every tensor, and passes over the whole array in each.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from s2sim.experiment.spec import CodecBasis
from s2sim.files import own_tables
from s2sim.reducers.rank import Reducer
from s2sim.reducers.script import Phase, Recording, Script, Step, Work
from s2sim.simulation.bucketing.policy import BucketExchange
from s2sim.simulation.plan import measured_passes_s
from s2sim.topology.hardware import Gpu
from s2sim.units import PS_PER_S

OPERATION_PS = 10 * 10**6
"""What a framework's host takes to start one operation on a tensor: 7 to 12 us in published loops over tensors, see the
page on fidelity; kernels of the catalogue cost 5 us each on the GPU."""

TOPK_NS = 12.8
"""Nanoseconds a value of torch.topk before PyTorch 1.12, in which one thread block read each tensor: 25.6 ms for
2,000,000 values on a P100 (pytorch/pytorch#22812). Since #71081 many blocks do, in 4.7 passes (pytorch/pytorch#167462),
about as many as the idealised kernel's."""

TOPK_YEAR = 2022
"""When PyTorch 1.12 came: what a source of before measured ran the older one."""

VALUE_BYTES = 4
_PS_PER_NS, _PS_PER_US = 10**3, 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """How published code runs a reducer; see ``implementations.toml``."""

    template: str  # Option string, with fields for the density, rank or bits of a measured row
    operations: int  # Of encode, feedback and decode per tensor
    origin: str
    aliases: Sequence[str] = ()  # Other names of it in publications
    operations_a_column: int = 0  # In addition per column of a low-rank approximation
    one_stream: bool = False  # Whether codec and collectives share a stream of the GPU
    selects: bool = False  # Whether it finds the largest elements by torch.topk
    # Passes over the float32 values; None for those of the registry's reducer
    encode_passes: float | None = None
    decode_passes: float | None = None

    def represents(self, reducer: Reducer) -> bool:
        """Return whether it is how a reducer with these options runs."""
        name, _, options = self.template.partition(":")
        own = {key: str(value) for key, value in reducer.options().items()}
        fixed = (part.partition("=")[::2] for part in options.split(",") if "{" not in part)
        return name == reducer.traits.name and all(own.get(key) == value for key, value in fixed if key)

    def operations_ps(self, columns: int = 0) -> int:
        """Return the host's time for a tensor's operations in encode, which is that in decode too, in picoseconds."""
        return (self.operations + self.operations_a_column * columns) * OPERATION_PS // 2


@cache
def implementations() -> dict[str, Implementation]:
    """Return the implementations that were read, by the names that publications use."""
    return {key: Implementation(**row) for key, row in own_tables(__file__, "implementations.toml")["reducers"].items()}


def usual_implementation(template: str) -> Implementation:
    """Return that of a reducer of which no code was read: as many operations as others of its kind."""
    usual = own_tables(__file__, "implementations.toml")
    return Implementation(template=template, operations=usual["usual_operations"], origin=usual["usual_origin"])


def implementation_of(reducer: Reducer) -> Implementation:
    """Return how published code runs a reducer, or one of its name with other options."""
    found = list(implementations().values())
    named = [each for each in found if each.template.partition(":")[0] == reducer.traits.name]
    usual = usual_implementation(reducer.traits.name)
    return next((each for each in named if each.represents(reducer)), named[0] if named else usual)


@dataclass(frozen=True, slots=True)
class CodecCosts:
    """What a reducer's codec costs beside, or instead of, its idealised kernels."""

    # Of the host before a phase (encode or decode) begins: per tensor of a bucket, per one that is compressed, and per
    # value of all, for copies between a hook and its codec
    loop_ps: int = 0
    operations_ps: int = 0
    copy_ps: float = 0.0
    measured: bool = False  # Whether measured passes of published code count instead of kernels, where there are such
    value_ns: float = 0.0  # In addition per value in encode, where no bandwidth limits a kernel
    # Passes over the float32 values, instead of the kernels' bytes
    encode_passes: float | None = None
    decode_passes: float | None = None

    @property
    def text(self) -> str:
        """The costs in words."""
        parts = [f"{(self.loop_ps + self.operations_ps) / _PS_PER_US:g} us of the host a tensor and phase"]
        passes = {"encode": self.encode_passes, "decode": self.decode_passes}
        parts += [f"{each:g} passes to {phase}" for phase, each in passes.items() if each is not None]
        parts += [f"{self.value_ns:g} ns a value to select"] if self.value_ns else []
        return " and ".join(parts)


KERNELS = CodecCosts()
"""Idealised kernels, and nothing beside them."""


def implementation_costs(implementation: Implementation, year: int | None, columns: int = 0) -> CodecCosts:
    """Return the costs of published code of a year; None where that is not known."""
    return CodecCosts(
        operations_ps=implementation.operations_ps(columns),
        measured=True,
        value_ns=TOPK_NS if implementation.selects and year is not None and year < TOPK_YEAR else 0.0,
        encode_passes=implementation.encode_passes,
        decode_passes=implementation.decode_passes,
    )


def codec_costs(reducer: Reducer, basis: CodecBasis, host_loop_ps: int = 0) -> CodecCosts:
    """Return what a reducer's codec costs on a basis, with a user's own loop of the host over tensors.

    ``kernels`` are idealised ones. ``published`` is what the code of that paper and year took: operations that a
    framework starts one by one, passes that were counted, the `torch.topk` of then, and measured times where the
    authors left such. ``framework`` is the idealised kernels' memory traffic in as many operations.
    """
    if basis == "kernels":
        return CodecCosts(loop_ps=host_loop_ps)
    implementation, columns = implementation_of(reducer), int(reducer.options().get("rank", 0) or 0)
    if basis == "framework":
        return CodecCosts(loop_ps=host_loop_ps, operations_ps=implementation.operations_ps(columns))
    years = [int(found[0]) for found in re.finditer(r"\b(19|20)\d\d\b", reducer.traits.source)]
    return replace(implementation_costs(implementation, max(years, default=None), columns), loop_ps=host_loop_ps)


def charge_codec(
    recording: Recording, costs: CodecCosts, sizes: Collection[int], gpu: Gpu, coded: Collection[int] | None = None
) -> Recording:
    """Return a recording whose work costs that; ``sizes`` and ``coded``: elements of its tensors, and of compressed."""
    if costs == KERNELS:
        return recording
    coded = sizes if coded is None else coded
    host_ps = costs.loop_ps * len(sizes) + costs.operations_ps * len(coded) + round(costs.copy_ps * sum(sizes))
    elements = sum(coded)
    passes = {"encode": costs.encode_passes, "decode": costs.decode_passes}
    whole: dict[Phase, float] = {
        phase: VALUE_BYTES * elements * each for phase in ("encode", "decode") if (each := passes[phase]) is not None
    }
    first = recording.representatives
    charged = {rank: _charge_script(recording.scripts[rank], costs, whole, elements, host_ps, gpu) for rank in {*first}}
    return replace(recording, scripts=tuple(charged[rank] for rank in first))


def _charge_script(
    script: Script, costs: CodecCosts, whole: dict[Phase, float], elements: int, host_ps: int, gpu: Gpu
) -> Script:
    works = [step for step in script if isinstance(step, Work)]
    if costs.measured and any(work.dense_encode_bytes or work.dense_decode_bytes for work in works):
        # Measured passes over dense tables stand for kernels, where there are such.
        return tuple(
            Work(step.phase, 0, launches=0, fixed_ps=round(passes_s * PS_PER_S))
            if isinstance(step, Work) and (passes_s := measured_passes_s(step, gpu))
            else step
            for step in script
        )
    before_ps = dict.fromkeys((work.phase for work in works), host_ps)
    if costs.value_ns:
        before_ps["encode"] = before_ps.get("encode", 0) + round(costs.value_ns * elements * _PS_PER_NS)
    # The first work of a phase stands for all of it, where passes were counted.
    left = dict(whole)
    steps: list[Step] = []
    for step in script:
        if not isinstance(step, Work):
            steps.append(step)
            continue
        if fixed_ps := before_ps.pop(step.phase, 0):
            steps.append(Work(step.phase, 0, launches=0, fixed_ps=fixed_ps))
        if step.phase not in whole:
            steps.append(step)
        elif step.phase in left:
            steps.append(Work(step.phase, round(left.pop(step.phase)), launches=step.launches))
    return tuple(steps)


def charge_buckets(
    exchange: Iterable[BucketExchange], costs: CodecCosts, sizes: Sequence[int], coded: Collection[int], gpu: Gpu
) -> tuple[BucketExchange, ...]:
    """Return the buckets of an iteration whose work costs that; ``coded`` are the places of compressed tensors."""
    if costs == KERNELS:
        return tuple(exchange)
    charged = []
    for each in exchange:
        own = [sizes[tensor] for tensor in each.bucket.tensors]
        compressed = [sizes[tensor] for tensor in each.bucket.tensors if tensor in coded]
        charged.append(replace(each, recording=charge_codec(each.recording, costs, own, gpu, compressed)))
    return tuple(charged)
