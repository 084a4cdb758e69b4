"""Results are read back from their JSON as they were."""

import json
from dataclasses import replace

import pytest

import s2sim
from s2sim.errors import S2SimError


@pytest.fixture(scope="module")
def result():
    return s2sim.run("fat-tree", workers=4, trace="ncf", reducers=["fp16", "s2"])


def test_run_is_loaded_from_text_and_file(result, tmp_path):
    text = json.dumps(result.to_json())
    (tmp_path / "result.json").write_text(text)
    assert type(result).load(text) == type(result).load(tmp_path / "result.json") == result
    assert str(type(result).load(text)) == str(result)


@pytest.mark.slow
def test_an_iteration_is_loaded_with_the_batches_at_which_it_pays():
    result = s2sim.run("leaf-spine", workers=4, profile="resnet-18", reducers=["fp16"], thorough=False)
    assert result.verdict.pays_over[0].spans
    assert type(result).load(json.dumps(result.to_json())) == result


def test_the_repr_of_a_result_is_one_line(result):
    assert repr(result) == f"<s2sim run: {result.verdict.lines[0]}>"
    few = replace(result.verdict, workers=2, lines=("use nothing.",))
    several = replace(result, verdicts=(few, result.verdict))
    assert repr(several) == f"<s2sim run: 4 workers: {result.verdict.lines[0]}>"


@pytest.mark.parametrize(
    "more", [{}, {"cross_check": True}, {"library": "nccl"}, {"faults": ("slow-rank:rank=1,delay=1ms",)}]
)
def test_collective_is_loaded(more):
    result = s2sim.run_collective("all_reduce", "fat-tree", workers=8, size_bytes=2**20, **more)
    assert type(result).load(json.dumps(result.to_json())) == result


def test_flows_are_loaded(tmp_path):
    (tmp_path / "flows.csv").write_text("start_s,src,dst,bytes\n0,0,1,1000000\n1e-4,2,0,500000\n")
    result = s2sim.run_flows(tmp_path / "flows.csv", "fat-tree", cross_check=True)
    again = type(result).load(json.dumps(result.to_json()))
    assert again.to_json() == result.to_json()
    assert again.to_csv() == result.to_csv()


@pytest.mark.parametrize("text", ["{", "{}", '{"spec": 1, "rows": []}', '{"spec": {}, "results": [3]}'])
def test_what_is_no_result_is_refused(result, text):
    with pytest.raises(S2SimError, match="is no result of s2sim run"):
        type(result).load(text)
