"""Write what a session leaves beside report.json: the page, a chart, the job summary of CI."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import InfrastructureError

if TYPE_CHECKING:
    from pytest_agentbench.options import Settings

_WIDTH, _NOTE = 640, 100
"""Of the chart: pixels of the plot, characters of a line of its note."""
_NOTHING: dict[str, Any] = {
    "height": 60,
    "data": {"values": [{}]},
    "mark": {"type": "text", "text": "No model has both figures.", "fontSize": 14},
}


def write_outputs(report: dict[str, Any], settings: Settings, root: Path) -> tuple[dict[str, Path], bool]:
    """Write what is asked for; return the files by what they are, and whether these are all of them.

    The report gets a warning for each that cannot be written. `root` is pytest's root directory.
    """
    written, complete = {}, True
    for what, path, write in _writers(report, settings, root):
        try:
            write()
        except InfrastructureError as error:
            report["session"]["warnings"].append(str(error))
            complete = False
        else:
            written[what] = path
    return written, complete


def write_chart(report: Mapping[str, Any], path: Path) -> None:
    """Draw mean score against cost as PNG. Raises UnwritableError, ImportError without the extra `charts`."""
    import vl_convert

    from pytest_agentbench.reports.charts import score_against, sized
    from pytest_agentbench.store.output_files import write_lines

    chart = score_against(report, "cost")
    title = {"text": chart.title, "subtitle": wrap(chart.note, _NOTE), "anchor": "start", "offset": 12}
    spec = {**sized(chart.spec if chart.spec["data"]["values"] else _NOTHING, _WIDTH), "title": title}
    write_lines(path, [vl_convert.vegalite_to_png(spec, scale=2, allowed_base_urls=[])])


def _writers(report: dict[str, Any], settings: Settings, root: Path) -> Iterator[tuple[str, Path, Callable[[], None]]]:
    from pytest_agentbench.reports.ci.jobs import Places, on_github

    if (html := settings.html) is not None:
        from pytest_agentbench.reports.html.page import write_page

        yield "page", html, lambda: write_page(report, html, output=settings.output)
    if (chart := settings.chart) is not None:
        yield "chart", chart, lambda: write_chart(report, chart)
    if on_github() and (summary := os.environ.get("GITHUB_STEP_SUMMARY")):
        from pytest_agentbench.reports.ci.github import write_job_summary

        yield "job summary", Path(summary), lambda: write_job_summary(report, Places(root), Path(summary))
