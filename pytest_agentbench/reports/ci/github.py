"""GitHub Actions: the job summary, and annotations at the lines of cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.reports.assertion import by_file
from pytest_agentbench.reports.ci.document import report_markdown
from pytest_agentbench.reports.ci.jobs import Places, leads_outside, on_github, workflow_command
from pytest_agentbench.reports.ci.sections import Trouble, troubles
from pytest_agentbench.reports.table import Terminal

MOST = 10
"""Annotations of one level that GitHub shows of a step."""
SUMMARY = 1_000_000
"""Bytes of a step's summary: GitHub refuses all of it above 1 MiB."""


def write_job_summary(report: Mapping[str, Any], places: Places, path: Path) -> None:
    """Add the report to the step's summary ($GITHUB_STEP_SUMMARY), beside what others wrote there.

    Raises UnwritableError, also where those have left no room.
    """
    try:
        taken = path.stat().st_size if path.exists() else 0
        room = SUMMARY - taken
        if room < 10_000:
            raise UnwritableError(f"{path}: the step's summary holds {taken:,} bytes already, GitHub takes 1 MiB")
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
    """Workflow commands that mark what could not be read and did not pass: at most ten, and a notice on the rest.

    They are errors where the session failed. Where it did not (a gate lets some cases fail), they are warnings.
    """
    level = "warning" if report["session"]["exit_status"] == 0 else "error"
    notes = [*_gate_notes(report), *_unread_notes(report, places), *_case_notes(report, places)]
    lines = [workflow_command(level, message, **properties) for message, properties in notes[:MOST]]
    if lacking := len(notes) - MOST:
        lines += [workflow_command("notice", _rest_of(lacking), title="agentbench")] if lacking > 0 else []
    return lines


def _gate_notes(report: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    gate = report["session"]["gate"]
    if gate["passed"] is False:
        yield "\n".join(gate["reasons"]), {"title": "agentbench: gate failed"}


def _unread_notes(report: Mapping[str, Any], places: Places) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield one for each case file that could not be read, at the first line that is wrong."""
    for file, problems in by_file(report["session"].get("uncollected") or ()).items():
        path, line = places.in_repository(file), problems[0]["line"]
        said = "\n".join(_describe_problem(problem, line) for problem in problems)
        yield said, {**_annotation_place(path, line), "title": f"collection error in {path}"}


def _describe_problem(problem: Mapping[str, Any], shown: int | None) -> str:
    """Describe what is wrong, with its line unless that is where it is `shown`."""
    line = problem["line"]
    return problem["message"] if line in (None, shown) else f"line {line}: {problem['message']}"


def _annotation_place(path: str, line: int | None) -> dict[str, Any]:
    """Return where GitHub shows it: at a line of the repository, else at none."""
    return {} if leads_outside(path) else {"file": path, "line": line}


def _case_notes(report: Mapping[str, Any], places: Places) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield one for each case, over all models: failures first, then errors."""
    for outcome, said in (("failed", "failed"), ("error", "ended in an error")):
        for found in troubles(report, outcome):
            row = found[0].row
            names = ", ".join(each.row["model_id"] for each in found)
            place = _annotation_place(places.path(row), places.line(row))
            yield "\n".join(map(_sentence, found)), {**place, "title": f"{row['case_id']} {said} on {names}"}


def _sentence(trouble: Trouble) -> str:
    often = f" ({trouble.often})" if trouble.often else ""
    return f"{trouble.row['model_id']}{often}: {trouble.reason}"


def _rest_of(lacking: int) -> str:
    return f"{lacking:,} more did not pass: see the job summary"
