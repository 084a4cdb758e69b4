"""Which gradients leave together, and when their exchanges end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import OptionError, UnitError, UnknownNameError
from s2sim.options import Size
from s2sim.simulation.bucketing.overlap import Ddp
from s2sim.simulation.bucketing.policy import DISCIPLINES, ReadyTensors, make_discipline
from s2sim.testing.collectives import check_discipline

MIB = 2**20
EXAMPLES = (
    "mg-wfbp",
    "mg-wfbp:latency=908us",
    "topka2a",
    "topka2a:least=2MB,tolerance=1MB,steps=3",
    "two-priorities:bucket=1MiB",
)


def ready(sizes, at=None, sparse=None):
    count = len(sizes)
    return ReadyTensors(
        np.array(sizes, np.int64),
        np.array(range(count) if at is None else at, np.int64),
        np.zeros(count, bool) if sparse is None else np.array(sparse, bool),
    )


def places(text, tensors, exchange_ps=lambda size: size):
    return [bucket.tensors for bucket in make_discipline(text).buckets(tensors, exchange_ps)]


@pytest.mark.parametrize("name", DISCIPLINES.names())
def test_every_discipline_conforms(name):
    check_discipline(make_discipline(name))


@pytest.mark.parametrize("name", DISCIPLINES.names())
def test_a_discipline_says_whether_its_buckets_follow_from_times(name):
    """Where they do, what is said of other rates holds in these buckets alone."""
    discipline, sizes = make_discipline(name), [2 * MIB] * 40
    tensors = ready(sizes, at=[place * 10**9 for place in range(40)])
    exchanges = [lambda size, ps=ps: 10**8 * ps + size * ps for ps in (1, 30, 1000)]
    found = {discipline.buckets(tensors, exchange) for exchange in exchanges}
    assert (len(found) > 1) == discipline.by_times


def test_all_at_once_and_each_by_itself():
    tensors = ready([4, 0, 8], sparse=[False, True, False])
    assert places("after-backward", tensors) == [(0, 1, 2)]
    assert places("per-tensor", tensors) == [(0,), (1,), (2,)]


def test_ddp_closes_a_bucket_that_has_reached_its_limit():
    exactly = ready([MIB // 2, MIB // 2, 25 * MIB - 1, 1, 5])
    assert places("ddp", exactly) == [(0, 1), (2, 3), (4,)]
    one_short = ready([MIB - 1, 1, 25 * MIB - 1, 1, 5])
    assert places("ddp", one_short) == [(0, 1), (2, 3), (4,)]
    far_over = ready([MIB - 1, 100 * MIB, 3, 100 * MIB])
    assert places("ddp", far_over) == [(0, 1), (2, 3)]


def test_ddp_gives_sparse_gradients_buckets_of_their_own():
    tensors = ready([MIB // 2, 7 * MIB, MIB // 2, 3, 9 * MIB], sparse=[False, True, False, False, True])
    assert places("ddp", tensors) == [(1,), (0, 2), (4,), (3,)]


def test_the_first_limit_of_ddp_is_at_most_the_others():
    tensors = ready([MIB // 2] * 4)
    assert places("ddp:bucket=512KiB", tensors) == [(0,), (1,), (2,), (3,)]
    assert places("ddp:bucket=1MiB,first=1B", tensors) == [(0,), (1, 2), (3,)]
    with pytest.raises(OptionError, match="first=2MiB is more than bucket=512KiB"):
        make_discipline("ddp:bucket=512KiB,first=2MiB")


@pytest.mark.extra
@given(
    st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 25),
    st.integers(1, 60),
)
def test_ddp_is_what_pytorch_does(gradients, first, more):
    """PyTorch's own function, on float32 gradients; it takes limits in bytes as well."""
    torch = pytest.importorskip("torch")
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_available():
        pytest.skip("this PyTorch has no distributed package")
    sizes, sparse = zip(*gradients, strict=True)
    bucket = first + more
    order = list(range(len(sizes)))
    expected, _ = distributed._compute_bucket_assignment_by_size(
        [torch.empty(size) for size in sizes], [first, bucket], list(sparse), order
    )
    tensors = ready([4 * size for size in sizes], sparse=sparse)
    found = Ddp(Size(f"{bucket}B"), Size(f"{first}B")).buckets(tensors, lambda _: 0)
    assert [list(item.tensors) for item in found] == expected


@pytest.mark.parametrize(
    "text", ["after-backward", "per-tensor", "ddp", "ddp:bucket=50MiB", "ddp:bucket=4MB,first=1kB"]
)
def test_option_strings_read_back(text):
    assert make_discipline(text).text == text


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("dpd", UnknownNameError, "ddp"),
        ("ddp:buckets=25MiB", OptionError, "bucket"),
        ("ddp:bucket=0B", OptionError, "bucket=0B holds nothing"),
        ("ddp:first=0MiB", OptionError, "first=0MiB holds nothing"),
        ("ddp:bucket=-1MiB", UnitError, "is negative"),
        ("ddp:bucket=nan", UnitError, "is not a size"),
        ("ddp:bucket=25", UnitError, "has no unit"),
        ("ddp:bucket=2GiB,bucket=1GiB", OptionError, "twice"),
        ("mgwfbp", UnknownNameError, "mg-wfbp"),
        ("topka2a:least=0B", OptionError, "least=0B holds nothing"),
        ("topka2a:steps=0", OptionError, "steps=0 must be at least 1"),
        ("topka2a:steps=many", OptionError, "is not a whole number"),
        ("two-priorities:bucket=0B", OptionError, "bucket=0B holds nothing"),
        ("per-tensor:bucket=25MiB", OptionError, "no option 'bucket'"),
        ("", OptionError, "names nothing"),
    ],
)
def test_what_cannot_be_is_one_line(text, error, says):
    with pytest.raises(error, match=says) as caught:
        make_discipline(text)
    assert "\n" not in str(caught.value)
