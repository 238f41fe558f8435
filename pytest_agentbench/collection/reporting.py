"""Messages from a process that runs items to the session's report, and the reports of items."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.collection.items import PLAN_PARAM, SHOWN, redact_result
from pytest_agentbench.collection.planning import NO_MODEL
from pytest_agentbench.engine.budget import Part, spending
from pytest_agentbench.engine.driver import JOB, RESULT, RunAhead, true_nodeid
from pytest_agentbench.engine.job import Job, Result
from pytest_agentbench.engine.run_plan import judged_by
from pytest_agentbench.engine.services import could_not_run
from pytest_agentbench.engine.user_code import Streams, filter_capture_handlers
from pytest_agentbench.errors import AgentbenchError, ConfigError, UnavailableError, UnsupportedError
from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.records.run import EndReason, Usage
from pytest_agentbench.reports.rows import run_row, user_properties
from pytest_agentbench.runners.base import agent_name
from pytest_agentbench.terminal_text import visible

if TYPE_CHECKING:
    from pytest_agentbench.session import SessionReport
    from pytest_agentbench.workspaces.sessions import Workspaces


class SessionMessages:
    """Messages of the only process, to its own report."""

    def __init__(self, report: SessionReport) -> None:
        self._report = report

    def warn(self, *texts: str) -> None:
        """Add warnings to the report, each once."""
        self._report.warnings += [text for text in dict.fromkeys(texts) if text not in self._report.warnings]

    def spent(self, part: Part, usages: Sequence[Usage]) -> None:
        """Book usages that were just paid for."""
        self._report.spend(part, [spending(usage) for usage in usages])

    def drain(self, reason: str) -> None:
        """Start no further run in any process."""
        self._report.drain(reason)

    def unshared(self, problem: str) -> None:
        """Report a problem that kept results out of the shared store."""
        self._report.unshared.append(problem)

    def limited(self, model_id: str, replies: int, seconds: float) -> None:
        """Book replies of status 429 of a model, and the seconds that requests waited for them."""
        self._report.limited.append((model_id, replies, seconds))

    def add_variants(self, variants: dict[str, Any]) -> None:
        """Add the session's variants, as report.json has them."""
        self._report.variants = variants

    def ended(self, number: int) -> None:
        """Report the number of the signal that ended this process."""
        self._report.ended_by = number


class WorkerMessages:
    """Messages of a worker to the controller, over the channel that `shares` describes.

    `ahead` is set once the engine is made: before that nothing is in flight that could be drained.
    """

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.ahead: RunAhead | None = None

    def warn(self, *texts: str) -> None:
        """Send warnings for the report."""
        if texts:
            self._channel.send(("warnings", texts))

    def spent(self, part: Part, usages: Sequence[Usage]) -> None:
        """Book usages that were just paid for."""
        self._channel.send(("spent", part, [spending(usage) for usage in usages]))

    def drain(self, reason: str) -> None:
        """Start no further run: here at once, in other workers when the controller has read the message."""
        if self.ahead is not None:
            self.ahead.drain(reason)
        self._channel.send(("drain", reason))

    def unshared(self, problem: str) -> None:
        """Report a problem that kept results out of the shared store."""
        self._channel.send(("unshared", problem))

    def limited(self, model_id: str, replies: int, seconds: float) -> None:
        """Book replies of status 429 of a model, and the seconds that requests waited for them."""
        self._channel.send(("limited", model_id, replies, seconds))

    def add_variants(self, variants: dict[str, Any]) -> None:
        """Send the session's variants, as report.json has them."""
        self._channel.send(("variants", variants))

    def ended(self, number: int) -> None:
        """Report the number of the signal that ended this worker."""
        self._channel.send(("ended", number))


Messages = SessionMessages | WorkerMessages


ATTEMPTS = pytest.StashKey[int]()
"""Number of times that the item was decided: more than once if a plugin (pytest-rerunfailures) runs it again."""
DRAWN = pytest.StashKey[bool]()
"""Whether its last attempt had a run that the agent has to answer for."""


class CaseReports:
    """The hooks that give items their rows, in every process that runs items of cases."""

    def __init__(self, workspaces: Callable[[], Workspaces], streams: Streams, *, keep: bool) -> None:
        """With `keep`, workspaces of failed runs stay."""
        self.workspaces = workspaces
        self.streams = streams
        self.keep = keep

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Keep logs of runs ahead in their own items, and draw again for an item that is set up again."""
        filter_capture_handlers()
        self.streams.guard()  # again, where pytest captures them
        if item.stash.get(DRAWN, False):
            self._draw_again(item)

    def _draw_again(self, item: pytest.Item) -> None:
        """Give the item a repetition beyond the planned ones, because its own would only find the stored run.

        The number is not used by another item, and is equal for the same attempt in all sessions.
        """
        job = item.stash[JOB]
        if job.plan.predictions is None:  # there is one answer, and no other to be had
            item.stash[JOB] = replace(job, repetition=job.repetition + job.repetitions)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Repair the streams before the terminal writes."""
        if report.when == "call" or not report.passed:
            self.streams.mend()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the item's row to the report of the deciding phase; release the run's workspace after the last phase."""
        report = yield
        job = item.stash.get(JOB, None)
        if job is None:
            return report
        result = item.stash.get(RESULT, None) or Result()
        if call.when == "setup":
            report.duration = max(0.0, report.duration - result.waited)
        if call.when == "call" or (call.when == "setup" and not report.passed):
            self._note_outcome(item, job, result, call, report)
        elif call.when == "teardown":
            self._release_run(item)
        if report.longrepr or report.sections:  # most phases have nothing to show
            if job.plan.model_store.redactor is not None:
                _rewrite_report(report, job.plan.model_store.redactor.text)  # agents print keys, providers echo them
            _rewrite_report(report, visible)
        return report

    def _note_outcome(
        self, item: pytest.Item, job: Job, result: Result, call: pytest.CallInfo[Any], report: pytest.TestReport
    ) -> None:
        outcome = "error" if report.failed and call.when == "setup" else report.outcome
        row = _redact_row(item, job, result, outcome, call)
        if self.keep and outcome in ("failed", "error"):
            report.sections.append(("Workspace", self._keep_workspace(result)))
        for kind, text in result.texts.items():
            report.sections.append((f"Captured {kind} run", text))
            item.add_report_section("run", kind, text)  # for reports to come: JUnit's file takes the teardown's
        report.agentbench_row = row  # type: ignore[attr-defined]  # extra attributes travel from xdist's workers
        item.stash[ATTEMPTS] = attempt = item.stash.get(ATTEMPTS, 0) + 1
        item.stash[DRAWN] = result.artifact is not None and result.error is None
        if attempt > 1:
            report.agentbench_again = True  # type: ignore[attr-defined]
        if result.not_run is not None:
            report.agentbench_not_run = result.not_run  # type: ignore[attr-defined]
        properties = user_properties(row)
        item.user_properties.extend(properties)
        report.user_properties.extend(properties)
        replayed = result.artifact is not None and result.artifact.cassette == "replayed"
        if not result.reused and not replayed:
            report.duration += result.seconds  # the time of the run, not of the wait for it
        if stop := find_stop(job, result, outcome):
            report.agentbench_stop = stop  # type: ignore[attr-defined]
            item.session.shouldfail = stop

    def _keep_workspace(self, result: Result) -> str:
        """Keep the run's workspace, and return a sentence with its path."""
        if result.workspace is None:
            archive = result.artifact.workspace if result.artifact is not None else None
            if archive is None:
                return "The run left no workspace."
            return f"The run was made before; its files are in {archive}, below the output folder."
        try:
            self.workspaces().keep(result.workspace)
        except OSError as error:
            return f"The run's workspace cannot be kept: {error}"
        kept, result.workspace = result.workspace.path, None
        return f"The run's workspace is kept: {kept}"

    def _release_run(self, item: pytest.Item) -> None:
        result = item.stash.get(RESULT, None)
        item.user_properties = []
        if SHOWN in item.stash:
            del item.stash[SHOWN]
        if result is None:
            return
        del item.stash[RESULT]
        if result.workspace is not None:
            self.workspaces().remove(result.workspace)


def _rewrite_report(report: pytest.TestReport, rewritten: Callable[[str], str]) -> None:
    """Escape the text of a phase's report: exceptions, reasons and logs contain text of agents."""
    if report.failed and (shown := rewritten(report.longreprtext)) != report.longreprtext:
        report.longrepr = shown
    elif isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        report.longrepr = (path, line, rewritten(reason))
    report.sections[:] = [(title, rewritten(text)) for title, text in report.sections]


def _redact_row(
    item: pytest.Item, job: Job, result: Result, outcome: str, call: pytest.CallInfo[Any]
) -> dict[str, Any]:
    """Return the item's entry in report.json, without secrets."""
    model_store = job.plan.model_store
    if outcome != "passed":
        artifact, evaluation = redact_result(item, result)
        result = replace(result, artifact=artifact, evaluation=evaluation)
    message = _describe_outcome(call, result)
    if model_store.redactor is None:
        return make_row(item, job, result, outcome, message)
    return make_row(item, job, result, outcome, message, model_store.redactor.text)


def make_row(
    item: pytest.Item,
    job: Job,
    result: Result,
    outcome: str,
    message: str | None,
    redact: Callable[[str], str] = str,
) -> dict[str, Any]:
    """Return the item's entry in report.json. `redact` removes secrets from a text."""
    plan = job.plan
    model: Model | str | None = plan.model
    if plan.predictions is not None or (model is None and plan.model_id == NO_MODEL):
        model = Model(model_id=plan.model_id, requested_model=plan.model_id)
    elif model is None:
        model = plan.model_id if result.runner is None else agent_name(result.runner.agent)
    case = result.case or _case_of(job)
    return run_row(
        true_nodeid(item),
        case,
        model,
        job.repetition,
        result.artifact,
        result.evaluation,
        duration_seconds=None if plan.predictions is not None else result.seconds or None,
        reused=result.reused and result.not_run is None,
        evaluation_reused=result.evaluation_reused,
        artifact_path=result.path,
        evaluation_path=result.evaluation_path,
        measure=result.measure if result.evaluation is not None else None,
        variant=plan.variant_name,
        parameters=_name_parameters(item, job),
        outcome=outcome,
        message=message,
        predictions=plan.predictions.path.name if plan.predictions is not None else None,
        line=None if item.location[1] is None else item.location[1] + 1,
        judged=judged_by(job, case, result.evaluation),
        end_reason=_end_without_run(result),
        redact=redact,
    )


def _case_of(job: Job) -> Case:
    """Return the case of a run that was not made, unchanged if its variant cannot be applied."""
    try:
        return job.make_case()
    except (ConfigError, UnavailableError):
        return job.case()


def _end_without_run(result: Result) -> EndReason | None:
    """Return the end of a run that was not made, or not to its end."""
    if result.not_run is not None:
        return "interrupted"
    if isinstance(result.error, UnsupportedError):
        return "unsupported"
    return None


def _name_parameters(item: pytest.Item, job: Job) -> str | None:
    """Return the ids of a marked test's own parameters, None without parameters."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or PLAN_PARAM not in callspec.params:
        return None
    repetition = callspec.params[PLAN_PARAM][2]  # the job's may be a further one
    draw = job.plan.column + (f"-r{repetition}" if repetition > 1 else "")
    every: str = callspec.id
    if every == draw:
        return None
    return every.removeprefix(f"{draw}-").removesuffix(f"-{draw}")


def _describe_outcome(call: pytest.CallInfo[Any], result: Result) -> str | None:
    if call.excinfo is None:
        return None
    if result.evaluation is not None and result.evaluation.outcome == "failed" and result.case and result.artifact:
        from pytest_agentbench.reports.assertion import headline

        return headline(result.case, result.artifact, result.evaluation)
    if isinstance(result.error, AgentbenchError):
        return str(result.error)
    error = call.excinfo.value
    if isinstance(error, pytest.skip.Exception):
        return str(error)
    return call.excinfo.exconly()


def find_stop(job: Job, result: Result, outcome: str) -> str | None:
    """Return why the run profile's policy ends the session after this item, if it does."""
    policy = job.plan.run_profile.execution_policy
    name = job.plan.run_profile.run_profile_id
    if outcome == "failed" and policy.fail_fast:
        return f"stopping after a failed case: execution_policy.fail_fast of run profile {name!r}"
    of_runner = could_not_run(result) and not isinstance(result.error, ConfigError | UnavailableError)
    if outcome == "error" and policy.stop_on_runner_error == "first" and of_runner:
        return f"stopping after a run that could not be made: execution_policy.stop_on_runner_error of {name!r}"
    return None
