"""The report in CI: a Markdown comment, GitHub's job summary and annotations, the comparison with a baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.reports.assertion import group_by_file
from pytest_agentbench.reports.ci import sections
from pytest_agentbench.reports.ci.sections import (
    SENTENCE,
    SHOWN,
    STYLE,
    Block,
    Places,
    case_link,
    cell,
    code,
    folded,
    folding_list,
    join_blocks,
    leads_outside,
    list_texts,
    table,
    troubles,
)
from pytest_agentbench.reports.comparison.wording import (
    CHANGE_TEXTS,
    VERDICTS,
    bare_p,
    chance_text,
    columns_title,
    p_text,
    points,
)
from pytest_agentbench.reports.table import Terminal, column_of, format_percent
from pytest_agentbench.terminal_text import count_text, legible, on_github, shorten_text

_NOTES = 3
_ICONS = {"worse": "❌ ", "better": "✅ "}
_TITLES = ("model", "cases", "before", "now", "difference", "95 % interval", "p", "verdict")


def comparison_blocks(
    comparison: Mapping[str, Any] | None,
    rows: Mapping[str, Mapping[str, Any]],
    places: Places,
    reasons: Sequence[str] = (),
) -> list[Block]:
    """Return the Markdown blocks of report.json's `comparison`, [] for None. `rows` are its runs by node id, for the
    place of each case.

    Sentences that the gate's `reasons` contain are not repeated.
    """
    if comparison is None:
        return []
    head = f"### Compared with {code(comparison['baseline']['report'] or 'the baseline')}"
    if started := comparison["baseline"]["started_at"]:
        head += f" of {code(started)}"
    sentences = [model["summary"] for model in comparison["models"]]
    sentences = [sentence for sentence in sentences if not any(sentence in reason for reason in reasons)]
    worse = [(change, model) for model in comparison["models"] for change in model["regressions"]]
    better = [(change, model) for model in comparison["models"] for change in model["gains"]]
    blocks = [
        table(head, _TITLES, map(_row, comparison["models"])),
        *folding_list("", [f"- {code(sentence, SENTENCE)}" for sentence in sentences], SHOWN, "more"),
        *folding_list("", [f"- ⚠️ {code(note, SENTENCE)}" for note in comparison["notes"]], _NOTES, "more notes"),
    ]
    lines = [_change(change, model, rows, places) for change, model in worse]
    blocks += folding_list(f"**{_count_cases(worse)} worse than before**", lines, SHOWN, "more are worse")
    if better:
        gains = Block("", [_change(change, model, rows, places) for change, model in better])
        blocks.append(folded(f"{_count_cases(better)} better than before", gains))
    chance = [(change, model) for model in comparison["models"] for change in model.get("by_chance", ())]
    if chance:
        title = chance_text([change for change, _ in chance])
        blocks.append(folded(title, Block("", [_change(change, model, rows, places) for change, model in chance])))
    if lines := [*_unpaired_lines(comparison)]:
        blocks.append(folded("Not compared", Block("", lines)))
    return blocks


def _column_blocks(report: Mapping[str, Any]) -> list[Block]:
    """Return the Markdown blocks of the columns against their reference, [] for a single column."""
    compared = report.get("column_comparisons")
    if not compared:
        return []
    sentences = [f"- {code(model['summary'], SENTENCE)}" for model in compared]
    head = f"### {code(columns_title(report))}"
    titles = ["column", "cases", "reference", "column", *_TITLES[4:]]
    return [table(head, titles, map(_row, compared)), *folding_list("", sentences, SHOWN, "more")]


def _row(model: Mapping[str, Any]) -> Sequence[str]:
    name, measure = code(model["model_id"]), model["pass_rate"]
    if model["baseline_model_id"] != model["model_id"]:
        name += f" against {code(model['baseline_model_id'])}"
    verdict = measure["verdict"]
    return (
        name,
        str(measure["cases"]),
        *(cell(measure[side], format_percent) for side in ("baseline", "current")),
        cell(measure["difference"], lambda difference: f"{points(difference)} points"),
        cell(measure["ci95"], lambda ends: " to ".join(map(points, ends))),
        cell(measure["p_adjusted"], bare_p),
        f"{_ICONS.get(verdict, '')}{VERDICTS.get(verdict, STYLE.dash)}",
    )


def _change(
    change: Mapping[str, Any], model: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], places: Places
) -> str:
    row = rows.get(change["nodeid"] or "")
    name = code(change["case_id"]) if row is None else case_link(row, places)
    sides = " → ".join(f"{change[side]['passed']} of {change[side]['judged']}" for side in ("baseline", "current"))
    must = ", **must pass**" if change["must_pass"] else ""
    line = f"- {name} on {code(model['model_id'])}{must}: {sides} passed"
    if change["p_value"] is not None:
        line += f" ({p_text(change['p_value'])} by itself)"
    if change["message"]:
        line += f": {code(change['message'], SENTENCE)}"
    return "<br>".join([line, *list_texts(change, CHANGE_TEXTS)])


def _unpaired_lines(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Return a line for each model and case that is on one side alone, or has no verdict on one."""
    for side, where in (("only_baseline", "before"), ("only_current", "now")):
        yield from (f"- model {code(name)}: only {where}" for name in comparison[side])
        for model in comparison["models"]:
            on = code(model["model_id"])
            yield from (f"- {code(case)} on {on}: only {where}" for case in model["cases"][side])
    for model in comparison["models"]:
        cases = model["cases"]["unjudged"]
        yield from (f"- {code(case)} on {code(model['model_id'])}: no verdict on one side" for case in cases)


def _count_cases(changes: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Return the number of cases, each counted once for all models."""
    return count_text(len({change["case"] for change, _ in changes}), "case")


COMMENT = 65_000
"""Bytes of a comment: GitHub takes 65,536 characters."""
MARKER = "<!-- agentbench -->"
"""The first line: by it a later run finds the comment that it is to replace."""


def comparison_markdown(comparison: Mapping[str, Any], report: Mapping[str, Any], places: Places) -> str:
    """Return a comparison (report.json's `comparison_blocks`) alone; `report` is the current side's."""
    rows = {row["nodeid"]: row for row in report["runs"]}
    reasons = [f"- {code(reason, SENTENCE)}" for reason in comparison["failures"]]
    blocks = [
        *comparison_blocks(comparison, rows, places),
        *folding_list("❌ **It fails**", reasons, sections.SHOWN, "more reasons"),
    ]
    return join_blocks(blocks, sections.facts(report), COMMENT)


def report_markdown(report: Mapping[str, Any], places: Places, limit: int = COMMENT) -> str:
    """Return the verdict, the models, the changes and the failures with their reasons, in at most `limit` bytes of
    UTF-8.

    Parts are in order of importance. If there is no room for all, the last ones are cut, with a note.
    """
    comparison = report.get("comparison")
    rows = {row["nodeid"]: row for row in report["runs"]}
    blocks = [
        *sections.verdict(report),
        *sections.uncollected(report, places),
        *sections.models(report),
        *comparison_blocks(comparison, rows, places, report["session"]["gate"]["reasons"]),
        *_column_blocks(report),
        *sections.failures(report, places),
        *sections.errors(report, places),
        *sections.skips(report),
        *sections.datasets(report),
        *sections.matrix(report, places),
    ]
    # Counted in bytes, of which there are never fewer than GitHub's characters
    head = f"{MARKER}\n"
    return head + join_blocks(blocks, sections.facts(report), limit - len(head))


MOST = 10
"""Annotations of one level that GitHub shows of a step."""
SUMMARY = 1_000_000
"""Bytes of a step's summary: GitHub refuses all of it above 1 MiB."""


def write_job_summary(report: Mapping[str, Any], places: Places, path: Path) -> None:
    """Append the report to the step's summary ($GITHUB_STEP_SUMMARY).

    Raises UnwritableError, also if earlier content leaves no room.
    """
    try:
        size = path.stat().st_size if path.exists() else 0
        # Other steps of the job write to this file too, and GitHub refuses all of it for a byte too many
        room = SUMMARY - size
        if room < 10_000:
            raise UnwritableError(f"{path}: the step's summary already has {size:,} bytes; GitHub's limit is 1 MiB")
        with path.open("ab") as file:
            file.write(f"\n{report_markdown(report, places, room - 1)}".encode())
    except OSError as error:
        raise UnwritableError(f"{path}: the job summary cannot be written: {error.strerror or error}") from error


def write_annotations(terminal: Terminal, report: Mapping[str, Any], root: Path) -> None:
    """Print the annotations of a session in GitHub Actions; `root` is pytest's root directory."""
    if on_github():
        for line in case_annotations(report, Places(root)):
            terminal.write_line(line)


def case_annotations(report: Mapping[str, Any], places: Places) -> list[str]:
    """Return workflow commands for files that could not be read and cases that did not pass: at most ten, then a
    notice.

    They are errors if the session failed, and warnings if it passed (a gate may accept failures).
    """
    # An error annotation in a job that passed would be misleading.
    level = "warning" if report["session"]["exit_status"] == 0 else "error"
    notes = [*_gate_notes(report), *_unread_notes(report, places), *_case_notes(report, places)]
    lines = [workflow_command(level, message, **properties) for message, properties in notes[:MOST]]
    if (lacking := len(notes) - MOST) > 0:
        lines.append(
            workflow_command("notice", f"{lacking:,} more did not pass: see the job summary", title="agentbench")
        )
    return lines


def _gate_notes(report: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    gate = report["session"]["gate"]
    if gate["passed"] is False:
        yield "\n".join(gate["reasons"]), {"title": "agentbench: gate failed"}


def _unread_notes(report: Mapping[str, Any], places: Places) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an annotation for each unreadable case file, at its first wrong line."""
    for file, problems in group_by_file(report["session"].get("uncollected") or ()).items():
        path, line = places.in_repository(file), problems[0]["line"]
        text = "\n".join(_describe_problem(problem, line) for problem in problems)
        yield text, {**_annotation_place(path, line), "title": f"collection error in {path}"}


def _describe_problem(problem: Mapping[str, Any], annotated_line: int | None) -> str:
    """Describe the problem, with its line unless that is `annotated_line`."""
    line, message = problem["line"], str(problem["message"])
    if line in (None, annotated_line):
        return message
    return f"line {line}: {message}"


def _annotation_place(path: str, line: int | None) -> dict[str, Any]:
    """Return the place at which GitHub shows an annotation: a line of the repository, or {}."""
    if leads_outside(path):
        return {}
    return {"file": path, "line": line}


def _case_notes(report: Mapping[str, Any], places: Places) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an annotation for each case over all models: failures first, then errors."""
    for outcome, verb in (("failed", "failed"), ("error", "ended in an error")):
        for case_troubles in troubles(report, outcome):
            row = case_troubles[0].row
            names = ", ".join(column_of(trouble.row) for trouble in case_troubles)
            place = _annotation_place(places.path(row), places.line(row))
            lines = (f"{column_of(trouble.row)}{trouble.often}: {trouble.reason}" for trouble in case_troubles)
            yield "\n".join(lines), {**place, "title": f"{row['case_id']} {verb} on {names}"}


_LONGEST_MESSAGE = 1_000


def workflow_command(name: str, message: str, **properties: str | int | None) -> str:
    """Return a workflow command on one line. Nothing in message and properties can end it or begin another one."""
    arguments = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items() if value is not None)
    return f"::{name}{' ' if arguments else ''}{arguments}::{_data(message)}"


def _data(text: str) -> str:
    cut = legible(shorten_text(text, _LONGEST_MESSAGE))
    return cut.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
