"""A run in three calls says what a run says."""

import pytest

import s2sim
from s2sim.errors import OptionError

OPTIONS = {"workers": (2, 8), "trace": "ncf", "reducers": ("union", "fp16"), "seed": 1}


def run(topology, **options):
    return s2sim.run(topology, **OPTIONS, **options, break_even=False, thorough=False).to_json()


@pytest.mark.slow
def test_three_calls_are_a_run():
    recordings = s2sim.record("fat-tree", **OPTIONS)
    assert s2sim.compare(s2sim.predict(recordings)).to_json() == run("fat-tree")
    elsewhere = s2sim.predict(recordings, topology="tcp-10g", max_error=0.1, library="ideal")
    assert s2sim.compare(elsewhere).to_json() == run("tcp-10g", max_error=0.1, library="ideal")
    assert repr(recordings) == "<s2sim recordings: dense, union, fp16 on 2, 8 workers>"
    assert repr(elsewhere) == "<s2sim predictions: 6 rows on tcp-10g>"


@pytest.mark.parametrize("change", [{"trace": "cnn"}, {"seed": 2}, {"workers": (2, 4)}, {"reducers": ("union",)}])
def test_other_recordings_are_not_predicted(change):
    recordings = s2sim.record("fat-tree", **OPTIONS)
    with pytest.raises(OptionError, match=r"s2sim.record those first"):
        s2sim.predict(recordings, **change)


@pytest.mark.parametrize("change", [{"steps": 2}, {"instead": ("nic.count=2",)}])
def test_questions_of_more_than_one_recording_are_refused(change):
    options = OPTIONS | {"trace": "synthetic:steps=2", "reducers": ("topk",)}
    with pytest.raises(OptionError, match=r"s2sim.run"):
        s2sim.record("fat-tree", **options, **change)
    recordings = s2sim.record("fat-tree", **options)
    with pytest.raises(OptionError, match=r"s2sim.run"):
        s2sim.predict(recordings, **change)


def test_a_reducer_that_cannot_be_extrapolated_is_refused_as_in_a_run(tmp_path):
    # Samples of clients are for one number of ranks, and the check has fewer.
    samples = tmp_path / "samples.txt"
    samples.write_text(" ".join(["1"] * 64))
    options = {"workers": 64, "trace": "cnn", "reducers": ("topk", f"fedavg:samples={samples}")}
    recordings = s2sim.record("fat-tree", **options)
    result = s2sim.compare(s2sim.predict(recordings))
    assert [each.reducer for each in result.refused] == [options["reducers"][1]]
    assert result.to_json() == s2sim.run("fat-tree", **options, break_even=False, thorough=False).to_json()


def test_nodes_count_where_a_reducer_asks_for_them():
    recordings = s2sim.record("tcp-10g", workers=8, trace="ncf", reducers=("node-union",))
    with pytest.raises(OptionError, match="nodes"):
        s2sim.predict(recordings, overrides=("node.gpus=2",))
