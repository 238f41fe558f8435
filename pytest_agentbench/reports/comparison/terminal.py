"""A comparison on the terminal, from its JSON: verdicts, what became worse, and in full every figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_agentbench.reports import text
from pytest_agentbench.reports.comparison.wording import (
    CHANCE,
    chance_text,
    change_text,
    compared_with,
    left_out,
    measure_cells,
)
from pytest_agentbench.reports.table import Markup, Style, Terminal, column, fit, style_of, write_row, write_titles

LISTED = 5
"""How many cases of a kind a session's summary names."""
LISTED_IN_FULL = 50
"""How many `agentbench compare` names; JSON has all."""
_COLOURS: dict[str, Markup] = {"worse": {"red": True, "bold": True}, "better": {"green": True, "bold": True}}
_TONES: dict[str, Markup] = {"regressions": {"red": True}, "gains": {"green": True}}
_TITLES = ("", "baseline", "current", "difference", "95 % interval", "p")
_LAST_DROPPED = (0, 1, 2, 3, 5, 4)


def write_comparison(reporter: Terminal, comparison: dict[str, Any], *, full: bool = False) -> None:
    """Each model's verdict and regressions, then notes; `full`: with all figures, changes and cases without partner."""
    style, listed = style_of(reporter), LISTED_IN_FULL if full else LISTED
    reporter.write_line(text.visible(compared_with(comparison)), bold=True)
    for model in comparison["models"]:
        if full:
            reporter.line("")
        reporter.write_line(f"  {text.visible(model['summary'])}", **_COLOURS.get(model["verdict"], {}))
        if full:
            _write_figures(reporter, model, style)
        _write_changes(reporter, "regressions", model["regressions"], style, listed)
        if full:
            _write_changes(reporter, "gains", model["gains"], style, listed)
            _write_changes(reporter, CHANCE, model.get("by_chance", ()), style, listed)
        else:
            if model["gains"]:
                reporter.write_line(f"  gains: {len(model['gains'])}")
            if by_chance := model.get("by_chance"):
                reporter.write_line(f"  {chance_text(by_chance)}")
        for line in left_out(model["cases"], listed):
            reporter.write_line(f"  {text.visible(line)}")
    for side, models in (("baseline", comparison["only_baseline"]), ("current", comparison["only_current"])):
        if models:
            reporter.write_line(f"  only in the {side} report: {text.visible(', '.join(models))}")
    for note in comparison["notes"]:
        reporter.write_line(f"  note: {text.visible(note)}", yellow=True)


def write_failures(reporter: Terminal, failures: Sequence[str]) -> None:
    """Why the comparison fails a gate; nothing where it does not."""
    if failures:
        reporter.write_line("comparison failed:", red=True, bold=True)
    for reason in failures:
        reporter.write_line(f"  {text.visible(reason)}", red=True)


def _write_figures(reporter: Terminal, model: dict[str, Any], style: Style) -> None:
    """A row for each figure that any case has on both sides."""
    figures = {"pass_rate": model["pass_rate"], "score": model["score"], **model["others"]}
    rows = [
        [style.clip(name, style.width // 3), *measure_cells(name, measure)]
        for name, measure in figures.items()
        if measure["cases"]
    ]
    if not rows:
        return
    cells = zip(*rows, strict=True)
    columns = [
        column(title, rank, entries, "<" if rank == 0 else ">")
        for title, rank, entries in zip(_TITLES, _LAST_DROPPED, cells, strict=True)
    ]
    columns = fit(columns, style.width)
    write_titles(reporter, columns)
    for row in range(len(rows)):
        write_row(reporter, columns, row)


def _write_changes(
    reporter: Terminal, title: str, changes: Sequence[dict[str, Any]], style: Style, listed: int
) -> None:
    if not changes:
        return
    shown = changes[:listed]
    more = f" ({len(shown)} of {len(changes)})" if len(shown) < len(changes) else f" ({len(changes)})"
    reporter.write_line(f"  {title}{more}:", bold=True)
    went = [change_text(change) for change in shown]
    names = [
        style.clip(("must pass: " if each["must_pass"] else "") + each["case_id"], style.width // 2) for each in shown
    ]
    first, second = max(map(len, went)), max(map(text.cells, names))
    for change, how, name in zip(shown, went, names, strict=True):
        message = style.clip(change["message"] or "", max(0, style.width - first - second - 8))
        marked = _TONES.get(title, {})
        reporter.write(f"    {how:<{first}}", **marked)
        reporter.line(f"  {text.pad(name, second)}  {message}".rstrip())
