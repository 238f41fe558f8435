"""Grade a research report: its parts by the table of stages, concurrently if independent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.engine.evaluation import is_judged
from pytest_agentbench.engine.grading import GradeRequest
from pytest_agentbench.engine.job import Job
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.models.cassette_file import Answer, Refusal
from pytest_agentbench.models.ledger import Ledger, Spent
from pytest_agentbench.models.tape import Form, Tape
from pytest_agentbench.packs.research.annotations import Annotations, TaskDefaults
from pytest_agentbench.packs.research.asking import Asking
from pytest_agentbench.packs.research.fact.citations import canonical_url
from pytest_agentbench.packs.research.fact.pages import ScriptedPages
from pytest_agentbench.packs.research.fact.rows import Contents
from pytest_agentbench.packs.research.records import (
    ExecutionMetrics,
    Report,
    ResearchScores,
    StageCost,
    TokenUsage,
    count_article,
    task_of_case,
)
from pytest_agentbench.packs.research.rows import Material, read_material
from pytest_agentbench.packs.research.session import PAGES, STORED_METRICS, ResearchSession, explain_missing_report
from pytest_agentbench.packs.research.stages import PART_STAGES, QUESTIONS, Part, Stage
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.evaluation import MetricResult
from pytest_agentbench.records.run import MessageEvent, RunArtifact, Usage
from pytest_agentbench.store.judgements import Judgements


def execution_metrics(job: Job, case: Case, artifact: RunArtifact) -> ExecutionMetrics:
    """Return the file's values for a stored report, else the measured ones. Unknown values are None.

    A report that is a prediction comes from an unobserved run: only its text can be counted.
    """
    # The writing of a stored report was not observed, so only its file has values; a missing value stays
    # None.
    if job.plan.stored is not None:
        return ExecutionMetrics.model_validate(artifact.metadata.get(STORED_METRICS) or {})
    text = count_article(artifact.final_output or "")
    of_text = {"sources_used": text.sources, "citation_count": text.citations, "word_count": text.words}
    if job.plan.predictions is not None:
        return ExecutionMetrics(**of_text)
    usage = artifact.usage
    return ExecutionMetrics(
        total_duration_seconds=artifact.duration_seconds,
        token_usage=TokenUsage(
            input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, total_cost_usd=usage.cost_usd
        ),
        automation_level=None if _was_helped(case, artifact) else 1.0,
        tool_calls_count=len(artifact.tool_calls),
        **of_text,
    )


def _was_helped(case: Case, artifact: RunArtifact) -> bool:
    """Return whether the agent may have got more text than the query: a user's turn after its first message."""
    roles = [event.role for event in artifact.trace if isinstance(event, MessageEvent) and event.role != "system"]
    # Turns of the user after the agent's first word: help, which automation does not have.
    first = next((at for at, role in enumerate(roles) if role != "user"), len(roles))
    return bool(case.turns) or "user" in roles[first:]


class _Web:
    """Pages of the session, opened when the first is wanted."""

    def __init__(self, runs: ResearchSession, network: NetworkSettings) -> None:
        self._runs, self._network = runs, network

    async def content(self, url: str) -> str:
        return await (await self._runs.pages(self._network)).content(url)


class _Taped:
    def __init__(self, pages: Contents, tape: Tape) -> None:
        self._pages, self._tape = pages, tape

    async def content(self, url: str) -> str:
        request = {"url": canonical_url(url)}
        return await self._tape.play(PAGES, request, lambda: self._pages.content(url), _FORM)


def _unkept(error: Exception) -> Refusal | None:
    return None


_FORM: Form[str] = Form(
    lambda text: Answer(content=text),
    lambda answer, seconds: answer.content or "",
    _unkept,
    lambda refusal: ValueError(refusal.message),
)


async def score_report(request: GradeRequest) -> tuple[list[MetricResult], ResearchScores | None]:
    """Return the scores of every part as metrics, and their evidence. Books the cost of judging.

    A failed part is a metric with an error; if there is nothing to measure there is no score and a reason.
    If the run failed, or wrote no report, nothing is scored. Raises ConfigError if a row has changed.
    """
    if not is_judged(request.case, request.artifact) or explain_missing_report(request.artifact):
        return [], None
    grading = Grading(request)
    await grading.grade()
    return grading.metrics(), grading.evidence()


@dataclass(frozen=True, slots=True)
class Failed:
    """Reason why a part has no result."""

    reason: str


Metrics = Iterator[tuple[str, float | None, Mapping[str, Any]]]
"""Names and scores with their details; without a score, the `reason` is among them."""


class Grading:
    """One report during grading: the shared state of its parts, and their results."""

    def __init__(self, request: GradeRequest) -> None:
        services, job, case = request.services, request.job, request.case
        self.services, self.job, self.case, self.tape = services, job, case, request.tape
        self.task, self.session = task_of_case(case), services.shared(ResearchSession)
        self.scoring = self.task.scoring
        self.material: Material = read_material(self.task)
        self.config = self.session.config(self.scoring)
        self.report = Report(
            id=self.task.row_id,
            case_id=case.case_id,
            model=job.plan.model_id,
            prompt=self.task.prompt,
            article=request.artifact.final_output or "",
            language=self.task.language,
            metrics=execution_metrics(job, case, request.artifact),
        )
        # A ledger for each report: its evaluation has the cost of judging, and its budget is the rest of the
        # session's.
        self.ledger = ItemLedger(self._spent, services.over_budget)
        self._found: dict[str, Any] = {}
        self._asking: Asking | None = None

    @property
    def annotations(self) -> Annotations | None:
        """Return the annotations, or None if no part needs any. Raises ConfigError."""
        annotations = self.session.annotations(self.scoring)
        # Of a domain that the annotations lack a report is collected only if that is its default
        if annotations is None:
            return None
        return TaskDefaults(self.task.domain).complete(annotations)

    def _spent(self, usage: Usage) -> None:
        self.services.spend("judge", [usage], self.tape)

    async def grade(self) -> None:
        """Grade every part concurrently, and after these the composite."""
        async with asyncio.TaskGroup() as group:
            for stage in PART_STAGES.values():
                # None of these reads another's score, so one that fails or waits does not delay the others.
                if stage.name in self.scoring.parts and not stage.made_of:
                    group.create_task(self._grade(stage))
        for stage in PART_STAGES.values():
            if stage.made_of:
                await self._grade(stage)

    async def _grade(self, stage: Stage) -> None:
        try:
            self._found[stage.name] = await stage.load().grade_report(self)
        except AgentbenchError as error:
            self._found[stage.name] = Failed(str(error))

    def score(self, part: Part) -> Any:
        """Return a part's result, or None if it has none or was not requested."""
        result = self._found.get(part)
        if isinstance(result, Failed):
            return None
        return result

    def why(self, part: Part) -> str | None:
        """Return why a part has no result, or None."""
        result = self._found.get(part)
        if isinstance(result, Failed):
            return result.reason
        if result is None:
            return "it is not among the parts that are scored"
        return None

    def metrics(self) -> list[MetricResult]:
        """Return a metric for each score of the requested parts; one with an error for each failed part.

        The main metric of a part has the usage of its judge.
        """
        results: list[MetricResult] = []
        for stage in (PART_STAGES[part] for part in self.scoring.parts):
            score_or_failure, error = self._found[stage.name], None
            if isinstance(score_or_failure, Failed):
                scores: Metrics = iter([(stage.main_metric, None, {})])
                error = score_or_failure.reason
            else:
                scores = stage.load().list_metrics(self)
            for name, score, details in scores:
                least = self.scoring.thresholds.get(name)
                results.append(
                    MetricResult(
                        name=name,
                        score=score,
                        threshold=least,
                        passed=None if least is None else score is not None and score >= least,
                        error=error,
                        details=dict(details),
                        usage=self.ledger.usages.get(stage.name) if name == stage.main_metric else None,
                    )
                )
        return results

    def evidence(self) -> ResearchScores:
        """Return the evidence of the parts with a result, and the cost of judging all of them."""
        task, fields = self.task, dict[str, Any]()
        for part, stage in PART_STAGES.items():
            if (score := self.score(part)) is not None:
                fields |= stage.load().keep_evidence(score)
        return ResearchScores(
            row_id=task.row_id,
            model=self.report.model,
            language=self.report.language,
            domain=task.domain,
            complexity_level=task.complexity_level,
            execution_metrics=self.report.metrics,
            config=self.config.model_dump(mode="json", exclude_defaults=True),
            compat=task.scoring.compat,
            judge={stage: _stage_cost(spent) for stage, spent in self.ledger.stages.items() if spent.requests},
            judge_model=self._asking and self._asking.model,
            judge_scripted=self._asking is not None and self._asking.judge.scripted,
            **fields,
        )

    def pages(self) -> Contents:
        """Return the source of the cited pages: a script, a cassette, or the web.

        Nothing is fetched that the run profile's network settings forbid.
        """
        # A script with pages replaces the web: an offline session fetches nothing.
        if self.job.plan.first_judge().scripted and (pages := self.services.scripts.pages(self.case.case_id)):
            return ScriptedPages(pages)
        web = _Web(self.session, self.job.plan.run_profile.network)
        if self.tape is None or self.tape.mode(PAGES) == "off":
            return web
        return _Taped(web, self.tape)

    @property
    def asking(self) -> Asking:
        """Return the judge, at the first need."""
        if self._asking is None:
            services, model_store = self.services, self.job.plan.model_store
            client = services.client(self.job.plan.first_judge(), self.tape)
            judgements = None
            # A cassette stores the replies itself; stored twice, a replay would not play the recording.
            if not getattr(client, "taped", False):
                judgements = Judgements(
                    Path(model_store.output), model_store.redactor, model_store.remote, model_store.signer
                )
            # With --agentbench-rejudge kept replies do not count, but for those that this session has asked for.
            anew = None if services.reuse_evaluations else services.asked_anew
            self._asking = Asking(
                client,
                judgements,
                self.ledger,
                model_store.redactor,
                anew,
                options=self.job.plan.judge_options,
                request_seconds=self.config.system_settings.timeout_seconds,
                prompts=self.task.scoring.prompts,
            )
        return self._asking


_PART_OF_QUESTION = {question: part for part, stage in PART_STAGES.items() for question in stage.asks}


def _stage_cost(spent: Spent) -> StageCost:
    return StageCost(**{name: value for name, value in asdict(spent).items() if name != "estimated_usd"})


class ItemLedger(Ledger):
    """Reports the cost of judging one report to the session. It may spend no more than the whole session may.

    `usages` sums the replies by part.
    """

    def __init__(self, spent: Callable[[Usage], None], over_budget: Callable[[Usage], str | None]) -> None:
        super().__init__(QUESTIONS)
        self.usages: dict[str, Usage] = {}
        self._on_spent, self._over_budget = spent, over_budget

    def book(self, stage: str, usage: Usage) -> None:
        """Add a reply's usage."""
        super().book(stage, usage)
        # Without the raw replies of providers, which would be kept for every request of a report.
        part, used = _PART_OF_QUESTION[stage], usage.model_copy(update={"raw": ()})
        self.usages[part] = self.usages[part] + used if part in self.usages else used
        self._on_spent(usage)

    def used_up(self) -> str | None:
        """Return why nothing more is to be asked for this report."""
        if self.usages:
            return self._over_budget(reduce(add, self.usages.values()))
        return None
