"""All checks of a case on one run: the registry of kinds, and the loop."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from pytest_agentbench.checks.base import CheckContext, CheckFunction, CheckKind, CheckSpec, Unmet, Verdict, typed_spec
from pytest_agentbench.checks.declarative import (
    file_contains,
    file_exists,
    final_response_present,
    json_path_equals,
    json_schema,
    max_cost_usd,
    max_seconds,
    max_turns,
    metric_at_least,
    output_artifact_present,
    path_exists,
    regex_match,
    status_is,
    tool_call_count,
    tool_called,
    tool_not_called,
)
from pytest_agentbench.config.profiles import SecurityPolicy
from pytest_agentbench.records.base import Dimension
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.records.evaluation import CheckResult

BUILTIN_CHECKS: Mapping[str, CheckFunction] = MappingProxyType(
    {
        "final_response_present": final_response_present,
        "tool_call_count": tool_call_count,
        "file_exists": file_exists,
        "path_exists": path_exists,
        "file_contains": file_contains,
        "status_is": status_is,
        "output_artifact_present": output_artifact_present,
        "regex_match": regex_match,
        "json_schema": json_schema,
        "json_path_equals": json_path_equals,
        "tool_called": tool_called,
        "tool_not_called": tool_not_called,
        "max_turns": max_turns,
        "max_cost_usd": max_cost_usd,
        "max_seconds": max_seconds,
        "metric": metric_at_least,
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
        "max_turns": ("efficiency",),
        "max_cost_usd": ("efficiency",),
        "max_seconds": ("efficiency",),
    }
)
"""What a kind counts towards where the case does not say; every other kind counts towards `task`."""


BEYOND_ANSWERS = frozenset(
    {
        "tool_call_count",
        "tool_called",
        "tool_not_called",
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
    """The results of the case's checks, in its order. Never raises for what a check does: that is an `error` result."""
    return tuple([await _run(check, context, policy, kinds) for check in context.case.checks])


async def _run(
    check: Check, context: CheckContext, policy: SecurityPolicy, kinds: Mapping[str, CheckKind]
) -> CheckResult:
    try:
        if check.python_hook is not None:
            from pytest_agentbench.checks.hooks import run_hook

            found = await run_hook(check.python_hook, context, policy)
        else:
            found = await _declarative(check, context, kinds)
        return _result(check, found)
    except Unmet as unmet:
        return _result(check, Verdict("failed", str(unmet), actual=unmet.actual))
    except Exception as error:  # noqa: BLE001  whatever a check raises is its result
        return _result(check, Verdict("error", f"{type(error).__name__}: {error}"))


def _result(check: Check, found: Verdict) -> CheckResult:
    return CheckResult(
        check_id=check.check_id,
        kind=check.kind,
        dimensions=check.dimensions or _default_dimensions(check),
        outcome=found.outcome,
        message=found.message,
        expected=found.expected,
        actual=found.actual,
        outputs=found.outputs,
    )


def _default_dimensions(check: Check) -> tuple[Dimension, ...]:
    spec = typed_spec(check)
    return DEFAULT_DIMENSIONS.get(check.kind, ("task",)) if spec is None else spec.default_dimensions


def _beyond_answers(check: Check) -> bool:
    if (spec := typed_spec(check)) is not None:
        return spec.beyond_answers
    return check.kind in BEYOND_ANSWERS or getattr(check.declarative, "path", None) is not None


async def _declarative(check: Check, context: CheckContext, kinds: Mapping[str, CheckKind]) -> Verdict:
    kind, spec = kinds.get(check.kind), typed_spec(check)
    if spec is None and isinstance(kind, type):  # it was read where its class was not known
        spec = cast(type[CheckSpec], kind).model_validate(
            check.declarative.model_dump() if check.declarative is not None else {}
        )
    if kind is None and spec is None:
        raise LookupError(f"no check of kind {check.kind!r} is registered; known: {', '.join(sorted(kinds))}")
    if context.artifact.runner_type == "predictions" and _beyond_answers(check):
        return Verdict("error", "predictions are answers only: tool calls, files, time and cost are not known of them")
    found = spec.check(context) if spec is not None else cast(CheckFunction, kind)(check.declarative, context)
    if inspect.isawaitable(found):
        found = await found
    if not isinstance(found, Verdict):
        raise TypeError(f"the check {check.kind} returned {type(found).__name__}, expected a Verdict")
    return found
