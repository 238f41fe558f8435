"""Run the checks of a case: declarative kinds of the answer, of files and of the trace, and the table of all kinds."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from pytest_agentbench.bounded.patterns import search_pattern, select_values
from pytest_agentbench.checks.base import (
    CheckContext,
    CheckFunction,
    CheckKind,
    CheckSpec,
    Unmet,
    Verdict,
    compact,
    excerpt,
    find,
    includes,
    json_equal,
    missing,
    parse_json,
    read_answer,
    read_text,
    typed_spec,
    verdict,
)
from pytest_agentbench.checks.combined import all_of, any_of, not_
from pytest_agentbench.checks.texts import contains, equals, icontains, not_contains, starts_with
from pytest_agentbench.config.profiles import SecurityPolicy
from pytest_agentbench.errors import is_failure
from pytest_agentbench.metrics.registry import measure, takes_long
from pytest_agentbench.records.base import Dimension
from pytest_agentbench.records.case import MetricSpec
from pytest_agentbench.records.check_specs import (
    Check,
    FinalResponsePresent,
    JsonPathEquals,
    JsonSchema,
    MetricAtLeast,
    RegexMatch,
    TurnChoice,
    reads_file,
)
from pytest_agentbench.records.evaluation import CheckResult
from pytest_agentbench.records.run import (
    MessageEvent,
    RunArtifact,
    RunnerEvent,
    ToolCallEvent,
    ToolResultEvent,
    answers_with_files,
)

if TYPE_CHECKING:
    from pytest_agentbench.records.run_checks import (
        FileContains,
        FileExists,
        MaxCostUsd,
        MaxSeconds,
        MaxTurns,
        OutputArtifactPresent,
        PathExists,
        PermissionAsked,
        SkillUsed,
        StatusIs,
        ToolCallCount,
        ToolCalled,
        ToolNotCalled,
    )

REGEX_SECONDS = 2.0
"""How long one pattern may be looked for."""


def final_response_present(spec: FinalResponsePresent, context: CheckContext) -> Verdict:
    """Pass if the final output is not blank. For a runner that answers with files, a message or a file suffices."""
    texts = [("final output", context.artifact.final_output or "")]
    if answers_with_files(context.artifact.runner_type):
        texts += [("last assistant message", _last_message(context)), ("first key output", _key_output(context))]
    for source, text in texts:
        if text.strip():
            return verdict(True, f"the {source} has {len(text):,} characters", "a text", excerpt(text))
    actual = "none" if context.artifact.final_output is None else "a blank text"
    return verdict(False, "there is no final response", "a text that is not blank", actual)


def regex_match(spec: RegexMatch, context: CheckContext) -> Verdict:
    """Pass if the pattern is found."""
    text, name = read_answer(spec.path, context)
    try:
        match = search_pattern(spec.pattern, text, REGEX_SECONDS, ignore_case=spec.ignore_case)
    except TimeoutError:
        reason = f"the pattern took over {REGEX_SECONDS:g} s on {name}; write one that backtracks less"
        raise ValueError(reason) from None
    if match is None:
        return verdict(False, f"{name} does not match", spec.pattern, excerpt(text))
    return verdict(True, f"{name} matches", spec.pattern, match.group())


def json_schema(spec: JsonSchema, context: CheckContext) -> Verdict:
    """Pass if the text is JSON that fits the schema (draft 2020-12, or its `$schema`; nothing is fetched)."""
    from pytest_agentbench.bounded.schemas import UncheckableError, bounded_schema

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
    """Pass if the value at the JSONPath equals `value`; if the path selects several values, compare their list."""
    value, name = _json(spec.path, context)
    selected: list[Any] = select_values(spec.json_path, value)
    # First as a list, for a path with several values; one value also by itself, so that no `[...]` is needed
    equal = json_equal(selected, spec.value) or (len(selected) == 1 and json_equal(selected[0], spec.value))
    actual = "nothing"
    if selected:
        actual = compact(selected[0] if len(selected) == 1 else selected)
    message = f"{name}: {spec.json_path} is {'the' if equal else 'not the'} expected value"
    return verdict(equal, message, compact(spec.value), actual)


async def metric_at_least(spec: MetricAtLeast, context: CheckContext) -> Verdict:
    """Pass if the metric of the text against `reference` reaches the threshold."""
    text, name = read_answer(spec.path, context)
    metric = MetricSpec(name=spec.name, threshold=spec.threshold, args=spec.args, compat=context.compat)
    computed = partial(measure, metric, spec.reference, text, context.metrics)
    # All runs share one event loop, so a slow metric is computed on a thread.
    long = takes_long(spec.name, context.metrics, spec.reference, text)
    result = await context.in_thread(computed) if long else computed()
    if result.score is None:
        raise ValueError(result.error)
    message = f"{name}: {spec.name} is {result.score:.4g}, expected at least {spec.threshold:g}"
    return verdict(bool(result.passed), message, spec.reference, excerpt(text))


def _json(path: str | None, context: CheckContext) -> tuple[Any, str]:
    text, name = read_answer(path, context)
    try:
        return parse_json(text), name
    except ValueError as error:
        verb = " is" if str(error).startswith("not") else ":"
        raise Unmet(f"{name}{verb} {error}", excerpt(text)) from error


def _last_message(context: CheckContext) -> str:
    messages = (event for event in reversed(context.artifact.trace) if isinstance(event, MessageEvent))
    return next((event.content for event in messages if event.role == "assistant"), "")


def _key_output(context: CheckContext) -> str:
    """Return the text of the first UTF-8 file in the workspace diff; the one that the case expects comes first."""
    expected = context.case.expected_artifact
    # A stable sort by a boolean: False, the expected path, first, and the others as they were
    for path in sorted(context.artifact.changed_files, key=lambda path: path != expected):
        try:
            return read_text(context, path)[0]
        except (Unmet, ValueError):
            continue
    return ""


def file_exists(spec: FileExists, context: CheckContext) -> Verdict:
    """Pass if the path is a regular file; a link does not count."""
    place = find(context, spec.path)
    if place is None:
        raise Unmet(missing(context, spec.path))
    kind = "regular file" if place.kind == "file" else place.kind
    return verdict(place.kind == "file", f"{spec.path} in {place.name} is a {kind}", "a regular file", f"a {kind}")


def path_exists(spec: PathExists, context: CheckContext) -> Verdict:
    """Pass if the path exists."""
    place = find(context, spec.path)
    if place is None:
        raise Unmet(missing(context, spec.path))
    return verdict(True, f"{spec.path} exists in {place.name}", "anything", f"a {place.kind}")


def file_contains(spec: FileContains, context: CheckContext) -> Verdict:
    """Pass if the file's text contains `text`, case-sensitively."""
    text, name = read_text(context, spec.path)
    contains = spec.text in text
    verb = "holds" if contains else "does not hold"
    return verdict(contains, f"{name} {verb} the text", spec.text, excerpt(text))


def output_artifact_present(spec: OutputArtifactPresent, context: CheckContext) -> Verdict:
    """Pass if an output artifact has every field of the check."""
    fields = spec.model_dump(exclude={"kind"}, exclude_none=True)
    artifacts = context.artifact.output_artifacts
    present = any(all(getattr(output, name) == value for name, value in fields.items()) for output in artifacts)
    listed = ", ".join(f"{output.artifact_id} ({output.artifact_type}, {output.uri})" for output in artifacts) or "none"
    article = "an" if present else "no"
    message = f"{article} output artifact of {len(artifacts)} matches"
    return verdict(present, message, ", ".join(f"{name}={value}" for name, value in fields.items()), listed)


def status_is(spec: StatusIs, context: CheckContext) -> Verdict:
    """Pass if the run ended with the status."""
    status = context.artifact.status
    return verdict(status == spec.status, f"the run's status is {status}", spec.status, status)


def tool_call_count(spec: ToolCallCount, context: CheckContext) -> Verdict:
    """Pass if the trace contains exactly this number of tool calls."""
    calls = context.artifact.tool_calls
    message = f"{len(calls)} tool calls: {_summary(calls)}"
    return verdict(len(calls) == spec.count, message, str(spec.count), str(len(calls)))


def skill_used(spec: SkillUsed, context: CheckContext) -> Verdict:
    """Pass if the agent loaded the skill within the bounds. Skip if the run had no such skill."""
    from pytest_agentbench.checks.skills import decide_use

    return decide_use(spec, context)


def tool_called(spec: ToolCalled, context: CheckContext) -> Verdict:
    """Pass if enough calls that the tool took, and in which it did not break, have the arguments and follow `after`."""
    from pytest_agentbench.metrics.tool_use import calls_of

    called, name, of_tool = calls_of(context.artifact), *_tool_of(spec, context.artifact)
    unmade = [call.reason or "unknown" for call, _ in called if of_tool(call) and not call.executed]
    broke = sum(result is not None and result.broken for call, result in called if of_tool(call))
    refused = sum(_is_refused(call, result) for call, result in called if of_tool(call) and call.executed)
    calls = [
        call
        for call, result in called
        if call.executed and not (_is_refused(call, result) or (result and result.broken))
    ]
    if spec.after is not None:
        # Where `after` was never called nothing comes after it: an empty list, not all calls
        first = next((at for at, call in enumerate(calls) if call.name == spec.after), len(calls))
        calls = calls[first + 1 :]
    hits = _hits(calls, of_tool, spec.arguments)
    order = f" after {spec.after}" if spec.after else ""
    message = f"{len(hits)} calls of {name}{order} as described, expected at least {spec.min_count}"
    if broke:
        message += f"; the tool itself broke in {broke} further calls, which do not count"
    if refused:
        message += f"; {refused} further calls, which do not count, were refused for their name or arguments"
    if unmade:
        reasons = "; ".join(dict.fromkeys(unmade))
        message += f"; the agent did not make {len(unmade)} further calls, which do not count: {reasons}"
    expected = f"{_described(name, spec.arguments)}{order}"
    return verdict(len(hits) >= spec.min_count, message, expected, _summary(context.artifact.tool_calls, of_tool))


def _is_refused(call: ToolCallEvent, result: ToolResultEvent | None) -> bool:
    """Return whether a call never reached a tool. An agent may end without a word about a tool that it lacks."""
    if result is None:
        return call.offered is False
    return result.refused


def tool_not_called(spec: ToolNotCalled, context: CheckContext) -> Verdict:
    """Pass if no call of the tool includes the arguments."""
    calls, name, of_tool = context.artifact.tool_calls, *_tool_of(spec, context.artifact)
    hits = _hits(calls, of_tool, spec.arguments)
    message = f"{len(hits)} calls of {name} as described, expected none"
    return verdict(not hits, message, f"no {_described(name, spec.arguments)}", _summary(calls, of_tool))


def permission_asked(spec: PermissionAsked, context: CheckContext) -> Verdict:
    """Pass if the agent asked for such a permission, and got the answer."""
    from pytest_agentbench.checks.permissions import decide_permission

    return decide_permission(spec, context)


def max_turns(spec: MaxTurns, context: CheckContext) -> Verdict:
    """Pass if the runner made few enough requests to the model; if it records none, count the assistant's messages."""
    trace = context.artifact.trace
    turns = sum(isinstance(event, RunnerEvent) and event.name == "request" for event in trace)
    # A user's agent sends its requests itself, and reports messages at most
    turns = turns or sum(isinstance(event, MessageEvent) and event.role == "assistant" for event in trace)
    # A run that failed before its first request has truly had none
    if not turns and context.artifact.status == "success":
        raise ValueError("the trace shows neither requests nor assistant messages, so the turns are unknown")
    return verdict(turns <= spec.count, f"the model was asked {turns} times", f"at most {spec.count}", str(turns))


def max_cost_usd(spec: MaxCostUsd, context: CheckContext) -> Verdict:
    """Pass if the run's cost is known and within the limit."""
    cost = context.artifact.usage.cost_usd
    if cost is None:
        raise ValueError("the run's cost is unknown; give the model prices in models.yaml")
    return verdict(cost <= spec.usd, f"the run cost ${cost:.6g}", f"at most ${spec.usd:g}", f"${cost:.6g}")


def max_seconds(spec: MaxSeconds, context: CheckContext) -> Verdict:
    """Pass if the run's duration is within the limit."""
    took = context.artifact.duration_seconds
    return verdict(took <= spec.seconds, f"the run took {took:.3g} s", f"at most {spec.seconds:g} s", f"{took:.3g} s")


_OfTool = Callable[[ToolCallEvent], bool]


def _tool_of(spec: ToolCalled | ToolNotCalled, artifact: RunArtifact) -> tuple[str, _OfTool]:
    """Return the tool's name for messages and the predicate of its calls.

    Raises ValueError if the run's runner has no portable names.
    """
    if spec.portable is None:
        return spec.name or "", lambda call: call.name == spec.name
    # Written by runners of agents: their own names for tools to the portable ones
    names = artifact.request.get("portable")
    if not isinstance(names, dict):
        raise ValueError(f"the run's runner names no portable tools, so calls of {spec.portable!r} are unknown")
    return f"portable {spec.portable}", lambda call: names.get(call.name) == spec.portable


def _hits(calls: Sequence[ToolCallEvent], of_tool: _OfTool, arguments: dict[str, Any]) -> list[ToolCallEvent]:
    return [call for call in calls if of_tool(call) and includes(call.arguments or {}, arguments)]


def _described(name: str, arguments: dict[str, Any]) -> str:
    if arguments:
        return f"call of {name} with {compact(arguments)}"
    return f"call of {name}"


def _summary(calls: Sequence[ToolCallEvent], of_tool: _OfTool = lambda call: False) -> str:
    """Return the arguments of the tool's calls, or the number of calls of each tool if there are none."""
    own = [call for call in calls if of_tool(call)]
    if own:
        return f"{own[0].name} with {'; '.join(compact(call.arguments) for call in own)}"
    return ", ".join(f"{tool} x{count}" for tool, count in Counter(call.name for call in calls).items()) or "none"


BUILTIN_CHECKS: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "final_response_present": final_response_present,
        "tool_call_count": tool_call_count,
        "file_exists": file_exists,
        "path_exists": path_exists,
        "file_contains": file_contains,
        "status_is": status_is,
        "output_artifact_present": output_artifact_present,
        "contains": contains,
        "icontains": icontains,
        "not_contains": not_contains,
        "starts_with": starts_with,
        "equals": equals,
        "regex_match": regex_match,
        "json_schema": json_schema,
        "json_path_equals": json_path_equals,
        "tool_called": tool_called,
        "tool_not_called": tool_not_called,
        "skill_used": skill_used,
        "permission_asked": permission_asked,
        "max_turns": max_turns,
        "max_cost_usd": max_cost_usd,
        "max_seconds": max_seconds,
        "metric": metric_at_least,
        "any_of": any_of,
        "all_of": all_of,
        "not": not_,
    }
)
"""The kinds that ship with the package, as `declarative.kind` names them."""

DEFAULT_DIMENSIONS: Mapping[str, tuple[Dimension, ...]] = MappingProxyType(
    {
        "final_response_present": ("process",),
        "status_is": ("process",),
        "tool_call_count": ("process", "efficiency"),
        "tool_called": ("process",),
        "tool_not_called": ("process",),
        "skill_used": ("process",),
        "permission_asked": ("process",),
        "max_turns": ("efficiency",),
        "max_cost_usd": ("efficiency",),
        "max_seconds": ("efficiency",),
    }
)
"""Default dimensions of a kind. Kinds that are not listed count for `task`."""


_OF_CALLS = frozenset({"tool_call_count", "tool_called", "tool_not_called"})

BEYOND_ANSWERS = frozenset(
    {
        *_OF_CALLS,
        "skill_used",
        "permission_asked",
        "max_turns",
        "max_cost_usd",
        "max_seconds",
        "file_exists",
        "path_exists",
        "file_contains",
        "output_artifact_present",
    }
)
"""Kinds of ours that look at more than the final output and the status, like every check with a `path`."""


async def run_checks(
    context: CheckContext, policy: SecurityPolicy, kinds: Mapping[str, CheckKind] = BUILTIN_CHECKS
) -> tuple[CheckResult, ...]:
    """Return the results of the case's checks, in the case's order.

    An exception of a check is an `error` result; it is never raised.
    """
    return tuple([await _run(check, context, policy, kinds) for check in context.case.checks])


async def _run(
    check: Check, context: CheckContext, policy: SecurityPolicy, kinds: Mapping[str, CheckKind]
) -> CheckResult:
    async def decide_in(seen: CheckContext) -> Verdict:
        async def decide(spec: Any) -> Verdict:
            return await _decide(check.with_spec(spec), seen._replace(decide=decide), policy, kinds)

        return await _decide(check, seen._replace(decide=decide), policy, kinds)

    if check.turn is None:
        check_verdict = await decide_in(context)
    else:
        from pytest_agentbench.checks.turns import decide_turn

        check_verdict = await decide_turn(check.turn, context, decide_in)
    # The page shows a check of the last turn beside that turn; without fixed turns nobody knows its number here
    turn = (len(context.case.turns) or -1) if check.turn == -1 else check.turn
    try:
        return _result(check, turn, check_verdict)
    except ValidationError as error:  # the verdict of a plugin's check has other types than a Verdict has
        return _result(check, turn, _make_error(error))


async def _decide(
    check: Check, context: CheckContext, policy: SecurityPolicy, kinds: Mapping[str, CheckKind]
) -> Verdict:
    try:
        if check.python_hook is not None:
            from pytest_agentbench.checks.hooks import run_hook

            return await run_hook(check.python_hook, context, policy)
        return await _declarative(check, context, kinds)
    # Unmet means that the agent did not produce the object of the check. Any other exception is the check's
    # own error.
    except Unmet as unmet:
        return Verdict("failed", str(unmet), actual=unmet.actual)
    except BaseException as error:
        if not is_failure(error):
            raise
        return _make_error(error)


def _make_error(error: BaseException) -> Verdict:
    return Verdict("error", f"{type(error).__name__}: {error}")


def _result(check: Check, turn: TurnChoice | None, check_verdict: Verdict) -> CheckResult:
    return CheckResult(
        check_id=check.check_id,
        kind=check.kind,
        turn=turn,
        dimensions=check.dimensions
        or tuple(dict.fromkeys(each for _, leaf in check.leaves for each in _default_dimensions(leaf))),
        outcome=check_verdict.outcome,
        message=check_verdict.message,
        expected=check_verdict.expected,
        actual=check_verdict.actual,
        outputs=check_verdict.outputs,
    )


def _default_dimensions(check: Check) -> tuple[Dimension, ...]:
    spec = typed_spec(check)
    if spec is None:
        return DEFAULT_DIMENSIONS.get(check.kind, ("task",))
    return spec.default_dimensions


def _beyond_answers(check: Check) -> bool:
    if (spec := typed_spec(check)) is not None:
        return spec.beyond_answers
    return check.kind in BEYOND_ANSWERS or getattr(check.declarative, "path", None) is not None


def _is_known(check: Check, context: CheckContext) -> bool:
    """Return whether a prediction has all that a check looks at: the answer, or the tool calls if it came with them."""
    if check.kind in _OF_CALLS and "reported_calls" in context.artifact.provider:
        return True
    return not _beyond_answers(check)


async def decide_own(check: Check, context: CheckContext) -> Verdict:
    """Return the verdict of a check of a kind of ours, without raising."""
    return await _decide(check, context, SecurityPolicy(), BUILTIN_CHECKS)


async def _declarative(check: Check, context: CheckContext, kinds: Mapping[str, CheckKind]) -> Verdict:
    kind, spec = kinds.get(check.kind), typed_spec(check)
    if spec is None and isinstance(kind, type):  # it was read where its class was not known
        fields = {} if check.declarative is None else check.declarative.model_dump()
        spec = cast(type[CheckSpec], kind).model_validate(fields)
    if kind is None and spec is None:
        raise LookupError(f"no check of kind {check.kind!r} is registered; known: {', '.join(sorted(kinds))}")
    # An error instead of a failure: unrecorded events do not rate the agent.
    if context.artifact.runner_type == "predictions" and not _is_known(check, context):
        return Verdict("error", "predictions contain only answers: their tool calls, files, time and cost are unknown")
    if context.turn is not None and reads_file(check.declarative):
        from pytest_agentbench.checks.turns import find_turn_verdict

        if (verdict_then := find_turn_verdict(check, context.artifact, context.turn)) is not None:
            return verdict_then
    check_verdict = spec.check(context) if spec is not None else cast(CheckFunction, kind)(check.declarative, context)
    if inspect.isawaitable(check_verdict):
        check_verdict = await check_verdict
    if not isinstance(check_verdict, Verdict):
        raise TypeError(f"the check {check.kind} returned {type(check_verdict).__name__}, expected a Verdict")
    return check_verdict
