"""Kinds of feedback: each equals its paper written out with dense vectors, and refuses what it makes no sense for."""

import numpy as np
import pytest

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, RowSparse, as_row_sparse, to_dense
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer, option_string
from s2sim.reducers.run import reduce_steps, run_reducer
from s2sim.reducers.systems.topk import TopK
from s2sim.reducers.wrappers.error_feedback import MomentumCorrection
from s2sim.testing.reducer_properties import example_gradients

from .naive import top

RANKS, SIZE, KEPT, STEPS = 3, 50, 5, 8
TOP = "topk:density=0.1"


def arrays_of(step):
    return [np.random.default_rng([step, rank]).standard_normal(SIZE).astype(np.float32) for rank in range(RANKS)]


def found_means(text):
    found = reduce_steps(text, [arrays_of(step) for step in range(STEPS)])
    plain = reduce_steps(TOP, [arrays_of(step) for step in range(STEPS)])
    assert [step.bytes_sent for step in found] == [step.bytes_sent for step in plain]
    return [step.values[0] for step in found]


def state():
    return [np.zeros(SIZE, np.float32) for _ in range(RANKS)]


def test_ef21():
    known = state()
    for step, mean in enumerate(found_means(f"{TOP},ef=ef21")):
        for rank, gradient in enumerate(arrays_of(step)):
            known[rank] += top(gradient - known[rank], KEPT)
        np.testing.assert_allclose(mean, np.mean(known, axis=0), atol=1e-6)


def test_ef21_moves_by_what_is_sent_and_its_first_step_is_plain():
    instances, plain = (make_instances(make_reducer(text), RANKS) for text in (f"{TOP},ef=ef21", TOP))
    gradients = example_gradients(RANKS)
    results, _ = run_group(instances, gradients)
    first, _ = run_group(plain, gradients)
    for one, other in zip(results, first, strict=True):
        assert all(map(np.array_equal, map(to_dense, one.mean.layers), map(to_dense, other.mean.layers)))
    # From the same gradients again and again g reaches them: what is left shrinks to nothing.
    for step in range(1, 12):
        before = [instance.held_back() for instance in instances]
        run_group(instances, gradients, step=step)
        for instance, old in zip(instances, before, strict=True):
            left, was = (
                sum(float(np.square(to_dense(layer)).sum()) for layer in each.layers)
                for each in (instance.held_back(), old)
            )
            assert left < was or was == 0
    assert left < 1e-10


def test_filtered_feedback():
    memory, beta = state(), np.float32(0.25)
    for step, mean in enumerate(found_means(f"{TOP},ef=filtered,beta=0.25")):
        total = np.zeros(SIZE, np.float32)
        for rank, gradient in enumerate(arrays_of(step)):
            sent = top(memory[rank] + gradient, KEPT)
            memory[rank] = (1 - beta) * memory[rank] + beta * (memory[rank] + gradient - sent)
            total += sent
        np.testing.assert_allclose(mean, total / RANKS, atol=1e-6)


@pytest.mark.parametrize("masking", [True, False])
def test_momentum_correction(masking):
    velocity, waiting, factor = state(), state(), np.float32(0.9)
    for step, mean in enumerate(found_means(f"{TOP},momentum=0.9,masking={str(masking).lower()}")):
        total = np.zeros(SIZE, np.float32)
        for rank, gradient in enumerate(arrays_of(step)):
            velocity[rank] = factor * velocity[rank] + gradient
            waiting[rank] += velocity[rank]
            sent = top(waiting[rank], KEPT)
            waiting[rank][sent != 0] = 0
            if masking:
                velocity[rank][sent != 0] = 0
            total += sent
        np.testing.assert_allclose(mean, total / RANKS, atol=1e-5)


def test_clipping_by_a_shared_norm():
    gradients = [[4 * array for array in arrays_of(0)]]
    length = np.sqrt(np.mean([np.square(array).sum() for array in gradients[0]]))
    (clipped,), (plain,) = (reduce_steps(f"{TOP},momentum=0.9{more}", gradients) for more in (",clip=2", ""))
    factor = 2 / np.sqrt(RANKS) / length
    np.testing.assert_allclose(clipped.values[0], factor * plain.values[0], rtol=1e-5)
    # A ring of three ranks passes on one value of eight bytes four times in all.
    assert sum(clipped.bytes_sent) == sum(plain.bytes_sent) + 2 * 2 * 8
    (untouched,) = reduce_steps(f"{TOP},momentum=0.9,clip=1000", gradients)
    assert np.array_equal(untouched.values[0], plain.values[0])


def test_global_momentum_follows_the_model():
    """The term is computed from models here, as in the paper, and not from the last mean."""
    left, rate, factor = state(), 0.1, 0.9
    model = before = np.zeros(SIZE)
    for step, mean in enumerate(found_means(f"{TOP},gmc=0.9")):
        total = np.zeros(SIZE)
        for rank, gradient in enumerate(arrays_of(step)):
            update = left[rank] + gradient - factor / rate * (model - before)
            sent = top(update, KEPT)
            left[rank] = update - sent
            total += sent
        model, before = model - rate * total / RANKS, model
        np.testing.assert_allclose(mean, total / RANKS, atol=1e-4)


@pytest.mark.parametrize("ramp", ["exponential", "quarters"])
def test_a_density_warms_up(ramp):
    text = f"topk:density=0.02,warmup=2,epoch=3,ramp={ramp}"
    found = reduce_steps(text, [arrays_of(step) for step in range(7)])
    share = (lambda e: 0.02 ** ((e + 1) / 3)) if ramp == "exponential" else (lambda e: max(0.02, 0.25 ** (e + 1)))
    kept = [share(0)] * 3 + [share(1)] * 3 + [0.02]
    assert [step.bytes_sent[0] for step in found] == [8 * max(1, int(SIZE * each)) * (RANKS - 1) for each in kept]
    # Rows are of the density that is reached.
    made = make_reducer(text)
    recording = run_reducer(made, example_gradients(2)).recording
    assert recording == run_reducer(make_reducer("topk:density=0.02"), example_gradients(2)).recording
    assert made.inner == TopK(0.02)
    assert option_string(made) == text.replace(",ramp=exponential", "")


@pytest.mark.parametrize("kind", ["ef=ef21", "ef=filtered", "momentum=0.9", "gmc=0.9"])
@pytest.mark.parametrize("inner", ["union", "fedavg:fraction=0.5", "choco"])
def test_where_it_makes_no_sense_it_is_refused(inner, kind):
    with pytest.raises(OptionError, match=r"loses nothing|has its own|ranks end with weights"):
        make_reducer(f"{inner}{',' if ':' in inner else ':'}{kind}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("qsgd:momentum=0.9", "corrects what feedback delays"),
        ("natural:gmc=0.9", "corrects what feedback delays"),
        ("qsgd:ef=ef21", "unbiased instead"),
        ("ef-signsgd:momentum=0.9", "masking=false"),
        ("topk:momentum=1", r"momentum=1.0 is not in \(0, 1\)"),
        ("topk:gmc=0", r"gmc=0.0 is not in \(0, 1\)"),
        ("topk:momentum=0.9,clip=0", r"clip=0.0 is not in \(0, inf\)"),
        ("topk:ef=filtered,beta=1", r"beta=1.0 is not in \(0, 1\)"),
        ("topk:ef=true,momentum=0.9", "two kinds of feedback"),
        ("topk:ef=ef21,gmc=0.9", "two kinds of feedback"),
        ("topk:beta=0.1", "goes with ef=filtered"),
        ("topk:masking=false", "goes with momentum=MOMENTUM"),
        ("topk:ef=twice", "not one of false, true, filtered, ef21"),
        ("union:warmup=3", "union has none"),
        ("topk:warmup=0", "at least 1"),
    ],
)
def test_refusals_say_why(text, said):
    with pytest.raises(OptionError, match=said):
        make_reducer(text)


@pytest.mark.parametrize(
    "text",
    [
        "topk:ef=ef21",
        "topk:ef=filtered,beta=0.5",
        "topk:momentum=0.9,masking=false,clip=2",
        "topk:gmc=0.5,h=4",
        "ef-signsgd:momentum=0.9,masking=false",
        "topk:warmup=3,momentum=0.9,h=2,after=4",
    ],
)
def test_option_strings_come_back(text):
    assert option_string(make_reducer(text)) == text
    assert make_reducer(text).fresh() == make_reducer(text)


def test_masks_fit_tables_and_dense_layers_alike():
    """The same steps with all layers as tables of elements, or dense, leave the same velocities."""
    arrays = np.random.default_rng(0).standard_normal((4, 12, 3)).astype(np.float32)
    arrays[:, ::2] = 0
    arrays[1:, 3] = 0

    def velocity(make):
        instance = MomentumCorrection(TopK(0.1))
        for step, array in enumerate(arrays):
            run_group([instance], [Gradient(("g",), (make(array),))], step=step)
        (layer,) = instance.velocity.layers
        return layer

    dense, table = velocity(lambda array: array), velocity(as_row_sparse)
    assert isinstance(table, RowSparse)
    assert np.array_equal(dense, table.to_dense())
    assert dense.any()
