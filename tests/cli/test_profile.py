import json

import pytest

from s2sim.profiles.read import load_profile, profile_names


def test_a_profile_is_shown_with_units_and_origins(s2sim):
    code, out, err = s2sim("profile", "show", "resnet-50")
    assert (code, err) == (0, "")
    for text in ("25.56 M parameters", "32 x image of 224 x 224", "63.53 ms", "samples/s", "measured: github.com"):
        assert text in out
    lines = [line.split() for line in out.splitlines()]
    assert ["50%", "of", "the", "bytes"] in [line[:4] for line in lines]
    assert ["forward", "0.5", "[estimated]"] in [line[:3] for line in lines]


def test_json_has_every_tensor_and_number(s2sim, tmp_path):
    target = tmp_path / "gpt2.json"
    code, out, _ = s2sim("profile", "show", "gpt2", "--batch", 8, "--json", target)
    assert code == 0
    assert "estimated: " in out
    value = json.loads(target.read_text())
    assert (value["batch"], value["kind"], len(value["tensors"])) == (8, "estimated", 148)
    assert value["tensors"][-1]["ready_s"] == pytest.approx(value["backward_s"])
    assert value["tensors"][-1]["ready_bytes"] == value["gradient_bytes"] == 4 * 124_439_808
    assert value["samples_per_s"] == pytest.approx(8 / value["compute_s"])
    assert value["ready"][-1] == {"share": 1.0, "ready_s": value["backward_s"]}
    assert {item["field"] for item in value["numbers"]} >= {"batch", "forward", "memory_bound", "optimizer"}
    for item in value["numbers"]:
        assert item["source"]


def test_json_alone_on_standard_output(s2sim):
    code, out, err = s2sim("profile", "show", "vgg-16", "--gpu", "a100", "--json", "-")
    assert (code, err) == (0, "")
    assert json.loads(out)["gpu"] == "a100"


def test_a_picture_is_drawn(s2sim, tmp_path):
    target = tmp_path / "vgg.png"
    assert s2sim("profile", "show", "vgg-16", "--png", target)[0] == 0
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_profiles_are_listed_by_both_commands(s2sim):
    code, out, err = s2sim("list", "profiles")
    assert (code, err) == (0, "")
    assert out == s2sim("list", "profiles")[1]
    assert [line.split()[0] for line in out.splitlines()[1:]] == profile_names()
    listed = json.loads(s2sim("list", "profiles", "--json", "-")[1])["profiles"]
    assert [item["name"] for item in listed] == profile_names()


def test_mistakes_are_one_line(fails, tmp_path):
    assert "did you mean 'resnet-50'" in fails("profile", "show", "resnet50")
    assert "there is no file" in fails("profile", "show", tmp_path / "none.toml")
    empty = tmp_path / "empty.toml"
    empty.write_text("")
    assert "is empty" in fails("profile", "show", empty)
    assert "unknown GPU" in fails("profile", "show", "gpt2", "--gpu", "v1000")
    assert "--batch" in fails("profile", "show", "gpt2", "--batch", "0")
    assert "must end in" in fails("profile", "show", "gpt2", "--png", tmp_path / "gpt2.gif")


def test_what_is_shown_is_what_a_run_takes(s2sim):
    value = json.loads(s2sim("profile", "show", "bert-base", "--json", "-")[1])
    profile = load_profile("bert-base")
    assert value["forward_s"] == profile.forward_ps / 1e12
    assert [item["name"] for item in value["tensors"]] == [tensor.name for tensor in profile.tensors]
