"""Reducers recorded once on a model's gradients, and replayed on every cluster and with every mini-batch."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from s2sim.errors import S2SimWarning
from s2sim.study.compare.judge import rejected
from s2sim.study.compare.prepare import prepare
from s2sim.study.extrapolate.buckets import record_buckets
from s2sim.study.measuring.executed import Executed
from s2sim.study.measuring.make_row import make_row
from s2sim.study.measuring.record import baseline_of
from s2sim.study.papers.grid.gain import Gain, Where
from s2sim.study.spec import RunSpec
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.collectives.timing.timer import Timer
    from s2sim.collectives.timing.ways import Ways
    from s2sim.replay.iteration.disciplines.discipline import Bucket
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.scenario.reducers import ReducerScenario


@dataclass(frozen=True, slots=True)
class _Known:
    """What reducers do with a model's buckets, and by option string why an error cannot be trusted."""

    buckets: tuple[Bucket, ...]
    recorded: list[Recorded]
    rejected: dict[str, str | None]


@dataclass(slots=True)
class Recorder:
    """Runs reducers on the gradients of models, each once for all clusters on which they leave in the same buckets."""

    reducers: tuple[str, ...]  # Option strings, ``dense`` among them
    workers: int  # Ranks
    discipline: str = "ddp"  # What leaves together, and when

    _known: dict[str, _Known] = field(default_factory=dict, init=False, repr=False)
    _ways: dict[Where, Ways] = field(default_factory=dict, init=False, repr=False)
    _timers: dict[tuple[Where, str | None], Timer] = field(default_factory=dict, init=False, repr=False)

    def gains(self, model: str, where: Where, batch: int | None = None, host_loop: str | None = None) -> list[Gain]:
        """Return what each reducer but dense gains in iterations of a model's profile on a cluster.

        Parameters
        ----------
        model : str
            Name of the profile.
        where : Where
            The cluster.
        batch : int or None
            Samples of one GPU's mini-batch; None for the profile's.
        host_loop : str or None
            What a loop of the host takes for each tensor of a bucket, before encode and before decode. Of dense, which
            has no codec, it is 0.
        """
        scenario = prepare(
            RunSpec(
                where.topology,
                overrides=where.overrides,
                workers=(self.workers,),
                reducers=self.reducers,
                gpu=where.gpu,
                profile=model,
                batch=batch,
                discipline=self.discipline,
                host_loop=host_loop,
            )
        )
        assert scenario.training is not None
        timer = self._timer(where, scenario, None).with_profile(scenario.library.profile)
        buckets = scenario.training.buckets(timer, scenario.dtype)
        known = self._known.get(model)
        if known is None or known.buckets != buckets:
            known = self._known[model] = self._record(where, scenario, buckets)
        times_s = {
            item.option_string: self._executed(item, where, scenario).judged_ps / PS_PER_S for item in known.recorded
        }
        dense = baseline_of(known.recorded)
        return [
            Gain(
                model,
                where.name,
                item.option_string,
                scenario.training.profile.batch,
                self.workers,
                times_s[dense.option_string],
                times_s[item.option_string],
                item.errors.whole.relative_l2,
                known.rejected[item.option_string],
            )
            for item in known.recorded
            if item is not dense
        ]

    def _record(self, where: Where, scenario: ReducerScenario, buckets: tuple[Bucket, ...]) -> _Known:
        training = scenario.training
        assert training is not None
        gradients = [scenario.trace.gradient(0, rank) for rank in range(self.workers)]
        with warnings.catch_warnings():
            # That one has nothing to do for some model is for whoever chose both; here every one meets every model.
            warnings.simplefilter("ignore", S2SimWarning)
            recorded, _ = record_buckets(
                scenario.reducers,
                gradients,
                training.profile.tensors,
                buckets,
                seed=scenario.seed,
                model=training.model,
            )
        dense = self._executed(baseline_of(recorded), where, scenario)
        why_not = {}
        for item in recorded:
            row = make_row(item, self._executed(item, where, scenario), dense, thorough=False)
            why_not[item.option_string] = rejected(row, None)
        return _Known(buckets, recorded, why_not)

    def _executed(self, item: Recorded, where: Where, scenario: ReducerScenario) -> Executed:
        algorithm = item.reducer.runs_by
        timer = self._timer(where, scenario, algorithm)
        return Executed(item.recording, scenario.running(algorithm), timer, item.exchange)

    def _timer(self, where: Where, scenario: ReducerScenario, algorithm: str | None) -> Timer:
        """Return what times collectives on a cluster, which remembers those that it has timed."""
        if where not in self._ways:
            self._ways[where] = scenario.ways(self.workers)
        if (where, algorithm) not in self._timers:
            self._timers[where, algorithm] = scenario.running(algorithm).timer(self.workers, self._ways[where])
        return self._timers[where, algorithm]
