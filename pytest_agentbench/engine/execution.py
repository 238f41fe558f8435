"""Execute one job from start to verdict: take what is stored here or in the shared store, make only the rest.

A run is made by its runner, between its start and its end, and stored with what is known of it.
"""

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

from pytest_agentbench.config.functions import functions_of
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
from pytest_agentbench.engine.evaluation import asks_models, evaluate, require_decision, wants_judge
from pytest_agentbench.engine.grading import graders_of
from pytest_agentbench.engine.job import FixtureValues, Job, KeptFiles, Result
from pytest_agentbench.engine.run_plan import (
    RunPlan,
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
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import SERVERS_NOTE, STEADY_ENDS, WORKSPACE_NOTE, RunArtifact, TraceEvent
from pytest_agentbench.runners.base import (
    Recorder,
    RunContext,
    RunEnd,
    reason_of,
)
from pytest_agentbench.terminal_text import visible
from pytest_agentbench.tools.builtin import WEB_FETCH, WEB_SEARCH

if TYPE_CHECKING:
    from pytest_agentbench.engine.forecast import DryRun
    from pytest_agentbench.models.tape import Tape
    from pytest_agentbench.tools.base import Tool
    from pytest_agentbench.tools.mcp.servers import RunServers
    from pytest_agentbench.workspaces.changes import Snapshot
    from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
    from pytest_agentbench.workspaces.workspace import Workspace


async def execute(services: Services, job: Job, values: FixtureValues) -> Result:
    """Run the job with the fixtures' values `given` and evaluate it. Never raises but when it is cancelled.

    Everything but the verdict on the agent becomes `Result.error`: pytest raises it in the item's setup.
    """
    result = Result(runner=values)
    RUN_TEXTS.set(result.texts)
    begun = time.perf_counter()
    try:
        result.case = case = job.plan.adapt(job.case())
        graders = graders_of(case, services.registry.graders)
        if not job.by_hand:
            require_decision(case, job.plan.evaluation_profile, graders)
        for grader in graders:
            grader.require(services, case)
        run_plan = plan_run(services, job, case, values)
        if services.uses_cassettes(job):
            result.tape = tape_of_run(services, job, case, values.agent, run_plan.servers)
        attempt = _Attempt(services, job, case, run_plan, result)
        if services.batched:
            from pytest_agentbench.models.routes import Draw

            Draw.mark(run_plan.fingerprint)
        if services.rules.dry_run is not None:
            await attempt.foresee(services.rules.dry_run)
        else:
            async with services.process_lock.exclusive() if is_serial(run_plan) else services.process_lock:
                await attempt.find_or_make()
    except asyncio.CancelledError:
        # The engine may have cancelled this task, or the agent let a CancelledError of its own out: the count tells
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        result.error = RuntimeError(f"{_running_code(result)} raised CancelledError")
    except (UnwritableError, UnreachableError, BatchWaitsError) as error:
        result.error = error
        services.rules.drain(str(error))  # whatever else is paid for could not be stored either, or is paid for already
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is this item's
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
    """Return whose code runs: the agent's until its run has ended, then the code that decides the run."""
    return "the agent" if result.artifact is None else "what decides the run"


class _Attempt:
    """A job under way: `result` fills with what the store has of it, and with what is made."""

    def __init__(self, services: Services, job: Job, case: Case, run_plan: RunPlan, result: Result) -> None:
        self.services, self.job, self.case, self.run_plan, self.result = services, job, case, run_plan, result
        self.model_store = job.plan.model_store

    async def foresee(self, dry_run: DryRun) -> None:
        """Book what the job would take."""
        from pytest_agentbench.engine.forecast import NOT_RUN

        if not await self.reuse() and await self._pull():
            await self.reuse()
        services, job, case, result = self.services, self.job, self.case, self.result
        if not result.reused:
            require_input(self.run_plan.runner, self.run_plan.runner_type, case)
        graders = graders_of(case, services.registry.graders)
        asks = wants_judge(case, job.plan.evaluation_profile, graders) or any(grader.asks(case) for grader in graders)
        dry_run.add(
            job,
            self.run_plan.model.model_id,
            result,
            asks=asks or asks_models(services, job, case),
            free_run=job.plan.predictions is not None or (result.tape is not None and run_is_free(result.tape)),
            free_verdict=services.uses_cassettes(job) and verdict_is_free(services, job),
        )
        result.not_run = NOT_RUN

    async def find_or_make(self) -> None:
        """Take from the store what it has, and make the rest."""
        # Looked up before the lock and with it: most sessions that reuse find all without waiting for a lock. Where
        # runs are made, those to come are not stored either: one look, with the lock, saves 3 % of a run's CPU
        if self.services.makes_runs or not await self.reuse():
            async with self.model_store.claim(self.run_plan.fingerprint):
                await self.complete()

    async def complete(self) -> None:
        """Make what the store lacks. The lock is held: what another session made meanwhile is there by now."""
        if await self.reuse():
            return
        services, job, case, result = self.services, self.job, self.case, self.result
        if (
            reason := services.rules.drained() or services.stops.reason(job)
        ) is not None:  # while it waited for the lock
            result.not_run = reason
            return
        if await self._pull() and await self.reuse():
            return
        self.model_store.refuse_newer(case.case_id, job.repetition)
        if not job.by_hand and any(check.python_hook is not None for check in case.checks):
            from pytest_agentbench.checks.hooks import require_hooks

            require_hooks(case, job.plan.evaluation_profile.security_policy, strict=services.rules.strict)
        # A run whose files cannot be put back cannot be judged anew, so it is made again
        if result.artifact is None or not await self._restore():
            result.reused, result.evaluation_reused, result.evaluation = False, False, None
            await self._make_run()
        _raise_failure(case, result.artifact, job.plan.evaluation_profile.on_filtered)
        async with self._pay_for_judging():
            await evaluate(services, job, case, result)

    def _pay_for_judging(self) -> AbstractAsyncContextManager[None]:
        services, job, case = self.services, self.job, self.case
        graders = graders_of(case, services.registry.graders)
        if not graders and not wants_judge(case, job.plan.evaluation_profile) and not asks_models(services, job, case):
            return nullcontext()
        from pytest_agentbench.engine.paying import pay_for_judging

        return pay_for_judging(services, self.result.tape)

    async def _make_run(self) -> None:
        """Make the run, unless its model's endpoint has refused tools already. Raises what the runner raises."""
        services, case = self.services, self.case
        needs_tools = bool(case.tools or self.run_plan.servers or functions_of(case.context))
        if needs_tools and (known := services.without_tools.get(id(self.job.plan))) is not None:
            raise UnsupportedError(known)
        try:
            await make_run(services, self.job, case, self.run_plan, self.result)
        except UnsupportedError as error:
            if needs_tools:
                services.without_tools[id(self.job.plan)] = str(error)
            raise

    async def reuse(self) -> bool:
        """Take the run and the verdict on it from the store; whether that, with what the run left where a test by hand
        may look at it, is all there is to do.
        """
        services, job, case, result = self.services, self.job, self.case, self.result
        if not self._find_run():
            return False
        artifact = result.artifact
        assert artifact is not None
        if self._reuses_verdict():
            decided_by = verdict_inputs(services, job, case)
            found = self.model_store.find_evaluation(
                artifact, verdict_identity(services, job, case, artifact, decided_by)
            )
            result.evaluation, result.evaluation_path = found or (None, None)
            if found is not None and services.rules.dry_run is None and not job.by_hand:
                from pytest_agentbench.engine.rechecks import recheck_verdict

                believed = await recheck_verdict(services, job, case, artifact, found[0])
                if believed is not found[0]:  # the page shows no file that says otherwise
                    result.evaluation, result.evaluation_path = believed, None
            result.measure = measure_of(decided_by) if result.evaluation is not None else None
        # Replaying costs nothing, and a tape is gone through as a whole
        if result.evaluation is None and result.tape is not None and replays_run(result.tape, artifact):
            result.artifact, result.path, result.reused, result.seconds = None, None, False, 0.0
            return False
        result.evaluation_reused = result.evaluation is not None
        if result.evaluation is not None and result.evaluation_path is not None and services.rules.dry_run is None:
            job.plan.share(artifact, result.evaluation)
        return result.evaluation_reused and (not job.by_hand or await self._restore())

    def _find_run(self) -> bool:
        if not self._reuses_run():
            return False
        found = self.model_store.find_run(
            self.case.case_id, self.job.repetition, self.run_plan.fingerprint, self._counts
        )
        if found is None:
            return False
        result = self.result
        result.artifact, result.path = artifact, _ = found
        result.reused, result.seconds = True, artifact.duration_seconds
        self.services.makes_runs = False
        if self.services.rules.dry_run is None:
            self.job.plan.share(artifact)
        return True

    def _reuses_run(self) -> bool:
        tape = self.result.tape
        return self.services.rules.reuse_runs and not (tape is not None and records_run(tape))

    def _reuses_verdict(self) -> bool:
        tape = self.result.tape
        return self.services.reuse_evaluations and not (tape is not None and records_verdict(self.services, self.job))

    async def _restore(self) -> bool:
        from pytest_agentbench.engine.workspaces import restore_workspace

        return await restore_workspace(self.services, self.job, self.case, self.result)

    async def _pull(self) -> bool:
        """Bring a run that counts, unless there is one, and the verdict on it into the output folder; whether any did.

        Raises UnreachableError where the store does not answer: what it may hold should not be paid for again.
        """
        services, job, case, run_plan, model_store = self.services, self.job, self.case, self.run_plan, self.model_store
        if model_store.remote is None or not self._reuses_run():
            return False
        from pytest_agentbench.store.remote_results import pull_evaluation, pull_run

        artifact = self.result.artifact
        if artifact is None:
            unsuccessful = bool(case.expects_status) or job.plan.run_profile.reuse_unsuccessful
            key = (case.case_id, job.repetition, run_plan.fingerprint, run_plan.fingerprint_input)
            artifact = await pull_run(model_store, *key, counts=self._counts, unsuccessful=unsuccessful)
        if artifact is None:
            return False
        # The artifact that was pulled lies in the output folder now, where `reuse` finds it
        pulled = artifact is not self.result.artifact
        if self._reuses_verdict():
            pulled |= await pull_evaluation(model_store, artifact, verdict_identity(services, job, case, artifact))
        return pulled

    def _counts(self, artifact: RunArtifact) -> bool:
        """Return whether a stored run is a result: one that ended otherwise than it should is made again, unless asked
        for, or its end would be the same.
        """
        return (
            artifact.status == "success"
            or (artifact.status == "failed" and artifact.end_reason in STEADY_ENDS)
            or artifact.status in self.case.expects_status
            or self.job.plan.run_profile.reuse_unsuccessful
        )


def _raise_failure(case: Case, artifact: RunArtifact | None, on_filtered: str) -> None:
    """Raise the ProviderError that a run ended with, unless the case expects it.

    `on_filtered` says what else is to be none of the agent's failures.
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
    """A run that has ended, however: what its runner came to, and what its workspace began with.

    `before` is None where it was empty; else that was a copy of `template`, if there is one. `cassette` is as in
    RunArtifact; `unwritable` is why it could not be written, to be raised when the run is stored.
    """

    context: RunContext
    end: RunEnd
    started_at: datetime
    seconds: float
    before: Snapshot | None
    template: Path | None
    cassette: Taped
    unwritable: UnwritableError | None


async def make_run(services: Services, job: Job, case: Case, run_plan: RunPlan, result: Result) -> None:
    """Fill in `result` and store the run, however it ended. Raises what the runner raised beyond that."""
    async with AsyncExitStack() as lent:
        ended = await _run(services, job, case, run_plan, result, lent)
        await _store(services, job, case, run_plan, result, ended)


async def _store(services: Services, job: Job, case: Case, run_plan: RunPlan, result: Result, ended: _Ended) -> None:
    """Store the run with what it has left. Raises what kept its cassette from being written."""
    plan, tape = job.plan, result.tape
    if plan.predictions is None:  # what they cost is unknown, but nothing of it was spent here
        services.spend("run", [ended.context.trace.usage], tape)
    run_id, interrupted = os.urandom(16).hex(), None
    try:
        kept_files = await _keep(services, job, case, run_id, result.workspace, ended)
    except asyncio.CancelledError as error:  # the run is paid for: it is stored before anything ends
        kept_files, interrupted = KeptFiles(note={"not_kept": "the session was stopped"}), error
    artifact = result.artifact = _artifact(services, job, case, run_plan, ended, kept_files, run_id)
    result.seconds = artifact.duration_seconds
    for said in ended.context.trace.warnings:
        plan.model_store.warn(f"{plan.model_id}: {visible(services.redactor.text(said))[:200]}")
    for name, said in dict.fromkeys(artifact.broken_tools):
        plan.model_store.warn(
            f"tool {name!r} broke by its own code: {visible(services.redactor.text(as_alike(said)))[:200]}"
        )
    result.path = await plan.model_store.store_run(artifact, run_plan.fingerprint_input)
    services.makes_runs = True
    plan.share(artifact, made=True)
    if interrupted is not None:
        raise interrupted
    if ended.unwritable is not None:
        raise ended.unwritable


async def _keep(
    services: Services, job: Job, case: Case, run_id: str, workspace: Workspace | None, ended: _Ended
) -> KeptFiles:
    if workspace is None:
        return KeptFiles()
    from pytest_agentbench.engine.workspaces import keep_workspace

    return await keep_workspace(services, job, case, run_id, workspace, ended.before, ended.template)


def _pay_for_run(services: Services, context: RunContext, tape: Tape | None) -> AbstractAsyncContextManager[None]:
    if context.client is None:  # it asks no model
        return nullcontext()
    from pytest_agentbench.engine.paying import pay_for_run

    return pay_for_run(services, context, tape)


async def _run(
    services: Services, job: Job, case: Case, run_plan: RunPlan, result: Result, lent: AsyncExitStack
) -> _Ended:
    """Return the runner from its start to its end, in `result.workspace` where it made one. Nothing of it runs any
    more.

    `lent` gives back the template, where that is not the case's own.
    """
    plan, model, tape = job.plan, run_plan.model, result.tape
    if any(each.scripted for each in (model, *plan.judges.values(), *job.judges)):
        services.scripts.load_beside(case)
    expected = await expected_sandbox(services, job, case, run_plan)
    context = _context(services, job, case, run_plan, tape, expected)
    before = None
    async with _pay_for_run(services, context, tape):
        try:
            template = await _template(job, case, run_plan, context, lent)
            if template is not None:
                before = await services.threads.run(partial(_fill, services, context.workspace, template))
            with run_kept(tape) if tape is not None else nullcontext():
                if run_plan.servers:
                    from pytest_agentbench.engine.resources import start_servers

                    context.servers = await start_servers(services, job, run_plan.servers, context, tape)
                started_at, context.trace = datetime.now(UTC), Recorder()
                limit = run_limit(plan.run_profile, run_plan.runner)
                around = partial(set_environment, services, context) if is_serial(run_plan) else nullcontext
                end = await run_until_end(run_plan.runner, context, limit, tape, around)
        finally:
            await context.stop_servers()
            await context.stop_sandbox()
            result.workspace = context.made_workspace
        seconds, cassette, unwritable = context.trace.seconds, None, None
        if tape is not None:
            seconds, cassette, unwritable = run_ended(tape, case, end.status, seconds)
    return _Ended(context, end, started_at, seconds, before, template, cassette, unwritable)


def _artifact(
    services: Services, job: Job, case: Case, run_plan: RunPlan, ended: _Ended, kept_files: KeptFiles, run_id: str
) -> RunArtifact:
    """Return all that is known of the run."""
    plan, model, trace, offered = job.plan, run_plan.model, ended.context.trace, ended.context.offered
    own = {name: value for name, value in ended.end.metadata.items() if name not in (WORKSPACE_NOTE, SERVERS_NOTE)}
    return RunArtifact(
        run_id=run_id,
        case_id=case.case_id,
        suite_id=plan.suite_id,
        run_profile_id=plan.run_profile.run_profile_id,
        runner_type=run_plan.runner_type,
        model={
            "model_id": model.model_id,
            "requested_model": model.requested_model,
            "label": model.label,
            "scripted": model.scripted,
        },
        repetition=job.repetition,
        fingerprint=run_plan.fingerprint,
        status=ended.end.status,
        started_at=ended.started_at,
        duration_seconds=ended.seconds,
        request=_request(services, case, trace, offered),
        provider=trace.provider,
        usage=trace.usage,
        trace=_annotated(trace, offered, plan.model_store.warn),
        output_artifacts=kept_files.outputs,
        error=ended.end.error,
        end_reason=reason_of(ended.end, trace),
        end_detail=ended.end.detail,
        workspace=kept_files.archive,
        changes=kept_files.changes,
        sandbox=ended.context.sandbox_used,
        cassette=ended.cassette,
        metadata={**own, **kept_files.metadata, **_servers_note(services, ended.context.servers)},
    )


def _servers_note(services: Services, servers: RunServers | None) -> dict[str, Any]:
    """Return the metadata on servers that the run can do without; nothing if it has none."""
    if servers is None or not servers.optional:
        return {}
    left_out = {name: services.redactor.text(reason) for name, reason in sorted(servers.left_out.items())}
    return {SERVERS_NOTE: {"optional": len(servers.optional), "left_out": left_out}}


def _annotated(trace: Recorder, offered: Sequence[Tool], warn: Callable[[str], None]) -> tuple[TraceEvent, ...]:
    """Return the trace; of tools that were offered with what their calls are worth."""
    if not offered:
        return trace.events
    from pytest_agentbench.tools.toolbox import annotate_calls

    return annotate_calls(trace.events, offered, warn)


def _request(services: Services, case: Case, trace: Recorder, offered: Sequence[Tool]) -> dict[str, Any]:
    """Return what was asked for, and what graders want to be known of the tools that there were."""
    tools = {tool.name: tool.description for tool in offered}
    notes = [dict(grader.request_notes(tools)) for grader in graders_of(case, services.registry.graders)]
    return reduce(or_, notes, trace.request)


async def _template(job: Job, case: Case, run_plan: RunPlan, context: RunContext, lent: AsyncExitStack) -> Path | None:
    """Return the folder that the workspace is to start as a copy of, None where it starts empty."""
    if run_plan.prepared.template is not None:
        return await lent.enter_async_context(run_plan.prepared.template(context))
    return None if job.plan.predictions is not None else case.workspace


def _fill(services: Services, workspace: Workspace, template: Path) -> Snapshot:
    """Return what the workspace begins with. Raises ConfigError where that is not what the run's fingerprint covers."""
    from pytest_agentbench.workspaces.changes import digest_snapshot
    from pytest_agentbench.workspaces.template import changed_meanwhile, fill_workspace

    before = fill_workspace(workspace, template)
    if digest_snapshot(before) != services.identities.template(template):
        raise changed_meanwhile(template)
    return before


def _context(
    services: Services, job: Job, case: Case, run_plan: RunPlan, tape: Tape | None, expected: SandboxSpec | None
) -> RunContext:
    plan, model = job.plan, run_plan.model
    context = RunContext(
        case=case,
        open_sandboxes=lambda: services.sandboxes,
        model=plan.model,
        settings=run_plan.settings,
        client=services.client(model, tape) if plan.model is not None else None,
        repetition=job.repetition,
        tools=services.registry.tools,
        sandbox_spec=partial(run_spec, services, job, case, run_plan),
        expected_sandbox=expected,
        network=plan.run_profile.network,
        parallel_tools=plan.run_profile.parallel_tools,
        prepared=run_plan.prepared.data,
        over_budget=services.over_budget if tape is None or not replays(tape) else (lambda usage: None),
        in_thread=services.threads.run,
        strict=services.rules.strict,
        open_gateway=partial(open_gateway_of, services, asyncio.get_running_loop()),
        listen_for=partial(listen_for_gateway, services, asyncio.get_running_loop(), model),
    )
    if WEB_SEARCH in case.tools or WEB_FETCH in case.tools:
        from pytest_agentbench.engine.resources import web_fetch, web_search

        context.search = web_search(services, case, model, tape)
        context.fetch = web_fetch(services, case, model, plan.run_profile.network, tape)
    if tape is not None:
        tape.folder = lambda: str(context.made_workspace.path) if context.made_workspace is not None else None
    return context
