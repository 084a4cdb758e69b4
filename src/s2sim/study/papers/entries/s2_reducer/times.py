"""How long S2 Reducer and its baselines take on its cluster, at four rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.study.measuring.result import ROUNDING_ERROR
from s2sim.study.papers.claim import Chart, Line, Table
from s2sim.study.papers.sweep import sweep
from s2sim.study.spec import RunSpec
from s2sim.units import format_ratio

if TYPE_CHECKING:
    from s2sim.study.papers.sweep import Timed
    from s2sim.study.progress import Progress

    # By cluster, then by reducer.
    Times = dict[str, dict[str, Timed]]

CLUSTERS = {
    "100 Gb/s": ("nic.rate=100Gbps", "nic.transport=ib-verbs"),
    "25 Gb/s": ("nic.rate=25Gbps",),
    "10 Gb/s": ("nic.rate=10Gbps",),
    "1 Gb/s": ("nic.rate=1Gbps",),
}
FIRST = "100 Gb/s"
_GBPS = (100.0, 25.0, 10.0, 1.0)
MODELS = {"GNMT-8": "gnmt-8", "GNMT-16": "gnmt-16", "LSTM": "lstm"}
# The two translate with the same tables, so that what these take alone is the same.
TABLES = {"GNMT-8 and 16": "gnmt-8", "LSTM": "lstm"}
BASELINES = {
    "dense": "dense",
    "AllGather": "ag-sparse",
    "Parallax": "parallax:as_coded=true",
    "OmniReduce": "authors-omnireduce",
}
_AUTHORS = {"gnmt-8": "s2:preset=authors-gnmt", "gnmt-16": "s2:preset=authors-gnmt", "lstm": "s2:preset=authors-lstm"}
OURS = ("S2, authors", "S2, repaired", "S2, exact")
_REPAIRED, _EXACT = "s2:rows=3,cells=4,warm=true", "s2-exact:warm=true"


def swept(model: str, progress: Progress, *, tables_only: bool) -> Times:
    """Return what baselines and S2 take for a model, or for its tables alone, at every rate."""
    own = {"S2, authors": _AUTHORS[model], "S2, repaired": _REPAIRED, "S2, exact": _EXACT}
    reducers = (*BASELINES.values(), *own.values())
    spec = RunSpec.of(
        "tcp-10g", workers=(16,), reducers=reducers, profile=model, discipline="after-backward", gpu="rtx-2080"
    )
    names = {option: name for name, option in {**BASELINES, **own}.items()}
    return {
        cluster: {names[option]: timed for option, timed in found.items()}
        for cluster, found in sweep(spec, CLUSTERS, progress, tables_only=tables_only).items()
    }


def saved(times: Times, cluster: str, what: str, against: str) -> float:
    """Return the share of another's communication time that one saves."""
    return 1 - times[cluster][what].time_s / times[cluster][against].time_s


def speedup(times: Times, cluster: str, what: str, against: str) -> float:
    """Return how many times as fast an iteration is as another's."""
    return times[cluster][against].iteration_s / times[cluster][what].iteration_s


def best(times: Times, cluster: str) -> str:
    """Return the baseline with the shortest iteration."""
    return min(BASELINES, key=lambda name: times[cluster][name].iteration_s)


def _error_text(error: float | None) -> str:
    exact = error is not None and error <= ROUNDING_ERROR
    return "exact" if exact else "-" if error is None else format_ratio(error, 3)


def saved_table(name: str, times: Times) -> Table:
    """Return what each takes for the tables of a model, what that saves, and its error."""
    rows = [
        (
            what,
            *(
                f"{1e3 * times[cluster][what].time_s:.1f} ms ({saved(times, cluster, what, 'dense'):.0%})"
                for cluster in CLUSTERS
            ),
            _error_text(times[FIRST][what].error),
        )
        for what in (*BASELINES, *OURS)
    ]
    columns = ("", *CLUSTERS, "relative L2 error")
    title = f"{name}: communication of the tables alone, (saved of a dense all-reduce of them)"
    return Table(title, columns, tuple(rows))


def speed_table(name: str, times: Times) -> Table:
    """Return how long iterations of a model take, and how many times as fast as with dense they are."""
    rows = [
        (
            what,
            *(
                f"{1e3 * times[cluster][what].iteration_s:.0f} ms ({speedup(times, cluster, what, 'dense'):.2f}x)"
                for cluster in CLUSTERS
            ),
        )
        for what in (*BASELINES, *OURS)
    ]
    return Table(f"{name}: iterations of 16 GPUs (times as fast as dense)", ("", *CLUSTERS), tuple(rows))


def saved_chart(name: str, times: Times) -> Chart:
    """Return what is saved of a dense all-reduce of the tables over rates."""
    lines = tuple(
        Line(what, _GBPS, tuple(100 * saved(times, cluster, what, "dense") for cluster in CLUSTERS))
        for what in (*BASELINES, *OURS)
        if what != "dense"
    )
    title = f"{name}: communication of the tables saved, against a dense all-reduce of them (published: 81 %)"
    return Chart(title, "rate of an interface (Gb/s)", "saved (%)", lines, log_x=True)


def speed_chart(name: str, times: Times) -> Chart:
    """Return speed-ups of iterations over dense, over rates."""
    lines = tuple(
        Line(what, _GBPS, tuple(speedup(times, cluster, what, "dense") for cluster in CLUSTERS))
        for what in (*BASELINES, *OURS)
    )
    title = f"{name}: speed-up of an iteration over dense (published: 1.8x over the state of the art)"
    return Chart(title, "rate of an interface (Gb/s)", "times as fast as dense", lines, log_x=True)
