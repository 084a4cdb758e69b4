"""Where GPUs share nodes, a comparison says that nothing in it sums inside them first."""

import pytest

from s2sim.experiment.run import run

TOLD = "sums inside nodes first"


@pytest.mark.parametrize(
    ("topology", "workers", "reducers", "told"),
    [
        ("fat-tree", 8, ("union",), True),
        ("fat-tree", 8, ("union", "node-union"), False),
        ("fat-tree", 8, ("union", "topk:hierarchical=true"), False),
        pytest.param("fat-tree", 8, ("fp16",), False, marks=pytest.mark.slow),
        pytest.param("fat-tree", 4, ("union",), False, marks=pytest.mark.slow),
        ("single-switch", 4, ("union",), False),
    ],
)
def test_it_is_told_where_it_could_matter(topology, workers, reducers, told):
    result = run(topology, workers=workers, trace="lstm-lm", reducers=reducers, break_even=False, thorough=False)
    assert any(TOLD in note for note in result.notes) == told
