"""What else of a session can change a run or its verdict, beside the case, the model and the profiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_agentbench.config import EvaluationProfile
from pytest_agentbench.engine.job import Job
from pytest_agentbench.engine.registry import is_ours
from pytest_agentbench.engine.sandboxing import sandbox_identity
from pytest_agentbench.engine.services import CaseRunner, Services, agent_name
from pytest_agentbench.engine.taping import verdict_cassette
from pytest_agentbench.engine.verdict import metrics_of
from pytest_agentbench.engine.verifying import verifiers_identity
from pytest_agentbench.judging import tool_use_identity
from pytest_agentbench.metrics import TOOL_USE_METRICS
from pytest_agentbench.records import Case, Model, PythonHook, RunArtifact
from pytest_agentbench.store import fingerprint
from pytest_agentbench.tools import WEB_FETCH, WEB_SEARCH, Tool

_DIGITS = 16


def run_extra(services: Services, job: Job, case: Case, agent: Any, model: Model) -> dict[str, Any]:
    """Part of the run's fingerprint: what runs the case, a prediction's digest, a scripted model's script, tools, what
    the workspace begins with.

    Raises ConfigError for a script or a workspace template that is wrong.
    """
    if job.plan.predictions is not None:
        return {"prediction": job.plan.predictions.digest(case, job.repetition)}
    extra: dict[str, Any] = {}
    if case.workspace is not None:
        extra["workspace"] = services.identities.template(case.workspace)
    if not isinstance(agent, CaseRunner):
        extra["agent"] = services.identities.agent(agent, job.runner_scope, agent_name(agent))
        extra["metadata"] = case.metadata
    elif found := _added(services, "runner", [case.runner.type]):
        extra |= {"runner": found, "metadata": case.metadata}
    if model.scripted:
        extra["script"] = services.scripts.answers_digest(case)
    elif found := _added(services, "model provider", [model.provider]):
        extra["provider"] = found
    if isinstance(agent, CaseRunner) and case.runner.type == "mcp_planner":
        extra["planner"] = job.plan.run_profile.planner.of_a_run
    if case.tools:
        extra["tools"] = {name: _tool(services, job, name, model) for name in case.tools}
    if sandbox := sandbox_identity(services, job, case):
        extra["sandbox"] = sandbox
    return extra


def verdict_identity(services: Services, job: Job, case: Case, artifact: RunArtifact) -> str:
    """The fingerprint of the verdict on a run: what its profile, checks, metrics and judges can change.

    Raises ConfigError for a script that is wrong.
    """
    extra = {**_verdict_extra(services, job, case), **verdict_cassette(services, job, case, artifact)}
    return job.plan.lane.evaluation_fingerprint(artifact.fingerprint or "", case, job.judges, extra)


def measure_of(services: Services, job: Job, case: Case) -> str:
    """16 hex digits over all that decides what a run of the case is worth, whichever run, and whatever its title.

    Raises ConfigError for a script that is wrong.
    """
    untitled = case.model_copy(update={"title": ""})
    return job.plan.lane.evaluation_fingerprint("", untitled, job.judges, _verdict_extra(services, job, case))[:_DIGITS]


def _verdict_extra(services: Services, job: Job, case: Case) -> dict[str, Any]:
    """The code of hooks and of plugins' checks, metrics and judges; an MCP task; the script of a scripted judge."""
    profile, judges = job.plan.evaluation_profile, (*job.plan.judges.values(), *job.judges)
    parts = {
        "checks": _added(services, "check", (check.kind for check in case.checks)),
        "metrics": _added(services, "metric", _metrics_used(case, profile)),
        "judges": _added(services, "judge", _judges_used(profile)),
        "providers": _added(services, "model provider", (judge.provider for judge in judges)),
    }
    found: dict[str, Any] = {name: part for name, part in parts.items() if part}
    if profile.security_policy.allow_local_python_hooks:
        hooks = [check.python_hook for check in case.checks if check.python_hook is not None]
        if hooks:
            found["hooks"] = {hook.path or hook.import_path or "": _hook(services, hook, case) for hook in hooks}
    if case.verify:
        found["verify"] = verifiers_identity(job, case)
    if case.mcp_servers:
        found["tool_use"] = TOOL_USE_METRICS
    if case.mcp_task is not None:
        found["mcp_task"] = case.mcp_task
        found["tool_use_judge"] = tool_use_identity(profile)
    if case.research is not None:
        found["research"] = services.research.identity(case)
    if any(judge.scripted for judge in judges):
        found["script"] = services.scripts.verdict_digest(case)
        if case.research is not None:
            found["pages"] = services.scripts.pages(case.case_id)
    return found


def _added(services: Services, kind: str, names: Iterable[str | None]) -> dict[str, Any]:
    """The identities of those that are not ours."""
    others = services.registry.added[kind]
    if not others:
        return {}
    return {
        name: services.identities.part(kind, name, others[name])
        for name in names
        if name is not None and name in others
    }


def _metrics_used(case: Case, profile: EvaluationProfile) -> Iterator[str]:
    yield from (spec.name for spec in metrics_of(case, profile))
    yield from (getattr(check.declarative, "name", "") for check in case.checks if check.kind == "metric")


def _judges_used(profile: EvaluationProfile) -> Iterator[str]:
    used = {run.judge_id for run in profile.judge_runs}
    yield from (judge.type for judge in profile.judges if judge.judge_id in used)


def _tool(services: Services, job: Job, name: str, model: Model) -> dict[str, Any]:
    tool = services.registry.tools.get(name)
    if tool is None:
        return {}
    found: dict[str, Any] = {"definition": _definition(tool)}
    if not is_ours(tool.call):
        found["code"] = services.identities.part("tool", name, tool.call)
    if name == WEB_SEARCH and not model.scripted and services.registry.search is not None:
        found["backend"] = services.identities.part("search backend", name, services.registry.search)
    if name in (WEB_SEARCH, WEB_FETCH) and (network := job.plan.run_profile.network.model_dump(exclude_defaults=True)):
        found["network"] = network
    return found


@lru_cache(maxsize=1024)
def _definition(tool: Tool) -> str:
    """SHA-256 of what a model is told of a tool."""
    return fingerprint({"name": tool.name, "description": tool.description, "parameters": tool.parameters})


def _hook(services: Services, hook: PythonHook, case: Case) -> Any:
    if hook.path is not None:
        return services.identities.file("hook", (case.path.parent / Path(hook.path)).resolve())
    return services.identities.module("hook", hook.import_path or "")
