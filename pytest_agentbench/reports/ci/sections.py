"""The parts of a comment and of a job summary: blocks of Markdown, text of others escaped, of a bounded size."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from pytest_agentbench.reports.assertion import group_by_file
from pytest_agentbench.reports.gate import CaseKey, case_key, has_verdict
from pytest_agentbench.reports.table import (
    Style,
    column_of,
    cost_text,
    format_percent,
    format_seconds,
    grading_line,
    judged_text,
    model_marks,
    model_name,
    subject_title,
    tokens_text,
    totals_lines,
)
from pytest_agentbench.terminal_text import count_text, shorten_text, visible_line

T = TypeVar("T")

NAME = 120
SENTENCE = 300
"""Characters that are shown of a name, and of a message."""

_MEANT = re.compile(r"[\\`*_{}\[\]<>#!|~&@:$^]|(?<=www)\.", re.IGNORECASE)


def code(text: str, limit: int = NAME) -> str:
    """Return the text in `<code>`, on one line, safe for a table's cell.

    Markdown's special characters become character references, which are never markup. GitHub and GitLab look for
    mentions, issues and emoji in the finished page, but not in `<code>`. They look for mail addresses there too, in
    texts that no element or comment divides.
    """
    return f"<code>{_MEANT.sub(_reference, visible_line(shorten_text(text, limit)))}</code>"


def _reference(match: re.Match[str]) -> str:
    if match[0] == "@":
        # The comment divides a mail address, which GitHub would link even in `<code>`.
        return "&#64;<!-- -->"
    return f"&#{ord(match[0])};"


_NOTE = 80
"""Maximum bytes of the note on omitted parts."""


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, or lines (`items`) between `head` and `tail`, of which as many as fit are kept."""

    head: str
    items: Sequence[str] = ()
    tail: str = ""

    def within(self, room: int) -> str | None:
        """Return the block in at most `room` bytes, or None if its head and one line do not fit."""
        items, bytes_left = [], room - _size(self.head) - _size(self.tail) - _NOTE
        for item in self.items:
            bytes_left -= _size(item) + 1  # bytes, for GitHub counts these; one for the end of the line
            if bytes_left < 0:
                break
            items.append(item)
        if bytes_left < 0 and not items:
            return None
        lines = "\n".join([self.head, *items]) if self.head else "\n".join(items)
        if lacking := len(self.items) - len(items):
            lines += f"\n\n… and {lacking:,} more, see the report."
        return lines + self.tail


def table(head: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Block:
    """Return a table below a heading; all columns but the first are flush right. Cells are Markdown already."""
    rule = f"|---|{'---:|' * (len(titles) - 1)}"
    above = f"{head}\n\n" if head else ""
    return Block(f"{above}{_line(titles)}\n{rule}", [_line(row) for row in rows])


def folded(summary: str, block: Block) -> Block:
    """Fold the block behind a line that opens it."""
    head = f"<details>\n<summary>{summary}</summary>\n\n{block.head}".rstrip("\n")
    if not block.head:
        head += "\n"
    return Block(head, block.items, f"{block.tail}\n\n</details>")


def folding_list(head: str, items: Sequence[str], open_items: int, rest: str) -> list[Block]:
    """Return a list whose first `open_items` items are open; the others are folded behind a line with their number."""
    if not items:
        return []
    blocks = [Block(f"{head}\n" if head else "", items[:open_items])]
    if len(items) > open_items:
        blocks.append(folded(f"{len(items) - open_items:,} {rest}", Block("", items[open_items:])))
    return blocks


def join_blocks(blocks: Iterable[Block], last: str, limit: int) -> str:
    """Join the blocks, then `last`, in at most `limit` bytes of UTF-8. A note counts omitted blocks."""
    # Reserve room for the last line and the note, so that the reader learns of omitted blocks.
    room = limit - _size(last) - 1 - _NOTE
    texts, dropped = [], 0
    for block in blocks:
        text = block.within(room - 2)
        if text is None:
            dropped += 1
        else:
            texts.append(text)
            room -= _size(text) + 2
    if dropped:
        texts.append("More would not fit here; the report has all of it.")
    return "\n\n".join([*texts, last]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _size(text: str) -> int:
    return len(text.encode())


@dataclass(frozen=True, slots=True)
class Trouble:
    """A case on a model: `runs` of its `ran` runs did not pass, all in one way. `row` is the first of them."""

    row: Mapping[str, Any]
    runs: int
    ran: int

    @property
    def often(self) -> str:
        """Return how many of a case's runs had this outcome, in brackets, or "" if the case ran once."""
        if self.ran == 1:
            return ""
        return f" ({self.runs} of {self.ran} runs)"

    @property
    def reason(self) -> str:
        """Return the message of the first such run."""
        message: str | None = self.row["message"]
        return message or "no reason is known"


def troubles(report: Mapping[str, Any], outcome: str) -> list[list[Trouble]]:
    """Return the cases with runs of this outcome (`failed` or `error`), in the report's order, each with its models."""
    ran: dict[tuple[CaseKey, str], int] = defaultdict(int)
    runs_by_case: dict[tuple[CaseKey, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in report["runs"]:
        key = case_key(row), column_of(row)
        ran[key] += row["outcome"] != "skipped"
        if row["outcome"] == outcome:
            runs_by_case[key].append(row)
    cases: dict[CaseKey, list[Trouble]] = defaultdict(list)
    for (case, model), rows in runs_by_case.items():
        cases[case].append(Trouble(rows[0], len(rows), ran[case, model]))
    return list(cases.values())


# Wide enough that `clip` never cuts: a page folds lines by itself
STYLE = Style(width=10_000, fancy=True)
SHOWN = 20
"""How many lines of a list are open."""
_REASONS = 10
_ICONS = {True: "✅", False: "❌", None: "⚠️"}


def verdict(report: Mapping[str, Any]) -> list[Block]:
    """Return whether all is well, in one line, and why not."""
    session, totals = report["session"], report["totals"]
    gate = session["gate"]
    passed = gate["passed"]
    if passed is None:
        passed = _exit_verdict(session)
    if not totals["runs"]:
        sentence = "no run was made"
    elif gate["passed"] is None:
        sentence = totals_lines(totals, STYLE)[0]
    else:
        rate = "no run was judged"
        if gate["pass_rate"] is not None:
            rate = f"pass rate {format_percent(gate['pass_rate'])}"
        sentence = f"gate {'passed' if passed else 'failed'}: {rate}, {totals_lines(totals, STYLE)[0]}"
    if passed and not totals["runs"]:
        passed = None  # green only if something ran: an empty session may pass its gate by doing nothing
    head = f"## {_ICONS[passed]} agentbench: {sentence}"
    faults = session.get("faults") or []
    reasons = [*gate["reasons"], *(fault for fault in faults if fault not in gate["reasons"])]
    return [
        Block(head),
        *folding_list("", [f"- {code(reason, SENTENCE)}" for reason in reasons], _REASONS, "more reasons"),
        *folding_list(
            "", [f"- ⚠️ {code(warning, SENTENCE)}" for warning in session["warnings"]], _REASONS, "more warnings"
        ),
    ]


def _exit_verdict(session: Mapping[str, Any]) -> bool | None:
    """Return the verdict by pytest's exit status, or None if the session was killed before it had one."""
    status: int | None = session["exit_status"]
    if status is None:
        return None
    return status == 0


def uncollected(report: Mapping[str, Any], places: Places) -> list[Block]:
    """Return the case files that could not be collected, with their errors."""
    files = group_by_file(report["session"].get("uncollected") or ())
    head = f"### Collection errors in {count_text(len(files), 'file')}"
    lines = [_unread_file(file, problems, places) for file, problems in files.items()]
    return folding_list(head, lines, SHOWN, "more have collection errors")


def _unread_file(file: str, problems: Sequence[Mapping[str, Any]], places: Places) -> str:
    """Return a file, with a line for each of its first problems."""
    path = places.in_repository(file)
    lines = []
    for problem in problems[:_REASONS]:
        text, line = code(problem["message"], SENTENCE), problem["line"]
        if line is not None:
            text = f"{_link(f'line {line}', places.address(path, line))}: {text}"
        lines.append(text)
    if len(problems) > _REASONS:
        lines.append(f"and {len(problems) - _REASONS:,} more")
    return "<br>".join([f"- ❌ {code(path, SENTENCE)}", *lines])


def models(report: Mapping[str, Any]) -> list[Block]:
    """Return the table of models side by side."""
    entries = report["models"]
    if not entries:
        return []
    scored = any(model["mean_score"] is not None for model in entries)
    titles = [subject_title(entries), "runs", "passed", "failed", "errors", "pass rate", "95 % interval"]
    if scored:
        titles += ["score", "95 % interval", "judged"]
    rows = []
    for model in entries:
        cells = [code(model_name(model)), *(str(model[name]) for name in ("runs", "passed", "failed", "errors"))]
        cells += [cell(model["pass_rate"], format_percent), _range(model["pass_rate_ci95"], 100, "{:.0f}", " %")]
        if scored:
            cells += [cell(model["mean_score"], "{:.2f}".format), _range(model["score_ci95"], 1, "{:.2f}")]
            cells.append(judged_text(model))
        seconds = format_seconds(model["duration_seconds"]["mean"], STYLE.dash)
        rows.append([*cells, cost_text(model, STYLE), tokens_text(model, STYLE), seconds])
    blocks = [table("", [*titles, "cost", "tokens", "time/run"], rows)]
    marks = [
        f"- {code(column_of(model))}: {code('; '.join(notes))}" for model in entries if (notes := model_marks(model))
    ]
    return [*blocks, *folding_list("", marks, SHOWN, "more")]


def failures(report: Mapping[str, Any], places: Places) -> list[Block]:
    """Return the cases that agents failed: the reason, the place in the case file, the path of the stored run."""
    cases = troubles(report, "failed")
    head = f"### {count_text(len(cases), 'case')} failed"
    return folding_list(head, [_case_lines(case, "❌", places) for case in cases], SHOWN, "more failed")


def errors(report: Mapping[str, Any], places: Places) -> list[Block]:
    """Return the cases without a verdict because of an infrastructure error."""
    cases = troubles(report, "error")
    head = f"### {count_text(len(cases), 'case')} ended in errors\n\nThese are no verdicts on the agent."
    return folding_list(head, [_case_lines(case, "⚠️", places) for case in cases], SHOWN, "more ended in errors")


def skips(report: Mapping[str, Any]) -> list[Block]:
    """Return why runs were skipped."""
    reasons: dict[str, int] = defaultdict(int)
    for row in report["runs"]:
        if row["outcome"] == "skipped":
            reasons[row["message"] or "no reason is known"] += 1
    items = [f"- {count_text(runs, 'run')}: {code(reason, SENTENCE)}" for reason, runs in reasons.items()]
    if items:
        return [folded(f"{count_text(sum(reasons.values()), 'run')} skipped", Block("", items))]
    return []


def datasets(report: Mapping[str, Any]) -> list[Block]:
    """Return the table of each dataset on each model."""
    rows = [
        [
            code(dataset["dataset"]),
            code(column_of(dataset)),
            str(dataset["items"]),
            cell(dataset["pass_rate"], format_percent),
            _range(dataset["pass_rate_ci95"], 100, "{:.0f}", " %"),
            _score(dataset),
            cell(dataset["scored_by"], code),
        ]
        for dataset in report["datasets"]
    ]
    titles = ["dataset", "model", "items", "pass rate", "95 % interval", "score", "scored by"]
    if rows:
        return [folded("Datasets", table("", titles, rows))]
    return []


def _score(dataset: Mapping[str, Any]) -> str:
    """Return a dataset's mean score, and the number of its scored items if some have no score."""
    text, scored, items = cell(dataset["mean_score"], "{:.2f}".format), dataset.get("scored"), dataset["items"]
    if dataset["mean_score"] is None or scored in (None, items):
        return text
    return f"{text} ({scored} of {items})"


def matrix(report: Mapping[str, Any], places: Places) -> list[Block]:
    """Return the table of cases × models: how each case went on each model."""
    names = [column_of(model) for model in report["models"]]
    cells: dict[CaseKey, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in report["runs"]:
        cells[case_key(row)][column_of(row)].append(row)
    if not cells:
        return []
    rows = []
    for of_case in cells.values():
        first = next(iter(of_case.values()))[0]
        rows.append([case_link(first, places), *(_outcome_cell(of_case.get(name, ())) for name in names)])
    return [
        folded(
            f"{count_text(len(rows), 'case')} on {count_text(len(names), 'model')}",
            table("", ["case", *map(code, names)], rows),
        )
    ]


def facts(report: Mapping[str, Any]) -> str:
    """Return the last line: date, duration, cost and versions."""
    session = report["session"]
    parts = [
        code(session["started_at"]) if session["started_at"] else "",
        format_seconds(session["duration_seconds"], ""),
    ]
    parts += totals_lines(report["totals"], STYLE)[1:]
    parts += filter(None, [grading_line(report["runs"])])
    parts += [code(f"{kind} {name}") for kind, name in session["profiles"].items() if name]
    parts += [code(f"{name} {version}") for name, version in session["versions"].items()]
    line = ", ".join(part for part in parts if part)
    return f"<sub>{line or 'agentbench'}</sub>"


def case_link(row: Mapping[str, Any], places: Places) -> str:
    """Return the case's id, linked to its place if that has an address."""
    return _link(code(row["case_id"]), places.link(row))


def _link(text: str, address: str | None) -> str:
    if address is None:
        return text
    return f"[{text}]({address})"


def _case_lines(case_troubles: Sequence[Trouble], icon: str, places: Places) -> str:
    """Return a case that did not pass, with a line for each model."""
    row = case_troubles[0].row
    place, line = places.path(row), places.line(row)
    if line is not None:
        place += f":{line}"
    head = f"- {icon} {case_link(row, places)} in {code(place, SENTENCE)}"
    return "<br>".join([head, *list_texts(row, _CASE_TEXTS), *map(_trouble_line, case_troubles)])


_TEXT = 200
"""Characters that are shown of a question, a right answer and an answer."""
_CASE_TEXTS = {"question": "question", "expected": "expected"}
_RUN_TEXTS = {"answer": "answer"}


def list_texts(row: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    """Return a line for each text of a row that is not blank; `labels` are the words before them."""
    texts = {label: (row.get(name) or "").strip() for name, label in labels.items()}
    return [f"{label}: {code(text, _TEXT)}" for label, text in texts.items() if text]


def _trouble_line(trouble: Trouble) -> str:
    line = f"{code(column_of(trouble.row))}{trouble.often}: {code(trouble.reason, SENTENCE)}"
    if artifact := trouble.row["artifact"]:
        line += f", run {code(artifact, SENTENCE)}"
    return "<br>".join([line, *list_texts(trouble.row, _RUN_TEXTS)])


def _outcome_cell(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one mark if all runs have one outcome, else the number of passed among judged runs."""
    outcomes = {row["outcome"] for row in rows}
    if len(outcomes) == 1:
        return {"passed": "✅", "failed": "❌", "error": "⚠️", "skipped": STYLE.dash}[outcomes.pop()]
    judged = list(filter(has_verdict, rows))
    if not judged:
        if outcomes:
            return "⚠️"
        return ""
    passed = sum(row["outcome"] == "passed" for row in judged)
    text = f"{_ICONS[passed == len(judged)]} {passed}/{len(judged)}"
    if "error" in outcomes:
        text += " ⚠️"
    return text


def cell(value: T | None, form: Callable[[T], str]) -> str:
    """Return the text of a value, or a dash for None."""
    if value is None:
        return STYLE.dash
    return form(value)


def _range(interval: Sequence[float] | None, scale: float, form: str, unit: str = "") -> str:
    if interval is None:
        return STYLE.dash
    low, high = (form.format(bound * scale) for bound in interval)
    return f"{low} to {high}{unit}"


_WORKSPACES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR", "WORKSPACE")
"""The folder of the repository, as GitHub, GitLab and Jenkins name it."""


class Places:
    """Finds the places of runs whose node ids begin at `root` (pytest's root directory)."""

    def __init__(self, root: Path, environ: Mapping[str, str] = os.environ) -> None:
        workspace = next((environ[name] for name in _WORKSPACES if environ.get(name)), None)
        self._above = None if workspace is None else os.path.relpath(root.resolve(), Path(workspace).resolve())
        self._tree = _tree_address(environ)

    def path(self, row: Mapping[str, Any]) -> str:
        """Return the file of the run's case: from the repository's folder where CI names it, else from pytest's."""
        return self.in_repository(row["nodeid"].partition("::")[0])

    def in_repository(self, file: str) -> str:
        """Return the path in the repository of a file that is named from pytest's root directory."""
        if self._above is None:
            return file
        return os.path.normpath(os.path.join(self._above, file)).replace(os.sep, "/")

    def line(self, row: Mapping[str, Any]) -> int | None:
        """Return the case's line, from 1, or None if the report has none."""
        line: int | None = row.get("line")
        return line

    def link(self, row: Mapping[str, Any]) -> str | None:
        """Return the address of the case's line at the tested commit; None outside of GitHub, GitLab and repository."""
        return self.address(self.path(row), self.line(row))

    def address(self, path: str, line: int | None) -> str | None:
        """Return the address of a path in the repository."""
        if self._tree is None or self._above is None or leads_outside(path):
            return None
        address = f"{self._tree}/{quote(path)}"
        if line is None:
            return address
        return f"{address}#L{line}"


def leads_outside(path: str) -> bool:
    """Return whether a path from `Places` leads out of the repository."""
    return path.startswith(("../", "/"))


def _tree_address(environ: Mapping[str, str]) -> str | None:
    """Return the address below which the tested commit's files are."""
    if environ.get("GITHUB_REPOSITORY") and environ.get("GITHUB_SHA"):
        server = environ.get("GITHUB_SERVER_URL") or "https://github.com"
        return f"{server}/{environ['GITHUB_REPOSITORY']}/blob/{environ['GITHUB_SHA']}"
    if environ.get("CI_PROJECT_URL") and environ.get("CI_COMMIT_SHA"):
        return f"{environ['CI_PROJECT_URL']}/-/blob/{environ['CI_COMMIT_SHA']}"
    return None
