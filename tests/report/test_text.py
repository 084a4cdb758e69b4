from s2sim.report.answer import lines_text
from s2sim.report.format import aligned, bottleneck_lines, lowering_lines
from s2sim.report.traffic_tables import collective_lines, collective_summary
from s2sim.traffic.collective_result import CollectiveResult
from s2sim.traffic.spec import CollectiveSpec


def make_collective(**changes):
    values = {
        "spec": CollectiveSpec("fat-tree", "all_reduce", 64, 104857600),
        "spec_sha256": "",
        "kind": "all_reduce",
        "algorithm": "ring",
        "why": "asked for",
        "cluster": "cluster",
        "workers": 64,
        "size_bytes": 104857600,
        "time_s": 0.02,
        "lower_bound_s": 0.016,
        "lower_bound_why": "bytes out of all 16 nodes",
        "closed_form_s": None,
        "algbw_Bps": 5e9,
        "busbw_Bps": 10e9,
        "bytes_per_rank": 206438400,
        "bottlenecks": (),
        "rank_finish_s": (0.02,) * 64,
        "network": "fluid",
    }
    return CollectiveResult(**(values | changes))


def test_aligned_columns_start_at_one_place():
    lines = aligned([("a", "bb", "x"), ("aaa", "b", "y")], indent=" ")
    assert lines == [" a    bb  x", " aaa  b   y"]
    assert aligned([]) == []


def test_bandwidths_stand_side_by_side_in_bytes_and_bits():
    lines = collective_lines(make_collective())
    assert any("5 GB/s (40 Gbps)" in line for line in lines)
    assert any("10 GB/s (80 Gbps)" in line for line in lines)
    assert any("16 ms: bytes out of all 16 nodes" in line for line in lines)
    assert any(line.split()[-1] == "1.25x" for line in lines)
    assert "20 ms" in collective_summary(make_collective())


def test_a_collective_without_time_has_no_bandwidth():
    lines = collective_lines(make_collective(workers=1, time_s=0.0, lower_bound_s=0.0, algbw_Bps=None, busbw_Bps=None))
    assert lines[0].endswith("over 1 worker")
    assert any("undefined" in line for line in lines)


def test_a_closed_form_is_shown_where_one_holds():
    assert any("messages share links" in line for line in collective_lines(make_collective()))
    assert any("19.5 ms, without" in line for line in collective_lines(make_collective(closed_form_s=0.0195)))


def test_bottlenecks_are_a_line_a_row(result):
    assert len(bottleneck_lines(result)) == len(result.rows)
    assert bottleneck_lines(result)[0].startswith("dense")


def test_lowering_tells_totals_of_each_reducer_and_each_reason_once(result):
    lines = lowering_lines(result)
    assert lines[0].startswith("dense")
    assert "total 2.015 ms against 1.3 ms if all ran as asked (1.55x)" in lines[0]
    assert lines[0].endswith("grouping and order of launches cost 10 us")
    assert lines[len(result.rows) :] == [
        "",
        "all_reduce sum float32: native.",
        "all_reduce or uint8 -> all_reduce max uint8: no OR.",
    ]


def test_a_line_that_goes_on_stands_under_what_it_goes_on_from():
    line = "  lower bound  " + "word " * 20
    first, second = lines_text([line], [], []).split("\n")
    assert len(first) <= 80
    assert second.startswith(" " * len("  lower bound  ") + "word")


def test_printing_a_collective_shows_what_the_command_shows():
    result = make_collective(lower_bound_why="bytes & <more> " * 8)
    assert repr(result).startswith("<s2sim collective: all_reduce of 104.9 MB over 64 workers by ring: 20 ms, ")
    assert repr(result).endswith("; cluster>")
    assert str(result).splitlines()[:2] == ["cluster", "all_reduce of 104.9 MB over 64 workers"]
    assert all(len(line) <= 80 for line in str(result).splitlines())
    html = result._repr_html_()
    assert "&amp; &lt;more&gt;" in html
    assert html.count("<pre") == html.count("</pre>") == 1
