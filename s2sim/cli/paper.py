"""``s2sim paper``: rebuild published claims and judge them."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from s2sim.cli import INTERRUPTED, output
from s2sim.cli.options import check_targets
from s2sim.errors import OptionError
from s2sim.experiment.spec import CodecBasis, check_codec_basis

if TYPE_CHECKING:
    from s2sim.claims.paper import PapersResult

_LIST, _ALL = "list", "all"


def paper_command(
    *,
    names: list[str],
    full: bool = False,
    codec_as: str | None = None,
    html: str | None = None,
    png: str | None = None,
    json: str | None = None,
    quiet: bool = False,
) -> None:
    """Rebuild what papers claim, and judge it: reproduced, not reproduced and why, or not testable.

    Of several pictures --png numbers the files: NAME-1.png, NAME-2.png and so on.

    Every figure is computed when asked for. Claims that need training in the loop need the extra torch; what cannot be
    known is said.
    """
    check_targets(json=json, html=html, png=png)
    if html is not None:
        from s2sim.report.figures.style import check_matplotlib

        check_matplotlib()

    from s2sim.claims.paper import PAPERS, PaperEffort, run_papers

    if names == [_LIST]:
        _list(json, html or png)
        return
    for word in (_LIST, _ALL):
        if word in names and len(names) > 1:
            raise OptionError(f"{word} stands for itself: name it alone, or papers")

    if codec_as is not None:
        check_codec_basis(codec_as)
    effort = PaperEffort(quick=not full, codec_as=cast("CodecBasis | None", codec_as))
    with output.watching(quiet=quiet) as progress:
        result = run_papers(PAPERS.names() if names == [_ALL] else names, effort, progress)
    readable = output.write_result(result, json)
    if html is not None:
        output.write_text(output.page_text(result), html)
    if readable:
        _show(result, quiet=quiet)
    if png is not None:
        _write_pictures(result, png)
    if not result.complete:
        raise typer.Exit(INTERRUPTED)


def _write_pictures(result: "PapersResult", target: str) -> None:
    """Write all pictures, to the file that was named or, of several, to files of that name with a number."""
    from s2sim.report.figures.charts import chart_figure

    pictures = [picture for paper in result.papers for picture in paper.pictures]
    if not pictures:
        raise OptionError(f"--png {target}: {result.papers[0].name} has no picture: leave it out")
    path = Path(target)
    for number, picture in enumerate(pictures, 1):
        numbered = path if len(pictures) == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        output.write_figure(chart_figure(picture), str(numbered))


def _list(json: str | None, page: str | None) -> None:
    from s2sim.claims.paper import PAPERS

    if page is not None:
        raise OptionError(f"{page} is to show rebuilt papers: name one, or all")
    papers = [PAPERS.get(name) for name in PAPERS.names()]
    keys = ("name", "title", "claimed", "source")
    if output.json_alone({"papers": [{key: getattr(paper, key) for key in keys} for paper in papers]}, json):
        return
    output.show_entries([(paper.name, f"{paper.title}: {paper.claimed}  [{paper.source}]") for paper in papers])
    output.show_lines(["", "Rebuild one with s2sim paper NAME."])


def _show(result: "PapersResult", *, quiet: bool) -> None:
    from s2sim.report.study_tables import claims_grid, numbers_grid, paper_head, papers_lines, setup_lines, why_lines

    for paper in result.papers:
        output.show_paragraphs(paper_head(paper))
        output.show_grids([claims_grid(paper)])
        if quiet:
            continue
        output.show_paragraphs(["", *why_lines(paper), ""])
        output.show_entries(setup_lines(paper))
        output.show_grids([numbers_grid(table) for table in paper.tables])
        output.show_paragraph("")
    output.show_paragraphs(papers_lines(result))
