"""What every discipline of exchange offers: which gradients leave together, in which order, and who waits for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from s2sim.options import option_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.arrays import Ints, Mask

    Exchange: TypeAlias = Callable[[int], int]


@dataclass(frozen=True, slots=True, eq=False)
class ReadyTensors:
    """Gradients in the order in which they become ready.

    Attributes
    ----------
    bytes : int64 array, shape (t,)
        Of each as training holds it.
    ready_ps : int64 array, shape (t,)
        When each is ready, from the beginning of backward, never decreasing.
    sparse : bool array, shape (t,)
        Whether it is row-sparse.
    """

    bytes: Ints
    ready_ps: Ints
    sparse: Mask


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that leave together, once the last of them is ready.

    Attributes
    ----------
    tensors : tuple of int
        Their places in the order of readiness, increasing.
    priority : int
        Of buckets that are ready, one with a smaller number goes first; equal ones in the order in which they became
        ready.
    """

    tensors: tuple[int, ...]
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Discipline:
    """How gradients are exchanged. A discipline is a dataclass of its options, with defaults.

    Attributes
    ----------
    name, summary, source, example : str
        Its name in option strings; what it does in one line; whose it is; an option string.
    waits_for_all : bool
        Whether the next forward waits for all gradients and the whole optimizer, or only for the parameters that a
        layer needs.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    example: ClassVar[str]
    waits_for_all: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """Its option string, which `make_discipline` reads back."""
        return option_text(self)

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return the buckets in the order in which they leave; every tensor is in exactly one.

        Parameters
        ----------
        tensors : ReadyTensors
            What there is.
        exchange_ps : callable
            Returns how long a dense all-reduce of so many bytes takes alone on this cluster, in picoseconds.
        """
        raise NotImplementedError
