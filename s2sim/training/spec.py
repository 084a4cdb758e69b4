"""A training of one model with several reducers, as given by the user."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
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
    model: str = field(
        metadata=cluster_spec.described(
            "MODEL",
            "cnn (digits), ncf (recommendation), lstm or transformer (both need --text), with options as in "
            "lstm:width=32,learning_rate=2.",
            argument=True,
        )
    )
    reducers: tuple[str, ...] = cluster_spec.option(
        ("dense",),
        "NAME[:KEY=VALUE,...]",
        "A reducer to train with beside dense (see s2sim list reducers); repeatable. One that needs error feedback "
        "gets it, unless it says ef=false.",
        none="dense alone",
        flag="--reducer",
    )
    workers: int = cluster_spec.option(8, "N", "Number of workers (ranks, GPUs).", parse=cluster_spec.parse_workers)
    steps: int = cluster_spec.option(200, "N", "Training steps.")
    seeds: int = cluster_spec.option(3, "N", "How often everything is trained, from --seed on.")
    text: tuple[str, ...] = cluster_spec.option(
        (), "PATH", "UTF-8 text for a language model; repeatable, read in order.", none="no text"
    )
    evaluate_every: int = cluster_spec.option(20, "N", "Steps from one evaluation on held-out data to the next.")
    learning_rates: tuple[str, ...] = cluster_spec.option(
        (),
        "REDUCER=RATE",
        "Another learning rate than the model's for one reducer; repeatable.",
        none="the model's",
        flag="--learning-rate",
    )
    target_loss: float | None = cluster_spec.option(
        None, "X", "Loss on held-out data to be reached.", none="lowest that dense reaches"
    )
    target_accuracy: float | None = cluster_spec.option(
        None, "X", "Share of right answers to be reached, 0.9 for 90 %.", none="none"
    )
    collective: str = "auto"
    library: str | None = cluster_spec.option(None, **cluster_spec.LIBRARY)
    gpu: str | None = cluster_spec.option(None, **cluster_spec.GPU)
    compute: str | None = cluster_spec.option(
        None,
        "TIME",
        "Time of forward, backward and optimizer with its unit; added to the exchange, without overlap.",
        none="estimated",
    )
    profile: str | None = cluster_spec.option(
        None,
        "NAME|FILE",
        "Compute profile whose forward, backward and optimizer are added instead (see s2sim list profiles).",
        none="none",
    )

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
