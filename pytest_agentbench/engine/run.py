"""A run, made: the runner between its start and its end, and the artifact that is stored of it."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pytest_agentbench.engine.job import Job, Result
from pytest_agentbench.engine.services import Services
from pytest_agentbench.engine.subject import Subject
from pytest_agentbench.errors import ProviderError
from pytest_agentbench.records import Case, RunArtifact, RunError
from pytest_agentbench.runners import RunContext, RunEnd, Runner, conclude
from pytest_agentbench.tools import Search, SearchResult

if TYPE_CHECKING:
    from pytest_agentbench.models import Scripts


async def make_run(services: Services, job: Job, case: Case, subject: Subject, result: Result) -> None:
    """Fills in `result` and stores the run, however it ended. Raises what the runner raised beyond that."""
    plan, model = job.plan, subject.model
    if any(each.scripted for each in (model, *plan.judges.values(), *job.judges)):
        services.scripts.load_beside(case)
    context = RunContext(
        case=case,
        workspaces=services.workspaces,
        model=plan.model,
        settings=subject.settings,
        client=services.client(model) if plan.model is not None else None,
        repetition=job.repetition,
        tools=services.registry.tools,
        sandbox=plan.run_profile.sandbox,
        search=_scripted_search(services.scripts, case) if model.scripted else services.registry.search,
        in_thread=services.threads.run,
    )
    started_at = datetime.now(UTC)
    try:
        end = await _until_end(subject.runner, context, plan.run_profile.run_timeout_seconds)
    finally:
        result.workspace = context.made_workspace
    artifact = result.artifact = RunArtifact(
        run_id=uuid.uuid4().hex,
        case_id=case.case_id,
        suite_id=plan.suite_id,
        run_profile_id=plan.run_profile.run_profile_id,
        runner_type=subject.runner_type,
        model=model.model_dump(include={"model_id", "requested_model", "label", "scripted"}),
        repetition=job.repetition,
        fingerprint=subject.fingerprint,
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
    result.path = plan.lane.write_run(artifact, subject.fingerprint_input)


async def _until_end(runner: Runner, context: RunContext, limit: float | None) -> RunEnd:
    """How the run ended: a provider's failure is a status like any other here, so that its trace is stored."""
    try:
        async with asyncio.timeout(limit) as timer:
            returned = await runner(context.case, context)
        return conclude(returned, context.trace)
    except ProviderError as error:
        return RunEnd("provider_error", RunError(code=error.code, message=str(error), retryable=error.retryable))
    except TimeoutError:
        if not timer.expired():
            raise  # the agent's own
        message = f"no answer within run_timeout_seconds ({limit:g} s)"
        return RunEnd("timed_out", RunError(code="run_timeout", message=message))


def _scripted_search(scripts: Scripts, case: Case) -> Search:
    """The web as the case's script has it."""

    async def search(query: str) -> list[SearchResult]:
        return [SearchResult(hit.title, hit.url, hit.snippet) for hit in scripts.search(case.case_id, query)]

    return search
