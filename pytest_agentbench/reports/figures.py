"""Figures of report.json's entries in words, as the terminal, comments and summaries show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_agentbench.reports import text
from pytest_agentbench.reports.table import Style

_MARKS = {"scripted": "scripted, not a model", "own_agent": "your own agent"}
_TAPED = {"recorded": "on", "replayed": "from"}


def subject(models: Sequence[Any]) -> str:
    """What the rows of the table are."""
    names = {"predictions": "predictions", "own_agent": "agent"}
    return next((title for mark, title in names.items() if all(model[mark] for model in models)), "model")


def cost(entry: Any, style: Style) -> str:
    """Run and judge together; at least that where some of it is unknown."""
    known = [value for value in entry["at_least"]["cost_usd"].values() if value is not None]
    exact = None not in entry["cost_usd"].values()
    if not exact and not any(known):
        return style.dash
    return ("" if exact else style.at_least) + text.money(sum(known))


def tokens(model: Any, style: Style) -> str:
    """Input and output together; at least that where some of it is unknown."""
    known = [model["at_least"]["tokens"][part] for part in ("input", "output")]
    if known == [None, None]:
        return style.dash
    exact = None not in (model["tokens"]["input"], model["tokens"]["output"])
    return ("" if exact else style.at_least) + text.count(sum(value or 0 for value in known))


def judged(model: Any) -> str:
    """How many of a model's cases its mean score is about; nothing where that is none, or not known."""
    found, cases = model.get("scored_cases"), model.get("cases")
    return "" if not found else str(found) if found == cases else f"{found} of {cases}"


def model_marks(model: Any) -> list[str]:
    """What a reader of a model's figures has to know: who answered, what is from earlier, what is from cassettes."""
    marks = [mark for name, mark in _MARKS.items() if model[name]]
    marks += [f"predictions from {text.visible(model['predictions'])}"] if model["predictions"] else []
    marks += [f"{model['reused']} of {model['runs']} runs reused{_anew(model)}"] if model["reused"] else []
    return marks + [f"{model[how]} {how} {link} cassettes" for how, link in _TAPED.items() if model[how]]


def _anew(entry: Any) -> str:
    """How many of the reused runs were judged again."""
    return f" ({entry['rejudged']} judged anew)" if entry["rejudged"] else ""


def totals_lines(totals: Any, style: Style) -> list[str]:
    """Runs by outcome, and what they cost where that is known."""
    parts = [f"{totals[name]} {name}" for name in ("passed", "failed", "skipped") if totals[name]]
    parts += [f"{totals['reused']} reused{_anew(totals)}"] if totals["reused"] else []
    if totals["errors"]:
        parts.append(f"{totals['errors']} error{'s' if totals['errors'] > 1 else ''}")
    line = f"{totals['runs']} run{'s' if totals['runs'] != 1 else ''}: {', '.join(parts)}"
    known, exact = totals["at_least"]["cost_usd"], totals["cost_usd"]
    shown = [
        f"{part} {'' if exact[part] is not None else style.at_least}{text.money(known[part])}"
        for part in known
        if known[part]
    ]
    return [line, f"cost: {', '.join(shown)}{_paid_now(totals)}"] if shown else [line]


def grading_line(runs: Sequence[Any]) -> str | None:
    """Return how many runs were graded where their solution could have changed the grade; None for none."""
    found = sum(any(check.get("graded") == "in process" for check in run["checks"]) for run in runs)
    if not found:
        return None
    counted = f"{found} run{'s' if found > 1 else ''}"
    return f"graded in process: {counted}, by tests that the solution could change; `apart: true` keeps it out of there"


def _paid_now(totals: Any) -> str:
    """What of it this session paid, where that is not all."""
    spent = totals["spent_usd"].values()
    if not (totals["reused"] or totals["replayed"]) or None in spent:
        return ""
    return f"; of that paid now: {text.money(sum(spent))}"
