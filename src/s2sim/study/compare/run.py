"""Compare reducers: what Python and the command line call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from s2sim.errors import OptionError
from s2sim.study.by_name import takes_fields_of
from s2sim.study.compare.carry_out import carry_out
from s2sim.study.compare.found import Wanted
from s2sim.study.progress import Silent
from s2sim.study.spec import RunSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.break_even.rate_curve import RateCurves
    from s2sim.study.measuring.result import Result
    from s2sim.study.measuring.streams import Streams
    from s2sim.study.measuring.timeline import Timeline
    from s2sim.study.progress import Progress


@takes_fields_of(RunSpec)
def run(
    topology: str | None = None,
    *,
    workers: int | Sequence[int] | None = None,
    reducers: Sequence[str] | None = None,
    spec: RunSpec | None = None,
    progress: Progress | None = None,
    timelines: dict[str, Timeline | Streams] | None = None,
    timeline_rank: int | None = None,
    break_even: bool = True,
    thorough: bool = True,
    curves: dict[int, RateCurves] | None = None,
    **options: Any,
) -> Result:
    """Compare gradient reducers on a cluster.

    Parameters
    ----------
    topology : str
        Name of a shipped topology or path of a TOML file.
    workers : int or sequence of int
        Number of ranks; several give several rows a reducer.
    reducers : sequence of str, optional
        Option strings; without them those that `s2sim run` compares.
    spec : RunSpec, optional
        The whole experiment as a value, instead of the other arguments.
    progress : Progress, optional
        Told what is being done.
    timelines : dict, optional
        Filled with what ranks and links do under each reducer, for the largest number of workers; of whole iterations
        with the streams of one rank.
    timeline_rank : int, optional
        Which; the slowest unless given.
    break_even : bool
        Whether to look for the rates at which reducers break even with dense.
    thorough : bool
        Whether to work out what the first screen does not show: break-even of all reducers instead of those that the
        verdict names, and what other libraries would make of each.
    curves : dict, optional
        Filled with the speed-ups over dense at other rates, by number of workers.

    Returns
    -------
    Result
        Rows, verdict and run record; shows as a table in a notebook.

    Raises
    ------
    S2SimError
        For anything that cannot be done as asked.
    """
    if spec is None:
        if topology is None or workers is None:
            raise OptionError("run needs a topology and a number of workers, or a spec")
        one_or_more: Any = workers
        several = isinstance(one_or_more, Iterable) and not isinstance(one_or_more, str)
        counts = one_or_more if several else (one_or_more,)
        if reducers is not None:
            options["reducers"] = (reducers,) if isinstance(reducers, str) else reducers
        spec = RunSpec.of(topology, workers=counts, **options)
    elif not isinstance(spec, RunSpec):
        raise OptionError(f"s2sim.run: spec is a {type(spec).__name__}: give a RunSpec, or RunSpec.load(path)")
    elif topology is not None or workers is not None or reducers is not None or options:
        asked = {"topology": topology, "workers": workers, "reducers": reducers, **options}
        named = ", ".join(name for name, value in asked.items() if value is not None)
        raise OptionError(f"s2sim.run: spec holds the whole experiment, so {named} cannot be given with it")
    return carry_out(spec, progress or Silent(), Wanted(timelines, curves, break_even, thorough, timeline_rank))
