"""Grade a research report: its parts, side by side where none needs another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import reduce
from operator import add
from pathlib import Path
from typing import TypeVar

from pytest_agentbench.config.profiles import NetworkSettings
from pytest_agentbench.engine.cassettes import select_paid
from pytest_agentbench.engine.grading import GradeRequest
from pytest_agentbench.engine.grading_services import GradingServices
from pytest_agentbench.engine.job import Job
from pytest_agentbench.engine.verdict import is_judged
from pytest_agentbench.errors import AgentbenchError, ConfigError
from pytest_agentbench.models.cassette_file import Answer, Refusal
from pytest_agentbench.models.pricing import Ledger
from pytest_agentbench.models.tape import Form, Tape
from pytest_agentbench.packs.research.asking import STAGES, Asking
from pytest_agentbench.packs.research.business_report.figures import EvidencePart, Missing
from pytest_agentbench.packs.research.criteria import lacks
from pytest_agentbench.packs.research.efficiency import EfficiencyScore, efficiency_of
from pytest_agentbench.packs.research.fact.citations import canonical_url
from pytest_agentbench.packs.research.fact.pages import ScriptedPages
from pytest_agentbench.packs.research.fact.rows import Contents, FactScore, score_fact
from pytest_agentbench.packs.research.grades import Failed, Found, evidence, results
from pytest_agentbench.packs.research.interaction import InteractionScore, interaction_of
from pytest_agentbench.packs.research.poet import FactPart, Parts, RacePart, fact_evidence, poet_of, race_evidence
from pytest_agentbench.packs.research.race_judging import RaceJudged, RaceQuestion, judge_race, strip_apparatus
from pytest_agentbench.packs.research.records import (
    ExecutionMetrics,
    Part,
    RaceCriteria,
    Report,
    ResearchScores,
    TokenUsage,
    counted,
    task_of_case,
)
from pytest_agentbench.packs.research.rows import Material, read_material
from pytest_agentbench.packs.research.session import PAGES, STORED_METRICS, ResearchSession, explain_missing_report
from pytest_agentbench.packs.research.strategic import StrategicScore, strategic_of
from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.records.evaluation import MetricResult
from pytest_agentbench.records.run import MessageEvent, RunArtifact, Usage
from pytest_agentbench.store.judgements import JUDGEMENTS, Judgements


def execution_metrics(job: Job, case: Case, artifact: RunArtifact) -> ExecutionMetrics:
    """Return what the file says of a stored report; else what was measured. What nobody told or measured is None.

    A report that is a prediction was written by a run that nobody saw: only its text can be counted.
    """
    if job.plan.stored is not None:
        return ExecutionMetrics.model_validate(artifact.metadata.get(STORED_METRICS) or {})
    text = counted(artifact.final_output or "")
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
    """Return whether anybody may have said more to the agent than the query: a user's turn after its first word."""
    said = [event.role for event in artifact.trace if isinstance(event, MessageEvent) and event.role != "system"]
    first = next((at for at, role in enumerate(said) if role != "user"), len(said))
    return bool(case.turns) or "user" in said[first:]


def cited_pages(services: GradingServices, job: Job, case: Case, tape: Tape | None) -> Contents:
    """Return nothing is fetched from where the run profile's network settings let nobody go."""
    if job.plan.first_judge().scripted and (pages := services.scripts.pages(case.case_id)):
        return ScriptedPages(pages)
    web = _Web(services.shared(ResearchSession), job.plan.run_profile.network)
    return web if tape is None or tape.mode(PAGES) == "off" else _Taped(web, tape)


class _Web:
    """The session's pages, opened when the first is wanted."""

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


T = TypeVar("T")

_PARTS: dict[str, Part] = {
    **dict.fromkeys(("clean", "race"), "race"),
    **dict.fromkeys(("extract", "deduplicate", "validate"), "fact"),
    **dict.fromkeys(("strategic", "knowledge", "reuse"), "strategic"),
}
"""The part that asks a judge at each stage."""


async def score_report(request: GradeRequest) -> tuple[list[MetricResult], ResearchScores | None]:
    """Return the scores of every part as metrics, and what they rest on. Books what judging has cost.

    A part that failed is a metric with an error; where there is nothing to measure there is no score and the reason.
    Where the run failed, or wrote no report, nothing is scored. Raises ConfigError where a row has changed.
    """
    case, artifact = request.case, request.artifact
    if not is_judged(case, artifact) or explain_missing_report(artifact):
        return [], None
    scorer = _Scorer(request.services, request.job, case, artifact, request.tape)
    found = await scorer.found()
    made = results(scorer.task.scoring, found, scorer.ledger.usages)
    return made, evidence(scorer.task, scorer.report, found, scorer.config, scorer.ledger, scorer.judge)


class _Scorer:
    """One report, with all that its parts share."""

    def __init__(
        self, services: GradingServices, job: Job, case: Case, artifact: RunArtifact, tape: Tape | None
    ) -> None:
        self.services, self.job, self.case, self.tape = services, job, case, tape
        self.task, self.session = task_of_case(case), services.shared(ResearchSession)
        self.material: Material = read_material(self.task)
        self.config = self.session.config(self.task.scoring)
        self.report = Report(
            id=self.task.row_id,
            case_id=case.case_id,
            model=job.plan.model_id,
            prompt=self.task.prompt,
            article=artifact.final_output or "",
            language=self.task.language,
            metrics=execution_metrics(job, case, artifact),
        )
        self.ledger = ItemLedger(self._spent, services.over_budget)
        self._asking: Asking | None = None

    def _spent(self, usage: Usage) -> None:
        self.services.on_spent("judge", select_paid(self.tape, [usage]))

    async def found(self) -> Found:
        """Return what each part came to."""
        scoring = self.task.scoring
        efficiency = self._now("efficiency", self._efficiency)
        async with asyncio.TaskGroup() as group:
            race = group.create_task(self._part("race", self._race))
            fact = group.create_task(self._part("fact", self._fact))
            strategic = group.create_task(self._part("strategic", self._strategic))
        interaction = self._now("interaction", self._interaction)
        found = Found(race.result(), fact.result(), efficiency, strategic.result(), interaction)
        found.poet = poet_of(self.report, _parts(found), self.config, compat=scoring.compat)
        return found

    async def _part(self, part: Part, score: Callable[[], Awaitable[T]]) -> T | Failed | None:
        """Return what the part came to, or why it came to nothing; None where nobody asks for it."""
        if part not in self.task.scoring.parts:
            return None
        try:
            return await score()
        except AgentbenchError as error:
            return Failed(str(error))

    def _now(self, part: Part, score: Callable[[], T]) -> T | Failed | None:
        """Return the same of a part that asks nobody."""
        if part not in self.task.scoring.parts:
            return None
        try:
            return score()
        except AgentbenchError as error:
            return Failed(str(error))

    async def _race(self) -> RaceJudged:
        criteria, scoring = self._criteria(), self.task.scoring
        question = RaceQuestion(
            case_id=self.case.case_id,
            language=self.task.language,
            query=self.task.prompt,
            article=self.report.article,
            reference=self.material.reference,
            criteria=criteria,
        )
        question = await strip_apparatus(self.asking, question, scoring.cleaning)
        return await judge_race(
            self.asking, question, samples=scoring.samples, position_swap=scoring.position_swap, compat=scoring.compat
        )

    def _criteria(self) -> RaceCriteria:
        """Return the criteria with the weights that the configuration wants. Raises ConfigError where a dimension
        lacks.
        """
        criteria = self.material.criteria
        assert criteria is not None
        if not self.config.query_selection.enable_dynamic_weighting:
            weights = dict(self.config.race_weights.by_dimension)
            criteria = criteria.model_copy(update={"dimension_weight": weights})
        if problems := list(lacks(criteria)):
            raise ConfigError(f"{self.task.criteria}: {'; '.join(map(str, problems))}")
        return criteria

    async def _fact(self) -> FactScore:
        return await score_fact(self.asking, cited_pages(self.services, self.job, self.case, self.tape), self.report)

    def _efficiency(self) -> EfficiencyScore:
        annotations, domain = self.session.annotations(self.task.scoring), self.task.domain
        assert annotations is not None
        assert domain is not None
        level, compat = self.task.complexity_level, self.task.scoring.compat
        return efficiency_of(self.report, annotations, domain, level, self.config, compat=compat)

    async def _strategic(self) -> StrategicScore:
        base = self.session.knowledge_base(self.task.scoring)
        return await strategic_of(self.asking, self.report, base, self.config, batch=self.session.batch)

    def _interaction(self) -> InteractionScore:
        annotations = self.session.annotations(self.task.scoring)
        domain, level = self.task.domain, self.task.complexity_level
        compat = self.task.scoring.compat
        return interaction_of(self.report, annotations, domain, level, self.config, self.material.row, compat=compat)

    @property
    def judge(self) -> Model | None:
        """Return the model that was asked, None where none was."""
        return self._asking.judge if self._asking is not None else None

    @property
    def asking(self) -> Asking:
        """Return the judge, at the first need."""
        if self._asking is None:
            services, lane = self.services, self.job.plan.lane
            client = services.client(self.job.plan.first_judge(), self.tape)
            kept = None
            if not getattr(client, "taped", False):
                kept = Judgements(Path(lane.output, JUDGEMENTS), lane.redactor, lane.remote, lane.signer)
            anew = None if services.reuse_evaluations else services.asked_anew
            self._asking = Asking(
                client,
                kept,
                self.ledger,
                lane.redactor,
                anew,
                options=self.job.plan.judge_options,
                request_seconds=self.config.system_settings.timeout_seconds,
            )
        return self._asking


class ItemLedger(Ledger):
    """Tells the session what judging one report takes. It may take no more than the whole session may.

    `usages` sums the replies by part.
    """

    def __init__(self, spent: Callable[[Usage], None], over_budget: Callable[[Usage], str | None]) -> None:
        super().__init__(STAGES)
        self.usages: dict[Part, Usage] = {}
        self._told, self._over_budget = spent, over_budget

    def book(self, stage: str, usage: Usage) -> None:
        """Add a reply's usage."""
        super().book(stage, usage)
        part, used = _PARTS[stage], usage.model_copy(update={"raw": ()})
        self.usages[part] = self.usages[part] + used if part in self.usages else used
        self._told(usage)

    def used_up(self) -> str | None:
        """Return why nothing more is to be asked for this report."""
        return self._over_budget(reduce(add, self.usages.values())) if self.usages else None


def _parts(found: Found) -> Parts:
    """Return the parts of the composite as far as they came to a score, and why others did not."""
    race, fact = found.score("race"), found.score("fact")
    shared = race is not None and race.overall is not None
    names: tuple[EvidencePart, ...] = ("race", "fact", "efficiency", "strategic")
    why: dict[Missing, str] = {name: reason for name in names if (reason := found.why(name)) is not None}
    if race is not None and race.overall is None:
        why["race"] = "the report and its reference have 0 points both"
    return Parts(
        race=RacePart(race.overall, race.dimensions, race_evidence(race.scored[0])) if shared else None,
        fact=None if fact is None else FactPart(fact.counts, fact_evidence(fact.pages)),
        efficiency=found.score("efficiency"),
        strategic=found.score("strategic"),
        why=why,
    )
