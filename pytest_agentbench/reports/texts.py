"""The question, the expected and the actual answer of a run: their first characters, for readers of a report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from pytest_agentbench.records.case import Case
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.records.gold import gold_text
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.terminal_text import sendable

HEAD = 500
"""Characters of each text in a report. The store has the whole text."""
_READ = 100_000
"""Characters of a text in which secrets are looked for. The rest of it is not shown, even if redaction shortens it."""
_CHECKS = 5
"""How many checks `expected` names."""

_WANTED = {
    "contains": "contains {text}",
    "icontains": "contains {text}",
    "not_contains": "does not contain {text}",
    "starts_with": "starts with {text}",
    "equals": "{text}",
    "regex_match": "matches {pattern}",
    "json_path_equals": "{json_path} is {value}",
    "metric": "{reference}",
    "file_contains": "contains {text}",
    "file_exists": "exists",
    "path_exists": "exists",
    "tool_called": "calls {name}",
    "tool_not_called": "does not call {name}",
    "status_is": "ends as {status}",
}
"""Actions of a run that passes, by the check's kind. A check of a file has the file's path before it."""


def run_texts(case: Case, artifact: RunArtifact | None, redact: Callable[[str], str]) -> dict[str, str | None]:
    """Return title, question, expected and answer of a run, each without secrets and cut; None if there is none."""
    texts = {
        "title": _own_title(case),
        "question": find_question(case),
        "expected": describe_expected(case),
        "answer": None if artifact is None else artifact.final_output,
    }
    return {name: _head(text, redact) for name, text in texts.items()}


REASON = 80
"""Characters of a reason."""
_PLACE = r"(?:(?:scripted )?model '[^']*'(?: at \S+)?|(?:[A-Za-z]:)?[^:\n]{1,400}:\d{1,9}(?::\d{1,9})?): "
"""The model, or the line of a file, that a message begins with: its trouble is the reason, wherever it happens."""


def find_reason(outcome: str, status: str | None, message: str | None) -> str | None:
    """Return why a run failed as its message says before the colon: "check has-answer", "HTTP 503"; None if it did not.

    Runs with equal reasons are a group. A run without a message has its status as the reason.
    """
    if outcome not in ("failed", "error"):
        return None
    if not message:
        return "no reason is known" if status in (None, "success") else f"run {status}"
    # Compiled at the first failed run: most sessions of one case have none
    reason = re.split(": |\n", re.sub(rf"\A{_PLACE}", "", message), maxsplit=1)[0]
    return reason if len(reason) <= REASON else f"{reason[: REASON - 1]}…"


def _own_title(case: Case) -> str | None:
    """Return the title that the case's author wrote; None for a row, whose title is the beginning of its question."""
    if case.dataset is not None or case.title == case.case_id:
        return None
    return case.title


def find_question(case: Case) -> str | None:
    """Return the last message of a user in the case, None if it has none."""
    messages = (*case.messages, *case.turns)
    return next((message.content for message in reversed(messages) if message.role == "user"), None)


def describe_expected(case: Case) -> str | None:
    """Return the right answer, else what the checks and the judge look for, on one line; None if nothing says it."""
    if case.reference is not None or case.golds is not None:
        return gold_text(case.gold)
    wanted = [*_describe_checks(case)][:_CHECKS]
    if not wanted and case.expectations.hard_expectations:
        wanted = [expectation.label for expectation in case.expectations.hard_expectations[:_CHECKS]]
    if not wanted and case.rubric is not None:
        wanted = [text for text in (case.rubric.scoring_instructions or "").strip().splitlines()[:1] if text]
    return "; ".join(wanted) or None


def _describe_checks(case: Case) -> Iterator[str]:
    for check in case.checks:
        text = check.description or _describe_kind(check)
        if text is not None:
            yield text if check.turn is None else f"{_name_turn(check.turn)}: {text}"


def _name_turn(turn: int | str) -> str:
    if isinstance(turn, str):
        return f"{turn} turn"
    return "last turn" if turn == -1 else f"turn {turn}"


def _describe_kind(check: Check) -> str | None:
    spec: Any = check.declarative
    template = None if spec is None else _WANTED.get(spec.kind)
    if template is None:
        return None
    fields = {**dict(spec), "name": getattr(spec, "name", None) or getattr(spec, "portable", None)}
    path = fields.get("path")
    return " ".join(part for part in (path, template.format_map(fields)) if part is not None)


def _head(text: str | None, redact: Callable[[str], str]) -> str | None:
    if text is None:
        return None
    return sendable(redact(text[:_READ]), HEAD)
