"""Decide graders that ask no model."""

from __future__ import annotations

from itertools import islice

from pytest_agentbench.bounded.patterns import compile_pattern
from pytest_agentbench.packs.plugin_evals.evidence import (
    Call,
    NoTargetError,
    NotComparableError,
    RunEvidence,
    matches_path,
)
from pytest_agentbench.packs.plugin_evals.javascript import translate_pattern
from pytest_agentbench.packs.plugin_evals.records import (
    SKILL_TOOL,
    FileExistsGrader,
    GraderResult,
    GraderSpec,
    RegexGrader,
    ToolCalls,
    ToolOrderGrader,
    ToolUsedGrader,
)
from pytest_agentbench.terminal_text import count_text, shorten_text

PATTERN_SECONDS = 1.0
"""Seconds that one search may take."""
_MOST_MATCHES = 100_000
NOT_SCORED = "not scored in a comparison of arms, because an arm without the skill or plugin fails it by construction"

_Outcome = tuple[bool, str]


def make_result(grader: GraderSpec, passed: bool | None, message: str) -> GraderResult:
    """Return the result of a grader; `passed` None: it is skipped."""
    outcome = "skipped" if passed is None else ("passed" if passed else "failed")
    return GraderResult.model_validate(
        {
            "name": grader.name,
            "type": grader.type,
            "weight": grader.weight,
            "outcome": outcome,
            "message": shorten_text(message, 400),
        }
    )


def is_about_plugin(grader: GraderSpec) -> bool:
    """Return whether an arm without the plugin fails the grader by construction."""
    if grader.arm is not None:
        return grader.arm == "with-only"
    if isinstance(grader, ToolUsedGrader):
        return grader.tool == SKILL_TOOL
    return getattr(grader, "target", getattr(grader, "focus", None)) == "mock_calls"


def decide(grader: GraderSpec, run: RunEvidence) -> GraderResult:
    """Return the result of a grader on a run."""
    try:
        passed, message = _decide(grader, run)
    except NotComparableError as error:
        return make_result(grader, None, str(error))
    except NoTargetError as error:
        return make_result(grader, False, str(error))
    except TimeoutError:
        return make_result(grader, False, f"the search took over {PATTERN_SECONDS:g} s")
    return make_result(grader, passed, message)


def _decide(grader: GraderSpec, run: RunEvidence) -> _Outcome:
    if isinstance(grader, RegexGrader):
        return _decide_regex(grader, run)
    if isinstance(grader, ToolUsedGrader):
        return _decide_calls(grader, run)
    if isinstance(grader, ToolOrderGrader):
        return _decide_order(grader, run)
    assert isinstance(grader, FileExistsGrader)
    files = [path for path in run.created_files if matches_path(grader.path, path)]
    if files:
        return grader.exists, f"the run created {files[0]}, which matches {grader.path}"
    return not grader.exists, f"no file that the run created matches {grader.path}"


def _decide_regex(grader: RegexGrader, run: RunEvidence) -> _Outcome:
    text = run.read(grader.target)
    target = grader.target if isinstance(grader.target, str) else grader.target.path
    matches = compile_pattern(grader.python_pattern).finditer(text, timeout=PATTERN_SECONDS)
    shown = f"/{grader.pattern}/{grader.flags}"
    if grader.match.startswith("count:"):
        expected = int(grader.match.removeprefix("count:"))
        count = sum(1 for _ in islice(matches, _MOST_MATCHES))
        return (
            count == expected,
            f"{target} matches {shown} {count_text(count, 'time')}, expected {expected}",
        )
    is_found = next(matches, None) is not None
    if is_found:
        return grader.match == "contains", f"{target} matches {shown}"
    return grader.match == "not_contains", f"{target} does not match {shown}"


def _find_calls(wanted: ToolCalls, run: RunEvidence) -> list[Call]:
    pattern = None if wanted.input_match is None else compile_pattern(translate_pattern(wanted.input_match))
    return run.find_calls(wanted, pattern, PATTERN_SECONDS)


def _describe_calls(wanted: ToolCalls) -> str:
    if wanted.input_match is None:
        return wanted.tool
    return f"{wanted.tool} with an input like /{wanted.input_match}/"


def _decide_calls(grader: ToolUsedGrader, run: RunEvidence) -> _Outcome:
    count = len(_find_calls(grader, run))
    expected = f"at least {grader.min}" if grader.max is None else f"{grader.min} to {grader.max}"
    is_within = count >= grader.min and (grader.max is None or count <= grader.max)
    return is_within, f"{count_text(count, 'call')} of {_describe_calls(grader)}, expected {expected}"


def _decide_order(grader: ToolOrderGrader, run: RunEvidence) -> _Outcome:
    before, after = (ToolCalls(tool=part) if isinstance(part, str) else part for part in (grader.before, grader.after))
    earlier, later = _find_calls(before, run), _find_calls(after, run)
    for calls, wanted in ((earlier, before), (later, after)):
        if not calls:
            return False, f"{_describe_calls(wanted)} was not called"
    order = f"the first call of {_describe_calls(before)}"
    if earlier[0].at < later[0].at:
        return True, f"{order} precedes that of {_describe_calls(after)}"
    return False, f"{order} follows that of {_describe_calls(after)}"
