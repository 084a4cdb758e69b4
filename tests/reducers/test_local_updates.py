"""DiLoCo, SlowMo, Streaming DiLoCo and Downpour against their algorithms on models, written out."""

import numpy as np
import pytest

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_steps, run_reducer
from s2sim.reducers.script import recording_bytes

RANKS = 3
SHAPES = ((4, 3), (5,), (6,), (2, 2))


def steps_of(count, ranks=RANKS, shapes=SHAPES):
    return [
        [
            Gradient(
                tuple(f"layer {place}" for place in range(len(shapes))),
                tuple(
                    np.random.default_rng([step, rank]).standard_normal(shape).astype(np.float32) for shape in shapes
                ),
            )
            for rank in range(ranks)
        ]
        for step in range(count)
    ]


def models(text, steps):
    """Yield all ranks' models, layer by layer, as they are after each step, and the recording of it."""
    instances = make_instances(make_reducer(text), len(steps[0]))
    weights = [[np.zeros(layer.shape) for layer in gradient.layers] for gradient in steps[0]]
    for number, gradients in enumerate(steps):
        results, recording = run_group(instances, gradients, step=number)
        for own, result in zip(weights, results, strict=True):
            own[:] = list(map(np.subtract, own, result.mean.layers))
        yield weights, recording


def naive_diloco(steps, h, rate, momentum, fragments=1, delay=0, mix=0.0):
    """Streaming DiLoCo, algorithm 2, with whole models; with one fragment that is used at once it is algorithm 1."""
    layers = range(len(steps[0][0].layers))
    local = [[np.zeros(layer.shape) for layer in gradient.layers] for gradient in steps[0]]
    shared = [np.zeros(layer.shape) for layer in steps[0][0].layers]
    buffers = [None for _ in layers]
    coming = {}
    for t, gradients in enumerate(steps, 1):
        for own, gradient in zip(local, gradients, strict=True):
            own[:] = list(map(np.subtract, own, gradient.layers))
        for p in range(fragments):
            offset = h * (p + 1) // fragments
            for layer in layers[p::fragments]:
                if t >= offset and (t - offset) % h == 0:
                    coming[layer] = np.mean([shared[layer] - own[layer] for own in local], axis=0)
                if t - delay >= offset and (t - delay - offset) % h == 0:
                    # As PyTorch's SGD with nesterov=True has it.
                    d = coming.pop(layer)
                    buffers[layer] = d if buffers[layer] is None else momentum * buffers[layer] + d
                    shared[layer] = shared[layer] - rate * (d + momentum * buffers[layer])
                    for own in local:
                        own[layer] = mix * own[layer] + (1 - mix) * shared[layer]
        yield local


@pytest.mark.parametrize(
    ("h", "more"),
    [
        (1, {}),
        (3, {}),
        (4, {"fragments": 2}),
        (6, {"fragments": 3, "delay": 1, "mix": 0.5}),
        (5, {"fragments": 4, "mix": 0.25}),
        (7, {"delay": 4}),
    ],
)
def test_it_is_the_algorithm_on_models(h, more):
    steps = steps_of(3 * h + 3)
    text = ",".join([f"diloco:h={h},rate=0.6,momentum=0.8", *(f"{key}={value}" for key, value in more.items())])
    expected = naive_diloco(steps, h, 0.6, 0.8, **more)
    for (found, recording), wanted in zip(models(text, steps), expected, strict=True):
        for own, other in zip(found, wanted, strict=True):
            for weight, right in zip(own, other, strict=True):
                np.testing.assert_allclose(weight, right, atol=1e-4)
        assert {call.kind for call in recording.calls} <= {"all_reduce"}


def test_slow_momentum_is_the_algorithm_on_models():
    tau, alpha, beta = 4, 0.5, 0.8
    steps = steps_of(3 * tau, shapes=((20,),))
    x, u = np.zeros(20), np.zeros(20)
    local = np.tile(x, (RANKS, 1))
    for number, (gradients, (found, _)) in enumerate(
        zip(steps, models(f"slowmo:h={tau},rate={alpha},momentum={beta}", steps), strict=True), 1
    ):
        local -= [gradient.layers[0] for gradient in gradients]
        if number % tau == 0:
            u = beta * u + (x - local.mean(axis=0))
            x = x - alpha * u
            local[:] = x
        np.testing.assert_allclose([own[0] for own in found], local, atol=1e-5)


def test_without_an_outer_optimizer_it_is_local_sgd():
    steps = steps_of(6, shapes=((20,),))
    arrays = [[gradient.layers[0] for gradient in gradients] for gradients in steps]
    shared = np.zeros(20)
    for number, (found, result) in enumerate(
        zip(models("diloco:h=3,rate=1,momentum=0", steps), reduce_steps("dense:h=3", arrays), strict=True)
    ):
        shared -= result.values[0]
        if number % 3 == 2:
            np.testing.assert_allclose([own[0] for own in found[0]], [shared] * RANKS, atol=1e-5)


def test_bytes_are_those_of_one_exchange_in_h_steps():
    ranks, n = 4, 64 * 16
    gradient = Gradient(("a", "b"), (np.ones(n // 2, np.float32),) * 2)
    for text, a_step in (
        ("diloco:h=8", 8 * n * (ranks - 1) / ranks / 8),
        # Four bits and a byte of scale for 32, to owners and back.
        ("streaming-diloco:h=8,fragments=2,delay=1", 2 * n * (1 / 2 + 1 / 32) * (ranks - 1) / ranks / 8),
    ):
        recording = run_reducer(make_reducer(text), [gradient] * ranks).recording
        assert recording.steps == 8
        assert set(recording_bytes(recording)[0].tolist()) == {8 * a_step}
        # Models have moved in float32 whatever the type of gradients.
        of_bf16 = run_reducer(make_reducer(text).with_dtype("bf16"), [gradient] * ranks).recording
        assert recording_bytes(of_bf16)[0].tolist() == recording_bytes(recording)[0].tolist()
        largest = max(sum(call.bytes_by_rank[:1]) for call in recording.calls)
        assert largest <= (4 * n if text.startswith("diloco") else n // 4 + n // 64)


@pytest.mark.parametrize(
    "options", ["h=4,fragments=5", "h=4,fragments=4,delay=1", "mix=1", "momentum=1", "rate=0", "h=0", "wire=e1m2"]
)
def test_what_cannot_be(options):
    with pytest.raises(OptionError):
        make_reducer(f"diloco:{options}")


@pytest.mark.parametrize("servers", [1, 2, 3, 9])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_downpour_steps_by_gradients_as_they_come(servers, ranks):
    steps = steps_of(4, ranks)
    server, fetched = np.zeros(sum(int(np.prod(shape)) for shape in SHAPES)), {}
    served, ages, versions = 0, set(), {}
    for gradients, (found, _) in zip(steps, models(f"downpour:servers={servers}", steps), strict=True):
        for worker, gradient in enumerate(gradients):
            server = server - np.concatenate([layer.reshape(-1) for layer in gradient.layers]) / ranks
            ages |= {served - versions[worker]} if worker in versions else set()
            served += 1
            fetched[worker], versions[worker] = server, served
        for worker, own in enumerate(found):
            np.testing.assert_allclose(np.concatenate([each.reshape(-1) for each in own]), fetched[worker], atol=1e-5)
    assert ages == {ranks - 1}
    (note,) = make_reducer("downpour").placed((0,) * ranks).notes()
    assert f"{ranks - 1} steps of other ranks old" in note


def test_a_queue_at_the_server_is_served_one_after_the_other():
    n, ranks = 64, 4
    recording = run_reducer(make_reducer("downpour"), [Gradient(("w",), (np.ones(n, np.float32),))] * ranks).recording
    sent, received = recording_bytes(recording)
    message = 4 * n
    assert sent.tolist() == received.tolist() == [(ranks - 1) * message, *[message] * (ranks - 1)]
