"""Records the gradients and times of a training loop that runs anyway, from a few lines in it."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Self

from s2sim.errors import OptionError, S2SimError
from s2sim.gradients import manifest, read_trace, statistics
from s2sim.gradients.gradient import Gradient
from s2sim.gradients.write_trace import check_target, write_trace
from s2sim.profiles.profile import Precision
from s2sim.profiles.read import PROFILE, TRACE, IterationSeconds, RecordedJob, profile_text
from s2sim.pytorch.hook_buckets import to_layer
from s2sim.pytorch.record_profile import device_name, make_profile
from s2sim.pytorch.timing import WARMUP_STEPS, StepMarks, clock_of, describe_network, sparse_tables, step_times, watch
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    import torch


class JobRecorder:
    """Records a training loop, in which `step` is called after each step of the optimizer.

    After `WARMUP_STEPS` steps without hooks it takes ``steps`` steps with marks at every layer and gradient; then in
    turn, as many of each, steps without hooks, whose times are the job's, and steps with a few marks; and the gradients
    of ``gradient_steps`` steps before ranks reduce them, in which mini-batches add up. Then its hooks are gone, and
    `close` writes a folder for ``s2sim run --recorded``. Several processes of `torch.distributed` each have one, on a
    folder that they share. Compute without communication beside it is that of mini-batches in the loop's own
    ``no_sync``, or of the steps that ``alone`` adds.

    Parameters
    ----------
    module : torch.nn.Module
        What the loop trains, in DistributedDataParallel or alone; its parameters are whole on each rank.
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
        wrapped: Any = module
        self._ddp = wrapped if isinstance(module, torch.nn.parallel.DistributedDataParallel) else None
        self._module: torch.nn.Module = module if self._ddp is None else wrapped.module
        self._parameters = {name: each for name, each in self._module.named_parameters() if each.requires_grad}
        if not self._parameters or any(hasattr(each, "device_mesh") for each in self._parameters.values()):
            raise OptionError("what is recorded has trained parameters, whole on every rank: not those of FSDP")
        joined = distributed.is_available() and distributed.is_initialized()
        self._rank, self._ranks = (distributed.get_rank(), distributed.get_world_size()) if joined else (0, 1)
        self._group = getattr(self._ddp, "process_group", None)
        self._network = network
        self._folder, self._batch, self._sample, self._precision = Path(folder), batch, sample, precision
        self._model = model or type(self._module).__name__
        self._device = next(iter(self._parameters.values())).device.type
        self._clock = clock_of(self._device)
        if alone and (why := _not_alone(self._ddp)):
            raise OptionError(f"alone=True is for {why}: leave it out")
        if self._rank == 0:
            check_target(self._folder, overwrite=False)
        in_turn = ["none", "few", *["alone"] * alone] * steps
        self._kinds = ["warm-up"] * WARMUP_STEPS + ["all"] * steps + in_turn + ["gradients"] * gradient_steps
        self._done = 0
        self._hooks = ExitStack()
        self._marks: dict[str, list[StepMarks]] = {kind: [] for kind in self._kinds}
        self._now: list[StepMarks] = []  # Those of the step that runs are the last
        self._beside: list[StepMarks] = []  # Of mini-batches in the loop's own no_sync
        self._begin: Any = None  # Mark of the end of the step before
        self._summed = True  # Whether the gradients of a step without all-reduces have been averaged
        self._captured: list[dict[str, torch.Tensor]] = []

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
        if self._done >= len(self._kinds):
            return
        end, kind = self._clock.mark(), self._kinds[self._done]
        self._done += 1
        if kind in ("all", "few", "alone"):
            marks = self._now[-1]
            if not marks.ready or marks.forward_end is None:
                raise S2SimError("no gradient came in a step: call step() once, after each step of the optimizer")
            marks.backward_end, marks.begin, marks.end = next(reversed(marks.ready.values())), self._begin, end
            marks.optimizer_end = marks.optimizer_end or end
            self._marks[kind].append(marks)
        elif kind == "none":
            self._marks[kind].append(StepMarks(begin=self._begin, end=end))
        following = self._kinds[self._done] if self._done < len(self._kinds) else "none"
        if following != kind:
            self._hooks.close()
            begin = {
                "all": self._watch,
                "few": self._watch_little,
                "alone": self._watch_alone,
                "gradients": self._capture,
            }
            begin.get(following, lambda: None)()
        self._now.append(StepMarks())
        self._captured += [{}] if following == "gradients" else []
        self._begin = self._clock.mark()

    def _watch(self, first: str | None = None, last: str | None = None) -> None:
        """Mark the layers, gradients and end of forward of each step from now on; of layers and gradients maybe one."""
        self._now = self._hooks.enter_context(watch(self._module, self._clock, first, last))

        reduces = True

        def begin(*_: Any) -> None:
            nonlocal reduces
            # Of several mini-batches in a step the last one counts, after which ranks reduce their gradients.
            if self._now and self._now[-1].ready:
                before = self._now[-1]
                if first is not None and not reduces:
                    before.backward_end = before.optimizer_end = next(reversed(before.ready.values()))
                    self._beside.append(before)
                self._now[-1] = StepMarks(mini_batches=before.mini_batches + 1)
            reduces = self._ddp is None or bool(self._ddp.require_backward_grad_sync)

        def end(*_: Any) -> None:
            if self._now and self._now[-1].forward_end is None:
                self._now[-1].forward_end = self._clock.mark()

        self._hooks.callback(self._module.register_forward_pre_hook(begin, prepend=True).remove)
        self._hooks.callback(self._module.register_forward_hook(end).remove)

    def _watch_little(self) -> None:
        """Mark one layer and one gradient, and the optimizer."""
        from torch.optim import optimizer

        all_marks = self._marks["all"][-1]
        if not all_marks.layers:
            raise S2SimError("no module with parameters ran in forward: compute the loss by calling the module")
        self._watch(all_marks.layers[0][0], next(reversed(all_marks.ready)))
        own = set(map(id, self._parameters.values()))

        def is_own(steps: torch.optim.Optimizer) -> bool:
            return any(id(each) in own for group in steps.param_groups for each in group["params"])

        def begin(steps: torch.optim.Optimizer, *_: Any) -> None:
            if is_own(steps):
                self._average()
                self._now[-1].optimizer_begin = self._now[-1].optimizer_begin or self._clock.mark()

        def end(steps: torch.optim.Optimizer, *_: Any) -> None:
            if is_own(steps):
                self._now[-1].optimizer_end = self._clock.mark()

        self._hooks.callback(optimizer.register_optimizer_step_pre_hook(begin).remove)
        self._hooks.callback(optimizer.register_optimizer_step_post_hook(end).remove)

    def _watch_alone(self) -> None:
        """Do so in a step without DDP's all-reduces, whose gradients are averaged after backward."""
        import torch

        self._watch_little()
        if self._beside:
            return
        ddp: Any = self._ddp
        last: Any = self._parameters[next(reversed(self._marks["all"][-1].ready))]
        ddp.require_backward_grad_sync = False

        def restore() -> None:
            # As after a step with all-reduces: the next forward takes rank 0's buffers.
            ddp.require_backward_grad_sync = ddp.require_forward_param_sync = True

        self._hooks.callback(restore)
        # Of several mini-batches each is averaged.
        local = self._module.register_forward_pre_hook(lambda *_: setattr(self, "_summed", False))
        self._hooks.callback(local.remove)
        engine: Any = torch.autograd.Variable._execution_engine  # noqa: SLF001  (DDP's own way to the end of backward)
        hook = last.register_post_accumulate_grad_hook(lambda _: engine.queue_callback(self._average))
        self._hooks.callback(hook.remove)

    def _average(self) -> None:
        """Replace gradients that DDP has left local by their mean over ranks."""
        import torch
        from torch import distributed

        if self._summed or self._ddp is None:
            return
        self._summed = True
        by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
        for name, each in self._parameters.items():
            if each.grad is not None and name not in self._ddp.parameters_to_ignore:
                by_dtype.setdefault(each.grad.dtype, []).append(each.grad)
        for gradients in by_dtype.values():
            flat = torch.cat([each.reshape(-1) for each in gradients]).mul_(1 / self._ranks)
            distributed.all_reduce(flat, group=self._group)
            for gradient, mean in zip(gradients, torch.split(flat, [each.numel() for each in gradients]), strict=True):
                gradient.copy_(mean.view_as(gradient))

    def _capture(self) -> None:

        def keep(name: str, gradient: torch.Tensor) -> None:
            kept, copied = self._captured[-1], gradient.detach().to("cpu", copy=True)
            kept[name] = kept[name] + copied if name in kept else copied

        parameters: dict[str, Any] = self._parameters  # Whose hooks have no types.
        for name, parameter in parameters.items():
            self._hooks.callback(parameter.register_hook(partial(keep, name)).remove)

    def close(self) -> None:
        """Write what was recorded; on all ranks, as the first one waits for what the others write."""
        import torch
        from torch import distributed

        self._hooks.close()
        if self._done < len(self._kinds):
            raise S2SimError(
                f"{self._done} of the {len(self._kinds)} steps that a recording takes have ended: let the loop run on, "
                "or record fewer with steps= and gradient_steps="
            )
        self._folder.mkdir(exist_ok=True)
        network = describe_network(self._group, self._device, measure=self._network) if self._ranks > 1 else {}
        parameters = self._parameters
        for kept in self._captured:
            kept |= {name: torch.zeros(each.shape) for name, each in parameters.items() if name not in kept}
        sparse = frozenset.intersection(*(sparse_tables(self._module, kept) for kept in self._captured))
        gradients = [
            Gradient(tuple(parameters), tuple(to_layer(kept[name], sparse=name in sparse) for name in parameters))
            for kept in self._captured
        ]
        part = statistics.GradientTable(len(gradients), 1, lambda step, _: gradients[step])
        # Where one rank fails to write, no other waits for it.
        together = distributed.barrier if self._ranks > 1 else lambda: None
        try:
            write_trace(self._folder / f"rank{self._rank}", part, max_storage_error=0.0, **self._about)
        finally:
            together()
        try:
            if self._rank == 0:
                self._write_folder(sparse, len(gradients), network)
        finally:
            together()

    @property
    def _about(self) -> dict[str, Any]:
        said = "as the job had it"
        origin = manifest.Origin(said, said, said, "s2sim.pytorch.JobRecorder", "the job's own")
        return {"kind": "recorded", "model": self._model, "origin": origin, "batch": self._batch}

    def _write_folder(self, sparse: frozenset[str], steps: int, network: Mapping[str, Any]) -> None:
        """Write the gradients of all ranks as one trace, the profile of this one, and what ran."""
        import torch

        folders = [self._folder / f"rank{rank}" for rank in range(self._ranks)]
        if missing := [each.name for each in folders if not each.is_dir()]:
            raise S2SimError(f"{self._folder} lacks {missing[0]}: all processes have to share the folder")
        traces = [read_trace.open_trace(each) for each in folders]
        together = statistics.GradientTable(steps, self._ranks, lambda step, rank: traces[rank].gradient(step, 0))
        write_trace(self._folder / TRACE, together, warmup_steps=self._done - steps, **self._about)
        for each in folders:
            shutil.rmtree(each)
        few = self._marks["few"]
        alone = self._beside or self._marks.get("alone", [])
        times = step_times(self._module, self._clock, self._marks["all"], alone or few, sparse)
        parts = self._parts(few)
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
            iteration_s=self._median_s([(each.begin, each.end) for each in self._marks["none"]]),
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
            **network,
        ).write(self._folder)

    def _buckets(self, ddp: Any) -> tuple[tuple[str, ...], ...]:
        """Return the parameters of DDP's buckets, which it has made anew after its first step."""
        names = [name for name in self._parameters if name not in ddp.parameters_to_ignore]
        told = ddp._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices", "")  # noqa: SLF001  (nowhere else)
        return tuple(tuple(names[int(each)] for each in bucket.split()) for bucket in told.split(",") if bucket)

    def _median_s(self, pairs: Sequence[tuple[Any, Any]]) -> float:
        return median(self._clock.between_us(*pair) for pair in pairs) / 1e6

    def _parts(self, few: Sequence[StepMarks]) -> IterationSeconds:
        """Return the median parts of steps with few marks; a step without an optimizer of PyTorch has none."""
        pairs = list(zip(few, [each.optimizer_begin or each.end for each in few], strict=True))
        forward_s = self._median_s([(each.layers[0][1], each.forward_end) for each in few])
        backward_s = self._median_s([(each.forward_end, each.backward_end) for each in few])
        exposed_s = self._median_s([(each.backward_end, begin) for each, begin in pairs])
        optimizer_s = self._median_s([(begin, each.optimizer_end) for each, begin in pairs])
        whole_s = self._median_s([(each.begin, each.end) for each in few])
        other_s = max(0.0, whole_s - forward_s - backward_s - exposed_s - optimizer_s)
        return IterationSeconds(forward_s, backward_s, exposed_s, optimizer_s, other_s)


def _not_alone(ddp: Any) -> str:
    """Return what a module would have to be for steps without DDP's all-reduces; empty where it is."""
    if ddp is None:
        return "a module in DistributedDataParallel"
    if ddp.find_unused_parameters or ddp.static_graph or ddp._comm_hooks:  # noqa: SLF001  (no public list of hooks)
        return "DistributedDataParallel without a hook, find_unused_parameters or static_graph"
    return "tables without sparse=True" if any(getattr(each, "sparse", False) for each in ddp.modules()) else ""
