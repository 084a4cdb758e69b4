"""Shipped traces: the manifest against figures computed here, naively, from the raw files."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from s2sim.files import data_directory
from s2sim.gradients.read_trace import open_trace, shipped_traces

NAMES = ["cnn", "lstm-lm", "lstm-lm-steps", "ncf"]
EXTENT = {"cnn": (8, 1), "lstm-lm": (64, 1), "lstm-lm-steps": (4, 20), "ncf": (64, 1)}
SPARSE = {
    "cnn": set(),
    "lstm-lm": {"encoder.weight", "decoder.weight"},
    "lstm-lm-steps": {"encoder.weight", "decoder.weight"},
    "ncf": {"embed_user.weight", "embed_item.weight"},
}


def _raw(name):
    """The manifest as plain JSON, and per (step, rank) a dict of layer to (support, stored values in float64)."""
    root = data_directory("traces") / name
    manifest = json.loads((root / "manifest.json").read_text("utf-8"))
    loaded = {}
    for step in range(manifest["steps"]):
        for rank in range(manifest["world_size"]):
            tensors = load_file(root / f"step-{step:04d}" / f"rank-{rank:04d}.safetensors")
            layers = {}
            for index, layer in enumerate(manifest["layers"]):
                values = tensors[f"{layer['name']}/values"].astype(np.float64) * float(tensors["scales"][index])
                if layer["sparse"]:
                    support = frozenset(tensors[f"{layer['name']}/rows"].tolist())
                    count = layer["shape"][0]
                else:
                    support = frozenset(np.flatnonzero(values).tolist())
                    count = values.size
                layers[layer["name"]] = (support, count, values.ravel())
            loaded[step, rank] = layers
    return manifest, loaded


def _naive_tail(values):
    if not values.any():
        return None, None
    squares = sorted((values**2).tolist(), reverse=True)
    energy = sum(squares[: max(1, len(squares) // 100)]) / sum(squares)
    if values.std() == 0:
        return energy, None
    return energy, float((((values - values.mean()) / values.std()) ** 4).mean())


def _check_tail(claimed, values_of_each_gradient):
    tails = [_naive_tail(values) for values in values_of_each_gradient]
    for index, key in enumerate(("top_percent_energy", "kurtosis")):
        known = [tail[index] for tail in tails if tail[index] is not None]
        assert claimed[key] == (pytest.approx(np.mean(known), rel=1e-6) if known else None)


@pytest.mark.parametrize(
    "name", ["cnn", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name != "cnn")]
)
def test_manifest_statistics_are_those_of_the_files(name):
    manifest, loaded = _raw(name)
    statistics, world, steps = manifest["statistics"], manifest["world_size"], manifest["steps"]
    ranks = statistics["union_ranks"]
    assert ranks == [*[2**k for k in range(10) if 2**k < world], world]
    sizes = {layer["name"]: int(np.prod(layer["shape"])) for layer in manifest["layers"]}
    density, union = dict.fromkeys(sizes), dict.fromkeys(sizes)
    for layer in sizes:
        count = loaded[0, 0][layer][1]
        density[layer] = np.mean([len(loaded[key][layer][0]) for key in loaded]) / count
        union[layer] = [
            np.mean([len(set().union(*(loaded[s, r][layer][0] for r in range(k)))) for s in range(steps)]) / count
            for k in ranks
        ]
        claimed = statistics["layers"][layer]
        assert claimed["density"] == pytest.approx(density[layer], rel=1e-9)
        assert claimed["union_density"] == pytest.approx(union[layer], rel=1e-9)
        _check_tail(claimed, [gradient[layer][2] for gradient in loaded.values()])
    total = sum(sizes.values())
    whole = statistics["whole"]
    assert whole["density"] == pytest.approx(sum(density[n] * sizes[n] for n in sizes) / total, rel=1e-9)
    expected = [sum(union[n][i] * sizes[n] for n in sizes) / total for i in range(len(ranks))]
    assert whole["union_density"] == pytest.approx(expected, rel=1e-9)
    _check_tail(whole, [np.concatenate([layer[2] for layer in g.values()]) for g in loaded.values()])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_shipped_trace_is_what_was_promised(name):
    trace = open_trace(name)
    manifest = trace.manifest
    assert (trace.world_size, trace.steps) == EXTENT[name]
    assert {layer.name for layer in manifest.layers if layer.sparse} == SPARSE[name]
    assert manifest.kind == "recorded"
    assert all(layer.storage_error < 1e-3 for layer in manifest.layers)
    assert manifest.origin.command.startswith("s2sim trace record ")
    assert manifest.origin.licence
    text = (trace.directory / "manifest.json").read_text("utf-8")
    assert not any(word in text for word in ("/home", "/root", "/tmp", "\\"))
    trace.verify()


def test_language_model_has_about_2_4_million_parameters():
    assert open_trace("lstm-lm").manifest.parameters == pytest.approx(2.4e6, rel=0.05)


def test_shipped_traces_fit_their_budget_and_hold_nothing_else():
    root = data_directory("traces")
    files = [path for path in root.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 35e6
    named = {root / "README.md", root / "LICENSES.md"}
    for name in NAMES:
        named |= {root / name / "manifest.json", *(root / name / file for file in open_trace(name).manifest.files)}
    assert set(files) == named


def test_registry_lists_every_shipped_trace_with_its_source():
    rows = {name: (summary, source) for name, summary, source in shipped_traces()}
    assert sorted(rows) == NAMES
    assert "2.4 M parameters; 64 ranks x 1 step" in rows["lstm-lm"][0]
    assert "WikiText-2" in rows["lstm-lm"][1]
    assert "CC BY-SA 3.0" in rows["lstm-lm"][1]


def test_weights_move_between_recorded_steps_and_mini_batches_differ():
    trace = open_trace("lstm-lm-steps")
    dense = [trace.gradient(step, 0).layers[1] for step in (0, 19)]
    assert not np.array_equal(*dense)
    rows = [set(trace.gradient(0, rank).layers[0].rows.tolist()) for rank in (0, 1)]
    assert rows[0] != rows[1]
