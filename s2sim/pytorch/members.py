"""The processes of one group, and their messages by the library's collectives."""

import atexit
import importlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import split_sizes
from s2sim.errors import S2SimError
from s2sim.libraries.library import Library
from s2sim.libraries.lowering import choose_library

# ruff: noqa: SLF001  (of a ProcessGroup, whose own methods these are; the functions around them want every process to
# know of every group)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class AsyncWork(Generic[T_co]):
    """Posted operations and their result."""

    works: tuple[Any, ...]
    finish: Callable[[], T_co]  # Returns the result after all works have completed

    def wait(self) -> T_co:
        """Wait, and return the result."""
        for work in self.works:
            work.wait()
        return self.finish()

    def then(self, change: Callable[[T_co], Any]) -> "AsyncWork[Any]":
        """Return the same operations with a result made of theirs."""
        return AsyncWork(self.works, lambda: change(self.finish()))


@dataclass(frozen=True, slots=True)
class SizeHeader:
    """The sizes and shapes that a rank sent in addition to its program's collective."""

    kind: str  # The collective that sent them
    ranks: tuple[int, ...]
    place: int  # This rank's in ``ranks``
    root: int  # Place of the root of a broadcast
    sizes_bytes: tuple[int, ...]  # From this rank to each member
    within: bool  # Whether it preceded the data in one message


@dataclass(slots=True, eq=False)
class Members:
    """The processes of a group as one of them sees them."""

    handle: Any  # Of ``torch.distributed``; None for a group of one
    ranks: tuple[int, ...]  # Numbers in the world, in rank order
    index: int  # This process's place
    library: Library
    device: str  # Of the library's tensors
    size_headers: list[SizeHeader]
    name: str  # Unique
    _subgroups: "dict[tuple[int, ...], Members]" = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.ranks)

    def among(self, places: Iterable[int]) -> "Members":
        """Return some members as a group; all of them must call this."""
        ranks = tuple(self.ranks[place] for place in sorted(places))
        if ranks == self.ranks:
            return self
        if ranks not in self._subgroups:
            own = ranks.index(self.ranks[self.index])
            name = f"{self.name}/{'-'.join(map(str, ranks))}"
            handle = _join_group(name, len(ranks), own, self.library.name) if len(ranks) > 1 else None
            self._subgroups[ranks] = Members(handle, ranks, own, self.library, self.device, self.size_headers, name)
        return self._subgroups[ranks]

    def gather_json(self, value: Any) -> list[Any]:
        """Return the JSON value of every member."""
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        lengths = np.concatenate(self.all_gather(np.array([len(text)], np.int64)).wait())
        texts = self.all_gather(np.pad(text, (0, int(lengths.max()) - len(text)))).wait()
        return [json.loads(each[:length].tobytes()) for each, length in zip(texts, lengths, strict=True)]

    def close(self) -> None:
        """End the group and its subgroups, with their threads."""
        for each in self._subgroups.values():
            each.close()
        self._subgroups.clear()
        self.handle = None

    def tensor(self, array: NDArray[Any]) -> Any:
        """Return a copy of an array as a tensor on the library's device."""
        import torch

        if array.dtype.names:
            held = torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
        else:
            held = torch.from_numpy(np.array(array, copy=True, order="C"))
        return held.to(self.device)

    def array(self, tensor: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a tensor's values as an array of a type with its bits."""
        import torch

        host = tensor.cpu()
        if host.dtype == torch.bfloat16:
            host = host.view(torch.int16)
        found: NDArray[Any] = host.numpy()
        return found if found.dtype == dtype else found.view(dtype)

    def all_reduce(self, data: NDArray[Any], op: str) -> AsyncWork[NDArray[Any]]:
        """Combine arrays, 1-D and as long on all, by ``sum``, ``max`` or ``or``."""
        held = self.tensor(data)
        return self._flight(lambda: self.handle.allreduce([held], make_options("Allreduce", op)), held, data.dtype)

    def reduce(self, data: NDArray[Any], op: str, root: int) -> AsyncWork[NDArray[Any] | None]:
        """Combine arrays as `all_reduce`, for one member alone."""
        held, options = self.tensor(data), make_options("Reduce", op)
        options.rootRank = root
        flight = self._flight(lambda: self.handle.reduce([held], options), held, data.dtype)
        return flight if self.index == root else AsyncWork(flight.works, lambda: None)

    def reduce_scatter(self, data: NDArray[Any], op: str) -> AsyncWork[NDArray[Any]]:
        """Combine arrays as `all_reduce`; of the result each member gets as large a part, in order."""
        held = self.tensor(data)
        out = held.new_empty(len(data) // self.size)
        options = make_options("ReduceScatter", op)
        return self._flight(lambda: self.handle._reduce_scatter_base(out, held, options), out, data.dtype)

    def all_gather(self, data: NDArray[Any]) -> AsyncWork[list[NDArray[Any]]]:
        """Pass an array, 1-D and as long for all, to all."""
        own = self.tensor(data)
        out = own.new_empty(self.size * len(data))
        flight = self._flight(lambda: self.handle._allgather_base(out, own), out, data.dtype)
        return flight.then(lambda found: np.split(found, self.size))

    def all_to_all(
        self, blocks: Sequence[NDArray[Any]], lengths: Sequence[int] | None = None
    ) -> AsyncWork[list[NDArray[Any]]]:
        """Pass each member its block, 1-D; ``lengths`` are those of received blocks, default: those sent."""
        sent = [len(block) for block in blocks]
        received = sent if lengths is None else list(lengths)
        data = self.tensor(np.concatenate(blocks))
        out = data.new_empty(sum(received))
        work = self.handle.alltoall_base(out, data, received, sent)
        dtype = blocks[0].dtype
        return AsyncWork((work,), lambda: split_sizes(self.array(out, dtype), received))

    def broadcast(self, data: NDArray[Any], root: int) -> AsyncWork[NDArray[Any]]:
        """Pass the root's array to all; the others give one as long."""
        held = self.tensor(data)
        return self._flight(lambda: self.handle.broadcast(held, root), held, data.dtype)

    def pass_on(
        self, sends: Mapping[int, NDArray[np.uint8]], lengths: Mapping[int, int]
    ) -> AsyncWork[dict[int, NDArray[np.uint8]]]:
        """Send arrays to some members, and receive arrays of such lengths from some."""
        import torch

        held = {at: torch.empty(length, dtype=torch.uint8, device=self.device) for at, length in lengths.items()}
        given = {to: self.tensor(data) for to, data in sends.items()}
        device = torch.device(self.device)
        if self.library.groups:
            self.handle._start_coalescing(device)
        works = [self.handle.recv([out], at, 0) for at, out in held.items()]
        works += [self.handle.send([data], to, 0) for to, data in given.items()]
        if self.library.groups:
            works = [self.handle._end_coalescing(device)]

        def arrived() -> dict[int, NDArray[np.uint8]]:
            # Sent tensors must live until then.
            given.clear()
            return {at: self.array(out, np.dtype(np.uint8)) for at, out in held.items()}

        return AsyncWork(tuple(works), arrived)

    def _flight(self, post: Callable[[], Any], out: Any, dtype: np.dtype[Any]) -> AsyncWork[NDArray[Any]]:
        return AsyncWork((post(),) if len(out) else (), lambda: self.array(out, dtype))

    def record_size_header(self, kind: str, sizes_bytes: Sequence[int], *, root: int = 0, within: bool = False) -> None:
        """Record an additional message."""
        self.size_headers.append(SizeHeader(kind, self.ranks, self.index, root, tuple(sizes_bytes), within))


def make_options(kind: str, op: str) -> Any:
    """Return the options of a process group's ``Allreduce``, ``Reduce`` or ``ReduceScatter``."""
    import torch.distributed as dist

    options = getattr(dist, f"{kind}Options")()
    options.reduceOp = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "or": dist.ReduceOp.BOR}[op]
    return options


def gather(value: T, group: Any = None) -> list[T]:
    """Return the values of all ranks of a group (default: all), which call this; of one where there is no group."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return [value]
    found = [value] * dist.get_world_size(group)
    dist.all_gather_object(found, value, group=group)
    return found


def on_all_ranks(work: Callable[[], Any], group: Any) -> list[Any]:
    """Return the results of all ranks of a group; an error of one is raised on all, so that none waits for it."""
    found = cause = None
    try:
        found = work()
    except Exception as error:  # noqa: BLE001  (whatever it is, all ranks have to hear of it)
        cause = error
    results = gather((found, cause and (str(cause) or repr(cause))), group)
    for rank, (_, said) in enumerate(results):
        if said is not None:
            raise S2SimError(f"rank {rank}: {said}" if len(results) > 1 else said) from cause
    return [each for each, _ in results]


_hooks: Counter[tuple[int, ...]] = Counter()


def hook_members(ranks: Sequence[int]) -> Members:
    """Return a hook's own Gloo group, made by its ranks alone, unlike `torch.distributed.new_group`'s."""
    import torch.distributed as dist

    ranks = tuple(ranks)
    _hooks[ranks] += 1
    name = f"hook/{'-'.join(map(str, ranks))}/{_hooks[ranks]}"
    own = ranks.index(dist.get_rank())
    return Members(_join_group(name, len(ranks), own, "gloo"), ranks, own, choose_library("gloo"), "cpu", [], name)


def _join_group(name: str, size: int, own: int, library: str) -> Any:
    """Return a new process group by name; unlike `torch.distributed.new_group`, only its members take part."""
    import torch

    dist: Any = importlib.import_module("torch.distributed")
    store = dist.distributed_c10d._get_default_store()
    store = dist.PrefixStore(f"s2sim/{name}/", store)
    handle = dist.ProcessGroup(store, own, size)
    nccl = library == "nccl"
    backend = (dist.ProcessGroupNCCL if nccl else dist.ProcessGroupGloo)(store, own, size)
    kind = dist.ProcessGroup.BackendType.NCCL if nccl else dist.ProcessGroup.BackendType.GLOO
    handle._set_default_backend(kind)
    handle._register_backend(torch.device("cuda" if nccl else "cpu"), kind, backend)
    return handle


_WORLDS: dict[int, tuple[Any, Members]] = {}

# Threads of a group give tensors back to Python, which aborts the process once the interpreter has ended.
atexit.register(_WORLDS.clear)


def group_members(group: Any = None) -> Members:
    """Return the processes of a group of ``torch.distributed``; default: all; those of `hook_members` as they are."""
    import torch
    import torch.distributed as dist

    if isinstance(group, Members):
        return group
    if not dist.is_initialized():
        raise S2SimError("there is no process group: call torch.distributed.init_process_group first")
    handle: Any = dist.group.WORLD if group is None else group
    # A destroyed group is kept, so that no other has its id.
    if id(handle) not in _WORLDS:
        backend = str(dist.get_backend(handle))
        ranks = tuple(dist.get_process_group_ranks(handle))
        device = f"cuda:{torch.cuda.current_device()}" if backend == "nccl" else "cpu"
        index = dist.get_rank(handle)
        members = Members(handle, ranks, index, choose_library(backend), device, [], handle.group_name)
        _WORLDS[id(handle)] = (handle, members)
    return _WORLDS[id(handle)][1]
