"""Execute one job: reuse its stored run and verdict, here or from the shared store, and make the missing parts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from datetime import UTC, datetime
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_agentbench.config.functions import offers_tools
from pytest_agentbench.engine.attempt import Attempt
from pytest_agentbench.engine.cassettes import (
    Taped,
    records_run,
    records_verdict,
    replays,
    replays_run,
    run_ended,
    run_is_free,
    run_kept,
    tape_of_run,
    verdict_is_free,
)
from pytest_agentbench.engine.evaluation import asks_models, evaluate, require_decision, verdict_asks, wants_judge
from pytest_agentbench.engine.grading import AskingGrader, JudgePromptGrader, accepts_status
from pytest_agentbench.engine.job import FixtureValues, Job, KeptFiles, Result
from pytest_agentbench.engine.run_plan import (
    expected_sandbox,
    measure_of,
    plan_run,
    require_input,
    run_spec,
    verdict_identity,
    verdict_inputs,
)
from pytest_agentbench.engine.running import (
    is_serial,
    listen_for_gateway,
    open_gateway_of,
    run_limit,
    run_until_end,
    set_environment,
)
from pytest_agentbench.engine.services import Services
from pytest_agentbench.engine.user_code import RUN_TEXTS, as_raised
from pytest_agentbench.errors import (
    BatchWaitsError,
    ProviderError,
    UnavailableError,
    UnreachableError,
    UnsupportedError,
    UnwritableError,
    as_alike,
)
from pytest_agentbench.records.case import Case, name_column
from pytest_agentbench.records.run import (
    LIVE_GRADES,
    MCP_PROTOCOL,
    SERVERS_NOTE,
    STEADY_ENDS,
    TURN_FILES,
    TURN_GRADES,
    WORKSPACE_NOTE,
    RunArtifact,
    TraceEvent,
    Usage,
)
from pytest_agentbench.runners.base import (
    Recorder,
    RunContext,
    RunEnd,
    Runner,
    reason_of,
)
from pytest_agentbench.terminal_text import visible
from pytest_agentbench.tools.builtin import WEB_FETCH, WEB_SEARCH

if TYPE_CHECKING:
    from pytest_agentbench.engine.case_hooks import SetUp
    from pytest_agentbench.engine.forecast import DryRun
    from pytest_agentbench.tools.base import Tool
    from pytest_agentbench.tools.mcp.servers import RunServers
    from pytest_agentbench.workspaces.changes import Snapshot
    from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
    from pytest_agentbench.workspaces.workspace import Workspace


async def execute(services: Services, job: Job, values: FixtureValues) -> Result:
    """Run the job with these values of the fixtures and evaluate it. Raise nothing but a cancellation from outside.

    Every error but a failed verdict on the agent becomes `Result.error`, which pytest raises in the item's setup.
    """
    result = Result(runner=values)
    RUN_TEXTS.set(result.texts)
    begun = time.perf_counter()
    try:
        result.case = case = job.make_case()
        await _execute(Attempt(services, job, case, values, result))
    except asyncio.CancelledError:
        # Either the engine has cancelled this task (then the task counts it), or the agent raised a CancelledError
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        result.error = RuntimeError(f"{_running_code(result)} raised CancelledError")
    except (UnwritableError, UnreachableError, BatchWaitsError) as error:
        result.error = error
        services.rules.drain(str(error))  # further runs would be paid for and lost, or are paid for already
    except BaseException as error:  # noqa: BLE001  # an exception of any kind is this item's
        result.error = as_raised(error, _running_code(result))
    finally:
        if services.rules.on_ended is not None:
            services.rules.on_ended(job, result)
        if result.not_run is None and not (result.reused and result.error is None):
            services.stops.note(job, result)
    result.seconds = result.seconds or time.perf_counter() - begun
    result.tape = None
    return result


def _running_code(result: Result) -> str:
    """Return the part to blame for an exception: the agent until its run has ended, then the code that decides it."""
    if result.artifact is None:
        return "the agent"
    return "what decides the run"


async def _execute(attempt: Attempt) -> None:
    """Check that the case can be decided, plan the run, and find or make it with its verdict."""
    services, job, result = attempt.services, attempt.job, attempt.result
    if not job.by_hand:
        require_decision(attempt.case, attempt.plan.evaluation_profile, attempt.graders)
    for grader in attempt.graders:
        if isinstance(grader, AskingGrader):
            grader.require(services, attempt.case)
    attempt.run_plan = run_plan = plan_run(attempt)
    if services.uses_cassettes(job):
        result.tape = tape_of_run(attempt, run_plan.servers)
    if services.batched:
        from pytest_agentbench.models.routes import Draw

        Draw.mark(run_plan.fingerprint)
    if services.rules.dry_run is not None:
        await _foresee(attempt, services.rules.dry_run)
        return
    async with services.process_lock.exclusive() if is_serial(run_plan) else services.process_lock:
        # In a session that reuses runs the look-up without the lock finds nearly all of them. In a session that makes
        # runs it finds nearly none, and skipping it saves 3 % of a run's CPU.
        if services.makes_runs or not await _reuse(attempt):
            async with attempt.plan.model_store.claim(run_plan.fingerprint):
                await _complete(attempt)


async def _foresee(attempt: Attempt, dry_run: DryRun) -> None:
    """Add the job's expected requests to the forecast."""
    from pytest_agentbench.engine.forecast import NOT_RUN

    if not await _reuse(attempt) and await _pull(attempt):
        await _reuse(attempt)
    services, job, case, result = attempt.services, attempt.job, attempt.case, attempt.result
    if not result.reused:
        require_input(attempt.run_plan.runner, attempt.run_plan.runner_type, case)
    dry_run.add(
        job,
        name_column(attempt.run_plan.model.model_id, attempt.plan.variant_name),
        result,
        asks=verdict_asks(case, attempt.plan.evaluation_profile, attempt.graders) or asks_models(attempt),
        free_run=attempt.plan.predictions is not None or (result.tape is not None and run_is_free(result.tape)),
        free_verdict=services.uses_cassettes(job) and verdict_is_free(attempt),
    )
    result.not_run = NOT_RUN


async def _complete(attempt: Attempt) -> None:
    """Make the missing parts: the run, its verdict, or both.

    Call with the run's lock held: another session may have stored the run since the first look-up.
    """
    if await _reuse(attempt):
        return
    services, job, case, result = attempt.services, attempt.job, attempt.case, attempt.result
    # The session or the model may have been stopped while this task waited for the lock
    if (reason := services.rules.drained() or services.stops.reason(job)) is not None:
        result.not_run = reason
        return
    if await _pull(attempt) and await _reuse(attempt):
        return
    attempt.plan.model_store.refuse_newer(case.case_id, job.repetition)
    profile = attempt.plan.evaluation_profile
    if not job.by_hand and any(check.python_hook is not None for check in case.checks):
        from pytest_agentbench.checks.hooks import require_hooks

        require_hooks(case, profile.security_policy, strict=services.rules.strict)
    async with AsyncExitStack() as decided:
        # Without its files a stored run cannot be judged, so it is made again
        if result.artifact is None or not await _restore(attempt):
            result.reused, result.evaluation_reused, result.evaluation = False, False, None
            if case.teardown is not None and attempt.plan.predictions is None:
                from pytest_agentbench.engine.case_hooks import tear_down

                decided.push_async_callback(tear_down, attempt, case.teardown)
            await _make_run(attempt)
        _raise_failure(case, result.artifact, profile.on_filtered)
        async with _pay_for_judging(attempt):
            await evaluate(attempt)


def _pay_for_judging(attempt: Attempt) -> AbstractAsyncContextManager[None]:
    """Return the block that books lost requests of judges; an empty block if the verdict asks no model."""
    asks = attempt.graders or wants_judge(attempt.case, attempt.plan.evaluation_profile) or asks_models(attempt)
    if not asks:
        return nullcontext()
    from pytest_agentbench.engine.paying import pay_for_judging

    return pay_for_judging(attempt.services, attempt.tape)


async def _make_run(attempt: Attempt) -> None:
    """Make the run, unless its model's endpoint has refused tools already. Raises the runner's exceptions."""
    case, refusals, plan_id = attempt.case, attempt.services.without_tools, id(attempt.plan)
    needs_tools = bool(attempt.run_plan.servers) or offers_tools(case)
    if needs_tools and (refusal := refusals.get(plan_id)) is not None:
        raise UnsupportedError(refusal)
    try:
        await make_run(attempt)
    except UnsupportedError as error:
        if needs_tools:
            refusals[plan_id] = str(error)
        raise


async def _reuse(attempt: Attempt) -> bool:
    """Fill in the stored run and its verdict. Return whether nothing else has to be done.

    A hand-written test may look at the run's workspace, so that its files have to be restored too.
    """
    if not _find_run(attempt):
        return False
    services, job, result, tape = attempt.services, attempt.job, attempt.result, attempt.tape
    artifact = result.artifact
    assert artifact is not None
    if _reuses_verdict(attempt):
        await _find_verdict(attempt, artifact)
    # A replay costs nothing, and a cassette has to be replayed from its beginning
    if result.evaluation is None and tape is not None and replays_run(tape, artifact):
        result.artifact, result.path, result.reused, result.seconds = None, None, False, 0.0
        return False
    result.evaluation_reused = result.evaluation is not None
    if result.evaluation is not None and result.evaluation_path is not None and services.rules.dry_run is None:
        attempt.plan.share(artifact, result.evaluation)
    return result.evaluation_reused and (not job.by_hand or await _restore(attempt))


async def _find_verdict(attempt: Attempt, artifact: RunArtifact) -> None:
    """Fill in the stored verdict on the run, with its free parts recomputed."""
    result = attempt.result
    decided_by = verdict_inputs(attempt)
    stored = attempt.plan.model_store.find_evaluation(artifact, verdict_identity(attempt, artifact, decided_by))
    result.evaluation, result.evaluation_path = stored or (None, None)
    if stored is not None and attempt.services.rules.dry_run is None and not attempt.job.by_hand:
        from pytest_agentbench.engine.rechecks import recheck_verdict

        rechecked = await recheck_verdict(attempt, artifact, stored[0])
        if rechecked is not stored[0]:  # the stored file differs, so that reports must not link to it
            result.evaluation, result.evaluation_path = rechecked, None
    result.measure = measure_of(decided_by) if result.evaluation is not None else None


def _find_run(attempt: Attempt) -> bool:
    """Fill in the stored run. Return whether there is one."""
    if not _reuses_run(attempt):
        return False
    services, result, model_store = attempt.services, attempt.result, attempt.plan.model_store
    fingerprint = attempt.run_plan.fingerprint
    stored = model_store.find_run(attempt.case.case_id, attempt.job.repetition, fingerprint, partial(_counts, attempt))
    if stored is None:
        return False
    result.artifact, result.path = artifact, _ = stored
    result.reused, result.seconds = True, artifact.duration_seconds
    services.makes_runs = False
    if services.rules.dry_run is None:
        attempt.plan.share(artifact)
    return True


def _reuses_run(attempt: Attempt) -> bool:
    return attempt.services.rules.reuse_runs and not (attempt.tape is not None and records_run(attempt.tape))


def _reuses_verdict(attempt: Attempt) -> bool:
    return attempt.services.reuse_evaluations and not (attempt.tape is not None and records_verdict(attempt))


async def _restore(attempt: Attempt) -> bool:
    from pytest_agentbench.engine.workspaces import restore_workspace

    return await restore_workspace(attempt)


async def _pull(attempt: Attempt) -> bool:
    """Copy the run and the verdict on it from the shared store into the output folder. Return whether it had any.

    Raises UnreachableError if the shared store does not answer: its results would be paid for a second time.
    """
    case, job, run_plan, model_store = attempt.case, attempt.job, attempt.run_plan, attempt.plan.model_store
    if model_store.remote is None or not _reuses_run(attempt):
        return False
    from pytest_agentbench.store.remote_results import pull_evaluation, pull_run

    artifact = attempt.result.artifact
    if artifact is None:
        unsuccessful = bool(case.expects_status) or attempt.plan.run_profile.reuse_unsuccessful
        key = (case.case_id, job.repetition, run_plan.fingerprint, run_plan.fingerprint_input)
        artifact = await pull_run(model_store, *key, counts=partial(_counts, attempt), unsuccessful=unsuccessful)
    if artifact is None:
        return False
    # A pulled artifact is in the output folder now, where `_reuse` finds it
    pulled = artifact is not attempt.result.artifact
    if _reuses_verdict(attempt):
        pulled |= await pull_evaluation(model_store, artifact, verdict_identity(attempt, artifact))
    return pulled


def _counts(attempt: Attempt, artifact: RunArtifact) -> bool:
    """Return whether a stored run is reused.

    It is if it succeeded, ended as the case or a grader accepts, or would fail in the same way again. Other runs are
    made again, unless the run profile has `reuse_unsuccessful`. A run without a grade that only its own sandbox could
    give, or without a verdict on files after a turn, is made again, too.
    """
    if attempt.live_graders:
        from pytest_agentbench.engine.live_grading import has_live_grades

        if not has_live_grades(attempt, artifact):
            return False
    if attempt.plan.predictions is None and any(check.turn is not None for check in attempt.case.checks):
        from pytest_agentbench.checks.turns import has_turn_files

        if not has_turn_files(attempt.case, artifact):
            return False
    return (
        (artifact.status == "failed" and artifact.end_reason in STEADY_ENDS)
        or accepts_status(attempt.case, artifact, attempt.graders)
        or attempt.plan.run_profile.reuse_unsuccessful
    )


def _raise_failure(case: Case, artifact: RunArtifact | None, on_filtered: str) -> None:
    """Raise the ProviderError that a run ended with, unless the case expects it.

    `on_filtered` decides about a filtered answer: `skip`, `error`, or a failure of the agent.
    """
    if artifact is None or artifact.error is None or artifact.status in case.expects_status:
        return
    is_filtered = artifact.end_reason == "filtered"
    if is_filtered and on_filtered == "skip":
        raise UnavailableError(artifact.error.message)
    if artifact.status != "provider_error" and not (is_filtered and on_filtered == "error"):
        return
    raise ProviderError(
        artifact.error.message,
        code=artifact.error.code,
        retryable=artifact.error.retryable,
        reason=artifact.end_reason or "provider_error",
    )


class _Ended(NamedTuple):
    """A run after its end, before it is stored.

    `before` is the snapshot of the workspace's template, None if the workspace was empty. `cassette` is the field of
    RunArtifact. `unwritable` is the error of writing the cassette, which is raised once the run is stored.
    """

    context: RunContext
    end: RunEnd
    started_at: datetime
    seconds: float
    before: Snapshot | None
    template: Path | None
    cassette: Taped
    unwritable: UnwritableError | None


async def make_run(attempt: Attempt) -> None:
    """Make and store the run, with any status. Raises exceptions of the runner that are no end of a run."""
    async with AsyncExitStack() as lent:
        ended = await _run(attempt, lent)
        await _store(attempt, ended)
    if attempt.live_graders:  # graders may have changed files after the run
        await ended.context.bring_back()


async def _store(attempt: Attempt, ended: _Ended) -> None:
    """Store the run with its kept files. Raises the error of writing its cassette."""
    services = attempt.services
    plan, tape = attempt.plan, attempt.tape
    if plan.predictions is None:  # predictions were paid for elsewhere, at an unknown cost
        services.spend("run", [ended.context.trace.usage], tape)
        if ended.context.roles:
            from pytest_agentbench.engine.roles import spend_roles

            spend_roles(services, ended.context.roles, tape)
    run_id, interrupted = os.urandom(16).hex(), None
    try:
        kept_files = await _keep(attempt, run_id, attempt.result.workspace, ended)
    except asyncio.CancelledError as error:  # the run is paid for: it is stored before anything ends
        kept_files, interrupted = KeptFiles(note={"not_kept": "the session was stopped"}), error
    artifact, failure = _artifact(attempt, ended, kept_files, run_id), None
    if attempt.live_graders:
        from pytest_agentbench.engine.live_grading import grade_live

        artifact, failure = await grade_live(attempt, ended.context, artifact)
    attempt.result.artifact = artifact
    attempt.result.seconds = artifact.duration_seconds
    for warning in ended.context.trace.warnings:
        plan.model_store.warn(f"{plan.model_id}: {visible(services.redactor.text(warning))[:200]}")
    for name, error_text in dict.fromkeys(artifact.broken_tools):
        plan.model_store.warn(
            f"tool {name!r} broke by its own code: {visible(services.redactor.text(as_alike(error_text)))[:200]}"
        )
    attempt.result.path = await plan.model_store.store_run(artifact, attempt.run_plan.fingerprint_input)
    services.makes_runs = True
    plan.share(artifact, made=True)
    for raised in (interrupted, ended.unwritable, failure):
        if raised is not None:
            raise raised


async def _keep(attempt: Attempt, run_id: str, workspace: Workspace | None, ended: _Ended) -> KeptFiles:
    if workspace is None:
        return KeptFiles()
    from pytest_agentbench.engine.workspaces import keep_workspace

    return await keep_workspace(attempt, run_id, workspace, ended.before, ended.template)


def _pay_for_run(attempt: Attempt, context: RunContext) -> AbstractAsyncContextManager[None]:
    if context.client is None and not context.roles:  # it asks no model
        return nullcontext()
    from pytest_agentbench.engine.paying import pay_for_run

    return pay_for_run(attempt.services, context, attempt.tape)


async def _run(attempt: Attempt, lent: AsyncExitStack) -> _Ended:
    """Run the runner and return the ended run; stop its servers and sandbox. `result.workspace` is its workspace, if
    any.

    `lent` removes a template that is not the case's own, and stops the sandbox of a run that is graded in it.
    """
    run_plan = attempt.run_plan
    plan, model, tape = attempt.plan, run_plan.model, attempt.tape
    models = (model, *run_plan.roles.values(), *plan.judges.values(), *attempt.job.judges)
    if any(asked_model.scripted for asked_model in models):
        attempt.services.scripts.load_beside(attempt.case)
    expected = await expected_sandbox(attempt)
    context = _context(attempt, expected)
    before = None
    async with _pay_for_run(attempt, context):
        try:
            template = await _template(attempt, context, lent)
            if template is not None:
                before = await attempt.services.threads.run(partial(_fill, attempt, context.workspace, template))
            preparation = await _set_up(attempt, context, lent)
            if preparation is not None:
                before, template = preparation.before, preparation.folder
            with run_kept(tape) if tape is not None else nullcontext():
                if run_plan.servers:
                    from pytest_agentbench.engine.resources import start_servers

                    context.servers = await start_servers(attempt, run_plan.servers, context)
                started_at, context.trace = datetime.now(UTC), Recorder()
                if preparation is not None:
                    preparation.record(context.trace)
                limit = run_limit(plan.run_profile, run_plan.runner)
                around = partial(set_environment, attempt.services, context) if is_serial(run_plan) else nullcontext
                attempt.services.in_flight[attempt.job] = context
                end = await run_until_end(_runner_of(attempt), context, limit, tape, around)
        finally:
            attempt.services.in_flight.pop(attempt.job, None)
            await context.stop_servers()
            if attempt.live_graders:
                lent.push_async_callback(context.stop_sandbox)
            else:
                await context.stop_sandbox()
            attempt.result.workspace = context.made_workspace
        await context.bring_back()
        context.note_hosts()
        seconds, cassette, unwritable = context.trace.seconds, None, None
        if tape is not None:
            seconds, cassette, unwritable = run_ended(tape, attempt.case, end.status, seconds)
    return _Ended(context, end, started_at, seconds, before, template, cassette, unwritable)


def _runner_of(attempt: Attempt) -> Runner:
    """Return the run's runner; for a case with turns or a driver one that holds the conversation."""
    run_plan = attempt.run_plan
    if attempt.plan.predictions is not None or not (attempt.case.turns or run_plan.driver is not None):
        return run_plan.runner
    from pytest_agentbench.engine.conversing import make_conversing

    return make_conversing(attempt)


_OUR_METADATA = (WORKSPACE_NOTE, SERVERS_NOTE, MCP_PROTOCOL, LIVE_GRADES, TURN_GRADES, TURN_FILES)


def _artifact(attempt: Attempt, ended: _Ended, kept_files: KeptFiles, run_id: str) -> RunArtifact:
    """Return all that is known of the run."""
    run_plan = attempt.run_plan
    plan, model, trace, offered = attempt.plan, run_plan.model, ended.context.trace, ended.context.offered
    own = {name: value for name, value in ended.end.metadata.items() if name not in _OUR_METADATA}
    return RunArtifact(
        run_id=run_id,
        case_id=attempt.case.case_id,
        suite_id=plan.suite_id,
        run_profile_id=plan.run_profile.run_profile_id,
        runner_type=run_plan.runner_type,
        model={
            "model_id": model.model_id,
            "requested_model": model.requested_model,
            "label": model.label,
            "scripted": model.scripted,
        },
        repetition=attempt.job.repetition,
        fingerprint=run_plan.fingerprint,
        status=ended.end.status,
        started_at=ended.started_at,
        duration_seconds=ended.seconds,
        request=_request(attempt, trace, offered),
        provider=trace.provider,
        usage=trace.usage,
        roles=_describe_roles(ended.context),
        trace=_annotated(run_plan.runner, trace, offered, plan.model_store.warn),
        output_artifacts=kept_files.outputs,
        error=ended.end.error,
        end_reason=reason_of(ended.end, trace),
        end_detail=ended.end.detail,
        workspace=kept_files.archive,
        changes=kept_files.changes,
        sandbox=ended.context.sandbox_used,
        cassette=ended.cassette,
        metadata={
            **own,
            **kept_files.metadata,
            **_servers_note(attempt, ended.context.servers),
            **_note_turn_grades(attempt, ended.context),
            **({} if ended.context.turn_files is None else {TURN_FILES: ended.context.turn_files}),
        },
    )


def _note_turn_grades(attempt: Attempt, context: RunContext) -> dict[str, Any]:
    if not context.turn_grades:
        return {}
    from pytest_agentbench.engine.live_grading import dump_turn_grades

    return {TURN_GRADES: dump_turn_grades(attempt, context)}


def _describe_roles(context: RunContext) -> dict[str, Any]:
    if not context.roles:
        return {}
    from pytest_agentbench.engine.roles import describe_roles

    return {**describe_roles(context.roles)}


def _servers_note(attempt: Attempt, servers: RunServers | None) -> dict[str, Any]:
    """Return the metadata on the run's servers: versions of MCP, and the servers that it can do without."""
    note: dict[str, Any] = {}
    if servers is None:
        return note
    if servers.protocols:
        note[MCP_PROTOCOL] = {name: servers.protocols[name] for name in sorted(servers.protocols)}
    if servers.optional:
        left_out = {name: attempt.services.redactor.text(reason) for name, reason in sorted(servers.left_out.items())}
        note[SERVERS_NOTE] = {"optional": len(servers.optional), "left_out": left_out}
    return note


def _annotated(
    runner: Runner, trace: Recorder, offered: Sequence[Tool], warn: Callable[[str], None]
) -> tuple[TraceEvent, ...]:
    """Return the trace, with annotations for calls of the offered tools."""
    if not offered:
        return trace.events
    from pytest_agentbench.tools.toolbox import annotate_calls

    # An agent with its own tools has more than those of the run
    complete = not getattr(runner, "own_tools", False)
    return annotate_calls(trace.events, offered, warn, complete=complete)


def _request(attempt: Attempt, trace: Recorder, offered: Sequence[Tool]) -> dict[str, Any]:
    """Return the run's request, with the notes of graders on the offered tools."""
    tools = {tool.name: tool.description for tool in offered}
    graders = [grader for grader in attempt.graders if isinstance(grader, JudgePromptGrader)]
    return reduce(or_, (dict(grader.request_notes(tools)) for grader in graders), trace.request)


async def _template(attempt: Attempt, context: RunContext, lent: AsyncExitStack) -> Path | None:
    """Return the folder that the workspace is copied from, None for an empty workspace."""
    if attempt.run_plan.prepared.template is not None:
        return await lent.enter_async_context(attempt.run_plan.prepared.template(context))
    if attempt.plan.predictions is not None:
        return None
    return attempt.case.workspace


async def _set_up(attempt: Attempt, context: RunContext, lent: AsyncExitStack) -> SetUp | None:
    """Run the case's setup; None if the run has none."""
    if attempt.plan.predictions is not None or not attempt.case.has_hooks:
        return None
    from pytest_agentbench.engine.case_hooks import set_up

    return await set_up(attempt, context, lent)


def _fill(attempt: Attempt, workspace: Workspace, template: Path) -> Snapshot:
    """Return a snapshot of the filled workspace. Raises ConfigError if the template has changed since the
    fingerprint.
    """
    from pytest_agentbench.workspaces.changes import digest_snapshot
    from pytest_agentbench.workspaces.template import changed_meanwhile, fill_workspace

    before = fill_workspace(workspace, template)
    if digest_snapshot(before) != attempt.services.identities.template(template):
        raise changed_meanwhile(template)
    return before


def _find_no_limit(usage: Usage) -> str | None:
    """Return no reason to refuse a request: a replayed run costs nothing."""
    return None


def _context(attempt: Attempt, expected: SandboxSpec | None) -> RunContext:
    services, case, run_plan = attempt.services, attempt.case, attempt.run_plan
    plan, model = attempt.plan, run_plan.model
    over_budget = services.over_budget
    if attempt.tape is not None and replays(attempt.tape):
        over_budget = _find_no_limit
    context = RunContext(
        case=case,
        open_sandboxes=lambda: services.sandboxes,
        model=plan.model,
        settings=run_plan.settings,
        client=services.client(model, attempt.tape) if plan.model is not None else None,
        repetition=attempt.job.repetition,
        tools=services.registry.tools,
        sandbox_spec=partial(run_spec, attempt),
        expected_sandbox=expected,
        network=plan.run_profile.network,
        parallel_tools=plan.run_profile.parallel_tools,
        prepared=run_plan.prepared.data,
        over_budget=over_budget,
        in_thread=services.threads.run,
        strict=services.rules.strict,
        open_gateway=partial(open_gateway_of, services, asyncio.get_running_loop()),
        listen_for=partial(listen_for_gateway, services, asyncio.get_running_loop(), model),
    )
    if run_plan.roles:
        from pytest_agentbench.engine.roles import open_roles

        open_roles(attempt, context)
    if WEB_SEARCH in case.tools or WEB_FETCH in case.tools:
        from pytest_agentbench.engine.resources import web_fetch, web_search

        context.search = web_search(attempt, model)
        context.fetch = web_fetch(attempt, model, plan.run_profile.network)
    if attempt.tape is not None:
        attempt.tape.folder = lambda: str(context.made_workspace.path) if context.made_workspace is not None else None
    return context
