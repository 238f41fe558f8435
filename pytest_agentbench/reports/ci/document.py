"""The report as Markdown: a comment on a pull request, GitHub's job summary, the comparison with a baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_agentbench.reports.ci import sections
from pytest_agentbench.reports.ci.jobs import Places
from pytest_agentbench.reports.ci.sections import (
    SENTENCE,
    SHOWN,
    STYLE,
    Block,
    case_link,
    code,
    folded,
    folding_list,
    join_blocks,
    table,
)
from pytest_agentbench.reports.comparison.wording import VERDICTS, chance_text, p_text, points
from pytest_agentbench.reports.table import percent

_NOTES = 3
_ICONS = {"worse": "❌ ", "better": "✅ "}
_TITLES = ("model", "cases", "before", "now", "difference", "95 % interval", "p", "verdict")


def comparison_blocks(
    found: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], places: Places, reasons: Sequence[str] = ()
) -> list[Block]:
    """Return the `comparison_blocks` of report.json. `rows` are its runs by node id: where cases stand.

    What the gate's `reasons` say already is not said again.
    """
    name = found["baseline"]["report"] or "the baseline"
    started = found["baseline"]["started_at"]
    head = f"### Compared with {code(name)}" + (f" of {code(started)}" if started else "")
    sentences = [model["summary"] for model in found["models"]]
    sentences = [sentence for sentence in sentences if not any(sentence in reason for reason in reasons)]
    worse = [(change, model) for model in found["models"] for change in model["regressions"]]
    better = [(change, model) for model in found["models"] for change in model["gains"]]
    blocks = [
        table(head, _TITLES, map(_row, found["models"])),
        *folding_list("", [f"- {code(sentence, SENTENCE)}" for sentence in sentences], SHOWN, "more"),
        *folding_list("", [f"- ⚠️ {code(note, SENTENCE)}" for note in found["notes"]], _NOTES, "more notes"),
    ]
    lines = [_change(change, model, rows, places) for change, model in worse]
    blocks += folding_list(f"**{_count_cases(worse)} worse than before**", lines, SHOWN, "more are worse")
    if better:
        gains = Block("", [_change(change, model, rows, places) for change, model in better])
        blocks.append(folded(f"{_count_cases(better)} better than before", gains))
    chance = [(change, model) for model in found["models"] for change in model.get("by_chance", ())]
    if chance:
        said = chance_text([change for change, _ in chance])
        blocks.append(folded(said, Block("", [_change(change, model, rows, places) for change, model in chance])))
    if lines := [*_unpaired_lines(found)]:
        blocks.append(folded("Not compared", Block("", lines)))
    return blocks


def _row(model: Mapping[str, Any]) -> Sequence[str]:
    measure, same = model["pass_rate"], model["baseline_model_id"] == model["model_id"]
    name = code(model["model_id"]) + ("" if same else f" against {code(model['baseline_model_id'])}")
    verdict, p_value = measure["verdict"], measure["p_adjusted"]
    return (
        name,
        str(measure["cases"]),
        *(STYLE.dash if measure[side] is None else percent(measure[side]) for side in ("baseline", "current")),
        STYLE.dash if measure["difference"] is None else f"{points(measure['difference'])} points",
        STYLE.dash if measure["ci95"] is None else " to ".join(map(points, measure["ci95"])),
        STYLE.dash if p_value is None else p_text(p_value).removeprefix("p ").removeprefix("= "),
        f"{_ICONS.get(verdict, '')}{VERDICTS.get(verdict, STYLE.dash)}",
    )


def _change(
    change: Mapping[str, Any], model: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], places: Places
) -> str:
    row = rows.get(change["nodeid"] or "")
    name = code(change["case_id"]) if row is None else case_link(row, places)
    sides = " → ".join(f"{change[side]['passed']} of {change[side]['judged']}" for side in ("baseline", "current"))
    must = ", **must pass**" if change["must_pass"] else ""
    alone = "" if change["p_value"] is None else f" ({p_text(change['p_value'])} by itself)"
    said = f": {code(change['message'], SENTENCE)}" if change["message"] else ""
    return f"- {name} on {code(model['model_id'])}{must}: {sides} passed{alone}{said}"


def _unpaired_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Return a line for each model and case that is on one side alone, or has no verdict on one."""
    for side, where in (("only_baseline", "before"), ("only_current", "now")):
        yield from (f"- model {code(name)}: only {where}" for name in found[side])
        for model in found["models"]:
            on = code(model["model_id"])
            yield from (f"- {code(case)} on {on}: only {where}" for case in model["cases"][side])
    for model in found["models"]:
        cases = model["cases"]["unjudged"]
        yield from (f"- {code(case)} on {code(model['model_id'])}: no verdict on one side" for case in cases)


def _count_cases(changes: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Count cases, on however many models."""
    number = len({change["case"] for change, _ in changes})
    return f"{number:,} case{'' if number == 1 else 's'}"


COMMENT = 65_000
"""Bytes of a comment: GitHub takes 65,536 characters."""
MARKER = "<!-- agentbench -->"
"""The first line: by it a later run finds the comment that it is to replace."""


def comparison_markdown(found: Mapping[str, Any], report: Mapping[str, Any], places: Places) -> str:
    """Return a comparison (report.json's `comparison_blocks`) alone; `report` is the current side's."""
    rows = {row["nodeid"]: row for row in report["runs"]}
    reasons = [f"- {code(reason, SENTENCE)}" for reason in found["failures"]]
    blocks = [
        *comparison_blocks(found, rows, places),
        *folding_list("❌ **It fails**", reasons, sections.SHOWN, "more reasons"),
    ]
    return join_blocks(blocks, sections.facts(report), COMMENT)


def report_markdown(report: Mapping[str, Any], places: Places, limit: int = COMMENT) -> str:
    """Return the verdict, the models, what changed, what failed and why, in at most `limit` bytes of UTF-8.

    Parts come in the order of their weight: where it gets tight, the last ones are cut first, and say so.
    """
    found = report.get("comparison")
    rows = {row["nodeid"]: row for row in report["runs"]}
    blocks = [
        *sections.verdict(report),
        *sections.uncollected(report, places),
        *sections.models(report),
        *(comparison_blocks(found, rows, places, report["session"]["gate"]["reasons"]) if found is not None else []),
        *sections.failures(report, places),
        *sections.errors(report, places),
        *sections.skips(report),
        *sections.datasets(report),
        *sections.matrix(report, places),
    ]
    head = f"{MARKER}\n"
    return head + join_blocks(blocks, sections.facts(report), limit - len(head))
