from html.parser import HTMLParser

from s2sim.report.run_tables import comparison_grids, scaling_grid
from s2sim.report.screens import run_report, screen_html


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = []
        self.cells = []

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data


def test_html_is_well_formed_and_holds_every_cell(result):
    reader = Reader()
    reader.feed(screen_html(result))
    assert reader.open == []
    report = run_report(result)
    assert report.grids == [scaling_grid(result)[0]]
    assert all(grid in report.details for grid in comparison_grids(result))
    expected = [cell for grid in (*report.grids, *report.details) for row in grid.rows for cell in row]
    assert reader.cells == expected


def test_every_text_is_escaped(result):
    html = screen_html(result)
    assert "&lt;fat-tree&gt; &amp; co" in html
    assert "4 workers, &lt;mine&gt;" in html or "8 workers, &lt;mine&gt;" in html
    assert "first step &amp; empty residuals" in html
    assert "<b>" not in html


def test_notebooks_show_the_result_so(result):
    assert result._repr_html_() == screen_html(result)
