import numpy as np
import pytest

from s2sim.errors import OptionError
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer, option_string
from s2sim.reducers.run import reduce_once, run_reducer
from s2sim.reducers.script import count_rounds
from s2sim.testing.reducer_properties import example_gradients


@pytest.mark.parametrize("text", ["s2:cells=2", "s2-exact", "s2-exact:dtype=int64"])
def test_it_is_the_second_step(text):
    gradients, earlier = example_gradients(3, seed=1), example_gradients(3, seed=2)
    instances = make_instances(make_reducer(text), 3)
    run_group(instances, earlier)
    _, second = run_group(instances, gradients)
    found = run_reducer(
        make_reducer(f"{text},warm=true" if ":" in text else f"{text}:warm=true"), gradients, others=lambda _: earlier
    )
    assert found.recording == second
    cold = run_reducer(make_reducer(text), gradients).recording
    assert count_rounds(found.recording).after_gradient < count_rounds(cold).after_gradient
    assert count_rounds(found.recording).host_syncs < count_rounds(cold).host_syncs


def test_without_another_step_it_carries_over_from_the_same_gradients():
    gradients = example_gradients(2)
    warm = make_reducer("s2-exact:warm=true")
    assert run_reducer(warm, gradients).recording == run_reducer(warm, gradients, others=lambda _: gradients).recording


@pytest.mark.parametrize(
    "text", ["s2-exact:warm=true", "s2:rows=3,cells=2,warm=true", "s2-exact:dtype=int64,warm=true"]
)
def test_option_strings_come_back(text):
    made = make_reducer(text)
    assert option_string(made) == text
    assert made.options()["warm"] is True
    assert made.fresh() == made
    assert "later step" in made.traits.summary


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("union:warm=true", "nothing is carried"),
        ("dense:warm=true", "nothing is carried"),
        ("s2:columns=100,warm=true", "nothing is carried"),
        ("s2:preset=authors-gnmt,warm=true", "nothing is carried"),
        ("s2:cells=2,ef=true,warm=true", "--steps"),
        ("s2:cells=2,ef=ef21,h=2,warm=true", "that ef=ef21 is about"),
        ("s2:warm=perhaps", "not one of false, true"),
    ],
)
def test_what_changes_nothing_is_refused(text, said):
    with pytest.raises(OptionError, match=said):
        make_reducer(text)


def test_plain_arrays_too():
    arrays = [np.eye(40, dtype=np.float32)[rank] for rank in range(3)]
    cold, warm = (reduce_once(text, arrays) for text in ("s2-exact", "s2-exact:warm=true"))
    assert np.array_equal(cold.values[0], warm.values[0])
    assert len(warm.recording.calls) == len(cold.recording.calls) - 2
