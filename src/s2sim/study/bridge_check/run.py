"""Runs reducers between real processes and in memory, and lays values and bytes side by side."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.bridge.processes.checked import flat
from s2sim.bridge.processes.gloo_wire import CONNECTION_BYTES, barrier_bytes
from s2sim.bridge.processes.launch import Place, run_job
from s2sim.bridge.processes.own_network import own_loopback
from s2sim.collectives.libraries.tables import choose_library
from s2sim.errors import OptionError, S2SimError
from s2sim.gradients.load import load_trace
from s2sim.reducers.group.process_group import run_group
from s2sim.reducers.registry import make_reducer, option_string, reducer_names
from s2sim.reducers.run import start
from s2sim.study.bridge_check.predicted import predicted
from s2sim.study.bridge_check.result import Checked, CheckRow, Interface
from s2sim.study.progress import SILENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s2sim.gradients.load import AnyTrace
    from s2sim.reducers.rank import Reduced, Reducer
    from s2sim.reducers.scripts.script import Recording
    from s2sim.study.progress import Progress

ALL = "all"
_SILENT_S = 120.0
# Of IPv4 and of TCP with time stamps; more of the first two packets of a connection, and of an acknowledgement that
# tells what came twice (RFC 2883).
_HEADER_BYTES, _FIRST_BYTES, _REPEAT_BYTES = 52, 8, 12


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """What is checked."""

    reducers: tuple[str, ...] = (ALL,)  # Option strings, ``all`` for every registered one and preset
    workers: int = 4
    trace: str = "ncf"
    steps: int = 2  # Training steps of each, one after the other on what it carries over
    seed: int = 0


def run_check(spec: CheckSpec, progress: Progress = SILENT) -> Checked:
    """Start the processes, run every reducer, and compare; `S2SimError` if one of them ends before its time."""
    if find_spec("torch") is None:
        raise S2SimError("reducers between processes need torch: pip install 's2sim[torch]'")
    if spec.workers < 1 or spec.steps < 1:
        raise OptionError(
            f"{spec.workers} workers and {spec.steps} steps were asked for: there is at least one of each"
        )
    texts = [text for asked in spec.reducers for text in (reducer_names() if asked == ALL else [asked])]
    reducers = [make_reducer(text) for text in texts]
    trace = load_trace(spec.trace, workers=spec.workers, seed=spec.seed)
    nodes = [2 * rank // spec.workers for rank in range(spec.workers)]
    asked = [{"text": text, "steps": _steps(one, spec.steps, trace)} for text, one in zip(texts, reducers, strict=True)]
    progress.start(len(texts), f"{len(texts)} reducers between {spec.workers} processes")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="s2sim-")))
        place = stack.enter_context(own_loopback())
        arguments = {"trace": spec.trace, "seed": spec.seed, "nodes": nodes, "folder": str(folder), "reducers": asked}
        watch = _Watch(spec, [one.placed(nodes) for one in reducers], asked, trace, folder, progress)
        job = "s2sim.bridge.processes.checked:check_job"
        counted: list[Any] | None = None
        try:
            places = [place or Place()] * spec.workers
            counted = run_job(job, arguments, places, timeout_s=_SILENT_S, hear=watch.hear)
        except KeyboardInterrupt:
            if not watch.rows:
                raise
    interface = None if counted is None or place is None else _interface(counted)
    complete = len(watch.rows) == len(texts)
    rows = tuple(watch.rows[number] for number in sorted(watch.rows))
    return Checked(trace.name, spec.workers, spec.seed, "gloo", rows, interface, complete)


def _steps(reducer: Reducer, steps: int, trace: AnyTrace) -> list[tuple[int, int]]:
    """Return which steps are run, and on which of the trace: of one that skips some, at least until an exchange."""
    count = steps if steps <= reducer.settles_after else max(steps, reducer.period)
    return [(step, step % trace.steps) for step in range(count)]


class _Watch:
    """Compares what processes tell of a reducer with the same in memory, once all have told."""

    def __init__(
        self,
        spec: CheckSpec,
        reducers: Sequence[Reducer],
        asked: Sequence[Mapping[str, Any]],
        trace: AnyTrace,
        folder: Path,
        progress: Progress,
    ) -> None:
        self.spec, self.reducers, self.asked, self.folder, self.progress = spec, reducers, asked, folder, progress
        self.trace = trace
        self.rows: dict[int, CheckRow] = {}
        self._told: dict[int, dict[int, Any]] = {}

    def hear(self, rank: int, told: Any) -> None:
        """Take what one process tells."""
        number = told["reducer"]
        heard = self._told.setdefault(number, {})
        heard[rank] = told
        if len(heard) == self.spec.workers:
            self.rows[number] = self._row(number, [heard[each] for each in range(self.spec.workers)])
            del self._told[number]
            self.progress.advance()

    def _row(self, number: int, told: Sequence[Any]) -> CheckRow:
        reducer, steps = self.reducers[number], self.asked[number]["steps"]
        text = option_string(reducer)
        refused = next((each["refused"] for each in told if "refused" in each), "")
        if refused:
            return CheckRow(text, len(steps), refused)
        try:
            instances = start(reducer, self._gradients(steps[0][1]), seed=self.spec.seed)
            total = _Total(self.spec.workers)
            for place, (step, of_trace) in enumerate(steps):
                results, recording = run_group(instances, self._gradients(of_trace), seed=self.spec.seed, step=step)
                total.add(results, recording, [each["steps"][place] for each in told], self.folder)
        except S2SimError as error:
            return CheckRow(text, len(steps), f"in memory: {error}")
        return total.row(text, len(steps), told)

    def _gradients(self, step: int) -> list[Any]:
        return [self.trace.gradient(step, rank) for rank in range(self.spec.workers)]


class _Total:
    """What all steps of a reducer come to."""

    def __init__(self, workers: int) -> None:
        self.library = choose_library("gloo")
        self.workers = workers
        self.sums = np.zeros(5, np.int64)
        self.equal = self.bytes_equal = True
        self.difference = 0.0
        self.narrow = False

    def add(
        self, results: Sequence[Reduced], recording: Recording, told: Sequence[Mapping[str, Any]], folder: Path
    ) -> None:
        """Compare one step."""
        for result, each in zip(results, told, strict=True):
            self._compare(flat(result.mean), folder / each["mean"])
        for name in {each["mean"] for each in told}:
            (folder / name).unlink()
        self.narrow |= any(call.dtype in ("float16", "bfloat16") and call.op == "sum" for call in recording.calls)
        sent = predicted(recording, self.library, [each["told"] for each in told])
        # Of each connection one end tells the other which it is.
        begun = CONNECTION_BYTES * sum(each["connections"] for each in told) // 2
        counted = np.array([each["sent_bytes"] for each in told]) - barrier_bytes(self.workers)
        expected = sent.payload + sent.headers + sent.told
        extra = counted - expected
        self.bytes_equal &= bool((extra % CONNECTION_BYTES == 0).all() and (extra >= 0).all() and extra.sum() == begun)
        self.sums += [*(int(part.sum()) for part in sent), begun, int(counted.sum())]

    def _compare(self, expected: Any, path: Path) -> None:
        found = np.load(path)
        if np.array_equal(found, expected, equal_nan=True):
            return
        self.equal = False
        norm = float(np.linalg.norm(expected.astype(np.float64)))
        off = float(np.linalg.norm(found.astype(np.float64) - expected))
        self.difference = max(self.difference, off / norm if norm else float("inf"))

    def row(self, text: str, steps: int, told: Sequence[Any]) -> CheckRow:
        """Return the row."""
        last = [each["steps"][-1] for each in told]
        payload, headers, of_shapes, begun, counted = map(int, self.sums)
        return CheckRow(
            reducer=text,
            steps=steps,
            equal=self.equal,
            difference=self.difference if np.isfinite(self.difference) else None,
            rounded="sums of two-byte types are rounded at every hop" if self.narrow and not self.equal else "",
            payload_bytes=payload,
            header_bytes=headers,
            told_bytes=of_shapes,
            connection_bytes=begun,
            counted_bytes=counted,
            bytes_equal=self.bytes_equal,
            waited_s=max(each["waited_s"] for each in last),
            total_s=max(each["total_s"] for each in last),
        )


def _interface(counted: Sequence[Mapping[str, int]]) -> Interface:
    """Return what the one interface counted, beside the connections of all."""
    own = sum(each["sent_bytes"] + each["again_bytes"] for each in counted)
    begun = sum(each["connections"] for each in counted) // 2
    packets, repeats = counted[0]["packets"], sum(each["repeats"] for each in counted)
    return Interface(
        bytes=counted[0]["interface_bytes"],
        packets=packets,
        connections_bytes=own,
        header_bytes=_HEADER_BYTES * packets + 2 * _FIRST_BYTES * begun + _REPEAT_BYTES * repeats,
        again_bytes=sum(each["again_bytes"] for each in counted),
    )
