"""Judge stored runs of MCP tasks again, with and without shuffled rubrics (seed 004, 6.4, Table 7)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.config.profiles import EvaluationProfile
from pytest_agentbench.judging.asking import Asked, ask, chat_sender, numbered_options, request_key
from pytest_agentbench.packs.mcp_bench.judge import (
    TOOL_USE_FORMAT,
    TOOL_USE_REPETITIONS,
    cv_percent,
    parse_tool_use,
    task_completion,
)
from pytest_agentbench.packs.mcp_bench.judge_prompts import make_judge_messages
from pytest_agentbench.packs.mcp_bench.records import MCP_TASKS, McpJudging
from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.records.evaluation import JudgeVerdict
from pytest_agentbench.records.run import RunArtifact, Usage
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.statistics.estimates import mean_known, mean_of
from pytest_agentbench.store.contents import Contents
from pytest_agentbench.store.documents import load_run
from pytest_agentbench.store.judgements import Judgements

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient, Endpoints


CONTRACT_VERSION = "tool_use 1"
"""Part of every stored verdict's identity: raised when the reading of replies changes."""

Pipeline = Literal["plain", "shuffled"]
"""`plain`: one reply to the rubric in its own order; `shuffled`: the mean over several shuffled orders."""

Completions = Sequence[Mapping[str, Sequence[float]]]
"""Task completion scores of each run: by judge, one score for each iteration that it answered."""


def compute_cv_over_judges(runs: Completions) -> float | None:
    """Return the variation between judges: mean_i(sigma_i / mu_i) in percent over the runs, of the judges' means.

    Runs with fewer than two judges are left out. None if no run has two.
    """
    return mean_known([cv_percent([mean_of(scores) for scores in judges.values() if scores]) for judges in runs])


def compute_cv_over_shuffles(runs: Completions) -> dict[str, float]:
    """Return the variation of each judge in percent: mean_i(sigma_i / mu_i) of its iterations over the runs.

    Judges without a run with several iterations are left out.
    """
    judges = dict.fromkeys(judge for scored in runs for judge in scored)
    variations = {judge: mean_known([cv_percent(scored.get(judge, ())) for scored in runs]) for judge in judges}
    return {judge: cv for judge, cv in variations.items() if cv is not None}


def compute_verdict_key(
    model: Model, messages: list[dict[str, str]], iteration: int, options: Mapping[str, Any]
) -> str:
    """Return the identity of a stored verdict on a run, 64 hex digits."""
    return request_key(CONTRACT_VERSION, model, messages, iteration, request=dict(options))


async def ask_verdict(
    client: ChatClient,
    messages: list[dict[str, str]],
    *,
    case_id: str,
    iteration: int,
    options: Mapping[str, Any],
) -> Asked[JudgeVerdict]:
    """Return one verdict on the run of an MCP task. An invalid reply is asked for again."""
    send = chat_sender(client, case_id, TOOL_USE_FORMAT, numbered_options(client, options, iteration))
    return await ask(send, messages, parse_tool_use)


REQUESTS = 1 + TOOL_USE_REPETITIONS
"""Number of a judge's verdicts on a run: one in the plain pipeline, the others in the shuffled one."""

_RUNS_AT_ONCE = 8


class StoredTask(NamedTuple):
    """A run of an MCP task, with the task."""

    case: Case
    run: RunArtifact


class AskedJudge(NamedTuple):
    """A judge model with its settings for each request."""

    model: Model
    options: Mapping[str, Any]


def list_stored_tasks(cases: Iterable[Case], output: Path) -> list[StoredTask]:
    """Return the successful runs of these cases in an output folder, the first of each case before the second of any.

    Raises ConfigError and InfrastructureError for a folder or a run that cannot be read.
    """
    by_folder = {slug(case.case_id): case for case in cases}
    tasks: dict[str, list[StoredTask]] = {case.case_id: [] for case in by_folder.values()}
    contents, seen = Contents(output), set()
    for folder in contents.runs():
        case = by_folder.get(folder.parts[-1])
        if case is None:
            continue
        for name, (kind, _, aside) in sorted(folder.files.items()):
            if kind != "run" or aside is not None:
                continue
            run = load_run(output, f"{folder.path}/{name}")
            # Folders are named by slugs, so only the run itself has its model's id.
            if run.case_id == case.case_id and run.status == "success" and run.run_id not in seen:
                seen.add(run.run_id)
                tasks[case.case_id].append(StoredTask(case, run))
    most = max(map(len, tasks.values()), default=0)
    # By turns, so that `--runs N` selects as many different tasks as possible.
    return [runs[at] for at in range(most) for runs in tasks.values() if at < len(runs)]


@dataclass(slots=True)
class Scores:
    """Scores of one run: task completion by pipeline and judge, one score for each iteration answered."""

    task: StoredTask
    by_pipeline: dict[Pipeline, dict[str, list[float]]]
    failures: list[str] = field(default_factory=list)

    def complete(self, judges: Sequence[AskedJudge]) -> bool:
        """Return whether every judge has a score in both pipelines."""
        names = [judge.model.model_id for judge in judges]
        return all(by_judge.get(name) for by_judge in self.by_pipeline.values() for name in names)


@dataclass(slots=True)
class _VerdictRequest:
    pipeline: Pipeline
    iteration: int
    judge: AskedJudge
    messages: list[dict[str, str]]
    key: str


class Judging:
    """Judging of all runs by all judges. Verdicts are stored and not paid for again, except for scripted models.

    `asked` and `reused` count verdicts; `usage` is that of the requests of this call.
    """

    def __init__(self, judges: Sequence[AskedJudge], profile: EvaluationProfile, output: Path) -> None:
        self.judges = judges
        # Changed only on the event loop, so that concurrent requests need no lock.
        self.asked = self.reused = 0
        self._usages: list[Usage] = []
        self._redactor = Redactor()
        self._redactor.know(name for judge in judges for name in judge.model.variables)
        self._redacts = profile.security_policy.redact_secrets
        self._judgements = Judgements(output, self._redactor if self._redacts else None)
        settings = profile.section(MCP_TASKS)
        plain = settings.model_copy(update={"shuffle": "none"})
        if settings.shuffle == "none":
            # The shuffled pipeline always shuffles, because the plain one is compared with it.
            settings = settings.model_copy(update={"shuffle": "axes"})
        self._pipelines: dict[Pipeline, tuple[EvaluationProfile, int]] = {
            "plain": (_with_judging(profile, plain), 1),
            "shuffled": (_with_judging(profile, settings), TOOL_USE_REPETITIONS),
        }

    @property
    def usage(self) -> Usage:
        """Return the tokens and the money of this call; unknown if any request's usage is unknown."""
        # A sum with an unknown part is unknown, not lower.
        if self._usages:
            return reduce(add, self._usages)
        return Usage(input_tokens=0, output_tokens=0, cost_usd=0.0)

    def count_missing(self, tasks: Sequence[StoredTask]) -> int:
        """Return the number of verdicts that are not stored."""
        return sum(self._find_stored(request) is None for task in tasks for request in self._list_requests(task))

    async def scores(self, tasks: Sequence[StoredTask], endpoints: Endpoints) -> list[Scores]:
        """Return the judges' scores of each run, in order."""
        # Within a run all verdicts are asked for at once, six for each judge; the client has limits, too.
        at_once = asyncio.Semaphore(_RUNS_AT_ONCE)

        async def scored(task: StoredTask) -> Scores:
            async with at_once:
                return await self._scores(task, endpoints)

        return await asyncio.gather(*map(scored, tasks))

    async def _scores(self, task: StoredTask, endpoints: Endpoints) -> Scores:
        scores = Scores(task, {pipeline: defaultdict(list) for pipeline in self._pipelines})
        requests = list(self._list_requests(task))
        verdicts = await asyncio.gather(*(self._get_verdict(r, task, endpoints, scores.failures) for r in requests))
        for request, verdict in zip(requests, verdicts, strict=True):
            if verdict is not None:
                by_judge = scores.by_pipeline[request.pipeline]
                by_judge[request.judge.model.model_id].append(task_completion(verdict))
        return scores

    def _list_requests(self, task: StoredTask) -> Iterator[_VerdictRequest]:
        redact = self._redactor.value if self._redacts else _unchanged
        for pipeline, (profile, iterations) in self._pipelines.items():
            messages_of = make_judge_messages(task.case, task.run, profile, redact)
            for iteration in range(1, iterations + 1):
                messages = messages_of(iteration)
                for judge in self.judges:
                    key = compute_verdict_key(judge.model, messages, iteration, judge.options)
                    yield _VerdictRequest(pipeline, iteration, judge, messages, key)

    def _find_stored(self, request: _VerdictRequest) -> JudgeVerdict | None:
        # A scripted verdict costs nothing, and the script may have changed.
        if request.judge.model.scripted:
            return None
        return self._judgements.find_scores(request.key)

    async def _get_verdict(
        self, request: _VerdictRequest, task: StoredTask, endpoints: Endpoints, failures: list[str]
    ) -> JudgeVerdict | None:
        if (verdict := self._find_stored(request)) is not None:
            self.reused += 1
            return verdict
        model = request.judge.model
        answer = await ask_verdict(
            endpoints.client(model),
            request.messages,
            case_id=task.case.case_id,
            iteration=request.iteration,
            options=request.judge.options,
        )
        self.asked += 1
        if answer.usage is not None:
            self._usages.append(answer.usage)
        if answer.verdict is None:
            failures.append(f"{model.model_id}, {request.pipeline}: {answer.error}")
        elif not model.scripted:
            self._judgements.keep(request.key, model.requested_model, answer.verdict)
        return answer.verdict


def _with_judging(profile: EvaluationProfile, judging: McpJudging) -> EvaluationProfile:
    return profile.model_copy(update={MCP_TASKS.name: judging})


def _unchanged(value: Any) -> Any:
    return value
