"""Failure texts for a run that failed and for a case file that could not be read."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_agentbench.errors import JudgeError, SandboxError
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import CheckResult, Evaluation, JudgeResult, MetricResult
from pytest_agentbench.records.gold import gold_text
from pytest_agentbench.records.run import RunArtifact, ToolCallEvent, ToolResultEvent
from pytest_agentbench.reports.sections import sections_of
from pytest_agentbench.reports.table import and_more, clip_cells, format_apart, format_number, pad_cells
from pytest_agentbench.reports.texts import find_question
from pytest_agentbench.statistics.estimates import mean_of
from pytest_agentbench.terminal_text import sendable, visible_line

_LONGEST = 1_000
_PROBLEM = re.compile(r"(?:E +)?(?:[\w.]+Error: )?(?P<file>\S.*?):(?P<line>[1-9][0-9]*):[0-9]+: (?P<message>.+)")
"""A line of a ConfigError's text; with `--full-trace` pytest puts something before it."""


def collection_problems(nodeid: str, text: str, root: Path) -> list[dict[str, Any]]:
    """Return the problems that the text of a collector's error names, as entries of report.json's
    `session.uncollected`.

    Files are named from `root` (pytest's root directory). A text that names no line is one problem of the collector's
    own file; of a traceback that is its last line.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    matches = [match for line in lines if (match := _PROBLEM.fullmatch(line))]
    if not matches:
        last_line = (lines or ["cannot be collected"])[-1]
        return [{"file": nodeid.partition("::")[0], "line": None, "message": sendable(last_line, _LONGEST)}]
    return [
        {
            "file": Path(os.path.relpath(root / problem["file"], root)).as_posix(),
            "line": int(problem["line"]),
            "message": sendable(problem["message"], _LONGEST),
        }
        for problem in matches
    ]


def group_by_file(problems: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the problems of each file, in the order of the files' first ones."""
    files: dict[str, list[Mapping[str, Any]]] = {}
    for problem in problems:
        files.setdefault(problem["file"], []).append(problem)
    return files


# The text of a failed run: expected and actual values, the end of the answer, the agent's changes to its
# files, the path of the trace. It is plain text of about fifty lines at most. Control characters in texts of
# the agent, its tools and the case files are escaped first, so that they cannot steer the terminal.


WIDTH = 160
"""Characters of one expected or actual value, and of one line of the answer."""
FAULT_LINES = 24
ANSWER_LINES = 10
CHANGE_LINES = 16
DIFF_LINES = 8
_HEADLINE = 140
_EXPECTATIONS, _EXPECTATION = 3, 60
"""How many expectations a judge's fault names, and characters of each."""
_ERROR_LINES = 60
_TOOL_ERRORS = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """One reason why a run failed. It has `message`, or `expected` and `actual`, or all three.

    `reason` is the judge's explanation.
    """

    kind: str
    name: str = ""
    message: str | None = None
    expected: str | None = None
    actual: str | None = None
    reason: str | None = None

    @property
    def sentence(self) -> str:
        """Return the fault on one line."""
        text = self.message or f"expected {self.expected}, got {self.actual}"
        return visible_line(f"{self.kind} {self.name}".rstrip() + f": {text}"[: 4 * WIDTH])


def faults(case: Case, artifact: RunArtifact, evaluation: Evaluation) -> list[Fault]:
    """Return the faults of a run (status, checks, metrics, judge), or the evaluation's reasons if there is none."""
    reasons_found = [*_status_faults(case, artifact, evaluation)]
    reasons_found += [_check_fault(result) for result in evaluation.checks if result.outcome in ("failed", "error")]
    reasons_found += [
        _metric_fault(case, artifact, metric) for metric in evaluation.metrics if metric.passed is False or metric.error
    ]
    if evaluation.judge is not None:
        reasons_found += _judge_faults(case, evaluation, evaluation.judge)
    return reasons_found or [Fault("case", message=reason) for reason in evaluation.reasons]


def headline(case: Case, artifact: RunArtifact, evaluation: Evaluation) -> str:
    """Return the first fault in one line and the number of others, for pytest's summary and a row's message."""
    run_faults = faults(case, artifact, evaluation)
    if not run_faults:
        return "failed"
    # The number of faults is never cut: a summary of many failures is read for it.
    more = f" (and {len(run_faults) - 1} more)" if len(run_faults) > 1 else ""
    return clip_cells(run_faults[0].sentence, _HEADLINE - len(more)) + more


def failure_report(case: Case, artifact: RunArtifact, evaluation: Evaluation, artifact_path: str | None) -> str:
    """Return the assertion report of a run that the agent failed."""
    run_faults, first = faults(case, artifact, evaluation), headline(case, artifact, evaluation)
    if len(run_faults) == 1 and run_faults[0].message is not None and run_faults[0].sentence == first:
        # The whole fault is in the first line already: only its reason and values follow
        lines = [first, *(f"    {line}" for line in _describe_fault(run_faults[0])[1:])]
    else:
        lines = [first, "", *_align_faults(run_faults)]
    evidence = [
        f"    {_shorten_line(line)}"
        for section in sections_of(case, evaluation).values()
        for line in section.evidence(evaluation)
    ]
    if evidence:
        lines += ["", "evidence:", *evidence]
    lines += ["", *_question_lines(case), *_broken_tool_lines(artifact), *_asking_lines(artifact)]
    # A run that failed by its end has it among its faults
    if artifact.status == "success" and artifact.ending:
        lines.append(_shorten_line(f"ended: {artifact.ending}"))
    lines += _tool_error_lines(artifact)
    # An answer is shown once: a short one is the actual value of a fault already
    if artifact.final_output is None or artifact.final_output.strip() not in [fault.actual for fault in run_faults]:
        lines += _answer_lines(artifact.final_output)
    lines += _change_lines(artifact)
    if artifact_path is not None:
        lines.append(f"full trace: {visible_line(artifact_path)}")
    return "\n".join(lines)


def error_report(error: BaseException, artifact: RunArtifact | None = None, artifact_path: str | None = None) -> str:
    """Return pytest's text for an infrastructure error: the cause, the remedy, the events recorded until then."""
    kind = type(error).__name__
    if code := getattr(error, "code", None):
        kind += f" ({code})"
    message_lines = str(error).splitlines()[:_ERROR_LINES]
    message = "\n".join(clip_cells(visible_line(line[: 8 * WIDTH]), 4 * WIDTH) for line in message_lines)
    lines = [
        f"{kind}: {message or 'no message'}",
        "",
        "This is no verdict on the agent: the run counts as an error, not as a failure.",
    ]
    lines += [f"remedy: {advice}" for base, advice in _ADVICE.items() if isinstance(error, base)]
    if getattr(error, "retryable", False):
        lines.append("The same request may work later.")
    if artifact is not None and artifact.final_output is not None:
        lines += ["", *_answer_lines(artifact.final_output)]
    if artifact_path is not None:
        lines.append(f"trace until then: {visible_line(artifact_path)}")
    return "\n".join(lines)


_ADVICE: dict[type[BaseException], str] = {
    JudgeError: "see the judge's replies next to the evaluation, or try another judge model.",
    SandboxError: "check free space in the temporary folder and that the sandbox named in the run profile runs here.",
}


def _status_faults(case: Case, artifact: RunArtifact, evaluation: Evaluation) -> Iterator[Fault]:
    if artifact.status == "success" or artifact.status in case.expects_status or evaluation.accepts_status:
        return
    message: str = artifact.status
    if artifact.error is not None:
        message += f" ({artifact.error.code}): {artifact.error.message}"
    yield Fault("run", "status", expected="success", actual=message)


def _check_fault(result: CheckResult) -> Fault:
    kind = "check" if result.outcome == "failed" else "broken check"
    return Fault(kind, result.check_id, result.message, result.expected, result.actual)


def _metric_fault(case: Case, artifact: RunArtifact, result: MetricResult) -> Fault:
    if result.error is not None or result.threshold is None:
        return Fault("metric", result.name, result.error or "it gave no score")
    if result.score is None:
        minimum, reason = f"at least {result.threshold:g}", _metric_reason(result)
        return Fault("metric", result.name, expected=minimum, actual="nothing to measure", reason=reason)
    score, minimum = format_apart(result.score, result.threshold)
    reason = _metric_reason(result)
    # With a reference people compare the answer with it; else the score is all that there is
    if case.reference is None:
        return Fault("metric", result.name, expected=f"at least {minimum}", actual=score, reason=reason)
    message = f"scored {score}, at least {minimum} is wanted"
    return Fault("metric", result.name, message, gold_text(case.gold), artifact.final_output or "no answer", reason)


def _metric_reason(result: MetricResult) -> str | None:
    """Return the judge's explanation, and how many of several votes agree with it."""
    reason, votes = result.details.get("reason"), result.details.get("votes")
    if not isinstance(reason, str) or not reason.strip():
        return None
    if not isinstance(votes, list) or len(votes) < 2:
        return reason
    against = sum(isinstance(vote, dict) and vote.get("correct") is False for vote in votes)
    return f"{against} of {len(votes)} votes against it: {reason}"


def _judge_faults(case: Case, evaluation: Evaluation, judge: JudgeResult) -> Iterator[Fault]:
    sections = sections_of(case, evaluation).values()
    if (parts := next(filter(None, (section.shortfall(evaluation) for section in sections)), None)) is not None:
        yield from _final_score_faults(evaluation, parts, judge)
    elif not judge.passed:
        score, minimum = format_apart(judge.overall, 10 * judge.pass_threshold, digits=1)
        message = f"scored {score}, at least {minimum} of 10 is wanted{_describe_unmet(case, judge)}"
        if judge.dimensions:
            scores = (f"{name} {format_number(value)}" for name, value in judge.dimensions.items())
            message += f" ({', '.join(scores)})"
        yield Fault("judge", "overall", message, reason=judge.summary.strip() or None)
    if case.require_hard:
        for text in judge.unmet_hard:
            yield Fault("judge", "hard expectation", f"not met: {text}")


def _describe_unmet(case: Case, judge: JudgeResult) -> str:
    """Return the unmet expectations: hard ones below 1, soft ones that most verdicts deny."""
    verdicts = [iteration.verdict for iteration in judge.iterations if iteration.verdict is not None]
    met: dict[int, list[float]] = {}
    for expectation_met in (met_of for verdict in verdicts for met_of in verdict.expectations if met_of.kind == "soft"):
        met.setdefault(expectation_met.index, []).append(expectation_met.met)
    soft = [
        expectation.label
        for index, expectation in enumerate(case.expectations.soft_expectations)
        if (scores := met.get(index)) and mean_of(scores) < 0.5
    ]
    unmet = [clip_cells(text, _EXPECTATION) for text in (*judge.unmet_hard, *soft)]
    if unmet:
        return f"; not met: {'; '.join(unmet[:_EXPECTATIONS])}{and_more(len(unmet), _EXPECTATIONS)}"
    return ""


def _final_score_faults(evaluation: Evaluation, parts: str, judge: JudgeResult) -> Iterator[Fault]:
    """Yield a grader's final score if it is too low, with its parts."""
    from pytest_agentbench.judging.verdicts import bar_of

    final, bar = evaluation.final_score, bar_of(judge.pass_threshold)
    if final is not None and final < bar:
        score, minimum = format_apart(final, bar, digits=1)
        message = f"scored {score}, at least {minimum} of 10 is wanted ({parts})"
        yield Fault("overall", "", message, reason=judge.summary.strip() or None)


def _align_faults(run_faults: list[Fault]) -> list[str]:
    """Return the faults as a table: kind, name, then message, expected and actual below each other."""
    names = [clip_cells(visible_line(f"{fault.kind}  {fault.name}".rstrip()), 40) for fault in run_faults]
    width = max(map(len, names), default=0) + 2
    lines: list[str] = []
    for position, (fault, name) in enumerate(zip(run_faults, names, strict=True)):
        block = _describe_fault(fault)
        # Faults are cut only between each other, and the first is shown at any length.
        if lines and len(lines) + len(block) > FAULT_LINES:
            return [*lines, f"... and {len(run_faults) - position} more that failed"]
        lines += [
            f"{pad_cells(label, width)}{text}" for label, text in zip([name] + [""] * len(block), block, strict=False)
        ]
    return lines


def _describe_fault(fault: Fault) -> list[str]:
    lines = []
    if fault.message is not None:
        lines.append(_shorten_line(fault.message))
    if fault.reason is not None:
        lines += _wrap_text("reason:", fault.reason)
    if fault.expected is None and fault.actual is None:
        return lines or ["failed"]
    expected, actual = _skip_common_start(fault.expected or "-", fault.actual or "-")
    return [*lines, f"expected: {_shorten_line(expected)}", f"got:      {_shorten_line(actual)}"]


def _shorten_line(text: str) -> str:
    # Cut before too: escapes are found and replaced in all of a text, which may be megabytes
    return clip_cells(visible_line(text[: 4 * WIDTH]), WIDTH)


def _wrap_text(label: str, text: str) -> list[str]:
    """Return a labelled text of a few sentences, on two lines at most."""
    sentences = visible_line(" ".join(text[: 4 * WIDTH].split()))
    lines = textwrap.wrap(sentences, WIDTH, max_lines=2, placeholder=" ...")
    return [f"{'' if at else label:10}{line}" for at, line in enumerate(lines)]


def _skip_common_start(expected: str, actual: str) -> tuple[str, str]:
    """Return texts that begin alike without most of that beginning: else both would be cut before they differ."""
    common = next((at for at, (a, b) in enumerate(zip(expected, actual, strict=False)) if a != b), 0)
    if common <= WIDTH // 2:  # the difference is on the line anyway
        return expected, actual
    return "..." + expected[common - 20 :], "..." + actual[common - 20 :]


def _answer_lines(answer: str | None) -> list[str]:
    """Return the answer's last lines."""
    if answer is None:
        return ["answer: none"]
    if not answer.strip():
        return ["answer: blank"]
    lines = answer.rstrip().splitlines()
    head = "answer:"
    if len(lines) > ANSWER_LINES:
        head = f"answer (last {ANSWER_LINES} of {len(lines)} lines):"
    return [head, *(f"    {_shorten_line(line)}".rstrip() for line in lines[-ANSWER_LINES:])]


def _question_lines(case: Case) -> list[str]:
    question = find_question(case)
    if question is None or not question.strip():
        return []
    return [_shorten_line(f"question: {' '.join(question[: 4 * WIDTH].split())}")]


def _tool_error_lines(artifact: RunArtifact) -> list[str]:
    """Return the last calls of tools that returned an error, each with its arguments and its result."""
    calls = {event.call_id: event for event in artifact.trace if isinstance(event, ToolCallEvent)}
    failed = [event for event in artifact.trace if isinstance(event, ToolResultEvent) and event.is_error]
    lines = ["tool errors:" if len(failed) <= _TOOL_ERRORS else f"tool errors (last {_TOOL_ERRORS} of {len(failed)}):"]
    for result in failed[-_TOOL_ERRORS:]:
        call = calls.get(result.call_id)
        arguments = "" if call is None else json.dumps(call.arguments, ensure_ascii=False, default=str)
        lines += [f"    {_shorten_line(f'{result.name} {arguments}')}", f"        {_shorten_line(result.content)}"]
    return lines if failed else []


def _broken_tool_lines(artifact: RunArtifact) -> list[str]:
    """Return the tools whose own code failed in the run: not the agent's fault."""
    sentences = list(dict.fromkeys(f"tool {name} broke: {text}" for name, text in artifact.broken_tools))
    if sentences:
        return [*map(_shorten_line, sentences[:3]), ""]
    return []


def _asking_lines(artifact: RunArtifact) -> list[str]:
    reason = artifact.provider.get("asked_nothing")
    if isinstance(reason, str):
        return _wrap_text("gateway:", reason)
    return []


def _change_lines(artifact: RunArtifact) -> list[str]:
    """Return the agent's changes to its files: the first lines of each diff, as far as there is room."""
    changes = artifact.changes or ()
    lines: list[str] = []
    for position, change in enumerate(changes):
        diff = (change.diff or "").splitlines()
        block = [change.sentence, *(f"    {line}" for line in diff[:DIFF_LINES])]
        if len(diff) > DIFF_LINES:
            block.append(f"    [... {len(diff) - DIFF_LINES:,} more lines ...]")
        if lines and len(lines) + len(block) > CHANGE_LINES:
            lines.append(f"... and {len(changes) - position} more changes")
            break
        lines += block
    if artifact.changes_untold is not None:
        lines.append(artifact.changes_untold)
    if lines:
        return ["workspace:", *(f"    {_shorten_line(line)}" for line in lines)]
    return []
