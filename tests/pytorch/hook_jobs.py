"""What processes of the tests here run: small trainings with and without the hook, and with a recorder."""

import contextlib
import io
import os
import sys
import threading
import warnings

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from s2sim.errors import S2SimError, S2SimWarning
from s2sim.gradients.gradient import Gradient, as_row_sparse, to_dense
from s2sim.pytorch import JobRecorder, job_recorder
from s2sim.pytorch import hook_buckets as exchange
from s2sim.pytorch.hook import HookState, hook
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer, reducer_names
from s2sim.seeds import bucket_seed

WORDS = 50
LEARNING_RATE = 0.3


class Model(nn.Module):
    """An embedding, three layers, and one that forward may leave out."""

    def __init__(self, *, sparse=False, unused=False, dtype=torch.float32):
        super().__init__()
        self.table = nn.Embedding(WORDS, 8, sparse=sparse, dtype=dtype)
        self.first = nn.Linear(8, 32, dtype=dtype)
        self.second = nn.Linear(32, 32, dtype=dtype)
        self.third = nn.Linear(32, 3, dtype=dtype)
        self.spare = nn.Linear(32, 3, dtype=dtype) if unused else None

    def forward(self, words, *, spare=False):
        hidden = torch.relu(self.second(torch.relu(self.first(self.table(words)))))
        return (self.spare if spare else self.third)(hidden)


def words_of(rank, step, count=16):
    return torch.randint(0, WORDS, (count,), generator=torch.Generator().manual_seed(1000 * step + rank))


def loss_of(model, words, **how):
    return nn.functional.cross_entropy(model(words, **how).float(), words % 3)


def prepared(spec, *, model=None, ddp=None, **options):
    """Return a model, in DistributedDataParallel with buckets of 2 KiB, and its hook's state, None for no hook."""
    torch.manual_seed(1)
    model = DistributedDataParallel(model() if model else Model(), bucket_cap_mb=2 / 1024, **(ddp or {}))
    if spec is None:
        return model, None
    state = HookState(model, spec, **options)
    model.register_comm_hook(state, hook)
    return model, state


def train(rank, spec, *, steps=10, begin=0, how=loss_of, momentum=0.0, **options):
    model, state = prepared(spec, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=momentum)
    losses = [one_step(model, optimizer, rank, step, how) for step in range(begin, begin + steps)]
    return model, state, losses


def one_step(model, optimizer, rank, step, how=loss_of):
    optimizer.zero_grad()
    loss = how(model, words_of(rank, step))
    loss.backward()
    optimizer.step()
    return loss.item()


def values_of(model):
    return torch.cat([parameter.detach().float().reshape(-1) for parameter in model.parameters()])


def difference(model, other):
    return float((values_of(model) - values_of(other)).abs().max())


def spread(model):
    """Return how far apart the ranks' models are."""
    own = values_of(model)
    mean = own.clone()
    dist.all_reduce(mean)
    return float((own - mean / dist.get_world_size()).abs().max())


def refusal(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except S2SimError as error:
        return str(error)
    return None


def first_job(rank, _ranks, arguments, tell):
    """All that one start of processes can answer; what breaks the hook comes last."""
    torch.use_deterministic_algorithms(mode=True)
    saving(rank, arguments["folder"], arguments["reducers"])
    return {"values": values(rank), "registry": registry(rank, tell), "trouble": trouble(rank)}


def values(rank):
    """Trainings whose values are known, or that have to learn."""
    plain, _, plain_losses = train(rank, None)
    found = {"plain": plain_losses, "exact": {}, "lossy": {}, "spread": {}}
    for spec in ("dense", "union", "owner-reduce", "gather-rows", "s2-exact", "s2-exact:layers=all", "topk:density=1"):
        model, state, _ = train(rank, spec)
        found["exact"][spec] = [difference(model, plain), len(state.buckets)]
    for spec in ("s2:rows=3,cells=4", "topk:density=0.1", "powersgd", "ef-signsgd", "dgc:density=0.1", "qsgd"):
        model, state, losses = train(rank, spec, steps=40)
        found["lossy"][state.reducer] = losses
        found["seconds"] = [state.waited_s, state.reducing_s]
        found["spread"][state.reducer] = spread(model)
    found["simulated"] = {spec: far_from_simulation(rank, spec) for spec in ("s2:rows=1,cells=0.5", "random-k", "topk")}
    found["sums"] = sums(rank)
    found |= cases(rank, plain)
    return found


def sums(rank):
    """Return how far sums of DDP's buckets are from the reducer's program, and what becomes of those that overflow."""
    found, summed_dtype = {}, exchange.summed_dtype
    for spec in ("dense", "fp16", "dense:dtype=bf16"):
        model, state, _ = train(rank, spec)
        exchange.summed_dtype = lambda _: None
        program, other, _ = train(rank, spec)
        exchange.summed_dtype = summed_dtype
        found[spec] = [difference(model, program), state._exchange.sums, other._exchange.sums, state.step]
        found[spec].append(0 < state.waited_s < state.reducing_s)
        found[spec].append(difference(train(rank, spec, model=lambda: Model(sparse=True))[0], model))

    model, state = prepared("fp16")
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    poison = loss_of(model, words_of(rank, 0)) * (float("inf") if rank == 1 else 1.0)
    poison.backward()
    broken = all(bool(parameter.grad.isnan().all()) for parameter in model.parameters())
    found["not a number"] = [broken, one_step(model, optimizer, rank, 1)]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found["overflow"] = []
        for step in range(2, 4):
            optimizer.zero_grad()
            (1e9 * loss_of(model, words_of(rank, step))).backward()
            found["overflow"].append(all(bool(parameter.grad.isnan().all()) for parameter in model.parameters()))
    found["overflow"] += [one_step(model, optimizer, rank, 4), texts(heard)]

    model, state = prepared("dense", model=lambda: nn.Linear(1, 1, bias=False))
    found["overflow of float32"] = refusal(model(torch.full((1, 1), 3e38)).sum().backward)
    found["afterwards"] = refusal(state.reduce_gradients)
    return found


def cases(rank, plain):
    """Return how far models end from those of plain training, or from each other, case by case."""
    far = {}
    tables = train(rank, "union", model=lambda: Model(sparse=True))[0]
    far["gradients of embeddings as sparse tensors"] = difference(tables, plain)
    far["views of buckets"] = difference(train(rank, "union", ddp={"gradient_as_bucket_view": True})[0], plain)
    for spec in ("union", "dense"):
        far[f"static graph, {spec}"] = difference(train(rank, spec, ddp={"static_graph": True})[0], plain)
    far["other buckets"] = difference(train(rank, "union", bucket_bytes=600)[0], plain)
    far["named tables"] = difference(train(rank, "union", sparse=["table.weight", "third.bias"])[0], plain)

    def left_out(model, words):
        return loss_of(model, words, spare=rank == 0)

    options = {"model": lambda: Model(unused=True), "ddp": {"find_unused_parameters": True}, "how": left_out}
    far["unused parameters"] = difference(train(rank, "union", **options)[0], train(rank, None, **options)[0])

    def accumulated(model, words):
        with model.no_sync():
            loss_of(model, words.flip(0)[:8]).backward()
        return loss_of(model, words)

    sums = [train(rank, spec, how=accumulated)[0] for spec in ("union", None)]
    far["gradients accumulated without exchange"] = difference(*sums)

    # A group that one rank alone has made before.
    if rank == 0:
        dist.new_group([0], use_local_synchronization=True)
    torch.manual_seed(1)
    model = Model()
    state = HookState(model, "union", bucket_bytes=2048)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for step in range(10):
        optimizer.zero_grad()
        loss_of(model, words_of(rank, step)).backward()
        state.reduce_gradients()
        optimizer.step()
    far["a loop of one's own"] = difference(model, plain)

    # A group of one rank, which ends with its own gradient.
    state = HookState(model, "union", group=dist.new_group([rank], use_local_synchronization=True))
    optimizer.zero_grad()
    loss_of(model, words_of(rank, 0)).backward()
    own = [parameter.grad.clone() for parameter in model.parameters()]
    state.reduce_gradients()
    pairs = zip(own, model.parameters(), strict=True)
    far["a group of one"] = max(float((before - after.grad).abs().max()) for before, after in pairs)

    own, state, _ = train(rank, "dense", model=lambda: Model(dtype=torch.bfloat16))
    other, _, _ = train(rank, None, model=lambda: Model(dtype=torch.bfloat16))
    narrow = {reducer.held for reducer in state._exchange.reducers.values()}
    return {"far": far, "bfloat16": [difference(own, other), spread(own), *narrow]}


def far_from_simulation(rank, spec):
    """Return how far the hook's mean is from that of the same buckets in memory, over its largest magnitude."""
    torch.manual_seed(1)
    model = Model()
    state = HookState(model, spec, seed=3, bucket_bytes=600)
    loss_of(model, words_of(rank, 0)).backward()
    tables = {"table.weight"}
    own = {
        name: as_row_sparse(parameter.grad.numpy().copy()) if name in tables else parameter.grad.numpy().copy()
        for name, parameter in model.named_parameters()
    }
    ranks = [None, None]
    dist.all_gather_object(ranks, own)
    state.reduce_gradients()
    found = dict(model.named_parameters())
    far = []
    for names in state.buckets:
        gradients = [Gradient(names, tuple(each[name] for name in names)) for each in ranks]
        seed = 3 if len(state.buckets) == 1 else bucket_seed(3, names)
        results, _ = run_group(make_instances(make_reducer(state.reducer), 2), gradients, seed=seed)
        for name, layer in results[rank].mean:
            far.append(float(np.abs(found[name].grad.numpy() - to_dense(layer)).max()))
    return [len(state.buckets), max(far) / max(float(each.grad.abs().max()) for each in found.values())]


def registry(rank, tell):
    """Every reducer there is for two steps, what it keeps through a file's tensors, and two more."""
    found = {}
    for spec in [*reducer_names(), "topk:h=2,ef=true", "s2-exact:hierarchical=true,node=1"]:
        torch.manual_seed(1)
        try:
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                model, state, _ = train(rank, spec, steps=2)
            kept = state.state_dict()
            again = HookState(model, spec)
            again.load_state_dict(kept)
            found[spec] = {
                "finite": bool(values_of(model).isfinite().all()),
                "spread": spread(model),
                "agrees": all(each.traits.agrees for each in state._exchange.reducers.values()),
                "kept": equal(again.state_dict(), kept),
                "said": texts(heard),
            }
        except S2SimError as error:
            found[spec] = {"refused": str(error)}
        tell(spec)
    return found


def texts(heard):
    """Return what was said of the hook and its reducers."""
    return [str(each.message) for each in heard if issubclass(each.category, S2SimWarning)]


def equal(one, other):
    """Return whether two plain values have the same bits."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return torch.equal(one, other) and one.dtype == other.dtype if isinstance(one, torch.Tensor) else one == other


def trouble(rank):
    """Return what is said where something is not as it should be."""
    said = {}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        dense, _, _ = train(rank, "s2", model=lambda: nn.Sequential(nn.Linear(8, 3)), how=_without_words)
    plain, _, _ = train(rank, None, model=lambda: nn.Sequential(nn.Linear(8, 3)), how=_without_words)
    said["without tables"] = [difference(dense, plain), texts(heard)]

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        said["sent"] = [train(rank, "s2:rows=3,cells=4", steps=4)[1].reducer, texts(heard)]

    model, state = prepared("topk:density=0.1,ef=true")
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    one_step(model, optimizer, rank, 0)
    before = state.state_dict()["states"]
    poison = loss_of(model, words_of(rank, 1)) * (float("nan") if rank == 1 else 1.0)
    optimizer.zero_grad()
    poison.backward()
    broken = all(bool(parameter.grad.isnan().all()) for parameter in model.parameters())
    said["not a number"] = [broken, equal(state.state_dict()["states"], before), one_step(model, optimizer, rank, 2)]

    said["rank"] = refusal(prepared, "topk" if rank else "union")
    said["seed"] = refusal(prepared, "topk", seed=rank)
    said["parameter"] = refusal(prepared, "union", sparse=["tabel.weight"])
    said["type"] = refusal(HookState, nn.Linear(2, 2, dtype=torch.float64), "union")
    said["sharded"] = refusal(HookState, fully_shard(nn.Linear(4, 4), mesh=init_device_mesh("cpu", (2,))), "fp16")
    said["called by FSDP"] = refusal(hook, HookState(nn.Linear(4, 4), "fp16"), torch.ones(20), torch.ones(10))
    said["frozen"] = refusal(HookState, Model().requires_grad_(requires_grad=False), "union")
    for spec in ("embrace", "s2:error=0.1", "s2:warm=true", "topk:ratio=0.1"):
        said[spec] = refusal(prepared, spec)

    said["overlap"] = beside_backward(rank)
    running = len(hook_threads())
    state.close()
    said["ended"] = [running - len(hook_threads()), state._exchange.members.handle]
    said["closed"] = refusal(state.reduce_gradients)
    kept = state.state_dict()
    for name, value in (("reducer", "union"), ("ranks", 4), ("rank", 1 - rank), ("seed", 3), ("buckets", [])):
        said[f"saved {name}"] = refusal(state.load_state_dict, kept | {name: value})
    said["saved format"] = refusal(state.load_state_dict, {})

    model, state = prepared("union")
    loss = loss_of(model, words_of(rank, 0))
    model.module.third.requires_grad_(requires_grad=False)
    said["other model"] = refusal(HookState(nn.Linear(2, 2), "dense").take, _Handed(model.module.third.weight))
    exchange.reduce_here = _refuse
    said["failed"] = refusal(loss.backward)
    said["failed again"] = refusal(state.reduce_gradients)
    return said


def nodes_job(rank, _ranks, _arguments, _tell):
    """Reducers that make groups of some ranks, each in two trainings."""
    plain, _, _ = train(rank, None, steps=3)
    specs = ["union:hierarchical=true,node=2", "topk:density=1,hierarchical=true,node=2", "node-union:node=2"]
    return [difference(train(rank, spec, steps=3)[0], plain) for spec in [*specs, *specs]]


def train_until_one_leaves(rank):
    model, _ = prepared("union")
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for step in range(4):
        if rank == 1 and step == 3:
            os._exit(0)
        one_step(model, optimizer, rank, step)


def beside_backward(rank):
    """Return whether the last bucket is handed in while the first is reduced."""
    model, state = prepared("union")
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    # From the second step on there is more than one bucket.
    one_step(model, optimizer, rank, 0)
    last, seen = threading.Event(), []
    take, reduce = state.take, exchange.reduce_here

    def watched(bucket):
        if bucket.is_last():
            last.set()
        return take(bucket)

    def waiting(*arguments, **options):
        seen.append(last.wait(timeout=20))
        return reduce(*arguments, **options)

    state.take, exchange.reduce_here = watched, waiting
    one_step(model, optimizer, rank, 1)
    exchange.reduce_here = reduce
    return seen


def hook_threads():
    return [each for each in threading.enumerate() if each.name.startswith("s2sim-hook")]


class _Handed:
    """A bucket with one parameter."""

    def __init__(self, parameter):
        self.parameter = parameter

    def buffer(self):
        return self.parameter.detach()

    def parameters(self):
        return [self.parameter]


def _refuse(*_arguments, **_options):
    raise OSError("no space left\non device")


def _without_words(model, words):
    inputs = nn.functional.one_hot(words % 8, 8).float()
    return nn.functional.cross_entropy(model(inputs), words % 3)


def saving(rank, folder, reducers):
    """Train without a break, and half of it with what is kept then in a file."""
    for number, spec in enumerate(reducers):
        model, _, _ = train(rank, spec, steps=20, momentum=0.9)
        torch.save(model.module.state_dict(), f"{folder}/whole-{number}-{rank}.pt")
        model, state = prepared(spec)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
        for step in range(10):
            one_step(model, optimizer, rank, step)
        kept = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "hook": state.state_dict()}
        torch.save(kept, f"{folder}/half-{number}-{rank}.pt")


def loading_job(rank, _ranks, arguments, tell):
    """Go on from a file; tell whether that ends where training without a break does, bit for bit.

    And whether it does without what the hook has kept. Then a rank leaves.
    """
    folder, reducers = arguments["folder"], arguments["reducers"]
    with_state = [equal_after_loading(rank, folder, *each, load=True) for each in enumerate(reducers)]
    tell([with_state, equal_after_loading(rank, folder, 0, reducers[0], load=False)])
    train_until_one_leaves(rank)


def equal_after_loading(rank, folder, number, spec, *, load):
    kept = torch.load(f"{folder}/half-{number}-{rank}.pt")
    model, state = prepared(spec)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    model.module.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    if load:
        state.load_state_dict(kept["hook"])
    else:
        state.step = 10
    for step in range(10, 20):
        one_step(model, optimizer, rank, step)
    whole = torch.load(f"{folder}/whole-{number}-{rank}.pt")
    return all(torch.equal(whole[name], value) for name, value in model.module.state_dict().items())


def alone_job(rank, _ranks, arguments, _tell):
    """One rank by itself, and what it says of the state of one of two."""
    with_hook, without = train(rank, "union")[0], train(rank, None)[0]
    _, state = prepared(arguments["reducers"][0])
    kept = torch.load(f"{arguments['folder']}/half-0-0.pt")
    return [difference(with_hook, without), refusal(state.load_state_dict, kept["hook"])]


def recorder_job(rank, _ranks, arguments, _tell):
    """Record trainings of two groups, with a gradient that is no number on rank 1, and where rank 1 cannot write."""
    groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]

    def record(name, steps, poisoned=None, **options):
        torch.manual_seed(1)
        model = DistributedDataParallel(Model(), process_group=groups[rank // 2])
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        with contextlib.ExitStack() as stack:
            if name:
                recorder = JobRecorder(model, f"{arguments['folder']}/{name}", batch=16, steps=1, **options)
                stack.enter_context(recorder)
            for step in range(steps):
                optimizer.zero_grad()
                loss = loss_of(model, words_of(rank, step))
                (loss * (float("nan") if (rank, step) == poisoned else 1.0)).backward()
                if all(bool(each.grad.isfinite().all()) for each in model.parameters()):
                    optimizer.step()
                if name:
                    recorder.step()
        return model

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        far = difference(record("alone", 10, alone=True), record(None, 10))
    found = {"far": far, "said": texts(heard), "early": refusal(record, "poisoned", 9, (1, 8))}
    found["poisoned"] = refusal(record, "poisoned", 10, (1, 8))
    if rank == 1:
        job_recorder.write_trace = _refuse
    return found | {"unwritten": refusal(record, "unwritten", 9)}


def script_job(rank, _ranks, arguments, _tell):
    """Train with given lines after the model; return how far that ends from plain training, and ranks apart."""
    plain, found = train(rank, None, steps=20)[0], {}
    for reducer, script in arguments["scripts"].items():
        torch.manual_seed(1)
        names = {"model": Model()}
        exec(script, names)
        model = names["model"]
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        for step in range(20):
            one_step(model, optimizer, rank, step)
        found[reducer] = [difference(model, plain), spread(model)]
    return found


def pages_job(_rank, _ranks, arguments, _tell):
    """Run scripts one after the other as if each were the first of its process; return what they print or raise."""
    dist.init_process_group = dist.destroy_process_group = lambda *_: None
    os.chdir(arguments["folder"])
    printed = []
    for words, script in arguments["scripts"]:
        sys.argv = ["train.py", *words]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            said = refusal(exec, script, {"__name__": "__main__"})
        printed.append([out.getvalue(), said])
    return printed
