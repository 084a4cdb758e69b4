"""Sharded data parallelism beside a naive schedule, closed forms, and replicated data parallelism."""

import json
from dataclasses import replace

import numpy as np
import pytest

from s2sim.cli.main import main
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError, S2SimError, S2SimWarning
from s2sim.experiment.run import resolve_checked
from s2sim.experiment.scenario.reducers import resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.gradients.gradient import Gradient
from s2sim.libraries.lowering import choose_library
from s2sim.profiles.sharding import layer_blocks
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.script import Call, Post, Recording, Wait, recording_bytes
from s2sim.simulation.accounting import IterationSettings
from s2sim.simulation.bucketing.policy import Bucket, BucketExchange, ReadyTensors, make_discipline
from s2sim.simulation.bucketing.sharded import shard_recording
from s2sim.simulation.device import Compute
from s2sim.simulation.iteration import replay_iterations
from s2sim.topology.hardware import load_gpu

WORKERS = 4
NODES = [0] * WORKERS


def dense(elements, workers=WORKERS):
    call = Call("all_reduce", "sum", "float32", 4, (elements,) * workers, False, "gradient", spreads=True)
    return Recording((call,), ((Post(0), Wait((0,))),) * workers)


@pytest.fixture
def timer(make_cluster, switch_fabric):
    return Timer(make_cluster(WORKERS, switch_fabric), "ring")


def model(seed):
    """Return the gradients of a model of 5 blocks and a root, and its compute."""
    generator = np.random.default_rng(seed)
    names = ["head", "norm", *(f"layers.{4 - at // 3}.part{at % 3}" for at in range(15)), "embed"]
    count = len(names)
    elements = WORKERS * generator.integers(1, 3 * 10**5, count)
    forward_ps, backward_ps = generator.integers(0, 2 * 10**9, (2, count))
    tensors = ReadyTensors(elements * 4, np.cumsum(backward_ps), np.zeros(count, bool), blocks=layer_blocks(names))
    return tensors, Compute(forward_ps, backward_ps, int(generator.integers(0, 10**9)))


def iterate(timer, tensors, compute, discipline, library="nccl:timing=wire", **settings):
    """Return an iteration of a sharded discipline, whose copies cost nothing here."""
    buckets = discipline.buckets(tensors, lambda _: 0)
    whole = [dense(int(tensors.elements[list(bucket.tensors)].sum())) for bucket in buckets]
    exchange = [BucketExchange(bucket, shard_recording(each)) for bucket, each in zip(buckets, whole, strict=True)]
    gathers = discipline.gathers(tensors, buckets, NODES, 2)
    conditions = IterationSettings(np.ones((1, WORKERS)), **settings)
    gpu = load_gpu("a100")
    return replay_iterations(exchange, compute, timer, gpu, choose_library(library), conditions, gathers=gathers)


class Naive:
    """An iteration whose collectives go one at a time, in the order in which they are posted."""

    def __init__(self, timer, tensors, prefetch):
        self.timer = timer.with_profile(choose_library("nccl:timing=wire").profile)
        self.tensors, self.prefetch = tensors, prefetch
        self.free = self.now = 0

    def post(self, kind, group):
        part, itemsize = int(self.tensors.elements[group].sum()) // WORKERS, {"all_gather": 2}.get(kind, 4)
        self.free = max(self.now, self.free) + self.timer.time(Demand(kind, (part,) * WORKERS, itemsize)).duration_ps
        return self.free

    def run_pass(self, gathered, segments, after=lambda _: None):
        """Compute segments; from the second on, if the first needs nothing, each waits for the next of ``gathered``."""
        ahead, ends = len(segments) > len(gathered), []
        ends += [self.post("all_gather", group) for group in gathered[: self.prefetch * ahead]]
        for number, segment in enumerate(segments):
            used = number + 1 - ahead
            if used:
                ends += [self.post("all_gather", group) for group in gathered[len(ends) : used]]
                self.now = max(self.now, ends[used - 1])
                ends += [self.post("all_gather", group) for group in gathered[len(ends) : used + self.prefetch]]
            self.now += segment
            after(number)


def naive_ps(timer, tensors, compute, *, prefetch, reshard, mini_batches=1):
    blocks = [np.flatnonzero(tensors.blocks == each) for each in range(tensors.blocks.max() + 1)]
    root, naive, ends = np.flatnonzero(tensors.blocks < 0), Naive(timer, tensors, prefetch), []
    # Forward: the embedding, blocks from the last in the order of readiness on, norm and head.
    forward = [compute.forward_ps[each].sum() for each in ([root[-1]], *reversed(blocks))]
    forward[-1] += compute.forward_ps[root[:-1]].sum()
    backward = [compute.backward_ps[each].sum() for each in (root[:-1], *blocks)]
    for left in reversed(range(mini_batches)):
        naive.run_pass([root, *reversed(blocks)], forward)

        def reduce(number, left=left):
            if number and not left:
                ends.append(naive.post("reduce_scatter", blocks[number - 1]))

        if reshard:
            naive.run_pass(blocks, backward, reduce)
        else:
            for number, segment in enumerate(backward):
                naive.now += segment
                reduce(number)
        naive.now += compute.backward_ps[root[-1]]
    return int(max(naive.post("reduce_scatter", root), *ends)) + compute.optimizer_ps


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("fsdp", {"prefetch": 1, "reshard": True}),
        ("fsdp:prefetch=0", {"prefetch": 0, "reshard": True}),
        ("fsdp:reshard=false", {"prefetch": 1, "reshard": False}),
    ],
)
def test_an_iteration_is_that_of_a_naive_schedule(timer, seed, text, how):
    tensors, compute = model(seed)
    for mini_batches in (1, 2):
        found = iterate(timer, tensors, compute, make_discipline(text), accumulate=mini_batches)
        assert found.typical.iteration == naive_ps(timer, tensors, compute, mini_batches=mini_batches, **how)


def test_without_compute_all_bytes_cross_one_after_the_other(timer):
    tensors, _ = model(7)
    # What is posted at one time is one launch.
    nothing = Compute(*np.ones((2, len(tensors.bytes)), np.int64))
    found = iterate(timer, tensors, nothing, make_discipline("fsdp"))
    launched = sum(launch.timed.duration_ps for launch in found.launches)
    assert found.typical.iteration == pytest.approx(launched, abs=100)
    kinds = [launch.timed.schedule.demand.kind for launch in found.launches]
    assert (kinds.count("all_gather"), kinds.count("reduce_scatter")) == (6 + 5, 6)


def test_zero2_of_one_bucket_is_an_all_reduce_with_the_optimizer_inside(timer):
    tensors, compute = model(3)
    discipline, gpu, library = make_discipline("zero2"), load_gpu("a100"), choose_library("ideal")
    settings, whole = IterationSettings(np.ones((1, WORKERS))), Bucket(tuple(range(len(tensors.bytes))))
    recording = dense(int(tensors.elements.sum()))
    exchange = [BucketExchange(whole, shard_recording(recording))]
    gathers = discipline.gathers(tensors, discipline.buckets(tensors, lambda _: 0), NODES, 4)
    found = replay_iterations(exchange, compute, timer, gpu, library, settings, gathers=gathers)
    replicated = replay_iterations([BucketExchange(whole, recording)], compute, timer, gpu, library, settings)
    # In a ring both halves of an all-reduce have as many rounds of as many bytes.
    assert found.typical.iteration == replicated.typical.iteration


@pytest.mark.parametrize("name", ["dense", "dense:dtype=bf16", "fp16", "int8", "signsgd-vote:wire=int8"])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_what_spreads_the_mean_spreads_it_element_by_element(name, ranks):
    generator = np.random.default_rng(ranks)
    values = generator.standard_normal((ranks, 101)).astype(np.float32)
    values[:, 0] = 9  # The largest magnitude, which int8 divides by, stays.
    changed = values.copy()
    changed[:, 50:] = generator.standard_normal((ranks, 51))
    means = []
    for given in (values, changed):
        gradients = [Gradient(("layer",), (row,)) for row in given]
        results, recording = run_group(make_instances(make_reducer(name), ranks), gradients)
        means.append(results[0].mean.layers[0])
    assert np.array_equal(means[0][:50], means[1][:50])
    assert not np.array_equal(means[0][50:], means[1][50:])
    sharded = shard_recording(recording)
    spread = [call for call in recording.calls if call.spreads]
    assert spread
    whole_bytes, sharded_bytes = recording_bytes(recording)[0].sum(), recording_bytes(sharded)[0].sum()
    # Parts are padded to one length, as FSDP and DeepSpeed do: unequal ones would take a reduction each.
    padded = [-(-call.elements[0] // ranks) * ranks for call in spread]
    saved = [(2 * call.elements[0] - most) * call.itemsize for call, most in zip(spread, padded, strict=True)]
    assert whole_bytes - sharded_bytes == (ranks - 1) * sum(saved)
    assert all(len(set(call.elements)) == 1 for call in sharded.calls if call.kind == "reduce_scatter")


@pytest.mark.parametrize("name", ["powersgd", "topk", "union:layers=all", "fp8", "s2:layers=all"])
def test_other_programs_stay_whole(name):
    gradients = [
        Gradient(("layer",), (np.random.default_rng(r).standard_normal((16, 8)).astype(np.float32),)) for r in (0, 1, 2)
    ]
    _, recording = run_group(make_instances(make_reducer(name), 3), gradients)
    assert shard_recording(recording) is recording


def test_shards_of_nodes_are_reduced_again_between_nodes():
    groups = ((0, 1), (2, 3), (4, 5))
    sharded = shard_recording(dense(1000, 6), groups)
    in_nodes = [call for call in sharded.calls if call.kind == "reduce_scatter"]
    between = [call for call in sharded.calls if call.kind == "all_reduce"]
    assert [call.ranks for call in in_nodes] == list(groups)
    assert [call.ranks for call in between] == [(0, 2, 4), (1, 3, 5)]
    assert {call.elements for call in between} == {(500,) * 3}
    # Each rank sends half of its gradient in its node, and 2 (M - 1) / M of a shard between nodes.
    assert recording_bytes(sharded)[0].sum() == 6 * 2000 + 2 * 4 * 2000
    posts = [[step for step in script if isinstance(step, Post)] for script in sharded.scripts]
    assert all(len(each) == 2 for each in posts)


def test_steps_that_ranks_take_alone_need_whole_parameters():
    recording = Recording(dense(8).calls, dense(8).scripts, steps=4)
    with pytest.raises(S2SimError, match="once in 4 steps"):
        shard_recording(recording)


def test_parameters_that_are_there_together():
    tensors, _ = model(1)
    discipline = make_discipline("fsdp:prefetch=2")
    buckets = discipline.buckets(tensors, lambda _: 0)
    sizes = np.bincount(tensors.blocks + 1, tensors.elements).astype(int)
    three = max(sum(sizes[1:][at : at + 3]) for at in range(5))
    assert discipline.whole_parameters(tensors, buckets) == sizes[0] + three
    assert make_discipline("zero2").whole_parameters(tensors, buckets) == sizes.sum()


@pytest.mark.parametrize("weights", ["as-computed", "int8"])
def test_a_copy_in_each_node_is_divided_among_its_ranks(weights):
    """Of blocks alone, as the root's parameters stay whole; unquantised, as each gather quantises its part anew."""
    tensors, _ = model(1)
    discipline, blocks = make_discipline(f"fsdp:secondary=true,weights={weights}"), tensors.blocks >= 0
    nodes = np.repeat(np.arange(3), 4).tolist()
    assert discipline.copied_parameters(tensors, nodes) == -(-tensors.elements[blocks].sum() // 4)
    assert make_discipline("fsdp").copied_parameters(tensors, nodes) == 0
    assert [discipline.copied_parameters(tensors, [0] * count) for count in (1, 4)] == [0, 0]


@pytest.mark.parametrize(
    "text", ["fsdp:secondary=true,reshard=false", "fsdp:secondary=true,shard=node", "zero2:bucket=0B"]
)
def test_options_that_change_nothing_are_refused(text):
    with pytest.raises(OptionError):
        make_discipline(text)


@pytest.mark.parametrize("nodes", [[0, 1, 2], [0, 0, 1]])
def test_shards_of_a_node_need_several_alike(nodes):
    with pytest.raises(OptionError, match="workers of a node, and here"):
        make_discipline("fsdp:shard=node").groups(nodes)


@pytest.mark.parametrize("option", ["secondary=true", "shard=node"])
def test_that_one_node_divides_nothing_is_said(option):
    spec = RunSpec("dgx-a100", profile="gpt2", discipline=f"fsdp:{option}", workers=(8,))
    with pytest.warns(S2SimWarning, match="changes nothing here: one node has all workers"):
        resolve_checked(spec)
    resolve_checked(replace(spec, workers=(8, 16)))


def run_json(capsys, *options):
    assert (
        main(["run", "--topology", "dgx-a100", "--profile", "gpt2", "--reducer", "fp16", "--json", "-", *options]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    return {row["reducer"]: row for row in found["results"]}


@pytest.mark.slow
def test_runs_of_shards(capsys):
    tried = ("ddp", "fsdp", "zero2", "zero2:allreduce=true")
    rows = {text: run_json(capsys, "--workers", "16", "--discipline", text) for text in tried}
    parameters = 124_439_808
    states = parameters * (4 + 8 + 4)
    assert rows["ddp"]["dense"]["iteration"]["state_bytes"] == states
    # Whole parameters as layers compute with them, in two bytes.
    assert rows["zero2"]["dense"]["iteration"]["state_bytes"] == states // 16 + 2 * parameters
    assert states // 16 < rows["fsdp"]["dense"]["iteration"]["state_bytes"] < states // 8
    # Ring: a reduce-scatter is half of an all-reduce.
    ring = {text: rows[text]["dense"]["bytes_sent_per_rank"] for text in rows}
    assert ring["fsdp"] == pytest.approx(ring["ddp"] / 2, rel=1e-3)
    assert ring["zero2"] == pytest.approx(ring["ddp"] / 2, rel=1e-3)
    # DeepSpeed's default sends half as much again, of which the states know nothing.
    assert ring["zero2:allreduce=true"] == ring["ddp"]
    one, other = (rows[text]["dense"] for text in ("zero2", "zero2:allreduce=true"))
    assert all(one["iteration"][key] == other["iteration"][key] for key in ("state_bytes", "parameter_bytes"))
    assert one["iteration_s"] < other["iteration_s"]
    assert rows["ddp"]["dense"]["iteration"]["parameter_bytes"] == 0
    whole = 2 * parameters * 15 / 16
    assert rows["zero2"]["dense"]["iteration"]["parameter_bytes"] == pytest.approx(whole, rel=1e-4)
    assert whole < rows["fsdp"]["dense"]["iteration"]["parameter_bytes"] < 2 * whole
    found = run_json(capsys, "--workers", "16", "--discipline", "fsdp:secondary=true")["dense"]["iteration"]
    more = found["state_bytes"] - rows["fsdp"]["dense"]["iteration"]["state_bytes"]
    # An eighth of the twelve blocks, which are 85 million parameters.
    assert more == pytest.approx(2 * 85_054_464 / 8, abs=2)
    for row in (row for of in rows.values() for row in of.values()):
        assert row["iteration"]["lower_bound"] <= row["iteration_s"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "3"])
def test_odd_numbers_of_ranks(capsys, workers):
    assert (
        main(["run", "--topology", "dgx-a100", "--profile", "gpt2", "--discipline", "fsdp", "--workers", workers]) == 0
    )
    assert "fsdp" in capsys.readouterr().out


def test_local_steps_are_refused_in_one_line(capsys):
    given = ["run", "--topology", "dgx-a100", "--workers", "4", "--profile", "gpt2", "--discipline", "fsdp"]
    assert main([*given, "--reducer", "dense:h=4"]) == 2
    assert "once in 4 steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reducer", "why"),
    [("diloco", "diloco: it exchanges once in 100 steps"), ("choco", "choco: .* a model of its own")],
)
def test_what_has_no_shards_is_refused_before_anything_is_recorded(reducer, why):
    spec = RunSpec.of("dgx-a100", workers=(4,), profile="gpt2", discipline="fsdp", reducers=(reducer,))
    with pytest.raises(OptionError, match=why):
        resolve_run(spec)
    scenario = resolve_run(replace(spec, reducers=(reducer, "fp16")))
    assert [item.option_string for item in scenario.reducers] == ["dense", "fp16"]
    assert list(scenario.refused) == [reducer]
