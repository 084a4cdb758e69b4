import pytest

from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import Call, HostSync, Post, Recording, Rounds, Wait, Work, count_rounds
from s2sim.testing.reducer_properties import example_gradients


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dense", (0, 1, 0)),
        ("fp16", (0, 1, 0)),
        ("topk:density=0.1", (0, 1, 0)),
        # The support, then the values, whose number the host has to know.
        ("union", (0, 2, 1)),
        ("union:prefetch=true", (1, 1, 0)),
        ("gather-rows", (0, 1, 1)),
        ("owner-reduce", (0, 2, 2)),
        # An estimate of the union, then cells and support.
        ("s2:cells=2", (0, 2, 1)),
        ("s2:cells=2,warm=true", (0, 1, 0)),
        ("s2:columns=100", (0, 1, 0)),
        ("s2:preset=authors-gnmt", (0, 3, 0)),
        # Estimate and magnitudes, then cells; whether anything is left the host has to know.
        ("s2-exact", (0, 2, 2)),
        ("s2-exact:warm=true", (0, 1, 1)),
    ],
)
def test_rounds_of_every_reducer(text, expected):
    recording = run_reducer(make_reducer(text), example_gradients(4)).recording
    assert count_rounds(recording) == Rounds(*expected)


def test_what_is_posted_together_is_one_round():
    def call(*, from_data):
        return Call("all_reduce", "sum", "float32", 4, (1,), size_from_data=from_data, label="")

    calls = tuple(call(from_data=index == 2) for index in range(4))
    script = (Post(0), Work("encode", 8), Post(1), Wait((0,)), Wait((1,)), Post(2), Wait((2,)), HostSync(), Post(3))
    assert count_rounds(Recording(calls, (script,))) == Rounds(0, 3, 2)
    assert count_rounds(Recording((), ((),))) == Rounds(0, 0, 0)
