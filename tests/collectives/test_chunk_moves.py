"""Runs of chunks: what a message carries, against a plain sum, and rounds that repeat."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.schedules.exchange import ChunkMove, Chunks, MemberPairs, chunk_totals, stage_of_moves

BOTH = MemberPairs(np.array([0, 1]), np.array([1, 0]))


@given(
    values=st.lists(st.integers(-100, 100), min_size=1, max_size=20),
    count=st.integers(1, 40),
    stride=st.integers(-20, 20),
    skip=st.integers(-20, 20),
    data=st.data(),
)
def test_carried_is_the_plain_sum(values, count, stride, skip, data):
    first = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=5))
    rows = np.array([values, values[::-1]])
    ends = np.zeros(len(first), np.int64)
    move = ChunkMove(MemberPairs(ends, ends), np.array(first), count, stride, skip)
    expected = [
        [sum(row[(begin + skip + j * stride) % len(values)] for j in range(count)) for begin in first]
        for row in rows.tolist()
    ]
    assert chunk_totals(rows, move).tolist() == expected


def chunks(sizes):
    ends = np.cumsum(sizes)
    return Chunks((ends - sizes)[None, :, None], ends[None, :, None], 4.0 * np.array([sizes]))


def test_moves_alike_are_one_step_only_where_chunks_count_alike():
    moves = [ChunkMove(BOTH, np.array([0, 2]), 1, skip=skip) for skip in range(2)]
    ranks = np.array([[0, 1]])
    even = stage_of_moves(ranks, chunks(np.array([3, 3, 3, 3])), moves)
    assert [step.times for step in even.steps] == [2]
    assert even.pieces(0, 1).start.tolist() == [3, 9]
    uneven = stage_of_moves(ranks, chunks(np.array([1, 2, 3, 4])), moves)
    assert [step.round.bytes.tolist() for step in uneven.steps] == [[4.0, 12.0], [8.0, 16.0]]
    assert uneven.steps[0].round.pattern is uneven.steps[1].round.pattern
    assert uneven.traffic(2).tolist() == [[3, 7], [7, 3]]


def test_no_moves_take_no_steps():
    assert stage_of_moves(np.array([[0]]), chunks(np.array([5])), []).rounds == 0
