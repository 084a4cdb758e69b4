"""What reducers carry from step to step, saved and restored."""

import numpy as np
import pytest

from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer, reducer_names, with_feedback
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


STATES = {
    # By name: options with which few steps have all that is kept, and what of it is of one rank or there twice
    "onebit-adam": (":freeze_step=1", set()),
    "onebit-lamb": (":freeze_step=1", {"s"}),
    "zero-one-adam": (":freeze_step=1,local_step_scaler=1,local_step_clipper=2", set()),
    "dion": (":rank=4", set()),
    "post-local-sgd": (":after=0", set()),
    "sbc-2": (":h=2", set()),
    "sbc-3": (":h=2", set()),
    "downpour": ("", {"part"}),  # Of the server's model
    "choco": ("", {"x"}),  # The rank's model
    "fedavg": ("", {"server"}),
    "fetchsgd": ("", {"S_u", "S_e"}),  # Of rank 0
    "ef21": ("", {"residual"}),
    "diloco": (":h=2", set()),
    "slowmo": (":h=2", set()),
    "streaming-diloco": (":h=4,delay=0", set()),
}


def kept(state, left_out):
    return sum(
        kept(value, left_out) if isinstance(value, dict) else sum(getattr(leaf, "nbytes", 0) for leaf in leaves(value))
        for name, value in state.items()
        if name not in {"server_error", *left_out}  # Of a P-th of the sums
    )


@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")  # Of what has no tables to compress
@pytest.mark.parametrize("name", [name for name in reducer_names() if not make_reducer(name).needs_parts])
def test_states_have_the_bytes_that_are_declared(name):
    options, left_out = STATES.get(name, ("", set()))
    reducer = with_feedback(make_reducer(name + options).placed((0, 0, 1, 1)))
    # Low ranks of wide matrices are little beside these.
    gradients = [
        Gradient(
            ("a", "b"), tuple(np.random.default_rng([rank, place]).standard_normal((128, 128)) for place in (0, 1))
        )
        for rank in range(4)
    ]
    gradients = [gradient.map(np.float32) for gradient in gradients]
    instances = make_instances(reducer.fitted(gradients, 0), len(gradients))
    most = 0
    for step in range(5):
        run_group(instances, gradients, step=step)
        most = max(most, kept(instances[1].state(), left_out))
    assert most / gradients[0].size == pytest.approx(reducer.traits.state_bytes, abs=0.6)


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
