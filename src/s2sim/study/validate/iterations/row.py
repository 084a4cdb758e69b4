"""A measured training iteration: what is written on its machine, model and reducer, and its times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from s2sim.study.validate.harness import none_if_empty
from s2sim.study.validate.iterations.notes import noted_ms

# Whole and sum of the parts differ by less in rows that can be judged.
_MOST_APART = 0.08
_MOST = 2**24
# As people call what compresses nothing.
_DENSE = ("dense", "none", "baseline", "allreduce")
_MOST_MS = 1e9
_MOST_PARAMETERS = 10**13


_Count = Annotated[int, Field(ge=1, le=_MOST)]
_Word = Annotated[str, Field(max_length=200)]
_Known = Annotated[_Word, Field(min_length=1)]
_Ms = Annotated[Annotated[float, Field(ge=0, le=_MOST_MS, allow_inf_nan=False)] | None, BeforeValidator(none_if_empty)]


@dataclass(frozen=True, slots=True)
class IterationRow:
    """One row of ``iterations.csv``, times in milliseconds; None and an empty text mean not known.

    Columns that are not named here are ignored. ``nic_rate_gbps`` is that of a node's one interface. ``overlap_kind``
    is ``none``, ``wfbp``, ``mg-wfbp``, ``ddp``, ``bytescheduler`` or ``unknown``; ``reducer_params`` is
    ``key=value;key=value`` or other words; ``dense_pair`` is the id of the dense row of the same set-up.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "ignore"}

    id: _Known
    source: _Known
    gpu: _Known
    nodes: _Count
    gpus_per_node: _Count
    workers: _Count
    model: _Known
    reducer: _Known
    iteration_ms: Annotated[float, Field(gt=0, le=_MOST_MS, allow_inf_nan=False)]
    overlap_kind: _Known
    transport: _Word
    intra_interconnect: _Word = ""
    nic_rate_gbps: Annotated[
        Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None, BeforeValidator(none_if_empty)
    ] = None
    n_params: Annotated[Annotated[int, Field(ge=1, le=_MOST_PARAMETERS)] | None, BeforeValidator(none_if_empty)] = None
    n_tensors: Annotated[_Count | None, BeforeValidator(none_if_empty)] = None
    batch_per_gpu: Annotated[_Count | None, BeforeValidator(none_if_empty)] = None
    reducer_params: _Word = ""
    compute_ms: _Ms = None
    forward_ms: _Ms = None
    backward_ms: _Ms = None
    encode_ms: _Ms = None
    comm_ms: _Ms = None
    decode_ms: _Ms = None
    system: _Word = ""
    notes: str = ""
    dense_pair: _Word = ""

    @property
    def computing_ms(self) -> float | None:
        """Forward and backward together; None where the row does not say."""
        if self.forward_ms is not None and self.backward_ms is not None:
            return self.forward_ms + self.backward_ms
        return self.compute_ms

    @property
    def step_ms(self) -> float:
        """What the optimizer takes, where it is told apart from the rest of compute."""
        return noted_ms(self.notes, "step_ms") or 0.0

    @property
    def first_message_ms(self) -> float | None:
        """What an exchange of a few bytes before the other took, waiting for slower ranks included."""
        return noted_ms(self.notes, "norm_exchange_ms")

    @property
    def exposed(self) -> bool:
        """Whether the communication that stands in the row is what no compute hides."""
        return self.overlap_kind == "none" or "exposed" in self.notes

    @property
    def sent_densely(self) -> bool:
        """Whether nothing is compressed."""
        return self.reducer.lower().startswith(_DENSE)

    @property
    def packs(self) -> bool:
        """Whether gradients are copied into one buffer and back: where they leave together after backward."""
        return self.overlap_kind == "none"

    @property
    def contradiction(self) -> str:
        """Why the row cannot be judged: its parts do not sum to the whole; empty where they do or are not given."""
        if self.computing_ms is None or self.comm_ms is None or not self.exposed:
            return ""
        own = (self.computing_ms, self.encode_ms, self.comm_ms, self.decode_ms, self.step_ms, self.first_message_ms)
        parts = sum(part or 0.0 for part in own)
        if abs(parts - self.iteration_ms) <= _MOST_APART * self.iteration_ms:
            return ""
        return f"its parts sum to {parts:.4g} ms, the whole is {self.iteration_ms:.4g} ms"


def params_of(text: str) -> dict[str, str]:
    """Return what a row says of its reducer; what has no key stands under an empty one.

    >>> params_of("K=10000;quantization_level=6"), params_of("1 bit")
    ({'k': '10000', 'quantization_level': '6'}, {'': '1 bit'})
    """
    found = {}
    for part in filter(None, re.split(r"\s*[;,]\s*", text.strip())):
        name, equals, value = part.partition("=")
        found[name.strip().lower() if equals else ""] = value.strip() if equals else part
    return found
