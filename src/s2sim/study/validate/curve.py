"""A measured curve: what is written on the machine, and times by size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from s2sim.study.collective.against_result import LARGE_BYTES
from s2sim.study.validate.harness import none_if_empty

_MOST = 2**24
_MOST_CHANNELS = 2**10


def _split(value: Any) -> Any:
    return value.split() if isinstance(value, str) else value


_Count = Annotated[int, Field(ge=1, le=_MOST)]
# Words that stand in messages and tables.
_Word = Annotated[str, Field(max_length=100)]
_Known = Annotated[_Word, Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Machine:
    """One row of an index: a machine as its metadata say, and the collective that ran on it.

    Columns that are not named here are ignored; an empty text means not known. Curves of one ``system`` count as one
    source. ``protocol`` and ``min_channels`` are what the library was set to; ``doubt`` says why times cannot follow
    from this row.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "ignore"}

    id: Annotated[str, Field(min_length=1)]
    gpu_model: _Known
    gpus_per_node: _Count
    nodes: _Count
    ranks: _Count
    intra_interconnect: str
    nics_per_node: Annotated[int, Field(ge=0, le=_MOST)]
    nic_rate_gbps: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
    collective: _Known
    outlier_sizes_bytes: Annotated[tuple[int, ...], BeforeValidator(_split)]
    quality: _Known
    system: _Word
    launch: _Word
    algorithm: _Word
    nvlink_domain_gpus: Annotated[Annotated[int, Field(ge=0, le=_MOST)] | None, BeforeValidator(none_if_empty)]
    transport: _Word
    doubt: str
    protocol: _Word = ""
    nccl_version: str = ""
    min_channels: Annotated[Annotated[int, Field(ge=1, le=_MOST_CHANNELS)] | None, BeforeValidator(none_if_empty)] = (
        None
    )
    path: _Word = ""
    p2p: str = ""
    source_url: str = ""

    @property
    def source(self) -> str:
        """Whose voice the curve is."""
        return self.system or self.id

    @property
    def has_nvswitch(self) -> bool:
        """Whether the text on a node's links says that an NVSwitch joins its GPUs."""
        text = self.intra_interconnect.lower()
        return "nvswitch" in text and "no nvswitch" not in text


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One message size and the time that it took."""

    size_bytes: int
    measured_s: float


@dataclass(frozen=True, slots=True)
class Curve:
    """A row of an index, and its points by size; ``problem`` says why one of both cannot be read, else it is empty."""

    id: str
    machine: Machine | None
    points: tuple[MeasuredPoint, ...]
    problem: str = ""


def resampled(points: tuple[MeasuredPoint, ...], dropped: tuple[int, ...] = ()) -> tuple[MeasuredPoint, ...]:
    """Return for each power of two the nearest point within 20 %, so that dense tables count no more than others.

    ``dropped`` are sizes that a hiccup hit.
    """
    nearest: dict[int, MeasuredPoint] = {}
    for point in points:
        if point.size_bytes in dropped:
            continue
        below = 1 << (point.size_bytes.bit_length() - 1)
        for power in (below, 2 * below):
            off = abs(point.size_bytes - power)
            if 5 * off <= power and (power not in nearest or off < abs(nearest[power].size_bytes - power)):
                nearest[power] = point
    return tuple(nearest[power] for power in sorted(nearest))


def is_large(size_bytes: int) -> bool:
    """Return whether the power of two that a resampled size stands for is large."""
    return 5 * size_bytes >= 4 * LARGE_BYTES
