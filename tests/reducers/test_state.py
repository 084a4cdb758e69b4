"""What reducers carry from step to step, saved and restored."""

import numpy as np
import pytest

from s2sim.errors import S2SimError
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once, reduce_steps
from s2sim.reducers.wrappers.error_feedback import ErrorFeedback
from s2sim.testing.reducer_properties import check_restore, example_gradients

TEXTS = ["dense", "topk:density=0.1,ef=true", "s2:cells=2,ef=true", "s2-exact", "s2-exact:warm=true", "fp16:ef=true"]


@pytest.mark.parametrize("text", TEXTS)
def test_it_goes_on_with_the_same_bits(text):
    for interrupted in range(1, 5):
        check_restore(make_reducer(text), 3, interrupted=interrupted, steps=5)


def leaves(state):
    if isinstance(state, dict | list):
        return [leaf for value in (state.values() if isinstance(state, dict) else state) for leaf in leaves(value)]
    return [state]


@pytest.mark.parametrize("text", TEXTS)
def test_a_state_is_plain_data(text):
    instances = make_instances(make_reducer(text), 2)
    run_group(instances, example_gradients(2))
    for leaf in leaves(instances[0].state()):
        assert leaf is None or isinstance(leaf, np.ndarray | int | float | str)


def test_wrappers_nest():
    instances = make_instances(make_reducer("s2:cells=2,ef=true"), 2)
    run_group(instances, example_gradients(2))
    state = instances[0].state()
    assert set(state) == {"residual", "inner"}
    assert set(state["inner"]) == {"known", "last_columns"}
    assert set(state["residual"]) == set(example_gradients(1)[0].names)


class Forgetful(ErrorFeedback):
    """Error feedback that does not say what it carries."""

    def _carried(self):
        return []


def test_the_check_can_fail():
    with pytest.raises(AssertionError, match="after a restore before step 1 gives other values"):
        check_restore(Forgetful(make_reducer("topk:density=0.1")), 3, interrupted=1)


def test_the_state_of_something_else_is_refused():
    with pytest.raises(S2SimError, match="topk carries nothing from step to step, and the state has known"):
        make_reducer("topk").restore({"known": 3})
    with pytest.raises(S2SimError, match="carries residual from step to step, and the state has nothing"):
        make_reducer("topk:ef=true").restore({})


def arrays_of(step):
    return [np.random.default_rng([step, rank]).standard_normal(60).astype(np.float32) for rank in range(3)]


def test_reduce_steps_keeps_what_is_carried():
    steps = [arrays_of(step) for step in range(3)]
    found = reduce_steps("topk:density=0.1,ef=true", steps)
    memory = np.zeros((3, 60), np.float32)
    for arrays, step in zip(steps, found, strict=True):
        memory += arrays
        expected = np.zeros(60, np.float32)
        for own in memory:
            chosen = np.argsort(-np.abs(own), kind="stable")[:6]
            expected[chosen] += own[chosen]
            own[chosen] = 0
        np.testing.assert_allclose(step.values[0], expected / 3, atol=1e-6)
        assert step.bytes_sent == [8 * 6 * 2] * 3


def test_its_first_step_is_reduce_once():
    arrays = arrays_of(0)
    for text in ("s2:rows=1,columns=40,ef=true", "s2-exact:warm=true"):
        once, (first, _) = reduce_once(text, arrays, seed=3), reduce_steps(text, [arrays, arrays_of(1)], seed=3)
        assert np.array_equal(first.values[0], once.values[0])
        assert (first.bytes_sent, first.recording) == (once.bytes_sent, once.recording)


def test_steps_do_not_change_an_object():
    made = make_reducer("topk:ef=true")
    reduce_steps(made, [arrays_of(0), arrays_of(1)])
    assert made.state() == {"residual": None, "inner": {}}


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([], "no steps"),
        (arrays_of(0)[0], "no steps"),
        ([arrays_of(0), arrays_of(1)[:2]], "step 1 has 2 arrays"),
        ([arrays_of(0), [array[:9] for array in arrays_of(1)]], r"step 1 has 3 arrays of the shape \(9,\)"),
        ([arrays_of(0), []], "no gradient"),
    ],
)
def test_steps_must_be_alike(steps, said):
    with pytest.raises(S2SimError, match=said):
        reduce_steps("dense", steps)
