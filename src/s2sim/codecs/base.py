"""The contract of a codec: options that turn a vector into named arrays and back, and how those of ranks combine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np

from s2sim.errors import CodecError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Floats32
    from s2sim.codecs.payload import Payload

Combine: TypeAlias = Literal["sum", "or", "max", "gather"]
"""How the same array of several ranks' payloads becomes one: all-reduced by an operation, or gathered side by side."""

Combination: TypeAlias = dict[str, Combine]
"""How each array of a codec's payload combines."""


class Codec(Protocol):
    """A frozen dataclass of options that encodes vectors, with the name it is registered under.

    Attributes
    ----------
    summary, source : str
        What it does, in one line, and where it was published.
    combine : dict of str to {"sum", "or", "max", "gather"}
        For each array of its payload, how those of several ranks combine.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    combine: ClassVar[Combination]

    def encode(self, array: Floats32) -> Payload:
        """Return the payload of ``array``, float32 of shape (n,)."""

    def decode(self, payload: Payload) -> Floats32:
        """Return what ``payload`` stands for, float32 of shape (n,)."""


def float32_vector(array: NDArray[Any], owner: str) -> Floats32:
    """Return ``array`` if it is a float32 vector; `CodecError` says what ``owner`` found instead."""
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.ndim != 1:
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise CodecError(f"{owner} encodes a float32 vector; found {found}: convert and flatten it first")
    return array
