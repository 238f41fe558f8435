"""The page around the report's data: a shell, one style, its modules as one script and the data as compressed text."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.extensions import cache_extensions, load_extensions
from pytest_agentbench.records.case import name_column
from pytest_agentbench.reports.charts import charts
from pytest_agentbench.reports.comparison.every_pair import compare_every_pair
from pytest_agentbench.reports.html.placing import place_details, remove_earlier
from pytest_agentbench.reports.rows import Report, Row
from pytest_agentbench.reports.sections import ReportSection, sections_in
from pytest_agentbench.reports.table import column_of
from pytest_agentbench.reports.texts import find_reason
from pytest_agentbench.reports.topics import find_topics
from pytest_agentbench.terminal_text import visible

if TYPE_CHECKING:
    from jinja2 import Environment


_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([a-z_]+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|const|class) (\w+))", re.MULTILINE)

_LEFT_OUT = re.compile(r"^[ \t]*(?:/\*\*(?s:.*?)\*/\n)?", re.MULTILINE)
"""Indentation and comments before functions: a sixth of the script. No module has a text of several lines."""


@cache_extensions
def join_modules(entry: str = "main") -> str:
    """Join a module and its imports into one script. Each module has a separate scope and follows its imports.

    Modules of packs' sections come first. An import must name its members on one line, without aliases. Raises
    ValueError if modules import each other in a circle.
    """
    texts: dict[str, str] = {}
    sections: Mapping[str, ReportSection] = load_extensions("report_section")
    for name, section in sections.items():
        if (source := section.page_script()) is not None:
            _add_source(f"section_{name}", source, texts, ())
    _add(entry, texts, ())
    return "".join(texts.values())


@cache
def read_static(name: str) -> str:
    """Return the text of a file of the page."""
    from importlib.resources import files

    return (files(__package__) / "static" / name).read_text(encoding="utf-8")


def _add(name: str, texts: dict[str, str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"modules import each other in a circle: {' -> '.join((*above, name))}")
    if name in texts:
        return
    _add_source(name, _LEFT_OUT.sub("", read_static(f"{name}.js")), texts, above)


def _add_source(name: str, source: str, texts: dict[str, str], above: tuple[str, ...]) -> None:
    for _, imported in _IMPORT.findall(source):
        _add(imported, texts, (*above, name))
    # Functions in functions and not modules by URL: a page opened from a disk may load none
    exports = ", ".join(name for _, name in _EXPORT.findall(source))
    body = _EXPORT.sub(r"\1", _IMPORT.sub(r"const \1 = module_\2;", source))
    texts[name] = f"const module_{name} = (() => {{\n{body}return {{ {exports} }};\n}})();\n"


PageData = dict[str, Any]

STYLES = ("style.css", "summary.css", "results.css", "run.css", "answers.css", "progress.css")


def write_page(
    report: Report, path: Path, *, output: Path | None = None, comparison: Mapping[str, Any] | None = None
) -> None:
    """Write the page whole or not at all.

    `comparison` is report.json's, in place of the report's own. `output` is where runs and evaluations are stored.
    Raises UnwritableError.
    """
    from pytest_agentbench.bounded.writing import write_text

    placed = place_details(report, path, output)
    data = {**page_data(report, comparison), "pairs": compare_every_pair(report), "details": placed.facts}
    write_text(path, page_text(data, placed.blocks))
    remove_earlier(path, placed)  # last: the earlier page needs its chunks until it is replaced


def page_data(report: Report, comparison: Mapping[str, Any] | None = None) -> PageData:
    """Return the data for the page's script, JSON values only.

    It has `report` (without the comparison and the single votes of runs), `comparison`, `charts` (of `reports.charts`),
    `topics` (of `reports.topics`), `sections`, `pairs` (of `every_pair`; none while a session runs, because they cost
    seconds), and `details`: the `PlacedDetails.facts`, or None without details.
    """
    runs = [_page_row(row) for row in report["runs"]]
    shown = {**{name: value for name, value in report.items() if name != "comparison"}, "runs": runs}
    if any("variant" in row for row in runs):
        shown |= {part: [_name_column(entry) for entry in shown[part]] for part in _BY_COLUMN}
    return {
        "report": shown,
        "comparison": comparison if comparison is not None else report.get("comparison"),
        "charts": charts(report),
        "topics": find_topics(report),
        "sections": _sections(report),
        "pairs": [],
        "details": None,
    }


def _page_row(row: Row) -> dict[str, Any]:
    """Return a row with its reason, which old reports lack, and without votes, whose agreement the judges have."""
    shown = {name: value for name, value in row.items() if name != "judge_votes"}
    if "reason" not in shown:
        shown["reason"] = find_reason(row["outcome"], row["status"], row["message"])
    return shown


_BY_COLUMN = ("models", "cases", "datasets", "runs")
"""Lists of a report whose entries are of one model, or of one variant of a model."""


def _name_column(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry whose `model_id` is its column, by which the page groups; `asked_model` is the model's id."""
    named = {**entry, "model_id": column_of(entry), "asked_model": entry["model_id"]}
    if entry.get("label") is not None:
        named["label"] = name_column(entry["label"], entry.get("variant"))
    return named


def _sections(report: Report) -> list[dict[str, Any]]:
    """Return the page's data of packs' sections; `figures` are by model, in the report's order."""
    sections = sections_in([*report["models"], *report["runs"]])
    return [
        {
            "key": key,
            "row": {"title": section.page.row, "figures": [*section.page.row_figures.items()]},
            "model": {"title": section.page.model, "figures": [*section.page.model_figures.items()]},
            "sums": [*section.page.sums],
            "figures": [section.figures(model[key]) if model.get(key) else {} for model in report["models"]],
        }
        for key, section in sections.items()
        if section.page is not None
    ]


def page_text(data: PageData, blocks: Mapping[str, str] | None = None) -> str:
    """Return the page with its data. `blocks` are packed texts by element id, which the script reads on demand."""
    chunks = (data["details"] or {}).get("kind") == "chunks"
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    project = data["report"]["session"].get("project")
    return _render({"data": _packed(text), **(blocks or {})}, project, chunks=chunks, live=False)


def live_page() -> str:
    """Return a page without data: its script polls `data.json` (see `page_data`) from the same folder."""
    return _render({}, None, chunks=False, live=True)


def content_policy(style: str, scripts: Sequence[str], *, chunks: bool = False, live: bool = False) -> str:
    """Return the content security policy: the page loads, sends and runs nothing but its own style and scripts.

    `chunks` also allows scripts next to the page (details of runs). `live` also allows requests to the page's origin.
    """
    allowed = " ".join(f"'{_digest(script)}'" for script in scripts)
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src '{_digest(style)}'",
            f"script-src {allowed}{' ' + _BESIDE if chunks else ''}",
            "img-src data: blob:",
            *(["connect-src 'self'"] if live else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


_BESIDE = "'self' file:"
"""A page opened as a file has no origin that 'self' could name."""


def _render(blocks: Mapping[str, str], project: str | None, *, chunks: bool, live: bool) -> str:
    style, script = "".join(map(read_static, STYLES)), join_modules()
    starter = _environment().get_template("starter.js").render()
    return (
        _environment()
        .get_template("page.html")
        .render(
            project=project and visible(project),
            style=style,
            script=starter,
            policy=content_policy(style, (starter, script), chunks=chunks, live=live),
            blocks={"script": _packed(script), **blocks},
            live=live,
        )
    )


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _packed(text: str) -> str:
    """Return gzip in base64: a report of 10,000 runs becomes a tenth, and holds no markup."""
    # Without the time: equal reports make equal pages.
    return b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


@cache
def _environment() -> Environment:
    """Return the environment of templates: everything is escaped, and an unknown name is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
