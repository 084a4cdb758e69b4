"""What the systems share whose messages stand for some elements of a vector and zeros everywhere else."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.reducers.elements.gathered import Gathered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Floats32
    from s2sim.reducers.elements.gathered import Message


class Scattered(Gathered):
    """A reducer that sends some elements of each tensor, which are added where they belong."""

    __slots__ = ()

    @abstractmethod
    def read(self, message: Message, elements: int) -> tuple[NDArray[Any], Floats32 | np.float32]:
        """Return where the elements that a message holds are, each once, and their values, or the one of all."""

    def decode(self, message: Message, elements: int) -> Floats32:
        """Return the elements in their places, and zeros."""
        vector = np.zeros(elements, np.float32)
        at, values = self.read(message, elements)
        vector[at] = values
        return vector

    def add(self, message: Message, total: Floats32) -> None:
        """Add the elements alone."""
        at, values = self.read(message, len(total))
        total[at] += values

    @property
    def known_size(self) -> bool:
        """How many elements there are, or how long their positions, data decide."""
        return False
