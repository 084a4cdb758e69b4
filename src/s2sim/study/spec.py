"""One experiment as a value, and its JSON form."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from s2sim.errors import OptionError, S2SimError
from s2sim.gradients.extrapolation.scaling import parse_parameters
from s2sim.replay.faults.registry import make_faults
from s2sim.text_files import read_text
from s2sim.units import parse_time_ps

if TYPE_CHECKING:
    from pathlib import Path

BASELINES = ("union", "owner-reduce", "gather-rows")
"""What is exact and sends rows, without which no comparison of sparse compressors is fair."""

PREFETCH = "union:prefetch=true"
"""Presumes that the batch tells the rows before forward, as it does for embeddings."""

DEFAULT_REDUCERS = (
    "dense",
    "fp16",
    "topk:density=0.01",
    PREFETCH,
    *BASELINES,
    "s2-exact",
    "s2-exact:warm=true",
    "s2:rows=3,cells=2",
    "s2:rows=3,cells=2,warm=true",
    "s2:preset=authors-gnmt",
)
"""Compressors beside those baselines; what carries sizes over as in its first step and as in all later ones."""

COMPARED = (
    "dense",
    "fp16",
    "topk:density=0.001",
    "topk:density=0.01",
    "topk:density=0.1",
    PREFETCH,
    *BASELINES,
    "s2-exact",
    "s2-exact:warm=true",
    "s2-exact:dtype=int64,warm=true",
    "s2:rows=1,cells=0.25,warm=true",
    "s2:rows=1,cells=1,warm=true",
    "s2:rows=1,cells=4,warm=true",
    "s2:rows=3,cells=0.5,warm=true",
    "s2:rows=3,cells=1,warm=true",
    "s2:rows=3,cells=2,warm=true",
    "s2:rows=3,cells=4,warm=true",
    "s2:rows=3,cells=8,warm=true",
    "s2:preset=authors-gnmt",
)
"""Sketches as in all steps but the first, in which they are at their best; exact ones in both."""

DEFAULT_TRACE = "lstm-lm"
DEFAULT_GPU = "a100"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What `s2sim.run` computes.

    Attributes
    ----------
    topology : str
        Name of a shipped topology or path of a TOML file.
    workers : tuple of int
        Numbers of ranks, one result row each and reducer.
    reducers : tuple of str
        Option strings; ``dense`` is added when it is missing.
    trace : str
        Name or path of a gradient trace, or ``synthetic:...``.
    overrides : tuple of str
        ``field=value`` on the topology's fields, in order.
    placement : str
        ``linear`` or ``round-robin``.
    collective : str
        Option string of an algorithm, or ``auto``.
    library : str
        Option string of a communication library; ``ideal`` executes everything as asked.
    gpu : str
        Name in the hardware catalogue.
    compute : str or None
        Time of forward and backward, added without overlap.
    max_error : float or None
        A lossy reducer with a larger relative L2 error does not win a verdict.
    seed : int
        Root of all randomness.
    scale_to : str or None
        Parameters, for example ``350M``, to which the trace's layers are scaled.
    model : str or None
        Name or path of a layer table to which the trace's statistics are scaled.
    faults : tuple of str
        Option strings of what goes wrong.
    steps : int
        Steps of the trace over which reducers are followed, with error feedback; 1 for the first alone.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    topology: str
    workers: tuple[int, ...]
    reducers: tuple[str, ...] = DEFAULT_REDUCERS
    trace: str = DEFAULT_TRACE
    overrides: tuple[str, ...] = ()
    placement: str = "linear"
    collective: str = "auto"
    library: str = "ideal"
    gpu: str = DEFAULT_GPU
    compute: str | None = None
    max_error: float | None = None
    seed: int = 0
    scale_to: str | None = None
    model: str | None = None
    faults: tuple[str, ...] = ()
    steps: int = 1

    def __post_init__(self) -> None:
        _check_types(self)
        _check_values(self)

    @property
    def compute_ps(self) -> int | None:
        """Compute time in picoseconds, or None."""
        return None if self.compute is None else parse_time_ps(self.compute)

    @property
    def by_default(self) -> bool:
        """Whether nobody has named the reducers."""
        return self.reducers in (DEFAULT_REDUCERS, COMPARED)

    @property
    def scaled(self) -> bool:
        """Whether sizes are scaled to other than those recorded."""
        return self.scale_to is not None or self.model is not None

    def to_json(self) -> dict[str, Any]:
        """Return the spec as JSON values, the inverse of `spec_from_json`."""
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in dataclasses.asdict(self).items()
        }


def _check_types(spec: RunSpec) -> None:
    """Refuse what a caller in Python may get wrong; files are checked field by field before."""
    for name in ("workers", "reducers", "overrides", "faults"):
        if not isinstance(getattr(spec, name), tuple):
            raise OptionError(f"{name} = {getattr(spec, name)!r} must be a tuple, even of one")
    for number in (*spec.workers, spec.seed, spec.steps):
        if not isinstance(number, int) or isinstance(number, bool):
            raise OptionError(f"{number!r} is not a whole number, as numbers of workers, seeds and steps are")


def _check_values(spec: RunSpec) -> None:
    if not spec.workers:
        raise OptionError("no number of workers was given; for example --workers 64")
    if min(spec.workers) < 1:
        raise OptionError(f"{min(spec.workers)} workers were asked for; at least 1 is needed")
    if len(set(spec.workers)) < len(spec.workers):
        raise OptionError(f"a number of workers stands twice in {','.join(map(str, spec.workers))}")
    if not spec.reducers:
        raise OptionError("no reducer was given; for example --reducer union")
    fields = [override.partition("=")[0].strip() for override in spec.overrides]
    if len(set(fields)) < len(fields):
        raise OptionError(f"a field is set twice in {', '.join(spec.overrides)}: --set it once")
    if spec.max_error is not None and not 0 < spec.max_error < 1:
        raise OptionError(
            f"--max-error {spec.max_error} must lie between 0 and 1: an error of 1 or more never wins anyway"
        )
    if spec.seed < 0:
        raise OptionError(f"--seed {spec.seed} must not be negative")
    if spec.compute is not None:
        parse_time_ps(spec.compute)
    if spec.steps < 1:
        raise OptionError(f"--steps {spec.steps}: at least 1 step is needed")
    make_faults(spec.faults)
    _check_size(spec)


def _check_size(spec: RunSpec) -> None:
    if spec.scale_to is not None:
        parse_parameters(spec.scale_to)
        if spec.model is not None:
            raise OptionError(f"--scale-to {spec.scale_to} and --model {spec.model} both set the size: give one")
    if spec.scaled and spec.steps > 1:
        raise OptionError(
            f"--steps {spec.steps} follows what is carried over on recorded gradients, --scale-to and --model scale "
            "scripts without any: leave one of them out"
        )


def spec_from_json(value: Any, origin: str) -> RunSpec:
    """Return the spec of a JSON value: a spec, or a saved result, whose ``spec`` is taken.

    Raises
    ------
    S2SimError
        Naming every field that is missing, unknown or of the wrong type.
    """
    from pydantic import TypeAdapter, ValidationError

    if isinstance(value, dict) and isinstance(value.get("spec"), dict):
        value = value["spec"]
    try:
        return TypeAdapter(RunSpec).validate_python(value)
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'spec'}: {item['msg']}" for item in error.errors())
        raise S2SimError(f"{origin} is not a run spec: {found}") from None


def load_spec(path: Path) -> RunSpec:
    """Return the spec of a file that ``s2sim run --json`` or a person wrote."""
    text = read_text(path, noun="the spec")
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise S2SimError(f"{path} is not JSON: {error.msg} at line {error.lineno}") from None
    except RecursionError:
        raise S2SimError(f"{path} is not a run spec: it is nested too deeply") from None
    return spec_from_json(value, str(path))
