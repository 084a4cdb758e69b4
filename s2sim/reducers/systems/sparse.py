"""What the systems share that compress row-sparse layers and send the others densely."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.options import check_options
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.shared.sparse_split import Layers, SplitGradient, compressed_layers, split_layers
from s2sim.reducers.shared.two_level_sum import select_layers
from s2sim.reducers.systems.dense import Dense


class Sparse(Reducer):
    """A reducer of tables; without any, all goes as `Dense` sends it.

    Attributes
    ----------
    layers : {"sparse", "all"}
        Compress the row-sparse layers only, or the dense ones too, by element.
    """

    __slots__ = ()
    layers: Layers
    prefetch: bool = False
    """Whether supports are exchanged before there is a gradient; an option of some."""

    def __post_init__(self) -> None:
        check_options(self, self.about.name)
        if self.prefetch and self.layers == "all":
            raise OptionError(
                f"{self.about.name}: prefetch=true needs layers=sparse: which elements of dense layers are not zero is "
                "known only after backward"
            )

    @property
    def traits(self) -> Traits:
        """``about``, and whether it begins before the gradient."""
        return replace(self.about, before_gradient=True) if self.prefetch else self.about

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Split the gradient, and reduce its tables and other layers."""
        split = split_layers(rank, gradient, self.layers, self.held)
        if any(table.size for table in split.tables):
            return (yield from self.reduce_split(rank, split))
        reduced = yield from Dense().held_in(self.held).reduce(rank, gradient)
        if not split.tables:
            return reduced
        # An empty table stays a table: that of an empty shard is gathered beside those of others.
        others = select_layers(
            reduced.mean, [index for index in range(len(gradient.layers)) if index not in split.compressed]
        )
        return Reduced(rank.replicated(lambda: split.join(split.tables, others)), reduced.sent)

    def leaves_to(self, gradient: Gradient) -> Reducer | None:
        """Return `Dense` where there is no layer to compress."""
        return None if compressed_layers(gradient, self.layers) else Dense().held_in(self.held)

    @abstractmethod
    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Return the program for a gradient with tables that are not empty, beside which some may be."""

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return the row-sparse layers, or all."""
        return compressed_layers(gradient, self.layers)
