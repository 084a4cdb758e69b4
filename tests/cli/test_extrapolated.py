import json

import pytest

TRACE = "synthetic:density=0.05,rows=300,width=8,dense=100"
RUN = ("run", "--topology", "single-switch", "--reducer", "union")


@pytest.mark.slow
def test_a_row_beyond_the_recorded_ranks_has_a_visible_mark(s2sim):
    asked = ("run", "--topology", "single-switch", "--reducer", "fp16")
    code, out, _ = s2sim(*asked, "--workers", "8,16", "--trace", "cnn")
    assert code == 0
    first, second, how_much = out.splitlines()[:3]
    assert first.startswith("8 workers: ")
    assert second.startswith("16 workers: ")
    assert how_much.endswith("extrapolated from toy gradients.")
    assert "Note: extrapolated: 16 workers from 8 recorded ranks; where 4 of 8 ranks predict all" in out
    scaling = out[out.index("scaling: ") :].splitlines()
    assert "16 workers," in scaling[1]
    assert "extrapolated" in scaling[2]


@pytest.mark.slow
def test_quiet_output_has_the_mark_too(s2sim):
    code, out, _ = s2sim(*RUN, "--workers", "4", "--trace", TRACE, "--scale-to", "5M", "--quiet")
    assert code == 0
    assert "4 workers, nccl on a100, extrapolated.\n" in out


@pytest.mark.slow
def test_a_model_and_json(s2sim):
    code, out, _ = s2sim(*RUN, "--workers", "4", "--trace", TRACE, "--model", "lstm", "--json", "-")
    assert code == 0
    value = json.loads(out)
    assert value["spec"]["model"] == "lstm"
    assert value["results"][0]["extrapolated"]["to_parameters"] == 47_714_169


def test_wrong_sizes_are_told_in_one_line(fails):
    assert "--scale-to 5X is not a number of parameters" in fails(*RUN, "--workers", "2", "--scale-to", "5X")
    assert "give one" in fails(*RUN, "--workers", "2", "--scale-to", "5M", "--model", "lstm")


@pytest.mark.slow
def test_show_tells_the_law(s2sim):
    code, out, _ = s2sim("trace", "show", "ncf")
    assert code == 0
    law = out[out.index("law for more ranks, fitted to 64") :]
    assert "1024 ranks" in law
    assert "from 32" in law
    value = json.loads(s2sim("trace", "show", "ncf", "--json", "-")[1])["law"]
    assert value["ranks"] == 64
    assert set(value["layers"]) == {"embed_user.weight", "embed_item.weight"}
    assert abs(value["layers"]["embed_item.weight"]["errors"]["32"]) < 0.02
    assert json.loads(s2sim("trace", "show", "synthetic", "--json", "-")[1])["law"] is None
    assert "law for more ranks" not in s2sim("trace", "show", "cnn")[1]
