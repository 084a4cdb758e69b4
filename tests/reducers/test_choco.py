"""CHOCO-SGD against the algorithm with all neighbours' copies, written out."""

from contextlib import nullcontext

import numpy as np
import pytest

from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.script import recording_bytes
from s2sim.reducers.systems.model_averaging import graph_weights, mixing_matrix


def compress(name, x, density):
    if name == "none":
        return x
    if name == "sign":
        return np.where(x >= 0, 1, -1) * np.abs(x).mean(dtype=np.float32)
    kept = np.zeros_like(x)
    chosen = select_top_k(x, elements_kept(len(x), density))
    kept[chosen] = x[chosen]
    return kept


def steps_of(count, ranks, n=40):
    random = np.random.default_rng(3)
    return [[random.standard_normal(n).astype(np.float32) for _ in range(ranks)] for _ in range(count)]


def follow(text, steps):
    instances = make_instances(make_reducer(text), len(steps[0]))
    for number, arrays in enumerate(steps):
        gradients = [Gradient(("w",), (array,)) for array in arrays]
        yield run_group(instances, gradients, step=number)


@pytest.mark.parametrize("compressor", ["topk", "sign", "none"])
@pytest.mark.parametrize("graph", ["ring", "torus", "exponential", "complete"])
def test_it_is_the_algorithm_with_a_copy_of_every_neighbour(graph, compressor):
    ranks, gamma = 6, 0.3
    weights = graph_weights(graph, ranks)
    steps = steps_of(4, ranks)
    models = np.zeros((ranks, 40), np.float32)
    copies = np.zeros((ranks, 40), np.float32)
    density = ",density=0.1" if compressor == "topk" else ""
    text = f"choco:graph={graph},compressor={compressor},gamma={gamma}{density}"
    for arrays, (results, _) in zip(steps, follow(text, steps), strict=True):
        before = models.copy()
        models = models + np.array(arrays)
        copies = copies + [compress(compressor, x - c, 0.1) for x, c in zip(models, copies, strict=True)]
        models = models + gamma * (weights @ copies - copies)
        for index, result in enumerate(results):
            assert result.mean.layers[0] == pytest.approx(models[index] - before[index], abs=2e-5)


def test_the_average_of_all_models_is_that_of_plain_sgd():
    steps = steps_of(20, 5)
    total = np.zeros(40)
    for arrays, (results, _) in zip(steps, follow("choco:density=0.05", steps), strict=True):
        total += np.mean([result.mean.layers[0] for result in results], axis=0) - np.mean(arrays, axis=0)
    assert np.abs(total).max() < 1e-4


@pytest.mark.slow
def test_models_come_together_when_gradients_end():
    steps = steps_of(1, 8) + [[np.zeros(40, np.float32)] * 8] * 300
    models = np.zeros((8, 40))
    spread = []
    for results, _ in follow("choco:gamma=0.2,density=0.2", steps):
        models += [result.mean.layers[0] for result in results]
        spread.append(np.linalg.norm(models - models.mean(axis=0)))
    assert spread[-1] < 0.05 * spread[0]


def test_a_complete_graph_without_compression_averages():
    steps = steps_of(1, 4)
    ((results, _),) = follow("choco:graph=complete,compressor=none,gamma=1", steps)
    for result in results:
        assert result.mean.layers[0] == pytest.approx(np.mean(steps[0], axis=0), abs=1e-6)


def test_bytes_are_those_of_a_message_to_each_neighbour():
    for graph, neighbours in (("ring", 2), ("complete", 7), ("exponential", 5)):
        ((_, recording),) = follow(f"choco:graph={graph},density=0.1", steps_of(1, 8))
        sent, received = recording_bytes(recording)
        assert set(sent) == set(received) == {neighbours * 8 * 4}


@pytest.mark.parametrize("graph", ["ring", "torus", "exponential", "complete"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 16])
def test_weights_are_symmetric_and_doubly_stochastic(graph, ranks):
    weights = graph_weights(graph, ranks)
    assert np.array_equal(weights, weights.T)
    assert (weights >= 0).all()
    assert weights.sum(axis=0) == pytest.approx(np.ones(ranks))


def test_a_mixing_matrix_is_read_and_checked(tmp_path):
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text("0.5 0.5\n0.5, 0.5\n")
    assert mixing_matrix("ring", str(good), 2).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    with pytest.raises(OptionError, match="for 2 ranks: there are 3"):
        mixing_matrix("ring", str(good), 3)
    for text, why in (("1 0\n1 0\n", "symmetric"), ("1 0\n", "1 rows and 2 columns"), ("a b\n", "no table")):
        bad.write_text(text)
        with pytest.raises(OptionError, match=why):
            mixing_matrix("ring", str(bad), 2)


@pytest.mark.parametrize("text", ["compressor=sign,density=0.1", "weights=mixing.txt,graph=torus"])
def test_what_an_option_leaves_idle_is_refused(text):
    with pytest.raises(OptionError, match="changes nothing"):
        make_reducer(f"choco:{text}")


def test_nodes_of_unlike_sizes_are_refused_where_nodes_keep_models():
    gradients = [Gradient(("w",), (array,)) for array in steps_of(1, 6)[0]]
    for numbers, refused in (([0, 0, 0, 1, 1, 1], False), ([0, 0, 0, 0, 1, 1], True)):
        instances = make_instances(make_reducer("choco:hierarchical=true").placed(numbers), 6)
        with pytest.raises(OptionError, match="2 nodes of 6 ranks hold from 2 to 4") if refused else nullcontext():
            run_group(instances, gradients, step=0)
