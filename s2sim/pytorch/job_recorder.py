"""Records the gradients and times of a training loop that runs anyway, from a few lines in it."""

from __future__ import annotations

import shutil
import socket
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from s2sim.errors import OptionError, S2SimError, warn
from s2sim.gradients import manifest, read_trace, statistics
from s2sim.gradients.gradient import Gradient
from s2sim.gradients.write_trace import check_target, write_trace
from s2sim.profiles.profile import Precision
from s2sim.profiles.read import PROFILE, TRACE, RecordedJob, profile_text
from s2sim.pytorch import timing
from s2sim.pytorch.hook_buckets import all_finite, common_type, to_layer
from s2sim.pytorch.members import gather, on_all_ranks
from s2sim.pytorch.record_profile import device_name, make_profile
from s2sim.pytorch.subject import recorded_parameters
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    import torch


class JobRecorder:
    """Records a training loop, in which `step` is called after each step of the optimizer.

    After `WARMUP_STEPS` steps without hooks it takes ``steps`` steps with marks at every layer and gradient; then in
    turn, as many of each, steps without hooks, whose times are the job's, and steps with a few marks; and the gradients
    of ``gradient_steps`` steps before ranks reduce them, in which mini-batches add up. For a step that lacks marks, or
    has a gradient that is not finite on any rank, it takes another one. Then its hooks are gone, and `close` writes a
    folder for ``s2sim run --recorded``. Several processes of `torch.distributed` each have one, on a folder that they
    share; where DDP has a group of its own, these are the job, and of several such groups that of rank 0 is recorded.
    Compute without communication beside it is that of mini-batches in the loop's own ``no_sync``, or of the steps that
    ``alone`` adds. Forwards without gradients, as of an evaluation, are passed over.

    Parameters
    ----------
    module : torch.nn.Module
        What the loop trains, in DistributedDataParallel or alone, and not through `torch.compile`; its parameters are
        whole on each rank.
    folder : str or Path
        Does not exist, or is empty; its parent exists.
    batch : int
        Samples in one rank's mini-batch.
    sample : str
        What one of them is; ``sequence of 1,024 tokens`` for a transformer.
    model : str, optional
        What to call the model (default: the module's class).
    precision : {"fp32", "tf32", "fp16", "bf16"}
        Of matrix products, as the loop has set it.
    steps, gradient_steps : int
        How many are taken, at least 1.
    alone : bool
        Let ``steps`` more steps compute without DDP's all-reduces, and average gradients when backward has ended: the
        same means, to the bit on two ranks and up to rounding on more.
    network : bool
        Time all-reduces of the job's process group in `close`, some seconds.

    Examples
    --------
    ::

        with JobRecorder(model, "mine", batch=32, alone=True, network=True) as recorder:
            for images, labels in batches:
                loss(model(images), labels).backward()
                optimizer.step()
                optimizer.zero_grad()
                recorder.step()
    """

    def __init__(
        self,
        module: torch.nn.Module,
        folder: str | Path,
        *,
        batch: int,
        sample: str = "sample",
        model: str | None = None,
        precision: Precision = "fp32",
        steps: int = 10,
        gradient_steps: int = 1,
        alone: bool = False,
        network: bool = False,
    ) -> None:
        import torch
        from torch import distributed

        for what, number in (("batch", batch), ("steps", steps), ("gradient_steps", gradient_steps)):
            if number < 1:
                raise OptionError(f"{what}={number} is less than 1")
        self._ddp: Any = module if isinstance(module, torch.nn.parallel.DistributedDataParallel) else None
        self._module: Any = module if self._ddp is None else self._ddp.module
        self._parameters: dict[str, Any] = recorded_parameters(self._module)
        if any(hasattr(each, "_orig_mod") or getattr(each, "_compiled_call_impl", None) for each in module.modules()):
            raise OptionError("torch.compile calls none of the hooks that record: record the module without it")
        joined = distributed.is_available() and distributed.is_initialized()
        group = self._group = getattr(self._ddp, "process_group", None)
        self._rank, self._ranks = (distributed.get_rank(group), distributed.get_world_size(group)) if joined else (0, 1)
        self._recorded = not joined or 0 in distributed.get_process_group_ranks(group)
        self._folder, self._model = Path(folder), model or type(self._module).__name__
        self._batch, self._sample, self._precision, self._network = batch, sample, precision, network
        self._device = next(iter(self._parameters.values())).device.type
        self._clock = timing.clock_of(self._device)
        if alone and (why := _not_alone(self._ddp)):
            raise OptionError(f"alone=True is for {why}: leave it out")
        if self._recorded:
            on_all_ranks(partial(check_target, self._folder, overwrite=False), group)
        elif self._rank == 0:
            warn(f"{folder}: the group of rank 0 is recorded, not this one")
        in_turn = ["none", "few", *["alone"] * alone] * steps
        self._kinds = ["warm-up"] * timing.WARMUP_STEPS + ["all"] * steps + in_turn + ["gradients"] * gradient_steps
        self._most, self._done = 2 * len(self._kinds), 0
        self._lacking: list[int] = []  # Of these kinds, those to take again
        self._hooks = ExitStack()
        self._marks: dict[str, list[timing.StepMarks]] = {kind: [] for kind in self._kinds}
        self._now: list[timing.StepMarks] = []  # Of the step that runs, by mini-batch
        self._beside: list[timing.StepMarks] = []  # Of mini-batches in the loop's own no_sync
        self._broadcasts = False  # Whether the optimizer sends parameters
        self._reduced = 0  # Mini-batches of a step, at most, each of which DDP reduces
        self._averages: bool | None = None  # Whether steps without DDP's all-reduces are taken, as all ranks agree
        self._begin: Any = None  # Mark of the end of the step before
        self._captured: dict[int, dict[str, torch.Tensor]] = defaultdict(dict)  # By place in the kinds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._hooks.close()
        if kind is None:
            self.close()

    @property
    def steps_left(self) -> int:
        """Steps that the recording still takes."""
        return len(self._kinds) - self._done

    def step(self) -> None:
        """Say that a step of training has ended, that of the optimizer included."""
        if not self.steps_left:
            return
        end, kind = self._clock.mark(), self._kinds[self._done]
        if not self._keeps(kind, end):
            self._lacking.append(self._done)
        self._done += 1
        if not self.steps_left:
            self._repeat_lacking()
        following = self._kinds[self._done] if self.steps_left else "none"
        if following != kind:
            self._hooks.close()
            begin = {"all": self._watch, "few": self._watch_few, "alone": self._watch_alone, "gradients": self._capture}
            begin.get(following, lambda: None)()
        self._now.clear()
        self._begin = self._clock.mark()

    def _keeps(self, kind: str, end: Any) -> bool:
        """Keep the marks of a step; return whether it has those, or gradients, that it was taken for."""
        if kind == "gradients":
            captured = self._captured[self._done].values()
            return bool(captured) and all(map(all_finite, captured))
        marks = timing.StepMarks()
        if kind in ("all", "few", "alone"):
            whole = [each for each in self._now if each.layers and each.forward_end and each.ready]
            if not whole:
                return self._rank > 0  # The first one's are written
            for marks in whole:
                marks.backward_end = next(reversed(marks.ready.values()))
            # Of several mini-batches in a step the last one counts, after which ranks reduce their gradients.
            self._reduced = max(self._reduced, sum(each.reduces for each in whole))
            alone = [each for each in whole[:-1] if kind == "few" and not each.reduces]
            self._beside += [replace(each, optimizer_end=each.backward_end) for each in alone]
            # A closure runs backward in the optimizer; one that is none of PyTorch's is not seen.
            marks.optimizer_begin = marks.optimizer_begin or (marks.backward_end if marks.optimizer_end else end)
            marks.optimizer_end = marks.optimizer_end or end
        marks.begin, marks.end = self._begin, end
        self._marks[kind].append(marks)
        return True

    def _repeat_lacking(self) -> None:
        """Take another step for each that some rank lacks."""
        lacking = sorted(set().union(*gather(self._lacking, self._group)))
        self._lacking = []
        for each in lacking:
            self._captured.pop(each, None)
        self._kinds += [self._kinds[each] for each in lacking]
        if len(self._kinds) > self._most:
            self._hooks.close()
            raise S2SimError(
                f"{len(lacking)} of {self._done} steps had no forward of the module, no gradient or one that is not "
                "finite: compute the loss by calling the module, and call step() once, after each step of the optimizer"
            )

    def _watch(self, first: str | None = None, last: str | None = None) -> None:
        """Mark the layers, gradients and end of forward of each step from now on; of layers and gradients maybe one."""
        import torch

        self._now = self._hooks.enter_context(timing.watch(self._module, self._clock, first, last))

        def begin(*_: Any) -> None:
            if torch.is_grad_enabled():
                if not self._now or self._now[-1].ready:
                    self._now.append(timing.StepMarks(mini_batches=len(self._now) + 1))
                # Of several forwards before a backward the last one ends it.
                self._now[-1].forward_end = None
                self._now[-1].reduces = self._ddp is None or self._ddp.require_backward_grad_sync

        def end(*_: Any) -> None:
            if torch.is_grad_enabled() and self._now:
                self._now[-1].forward_end = self._clock.mark()

        self._hooks.callback(self._module.register_forward_pre_hook(begin, prepend=True).remove)
        self._hooks.callback(self._module.register_forward_hook(end).remove)

    def _watch_few(self) -> str | None:
        """Mark the begin of forward, one gradient, whose parameter is returned, and the optimizer."""
        from torch.optim import optimizer

        steps = self._marks["all"]
        came = Counter(name for marks in steps for name in marks.ready)
        # Of those that come in most steps the last.
        last = max(reversed(steps[-1].ready), key=came.__getitem__) if steps else None
        self._watch("", last)
        own = set(map(id, self._parameters.values()))

        def is_own(steps: torch.optim.Optimizer) -> bool:
            return any(id(each) in own for group in steps.param_groups for each in group["params"])

        def begin(steps: torch.optim.Optimizer, *_: Any) -> None:
            self._broadcasts |= is_own(steps) and type(steps).__name__ == "ZeroRedundancyOptimizer"
            if is_own(steps) and self._now and self._now[-1].ready:
                self._now[-1].optimizer_begin = self._now[-1].optimizer_begin or self._clock.mark()

        def end(steps: torch.optim.Optimizer, *_: Any) -> None:
            if is_own(steps) and self._now:
                self._now[-1].optimizer_end = self._clock.mark()

        self._hooks.callback(optimizer.register_optimizer_step_pre_hook(begin).remove)
        self._hooks.callback(optimizer.register_optimizer_step_post_hook(end).remove)
        return last

    def _watch_alone(self) -> None:
        """Do so in a step without DDP's all-reduces, whose gradients are averaged after backward."""
        import torch

        last = self._parameters.get(self._watch_few() or "")
        if self._averages is None:
            self._averages = all(gather(bool(last is not None and not self._beside), self._group))
        if last is None or not self._averages:
            return
        self._ddp.require_backward_grad_sync = False
        # As after a step with all-reduces: the next forward takes rank 0's buffers.
        for name in ("require_backward_grad_sync", "require_forward_param_sync"):
            self._hooks.callback(setattr, self._ddp, name, True)
        engine: Any = torch.autograd.Variable._execution_engine  # noqa: SLF001  (DDP's own way to the end of backward)
        # Of several mini-batches each is averaged.
        hook = last.register_post_accumulate_grad_hook(lambda _: engine.queue_callback(self._average))
        self._hooks.callback(hook.remove)

    def _average(self) -> None:
        """Replace gradients that DDP has left local by their mean over ranks."""
        from torch import distributed

        for name, each in self._parameters.items():
            if each.grad is not None and name not in self._ddp.parameters_to_ignore:
                mean = each.grad.mul(1 / self._ranks).contiguous()
                distributed.all_reduce(mean, group=self._group)
                each.grad.copy_(mean)

    def _capture(self) -> None:
        def keep(name: str, gradient: torch.Tensor) -> None:
            kept, copied = self._captured[self._done], gradient.detach().to("cpu", copy=True)
            kept[name] = kept[name] + copied if name in kept else copied

        for name, parameter in self._parameters.items():
            self._hooks.callback(parameter.register_hook(partial(keep, name)).remove)

    def close(self) -> None:
        """Write what was recorded; on all ranks, which raise the same `S2SimError` where one of them cannot."""
        self._hooks.close()
        if not self._recorded:
            return
        sparse = frozenset.intersection(*on_all_ranks(self._find_sparse, self._group))
        on_all_ranks(partial(self._write_gradients, sparse), self._group)
        network = timing.describe_network(self._group, self._device, measure=self._network) if self._ranks > 1 else {}
        on_all_ranks(partial(self._write_folder, sparse, network), self._group)

    def _find_sparse(self) -> frozenset[str]:
        """Return the tables with mostly zero gradient rows in all steps."""
        import torch

        if self.steps_left:
            raise S2SimError(
                f"{self._done} of the {len(self._kinds)} steps that a recording takes have ended: let the loop run on, "
                "or record fewer with steps= and gradient_steps="
            )
        if self._ddp is not None and self._ranks > 1 and self._reduced > 1:
            raise S2SimError(
                f"{self._reduced} mini-batches of a step were each all-reduced, and one alone would be predicted: use "
                "no_sync() for all but the last, or call step() after each"
            )
        if self._broadcasts:
            text = "sends parameters in its step, which would count as compute: record the optimizer that it divides"
            raise S2SimError(f"ZeroRedundancyOptimizer {text}")
        for kept in self._captured.values():
            kept |= {name: torch.zeros(each.shape) for name, each in self._parameters.items() if name not in kept}
        return frozenset.intersection(*(timing.sparse_tables(self._module, kept) for kept in self._captured.values()))

    def _write_gradients(self, sparse: frozenset[str]) -> None:
        self._folder.mkdir(exist_ok=True)
        names = tuple(self._parameters)
        gradients = [
            Gradient(names, tuple(to_layer(kept[name], sparse=name in sparse) for name in names))
            for kept in self._captured.values()
        ]
        part = statistics.GradientTable(len(gradients), 1, lambda step, _: gradients[step])
        write_trace(self._folder / f"rank{self._rank}", part, max_storage_error=0.0, **self._about)

    @property
    def _about(self) -> dict[str, Any]:
        said = "as the job had it"
        origin = manifest.Origin(said, said, said, "s2sim.pytorch.JobRecorder", "the job's own")
        known = {"kind": "recorded", "model": self._model, "origin": origin, "batch": self._batch}
        return known | {"dtype": common_type(self._parameters.values())}

    def _write_folder(self, sparse: frozenset[str], network: Mapping[str, Any]) -> None:
        """Write the gradients of all ranks as one trace, the profile of the first one, and what ran."""
        import torch

        if self._rank > 0:
            return
        folders = [self._folder / f"rank{rank}" for rank in range(self._ranks)]
        if missing := [each.name for each in folders if not each.is_dir()]:
            raise S2SimError(f"{self._folder} lacks {missing[0]}: all processes have to share the folder")
        traces, steps = [read_trace.open_trace(each) for each in folders], len(self._captured)
        together = statistics.GradientTable(steps, self._ranks, lambda step, rank: traces[rank].gradient(step, 0))
        write_trace(self._folder / TRACE, together, warmup_steps=self._done - steps, **self._about)
        for each in folders:
            shutil.rmtree(each)
        few, captured = self._marks["few"], self._captured.values()
        alone = self._beside or self._marks.get("alone", [])
        times = timing.step_times(self._module, self._clock, self._marks["all"], alone or few, sparse)
        parts = timing.iteration_parts(self._clock, few)
        source = f"JobRecorder in a loop of {self._ranks} ranks, PyTorch {torch.__version__}, median of {len(few)}"
        profile = make_profile(
            times,
            self._parameters,
            name=self._folder.name,
            model=self._model,
            gpu=device_name(self._device),
            batch=self._batch,
            sample=self._sample,
            optimizer_ps=round(PS_PER_S * parts.optimizer_s),
            source=source + (", without communication beside it" if alone else ""),
            precision=self._precision,
        )
        text = profile_text(
            profile,
            description=f"{self._model}, recorded in its job",
            batch_source="as the job said",
            memory_bound_source="not measured: none",
        )
        (self._folder / PROFILE).write_text(text, "utf-8")
        RecordedJob(
            iteration_s=timing.median_s(self._clock, [(each.begin, each.end) for each in self._marks["none"]]),
            ranks=self._ranks,
            host=socket.gethostname(),
            device=profile.gpu,
            torch=torch.__version__,
            bucket_bytes=getattr(self._ddp, "bucket_bytes_cap", None),
            bucket_views=getattr(self._ddp, "gradient_as_bucket_view", None),
            buckets=() if self._ddp is None else self._buckets(self._ddp),
            parts=parts,
            mini_batches=few[-1].mini_batches,
            compute_alone=bool(alone),
            by_rows=tuple(each for each in self._parameters if any(kept[each].is_sparse for kept in captured)),
            **network,
        ).write(self._folder)

    def _buckets(self, ddp: Any) -> tuple[tuple[str, ...], ...]:
        """Return the parameters of DDP's buckets, which it has made anew after its first step."""
        names = [name for name in self._parameters if name not in ddp.parameters_to_ignore]
        told = ddp._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices", "")  # noqa: SLF001  (nowhere else)
        return tuple(tuple(names[int(each)] for each in bucket.split()) for bucket in told.split(",") if bucket)


def _not_alone(ddp: Any) -> str:
    """Return what a module would have to be for steps without DDP's all-reduces; empty where it is."""
    if ddp is None:
        return "a module in DistributedDataParallel"
    if ddp.find_unused_parameters or ddp.static_graph or ddp._comm_hooks:  # noqa: SLF001  (no public list of hooks)
        return "DistributedDataParallel without a hook, find_unused_parameters or static_graph"
    return "tables without sparse=True" if any(getattr(each, "sparse", False) for each in ddp.modules()) else ""
