"""What libraries execute: each way's launches and work against what can be counted by hand."""

from importlib.metadata import EntryPoint
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.arrays import BlockTable
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.library_profile import NO_OVERHEADS
from s2sim.errors import OptionError, S2SimError, UnknownNameError
from s2sim.libraries.lowering import (
    EXECUTIONS,
    LIBRARIES,
    SIZE_EXCHANGE,
    CollectiveRequest,
    LocalWork,
    choose_library,
    lower,
    merge_into_launch,
)
from s2sim.registry import Registry


def reduce_of(elements, op, dtype, ranks=4):
    itemsize = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    return CollectiveRequest(Demand("all_reduce", (elements,) * ranks, itemsize), op, dtype, size_from_data=False)


def gather_of(elements, *, from_data=False, dtype="float32"):
    return CollectiveRequest(
        Demand("all_gather", elements, np.dtype(dtype).itemsize), "gather", dtype, size_from_data=from_data
    )


def rooted(kind, op, dtype, *, from_data=False):
    return CollectiveRequest(Demand(kind, (10,) * 4, np.dtype(dtype).itemsize, 2), op, dtype, size_from_data=from_data)


def scatter_of(elements, op, dtype):
    return CollectiveRequest(
        Demand("reduce_scatter", elements, np.dtype(dtype).itemsize), op, dtype, size_from_data=False
    )


def peers_of(*, from_data=False):
    """Rank 0 sends 5 elements to 1 and 3 to 2, rank 3 sends 7 to 0."""
    blocks = BlockTable([[0, 5, 3, 0], [0, 0, 0, 0], [0, 0, 0, 0], [7, 0, 0, 0]])
    return CollectiveRequest(
        Demand("all_to_all", (8, 0, 0, 7), 4, blocks=blocks), "peers", "float32", size_from_data=from_data
    )


PEERS = ("all_to_all", (8, 0, 0, 7), 4)
PEER_SIZES = ("all_to_all", (2, 0, 0, 1), 8)
PARTS = (3, 3, 3, 3)
UNEQUAL_PARTS = (3, 2, 3, 2)

BITS = reduce_of(10, "or", "uint8")
UNEQUAL = gather_of((5, 0, 9, 2), from_data=True)
PLANNED = gather_of((5, 0, 9, 2))
SIZES_FIRST = ("all_gather", (1, 1, 1, 1), 8)


@pytest.mark.parametrize(
    ("library", "asked", "launches", "before", "after"),
    [
        ("ideal", BITS, [[("all_reduce", (10,) * 4, 1)]], [LocalWork()], LocalWork()),
        ("ideal", UNEQUAL, [[("all_gather", (5, 0, 9, 2), 4)]], [LocalWork()], LocalWork()),
        # 80 bits: 10 bytes are read and 80 written, and back.
        ("nccl", BITS, [[("all_reduce", (80,) * 4, 1)]], [LocalWork(90, 1)], LocalWork(90, 1)),
        # Four bitmaps of 10 bytes are read, one is written.
        ("nccl:or=gather", BITS, [[("all_gather", (10,) * 4, 1)]], [LocalWork()], LocalWork(50, 1)),
        # Stretches of 3 bytes: 10 do not divide by 4. Four stretches are read, one is written.
        (
            "nccl:or=owners",
            BITS,
            [[("all_to_all", (12,) * 4, 1)], [("all_gather", (3,) * 4, 1)]],
            [LocalWork(), LocalWork(15, 1)],
            LocalWork(),
        ),
        # 9 elements are copied into the padded buffer, all 16 out of the result.
        (
            "nccl",
            UNEQUAL,
            [[SIZES_FIRST], [("all_gather", (9,) * 4, 4)]],
            [LocalWork(), LocalWork(2 * 36, 1, host_syncs=1)],
            LocalWork(2 * 64, 1),
        ),
        ("nccl", PLANNED, [[("all_gather", (9,) * 4, 4)]], [LocalWork(2 * 36, 1)], LocalWork(2 * 64, 1)),
        (
            "nccl:gather=broadcast",
            UNEQUAL,
            [[SIZES_FIRST], [("broadcast", (size,) * 4, 4) for size in (5, 0, 9, 2)]],
            [LocalWork(), LocalWork(host_syncs=1)],
            LocalWork(),
        ),
        ("nccl", gather_of((7,) * 4), [[("all_gather", (7,) * 4, 4)]], [LocalWork()], LocalWork()),
        # Equal, but nobody knows that before sizes have been exchanged.
        (
            "nccl",
            gather_of((7,) * 4, from_data=True),
            [[SIZES_FIRST], [("all_gather", (7,) * 4, 4)]],
            [LocalWork(), LocalWork(56, 1, host_syncs=1)],
            LocalWork(2 * 112, 1),
        ),
        ("nccl", reduce_of(10, "sum", "float16"), [[("all_reduce", (10,) * 4, 2)]], [LocalWork()], LocalWork()),
        ("nccl", reduce_of(10, "sum", "bfloat16"), [[("all_reduce", (10,) * 4, 2)]], [LocalWork()], LocalWork()),
        ("gloo", reduce_of(10, "sum", "bfloat16"), [[("all_reduce", (10,) * 4, 2)]], None, None),
        ("nccl", reduce_of(10, "sum", "uint32"), [[("all_reduce", (10,) * 4, 4)]], [LocalWork()], LocalWork()),
        # Read 20 bytes, write 40, and back.
        ("nccl", reduce_of(10, "sum", "int16"), [[("all_reduce", (10,) * 4, 4)]], [LocalWork(60, 1)], LocalWork(60, 1)),
        ("mpi:buffers=device", BITS, [[("all_reduce", (10,) * 4, 1)]], [LocalWork()], LocalWork()),
        ("nccl", rooted("reduce", "sum", "float32"), [[("reduce", (10,) * 4, 4)]], [LocalWork()], LocalWork()),
        ("nccl", rooted("reduce", "sum", "int16"), [[("reduce", (10,) * 4, 4)]], [LocalWork(60, 1)], LocalWork(60, 1)),
        ("nccl", rooted("reduce", "or", "uint8"), [[("reduce", (80,) * 4, 1)]], [LocalWork(90, 1)], LocalWork(90, 1)),
        ("nccl", rooted("broadcast", "copy", "bool"), [[("broadcast", (10,) * 4, 1)]], [LocalWork()], LocalWork()),
        (
            "nccl",
            rooted("broadcast", "copy", "float32", from_data=True),
            [[("broadcast", (1,) * 4, 8)], [("broadcast", (10,) * 4, 4)]],
            [LocalWork(), LocalWork(host_syncs=1)],
            LocalWork(),
        ),
        ("nccl", scatter_of(PARTS, "sum", "float32"), [[("reduce_scatter", PARTS, 4)]], [LocalWork()], LocalWork()),
        # All 12 bits' bytes are unpacked, a rank's own 3 packed again.
        (
            "nccl",
            scatter_of(PARTS, "or", "uint8"),
            [[("reduce_scatter", (24,) * 4, 1)]],
            [LocalWork(12 + 96, 1)],
            LocalWork(3 + 24, 1),
        ),
        (
            "nccl",
            scatter_of(UNEQUAL_PARTS, "sum", "float32"),
            [[("reduce", (size,) * 4, 4) for size in UNEQUAL_PARTS]],
            [LocalWork()],
            LocalWork(),
        ),
        (
            "ideal",
            scatter_of(UNEQUAL_PARTS, "or", "uint8"),
            [[("reduce_scatter", UNEQUAL_PARTS, 1)]],
            [LocalWork()],
            LocalWork(),
        ),
        ("nccl", peers_of(), [[PEERS]], [LocalWork()], LocalWork()),
        (
            "nccl",
            peers_of(from_data=True),
            [[PEER_SIZES], [PEERS]],
            [LocalWork(), LocalWork(host_syncs=1)],
            LocalWork(),
        ),
        ("mpi:buffers=device", peers_of(from_data=True), [[PEERS]], [LocalWork()], LocalWork()),
        # Through host memory: rank 0 copies most out, and gets most.
        ("gloo", peers_of(), [[PEERS]], [LocalWork(host_syncs=1, to_host_bytes=32)], LocalWork(to_gpu_bytes=28)),
        # A copy of all 10 elements is all-reduced, and the largest part copied out of it.
        (
            "gloo",
            scatter_of(UNEQUAL_PARTS, "sum", "float32"),
            [[("all_reduce", (10,) * 4, 4)]],
            [LocalWork(2 * 40, 1, host_syncs=1, to_host_bytes=40)],
            LocalWork(2 * 12, 1, to_gpu_bytes=40),
        ),
        (
            "mpi",
            scatter_of(UNEQUAL_PARTS, "sum", "float32"),
            [[("reduce_scatter", UNEQUAL_PARTS, 4)]],
            [LocalWork(host_syncs=1, to_host_bytes=40)],
            LocalWork(to_gpu_bytes=12),
        ),
        (
            "mpi:buffers=device",
            reduce_of(10, "sum", "float16"),
            [[("all_reduce", (10,) * 4, 4)]],
            [LocalWork(60, 1)],
            LocalWork(60, 1),
        ),
        (
            "mpi:half=user-op,buffers=device",
            reduce_of(10, "sum", "float16"),
            [[("all_reduce", (10,) * 4, 2)]],
            None,
            None,
        ),
        (
            "mpi:buffers=device",
            UNEQUAL,
            [[SIZES_FIRST], [("all_gather", (5, 0, 9, 2), 4)]],
            [LocalWork()] * 2,
            LocalWork(),
        ),
        # Through host memory: its own contribution out, the whole result back.
        (
            "mpi",
            UNEQUAL,
            [[SIZES_FIRST], [("all_gather", (5, 0, 9, 2), 4)]],
            [LocalWork(), LocalWork(host_syncs=1, to_host_bytes=36)],
            LocalWork(to_gpu_bytes=64),
        ),
        (
            "mpi",
            reduce_of(10, "sum", "float16"),
            [[("all_reduce", (10,) * 4, 4)]],
            [LocalWork(60, 1, host_syncs=1, to_host_bytes=40)],
            LocalWork(60, 1, to_gpu_bytes=40),
        ),
        (
            "gloo",
            BITS,
            [[("all_reduce", (10,) * 4, 1)]],
            [LocalWork(host_syncs=1, to_host_bytes=10)],
            LocalWork(to_gpu_bytes=10),
        ),
        # The same 32 bits, of another name.
        ("gloo", reduce_of(10, "sum", "uint32"), [[("all_reduce", (10,) * 4, 4)]], None, None),
        ("gloo", reduce_of(10, "max", "uint32"), [[("all_reduce", (10,) * 4, 8)]], None, None),
    ],
)
def test_launches_and_work_of_each_way(library, asked, launches, before, after):
    found = lower(asked, choose_library(library))
    assert [
        [(demand.kind, demand.elements, demand.itemsize) for demand in step.demands] for step in found.steps
    ] == launches
    if before is not None:
        assert [step.before for step in found.steps] == before
        assert found.after == after
    assert found.why
    assert found.requested == asked.text
    assert ("through host memory" in found.executes) == choose_library(library).through_host


def test_only_an_exchange_of_sizes_holds_the_host():
    assert lower(UNEQUAL, choose_library("nccl")).blocks_host
    assert lower(UNEQUAL, choose_library("nccl")).steps[0].what == SIZE_EXCHANGE
    for text, asked in (("ideal", UNEQUAL), ("nccl", PLANNED), ("nccl:or=owners", BITS), ("gloo", BITS)):
        assert not lower(asked, choose_library(text)).blocks_host


@pytest.mark.parametrize("text", ["nccl", "nccl:or=gather", "nccl:or=owners", "nccl:gather=broadcast", "gloo", "mpi"])
@given(sizes=st.lists(st.integers(0, 1000), min_size=2, max_size=33), data=st.booleans())
def test_every_way_carries_at_least_what_is_asked(text, sizes, data):
    """No contribution is lost: a gather brings each rank's bytes, an OR every bit, in whatever form."""
    library = choose_library(text)
    ranks = len(sizes)
    gathered = lower(gather_of(tuple(sizes), from_data=data), library)
    payload = [demand for step in gathered.steps if step.what != SIZE_EXCHANGE for demand in step.demands]
    if payload[0].kind == "broadcast":
        assert [(demand.root, demand.buffer_elements) for demand in payload] == list(enumerate(sizes))
    else:
        assert all(room >= size for room, size in zip(payload[0].elements, sizes, strict=True))
    merged = lower(reduce_of(sizes[0], "or", "uint8", ranks), library)
    for demand in merged.demands:
        assert demand.ranks == ranks
    first = merged.demands[0]
    assert first.elements[0] >= sizes[0]
    if first.kind == "all_to_all":
        assert merged.demands[1].buffer_bytes >= sizes[0] > merged.demands[1].buffer_bytes - ranks or sizes[0] == 0


@pytest.mark.parametrize("text", ["ideal", "nccl", "nccl:or=owners,gather=broadcast", "gloo", "mpi"])
def test_one_rank_sends_nothing_and_works_nothing(text):
    for asked in (reduce_of(10, "or", "uint8", ranks=1), gather_of((3,), from_data=True)):
        found = lower(asked, choose_library(text))
        assert found.demands == (asked.demand,)
        assert (found.steps[0].before, found.after) == (LocalWork(), LocalWork())


def test_what_no_line_covers_is_refused():
    with pytest.raises(S2SimError, match=r"all_reduce max uint64 was asked for, which gloo has no way"):
        lower(reduce_of(4, "max", "uint64"), choose_library("gloo"))


def test_tables_are_consistent():
    for library in map(LIBRARIES.get, LIBRARIES.names()):
        options = dict(library.options)
        for entry in library.table:
            assert entry.does in EXECUTIONS
            assert entry.why
            assert (entry.does == "carried") == bool(entry.carrier)
            assert entry.when is None or entry.when[1] in options[entry.when[0]]
        decided = {entry.when for entry in library.table if entry.when}
        for key, values in library.options:
            about_execution = key not in ("buffers", "timing", "launch")
            assert not about_execution or {(key, value) for value in values} <= decided


@pytest.mark.parametrize(
    ("library", "sizes_first"), [("ideal", False), ("nccl", True), ("rccl", True), ("gloo", True), ("mpi", False)]
)
def test_sends_to_the_next_rank_are_told_where_the_receiver_must_know(library, sizes_first):
    for from_data in (False, True):
        demand = Demand("send_recv", (10,) * 4, 4)
        found = lower(CollectiveRequest(demand, "pass", "float32", size_from_data=from_data), choose_library(library))
        assert found.kinds == ("send_recv",) * (2 if from_data and sizes_first else 1)
        assert found.demands[-1] == demand
        assert found.blocks_host == (from_data and sizes_first)


@pytest.mark.parametrize("library", ["ideal", "nccl", "gloo", "mpi"])
def test_roots_stay_where_they_are(library):
    for asked in (rooted("reduce", "sum", "float32"), rooted("broadcast", "copy", "uint8", from_data=True)):
        lowered = lower(asked, choose_library(library))
        assert {demand.root for demand in lowered.demands} == {2}
        assert merge_into_launch([lowered.demands[-1]] * 2).root == 2


def test_two_lines_never_cover_the_same():
    for name in LIBRARIES.names():
        library = choose_library(name)
        seen = set()
        for entry in library.table:
            if entry.when is None or entry.when in library.chosen:
                for covered in product(entry.kinds, entry.ops, entry.dtypes or ("any",)):
                    assert covered not in seen
                    seen.add(covered)


@pytest.mark.parametrize("text", ["ideal", "nccl", "nccl:or=owners,gather=broadcast", "gloo", "mpi:buffers=device"])
def test_option_strings_round_trip(text):
    assert choose_library(text).option_string == text


def test_a_library_of_an_installed_package_executes_by_its_own_table(tmp_path, monkeypatch):
    (tmp_path / "plugin_with_a_library.py").write_text(
        "from dataclasses import replace\n"
        "from s2sim.libraries.gloo import HostLibraryProfile\n"
        "from s2sim.libraries.lowering import IDEAL, NCCL\n"
        "ONE = replace(NCCL, name='one', summary='ours', source='us', in_flight=4, "
        "measured=HostLibraryProfile('gloo'))\n"
        "BARE = replace(IDEAL, name='bare')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint(name, f"plugin_with_a_library:{name.upper()}", "s2sim.libraries") for name in ("one", "bare")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda *, group: points if "libraries" in group else [])
    installed = Registry("library", "s2sim.libraries", LIBRARIES.builtin)
    monkeypatch.setattr("s2sim.libraries.lowering.LIBRARIES", installed)
    one = choose_library("one:or=gather,timing=measured")
    assert (one.option_string, one.in_flight) == ("one:or=gather,timing=measured", 4)
    asked = reduce_of(80, "or", "uint8")
    assert lower(asked, one).demands == lower(asked, choose_library("nccl:or=gather")).demands
    # Its own constants count as those of s2sim's libraries do.
    assert one.profile == one.measured == choose_library("gloo").measured
    assert choose_library("one:timing=wire").profile == choose_library("bare").profile == NO_OVERHEADS
    with pytest.raises(UnknownNameError, match="did you mean 'one'"):
        choose_library("onee")


def test_defaults_are_left_out():
    assert choose_library("nccl:or=bytes,gather=pad").option_string == "nccl"


@pytest.mark.parametrize(
    ("text", "error", "part"),
    [
        ("ncll", UnknownNameError, "did you mean 'nccl'"),
        ("nccl:gathr=pad", OptionError, "did you mean 'gather'"),
        ("nccl:or=byte", OptionError, "did you mean 'bytes'"),
        ("ideal:or=bytes", OptionError, "ideal has no option 'or'"),
        ("nccl:or=bytes,or=gather", OptionError, "twice"),
        ("", OptionError, "names nothing"),
    ],
)
def test_wrong_option_strings_are_told(text, error, part):
    with pytest.raises(error, match=part):
        choose_library(text)


def test_together_adds_bytes():
    one = Demand("all_gather", (3, 4), 4)
    assert merge_into_launch([one]) is one
    assert merge_into_launch([one, Demand("all_gather", (1, 0), 1)]) == Demand("all_gather", (13, 16), 1)
    assert merge_into_launch([Demand("broadcast", (3, 3), 4, root) for root in (0, 1)]) == Demand(
        "broadcast", (24, 24), 1
    )
