"""Layer tables of known models: how large each parameter is, and which of their gradients are row-sparse."""

from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from pathlib import Path
from typing import Literal, TypeAlias

from s2sim.errors import S2SimError, unknown_name
from s2sim.files import StrictFields, check_tables, read_toml, shipped_tables
from s2sim.gradients.gradient import Shaped

Kind: TypeAlias = Literal["published", "estimated", "user"]

# Of one model, and of a line of its table: bytes of thousands fit in 64 bits.
_MOST_LAYERS, MOST_ELEMENTS = 100_000, 2**50


@dataclass(frozen=True, slots=True)
class LayerGroup(StrictFields):
    """One line of a layer table: one layer, or several of one shape."""

    name: str  # The parameter's name; ``{}`` stands for the number of the layer where there are several
    shape: tuple[int, ...]  # Shape of the parameter, rows first
    # count, first: how many there are, and the number of the first
    count: int = 1
    first: int = 0
    sparse: bool = False  # Whether a mini-batch touches only some rows, so that the gradient is rows + values
    rows: int = 0  # Rows that one sample looks up in such a table; 0 where nobody has counted them
    # How often forward multiplies by each of its values for one sample: output pixels of a convolution, tokens of a
    # linear layer, 0 where it is looked up or works element by element
    positions: int = 0
    multiply_adds: int = 0  # What forward multiplies and adds beside that for one sample, as the scores of attention
    # Activations that its layer's kernels without products, such as normalisation, read or write in forward for one
    # sample
    values: int = 0
    # kind, source: how sure the shape is and what it rests on; those of the model unless given
    kind: Kind | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        if not self.shape or min(self.shape) < 1 or self.count < 1 or self.first < 0:
            raise ValueError(f"layer {self.name!r} needs a shape of numbers from 1, a count from 1 and a first from 0")
        if self.size > MOST_ELEMENTS:
            raise ValueError(f"layer {self.name!r} has more than {MOST_ELEMENTS:,} elements: correct its shape")
        if ("{}" in self.name) != (self.count > 1):
            raise ValueError(f"layer {self.name!r}: a name has {{}} where count is more than 1, and only there")
        if min(self.positions, self.multiply_adds, self.values, self.rows) < 0:
            raise ValueError(f"layer {self.name!r} needs positions, multiply_adds, values and rows from 0")

    @property
    def size(self) -> int:
        """Elements of all its layers."""
        return prod(self.shape) * self.count

    def layer(self, place: int) -> "ModelLayer":
        """Return one of its layers, from 0."""
        return ModelLayer(
            self.name.replace("{}", str(self.first + place)),
            self.shape,
            self.sparse,
            multiply_adds=self.positions * prod(self.shape) + self.multiply_adds,
            values=self.values,
            rows=self.rows,
        )


@dataclass(frozen=True, slots=True)
class ModelLayer(Shaped):
    """One parameter of a model, rows first; ``sparse`` where its gradient is row-sparse.

    ``multiply_adds`` and ``values`` are those of its layer in forward, for one sample: what is multiplied and added,
    and the activations that kernels without products read or write. One sample looks up ``rows`` of a table, and a
    mini-batch ``most_rows`` at most; 0 where that is not known.
    """

    name: str
    shape: tuple[int, ...]
    sparse: bool
    multiply_adds: int = 0
    values: int = 0
    rows: int = 0
    most_rows: int = 0


@dataclass(frozen=True, slots=True)
class PublishedCount(StrictFields):
    """A count by somebody else, against which a layer table is checked when it is read.

    It may differ by a share ``within``, which rounding has hidden; ``tied`` layers are left out of it because they
    share another layer's parameter.
    """

    parameters: int
    within: float
    kind: Kind
    source: str
    tied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerTable(StrictFields):
    """The layer table of one model, as its file has it: how sure the shapes are, what they rest on, and the layers.

    Layers stand in the order of forward. Lines that follow each other and number the same thing, such as
    ``layer.{}.weight`` and ``layer.{}.bias``, are one block that is repeated. ``sample`` is what operations are counted
    for, such as ``image of 224 x 224``; without it nobody has counted them.
    """

    description: str
    kind: Kind
    source: str
    layers: tuple[LayerGroup, ...]
    published: PublishedCount | None = None
    sample: str | None = None

    def __post_init__(self) -> None:
        if sum(group.count for group in self.layers) > _MOST_LAYERS:
            raise ValueError(f"there are more than {_MOST_LAYERS:,} layers")
        names = [layer.name for layer in self.each()]
        if not names or len(set(names)) != len(names):
            raise ValueError("there must be at least one layer and no two of one name")
        if self.published is None:
            return
        counted = sum(group.size for group in self.layers if group.name not in self.published.tied)
        if abs(counted - self.published.parameters) > self.published.within * self.published.parameters:
            raise ValueError(
                f"the layers have {counted} parameters, {self.published.parameters} are published "
                f"(within {self.published.within}): correct a shape or the published number"
            )

    def each(self) -> tuple[ModelLayer, ...]:
        """Return all layers, one by one, in the order of forward."""
        alike = groupby(self.layers, lambda group: (group.name.partition("{}")[0], group.first, group.count))
        blocks = [list(block) for _, block in alike]
        return tuple(group.layer(place) for block in blocks for place in range(block[0].count) for group in block)


@dataclass(frozen=True, slots=True)
class Model:
    """A model whose size a run can be scaled to, under a shipped name or that of its file."""

    name: str
    table: LayerTable
    batch: int = 0  # Samples between two exchanges; 0 where that is not known

    @property
    def layers(self) -> tuple[ModelLayer, ...]:
        """All layers, one by one."""
        return tuple(replace(each, most_rows=each.rows * self.batch) for each in self.table.each())

    @property
    def parameters(self) -> int:
        """Elements of all layers."""
        return sum(group.size for group in self.table.layers)


def load_model(name: str) -> Model:
    """Return the model of a shipped name or of a TOML file, whose layers must add up to what was published."""
    shipped = shipped_tables("models")
    path = shipped.get(name) or Path(name)
    if path.suffix != ".toml":
        raise unknown_name("model", name, shipped)
    return Model(path.stem, check_tables(read_toml(path, S2SimError), LayerTable, path, "layer table"))


def model_names() -> list[str]:
    """Return the names of all shipped models."""
    return list(shipped_tables("models"))


def list_models() -> list[tuple[str, str, str]]:
    """Return (name, one-line summary, source) of every shipped model."""
    rows = []
    for name in model_names():
        model = load_model(name)
        sparse = [layer for layer in model.layers if layer.sparse]
        share = f", {sum(layer.size for layer in sparse) / model.parameters:.0%} of them in row-sparse tables"
        size = f"{model.parameters / 1e6:.4g} M parameters{share if sparse else ''}"
        kinds = {group.kind or model.table.kind for group in model.table.layers}
        estimated = "; some shapes are estimated" if "estimated" in kinds else ""
        rows.append((name, f"{model.table.description}; {size}{estimated}", model.table.source))
    return rows
