"""Lowering: from a requested collective to the launches of a communication library, by its table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import TypeAlias

import numpy as np

from s2sim.arrays import BlockTable, sum_tables
from s2sim.collectives import Kind
from s2sim.collectives.schedules.demand import Blocks, Demand, all_to_all_demand
from s2sim.collectives.timing.library_profile import NO_OVERHEADS
from s2sim.errors import OptionError, S2SimError, check_known, suggest_nearest
from s2sim.files import data_directory, is_toml_path, own_tables, read_table
from s2sim.libraries.constants import HOST_LIBRARIES, load_constants
from s2sim.libraries.gloo import HostLibraryProfile
from s2sim.libraries.library import TIMING, Library, LoweringRule, read_calibration
from s2sim.libraries.nccl import NcclProfile
from s2sim.options import split_option_string
from s2sim.registry import Registry
from s2sim.topology.quantity import Quantity

SIZE_EXCHANGE = "sizes"
"""The content of a launch that exchanges sizes."""
SIZE_BYTES = 8
"""Bytes of a rank's size in such an exchange: an int64."""


@dataclass(frozen=True, slots=True)
class CollectiveRequest:
    """A collective that a reducer calls.

    ``op`` is ``sum``, ``max`` or ``or`` of a reduction, ``gather`` of an all-gather, ``exchange`` of an all-to-all or
    ``peers`` if blocks go to some ranks only, ``copy`` of a broadcast, ``pass`` of sends to the next rank. With
    ``size_from_data`` the sizes of contributions depend on data.
    """

    demand: Demand
    op: str
    dtype: str
    size_from_data: bool

    @property
    def row(self) -> str:
        """The operation in tables: with a ``v`` if sizes differ or depend on data.

        All ranks have equal buffers in a reduction, and both peers know their sizes unless these depend on data.

        >>> CollectiveRequest(Demand("all_gather", (3, 4), 1), "gather", "uint8", False).row
        'gatherv'
        """
        kind, sizes = self.demand.kind, set(self.demand.elements)
        if kind in ("all_reduce", "reduce"):
            return self.op
        if self.op == "exchange" and self.demand.blocks:
            sizes = set(self.demand.blocks.rows.reshape(-1).tolist())
        differ = len(sizes) > 1 and self.op != "peers"
        return f"{self.op}v" if differ or (self.size_from_data and kind != "reduce_scatter") else self.op

    @property
    def text(self) -> str:
        """Human-readable form.

        >>> CollectiveRequest(Demand("all_reduce", (8, 8), 1), "or", "uint8", False).text
        'all_reduce or uint8'
        """
        kind, root = self.demand.kind, self.demand.root
        unequal = " of unequal sizes" if self.row != self.op else ""
        if kind == "reduce":
            return f"reduce {self.op} {self.dtype} to rank {root}"
        if kind == "broadcast":
            return f"broadcast {self.dtype} from rank {root}"
        if self.op == "peers":
            return f"exchange {self.dtype} between peers"
        if kind in ("all_reduce", "reduce_scatter"):
            return f"{kind} {self.op} {self.dtype}{unequal}"
        return f"{kind} {self.dtype}{unequal}"


@dataclass(frozen=True, slots=True)
class LocalWork:
    """Local work of the busiest rank between launches.

    ``gpu_bytes`` are read from and written to the GPU's memory (packing, merging, copying padding out) by ``kernels``;
    ``host_syncs`` counts how often the host waits for the GPU.
    """

    gpu_bytes: int = 0
    kernels: int = 0
    host_syncs: int = 0
    to_host_bytes: int = 0
    to_gpu_bytes: int = 0

    def __add__(self, other: "LocalWork") -> "LocalWork":
        return LocalWork(*(getattr(self, name) + getattr(other, name) for name in LocalWork.__slots__))


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """Demands of one kind in one launch, the work before it, and its content (``what``) if not the payload itself."""

    demands: tuple[Demand, ...]
    before: LocalWork = LocalWork()
    what: str = ""


@dataclass(frozen=True, slots=True)
class LoweredCall:
    """The execution of one call by a library: sequential steps, and the work after the last of them.

    ``options`` of the library decided it; ``ranks`` take part on their own communicator, all ranks if empty.
    """

    steps: tuple[LaunchStep, ...]
    after: LocalWork
    requested: str
    executes: str
    why: str
    options: frozenset[str] = frozenset()
    ranks: tuple[int, ...] = ()

    @property
    def demands(self) -> tuple[Demand, ...]:
        """All demands on the network."""
        return tuple(demand for step in self.steps for demand in step.demands)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each launch."""
        return tuple(step.demands[0].kind for step in self.steps)

    @property
    def blocks_host(self) -> bool:
        """Whether the host needs the sizes before it can launch the payload and continue its program."""
        return self.steps[0].what == SIZE_EXCHANGE


def merge_into_launch(demands: Sequence[Demand]) -> Demand:
    """Return the demand of one launch of collectives of a kind: one keeps its elements, several count bytes.

    Broadcasts from several roots are timed as one of all bytes from the first root: every rank except the root forwards
    the same number of bytes, and no link transmits more than its share and one contribution. So are reduces.
    """
    first, ranks = demands[0], demands[0].ranks
    if len(demands) == 1:
        return first
    if any(demand.blocks for demand in demands):
        tables = [Blocks(demand).table for demand in demands]
        return all_to_all_demand(sum_tables(tables, [demand.itemsize for demand in demands]), 1)
    if first.shared:
        return Demand(first.kind, (sum(demand.buffer_bytes for demand in demands),) * ranks, 1, first.root)
    sizes = zip(*([count * demand.itemsize for count in demand.elements] for demand in demands), strict=True)
    return Demand(first.kind, tuple(map(sum, sizes)), 1)


Executed: TypeAlias = tuple[tuple[LaunchStep, ...], LocalWork, str]
"""Steps, the work after the last of them, and the execution as text."""


def _execute_as_carrier_type(request: CollectiveRequest, carrier: str) -> Executed:
    """Another type replaces it: of the same width without work, a wider one with a pass before and one after."""
    demand = replace(request.demand, itemsize=np.dtype(carrier).itemsize)
    widen, narrow = LocalWork(), LocalWork()
    if demand.itemsize != request.demand.itemsize:
        widen = LocalWork(request.demand.buffer_bytes + demand.buffer_bytes, 1)
        narrow = LocalWork(result_bytes(request.demand) + result_bytes(demand), 1)
    return (LaunchStep((demand,), widen),), narrow, f"{demand.kind} {request.op} {carrier}"


def _or_by_byte_maximum(request: CollectiveRequest) -> Executed:
    demand = request.demand
    flags = replace(demand, elements=tuple(8 * count * demand.itemsize for count in demand.elements), itemsize=1)
    unpack = LocalWork(demand.buffer_bytes + flags.buffer_bytes, 1)
    pack = LocalWork(result_bytes(demand) + result_bytes(flags), 1)
    return (LaunchStep((flags,), unpack),), pack, f"{demand.kind} max uint8, one byte a bit"


def _or_by_all_gather(request: CollectiveRequest) -> Executed:
    packed, ranks = request.demand.buffer_bytes, request.demand.ranks
    gathered = Demand("all_gather", (packed,) * ranks, 1)
    return (LaunchStep((gathered,)),), LocalWork((ranks + 1) * packed, 1), f"all_gather uint8, {ranks} bitmaps merged"


def _or_by_all_to_all(request: CollectiveRequest) -> Executed:
    """Ranges of ceil(n/P) bytes go to their owner, which merges P of them, and from there to all ranks."""
    ranks = request.demand.ranks
    own = -(-request.demand.buffer_bytes // ranks)
    out = LaunchStep((Demand("all_to_all", (own * ranks,) * ranks, 1),), what="stretches to their owners")
    back = LaunchStep((Demand("all_gather", (own,) * ranks, 1),), LocalWork((ranks + 1) * own, 1), "merged stretches")
    return (out, back), LocalWork(), "all_to_all and all_gather uint8, by owners"


def result_bytes(demand: Demand) -> int:
    """Return the bytes of the largest result of a rank."""
    if demand.kind == "all_to_all":
        return int(Blocks(demand).table.totals[1].max()) * demand.itemsize
    return max(demand.elements) * demand.itemsize if demand.kind == "reduce_scatter" else demand.buffer_bytes


def _size_exchange(request: CollectiveRequest) -> tuple[tuple[LaunchStep, ...], str]:
    """Return the exchange of data-dependent sizes (of a rank, of each block, or of a root's payload), and its text."""
    if not request.size_from_data:
        return (), ""
    demand = request.demand
    counts = Demand(demand.kind, (1,) * demand.ranks, SIZE_BYTES, demand.root)
    if request.op == "peers":
        blocks = Blocks(demand).table
        counts = all_to_all_demand(BlockTable(blocks.rows > 0, blocks.row), SIZE_BYTES)
    elif demand.kind == "all_to_all":
        counts = replace(counts, elements=(demand.ranks,) * demand.ranks)
    return (LaunchStep((counts,), what=SIZE_EXCHANGE),), f"{demand.kind} of sizes, then "


def _gather_padded(request: CollectiveRequest) -> Executed:
    demand, (sizes, first) = request.demand, _size_exchange(request)
    largest = Demand("all_gather", (max(demand.elements),) * demand.ranks, demand.itemsize)
    fill = LocalWork(2 * max(demand.elements) * demand.itemsize, 1, host_syncs=len(sizes))
    executes = f"{first}all_gather {request.dtype} padded to the largest"
    return (*sizes, LaunchStep((largest,), fill)), LocalWork(2 * demand.buffer_bytes, 1), executes


def _one_a_rank(kind: Kind, demand: Demand) -> tuple[Demand, ...]:
    return tuple(Demand(kind, (n,) * demand.ranks, demand.itemsize, root) for root, n in enumerate(demand.elements))


def _gather_by_broadcasts(request: CollectiveRequest) -> Executed:
    demand, (sizes, first) = request.demand, _size_exchange(request)
    step = LaunchStep(_one_a_rank("broadcast", demand), LocalWork(host_syncs=len(sizes)))
    return (*sizes, step), LocalWork(), f"{first}{demand.ranks} broadcasts {request.dtype} in one group"


def _scatter_by_reduces(request: CollectiveRequest) -> Executed:
    executes = f"{request.demand.ranks} reduces {request.op} {request.dtype} in one group"
    return (LaunchStep(_one_a_rank("reduce", request.demand)),), LocalWork(), executes


def _exchange_pairwise(request: CollectiveRequest) -> Executed:
    demand, (sizes, first) = request.demand, _size_exchange(request)
    blocks = BlockTable(np.tile(np.array(demand.elements, np.int64)[:, None], demand.ranks))
    executes = f"{first}sends and receives of {request.dtype} between all pairs"
    return (*sizes, LaunchStep((all_to_all_demand(blocks, demand.itemsize),))), LocalWork(), executes


def _after_size_exchange(request: CollectiveRequest, text: str, *, host_waits: bool) -> Executed:
    """Data-dependent sizes first: in GPUs, which the host waits for, or between hosts."""
    sizes, first = _size_exchange(request)
    step = LaunchStep((request.demand,), LocalWork(host_syncs=len(sizes) if host_waits else 0))
    return (*sizes, step), LocalWork(), first + text.format(kind=request.demand.kind, dtype=request.dtype)


def _scatter_by_all_reduce(request: CollectiveRequest) -> Executed:
    whole = Demand("all_reduce", (request.demand.buffer_elements,) * request.demand.ranks, request.demand.itemsize)
    keep = LocalWork(2 * result_bytes(request.demand), 1)
    executes = f"all_reduce {request.op} {request.dtype}, of which each keeps its part"
    return (LaunchStep((whole,), LocalWork(2 * whole.buffer_bytes, 1)),), keep, executes


EXECUTIONS: dict[str, Callable[..., Executed]] = {
    "as_asked": lambda request: ((LaunchStep((request.demand,)),), LocalWork(), request.text),
    "carried": _execute_as_carrier_type,
    "or_as_bytes": _or_by_byte_maximum,
    "or_gathered": _or_by_all_gather,
    "or_by_owners": _or_by_all_to_all,
    "padded": _gather_padded,
    "broadcasts": _gather_by_broadcasts,
    "exact": partial(_after_size_exchange, text="{kind} {dtype} of exact sizes", host_waits=False),
    "exchanged": _exchange_pairwise,
    "sends": partial(_after_size_exchange, text="grouped sends and receives of {dtype}", host_waits=True),
    "told": partial(_after_size_exchange, text="{kind} {dtype}", host_waits=True),
    "reduces": _scatter_by_reduces,
    "all_reduced": _scatter_by_all_reduce,
}


def lower(request: CollectiveRequest, library: Library) -> LoweredCall:
    """Return the execution of a request by ``library``; `S2SimError` if its table has no rule for it."""
    if request.demand.ranks == 1:
        return LoweredCall(
            (LaunchStep((request.demand,)),), LocalWork(), request.text, request.text, "one rank has nothing to send"
        )
    entry = find_rule(request, library)
    steps, after, executes = EXECUTIONS[entry.does](request, *filter(None, (entry.carrier,)))
    options = {entry.when[0]} if entry.when else set()
    if library.staged:
        options.add("buffers")
    lowered = LoweredCall(steps, after, request.text, executes, entry.why, frozenset(options))
    if not library.through_host:
        return lowered
    # A buffer that is sent to every other rank is copied to the host once.
    staged = request.demand if entry.does == "exchanged" else steps[-1].demands[0]
    out = LocalWork(host_syncs=1, to_host_bytes=staged.handed_in_bytes)
    back = LocalWork(to_gpu_bytes=result_bytes(staged))
    steps = (*steps[:-1], replace(steps[-1], before=steps[-1].before + out))
    return replace(lowered, steps=steps, after=back + after, executes=f"{executes}, through host memory")


def find_rule(request: CollectiveRequest, library: Library) -> LoweringRule:
    """Return the rule of a library's table for a request; `S2SimError` if there is none."""
    for entry in library.table:
        if (
            request.demand.kind in entry.kinds
            and request.row in entry.ops
            and (not entry.dtypes or request.dtype in entry.dtypes)
            and (entry.when is None or entry.when in library.chosen)
        ):
            return entry
    raise S2SimError(f"{request.text} was asked for, which {library.name} has no way to execute: use another --library")


@cache
def _rules() -> dict[str, tuple[LoweringRule, ...]]:
    """Return the table of each library, of ``libraries/lowering.csv``; values of a cell stand between spaces."""
    columns = [field.name for field in fields(LoweringRule)]
    rules: dict[str, tuple[LoweringRule, ...]] = {}
    for _, cells in read_table(data_directory("libraries") / "lowering.csv", ("library", *columns)):
        kinds, ops, dtypes = (tuple(cells[name].split()) for name in ("kinds", "ops", "dtypes"))
        option, _, value = cells["when"].partition("=")
        when = (option, value) if option else None
        rule = LoweringRule(kinds, ops, dtypes, cells["does"], cells["why"], when, cells["carrier"])
        rules[cells["library"]] = (*rules.get(cells["library"], ()), rule)
    return rules


def _library(name: str) -> Library:
    tables = own_tables(__file__, "libraries.toml")
    rules = tables[name].get("like", name)
    facts = {key: value for key, value in (tables[rules] | tables[name]).items() if key not in ("like", "options")}
    options = tuple((key, tuple(values)) for key, values in tables[rules].get("options", {}).items())
    return Library(name, table=_rules()[rules], options=options, **({"in_flight": None} | facts))


_OWN = tuple(own_tables(__file__, "libraries.toml"))
LIBRARIES = Registry("library", "s2sim.libraries", {name: f"{__name__}:{name.upper()}" for name in _OWN})
IDEAL, NCCL, RCCL, GLOO, MPI = map(_library, _OWN)


def library_quantities(name: str) -> tuple[Quantity, ...]:
    """Return the constants of a library for ``timing=measured``, every value with its origin."""
    LIBRARIES.get(name)  # Refuses an unknown one
    if name not in (NCCL.name, RCCL.name, *HOST_LIBRARIES):
        raise OptionError(f"library {name} adds nothing to the wire: it has no constants")
    return load_constants(name).quantities


def choose_library(text: str) -> Library:
    """Return the library of an option string.

    >>> choose_library("nccl:or=owners").chosen
    (('or', 'owners'), ('gather', 'pad'), ('timing', 'auto'), ('launch', 'gpu'))
    >>> choose_library("nccl:or=bytes").option_string
    'nccl'
    """
    name, options = split_option_string(text)
    library: Library = LIBRARIES.get(name)
    values_of = dict(library.options)
    for key, value in options.items():
        check_known(key, values_of, f"library {name} has no option {key!r}")
        if value not in values_of[key] and not (key == TIMING and is_toml_path(value)):
            raise OptionError(f"library {name}: {key}={value} is unknown{suggest_nearest(value, values_of[key])}")
    chosen = {key: options.get(key, values[0]) for key, values in values_of.items()}
    timing = chosen.get(TIMING)
    calibration = None if timing is None or not is_toml_path(timing) else read_calibration(timing)
    if calibration is not None and calibration.base != name:
        raise OptionError(
            f"{timing} was fitted for {calibration.base}: give --library {calibration.base}:timing={timing}"
        )
    if "launch" in options and timing == "wire":
        raise OptionError(f"library {name}: launch={options['launch']} changes nothing with timing=wire: leave one out")
    measured = library.measured
    own, version = ((), ()) if calibration is None else (calibration.own, calibration.version)
    if name in HOST_LIBRARIES:
        measured = HostLibraryProfile(name, own)
    elif name in (NCCL.name, RCCL.name):
        measured = NcclProfile(name, own, one_process=chosen["launch"] == "node", version=version)
    return replace(
        library,
        chosen=tuple(chosen.items()),
        given_options=tuple(options),
        measured=measured,
        profile=NO_OVERHEADS if measured is None or timing in ("auto", "wire") else measured,
        calibration=calibration,
    )
