"""The check of an agent's requests for permission."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from pytest_agentbench.checks.base import CheckContext, Verdict, verdict
from pytest_agentbench.records.run import RunnerEvent
from pytest_agentbench.records.run_checks import PermissionAsked

_ANSWERS = {"allow": "allow_", "deny": "reject_"}


def decide_permission(spec: PermissionAsked, context: CheckContext) -> Verdict:
    """Return the verdict of the check `permission_asked`."""
    trace = context.artifact.trace
    requests = [event.data for event in trace if isinstance(event, RunnerEvent) and event.name == "permission"]
    hits = [request for request in requests if _matches(spec, request)]
    wanted = f"a request for permission of {spec.title or spec.tool_kind}"
    if spec.answer is not None:
        wanted += f", answered with {spec.answer}"
    shown = [f"{each.get('title')} ({each.get('kind')}): {each.get('answer')}" for each in requests]
    message = f"{len(hits)} of {len(requests)} requests for permission are as described, expected at least 1"
    return verdict(bool(hits), message, wanted, "; ".join(shown) or "no request")


def _matches(spec: PermissionAsked, request: Mapping[str, Any]) -> bool:
    if spec.answer is not None and not str(request.get("answer")).startswith(_ANSWERS[spec.answer]):
        return False
    if spec.title is None:
        return request.get("kind") == spec.tool_kind
    return any(fnmatchcase(str(request.get(name)), spec.title) for name in ("title", "tool"))
