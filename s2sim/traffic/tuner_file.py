"""The file by which NCCL's example tuner plug-in is told what to run, size by size.

Its lines are ``collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks``, as ``plugins/tuner/example``
of NCCL v2.30.7-1 reads them: the first that matches counts, ends included; what none matches stays NCCL's own choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from s2sim import __version__
from s2sim.collectives.schedules.demand import nccl_tests_bytes
from s2sim.collectives.timing.timer import TimedSchedule
from s2sim.errors import OptionError
from s2sim.experiment.progress import SILENT, ProgressWatcher, watched
from s2sim.libraries.nccl import NcclProfile
from s2sim.traffic.collective_run import PlannedCollective, plan_collective
from s2sim.traffic.spec import CollectiveSpec
from s2sim.uncertainty.interval import format_interval, interval_at
from s2sim.units import PS_PER_S, format_bytes, format_seconds

_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
# By the algorithm here; NCCL calls a chain from a root a ring too.
_ALGORITHMS = {
    "ring": "ring",
    "chain": "ring",
    "double-binary-tree": "tree",
    "nvls-tree": "nvls_tree",
    "in-network": "nvls",
    "pat": "pat",
}
# The plug-in reads lines into 256 bytes; the rest of a longer one would be another line.
_LONGEST = 250


@dataclass(frozen=True, slots=True)
class TunerChoice:
    """What is to run at one size."""

    size_bytes: int
    algorithm: str  # As the plug-in calls it
    protocol: str
    channels: int
    time_s: float
    text: str  # The time with its band, and the choice of NCCL where that is another
    gain: float  # The time of NCCL's own choice over this one


@dataclass(frozen=True, slots=True)
class TunerFile:
    """The text of the file, and the choices that it is made of."""

    text: str
    choices: tuple[TunerChoice, ...]

    @property
    def summary(self) -> str:
        """What it changes, and what it has to be checked by."""
        other = [each for each in self.choices if each.gain > 1]
        if not other:
            return "NCCL's own choice is as good as any at every size: the file pins it down, and speeds nothing up"
        sizes = f"{format_bytes(other[0].size_bytes)} to {format_bytes(other[-1].size_bytes)}"
        most = max(each.gain for each in other)
        return (
            f"predicted to be faster than NCCL's own choice at {len(other)} of {len(self.choices)} sizes, {sizes}, by "
            f"up to {most:.2f}x: measure both with nccl-tests before you use it"
        )


def write_tuner(spec: CollectiveSpec, sizes: Sequence[int], progress: ProgressWatcher = SILENT) -> TunerFile:
    """Return the file for a spec's collective at growing sizes in bytes, each of which stands up to the next.

    Of what NCCL can run, another than its own choice is taken where that needs less than nine tenths of the time, as
    `s2sim collective` names it. `OptionError` for what no tuner is asked for, or another library.
    """
    if spec.kind not in _KINDS:
        raise OptionError(f"--tuner: NCCL asks a tuner for {', '.join(_KINDS)}, and not for {spec.kind}")
    if spec.algorithm != "auto" or spec.groups is not None or spec.faults:
        raise OptionError("--tuner chooses algorithms for one group on a healthy cluster: leave those options out")
    planned = [plan_collective(replace(spec, size_bytes=size)) for size in watched(progress, "choosing by size", sizes)]
    if not isinstance(planned[0].profile, NcclProfile):
        raise OptionError("--tuner is read by NCCL: add --library nccl, on GPUs that it has constants for")
    choices, called = tuple(map(_choose, planned)), spec.kind.replace("_", "")
    last = planned[-1]
    where = f"nodes {last.cluster.nodes_used}, ranks {last.cluster.workers}"
    topology = " ".join([spec.topology, *(f"--set {each}" for each in spec.overrides)])
    lines = [
        f"# {called} on {topology}: {where}; predicted by s2sim {__version__}, not measured",
        "# Measure it before use: NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE=this file",
        "# collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks",
        "# Channels are those that the prediction is for. -1 would be NCCL's own, but the plug-in of v2.30 makes it 1.",
    ]
    runs = [list(run) for _, run in groupby(range(len(choices)), lambda at: (*_of(choices[at]), choices[at].channels))]
    for run in runs:
        own, following = choices[run[0]], run[-1] + 1
        end = choices[following].size_bytes - 1 if following < len(choices) else choices[run[-1]].size_bytes
        lines += [f"# {format_bytes(choices[at].size_bytes)}: {choices[at].text}" for at in run]
        row = (called, own.size_bytes, end, *_of(own), own.channels, last.cluster.nodes_used)
        lines.append(",".join(map(str, (*row, last.cluster.workers))))
    return TunerFile("".join(f"{line[:_LONGEST]}\n" for line in lines), choices)


def _of(choice: TunerChoice) -> tuple[str, str]:
    return choice.algorithm, choice.protocol


def _choose(planned: PlannedCollective) -> TunerChoice:
    own = planned.timed
    best = planned.timer.faster(own, library_only=True) or own
    schedule = best.schedule
    profile = next(
        each
        for each in planned.profile.protocols(schedule, planned.cluster)
        if isinstance(each, NcclProfile) and each.protocol == schedule.protocol
    )
    channels, _ = profile.channels(schedule, planned.cluster)
    other = "" if best is own else f"; NCCL's own choice, {_name(own)}, {_time(own, planned)}"
    return TunerChoice(
        nccl_tests_bytes(planned.demand),
        _ALGORITHMS[schedule.algorithm.partition(":")[0]],
        schedule.protocol.lower(),
        channels,
        best.duration_ps / PS_PER_S,
        f"{_time(best, planned)}{other}",
        own.duration_ps / best.duration_ps if best.duration_ps else 1.0,
    )


def _name(timed: TimedSchedule) -> str:
    return f"{_ALGORITHMS[timed.schedule.algorithm.partition(':')[0]]} {timed.schedule.protocol}"


def _time(timed: TimedSchedule, planned: PlannedCollective) -> str:
    time_s, size = timed.duration_ps / PS_PER_S, nccl_tests_bytes(timed.schedule.demand)
    band = interval_at(time_s, planned.cluster, planned.profile, planned.demand.kind, size)
    between = "" if band is None else f" ({format_interval(band.low_s, band.high_s)})"
    return f"{format_seconds(time_s)}{between}"
