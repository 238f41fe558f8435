"""One job from start to verdict: run, store, check, measure, judge, store."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pytest_agentbench.checks import CheckContext, run_checks
from pytest_agentbench.config import merge_runner_settings
from pytest_agentbench.engine.budget import Budget
from pytest_agentbench.engine.job import Job, Plan, Result
from pytest_agentbench.engine.logs import RUN_LOGS
from pytest_agentbench.engine.raised import as_raised
from pytest_agentbench.engine.registry import Registry
from pytest_agentbench.engine.threads import DaemonThreads
from pytest_agentbench.engine.verdict import require_decision, verdict, wants_judge
from pytest_agentbench.errors import AgentbenchError, JudgeError, ProviderError, UnavailableError
from pytest_agentbench.judging import Judgement, NoVerdictError, judge
from pytest_agentbench.metrics import measure
from pytest_agentbench.records import Case, CheckResult, Evaluation, MetricResult, Model, RunArtifact, RunError
from pytest_agentbench.runners import RunContext, RunEnd, Runner, adapt, conclude
from pytest_agentbench.store import canonical_json, fingerprint, run_fingerprint_input
from pytest_agentbench.tools import Search, SearchResult
from pytest_agentbench.workspaces import Workspaces

if TYPE_CHECKING:
    from pytest_agentbench.models import ChatClient, Endpoints, Scripts


class CaseRunner:
    """The default value of the fixture `agentbench_runner`: each case runs as its own file says."""

    def __repr__(self) -> str:
        return "the runner that the case names"


@dataclass
class Services:
    """What all runs of a session share. `endpoints` is made on the engine's loop at first use."""

    registry: Registry
    workspaces: Workspaces
    scripts: Scripts
    budget: Budget
    connect: Callable[[], Endpoints]
    on_spent: Callable[[list[float | None]], None]
    threads: DaemonThreads = field(default_factory=DaemonThreads)
    _endpoints: Endpoints | None = None
    _adapted: dict[int, tuple[Any, Runner]] = field(default_factory=dict)

    def client(self, model: Model) -> ChatClient:
        """A client for the model."""
        if self._endpoints is None:
            self._endpoints = self.connect()
        return self._endpoints.client(model)

    def adapted(self, agent: Any) -> Runner:
        """The user's callable as a runner; its signature is looked at once."""
        known = self._adapted.get(id(agent))
        if known is None or known[0] is not agent:
            known = self._adapted[id(agent)] = (agent, adapt(agent))
        return known[1]

    async def close(self) -> None:
        """Ends connections and idle threads, and removes every workspace."""
        if self._endpoints is not None:
            await self._endpoints.close()
        self.threads.close()
        self.workspaces.close()


async def execute(services: Services, job: Job, agent: Any) -> Result:
    """Runs the job with the fixture's value `agent` and evaluates it. Never raises but when it is cancelled.

    Everything but the verdict on the agent becomes `Result.error`: pytest raises it in the item's setup.
    """
    result = Result(runner=agent)
    RUN_LOGS.set(result.logs)
    begun = time.perf_counter()
    try:
        result.case = case = job.case()
        require_decision(case, job.plan.evaluation_profile)
        await _run(services, job, case, agent, result)
        result.seconds = time.perf_counter() - begun
        await _evaluate(services, job, case, result)
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        result.error = RuntimeError("the agent raised CancelledError")
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is this item's
        result.error = as_raised(error)
    result.seconds = result.seconds or time.perf_counter() - begun
    return result


# -- the run


async def _run(services: Services, job: Job, case: Case, agent: Any, result: Result) -> None:
    plan = job.plan
    own = not isinstance(agent, CaseRunner)
    runner, runner_type = _runner(services, case, plan, agent)
    model = plan.model or _agent_identity(agent)
    settings = merge_runner_settings(plan.run_profile, plan.model_id, case.runner.overrides, model.parameters)
    if any(each.scripted for each in (model, *plan.judges.values())):
        services.scripts.load_beside(case)
    context = RunContext(
        case=case,
        workspaces=services.workspaces,
        model=plan.model,
        settings=settings,
        client=services.client(model) if plan.model is not None else None,
        repetition=job.repetition,
        tools=services.registry.tools,
        sandbox=plan.run_profile.sandbox,
        search=_scripted_search(services.scripts, case) if model.scripted else services.registry.search,
        in_thread=services.threads.run,
    )
    started_at = datetime.now(UTC)
    try:
        end, failure = await _until_end(runner, context, plan.run_profile.run_timeout_seconds)
    finally:
        result.workspace = context.made_workspace
    extra = {"agent": model.model_id, "metadata": case.metadata} if own else {}
    fingerprint_input = canonical_json(run_fingerprint_input(case, model, runner_type, settings, job.repetition, extra))
    artifact = result.artifact = RunArtifact(
        run_id=uuid.uuid4().hex,
        case_id=case.case_id,
        suite_id=plan.suite_id,
        run_profile_id=plan.run_profile.run_profile_id,
        runner_type=runner_type,
        model=model.model_dump(include={"model_id", "requested_model", "label", "scripted"}),
        repetition=job.repetition,
        fingerprint=fingerprint(fingerprint_input),
        status=end.status,
        started_at=started_at,
        duration_seconds=context.trace.seconds,
        request=context.trace.request,
        provider=context.trace.provider,
        usage=context.trace.usage,
        trace=context.trace.events,
        error=end.error,
        metadata=dict(end.metadata),
    )
    services.on_spent([artifact.usage.cost_usd])
    result.path = plan.lane.write_run(artifact, fingerprint_input)
    if failure is not None and end.status not in case.expects_status:
        raise failure


async def _until_end(runner: Runner, context: RunContext, limit: float | None) -> tuple[RunEnd, ProviderError | None]:
    """How the run ended. A provider's failure comes back beside its status, so that its trace is stored first."""
    try:
        async with asyncio.timeout(limit) as timer:
            returned = await runner(context.case, context)
        return conclude(returned, context.trace), None
    except ProviderError as error:
        failure = RunError(code=error.code, message=str(error), retryable=error.retryable)
        return RunEnd("provider_error", failure), error
    except TimeoutError:
        if not timer.expired():
            raise  # the agent's own
        message = f"no answer within run_timeout_seconds ({limit:g} s)"
        return RunEnd("timed_out", RunError(code="run_timeout", message=message)), None


def _runner(services: Services, case: Case, plan: Plan, agent: Any) -> tuple[Runner, str]:
    if not isinstance(agent, CaseRunner):
        return services.adapted(agent), "callable"
    if plan.model is None:
        raise UnavailableError("no model: name one with --model, or override the fixture agentbench_runner")
    runner = services.registry.runners.get(case.runner.type)
    if runner is None:
        raise UnavailableError(f"the runner {case.runner.type!r} is not available in this version")
    return runner, case.runner.type


def _scripted_search(scripts: Scripts, case: Case) -> Search:
    """The web as the case's script has it."""

    async def search(query: str) -> list[SearchResult]:
        return [SearchResult(hit.title, hit.url, hit.snippet) for hit in scripts.search(case.case_id, query)]

    return search


def _agent_identity(agent: Any) -> Model:
    """A user's agent as reports name it: its `model_id` attribute, else its name."""
    name = getattr(agent, "model_id", None) or getattr(agent, "__name__", None) or type(agent).__name__
    return Model(model_id=str(name), requested_model=str(name), api_key_env=None)


# -- the evaluation


async def _evaluate(services: Services, job: Job, case: Case, result: Result) -> None:
    plan, artifact = job.plan, result.artifact
    assert artifact is not None
    profile = plan.evaluation_profile
    context = CheckContext(case=case, artifact=artifact, workspace=result.workspace, metrics=services.registry.metrics)
    checks = await run_checks(context, profile.security_policy, services.registry.checks)
    metrics = _measure(services, case, artifact)
    try:
        judgement = await _judge(services, plan, case, artifact, checks)
    except JudgeError as error:
        plan.lane.write_evaluation(job.repetition, _unjudged(case, plan, artifact, checks, metrics, error))
        raise
    judged = judgement.result if judgement else None
    identity = plan.lane.evaluation_fingerprint(artifact.fingerprint or "", case)
    evaluation = result.evaluation = verdict(case, profile, artifact, checks, metrics, judged, identity)
    plan.lane.write_evaluation(job.repetition, evaluation, judgement.prompts if judgement else ())
    if evaluation.outcome == "error":
        raise AgentbenchError(evaluation.error or "the evaluation gave no verdict")


def _measure(services: Services, case: Case, artifact: RunArtifact) -> list[MetricResult]:
    output = artifact.final_output or ""
    return [measure(spec, case.reference or "", output, services.registry.metrics) for spec in case.metrics]


async def _judge(
    services: Services, plan: Plan, case: Case, artifact: RunArtifact, checks: tuple[CheckResult, ...]
) -> Judgement | None:
    """Asks the judges, unless the run has already failed by its status: there is nothing to weigh then."""
    if not wants_judge(case, plan.evaluation_profile):
        return None
    if artifact.status != "success" and not (artifact.status in case.expects_status and artifact.final_output):
        return None
    try:
        judgement = await judge(
            case,
            artifact,
            checks,
            plan.evaluation_profile,
            lambda config: services.client(plan.judges[config.judge_id]),
            backends=services.registry.judges,
            redactor=plan.lane.redactor,
        )
    except NoVerdictError as error:
        services.on_spent([iteration.usage.cost_usd for iteration in error.iterations])
        raise
    services.on_spent([iteration.usage.cost_usd for iteration in judgement.result.iterations])
    return judgement


def _unjudged(
    case: Case,
    plan: Plan,
    artifact: RunArtifact,
    checks: Sequence[CheckResult],
    metrics: Sequence[MetricResult],
    error: JudgeError,
) -> Evaluation:
    """What is known of a run whose judges gave no verdict: kept, and an error, never a score of 0."""
    return Evaluation(
        case_id=case.case_id,
        run_fingerprint=artifact.fingerprint,
        evaluation_profile_id=plan.evaluation_profile.evaluation_profile_id,
        checks=tuple(checks),
        metrics=tuple(metrics),
        outcome="error",
        error=str(error),
    )
