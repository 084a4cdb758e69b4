"""Layer tables of known models: how large each parameter is, and which of their gradients are row-sparse."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from s2sim.data import data_directory
from s2sim.errors import S2SimError, problems_of, unknown_name
from s2sim.text_files import read_toml

Kind: TypeAlias = Literal["published", "estimated", "user"]

_SUFFIX = ".toml"
# Read by pydantic where the file is checked; an unknown key there is an error, never dropped quietly.
_STRICT = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """One line of a layer table: one layer, or several of one shape.

    Attributes
    ----------
    name : str
        The parameter's name; ``{}`` stands for the number of the layer where there are several.
    shape : tuple of int
        Shape of the parameter, rows first.
    count, first : int
        How many there are, and the number of the first.
    sparse : bool
        Whether a mini-batch touches only some rows, so that the gradient is rows + values.
    kind, source : str or None
        How sure the shape is and what it rests on; those of the model unless given.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    name: str
    shape: tuple[int, ...]
    count: int = 1
    first: int = 0
    sparse: bool = False
    kind: Kind | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        if not self.shape or min(self.shape) < 1 or self.count < 1 or self.first < 0:
            raise ValueError(f"layer {self.name!r} needs a shape of numbers from 1, a count from 1 and a first from 0")
        if ("{}" in self.name) != (self.count > 1):
            raise ValueError(f"layer {self.name!r}: a name has {{}} where count is more than 1, and only there")

    @property
    def size(self) -> int:
        """Elements of all its layers."""
        return prod(self.shape) * self.count

    def layers(self) -> tuple[ModelLayer, ...]:
        """Return its layers one by one."""
        return tuple(
            ModelLayer(self.name.format(number), self.shape, self.sparse)
            for number in range(self.first, self.first + self.count)
        )


@dataclass(frozen=True, slots=True)
class ModelLayer:
    """One parameter of a model, rows first; ``sparse`` where its gradient is row-sparse."""

    name: str
    shape: tuple[int, ...]
    sparse: bool

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Published:
    """A count by somebody else, against which a layer table is checked when it is read.

    It may differ by a share ``within``, which rounding has hidden; ``tied`` layers are left out of it because they
    share another layer's parameter.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    parameters: int
    within: float
    kind: Kind
    source: str
    tied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerTable:
    """The layer table of one model, as its file has it: how sure the shapes are, what they rest on, and the layers."""

    __pydantic_config__: ClassVar[dict[str, str]] = _STRICT

    description: str
    kind: Kind
    source: str
    layers: tuple[LayerGroup, ...]
    published: Published

    def __post_init__(self) -> None:
        names = [layer.name for group in self.layers for layer in group.layers()]
        if not names or len(set(names)) != len(names):
            raise ValueError("there must be at least one layer and no two of one name")
        counted = sum(group.size for group in self.layers if group.name not in self.published.tied)
        if abs(counted - self.published.parameters) > self.published.within * self.published.parameters:
            raise ValueError(
                f"the layers have {counted} parameters, {self.published.parameters} are published "
                f"(within {self.published.within}): correct a shape or the published number"
            )


@dataclass(frozen=True, slots=True)
class Model:
    """A model whose size a run can be scaled to, under a shipped name or that of its file."""

    name: str
    table: LayerTable

    @property
    def layers(self) -> tuple[ModelLayer, ...]:
        """All layers, one by one."""
        return tuple(layer for group in self.table.layers for layer in group.layers())

    @property
    def parameters(self) -> int:
        """Elements of all layers."""
        return sum(group.size for group in self.table.layers)


def load_model(name: str) -> Model:
    """Return the model of a shipped name or of a TOML file, whose layers must add up to what was published."""
    shipped = _shipped()
    if name in shipped:
        return _read(shipped[name], name)
    path = Path(name)
    if path.suffix != _SUFFIX:
        raise unknown_name("model", name, shipped)
    return _read(path, path.stem)


def list_models() -> list[tuple[str, str, str]]:
    """Return (name, one-line summary, source) of every shipped model."""
    rows = []
    for name in _shipped():
        model = load_model(name)
        sparse = [layer for layer in model.layers if layer.sparse]
        share = f", {sum(layer.size for layer in sparse) / model.parameters:.0%} of them in row-sparse tables"
        size = f"{model.parameters / 1e6:.4g} M parameters{share if sparse else ''}"
        kinds = {group.kind or model.table.kind for group in model.table.layers}
        estimated = "; some shapes are estimated" if "estimated" in kinds else ""
        rows.append((name, f"{model.table.description}; {size}{estimated}", model.table.source))
    return rows


def _shipped() -> dict[str, Path]:
    return {path.stem: path for path in sorted(data_directory("models").glob(f"*{_SUFFIX}"))}


def _read(path: Path, name: str) -> Model:
    from pydantic import TypeAdapter, ValidationError

    content = read_toml(path, S2SimError)
    try:
        # By way of JSON, whose strict reading takes lists for tuples and nothing else for numbers.
        table = TypeAdapter(LayerTable).validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        found = problems_of(error.errors(include_url=False), "table")
        raise S2SimError(f"{path} is not a layer table: {found}") from None
    return Model(name, table)
