"""Federated averaging against the algorithm written out."""

import numpy as np
import pytest

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once
from s2sim.reducers.script import Work, recording_bytes

N = 12


def rounds_of(count, ranks):
    random = np.random.default_rng(1)
    return [[random.standard_normal(N).astype(np.float32) for _ in range(ranks)] for _ in range(count)]


def follow(text, rounds):
    instances = make_instances(make_reducer(text), len(rounds[0]))
    for number, arrays in enumerate(rounds):
        yield run_group(instances, [Gradient(("w",), (array,)) for array in arrays], step=number)


def chosen_in(recording):
    """Return who takes part in the exchange of updates, and rank 0, the server, only if it adds one of its own."""
    others = [rank for rank in recording.calls[0].ranks or range(len(recording.scripts)) if rank]
    added = sum(isinstance(step, Work) for step in recording.scripts[0])
    return [0] * (added > len(others)) + others


@pytest.mark.parametrize("download", ["next", "all"])
@pytest.mark.parametrize(("ranks", "fraction", "count"), [(1, 0.1, 1), (8, 0.25, 2), (7, 0.5, 4), (5, 1, 5)])
def test_rounds_are_those_of_the_algorithm(download, ranks, fraction, count):
    rounds = rounds_of(6, ranks)
    server, models = np.zeros(N), np.zeros((ranks, N))
    ran = list(follow(f"fedavg:fraction={fraction},download={download}", rounds))
    chosen = [chosen_in(recording) for _, recording in ran]
    assert {len(clients) for clients in chosen} == {count}
    for number, (arrays, (results, recording)) in enumerate(zip(rounds, ran, strict=True)):
        server = server + np.mean([arrays[client] for client in chosen[number]], axis=0)
        for index, result in enumerate(results):
            models[index] += result.mean.layers[0]
        if number + 1 == len(rounds):
            break
        knows = range(ranks) if download == "all" else {0, *chosen[number + 1]}
        for client in knows:
            assert models[client] == pytest.approx(server, abs=1e-5)
        sent, _ = recording_bytes(recording)
        assert sent[0] == 4 * N * len(set(knows) - {0})
        assert [sent[client] for client in range(1, ranks)] == [
            4 * N * (client in chosen[number]) for client in range(1, ranks)
        ]


def test_not_all_rounds_choose_the_same():
    chosen = [tuple(chosen_in(recording)) for _, recording in follow("fedavg:fraction=0.2", rounds_of(8, 10))]
    assert len(set(chosen)) > 1


def test_updates_weigh_as_many_samples_as_they_are_of(tmp_path):
    samples = tmp_path / "samples.txt"
    samples.write_text("1 3\n")
    arrays = [np.array([1.0, 0.0], np.float32), np.array([0.0, 1.0], np.float32)]
    assert reduce_once(f"fedavg:fraction=1,samples={samples}", arrays).values[1] == pytest.approx([0.25, 0.75])
    assert reduce_once("fedavg:fraction=1", arrays).values[0] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("text", ["1 2 3", "1 -2", "1 nan", "a b"])
def test_samples_must_fit(tmp_path, text):
    samples = tmp_path / "samples.txt"
    samples.write_text(text)
    with pytest.raises(OptionError, match="samples"):
        reduce_once(f"fedavg:samples={samples}", [np.ones(2, np.float32)] * 2)


@pytest.mark.parametrize("asked", ["ef=true", "ef=ef21", "momentum=0.9", "gmc=0.5"])
def test_feedback_around_it_is_refused(asked):
    with pytest.raises(OptionError, match="but not asked for: leave it out"):
        make_reducer(f"fedavg:fraction=0.2,download=all,{asked}")
