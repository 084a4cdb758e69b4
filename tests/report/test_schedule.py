"""Listings and pictures of schedules: what a reader finds in them, and what is refused."""

import xml.etree.ElementTree as ET

import pytest

from s2sim.errors import OptionError, S2SimError
from s2sim.report.figures.charts import draw_schedule
from s2sim.report.figures.style import check_picture
from s2sim.report.traffic_tables import (
    MessageRow,
    ScheduleStepRow,
    check_listing,
    place_name,
    schedule_lines,
    spans_text,
)

MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def message(step, time, src, dst, start=0, stop=4, *, adds=True, **more):
    return MessageRow(step, time, src, dst, ((start, stop),), 4.0 * (stop - start), adds, **more)


RING = [
    message(0, time, src, 1 - src, 2 * (src ^ time), 2 * (src ^ time) + 2, start_s=time * 1e-6, end_s=(time + 1) * 1e-6)
    for time in range(2)
    for src in range(2)
]


def test_what_repeats_is_listed_once():
    assert schedule_lines([ScheduleStepRow(2)], RING, ranks=2) == [
        "rounds 1 to 2 (x2)",
        "  0 -> 1  8 B  add  [0:2)  [2:4)",
        "  1 -> 0  8 B  add  [2:4)  [0:2)",
    ]


def test_rounds_count_on_behind_repeated_ones():
    rows = [message(0, 0, 0, 1), message(1, 0, 1, 0, adds=False)]
    lines = schedule_lines([ScheduleStepRow(5), ScheduleStepRow(1, after=(0,))], rows, ranks=2)
    assert [line for line in lines if not line.startswith(" ")] == ["rounds 1 to 5 (x5)", "round 6"]
    assert lines[1].endswith("add  [0:4)  ...")
    assert "replace" in lines[3]


def test_steps_that_overlap_tell_what_they_wait_for():
    rows = [message(step, 0, 0, 1) for step in range(4)]
    steps = [
        ScheduleStepRow(1),
        ScheduleStepRow(3),
        ScheduleStepRow(1, after=(0, 1)),
        ScheduleStepRow(1, after=(1,), after_sent=(2,)),
    ]
    lines = schedule_lines(steps, rows, ranks=2)
    assert lines[::2] == [
        "step 1",
        "step 2 (x3)",
        "step 3, after steps 1, 2",
        "step 4, after step 2 and once step 3 has left",
    ]


def test_positions_that_touch_are_one_stretch():
    assert spans_text(((0, 2), (2, 4), (6, 7)), most=3) == "[0:4) [6:7)"
    assert spans_text(((0, 2), (3, 4), (6, 7)), most=1) == "[0:2) +2"
    assert spans_text((), most=1) == ""


def test_names_of_helpers_and_switches():
    assert [place_name(place, 2) for place in (1, 2, 3, None)] == ["1", "helper 0", "helper 1", "switch"]
    lines = schedule_lines([ScheduleStepRow(1)], [message(0, 0, 1, 2), message(0, 0, 2, None)], ranks=2)
    assert [line.split("  ")[1] for line in lines[1:]] == ["1 -> helper 0", "helper 0 -> switch"]


def texts_of(svg):
    """Return the texts of an SVG."""
    return ["".join(each.itertext()) for each in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.slow
@pytest.mark.parametrize("file_format", list(MAGIC))
def test_a_picture_is_the_same_at_every_run(file_format):
    first, again = (draw_schedule(RING, file_format, ranks=2, title="ring") for _ in range(2))
    assert first.startswith(MAGIC[file_format])
    assert first == again


def test_a_picture_says_what_messages_carry():
    texts = texts_of(draw_schedule(RING, "svg", ranks=2, title="all_reduce by ring"))
    assert {"all_reduce by ring", "rank", "[0:2)", "[2:4)"} <= set(texts)
    assert "is added to what the rank has" in texts
    assert "replaces what the rank has" not in texts


@pytest.mark.parametrize(("factor", "unit"), [(1.0, "time (s)"), (1e-5, "time (us)"), (0.0, "time (ps)")])
def test_a_picture_with_times_has_a_time_axis(factor, unit):
    rows = [message(0, 0, 0, 1, adds=False, start_s=0.0, end_s=2.5 * factor)]
    texts = texts_of(draw_schedule(rows, "svg", ranks=2, title="t"))
    assert unit in texts
    assert "replaces what the rank has" in texts


def test_helpers_and_switches_have_lines_of_their_own():
    rows = [message(0, 0, 0, 2), message(1, 0, None, 1)]
    texts = texts_of(draw_schedule(rows, "svg", ranks=2, helpers=1, title="t"))
    assert {"helper 0", "switch"} <= set(texts)
    assert draw_schedule([], "png", ranks=1, title="one rank has nothing to send")


def test_refusals(tmp_path):
    check_listing(32, 1000)
    with pytest.raises(OptionError, match=r"a listing of 5000 messages between 8 ranks.*at most 1000 between 32"):
        check_listing(8, 5000)
    with pytest.raises(OptionError, match="a picture of 10 messages between 64 ranks"):
        check_listing(64, 10, "picture")
    with pytest.raises(S2SimError, match=r"name must end in .png, .svg, .pdf"):
        check_picture(str(tmp_path / "picture.jpg"))
