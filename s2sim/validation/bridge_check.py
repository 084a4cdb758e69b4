"""Runs reducers between real processes and in memory, and lays values and bytes side by side."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.demand import Demand, all_to_all_demand
from s2sim.errors import S2SimError
from s2sim.experiment.json_form import JsonForm
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.gradients.gradient import Gradient
from s2sim.gradients.synthetic import AnyTrace, load_trace
from s2sim.libraries.lowering import choose_library
from s2sim.pytorch.gloo_messages import CONNECTION_BYTES, barrier_bytes, gloo_messages
from s2sim.pytorch.launch import ProcessPlace, private_loopback, run_job
from s2sim.pytorch.transport import WORD_BYTES
from s2sim.reducers.process_group import run_group
from s2sim.reducers.rank import Reducer
from s2sim.reducers.registry import make_reducer, option_string, reducer_names
from s2sim.reducers.run import make_step_instances
from s2sim.reducers.script import Recording
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.simulation.plan import make_plan

TOLERANCE = 1e-6
"""Largest relative L2 difference of sums in another order."""
_AMPLIFIED = 1e-2  # Likewise, of what divides them by their own lengths

ALL_REDUCERS = "all"
# Of IPv4 and of TCP with time stamps; more of the first two packets of a connection, and of an acknowledgement that
# tells what came twice (RFC 2883).
_HEADER_BYTES, _FIRST_BYTES, _REPEAT_BYTES = 52, 8, 12


def _predict_sent_bytes(recording: Recording, size_headers: Sequence[Sequence[Mapping[str, Any]]]) -> Ints:
    """Return what each rank sends, int64 of shape (3, ranks): payload, headers of messages, and size headers.

    ``size_headers`` are those that each rank noted, as `s2sim.pytorch.members.SizeHeader` defines them: its own share,
    or, of a broadcast, all of it at the root.
    """
    found = np.zeros((3, recording.workers), np.int64)
    payload, headers, of_sizes = found
    for call, lowered in zip(recording.calls, make_plan(recording, choose_library("gloo")).lowered, strict=True):
        ranks = np.array(lowered.ranks or range(recording.workers))
        for demand in lowered.demands:
            data, around = gloo_messages(demand, pairs_alone=call.op == "peers").sent(len(ranks))
            payload[ranks] += data
            headers[ranks] += around
    for header in chain.from_iterable(size_headers):
        ranks, own, here = np.array(header["ranks"]), header["sizes_bytes"], header["place"]
        size, within = len(ranks), header["within"]
        if header["kind"] == "broadcast":
            if within or here == header["root"]:
                data, around = gloo_messages(Demand("broadcast", (own[0],) * size, 1, header["root"])).sent(size)
                of_sizes[ranks] += data if within else data + around
        elif within:
            of_sizes[ranks[here]] += sum(own) - own[here]
        else:
            gather, words = Demand("all_gather", (WORD_BYTES,) * size, 1), np.full((size, size), WORD_BYTES, np.int64)
            demand = gather if header["kind"] == "all_gather" else all_to_all_demand(words, 1)
            data, around = gloo_messages(demand).sent(size)
            of_sizes[ranks[here]] += data[here] + around[here]
    return found


@dataclass(frozen=True, slots=True)
class CheckRow(JsonForm):
    """One reducer between processes beside the same one in memory, over all steps."""

    reducer: str  # Its option string
    steps: int  # How many were run
    refused: str = ""  # Why it does not run on this trace or library; empty where it does
    equal: bool = False  # Whether every rank ends with the same bits
    # The largest relative L2 difference of any rank and step, null where that is undefined
    difference: float | None = None
    rounded: str = ""  # Why values may differ by more than by the order of float32 sums; empty where they may not
    payload_bytes: int = 0  # What the lowered scripts say that all ranks send
    # header_bytes, told_bytes, connection_bytes: what goes around it: headers of the library's messages; shapes, and
    # who sends, which programs know and processes have to be told; and what begins new connections
    header_bytes: int = 0
    told_bytes: int = 0
    connection_bytes: int = 0
    counted_bytes: int = 0  # What the kernel counted on all ranks' connections, less what was sent again and barriers
    bytes_equal: bool = False  # Whether it is the sum of these on every rank in every step
    # waited_s, total_s: of the last step, of the slowest rank; this machine's time, for nothing but a hint
    waited_s: float = 0.0
    total_s: float = 0.0

    @property
    def around_bytes(self) -> int:
        """What the library adds: headers, and what begins connections."""
        return self.header_bytes + self.connection_bytes

    @property
    def values_agree(self) -> bool:
        """Whether values are the same, as far as they must."""
        return self.equal or bool(self.rounded) or (self.difference is not None and self.difference <= TOLERANCE)

    @property
    def ok(self) -> bool:
        """Whether values and bytes are as they should be."""
        return not self.refused and self.values_agree and self.bytes_equal


@dataclass(frozen=True, slots=True)
class Interface(JsonForm):
    """What went over the interface in all, of which nothing else used any."""

    # bytes, packets: as the kernel counted them
    bytes: int
    packets: int
    connections_bytes: int  # What all connections sent, what was sent again included
    header_bytes: int  # Of IP and TCP around that, by the number of packets
    again_bytes: int  # What was sent again

    @property
    def equal(self) -> bool:
        """Whether data and headers are all there is."""
        return self.bytes == self.connections_bytes + self.header_bytes


@dataclass(frozen=True, slots=True)
class BridgeCheckResult(JsonForm):
    """All rows of a check."""

    trace: str
    workers: int
    seed: int
    library: str
    rows: tuple[CheckRow, ...]
    # None where processes had to share the machine's own loopback interface, or not all was run
    interface: Interface | None = None
    complete: bool = True


def run_check(
    options: Sequence[str], workers: int, trace_name: str, steps: int, seed: int, progress: ProgressWatcher = SILENT
) -> BridgeCheckResult:
    """Start the processes, run every reducer, and compare; `S2SimError` if one of them ends before its time.

    ``options`` are option strings, ``all`` for every registered reducer and preset; each does its training ``steps``
    one after the other on what it carries over.
    """
    if find_spec("torch") is None:
        raise S2SimError("reducers between processes need torch: pip install 's2sim[torch]'")
    texts = [text for asked in options for text in (reducer_names() if asked == ALL_REDUCERS else [asked])]
    reducers = [make_reducer(text) for text in texts]
    trace = load_trace(trace_name, workers=workers, seed=seed)
    nodes = [2 * rank // workers for rank in range(workers)]
    # Of one that skips steps, at least until an exchange.
    counts = [steps if steps <= one.warmup_steps else max(steps, one.period) for one in reducers]
    asked = [
        {"text": text, "steps": [(step, step % trace.steps) for step in range(count)]}
        for text, count in zip(texts, counts, strict=True)
    ]
    placed = [one.placed(nodes) for one in reducers]
    rows: dict[int, CheckRow] = {}
    told: dict[int, dict[int, Any]] = {}
    progress.start(len(texts), f"{len(texts)} reducers between {workers} processes")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="s2sim-")))
        place = stack.enter_context(private_loopback())
        arguments = {"trace": trace_name, "seed": seed, "nodes": nodes, "folder": str(folder), "reducers": asked}

        def hear(rank: int, report: Any) -> None:
            """Take the report of one process; the last of a reducer's completes its row."""
            number = report["reducer"]
            heard = told.setdefault(number, {})
            heard[rank] = report
            if len(heard) == workers:
                reports = [heard[each] for each in range(workers)]
                rows[number] = _check_row(placed[number], asked[number]["steps"], trace, seed, folder, reports)
                del told[number]
                progress.advance()

        counted: list[Any] | None = None
        try:
            places = [place or ProcessPlace()] * workers
            counted = run_job("s2sim.pytorch.rank:run_checks", arguments, places, timeout_s=120.0, hear=hear)
        except KeyboardInterrupt:
            if not rows:
                raise
    interface = None
    if counted is not None and place is not None:
        begun, again_bytes = (sum(each[name] for each in counted) for name in ("connections", "again_bytes"))
        packets, repeats = counted[0]["packets"], sum(each["repeats"] for each in counted)
        interface = Interface(
            bytes=counted[0]["interface_bytes"],
            packets=packets,
            connections_bytes=sum(each["sent_bytes"] for each in counted) + again_bytes,
            header_bytes=_HEADER_BYTES * packets + 2 * _FIRST_BYTES * (begun // 2) + _REPEAT_BYTES * repeats,
            again_bytes=again_bytes,
        )
    in_order = tuple(rows[number] for number in sorted(rows))
    return BridgeCheckResult(trace.name, workers, seed, "gloo", in_order, interface, len(rows) == len(texts))


def _check_row(
    reducer: Reducer, steps: Sequence[tuple[int, int]], trace: AnyTrace, seed: int, folder: Path, reports: Sequence[Any]
) -> CheckRow:
    """Compare what ranks reported of a reducer with it in memory; ``steps`` with the trace's, means in ``folder``."""
    row = CheckRow(option_string(reducer), len(steps))
    if refused := next((each["refused"] for each in reports if "refused" in each), ""):
        return replace(row, refused=refused)
    differences: list[float | None] = []
    narrow, bytes_equal, sums = False, True, np.zeros(5, np.int64)

    def gradients(step: int) -> list[Gradient]:
        return [trace.gradient(step, rank) for rank in range(len(reports))]

    try:
        instances = make_step_instances(reducer, gradients(steps[0][1]), seed=seed)
        for place, (step, of_trace) in enumerate(steps):
            here = [each["steps"][place] for each in reports]
            results, recording = run_group(instances, gradients(of_trace), seed=seed, step=step)
            differences += (
                _difference(flat_vector(result.mean), folder / each["mean"])
                for result, each in zip(results, here, strict=True)
            )
            for name in {each["mean"] for each in here}:
                (folder / name).unlink()
            narrow |= any(call.dtype in ("float16", "bfloat16") and call.op == "sum" for call in recording.calls)
            counts, agree = _count_bytes(recording, here)
            sums += counts
            bytes_equal &= agree
    except S2SimError as error:
        return replace(row, refused=f"in memory: {error}")
    unequal = [each for each in differences if each is not None]
    largest = max([0.0, *unequal])
    parts = ("payload_bytes", "header_bytes", "told_bytes", "connection_bytes", "counted_bytes")
    counted: dict[str, Any] = dict(zip(parts, map(int, sums), strict=True))
    last = [each["steps"][-1] for each in reports]
    return replace(
        row,
        equal=not unequal,
        difference=largest if np.isfinite(largest) else None,
        rounded=_why_rounded(reducer, largest, narrow=narrow),
        **counted,
        bytes_equal=bytes_equal,
        waited_s=max(each["waited_s"] for each in last),
        total_s=max(each["total_s"] for each in last),
    )


def _why_rounded(reducer: Reducer, difference: float, *, narrow: bool) -> str:
    """Return why values may differ by more than by the order of float32 sums; empty where they may not, or do not."""
    if narrow and difference:
        return "sums of two-byte types are rounded at every hop"
    if reducer.traits.amplifies and 0 < difference < _AMPLIFIED:
        return "sums are divided by lengths of their own, of which small ones are rounding"
    return ""


def _difference(expected: Any, path: Path) -> float | None:
    """Return the relative L2 difference of what a process saved; None if it has the same bits."""
    found = np.load(path)
    if np.array_equal(found, expected, equal_nan=True):
        return None
    norm = float(np.linalg.norm(expected.astype(np.float64)))
    return float(np.linalg.norm(found.astype(np.float64) - expected)) / norm if norm else float("inf")


def _count_bytes(recording: Recording, reports: Sequence[Mapping[str, Any]]) -> tuple[list[int], bool]:
    """Return the bytes of a step over all ranks, by the parts of a `CheckRow`, and whether they are as expected."""
    sent = _predict_sent_bytes(recording, [each["told"] for each in reports])
    # One end of each connection identifies itself to the other.
    begun = CONNECTION_BYTES * sum(each["connections"] for each in reports) // 2
    counted = np.array([each["sent_bytes"] for each in reports]) - barrier_bytes(len(reports))
    extra = counted - sent.sum(axis=0)
    agree = bool((extra % CONNECTION_BYTES == 0).all() and (extra >= 0).all() and extra.sum() == begun)
    return [*sent.sum(axis=1).tolist(), begun, int(counted.sum())], agree
