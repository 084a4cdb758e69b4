"""A training of one model with several reducers, as given by the user."""

from dataclasses import KW_ONLY, dataclass
from math import isfinite
from typing import ClassVar

from s2sim.errors import OptionError
from s2sim.experiment import cluster_spec

_MAX_STEPS, _MAX_SEEDS = 1_000_000, 1000


@cluster_spec.document_options
@dataclass(frozen=True, slots=True)
class TrainSpec(cluster_spec.ClusterSpec):
    """What `s2sim.training.run.train` computes, on the cluster of a `ClusterSpec`."""

    what: ClassVar[str] = "train"

    _: KW_ONLY
    model: str
    reducers: tuple[str, ...] = ("dense",)
    workers: int = cluster_spec.parsed(cluster_spec.parse_workers, 8)
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
        cluster_spec.ClusterSpec.__post_init__(self)
        cluster_spec.check_tuples(self, "reducers", "text", "learning_rates")
        cluster_spec.check_integer(self.workers, self.steps, self.seeds, self.evaluate_every)
        for flag, number, most in (
            ("--workers", self.workers, _MAX_STEPS),
            ("--steps", self.steps, _MAX_STEPS),
            ("--seeds", self.seeds, _MAX_SEEDS),
            ("--evaluate-every", self.evaluate_every, _MAX_STEPS),
        ):
            if not 1 <= number <= most:
                raise OptionError(f"{flag} {number} must lie between 1 and {most:,}")
        if not self.reducers:
            raise OptionError("no reducer was given; for example --reducer union")
        loss, accuracy = self.target_loss, self.target_accuracy
        if loss is not None and accuracy is not None:
            raise OptionError(f"--target-loss {loss:g} and --target-accuracy {accuracy:g}: give one target")
        if loss is not None and not (isfinite(loss) and loss > 0):
            raise OptionError(f"--target-loss {loss:g} must be above 0")
        if accuracy is not None and not 0 < accuracy <= 1:
            raise OptionError(f"--target-accuracy {accuracy:g} must be above 0 and at most 1, as a share: 0.9 for 90 %")
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


def _rate_of(text: str) -> tuple[str, float]:
    name, _, rate = text.rpartition("=")
    try:
        value = float(rate)
    except ValueError:
        value = 0.0
    if not name or not (isfinite(value) and value > 0):
        raise OptionError(f"--learning-rate {text}: write REDUCER=RATE, for example signsgd-vote=0.0005")
    return name, value
