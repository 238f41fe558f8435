"""Plan a job's run and its verdict: runner, sandbox and verifiers, and the fingerprints of run and verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.checks.base import CheckContext
from pytest_agentbench.config.case_file import refuse_request_field, refuses_tools
from pytest_agentbench.config.profiles import EvaluationProfile, RunProfile, merge_runner_settings
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import RUN_SETTINGS, find_high_temperature
from pytest_agentbench.engine.attempt import Attempt, RunPlan
from pytest_agentbench.engine.cassettes import run_cassette, verdict_cassette
from pytest_agentbench.engine.job import Job, Plan
from pytest_agentbench.engine.services import Services, is_ours
from pytest_agentbench.errors import ConfigError, ToolsRefusedError, UnavailableError
from pytest_agentbench.identity.fingerprints import (
    Plain,
    VerdictInputs,
    canonical_json,
    evaluation_input,
    fingerprint,
    metric_judge_input,
    rubric_input,
    run_fingerprint_input,
)
from pytest_agentbench.metrics.registry import TOOL_USE_METRICS, metrics_of
from pytest_agentbench.records.case import Case, McpServer, Model
from pytest_agentbench.records.check_specs import PythonHook
from pytest_agentbench.records.evaluation import CheckResult, Evaluation, JudgeResult
from pytest_agentbench.records.run import RunArtifact
from pytest_agentbench.runners.base import PROBE, CaseRunner, Runner, agent_name
from pytest_agentbench.runners.kinds import Prepared, RunnerKind, RunRequest
from pytest_agentbench.tools.builtin import WEB_FETCH, WEB_SEARCH

if TYPE_CHECKING:
    from pytest_agentbench.engine.case_drivers import NamedDriver
    from pytest_agentbench.tools.base import Tool
    from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
    from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes


def run_spec(attempt: Attempt) -> SandboxSpec:
    """Return the sandbox of a run's commands. Raises as `sandbox_spec` does."""
    if attempt.run_plan.prepared.sandbox is not None:
        return attempt.run_plan.prepared.sandbox()
    return sandbox_spec(attempt)


def sandbox_spec(attempt: Attempt) -> SandboxSpec:
    """Return the sandbox of the commands of a run with tools, and of the case's verifiers.

    Raises ConfigError for an image that is not pinned, and for commands of a guest without a sandbox. Raises
    UnavailableError if there is no such sandbox here.
    """
    return case_spec(attempt.services.sandboxes, attempt.plan.root, attempt.plan.run_profile, attempt.case)


def case_spec(sandboxes: Sandboxes, root: ConfigRoot, profile: RunProfile, case: Case) -> SandboxSpec:
    """Return the sandbox that the profile gives a case of the root. Raises as `sandbox_spec` does."""
    from pytest_agentbench.workspaces.sandboxes.base import lacks_isolation
    from pytest_agentbench.workspaces.sandboxes.needs import refuse_floating_images

    settings = profile.sandbox_settings
    if (guest := root.guest) is not None and lacks_isolation(settings.type):
        raise ConfigError(
            f"{case.path}:{case.line}: found commands of a folder that is not trusted, which the run profile "
            f"{profile.run_profile_id!r} runs without isolation (sandbox: {settings.type}), expected a sandbox; "
            f"{guest.remedy}"
        )
    refuse_floating_images(case, profile)
    return sandboxes.spec(settings, case.sandbox)


async def expected_sandbox(attempt: Attempt) -> SandboxSpec | None:
    """Return the sandbox that the run will probably start for the case's tools, None if it starts none.

    Its image is pulled or built here, as are those of a runner's own sandbox and of verifiers. Raises as `sandbox_spec`
    does, and for an image that cannot be pulled or built, before anything is paid for. A user's own agent may not use
    the case's tools and gets no error for them.
    """
    services, case, run_plan, plan = attempt.services, attempt.case, attempt.run_plan, attempt.plan
    if run_plan.prepared.sandbox is not None:
        await services.sandboxes.prepare(run_plan.prepared.sandbox())
    if plan.predictions is not None and not all(verifier.answer_file for verifier in case.verify):
        return None
    has_hooks = plan.predictions is None and case.has_hooks
    # A runner's own sandbox is that of the case's tools, too
    runs_commands = _runs_commands if run_plan.prepared.sandbox is None else _needs_sandbox
    if not (case.verify or has_hooks or (plan.predictions is None and runs_commands(attempt))):
        return None
    try:
        spec = sandbox_spec(attempt)
        await services.sandboxes.prepare(spec)
    except UnavailableError:
        # The user's own agent may not use the case's tools: only verifiers, hooks and graders require the sandbox
        if case.verify or has_hooks or attempt.sandbox_graders or run_plan.runner_type != "callable":
            raise
        return None
    if plan.predictions is not None or run_plan.prepared.sandbox is not None or not _runs_commands(attempt):
        return None
    # This run and those about to begin: a container takes seconds to come up, and they would queue for it
    services.sandboxes.expect(spec, 1 + services.rules.coming())
    return spec


def sandbox_identity(attempt: Attempt) -> dict[str, Any]:
    """Return the part of the sandbox that can change a run, {} if the case has no setup and no tool that runs commands.

    The kind that `auto` selects here is left out, so that a stored run is found on a machine without docker. Raises
    ConfigError for an image that cannot be built, and for an invalid compose file.
    """
    if _runs_commands(attempt):
        return sandbox_part(attempt)
    return {}


def sandbox_part(attempt: Attempt) -> dict[str, Any]:
    """Return the part of a sandbox that can change its commands. Raises ConfigError as `sandbox_identity` does."""
    settings = attempt.plan.run_profile.sandbox_settings
    # The digest of a build contains its network, if there is a build
    found: dict[str, Any] = settings.model_dump(exclude={"build_network"})
    needs = attempt.case.sandbox
    if needs is None:
        return found
    from pytest_agentbench.workspaces.sandboxes.needs import describe_needs

    return found | describe_needs(needs, network=settings.build_network == "allow")


def _needs_sandbox(attempt: Attempt) -> bool:
    """Return whether the case itself needs a sandbox, whatever its tools."""
    return attempt.case.setup is not None or bool(attempt.sandbox_graders)


def _runs_commands(attempt: Attempt) -> bool:
    if _needs_sandbox(attempt):
        return True
    if not attempt.case.tools:
        return False
    from pytest_agentbench.tools.base import require_sandbox

    tools = (attempt.services.registry.tools.get(name) for name in attempt.case.tools)
    return any(tool is not None and tool.available is require_sandbox for tool in tools)


_GRADING = 2
"""Version of the verifiers' procedure, raised if it may decide otherwise than before. 2: reports are signed."""


async def verify_all(attempt: Attempt, context: CheckContext) -> tuple[CheckResult, ...]:
    """Return the results of the case's verifiers. Raises UnavailableError if they cannot run here."""
    from pytest_agentbench.checks.verifying.run import no_workspace_results, run_verifiers

    if attempt.plan.predictions is not None and not all(verifier.answer_file for verifier in attempt.case.verify):
        return no_workspace_results(attempt.case)
    spec = sandbox_spec(attempt)
    await attempt.services.sandboxes.prepare(spec)
    return await run_verifiers(context, attempt.services.sandboxes, spec)


def verifiers_identity(attempt: Attempt) -> dict[str, Any]:
    """Return the identity of the verifiers, their hidden files and their sandbox. Raises ConfigError for unreadable
    files.
    """
    return {"grading": _GRADING, "verifiers": list(_identities(attempt.case)), "sandbox": sandbox_part(attempt)}


def _identities(case: Case) -> Iterator[dict[str, Any]]:
    from pytest_agentbench.checks.verifying.staging import source_digest

    for verifier in case.verify:
        try:
            files = {hidden.target: source_digest(hidden) for hidden in verifier.files}
        except OSError as error:
            raise ConfigError(f"{case.path}:{case.line}: verify: {error.filename}: {error.strerror}") from error
        # Only fields that are set, so that fingerprints of verdicts stored before the field existed stay the same
        later: dict[str, Any] = {}
        if verifier.apart:
            later["apart"] = True
        if verifier.answer_file is not None:
            later["answer_file"] = verifier.answer_file
        yield {**verifier.model_dump(exclude={"files", "apart", "canary", "answer_file"}), "files": files, **later}


_DIGITS = 16


def run_extra(attempt: Attempt, agent: Any, model: Model) -> dict[str, Any]:
    """Return a part of the run's fingerprint: runner or agent, prediction, script of a scripted model, tools,
    workspace.

    Raises ConfigError for an invalid script or workspace template.
    """
    services, case = attempt.services, attempt.case
    if attempt.plan.predictions is not None:
        return {"prediction": attempt.plan.predictions.digest(case, attempt.job.repetition)}
    extra: dict[str, Any] = {}
    if case.workspace is not None:
        extra["workspace"] = services.identities.template(case.workspace)
    if case.setup is not None:
        extra["setup"] = case.setup.command
    if not isinstance(agent, CaseRunner):
        extra["agent"] = services.identities.agent(agent, attempt.job.runner_scope, agent_name(agent))
        extra["metadata"] = case.metadata
    # No built-in runner looks at a case's metadata; somebody else's may, like an agent of the user's
    elif found := _added(services, "runner", [case.runner.type]):
        extra |= {"runner": found, "metadata": case.metadata}
    if model.scripted:
        extra["script"] = services.scripts.answers_digest(case)
    elif found := _added(services, "model provider", [model.provider]):
        extra["provider"] = found
    if case.tools:
        extra["tools"] = {name: _tool(attempt, name, model) for name in case.tools}
    if sandbox := sandbox_identity(attempt):
        extra["sandbox"] = sandbox
    return extra


def verdict_inputs(attempt: Attempt) -> VerdictInputs:
    """Return the inputs of all verdicts on the case: its profile, checks, metrics and judges.

    Raises ConfigError for an invalid script.
    """
    profile = attempt.plan.model_store.evaluation_profile_fingerprint
    return VerdictInputs(evaluation_input("", attempt.case, profile, attempt.job.judges, _verdict_extra(attempt)))


def verdict_identity(attempt: Attempt, artifact: RunArtifact, decided_by: VerdictInputs | None = None) -> str:
    """Return the fingerprint of the verdict on a run; `decided_by` are its verdict inputs (default: the current ones).

    Raises ConfigError for a script that is wrong.
    """
    found = decided_by if decided_by is not None else verdict_inputs(attempt)
    if attempt.services.uses_cassettes(attempt.job):
        extra = {**found.covered["extra"], **verdict_cassette(attempt, artifact)}
        found = VerdictInputs(Plain(found.covered, extra=extra))
    return found.fingerprint(artifact.fingerprint or "")


def measure_of(decided_by: VerdictInputs) -> str:
    """Return 16 hex digits over the inputs of a case's verdict, without its title."""
    return decided_by.measure[:_DIGITS]


def _verdict_extra(attempt: Attempt) -> dict[str, Any]:
    """Return the code of hooks and plugins, the identities of graders, and the script of a scripted judge."""
    services, case = attempt.services, attempt.case
    profile, judges = attempt.plan.evaluation_profile, (*attempt.plan.judges.values(), *attempt.job.judges)
    used: dict[str, Sequence[str | None]] = {
        "check": [leaf.kind for check in case.checks for _, leaf in check.leaves],
        "metric": [*_metrics_used(case, profile)],
        "judge": [*_judges_used(profile)] if profile.judge_runs else [],
        "grader": [name for name, grader in services.registry.graders.items() if grader.applies(case)],
        "model provider": [judge.provider for judge in judges],
    }
    found: dict[str, Any] = {
        _PARTS[kind]: part for kind, names in used.items() if names and (part := _added(services, kind, names))
    }
    if profile.security_policy.allow_local_python_hooks:
        hooks = [check.python_hook for check in case.checks if check.python_hook is not None]
        if hooks:
            found["hooks"] = {hook.path or hook.import_path or "": _hook(attempt, hook) for hook in hooks}
    if case.verify:
        found["verify"] = verifiers_identity(attempt)
    if case.mcp_servers:
        found["tool_use"] = TOOL_USE_METRICS
    # Only the grader knows its inputs, for example its prompts
    for grader in attempt.graders:
        found |= grader.identity(services, attempt.job, case)
    if any(judge.scripted for judge in judges):
        found["script"] = services.scripts.verdict_digest(case)
    return found


_PARTS = {
    "check": "checks",
    "metric": "metrics",
    "judge": "judges",
    "grader": "graders",
    "model provider": "providers",
}
"""Keys of an identity, by the kind of the things."""


def _added(services: Services, kind: str, names: Iterable[str | None]) -> dict[str, Any]:
    """Return the identities of the named parts that plugins added."""
    others = services.registry.added(kind, names)
    return {name: services.identities.part(kind, name, thing) for name, thing in others.items()}


def _metrics_used(case: Case, profile: EvaluationProfile) -> Iterator[str]:
    yield from (spec.name for spec in metrics_of(case, profile))
    leaves = (leaf for check in case.checks for _, leaf in check.leaves)
    yield from (getattr(leaf.declarative, "name", "") for leaf in leaves if leaf.kind == "metric")


def _judges_used(profile: EvaluationProfile) -> Iterator[str]:
    used = {run.judge_id for run in profile.judge_runs}
    yield from (judge.type for judge in profile.judges if judge.judge_id in used)


def _tool(attempt: Attempt, name: str, model: Model) -> dict[str, Any]:
    services = attempt.services
    tool = services.registry.tools.get(name)
    if tool is None:
        return {}
    found: dict[str, Any] = {"definition": _definition(tool)}
    if not is_ours(tool.call):
        found["code"] = services.identities.part("tool", name, tool.call)
    # A scripted model searches its script, with or without a backend
    if name == WEB_SEARCH and not model.scripted and services.registry.search is not None:
        found["backend"] = services.identities.part("search backend", name, services.registry.search)
    if name in (WEB_SEARCH, WEB_FETCH) and (
        network := attempt.plan.run_profile.network.model_dump(exclude_defaults=True)
    ):
        found["network"] = network
    return found


@lru_cache(maxsize=1024)
def _definition(tool: Tool) -> str:
    """Return the SHA-256 of a tool's name, description and parameters, which models see."""
    return fingerprint({"name": tool.name, "description": tool.description, "parameters": tool.parameters})


def _hook(attempt: Attempt, hook: PythonHook) -> Any:
    if hook.path is not None:
        return attempt.services.identities.file("hook", (attempt.case.path.parent / Path(hook.path)).resolve())
    return attempt.services.identities.module("hook", hook.import_path or "")


def plan_run(attempt: Attempt) -> RunPlan:
    """Return the plan of the attempt's run.

    Raises UnavailableError for a missing runner or model, ConfigError for an undeclared MCP server, and both if the
    runner raises them.
    """
    case = attempt.case
    plan, agent = attempt.plan, attempt.values.agent
    runner, runner_type = _runner(attempt, agent)
    model = plan.model or _own(agent_name(agent))
    settings = merge_runner_settings(plan.run_profile, plan.declared_id, case.runner.overrides, model.parameters)
    _refuse_request_fields(plan, runner, runner_type, settings)
    problem = find_high_temperature(settings, model.dialect, model.base_url, model.dialect_overrides, model.api)
    if problem is not None:
        raise ConfigError(f"{case.path}:{case.line}:1: model {model.model_id!r}: temperature: {problem}")
    extra = run_extra(attempt, agent, model)
    if plan.variant is not None and plan.variant.fields.aa:
        extra["variant"] = plan.variant.name  # its runs must not be those of the equal variant
    if plan.run_profile.parallel_tools is not None:
        extra["parallel_tools"] = plan.run_profile.parallel_tools
    if plan.predictions is None and (case.skills or any(check.kind == "skill_used" for check in case.checks)):
        from pytest_agentbench.engine.skills import require_skill, skills_identity

        require_skill(case)
        if case.skills:
            extra["skills"] = skills_identity(case, runner, runner_type)
    if attempt.sandbox_graders:
        from pytest_agentbench.engine.live_grading import live_identity

        extra |= live_identity(attempt)
    servers: Mapping[str, McpServer] = {}
    prepared = Prepared()
    if isinstance(runner, RunnerKind):
        request = RunRequest(case, model, settings, plan.root, plan.run_profile, plan.suite)
        try:
            prepared = attempt.services.runner_session(runner).prepare(request)
        except ToolsRefusedError as error:
            if plan.variant is None or not plan.variant.adds_servers:
                raise
            raise UnavailableError(f"variant {plan.variant.name}: {error}") from error
        extra |= prepared.identity
    if not refuses_tools(runner):
        servers, identity = _servers(attempt, attempt.values.servers)
        if servers:
            extra["mcp_servers"] = identity
    driver, identity = _driver(attempt)
    extra |= identity
    roles: Mapping[str, Model] = {}
    if names := _list_roles(attempt, runner, prepared, driver):
        from pytest_agentbench.engine.roles import find_roles, roles_identity

        roles = find_roles(plan, names, runner_type)
        extra["roles"] = roles_identity(attempt, roles)
    if attempt.services.uses_cassettes(attempt.job):
        extra |= run_cassette(attempt, (model, *roles.values()))
    covered = canonical_json(run_fingerprint_input(case, model, runner_type, settings, attempt.job.repetition, extra))
    return RunPlan(
        runner, runner_type, model, settings, covered, fingerprint(covered), servers, prepared, roles, driver
    )


def _driver(attempt: Attempt) -> tuple[NamedDriver | None, dict[str, Any]]:
    """Return the driver of the run's conversation, and the parts of the fingerprint for a conversation."""
    plan, case = attempt.plan, attempt.case
    driver: NamedDriver | None = None
    identity: dict[str, Any] = {}
    if plan.predictions is None and case.parts:
        from pytest_agentbench.engine.case_drivers import driver_identity, find_driver

        driver = find_driver(case)
        identity = driver_identity(attempt.services, driver)
    if (case.turns or driver is not None) and (limits := _describe_limits(case, plan.run_profile)):
        identity["conversation"] = limits
    return driver, identity


def _describe_limits(case: Case, profile: RunProfile) -> dict[str, Any]:
    """Return the limits of the case's conversation that differ from the defaults."""
    if case.conversation is None and profile.conversation is None:
        return {}
    from pytest_agentbench.records.conversations import merge_limits

    return merge_limits(profile.conversation, case.conversation).model_dump(exclude_defaults=True)


def _list_roles(attempt: Attempt, runner: Runner, prepared: Prepared, driver: NamedDriver | None) -> list[str]:
    """Return the roles of further models that the run's runner or agent, and its driver, declare."""
    agent = attempt.values.agent
    if attempt.plan.predictions is not None:
        return []
    declared = getattr(runner if isinstance(agent, CaseRunner) else agent, "model_roles", ())
    if not isinstance(declared, tuple | list):  # a mock or a proxy has every attribute
        declared = ()
    driver_roles = () if driver is None else driver.model_roles
    return [*dict.fromkeys((*declared, *prepared.model_roles, *driver_roles))]


def _refuse_request_fields(plan: Plan, runner: Runner, runner_type: str, settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for request fields of the run profile that a runner has no request for."""
    if not isinstance(runner, RunnerKind) or runner.sends_requests:
        return
    if lost := sorted(settings.keys() - RUN_SETTINGS):
        problem = refuse_request_field(runner_type)
        raise ConfigError(f"{plan.run_profile.place}: {', '.join(lost)}: {problem}")


def require_input(runner: Runner, runner_type: str, case: Case) -> None:
    """Raise ConfigError for a case whose messages, attachments or conversation its runner does not support, before
    anything is paid for.

    The check is repeated in the run; a user's own agent is not checked.
    """
    if runner_type == case.runner.type and (case.parts or case.turns):
        from pytest_agentbench.engine.case_drivers import require_conversation

        require_conversation(runner, runner_type, case)
    if isinstance(runner, RunnerKind):
        runner.require_input(case)
    elif runner_type == PROBE:
        from pytest_agentbench.runners.chat import render_first

        render_first(case)


def _servers(attempt: Attempt, value: Any) -> tuple[Mapping[str, McpServer], dict[str, Any]]:
    """Return the run's servers and their identity. `value` is the fixture's."""
    profile, is_given = attempt.plan.run_profile, not (isinstance(value, dict) and not value)
    if attempt.plan.predictions is not None:
        return {}, {}
    if not (is_given or attempt.case.mcp_servers or attempt.case.case_parts or profile.mcp_servers):
        return {}, {}
    from pytest_agentbench.engine.servers import servers_identity, servers_of

    from_fixture = attempt.services.servers.of_fixture(value)
    servers = servers_of(attempt.job, attempt.case, from_fixture)
    return servers, servers_identity(attempt.job, servers, from_fixture)


@lru_cache(maxsize=256)
def _own(name: str) -> Model:
    """Return the placeholder for the model of a user's own agent."""
    return Model(model_id=name, requested_model=name, api_key_env=None)


def _runner(attempt: Attempt, agent: Any) -> tuple[Runner, str]:
    case, plan = attempt.case, attempt.plan
    if plan.predictions is not None:
        return plan.predictions, "predictions"
    if not isinstance(agent, CaseRunner):
        return attempt.services.adapted(agent), "callable"
    if plan.model is None:
        raise UnavailableError("no model: name one with --model, or override the fixture agentbench_runner")
    runner = attempt.services.registry.runners.get(case.runner.type)
    if runner is None:
        raise UnavailableError(f"the runner {case.runner.type!r} is not available in this version")
    return runner, case.runner.type


PANEL = "judge"
"""The name of the evaluation profile's judges among the names of metrics."""


def judged_by(job: Job, case: Case, evaluation: Evaluation | None) -> list[dict[str, Any]]:
    """Return the verdicts of models on a run: one of the profile's judges together, and one of each metric with votes.

    `judge` and `rubric` are 16 hex digits over the identity of the judge and of the rubric; `score` is the judges'
    overall score (0-10), None for votes.
    """
    if evaluation is None:
        return []
    judgements = [*_panel(job, evaluation.judge), *_votes(job, case, evaluation)]
    if not judgements:
        return []
    rubric = rubric_hash(case)
    return [{**judgement, "rubric": rubric} for judgement in judgements]


def rubric_hash(case: Case) -> str:
    """Return 16 hex digits over the case's rubric."""
    return fingerprint(rubric_input(case))[:_DIGITS]


def _panel(job: Job, judged: JudgeResult | None) -> Iterator[dict[str, Any]]:
    if judged is not None:
        yield {
            "by": PANEL,
            "judge": job.plan.judge_hash[:_DIGITS],
            "models": sorted({iteration.model for iteration in judged.iterations}),
            "passed": judged.passed,
            "score": judged.overall,
        }


def _votes(job: Job, case: Case, evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """Yield each metric's votes by its name in report.json: the second use of `name` is `name-2`."""
    used: dict[str, int] = {}
    for spec, result in zip(metrics_of(case, job.plan.evaluation_profile), evaluation.metrics, strict=False):
        used[result.name] = number = used.get(result.name, 0) + 1
        if not result.details.get("votes") or result.score is None:
            continue
        yield {
            "by": result.name if number == 1 else f"{result.name}-{number}",
            "judge": fingerprint(metric_judge_input(spec, job.judges))[:_DIGITS],
            "models": [result.details["model"]] if result.details.get("model") else [],
            "passed": result.score > 0.5,
            "score": None,
        }
