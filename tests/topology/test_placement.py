import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import TopologyError, UnknownNameError
from s2sim.topology.cluster import PLACEMENTS, place_ranks
from s2sim.topology.kinds import build_layout
from s2sim.topology.read_file import load_shape


@pytest.fixture
def placed(tmp_path):
    """Place 6 workers, two nodes of 4 GPUs of which the last is half full, from the text of a file."""

    def read(text, name="places.txt", encoding="utf-8"):
        (tmp_path / name).write_text(text, encoding=encoding)
        return place_ranks(build_layout(load_shape("fat-tree"), 6), str(tmp_path / name)).tolist()

    return read


@given(workers=st.integers(1, 200), gpus=st.integers(1, 5), seed=st.integers(0, 2**70))
def test_every_placement_uses_every_gpu_once(workers, gpus, seed):
    dims = build_layout(load_shape("fat-tree", [f"node.gpus={gpus}"]), workers)
    for placement in PLACEMENTS:
        places = place_ranks(dims, placement, seed=seed)
        assert places.dtype == np.int64
        assert np.array_equal(np.sort(places), np.arange(workers))


def test_random_follows_the_seed_and_nothing_else():
    small, large = (build_layout(load_shape("fat-tree", [f"node.gpus={gpus}"]), 64) for gpus in (2, 8))
    assert np.array_equal(place_ranks(small, "random", seed=3), place_ranks(large, "random", seed=3))
    assert not np.array_equal(place_ranks(small, "random", seed=3), place_ranks(small, "random", seed=4))
    assert not np.array_equal(place_ranks(small, "random"), place_ranks(small, "linear"))


def test_random_stays_what_it_was():
    # Golden: a result that was published with a seed must come out again.
    assert place_ranks(build_layout(load_shape("fat-tree"), 8), "random", seed=1).tolist() == [0, 2, 4, 6, 7, 1, 3, 5]


def test_random_is_even():
    dims = build_layout(load_shape("ring"), 4)
    orders = [tuple(place_ranks(dims, "random", seed=seed).tolist()) for seed in range(2400)]
    counts = np.array([orders.count(order) for order in set(orders)])
    assert len(counts) == 24
    # Chi-square with 23 degrees of freedom: 49.7 is passed once in a thousand.
    assert np.sum((counts - 100) ** 2 / 100) < 49.7


def test_a_file_places_rank_by_rank(placed):
    assert placed("1 1\n0 0\n0 3\n0 1\n1 0\n0 2\n") == [5, 0, 3, 1, 4, 2]


def test_all_ways_to_write_a_place_and_comments(placed):
    text = "# node, gpu\n\n1,1\n 0 , 0\t# the first\n3\n0\t1\r\n  \n04\n2"
    assert placed(text, "places.csv") == [5, 0, 3, 1, 4, 2]
    assert placed(text, "places.json", encoding="utf-8-sig") == [5, 0, 3, 1, 4, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n1\n2\n0 1\n", r"places.txt, line 4: '0 1' is the GPU of line 2: a GPU runs one rank"),
        ("0\n\n6\n", r"line 3: '6' is not in use: 6 workers .* GPUs 0 to 5, .* node 0 gpu 0 to node 1 gpu 1"),
        ("0\n0 4\n", r"line 2: '0 4' is not in use"),
        ("1 2\n", r"line 1: '1 2' is not in use"),
        ("2 0\n", r"line 1: '2 0' is not in use"),
        ("0\n1\n2\n3\n4\n", r"places 5 ranks, there are 6: write 6 lines"),
        ("", r"places 0 ranks, there are 6: write 6 lines"),
        ("node,gpu\n0,0\n", r"line 1: 'node,gpu' is no place: write 'node gpu'"),
        ("0 1 2\n", r"line 1: '0 1 2' is no place"),
        ("-1\n", r"line 1: '-1' is no place"),
        ("1.0\n", r"line 1: '1.0' is no place"),
        ("9" * 5000, r"line 1: '9{40}' is no place"),
        ("²\n", r"line 1: '²' is no place"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_line(placed, text, message):
    with pytest.raises(TopologyError, match=message):
        placed(text)


def test_more_lines_than_ranks_name_a_gpu_twice_or_one_not_in_use(placed):
    with pytest.raises(TopologyError, match=r"line 7: '0' is the GPU of line 1"):
        placed("0\n1\n2\n3\n4\n5\n0\n")


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    dims = build_layout(load_shape("fat-tree"), 6)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "places").write_text("0\n")
    (tmp_path / "image.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(TopologyError, match=r"cannot read none\.txt: No such file"):
        place_ranks(dims, "none.txt")
    with pytest.raises(TopologyError, match=r"cannot read image\.txt: it is not text"):
        place_ranks(dims, "image.txt")
    with pytest.raises(TopologyError, match=r"places is a path and not a placement: .* \./FILE"):
        place_ranks(dims, "places")
    with pytest.raises(TopologyError, match=r"there is no file ~nobody-of-this-name/x"):
        place_ranks(dims, "~nobody-of-this-name/x")


@pytest.mark.parametrize(("name", "known"), [("randon", "did you mean 'random'"), ("", "round-robin"), ("x", "FILE")])
def test_unknown_placement_names_those_known(name, known):
    with pytest.raises(UnknownNameError, match=known):
        place_ranks(build_layout(load_shape("ring"), 4), name)
