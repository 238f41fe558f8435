"""Checks of what the agent said: its final output, or a file that stands for it."""

from __future__ import annotations

from functools import partial
from typing import Any

from pytest_agentbench.bounded import UncheckableError, bounded_schema, search_pattern, select_values
from pytest_agentbench.checks.base import CheckContext, Unmet, Verdict, excerpt, verdict
from pytest_agentbench.checks.json_values import compact, json_equal, parse_json
from pytest_agentbench.checks.places import read_text
from pytest_agentbench.metrics import measure, takes_long
from pytest_agentbench.records import (
    FinalResponsePresent,
    JsonPathEquals,
    JsonSchema,
    MessageEvent,
    MetricAtLeast,
    MetricSpec,
    RegexMatch,
)

REGEX_SECONDS = 2.0
"""How long one pattern may be looked for."""


def final_response_present(spec: FinalResponsePresent, context: CheckContext) -> Verdict:
    """The final output is not blank; OpenClaw: else its last message, else its first key output."""
    texts = [("final output", context.artifact.final_output or "")]
    if context.artifact.runner_type == "openclaw":
        texts += [("last assistant message", _last_message(context)), ("first key output", _key_output(context))]
    for source, text in texts:
        if text.strip():
            return verdict(True, f"the {source} has {len(text):,} characters", "a text", excerpt(text))
    found = "none" if context.artifact.final_output is None else "a blank text"
    return verdict(False, "there is no final response", "a text that is not blank", found)


def regex_match(spec: RegexMatch, context: CheckContext) -> Verdict:
    """The pattern is found."""
    text, name = _text(spec.path, context)
    try:
        match = search_pattern(spec.pattern, text, REGEX_SECONDS, ignore_case=spec.ignore_case)
    except TimeoutError:
        reason = f"the pattern took over {REGEX_SECONDS:g} s on {name}; write one that backtracks less"
        raise ValueError(reason) from None
    if match is None:
        return verdict(False, f"{name} does not match", spec.pattern, excerpt(text))
    return verdict(True, f"{name} matches", spec.pattern, match.group())


def json_schema(spec: JsonSchema, context: CheckContext) -> Verdict:
    """The text is JSON that satisfies the schema (draft 2020-12 unless `$schema` names another; nothing is fetched)."""
    value, name = _json(spec.path, context)
    try:
        problem = bounded_schema(spec.json_schema).best_error(value)
    except UncheckableError as error:
        raise ValueError(f"schema: {error}") from error
    if problem is None:
        return verdict(True, f"{name} satisfies the schema", None, excerpt(compact(value)))
    rule = compact({problem.validator: problem.validator_value})
    return verdict(False, f"{name}: {problem.json_path}: {problem.message}", rule, compact(problem.instance))


def json_path_equals(spec: JsonPathEquals, context: CheckContext) -> Verdict:
    """The value at the JSONPath equals `value`; where the path selects several values, their list does."""
    value, name = _json(spec.path, context)
    found: list[Any] = select_values(spec.json_path, value)
    equal = json_equal(found, spec.value) or (len(found) == 1 and json_equal(found[0], spec.value))
    shown = "nothing" if not found else compact(found[0] if len(found) == 1 else found)
    message = f"{name}: {spec.json_path} is {'' if equal else 'not '}the expected value"
    return verdict(equal, message, compact(spec.value), shown)


async def metric_at_least(spec: MetricAtLeast, context: CheckContext) -> Verdict:
    """The metric of the text against `reference` reaches the threshold."""
    text, name = _text(spec.path, context)
    asked = MetricSpec(name=spec.name, threshold=spec.threshold, args=spec.args, compat=context.compat)
    computed = partial(measure, asked, spec.reference, text, context.metrics)
    long = takes_long(spec.name, context.metrics, spec.reference, text)
    result = await context.in_thread(computed) if long else computed()
    if result.score is None:
        raise ValueError(result.error)
    message = f"{name}: {spec.name} is {result.score:.4g}, expected at least {spec.threshold:g}"
    return verdict(bool(result.passed), message, spec.reference, excerpt(text))


def _text(path: str | None, context: CheckContext) -> tuple[str, str]:
    """The text that a check reads, and its name."""
    if path is not None:
        return read_text(context, path)
    output = context.artifact.final_output
    if output is None:
        raise Unmet("there is no final output", "none")
    return output, "the final output"


def _json(path: str | None, context: CheckContext) -> tuple[Any, str]:
    text, name = _text(path, context)
    try:
        return parse_json(text), name
    except ValueError as error:
        raise Unmet(
            f"{name} is {error}" if str(error).startswith("not") else f"{name}: {error}", excerpt(text)
        ) from error


def _last_message(context: CheckContext) -> str:
    messages = (event for event in reversed(context.artifact.trace) if isinstance(event, MessageEvent))
    return next((event.content for event in messages if event.role == "assistant"), "")


def _key_output(context: CheckContext) -> str:
    """The text of the first file in the workspace diff that is UTF-8; the one that the case expects comes first."""
    expected = context.case.expected_artifact
    for path in sorted(context.artifact.changed_files, key=lambda path: path != expected):
        try:
            return read_text(context, path)[0]
        except (Unmet, ValueError):
            continue
    return ""
