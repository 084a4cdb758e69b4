"""Reducers with an optimizer within: the published programs written out in NumPy, tensor by tensor."""

import numpy as np
import pytest

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, to_dense
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import REDUCERS, make_reducer
from s2sim.reducers.run import is_symmetric, run_reducer
from s2sim.reducers.script import recording_bytes
from s2sim.seeds import named_generator

from .naive import flat

SIZES = ((13, 4), (7,), (1,))


def gradients_of(step, ranks, sizes=SIZES):
    return [
        Gradient(
            tuple(f"layer {place}" for place in range(len(sizes))),
            tuple(np.random.default_rng([step, rank, 5]).standard_normal(shape).astype(np.float32) for shape in sizes),
        )
        for rank in range(ranks)
    ]


def follow(reducer, steps, ranks, sizes=SIZES, first=0):
    """Yield gradients, results and recording of each step of an option string, or of instances of all ranks."""
    instances = make_instances(make_reducer(reducer), ranks) if isinstance(reducer, str) else reducer
    for step in range(first, first + steps):
        gradients = gradients_of(step, ranks, sizes)
        results, recording = run_group(instances, gradients, step=step)
        yield gradients, results, recording


class CompressedAllReduce:
    """``NcclBackend.compressed_allreduce`` of DeepSpeed for one tensor, of all ranks at once."""

    def __init__(self, ranks, n):
        self.worker_errors, self.server_error = np.zeros((ranks, n)), np.zeros(n)

    def __call__(self, buffers):
        ranks, n = buffers.shape
        buffers = buffers + self.worker_errors
        scales = np.linalg.norm(buffers, axis=1, keepdims=True) / np.sqrt(n)
        signs = np.where(buffers >= 0, 1, -1)
        self.worker_errors = buffers - scales * signs
        server = (signs * scales).sum(axis=0) / ranks + self.server_error
        found = np.empty(n)
        for rank in range(ranks):
            chunk = slice(rank * n // ranks, (rank + 1) * n // ranks)
            if chunk.stop > chunk.start:
                scale = np.linalg.norm(server[chunk]) / np.sqrt(chunk.stop - chunk.start)
                found[chunk] = scale * np.where(server[chunk] >= 0, 1, -1)
        self.server_error = server - found
        return found


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_one_bit_adam_is_deepspeed_s(ranks):
    freeze, beta1, beta2, eps = 3, 0.9, 0.99, 1e-3
    text = f"onebit-adam:freeze_step={freeze},beta2={beta2},eps={eps}"
    exchange = {place: CompressedAllReduce(ranks, int(np.prod(shape))) for place, shape in enumerate(SIZES)}
    m, v = ([np.zeros(int(np.prod(shape))) for shape in SIZES] for _ in range(2))
    for step, (gradients, results, _) in enumerate(follow(text, 9, ranks)):
        for place in range(len(SIZES)):
            g = np.array([gradient.layers[place].reshape(-1) for gradient in gradients], np.float64)
            if step < freeze:
                m[place] = beta1 * m[place] + (1 - beta1) * g.mean(axis=0)
                v[place] = beta2 * v[place] + (1 - beta2) * g.mean(axis=0) ** 2
            else:
                m[place] = exchange[place](beta1 * m[place] + (1 - beta1) * g)
            expected = m[place] / (np.sqrt(v[place]) + eps)
            for result in results:
                np.testing.assert_allclose(result.mean.layers[place].reshape(-1), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("ranks", "known"), [(1, True), (2, True), (3, False), (7, True)])
def test_one_bit_lamb_is_deepspeed_s(ranks, known):
    """``OnebitLamb.step``: one buffer of all momenta, scaled; norms of weights are told from outside, or c is 1."""
    freeze, beta1, beta2, eps, threshold = 4, 0.9, 0.99, 1e-2, 0.1
    text = f"onebit-lamb:freeze_step={freeze},beta2={beta2},eps={eps},max_coeff=2,factor_min=0.9"
    sizes = [int(np.prod(shape)) for shape in SIZES]
    ends = np.cumsum(sizes)[:-1]
    exchange, instances = CompressedAllReduce(ranks, sum(sizes)), make_instances(make_reducer(text), ranks)
    m, v = ([np.zeros(n) for n in sizes] for _ in range(2))
    c_avg, r, s, fresh = np.zeros(len(sizes)), np.ones(len(sizes)), None, None
    for step in range(12):
        w_norm = np.random.default_rng([step, 9]).uniform(0, 20, len(sizes)).astype(np.float32)
        w_norm[1] *= step != 1
        for instance in instances if known else []:
            instance.take_norms(lambda w_norm=w_norm: w_norm)
        ((gradients, results, _),) = follow(instances, 1, ranks, first=step)
        G = [np.array([each.layers[place].reshape(-1) for each in gradients], np.float64) for place in range(3)]
        updates = []
        if step < freeze:
            for place, g in enumerate(G):
                m[place] = beta1 * m[place] + (1 - beta1) * g.mean(axis=0)
                v[place] = beta2 * v[place] + (1 - beta2) * g.mean(axis=0) ** 2
                u = m[place] / (np.sqrt(v[place]) + eps)
                c = np.clip(w_norm[place] / np.linalg.norm(u), 0.01, 2) if known and w_norm[place] else 1.0
                c_avg[place] = 0.9 * c_avg[place] + 0.1 * c
                updates.append(c * u)
        else:
            if s is None:
                scales = [np.linalg.norm(each) / np.sqrt(each.size) for each in m]
                s, fresh = [np.mean(scales) / scale for scale in scales], [each.copy() for each in v]
            own = [s[place] * (beta1 * m[place] + (1 - beta1) * g) for place, g in enumerate(G)]
            found = np.split(exchange(np.concatenate(own, axis=1)), ends)
            for place in range(len(sizes)):
                last, m[place] = m[place], found[place] / s[place]
                g = (m[place] - beta1 * last) / (1 - beta1)
                fresh[place] = beta2 * fresh[place] + (1 - beta2) * g**2
                most = ((np.sqrt(v[place]) + eps) / (np.sqrt(fresh[place]) + eps)).max()
                most = min(max(most, 0.9), 4.0)
                r[place] = min(max(most, r[place] * (1 - threshold)), r[place] * (1 + threshold))
                updates.append(r[place] * c_avg[place] * m[place] / (np.sqrt(v[place]) + eps))
        for result in results:
            for layer, expected in zip(result.mean.layers, updates, strict=True):
                np.testing.assert_allclose(layer.reshape(-1), expected, rtol=2e-3, atol=1e-4)


def doubling(steps, first, every, most, *, updates_only):
    """Return the interval in each step from ``first`` on: counters of ``ZeroOneAdam.step``, which double it."""
    interval, counter, found = 1, 0, {}
    for step in range(first, steps + 1):
        found[step] = interval
        counter += step % interval == 0 or not updates_only
        if counter == every:
            counter, interval = 0, min(most, 2 * interval)
    return found


def zero_one_adam(steps, ranks, n, freeze, kappa, scaler, clipper, eps):
    """``ZeroOneAdam.step`` of DeepSpeed, of one tensor and learning rate 1: models of all ranks."""
    exchange, beta1, beta2 = CompressedAllReduce(ranks, n), 0.9, 0.999
    p, m, u = (np.zeros((ranks, n)) for _ in range(3))
    v, lrs = np.zeros(n), 0
    var_interval = doubling(steps, 1, kappa, np.inf, updates_only=True)
    local_interval = doubling(steps, freeze + 2, scaler, clipper, updates_only=False)
    for step in range(1, steps + 1):
        g = np.array([flat(gradient) for gradient in gradients_of(step - 1, ranks, ((n,),))], np.float64)
        if step <= freeze + 1:
            moves = step % var_interval[step] == 0
            v = beta2 * v + (1 - beta2) * g.mean(axis=0) ** 2 if moves else v
            m = beta1 * m + (1 - beta1) * (g.mean(axis=0) if moves else exchange(g))
            p = p - m / (np.sqrt(v) + eps)
            yield p
            continue
        if step == freeze + 2:
            exchange = CompressedAllReduce(ranks, n)
        m, lrs = beta1 * m + (1 - beta1) * g, lrs + 1
        update = m / (np.sqrt(v) + eps)
        p, u = p - update, u - update
        if step % local_interval[step] == 0:
            p = p - u
            u = exchange(u * (np.sqrt(v) + eps))
            m = np.tile(-u / lrs, (ranks, 1))
            p = p + u / (np.sqrt(v) + eps)
            u, lrs = np.zeros((ranks, n)), 0
        yield p


@pytest.mark.parametrize(("kappa", "scaler", "clipper"), [(2, 3, 4), (3, 5, 1), (1, 1, 6)])
def test_zero_one_adam_is_deepspeed_s(kappa, scaler, clipper):
    ranks, n, steps = 3, 20, 40
    options = f"var_update_scaler={kappa},local_step_scaler={scaler},local_step_clipper={clipper}"
    text = f"zero-one-adam:freeze_step=11,{options},eps=0.01"
    models = np.zeros((ranks, n))
    expected = zero_one_adam(steps, ranks, n, 11, kappa, scaler, clipper, 0.01)
    quiet = 0
    for (_, results, recording), p in zip(follow(text, steps, ranks, ((n,),)), expected, strict=True):
        models -= [flat(result.mean) for result in results]
        np.testing.assert_allclose(models, p, rtol=1e-3, atol=2e-3)
        quiet += not recording.calls
    assert (quiet > 0) == (clipper > 1)


@pytest.mark.parametrize("ranks", [2, 4])
def test_bits_that_travel(ranks):
    """n bits to the owners and n from them, and with each message a scale a tensor, or of all in 1-bit LAMB."""
    elements = (64 * ranks, 16 * ranks)
    gradient = Gradient(("a", "b"), tuple(np.ones(count, np.float32) for count in elements))
    for text in ("onebit-adam", "onebit-lamb", "zero-one-adam:local_step_clipper=1"):
        recording = run_reducer(make_reducer(text), [gradient] * ranks).recording
        sent, _ = recording_bytes(recording)
        scales = 1 if text == "onebit-lamb" else len(elements)
        assert set(sent.tolist()) == {2 * (ranks - 1) * (sum(elements) // (8 * ranks) + 4 * scales)}
        assert is_symmetric(make_reducer(text), gradient) == text.startswith("onebit")


def test_the_volume_falls_as_published():
    """By 97 % of float32 and 94 % of float16 (the paper), and by up to five times with 15 % of warm-up (DeepSpeed)."""
    gradient = Gradient(("a",), (np.ones(1 << 16, np.float32),))

    def sent(text):
        return int(recording_bytes(run_reducer(make_reducer(text), [gradient] * 4).recording)[0][0])

    one_bit, half, whole = map(sent, ("onebit-adam", "fp16", "dense"))
    assert (1 - one_bit / whole, 1 - one_bit / half) == pytest.approx((0.97, 0.94), abs=0.005)
    assert 1 / (0.15 + 0.85 * one_bit / half) == pytest.approx(5, abs=0.1)


def test_a_run_of_0_1_adam_is_of_the_longest_interval():
    made = make_reducer("zero-one-adam:freeze_step=2,local_step_scaler=3,local_step_clipper=4")
    assert (made.warmup_steps, made.period) == (2 + 1 + 3 * 2, 4)
    recording = run_reducer(made, gradients_of(0, 2)).recording
    assert [call.label for call in recording.calls] == ["codes to owners", "codes of the sums"]
    assert recording.steps == 4


def dct_matrix(n):
    """DCT-II, orthonormal: rows are cosines."""
    k, j = np.arange(n)[:, None], np.arange(n)[None]
    matrix = np.sqrt(2 / n) * np.cos(np.pi * (2 * j + 1) * k / (2 * n))
    matrix[0] /= np.sqrt(2)
    return matrix


def demo_step(momenta, h, w, k):
    """One layer, (n, m): what all ranks send of it, and the sign of the mean of each coefficient over its senders."""
    n, m = momenta[0].shape
    A, B = dct_matrix(h), dct_matrix(w)
    sent, step = [np.zeros((n, m)) for _ in momenta], np.zeros((n, m))
    for row in range(0, n, h):
        for column in range(0, m, w):
            block = slice(row, row + h), slice(column, column + w)
            total, count = np.zeros(h * w), np.zeros(h * w)
            for momentum, own in zip(momenta, sent, strict=True):
                coefficients = (A @ momentum[block] @ B.T).reshape(-1)
                kept = np.argsort(-np.abs(coefficients), kind="stable")[:k]
                alone = np.zeros(h * w)
                alone[kept] = coefficients[kept]
                total, count = total + alone, count + np.isin(np.arange(h * w), kept)
                own[block] = A.T @ alone.reshape(h, w) @ B
            mean = total / np.maximum(count, 1)
            step[block] = A.T @ mean.reshape(h, w) @ B
    return sent, step


def test_demo_sends_the_largest_cosines_of_momentum():
    ranks, decay, k = 3, 0.9, 3
    # Sides are cut by their largest divisors up to 4: 12 by 4, 10 by 2; a vector of 9 by 3; four dimensions are two.
    sides = {(12, 10): (12, 10, 4, 2), (9,): (1, 9, 1, 3), (4, 2, 3): (4, 6, 4, 3)}
    momenta = {shape: [np.zeros(sides[shape][:2]) for _ in range(ranks)] for shape in sides}
    instances = make_instances(make_reducer(f"demo:chunk=4,topk={k},decay={decay}"), ranks)
    for gradients, results, recording in follow(instances, 4, ranks, tuple(sides)):
        for place, (shape, (n, m, h, w)) in enumerate(sides.items()):
            momenta[shape] = [
                decay * old + gradient.layers[place].reshape(n, m)
                for old, gradient in zip(momenta[shape], gradients, strict=True)
            ]
            sent, step = demo_step(momenta[shape], h, w, k)
            momenta[shape] = [old - own for old, own in zip(momenta[shape], sent, strict=True)]
            found = results[0].mean.layers[place].reshape(n, m)
            clear = np.abs(step) > 1e-5
            np.testing.assert_array_equal(found[clear], np.sign(step)[clear])
            for instance, left in zip(instances, momenta[shape], strict=True):
                np.testing.assert_allclose(instance.m.layers[place].reshape(n, m), left, atol=1e-4)
        chunks = 3 * 5 + 3 + 2
        assert set(recording_bytes(recording)[0]) == {12 * k * chunks * (ranks - 1)}


def test_dion_is_power_iteration_on_momentum():
    ranks, r, mu, shape = 3, 2, 0.8, (9, 6)
    M = [np.zeros(shape) for _ in range(ranks)]
    Q, lion = None, np.zeros(5)
    text = f"dion:rank={r},mu={mu},beta1=0.9,beta2=0.7"
    for gradients, results, recording in follow(text, 5, ranks, (shape, (5,))):
        B = [old + gradient.layers[0] for old, gradient in zip(M, gradients, strict=True)]
        if Q is None:
            Q = named_generator(0, "dion", 0, 0).standard_normal((6, r), np.float32).astype(np.float64)
        P = np.linalg.qr(np.mean([each @ Q for each in B], axis=0))[0]
        R = np.mean([each.T @ P for each in B], axis=0)
        M = [each - (1 - mu) * P @ R.T for each in B]
        Q = R / (np.linalg.norm(R, axis=0) + 1e-8)
        np.testing.assert_allclose(results[0].mean.layers[0], np.sqrt(9 / 6) * P @ Q.T, atol=1e-3)
        g = np.mean([gradient.layers[1] for gradient in gradients], axis=0)
        np.testing.assert_array_equal(results[0].mean.layers[1], np.sign(0.9 * lion + 0.1 * g))
        lion = 0.7 * lion + 0.3 * g
        assert [call.elements[0] for call in recording.calls] == [5, r * 9, r * 6]


def test_zero_momentum_is_no_step():
    gradients = [Gradient(("w",), (np.zeros((4, 3), np.float32),))] * 2
    results, _ = run_group(make_instances(make_reducer("dion:rank=2"), 2), gradients)
    assert not to_dense(results[0].mean.layers[0]).any()


@pytest.mark.parametrize(
    "text", ["onebit-adam:beta1=1", "zero-one-adam:local_step_clipper=0", "demo:decay=1", "demo:topk=0", "dion:mu=-0.1"]
)
def test_options_out_of_range(text):
    with pytest.raises(OptionError, match=text.partition(":")[2].split("=")[0]):
        make_reducer(text)


@pytest.mark.parametrize(
    "text", ["onebit-adam:ef=true", "onebit-lamb:ef=true", "demo:ef=true", "dion:momentum=0.9", "diloco:ef=true"]
)
def test_there_is_no_feedback_around_an_optimizer(text):
    with pytest.raises(OptionError, match="has its own"):
        make_reducer(text)


def test_a_step_of_an_optimizer_begins_after_backward():
    within = {name for name in REDUCERS.names() if REDUCERS.get(name).about.estimates == "update"}
    assert within >= {"onebit-adam", "onebit-lamb", "zero-one-adam", "demo", "dion"}
    assert {REDUCERS.get(name).about.scope for name in within} == {"gradient"}
