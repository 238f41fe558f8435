"""One job from start to verdict: run, store, check, measure, judge, store."""

from __future__ import annotations

import asyncio
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config import merge_runner_settings
from pytest_agentbench.engine.evaluate import evaluate
from pytest_agentbench.engine.job import Job, Plan, Result
from pytest_agentbench.engine.logs import RUN_LOGS
from pytest_agentbench.engine.raised import as_raised
from pytest_agentbench.engine.services import CaseRunner, Services, agent_name
from pytest_agentbench.engine.verdict import require_decision
from pytest_agentbench.errors import ProviderError, UnavailableError
from pytest_agentbench.records import Case, Model, RunArtifact, RunError
from pytest_agentbench.runners import RunContext, RunEnd, Runner, conclude
from pytest_agentbench.store import canonical_json, fingerprint, run_fingerprint_input
from pytest_agentbench.tools import Search, SearchResult

if TYPE_CHECKING:
    from pytest_agentbench.models import Scripts


async def execute(services: Services, job: Job, agent: Any) -> Result:
    """Runs the job with the fixture's value `agent` and evaluates it. Never raises but when it is cancelled.

    Everything but the verdict on the agent becomes `Result.error`: pytest raises it in the item's setup.
    """
    result = Result(runner=agent)
    RUN_LOGS.set(result.logs)
    begun = time.perf_counter()
    try:
        result.case = case = job.case()
        if not job.by_hand:
            require_decision(case, job.plan.evaluation_profile)
        await _run(services, job, case, agent, result)
        await evaluate(services, job, case, result)
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
    runner, runner_type = _runner(services, case, plan, agent)
    model = plan.model or Model(model_id=agent_name(agent), requested_model=agent_name(agent), api_key_env=None)
    settings = merge_runner_settings(plan.run_profile, plan.model_id, case.runner.overrides, model.parameters)
    if any(each.scripted for each in (model, *plan.judges.values(), *job.judges)):
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
    extra = _beyond_the_case(job, case, agent, model)
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
    result.seconds = artifact.duration_seconds
    if plan.predictions is None:  # what they cost is unknown, but nothing of it was spent here
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


def _beyond_the_case(job: Job, case: Case, agent: Any, model: Model) -> dict[str, Any]:
    """What else of this session can change the run: part of its fingerprint."""
    if job.plan.predictions is not None:
        return {"prediction": job.plan.predictions.digest(case, job.repetition)}
    if isinstance(agent, CaseRunner):
        return {}
    return {"agent": model.model_id, "metadata": case.metadata}


def _runner(services: Services, case: Case, plan: Plan, agent: Any) -> tuple[Runner, str]:
    if plan.predictions is not None:
        return plan.predictions, "predictions"
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
