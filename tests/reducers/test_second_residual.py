"""Residuals of sums that are encoded again, against the published algorithms written out in NumPy."""

import numpy as np
import pytest

from s2sim.gradients.gradient import Gradient
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.testing.reducer_properties import check_nothing_lost, check_restore

from .naive import flat, top

STEPS = 6
LAYERS = {"one element": (1,), "fewer than ranks": (5,), "odd": (97,), "layers": (13, 1, 40)}


def ternary(vector, density=0.2):
    """STC: the k largest magnitudes as plus or minus their mean magnitude."""
    kept = top(vector, max(1, int(density * len(vector))))
    return np.sign(kept) * np.abs(kept[kept != 0]).mean() if kept.any() else kept


def two_means(vector):
    """1-bit SGD: the mean of the elements of each sign."""
    decoded = np.zeros_like(vector)
    for chosen in (vector < 0, vector >= 0):
        decoded[chosen] = vector[chosen].mean() if chosen.any() else 0
    return decoded


def scaled_sign(vector):
    """EF-signSGD: ||p||_1 / n times the sign."""
    return np.abs(vector).mean() * np.where(vector >= 0, 1, -1)


def server(compress, gradients, worker_errors, server_error):
    """F. Sattler et al., algorithm 1, of one tensor: all ranks send to one server; the sum stands for the mean."""
    messages = []
    for rank, gradient in enumerate(gradients):
        corrected = gradient + worker_errors[rank]
        messages.append(compress(corrected))
        worker_errors[rank] = corrected - messages[-1]
    total = server_error + sum(messages)
    found = compress(total)
    return found / len(gradients), total - found


def owners(compress, gradients, worker_errors, server_error):
    """F. Seide et al., section 3: part j of the tensor goes to rank j, which does what a server does."""
    ranks, n = len(gradients), len(gradients[0])
    mean, left = np.zeros(n), np.zeros(n)
    for owner in range(ranks):
        part = slice(owner * n // ranks, (owner + 1) * n // ranks)
        if part.start < part.stop:
            errors = [error[part] for error in worker_errors]
            own = [gradient[part] for gradient in gradients]
            mean[part], left[part] = server(compress, own, errors, server_error[part])
            for error, new in zip(worker_errors, errors, strict=True):
                error[part] = new
    return mean, left


SYSTEMS = {
    "stc:density=0.2": (ternary, server),
    "stc:density=0.2,aggregate=two-phase": (ternary, owners),
    "onebit-sgd": (two_means, owners),
    "ef-signsgd:aggregate=two-phase": (scaled_sign, owners),
    "ef-signsgd:aggregate=server": (scaled_sign, server),
}


def gradients_of(step, ranks, sizes):
    return [
        Gradient(
            tuple(f"layer {size} {place}" for place, size in enumerate(sizes)),
            tuple(np.random.default_rng([step, rank, size]).standard_normal(size, np.float32) for size in sizes),
        )
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("text", SYSTEMS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("sizes", LAYERS.values(), ids=LAYERS)
def test_the_sum_s_residual_is_added_to_the_next_sum(text, ranks, sizes):
    compress, exchange = SYSTEMS[text]
    instances = make_instances(make_reducer(f"{text},ef=true" if ":" in text else f"{text}:ef=true"), ranks)
    worker_errors = [[np.zeros(size) for _ in range(ranks)] for size in sizes]
    server_errors = [np.zeros(size) for size in sizes]
    for step in range(STEPS):
        gradients = gradients_of(step, ranks, sizes)
        results, _ = run_group(instances, gradients, step=step)
        for layer in range(len(sizes)):
            own = [gradient.layers[layer].astype(np.float64) for gradient in gradients]
            mean, server_errors[layer] = exchange(compress, own, worker_errors[layer], server_errors[layer])
            np.testing.assert_allclose(results[0].mean.layers[layer], mean, atol=1e-4)
            for instance, error in zip(instances, worker_errors[layer], strict=True):
                np.testing.assert_allclose(instance.residual.layers[layer], error, atol=1e-4)
    kept = [instance.inner.server_error for instance in instances]
    assert all(each is None for each in kept[1:]) == (exchange is server or ranks == 1)
    total = sum(flat(each) for each in kept if each is not None)
    np.testing.assert_allclose(total, np.concatenate(server_errors), atol=1e-4)


@pytest.mark.parametrize("ef", ["ef=true", "ef=filtered", "momentum=0.9,masking=false", "gmc=0.9", "ef=ef21"])
@pytest.mark.parametrize("text", ["stc:density=0.2", "onebit-sgd:column=4", "stc:density=0.2,hierarchical=true,node=2"])
def test_all_kinds_of_feedback_lose_nothing_and_resume(text, ef):
    made = make_reducer(f"{text},{ef}")
    check_nothing_lost(made, 4)
    check_restore(made, 4)


def test_a_state_has_the_sums_residual():
    instances = make_instances(make_reducer("onebit-sgd:ef=true"), 2)
    run_group(instances, gradients_of(0, 2, (9,)))
    kept = [each.state()["inner"]["server_error"]["layer 9 0"] for each in instances]
    assert kept[0][:4].any()
    assert not kept[0][4:].any()
    assert not kept[1][:4].any()
    assert instances[0].held_back().layers[0] == pytest.approx(instances[0].residual.layers[0] + kept[0])


def test_masks_clear_what_a_rank_itself_has_sent():
    """The owner's velocity lives on where its own message had nothing, whatever its sum lost there."""
    instances = make_instances(make_reducer("stc:density=0.1,momentum=0.9"), 3)
    gradients = gradients_of(0, 3, (40,))
    run_group(instances, gradients)
    for instance, gradient in zip(instances, gradients, strict=True):
        own = flat(gradient)
        np.testing.assert_array_equal(flat(instance.velocity), np.where(top(own, 4) == 0, own, 0))


def test_without_feedback_nothing_is_kept():
    for text in ("stc", "onebit-sgd", "stc:ef=ef21"):
        instances = make_instances(make_reducer(text), 2)
        run_group(instances, gradients_of(0, 2, (50,)))
        assert getattr(instances[0], "inner", instances[0]).server_error is None
