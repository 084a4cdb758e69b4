"""The state of a communication hook: a model's buckets, and what a reducer keeps of each from step to step."""

from __future__ import annotations

import atexit
import socket
import warnings
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from s2sim.errors import OptionError, S2SimError, S2SimWarning, warn
from s2sim.pytorch import hook_buckets
from s2sim.pytorch.members import Members, hook_members
from s2sim.reducers import registry, run
from s2sim.reducers.rank import Reducer
from s2sim.reducers.registry import leaves_feedback_out, with_feedback
from s2sim.units import format_bytes

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


def reducer_for_training(text: str, *, feedback: bool) -> Reducer:
    """Return a reducer that can be a hook, with error feedback if it needs some and ``feedback`` is true."""
    made = registry.make_reducer(text)
    traits = made.traits
    if traits.estimates == "shards":
        raise OptionError(
            f"{text} leaves every rank with its own part of the gradient, and DistributedDataParallel keeps whole "
            "models, which would drift apart: take another reducer"
        )
    if traits.warm:
        raise OptionError(
            f"{text}: warm=true changes nothing in training, where every step but the first is a later one"
        )
    return with_feedback(made) if feedback and not leaves_feedback_out(text) else made


def hook_notes(reducer: Reducer) -> list[str]:
    """Return notes for users who train with a reducer in a hook."""
    traits, momentum = reducer.traits, reducer.momentum_within
    drifts = ": ranks end with unlike gradients, so that their models drift apart: average them yourself"
    between = (
        ": the optimizer gets zeros in steps without an exchange, and then the mean of the sums; models do not train "
        "by themselves in between"
    )
    notes = (
        (not traits.agrees, drifts),
        (reducer.period > 1, between),
        (momentum, f": momentum {momentum:g} is in what the hook returns: give the optimizer none"),
        (traits.estimates == "sign", ": the hook returns signs: choose the learning rate for steps of one size"),
        (traits.estimates == "update", ": the hook returns an optimizer's steps: take them by SGD without momentum"),
        (traits.before_gradient, ": nothing is sent before the gradient is there, as a hook is called only then"),
        (reducer.runs_by is not None, f": sums run as Gloo runs them, not by {reducer.runs_by}"),
        (traits.assumes, f" is of use only if {traits.assumes}"),
    )
    return [f"{registry.option_string(reducer)}{text}" for applies, text in notes if applies]


_FORMAT = 2
_ADVICE = {
    "reducer": "make the HookState with that option string",
    "seed": "give that seed",
    "ranks": "feedback belongs to a rank and its data, so that it cannot be shared out anew: take as many, or begin "
    "with a new HookState, which loses what was held back",
    "rank": "every rank saves and loads its own",
    "shapes": "load it with the same model",
    "buckets": "give the same bucket_bytes, or bucket_cap_mb of DistributedDataParallel",
}


class HookState:
    """What `hook` needs of a model and a reducer; every rank makes one, all with the same arguments.

    `S2SimError` for a reducer or model that the hook does not take, and for arguments that differ between ranks.

    Parameters
    ----------
    model : torch.nn.Module
        The model, in DistributedDataParallel or alone; parameters in float32 or bfloat16.
    reducer : str
        An option string as ``s2sim run --reducer`` takes it. Error feedback is added where the reducer needs some.
    group : torch.distributed.ProcessGroup, optional
        Ranks among which gradients are averaged; those of the model in DistributedDataParallel, or all, unless given.
    seed : int
        Root of all randomness, the same on all ranks.
    sparse : sequence of str, optional
        Names of parameters in whose gradient most rows are zero; the weights of embeddings unless given.
    feedback : bool
        Whether to add error feedback where the reducer needs some and the option string has none.
    bucket_bytes : int, optional
        Size of buckets; that of the model in DistributedDataParallel, or 25 MiB, unless given.

    Attributes
    ----------
    reducer : str
        The option string in effect.
    step : int
        Steps that were exchanged.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        reducer: str = "s2",
        *,
        group: dist.ProcessGroup | None = None,
        seed: int = 0,
        sparse: Sequence[str] | None = None,
        feedback: bool = True,
        bucket_bytes: int | None = None,
    ) -> None:
        try:
            import torch.distributed as dist
        except ModuleNotFoundError as error:
            raise S2SimError(f"a hook is for PyTorch and needs {error.name}: pip install 's2sim[torch]'") from error
        if not dist.is_initialized():
            raise S2SimError("there is no process group yet: call torch.distributed.init_process_group first")
        made = reducer_for_training(reducer, feedback=feedback)
        whole = made.traits.scope == "gradient"
        self._layout = hook_buckets.make_bucket_layout(model, sparse=sparse, bucket_bytes=bucket_bytes, whole=whole)
        # A new group of the same ranks between hosts, for the hook alone.
        members = hook_members(
            dist.get_process_group_ranks(group or getattr(model, "process_group", None) or dist.group.WORLD)
        )
        self._rank, self._ranks = members.index, members.size
        self.reducer = registry.option_string(made)
        self.step = 0
        # What must be equal in a saved state and its HookState.
        self._about: dict[str, Any] = {
            "reducer": self.reducer,
            "seed": seed,
            "ranks": self._ranks,
            "rank": self._rank,
            "shapes": {name: list(parameter.shape) for name, parameter in self._layout.parameters.items()},
            "buckets": [list(names) for names in self._layout.buckets],
        }
        placed = made.placed(self._agreed_nodes(members))
        quiet = warnings.catch_warnings(action="ignore", category=S2SimWarning)
        with quiet if self._rank else nullcontext():
            try:
                run.dry_run(placed, self._layout.example(), self._ranks)
            except S2SimError as error:
                raise OptionError(f"{registry.option_string(placed)} cannot be a hook here: {error}") from error
            for note in hook_notes(placed):
                warn(note)
        self._exchange = hook_buckets.BucketExchanger(self._layout, placed, members, seed)
        # Its first reduction is itself a callback at the end of backward, behind which no other has its turn.
        self._settles_at_once = bool(getattr(model, "static_graph", False))
        self._names = {id(parameter): name for name, parameter in self._layout.parameters.items()}
        self._thread = ThreadPoolExecutor(1, "s2sim-hook")
        self._last: Future[None] | None = None
        self._error: S2SimError | None = None
        self._sent_more = False  # Than dense, in some step
        _OPEN.add(self)

    def close(self) -> None:
        """End the hook's thread and group after what is in flight; done at the interpreter's exit where nobody does."""
        self._thread.shutdown()
        self._exchange.members.close()
        self._error = self._error or S2SimError("the HookState was closed: make another one")
        _OPEN.discard(self)

    @property
    def buckets(self) -> tuple[tuple[str, ...], ...]:
        """Names of the parameters that are reduced together."""
        return self._layout.buckets

    @property
    def waited_s(self) -> float:
        """Seconds in which all reductions so far have waited for other ranks."""
        return self._exchange.waited_s

    @property
    def reducing_s(self) -> float:
        """Seconds that all reductions so far have taken, copies of the gradients left out."""
        return self._exchange.reducing_s

    def take(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Return the future of the mean of a `torch.distributed.GradBucket`; the reduction runs during backward."""
        import torch

        buffer = bucket.buffer()
        parameters = bucket.parameters()
        names = [self._names.get(id(parameter), "") for parameter in parameters]
        if "" in names:
            raise S2SimError(
                f"a gradient of shape {list(parameters[names.index('')].shape)} is of none of the parameters that the "
                "HookState was made for: make it of the model that is trained"
            )
        views = [buffer] if buffer.is_sparse else bucket.gradients()
        future = torch.futures.Future[torch.Tensor](devices=[buffer.device] if buffer.is_cuda else None)
        tensors = dict(zip(names, views, strict=True))

        def finished() -> None:
            future.set_result(tensors[names[0]] if buffer.is_sparse else buffer)

        if self._exchange.sums and not buffer.is_cuda:
            self._check_open()
            self._exchange.post_sum(buffer, future)
            self.step += bucket.is_last()
        else:
            handed = hook_buckets.PendingGradients(tensors, finished, future.set_exception, _event(buffer))
            self._submit(handed, last=bucket.is_last())
        if bucket.is_last() and self._settles_at_once:
            self._settle()
        elif bucket.is_last():
            # Before DistributedDataParallel reads the futures, of which it changes the errors.
            engine = torch.autograd.Variable._execution_engine  # noqa: SLF001  (its own way to end backward)
            engine.queue_callback(self._settle)
        return future

    def reduce_gradients(self) -> None:
        """Average the gradients of all parameters over ranks, for a training without DistributedDataParallel.

        To be called on all ranks, after backward; a parameter without a gradient on this rank counts as zeros.
        """
        import torch

        tensors = {
            name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for name, parameter in self._layout.parameters.items()
        }
        first = next(iter(tensors.values()))
        self._submit(hook_buckets.PendingGradients(tensors, lambda: None, lambda _: None, _event(first)), last=True)
        self._settle()
        for name, parameter in self._layout.parameters.items():
            parameter.grad = tensors[name]

    def state_dict(self) -> dict[str, Any]:
        """Return what this rank needs to resume; every rank saves its own, with that of the optimizer."""
        self._settle()
        states = [hook_buckets.to_tensors(dict(reducer.state())) for reducer in self._exchange.reducers.values()]
        return {"format": _FORMAT, **self._about, "step": self.step, "states": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a `state_dict` of this rank: the next step gives the same bits.

        `S2SimError` for that of another rank, number of ranks, reducer, seed or model; nothing is changed then.
        """
        if state.get("format") != _FORMAT:
            raise S2SimError(
                "this is no state of a hook that this version reads: give what HookState.state_dict returned"
            )
        for name, own in self._about.items():
            if state[name] != own:
                shown = "" if isinstance(own, dict | list) else f" {state[name]}, and this HookState has {own}"
                another = "" if shown else "another "
                raise S2SimError(f"the saved state is of {another}{name}{shown}: {_ADVICE[name]}")
        for reducer, kept in zip(self._exchange.reducers.values(), state["states"], strict=True):
            reducer.restore(hook_buckets.from_tensors(kept))
        self.step = state["step"]

    def _check_open(self) -> None:
        if self._error is not None:
            raise S2SimError(f"no exchange is possible any more: {self._error}")

    def _submit(self, handed: hook_buckets.PendingGradients, *, last: bool) -> None:
        self._check_open()
        sent, dense = self._exchange.step_bytes
        # The first step may send what later ones do not, or less than feedback will make of it.
        if sent > dense and self.step > 1 and self._rank == 0 and not self._sent_more:
            self._sent_more = True
            text = f"sent {format_bytes(round(sent))} in step {self.step - 1}, where dense would have sent"
            warn(f"{self.reducer} {text} {format_bytes(round(dense))}")
        self._last = self._thread.submit(self._run, handed, self.step, last=last)
        self.step += last

    def _run(self, handed: hook_buckets.PendingGradients, step: int, *, last: bool) -> None:
        if self._error is None:
            try:
                self._exchange.take(handed, step, last=last)
            except Exception as error:  # noqa: BLE001  (whatever it is, who trains has to hear of it, and all who wait)
                self._fail(error, step)
        if self._error is not None:
            self._exchange.fail(handed, self._error)
            raise self._error

    def _fail(self, error: Exception, step: int) -> S2SimError:
        text = f"rank {self._rank} cannot reduce step {step} with {self.reducer}: {_first_line(error)}"
        self._error = S2SimError(text)
        self._error.__cause__ = error
        return self._error

    def _settle(self) -> None:
        """Wait for what the thread has been given, and for sums."""
        if self._last is not None:
            self._last.result()
        try:
            self._exchange.finish_sums()
        except Exception as error:
            raise self._fail(error, self.step - 1) from error

    def _agreed_nodes(self, members: Members) -> list[int]:
        """Return the number of each rank's node; raise if the arguments of ranks differ."""
        gathered = members.gather_json((self._about, socket.gethostname()))
        for rank, (about, _) in enumerate(gathered):
            for name, value in about.items():
                if name != "rank" and value != gathered[0][0][name]:
                    raise S2SimError(f"rank {rank} has made its HookState with another {name} than rank 0")
        hosts = list(dict.fromkeys(host for _, host in gathered))
        return [hosts.index(host) for _, host in gathered]


_OPEN: weakref.WeakSet[HookState] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for state in tuple(_OPEN):
        state.close()


def hook(state: HookState, bucket: Any, *sharded: Any) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket's gradients over ranks with the state's reducer: ``model.register_comm_hook(state, hook)``.

    `OptionError` where FSDP calls it, with a sharded gradient.
    """
    if sharded:
        raise OptionError(f"{hook_buckets.SHARDED} these are of FSDP")
    return state.take(bucket)


# DistributedDataParallel compares annotations with its own types, and these are texts.
hook.__annotations__ = {}


def _event(tensor: torch.Tensor) -> Any:
    """Return an event after the computation of a tensor; None for one in host memory."""
    import torch

    return torch.cuda.current_stream(tensor.device).record_event() if tensor.is_cuda else None


def _first_line(error: Exception) -> str:
    if isinstance(error, S2SimError):
        return str(error)
    text = next(iter(str(error).splitlines()), "")
    if "gloo" in text and "onnection" in text:
        return "the connection to another rank is gone: see what that one says"
    return f"{type(error).__name__}: {text}"
