"""What codecs cost: closed forms of idealised kernels, of published code, and of a framework."""

from dataclasses import replace

import pytest

from s2sim import RunSpec, run
from s2sim.cli.main import main
from s2sim.experiment.codec_costs import (
    OPERATION_PS,
    TOPK_NS,
    CodecCosts,
    charge_codec,
    codec_costs,
    implementation_of,
    implementations,
)
from s2sim.experiment.run import resolve_checked
from s2sim.experiment.spec import CODEC_BASES
from s2sim.reducers.registry import make_reducer, reducer_names
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import Work
from s2sim.simulation.plan import work_ps
from s2sim.testing.reducer_properties import example_gradients
from s2sim.topology.hardware import load_gpu
from s2sim.units import PS_PER_S

GPU = load_gpu("rtx-2080")
SIZES = [500, 300, 200]
SPEC = RunSpec.of("tcp-10g", workers=(4,), trace="lstm-lm", gpu="rtx-2080")


def rows_of(basis, *reducers, **more):
    """Return the rows of reducers that are charged on a basis."""
    spec = replace(SPEC, reducers=reducers, codec_as=basis, **more)
    return {row.reducer: row for row in run(spec=spec, break_even=False, thorough=False).results}


def spent_ps(recording):
    return sum(work_ps(step, GPU) for step in recording.scripts[0] if isinstance(step, Work))


def test_what_is_charged_beside_kernels_is_a_closed_form():
    reducer = make_reducer("topk:density=0.1")
    recording = run_reducer(reducer, example_gradients(2), seed=0).recording
    assert charge_codec(recording, codec_costs(reducer, "kernels"), SIZES, GPU) is recording
    operations = implementations()["topk"].operations * 3 * OPERATION_PS
    of_framework, of_published = (
        charge_codec(recording, codec_costs(reducer, basis), SIZES, GPU) for basis in ("framework", "published")
    )
    assert spent_ps(of_framework) - spent_ps(recording) == operations
    assert spent_ps(of_published) - spent_ps(recording) == operations + round(1000 * TOPK_NS * 1000)
    # Who has no codec has nothing to start.
    dense = run_reducer(make_reducer("dense"), example_gradients(2), seed=0).recording
    assert charge_codec(dense, CodecCosts(loop_ps=10**9), SIZES, GPU).scripts == dense.scripts


def test_counted_passes_stand_for_the_kernels_bytes_of_a_phase():
    recording = run_reducer(make_reducer("int8"), example_gradients(2), seed=0).recording
    charged = charge_codec(recording, CodecCosts(encode_passes=27, decode_passes=3), [500], GPU)
    moved = {
        phase: sum(step.bytes_moved for step in charged.scripts[0] if isinstance(step, Work) and step.phase == phase)
        for phase in ("encode", "decode")
    }
    assert moved == {"encode": 27 * 4 * 500, "decode": 3 * 4 * 500}


def test_the_authors_of_s2_left_measured_passes():
    option = "s2:preset=authors-gnmt,ef=false"
    found = {basis: rows_of(basis, option)[option] for basis in CODEC_BASES}
    published = found["published"]
    ratio = published.encode_work_s / published.decode_work_s
    assert ratio == pytest.approx(GPU.dense_encode_passes / GPU.dense_decode_passes, rel=1e-6)
    assert published.encode_work_s > found["kernels"].encode_work_s
    assert found["framework"].encode_work_s > found["kernels"].encode_work_s


@pytest.mark.slow
@pytest.mark.parametrize("reducer", ["topk:density=0.01", "powersgd", "qsgd", "union"])
def test_costs_come_on_top_of_kernels_and_change_nothing_else(reducer):
    found = [rows_of(basis, reducer)[reducer] for basis in ("kernels", "framework", "published")]
    works = [row.encode_work_s + row.decode_work_s for row in found]
    assert works[0] < works[1] <= works[2]
    assert len({(row.bytes_sent_per_rank, row.error.relative_l2, row.rounds) for row in found}) == 1


@pytest.mark.slow
def test_a_loop_of_the_host_is_in_the_phase_and_in_the_iteration():
    loops = (None, "1ms")
    rows = [
        rows_of("kernels", "fp16", profile="resnet-50", discipline="after-backward", host_loop=loop)["fp16"]
        for loop in loops
    ]
    tensors = 161
    for times in ([row.time_s.total for row in rows], [row.iteration_s for row in rows]):
        assert times[1] - times[0] == pytest.approx(2e-3 * tensors, rel=1e-6)


def test_what_is_not_compressed_costs_no_codec():
    """The rows of two tables of six layers are, and of PowerSGD the matrices that it makes smaller."""
    scenario = resolve_checked(replace(SPEC, reducers=("union", "powersgd", "topk:density=0.1")))
    layers = {layer.name: layer.size for layer in scenario.trace.manifest.layers}
    sparse = [layer.size for layer in scenario.trace.manifest.layers if layer.sparse]
    coded = {text: scenario.tensor_sizes(make_reducer(text))[1] for text in ("dense", "union", "powersgd", "fp16")}
    sizes, places = scenario.tensor_sizes(make_reducer("union"))
    assert sizes == list(layers.values())
    assert [sizes[place] for place in places] == sparse
    assert len(coded["fp16"]) == len(layers)
    assert not coded["dense"]
    assert 0 < len(coded["powersgd"]) < len(layers)
    kernels, framework = (rows_of(basis, "union")["union"].encode_work_s for basis in ("kernels", "framework"))
    loop_s = implementation_of(make_reducer("union")).operations_ps() / PS_PER_S
    assert framework - kernels == pytest.approx(len(sparse) * loop_s, rel=1e-9)


def test_every_reducer_has_an_implementation_and_names_differ():
    for name in reducer_names():
        assert implementation_of(make_reducer(name)).operations >= 0
    own, shared = (
        implementation_of(make_reducer(text)) for text in ("random-k:seed=own", "random-k:granularity=global")
    )
    assert (own.operations, shared.operations) == (24, 16)
    assert implementation_of(make_reducer("spardl")).operations == 24
    # Blocks and single elements are both of code that was read.
    block = implementation_of(make_reducer("random-block:density=0.01"))
    assert (block.operations, "RandomSparseBlockReducer" in block.origin) == (17, True)


def test_the_screen_says_what_codecs_cost(capsys):
    asked = ["run", "--topology", "tcp-10g", "--workers", "2", "--reducer", "topk:density=0.01", "--no-break-even"]
    assert main([*asked, "--codec-as", "published", "--show", "details"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "codecs as published code" in printed
    assert "130 us of the host a tensor and phase and 12.8 ns a value to select" in printed
    assert main([*asked, "--codec-as", "publisht"]) == 2
    assert "did you mean 'published'" in capsys.readouterr().err
