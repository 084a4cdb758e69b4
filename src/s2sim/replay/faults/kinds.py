"""What can go wrong in a run, each as a value with its options."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from s2sim.errors import OptionError, unknown_name
from s2sim.options import build, join_option_string, non_default, split_option_string
from s2sim.units import parse_size_bytes, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class SlowLink:
    """Links that carry less than they should, all the time or for a while."""

    name: ClassVar[str] = "slow-link"
    example: ClassVar[str] = "slow-link:link=node1.nic0.out,factor=0.5"

    link: str
    factor: float
    at: str = "0s"
    until: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.factor < 1:
            raise OptionError(f"slow-link: factor={self.factor} of the rate must lie between 0 and 1")
        if self.until_ps is not None and self.until_ps <= self.at_ps:
            raise OptionError(f"slow-link: until={self.until} must come after at={self.at}")

    @property
    def at_ps(self) -> int:
        """From when on, in picoseconds."""
        return parse_time_ps(self.at)

    @property
    def until_ps(self) -> int | None:
        """Until when, in picoseconds; None for good."""
        return None if self.until is None else parse_time_ps(self.until)

    @property
    def lasting(self) -> bool:
        """Whether it is so from the start on and for good."""
        return self.at_ps == 0 and self.until is None


@dataclass(frozen=True, slots=True)
class FailLink:
    """Links that nothing crosses from a moment on: messages take other ways."""

    name: ClassVar[str] = "fail-link"
    example: ClassVar[str] = "fail-link:link=leaf0.up1,at=2ms"

    link: str
    at: str = "0s"

    def __post_init__(self) -> None:
        parse_time_ps(self.at)

    @property
    def at_ps(self) -> int:
        """From when on, in picoseconds."""
        return parse_time_ps(self.at)

    @property
    def lasting(self) -> bool:
        """Whether it is so from the start on."""
        return self.at_ps == 0

    @property
    def words(self) -> str:
        """What has failed, and when."""
        return f"{self.link} failed" if self.lasting else f"{self.link} failed at {self.at}"


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A rank whose GPU work takes a factor longer, or that comes later by a delay."""

    name: ClassVar[str] = "slow-rank"
    example: ClassVar[str] = "slow-rank:rank=3,delay=1ms"

    rank: int
    factor: float | None = None
    delay: str | None = None

    def __post_init__(self) -> None:
        if (self.factor is None) == (self.delay is None):
            raise OptionError("slow-rank: give either factor=, for its GPU work, or delay=, for coming late")
        if self.rank < 0:
            raise OptionError(f"slow-rank: rank={self.rank} must not be negative")
        if self.factor is not None and not 1 < self.factor < float("inf"):
            raise OptionError(f"slow-rank: factor={self.factor} of the time of its work must be more than 1")
        if self.delay is not None and self.delay_ps == 0:
            raise OptionError(f"slow-rank: delay={self.delay} delays nothing: leave it out")

    @property
    def delay_ps(self) -> int:
        """How much later it comes, in picoseconds."""
        return 0 if self.delay is None else parse_time_ps(self.delay)


@dataclass(frozen=True, slots=True)
class Jitter:
    """Latency that differs from message to message: more of it, drawn from an exponential distribution."""

    name: ClassVar[str] = "jitter"
    example: ClassVar[str] = "jitter:latency=2us"

    latency: str

    def __post_init__(self) -> None:
        if self.mean_ps == 0:
            raise OptionError(f"jitter: latency={self.latency} adds nothing: leave it out")

    @property
    def mean_ps(self) -> int:
        """Mean of what is added to a message, in picoseconds."""
        return parse_time_ps(self.latency)


@dataclass(frozen=True, slots=True)
class Background:
    """Traffic of others: messages between random ranks of different nodes, as a Poisson process."""

    name: ClassVar[str] = "background"
    example: ClassVar[str] = "background:load=0.3,size=1MiB"

    load: float
    size: str = "1MiB"

    def __post_init__(self) -> None:
        if not 0 < self.load < 1:
            raise OptionError(f"background: load={self.load} of what network interfaces carry must lie between 0 and 1")
        if self.size_bytes == 0:
            raise OptionError(f"background: messages of size={self.size} load nothing: leave them out")

    @property
    def size_bytes(self) -> int:
        """Bytes of each message."""
        return parse_size_bytes(self.size)


Fault: TypeAlias = SlowLink | FailLink | SlowRank | Jitter | Background

FAULTS: dict[str, type[Fault]] = {fault.name: fault for fault in (SlowLink, FailLink, SlowRank, Jitter, Background)}


def make_fault(text: str) -> Fault:
    """Return the fault of an option string.

    >>> make_fault("jitter:latency=2us").mean_ps
    2000000
    """
    name, options = split_option_string(text)
    if name not in FAULTS:
        raise unknown_name("fault", name, FAULTS)
    cls = FAULTS[name]
    needed = {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
    missing = sorted(needed - set(options))
    if missing and set(options) <= {field.name for field in dataclasses.fields(cls)}:
        raise OptionError(f"{text} needs {' and '.join(f'{key}=' for key in missing)}, for example {cls.example}")
    return build(cls, options, name)


def fault_text(fault: Fault) -> str:
    """Return the option string of a fault, the inverse of `make_fault`."""
    return join_option_string(fault.name, non_default(fault))


def make_faults(texts: Sequence[str]) -> tuple[Fault, ...]:
    """Return the faults of option strings, each of which may stand there once."""
    faults: dict[str, Fault] = {}
    for text in texts:
        fault = make_fault(text)
        if fault_text(fault) in faults:
            raise OptionError(f"the fault {text} was asked for twice: leave one out")
        faults[fault_text(fault)] = fault
    return tuple(faults.values())
