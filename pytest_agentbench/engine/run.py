"""A run, made: the runner between its start and its end, and the artifact that is stored of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.engine.cassettes import Taped, replays, run_ended, run_kept, select_paid
from pytest_agentbench.engine.grading import graders_of
from pytest_agentbench.engine.job import Job, Result
from pytest_agentbench.engine.resources import start_servers, web_fetch, web_search
from pytest_agentbench.engine.services import Services
from pytest_agentbench.engine.subject import Subject, expected_sandbox, run_spec
from pytest_agentbench.engine.workspaces import Left, keep_workspace
from pytest_agentbench.errors import ProviderError, UnwritableError, as_alike
from pytest_agentbench.models.failures import RUN_LIMIT
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import WORKSPACE_NOTE, RunArtifact, RunError
from pytest_agentbench.runners.base import RunContext, RunEnd, Runner, conclude
from pytest_agentbench.runners.recorder import Recorder
from pytest_agentbench.store.remote_results import share_run
from pytest_agentbench.terminal_text import visible
from pytest_agentbench.tools.base import Tool
from pytest_agentbench.tools.toolbox import annotate_calls
from pytest_agentbench.workspaces.changes import EMPTY, Snapshot, digest_snapshot
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.template import changed_meanwhile, fill_workspace
from pytest_agentbench.workspaces.workspace import Workspace

if TYPE_CHECKING:
    from pytest_agentbench.models.tape import Tape


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run that has ended, however: what its runner came to, and what its workspace began with.

    That was a copy of `template`, where there is one. `cassette` is as in RunArtifact; `unwritable` is why it could not
    be written, to be raised when the run is stored.
    """

    context: RunContext
    end: RunEnd
    started_at: datetime
    seconds: float
    before: Snapshot
    template: Path | None
    cassette: Taped
    unwritable: UnwritableError | None


async def make_run(services: Services, job: Job, case: Case, subject: Subject, result: Result) -> None:
    """Fill in `result` and stores the run, however it ended. Raises what the runner raised beyond that."""
    async with AsyncExitStack() as lent:
        ended = await _run(services, job, case, subject, result, lent)
        await _store(services, job, case, subject, result, ended)


async def _store(services: Services, job: Job, case: Case, subject: Subject, result: Result, ended: _Ended) -> None:
    """Store the run with what it has left. Raises what kept its cassette from being written."""
    plan, tape = job.plan, result.tape
    run_id, interrupted = uuid.uuid4().hex, None
    try:
        left = await keep_workspace(services, job, case, run_id, result.workspace, ended.before, ended.template)
    except asyncio.CancelledError as error:  # the run is paid for: it is stored before anything ends
        left, interrupted = Left(note={"not_kept": "the session was stopped"}), error
    artifact = result.artifact = _artifact(services, job, case, subject, ended, left, run_id)
    result.seconds = artifact.duration_seconds
    if plan.predictions is None:  # what they cost is unknown, but nothing of it was spent here
        services.on_spent("run", select_paid(tape, [artifact.usage]))
    for name, said in dict.fromkeys(artifact.broken_tools):
        plan.lane.warn(f"tool {name!r} broke by its own code: {visible(services.redactor.text(as_alike(said)))[:200]}")
    result.path = plan.lane.write_run(artifact, subject.fingerprint_input)
    share_run(plan.lane, artifact, made=True)
    if interrupted is not None:
        raise interrupted
    if ended.unwritable is not None:
        raise ended.unwritable


async def _run(
    services: Services, job: Job, case: Case, subject: Subject, result: Result, lent: AsyncExitStack
) -> _Ended:
    """Return the runner from its start to its end, in `result.workspace` where it made one. Nothing of it runs any
    more.

    `lent` gives back the template, where that is not the case's own.
    """
    plan, model, tape = job.plan, subject.model, result.tape
    if any(each.scripted for each in (model, *plan.judges.values(), *job.judges)):
        services.scripts.load_beside(case)
    expected = await expected_sandbox(services, job, case, subject)
    context = _context(services, job, case, subject, tape, expected)
    before = EMPTY
    try:
        template = await _template(job, case, subject, context, lent)
        if template is not None:
            before = await services.threads.run(partial(_fill, services, context.workspace, template))
        with run_kept(tape):
            context.servers = await start_servers(services, job, subject.servers, context, tape)
            started_at, context.trace = datetime.now(UTC), Recorder()
            end = await _until_end(subject.runner, context, run_limit(plan.run_profile, subject.runner), tape)
    finally:
        await context.stop_servers()
        await context.stop_sandbox()
        result.workspace = context.made_workspace
    seconds, cassette, unwritable = run_ended(tape, case, end.status, context.trace.seconds)
    return _Ended(context, end, started_at, seconds, before, template, cassette, unwritable)


def _artifact(
    services: Services, job: Job, case: Case, subject: Subject, ended: _Ended, left: Left, run_id: str
) -> RunArtifact:
    """Return all that is known of the run."""
    plan, model, trace, offered = job.plan, subject.model, ended.context.trace, ended.context.offered
    own = {name: value for name, value in ended.end.metadata.items() if name != WORKSPACE_NOTE}
    return RunArtifact(
        run_id=run_id,
        case_id=case.case_id,
        suite_id=plan.suite_id,
        run_profile_id=plan.run_profile.run_profile_id,
        runner_type=subject.runner_type,
        model=model.model_dump(include={"model_id", "requested_model", "label", "scripted"}),
        repetition=job.repetition,
        fingerprint=subject.fingerprint,
        status=ended.end.status,
        started_at=ended.started_at,
        duration_seconds=ended.seconds,
        request=_request(services, case, trace, offered),
        provider=trace.provider,
        usage=trace.usage,
        trace=annotate_calls(trace.events, offered, plan.lane.warn) if offered else trace.events,
        output_artifacts=left.outputs,
        error=ended.end.error,
        workspace=left.archive,
        changes=left.changes,
        sandbox=ended.context.sandbox_used,
        cassette=ended.cassette,
        metadata={**own, **left.metadata},
    )


def _request(services: Services, case: Case, trace: Recorder, offered: Sequence[Tool]) -> dict[str, Any]:
    """Return what was asked for, and what graders want to be known of the tools that there were."""
    graders, tools = graders_of(case, services.registry.graders), {tool.name: tool.description for tool in offered}
    notes = [dict(grader.request_notes(tools)) for grader in graders]
    return reduce(or_, notes, trace.request)


async def _template(job: Job, case: Case, subject: Subject, context: RunContext, lent: AsyncExitStack) -> Path | None:
    """Return the folder that the workspace is to start as a copy of, None where it starts empty."""
    if subject.prepared.template is not None:
        return await lent.enter_async_context(subject.prepared.template(context))
    return None if job.plan.predictions is not None else case.workspace


def _fill(services: Services, workspace: Workspace, template: Path) -> Snapshot:
    """Return what the workspace begins with. Raises ConfigError where that is not what the run's fingerprint covers."""
    before = fill_workspace(workspace, template)
    if digest_snapshot(before) != services.identities.template(template):
        raise changed_meanwhile(template)
    return before


def _context(
    services: Services, job: Job, case: Case, subject: Subject, tape: Tape | None, expected: SandboxSpec | None
) -> RunContext:
    plan, model = job.plan, subject.model
    context = RunContext(
        case=case,
        sandboxes=services.sandboxes,
        model=plan.model,
        settings=subject.settings,
        client=services.client(model, tape) if plan.model is not None else None,
        repetition=job.repetition,
        tools=services.registry.tools,
        sandbox_spec=partial(run_spec, services, job, case, subject),
        expected_sandbox=expected,
        search=web_search(services, case, model, tape),
        fetch=web_fetch(services, case, model, plan.run_profile.network, tape),
        network=plan.run_profile.network,
        prepared=subject.prepared.data,
        over_budget=services.over_budget if not replays(tape) else (lambda usage: None),
        in_thread=services.threads.run,
    )
    if tape is not None:
        tape.folder = lambda: str(context.made_workspace.path) if context.made_workspace is not None else None
    return context


def run_limit(profile: RunProfile, runner: Runner) -> float | None:
    """Return how many seconds a whole run may take: the profile's limit, else the runner's own. None: as long as it
    takes.
    """
    return profile.run_timeout_seconds or getattr(runner, "run_seconds", None)


async def _until_end(runner: Runner, context: RunContext, limit: float | None, tape: Tape | None) -> RunEnd:
    """Return how the run ended: a provider's failure is a status like any other here, so that its trace is stored."""
    try:
        async with asyncio.timeout(limit) as timer:
            if tape is not None:
                tape.timer = timer
            RUN_LIMIT.set(timer)
            returned = await runner(context.case, context)
        return conclude(returned, context.trace)
    except ProviderError as error:
        return RunEnd("provider_error", RunError(code=error.code, message=str(error), retryable=error.retryable))
    except TimeoutError:
        if not timer.expired():
            raise  # the agent's own
        message = f"no answer within run_timeout_seconds ({limit:g} s)"
        return RunEnd("timed_out", RunError(code="run_timeout", message=message))
