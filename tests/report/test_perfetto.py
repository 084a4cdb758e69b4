"""Timelines are files that viewers show as they are meant."""

import json
from copy import deepcopy

import numpy as np
import pytest

import s2sim
from s2sim.cli.main import main
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError
from s2sim.experiment.timeline import streams_of
from s2sim.libraries.lowering import choose_library
from s2sim.reducers.script import Call, Post, Recording, Wait, Work
from s2sim.report.perfetto import to_perfetto
from s2sim.simulation.accounting import IterationSettings
from s2sim.simulation.bucketing.policy import Bucket, BucketExchange
from s2sim.simulation.device import Compute
from s2sim.simulation.iteration import replay_iterations
from s2sim.topology.hardware import load_gpu

from .trace_events import check_trace_events

WORKERS, COUNT, MS = 4, 3, 10**9
SMALL = "synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400"


def bucket(tensors, elements, *works):
    call = Call("all_reduce", "sum", "float32", 4, (elements,) * WORKERS, False, f"x{tensors[0]}")
    script = (*works[:1], Post(0), Wait((0,)), *works[1:])
    return BucketExchange(Bucket(tensors), Recording((call,), (script,) * WORKERS))


@pytest.fixture
def exchange():
    works = Work("encode", 10**8), Work("decode", 10**9)
    return [bucket((0,), 10**6, *works), bucket((1, 2), 10**7, *works), bucket((3,), 10**5)]


@pytest.fixture
def iterations(exchange, make_cluster, switch_fabric):
    compute = Compute(np.full(4, MS), np.array([5, 6, 7, 8]) * MS, 2 * MS, 0.5)
    slower = np.ones((COUNT, WORKERS))
    slower[:, 2] = 1.25
    timer = Timer(make_cluster(WORKERS, switch_fabric), "ring")
    return replay_iterations(
        exchange, compute, timer, load_gpu("a100"), choose_library("nccl"), IterationSettings(slower)
    )


def spans_of(trace, category):
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] == category]


def test_streams_of_a_rank_have_arrows_from_each_bucket_to_its_collective(iterations, exchange):
    trace = json.loads(json.dumps(to_perfetto({"dense": streams_of(iterations, exchange)}, "a cluster")))
    arrows = check_trace_events(trace)
    assert len(arrows) == COUNT * len(exchange)
    for source, target in arrows:
        assert source["name"] == "backward"
        assert target["cat"] == "network"
        assert source["ts"] + source["dur"] <= target["ts"]
        assert source["args"]["iteration"] in range(COUNT)
    carried = [target["args"]["carries"] for _, target in arrows]
    assert carried.count("bucket 1: x1") == COUNT
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert {"compute", "codec", "network"} <= names
    (process,) = (event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name")
    assert process == "dense: rank 2"


def test_a_chosen_rank_is_shown_as_it_ran_in_microseconds(iterations, exchange):
    for rank, factor in ((0, 1.0), (2, 1.25)):
        trace = to_perfetto({"": streams_of(iterations, exchange, rank)}, "a cluster")
        check_trace_events(trace)
        backward = [event for event in spans_of(trace, "compute") if event["name"] == "backward"]
        alone_us = 26 * MS * factor / 1e6
        assert sum(event["dur"] for event in backward) >= COUNT * alone_us * (1 - 1e-9)
        forward = next(event for event in spans_of(trace, "compute") if event["name"] == "forward")
        assert forward["dur"] == pytest.approx(4 * MS * factor / 1e6)
        parts = iterations.parts
        end_us = max(event["ts"] + event["dur"] for event in spans_of(trace, "compute"))
        assert end_us <= sum(each.iteration for each in parts) / 1e6 + 1e-6
        codec = spans_of(trace, "codec")
        assert len([event for event in codec if event["name"] == "encode, decode"]) == COUNT * 4


@pytest.mark.parametrize(
    ("options", "rank", "says"),
    [({"profile": "resnet-18"}, 4, "--timeline-rank 4: there are ranks 0 to 3"), ({}, 0, "nothing without --profile")],
)
def test_a_rank_that_is_not_shown_is_refused(options, rank, says):
    with pytest.raises(OptionError, match=says):
        s2sim.run("fat-tree", workers=4, trace=SMALL, timelines={}, timeline_rank=rank, **options)


@pytest.mark.slow
def test_a_run_of_a_profile_shows_a_rank_that_is_asked_for(tmp_path, capsys):
    command = "run --topology single-switch --workers 4 --profile resnet-18 --discipline ddp --reducer fp16 -q"
    path = tmp_path / "timeline.json"
    asked = [*command.split(), "--no-break-even", "--timeline", str(path), "--timeline-rank", "3"]
    assert main(asked) == 0, capsys.readouterr().err
    trace = json.loads(path.read_text("utf-8"))
    arrows = check_trace_events(trace)
    assert {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"} == {
        "dense: rank 3",
        "fp16: rank 3",
    }
    assert {source["cat"] for source, _ in arrows} == {"compute"}
    assert len(arrows) >= 4


def test_a_timeline_of_a_phase_is_a_trace_too():
    timelines = {}
    s2sim.run("fat-tree", workers=4, trace=SMALL, reducers=["union"], break_even=False, timelines=timelines)
    trace = json.loads(json.dumps(to_perfetto(timelines, "a cluster")))
    assert check_trace_events(trace) == []
    assert spans_of(trace, "message")


def test_the_reader_is_strict(iterations, exchange):
    right = to_perfetto({"": streams_of(iterations, exchange)}, "a cluster")

    def broken(change):
        wrong = deepcopy(right)
        change(wrong["traceEvents"])
        return wrong

    def first(events, phase):
        return next(event for event in events if event["ph"] == phase)

    def stick_out(events):
        span = first(events, "X")
        events.append({**span, "ts": span["ts"] + span["dur"] / 2})

    for change in (
        lambda events: first(events, "f").update(id="another"),
        lambda events: first(events, "s").update(ts=1e12),
        lambda events: first(events, "f").update(ts=0.0),
        lambda events: first(events, "X").pop("dur"),
        lambda events: first(events, "X").update(dur=-1.0),
        lambda events: first(events, "X").update(tid=77),
        stick_out,
    ):
        with pytest.raises((AssertionError, ValueError)):
            check_trace_events(broken(change))
