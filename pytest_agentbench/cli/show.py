"""`agentbench show [NODEID]`: one run as people read it: why it failed, question, answer, conversation."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.output import Standard, printable
from pytest_agentbench.cli.report_options import add_report_options, find_report
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.terminal_text import count_text

if TYPE_CHECKING:
    from pytest_agentbench.cli.review_text import Line
    from pytest_agentbench.records.evaluation import Evaluation

_LISTED = 50
_MARKS = {"passed": {"green": True}, "failed": {"red": True}, "error": {"red": True}, "skipped": {"yellow": True}}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options."""
    parser = subparsers.add_parser(
        "show",
        help="show a run: why it failed, question, answer and conversation",
        description="Print one run of a report: why it failed, its question, the expected answer, the conversation "
        "with all tool calls, and the answer. Without NODEID, list the runs that did not pass.",
    )
    parser.add_argument(
        "nodeid",
        metavar="NODEID",
        nargs="?",
        help="the run's node id as pytest prints it, the id of its case, or any part of the node id that no other has",
    )
    add_report_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the run of that name, or list the runs that did not pass."""
    from pytest_agentbench.reports.reading import read_report
    from pytest_agentbench.reports.stored_runs import find_output

    source = find_report(args.report)
    rows = read_report(source)["runs"]
    terminal = Standard()
    if args.nodeid is None:
        _list_runs(terminal, [row for row in rows if row["outcome"] != "passed"])
        return 0
    row = _find_row(rows, args.nodeid, source)
    for line, markup in _render_row(row, args.runs or find_output(source)):
        terminal.write_line(line, **markup)
    return 0


def _list_runs(terminal: Standard, rows: list[Any]) -> None:
    terminal.write_line(f"{count_text(len(rows), 'run')} did not pass")
    for row in rows[:_LISTED]:
        terminal.write_line(f"{row['outcome']:>7}  {printable(row['nodeid'])}", **_MARKS[row["outcome"]])
        if row["message"]:
            terminal.write_line(f"         {printable(row['message'].partition(chr(10))[0])}")
    if len(rows) > _LISTED:
        terminal.write_line(f"... and {len(rows) - _LISTED:,} more")


def _find_row(rows: list[Any], name: str, source: Path) -> Mapping[str, Any]:
    """Return the only row of this name. Raises ConfigError if there is none, or more than one."""
    from pytest_agentbench.reports.run_names import describe_mismatch, match_runs

    by_nodeid: dict[str, Mapping[str, Any]] = {row["nodeid"]: row for row in rows}
    matches = match_runs(name, {nodeid: row["case_id"] for nodeid, row in by_nodeid.items()})
    if len(matches) == 1:
        return by_nodeid[matches[0]]
    raise ConfigError(f"{source}: {describe_mismatch(name, matches, [*by_nodeid])}")


def _render_row(row: Mapping[str, Any], output: Path) -> Iterator[Line]:
    from pytest_agentbench.cli.review_text import MAX_ANSWER, render_changes, render_steps, render_text, render_title
    from pytest_agentbench.reports.stored_runs import load_stored_run

    stored = load_stored_run(row, output)
    artifact = stored.run
    yield _describe_outcome(row), {"bold": True, **_MARKS[row["outcome"]]}
    yield from render_text(row["nodeid"], indent="")
    if row["outcome"] != "passed":
        yield from render_title("Why")
        # The message is the first line of these, and stands alone for a run without a verdict
        yield from [*_render_faults(stored.evaluation)] or render_text(row["message"] or "no reason is known")
    yield from _render_criteria(stored.evaluation)
    for title, name in (("Question", "question"), ("Expected", "expected")):
        if row.get(name):
            yield from render_title(title)
            yield from render_text(row[name])
    if artifact is not None:
        shown = (row.get("question"), artifact.final_output)
        # The messages of turns are all shown: without them nobody could follow the conversation
        yield from render_steps(
            artifact, "Conversation", lambda event: event.turn is not None or event.content not in shown
        )
        yield from render_changes(artifact)
    answer = row.get("answer") if artifact is None else artifact.final_output
    yield from render_title("Answer")
    yield from render_text("There is no answer." if answer is None else answer, MAX_ANSWER)
    if row["artifact"] is not None:
        yield from render_title("Stored")
        yield from render_text(str(output / row["artifact"]))
    for problem in stored.problems:
        yield f"  {printable(problem)}", {"yellow": True}


def _describe_outcome(row: Mapping[str, Any]) -> str:
    from pytest_agentbench.reports.table import column_of, format_money, format_number, format_seconds

    parts = [row["outcome"]]
    if row["final_score"] is not None:
        parts.append(f"score {format_number(row['final_score'])}")
    if row["duration_seconds"] is not None:
        parts.append(format_seconds(row["duration_seconds"]))
    if row["cost_usd"]["run"] is not None:
        parts.append(format_money(row["cost_usd"]["run"]))
    return f"{printable(row['case_id'])} on {printable(column_of(row))}: {', '.join(parts)}"


def _render_faults(evaluation: Evaluation | None) -> Iterator[Line]:
    """Yield checks and metrics that did not pass, with expected and actual values, and the judge's explanation."""
    from pytest_agentbench.cli.review_text import render_text
    from pytest_agentbench.records.evaluation import UNMET_HARD
    from pytest_agentbench.reports.table import format_apart

    if evaluation is None:
        return
    for check in evaluation.checks:
        if check.outcome in ("failed", "error"):
            yield from render_text(f"check {check.check_id}: {check.message}")
            if check.expected is not None:
                yield from render_text(f"expected: {check.expected}", indent="    ")
            if check.actual is not None:
                yield from render_text(f"got:      {check.actual}", indent="    ")
    for metric in evaluation.metrics:
        if metric.passed is False:
            yield from render_text(f"metric {metric.name}: {metric.score}, expected at least {metric.threshold}")
    if (judge := evaluation.judge) is not None and not judge.passed:
        score, minimum = format_apart(judge.overall, 10 * judge.pass_threshold, digits=1)
        yield from render_text(f"judge: scored {score}, expected at least {minimum} of 10: {judge.summary.strip()}")
    for reason in evaluation.reasons:
        if reason.startswith(UNMET_HARD):
            yield from render_text(reason)


def _render_criteria(evaluation: Evaluation | None) -> Iterator[Line]:
    """Yield the rubric's own criteria with the judge's scores and evidence."""
    from pytest_agentbench.cli.review_text import render_text, render_title

    if evaluation is None or evaluation.judge is None or not evaluation.judge.criteria:
        return
    yield from render_title("Criteria, of 10")
    for name, scored in evaluation.judge.criteria.items():
        yield from render_text(f"{name}: {scored.score:.3g}")
        for text in scored.evidence:
            yield from render_text(f"- {text}", indent="    ")
