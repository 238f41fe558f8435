"""Research reports as sessions have them: stored ones that run without asking anybody, and how all are graded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.engine.grading import AskingGrader, Grade, GradeRequest
from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.packs.research.records import RESEARCH, task_of_case
from pytest_agentbench.packs.research.rows import read_material
from pytest_agentbench.packs.research.session import PAGES, STORED_METRICS, ResearchSession, explain_missing_report
from pytest_agentbench.packs.research.stages import JUDGED
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run import RunError
from pytest_agentbench.runners.base import RunContext, RunEnd

if TYPE_CHECKING:
    from pytest_agentbench.engine.grading import GradingServices
    from pytest_agentbench.engine.job import Job


@dataclass(frozen=True, eq=False)
class StoredReports:
    """A runner that asks no model, like Predictions: a run's final output is the article of the case's row.

    An article is one run at any number of repetitions of the session.
    """

    path: Path
    samples: int = 1

    @property
    def model_id(self) -> str:
        """Return the placeholder for a model in ids and reports: the file's name without its suffix."""
        return self.path.stem

    def digest(self, case: Case, repetition: int) -> str | None:
        """Return the SHA-256 of the row's article and execution_metrics."""
        article = task_of_case(case).article
        if article is not None:
            return article.digest
        return None

    async def __call__(self, case: Case, context: RunContext) -> RunEnd:
        """Return the run, which is `failed` if the article is empty. Raises ConfigError if the file has changed."""
        task = task_of_case(case)
        material = read_material(task)
        context.trace.provider.update(predictions=self.path.name, sha256=self.digest(case, context.repetition))
        metadata = {STORED_METRICS: material.metrics.model_dump(mode="json")}
        article = material.article or ""
        if not article.strip():
            line = task.article.line if task.article is not None else 1
            # A failure, not an error: the agent submitted an empty report.
            message = f"{self.path.name}:{line}: article: found an empty text, expected a report"
            return RunEnd("failed", RunError(code="empty_article", message=message), metadata)
        context.trace.final_output(article)
        return RunEnd("success", metadata=metadata)


class ResearchGrader(AskingGrader):
    """Grader of research reports: they fail by thresholds of their scores, and are errors if a part has no score."""

    part_name = RESEARCH
    decides = True  # without a report the run fails at any thresholds
    others_asked = (PAGES,)

    def require(self, services: GradingServices, case: Case) -> None:
        """Raise UnavailableError for a report in a language that the configuration does not support."""
        task = task_of_case(case)
        supported = services.shared(ResearchSession).config(task.scoring).evaluation_settings.language_support
        if task.language not in supported:
            raise UnavailableError(
                f"{task.scoring.config}: language_support is {', '.join(supported) or 'empty'}, which lacks "
                f"{task.language}, the language of this query"
            )

    def identity(self, services: GradingServices, job: Job, case: Case) -> Mapping[str, Any]:
        """Return everything that decides a report's scores besides itself and the judge. Raises ConfigError for
        wrong configuration.
        """
        from pytest_agentbench.packs.research.asking import PROMPT_VERSION

        task, session = task_of_case(case), services.shared(ResearchSession)
        scoring, annotations = task.scoring, session.annotations(task.scoring)
        fields: dict[str, Any] = {
            RESEARCH: {
                # Paths are left out: the files' content counts, below, not their place. The knowledge base
                # counts as it is when a report is scored first.
                "scoring": scoring.model_dump(exclude={"annotations", "config", "knowledge_base"}),
                "prompts": PROMPT_VERSION if self.asks(case) else None,
                "row": [task.language, task.domain, task.complexity_level, *task.defaults],
                "criteria": task.criteria and task.criteria.digest,
                "reference": task.reference and task.reference.digest,
                "config": session.config(scoring),
                "annotations": annotations
                and fingerprint([annotations.domains, annotations.levels, annotations.prices, annotations.task_types]),
            }
        }
        # A script's pages replace the web then, so an edited script grades again.
        if any(judge.scripted for judge in (*job.plan.judges.values(), *job.judges)):
            services.scripts.load_beside(case)
            fields["pages"] = services.scripts.pages(case.case_id)
        return fields

    def asks(self, case: Case) -> bool:
        """Return whether a part asks a judge."""
        return any(part in JUDGED for part in task_of_case(case).scoring.parts)

    async def grade(self, request: GradeRequest) -> Grade:
        """Return the scores of every part as metrics, and their evidence; a failure for a run without any report."""
        from pytest_agentbench.packs.research.grading import score_report

        metrics, record = await score_report(request)
        failures = tuple(explain_missing_report(request.artifact))
        return Grade(metrics=tuple(metrics), record=record, failures=failures)


GRADER = ResearchGrader()
