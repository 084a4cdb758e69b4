"""Lines for a training script: valid Python with what was predicted; tests/pytorch/test_hook.py runs them."""

import ast
from dataclasses import replace
from types import SimpleNamespace

import pytest

from s2sim.advice.script import script_lines
from s2sim.experiment.spec import RunSpec
from s2sim.profiles.read import RecordedJob
from s2sim.reducers.registry import make_reducer, reducer_names

JOB = RecordedJob(0.1, 2, "here", "CPU", "2", bucket_bytes=5 << 20, bucket_views=False)
RING, TREE = ("all_reduce", "ring:channels=8"), ("all_gather", "double-binary-tree:channels=8,chunks=5")


def lines(folder, reducer, *, library="nccl", ran=(RING, TREE), job=JOB, **options):
    job.write(folder)
    calls = [SimpleNamespace(kind=kind, algorithm=algorithm) for kind, algorithm in ran]
    spec = replace(RunSpec.of("fat-tree", workers=(8,), **options), recorded=str(folder))
    made = make_reducer(reducer)
    row = SimpleNamespace(
        reducer=reducer,
        option_string=reducer,
        workers=8,
        real_library=library,
        collectives=calls,
        options=made.options(),
    )
    return script_lines(spec, row)


@pytest.mark.slow
def test_every_reducer_has_lines_that_compile(tmp_path):
    for name in reducer_names():
        text = lines(tmp_path, name)
        tree = ast.parse("\n".join(text))
        assert len(tree.body) > 2 or name == "dense" or text[-1].startswith("# no hook: embrace leaves every rank"), (
            name
        )


@pytest.mark.parametrize(
    ("reducer", "last"),
    [
        ("dense", "model = DistributedDataParallel("),
        ("dense:dtype=bf16", "model.register_comm_hook(None, bf16_compress_hook)"),
        ("bf16", "model.register_comm_hook(None, bf16_compress_hook)"),
        ("dense:dtype=fp16", "model.register_comm_hook(None, fp16_compress_hook)"),
        ("fp16", "model.register_comm_hook(None, fp16_compress_hook)"),
        ("fp16:h=2", "model.register_comm_hook(state, hook)"),
        ("powersgd:rank=4", "model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)"),
        ("powersgd:ef=ef21", "model.register_comm_hook(state, hook)"),
        ("topk", "model.register_comm_hook(state, hook)"),
    ],
)
def test_the_hook_is_pytorchs_own_where_it_has_the_reducer(tmp_path, reducer, last):
    text = lines(tmp_path, reducer)
    assert text[-1].startswith(last)
    own = lines(tmp_path, reducer, library="gloo")
    assert own[-1] == ("model.register_comm_hook(state, hook)" if "bf16" in reducer else text[-1])
    assert any("PowerSGDState(None, 4, " in line for line in text) == (reducer == "powersgd:rank=4")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "bucket_cap_mb=5, gradient_as_bucket_view=False)  # views: as the job had it"),
        ({"job": replace(JOB, bucket_views=None)}, "bucket_cap_mb=5, gradient_as_bucket_view=True)  # views: copies"),
        ({"discipline": "ddp:bucket=512KiB"}, "bucket_cap_mb=0.5, "),
        (
            {"discipline": "ddp:first=2MiB"},
            "# ddp:first=2MiB was predicted, of which DistributedDataParallel does the limit alone",
        ),
        ({"discipline": "fsdp"}, "# fsdp was predicted, of which DistributedDataParallel does nothing"),
        ({}, "# NCCL_ALGO and NCCL_PROTO: unset; what NCCL then chooses is predicted to be Tree for all_gather"),
        ({}, "s2sim collective table all_reduce --topology fat-tree --workers 8 --library nccl --from 1KiB --to 1GiB"),
        ({"collective": "ring", "ran": (RING,)}, 'os.environ["NCCL_ALGO"] = "Ring"  # before init_process_group'),
        ({"library": "gloo", "collective": "ring"}, "as predicted; backend: gloo"),
    ],
)
def test_buckets_and_variables_are_those_of_the_prediction(tmp_path, options, said):
    text = "\n".join(lines(tmp_path, "topk", **options))
    assert said in text
    assert ("NCCL_ALGO" in text) == (options.get("library") != "gloo")


def test_without_a_recorded_job_there_are_none():
    assert script_lines(RunSpec.of("fat-tree", workers=(8,)), SimpleNamespace()) == ()
