"""A training of one model with several reducers, as people write it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import isfinite
from typing import ClassVar

from s2sim.errors import OptionError
from s2sim.study.cluster_spec import ClusterSpec, check_tuples, check_whole

_MOST_STEPS, _MOST_SEEDS = 1_000_000, 1000


@dataclass(frozen=True, slots=True)
class TrainSpec(ClusterSpec):
    """What `s2sim.study.convergence.run.train` computes, on the cluster of a `ClusterSpec`.

    Attributes
    ----------
    model : str
        Option string of a recorder's model.
    reducers : tuple of str
        Option strings; ``dense`` is added when it is missing.
    workers, steps : int
        Ranks, and training steps of each reducer and seed.
    seeds : int
        How often everything is trained, from ``seed`` on: initial weights, shards and draws of each are others.
    text : tuple of str
        Files that a language model learns from.
    evaluate_every : int
        Steps from one evaluation on held-out data to the next; there is one before the first and after the last step.
    learning_rates : tuple of str
        ``REDUCER=RATE`` where a reducer trains at another rate than the model's.
    target_loss, target_accuracy : float or None
        What is to be reached on held-out data; without either the lowest loss that dense reaches with every seed.
    collective, library, gpu : str
        As in `s2sim.study.spec.RunSpec`.
    compute : str or None
        Time of forward, backward and optimizer; added to the exchange, without overlap.
    profile : str or None
        Compute profile whose times of these are taken; with neither they are estimated.
    """

    what: ClassVar[str] = "train"

    _: KW_ONLY
    model: str
    reducers: tuple[str, ...] = ("dense",)
    workers: int = 8
    steps: int = 200
    seeds: int = 3
    text: tuple[str, ...] = ()
    evaluate_every: int = 20
    learning_rates: tuple[str, ...] = ()
    target_loss: float | None = None
    target_accuracy: float | None = None
    collective: str = "auto"
    library: str | None = None
    gpu: str | None = None
    compute: str | None = None
    profile: str | None = None

    def __post_init__(self) -> None:
        ClusterSpec.__post_init__(self)
        check_tuples(self, "reducers", "text", "learning_rates")
        check_whole(self.workers, self.steps, self.seeds, self.evaluate_every)
        for option, number, most in (
            ("--workers", self.workers, _MOST_STEPS),
            ("--steps", self.steps, _MOST_STEPS),
            ("--seeds", self.seeds, _MOST_SEEDS),
            ("--evaluate-every", self.evaluate_every, _MOST_STEPS),
        ):
            if not 1 <= number <= most:
                raise OptionError(f"{option} {number} must lie between 1 and {most:,}")
        if not self.reducers:
            raise OptionError("no reducer was given; for example --reducer union")
        _check_targets(self)
        if self.compute is not None and self.profile is not None:
            raise OptionError(
                f"--compute {self.compute} and --profile {self.profile} both say what is computed: give one"
            )

    def learning_rate(self, option_string: str) -> float | None:
        """Return the learning rate of a reducer by the option string that asks for it; None for the model's."""
        return dict(map(_rate_of, self.learning_rates)).get(option_string)

    def check_learning_rates(self, option_strings: tuple[str, ...]) -> None:
        """Refuse learning rates of reducers that are not there, and two of one."""
        names = [name for name, _ in map(_rate_of, self.learning_rates)]
        for name in names:
            if name not in option_strings:
                raise OptionError(f"--learning-rate {name}=...: there is no --reducer {name}")
            if names.count(name) > 1:
                raise OptionError(f"--learning-rate {name}=... was given twice")


def _check_targets(spec: TrainSpec) -> None:
    loss, accuracy = spec.target_loss, spec.target_accuracy
    if loss is not None and accuracy is not None:
        raise OptionError(f"--target-loss {loss:g} and --target-accuracy {accuracy:g}: give one target")
    if loss is not None and not (isfinite(loss) and loss > 0):
        raise OptionError(f"--target-loss {loss:g} must be above 0")
    if accuracy is not None and not 0 < accuracy <= 1:
        raise OptionError(f"--target-accuracy {accuracy:g} must be above 0 and at most 1, as a share: 0.9 for 90 %")


def _rate_of(text: str) -> tuple[str, float]:
    """Return the reducer and the rate of ``REDUCER=RATE``."""
    name, _, rate = text.rpartition("=")
    try:
        value = float(rate)
    except ValueError:
        value = 0.0
    if not name or not (isfinite(value) and value > 0):
        raise OptionError(f"--learning-rate {text}: write REDUCER=RATE, for example signsgd-vote=0.0005")
    return name, value
