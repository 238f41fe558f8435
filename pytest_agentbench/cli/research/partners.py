"""What RACE judges a report with: its query, criteria and reference, joined by the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_agentbench.cli.research.call import Call
from pytest_agentbench.cli.research.inputs import joined, spoken
from pytest_agentbench.cli.research.judge import case_id
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Language, QueryRow, RaceCriteria, RaceDimension, ReferenceRow, ReportRow
from pytest_agentbench.research.criteria import lacks, problems_of
from pytest_agentbench.research.race_judging import RaceQuestion
from pytest_agentbench.sources.research_rows import GoodRow, Joined, LostRow, prompt_key


@dataclass(frozen=True, slots=True)
class Partners:
    """The files that reports are joined with. `references` None: reports are judged alone.

    `weights` are those of the dimensions where the config has them in place of each query's own.
    """

    criteria: Joined[RaceCriteria]
    references: Joined[ReferenceRow] | None
    queries: Joined[QueryRow] | None
    weights: Mapping[RaceDimension, float] | None

    @classmethod
    def read(cls, call: Call, criteria: Path, references: Path | None, queries: Path | None) -> Partners:
        """Tells what is wrong with rows. Raises ConfigError where a file cannot be read."""
        config = call.config
        found = cls(
            joined(call, criteria, RaceCriteria),
            joined(call, references, ReferenceRow) if references is not None else None,
            joined(call, queries, QueryRow) if queries is not None else None,
            None if config.query_selection.enable_dynamic_weighting else config.race_weights.by_dimension,
        )
        for row in found.criteria:
            for problem in problems_of(row):
                call.warn(f"{criteria}: {row.id!r}: {problem}")
        return found

    def language(self, report: ReportRow) -> Language:
        """The language of the report's query."""
        try:
            return spoken(report if self.queries is None else self.queries.partner(report))
        except ConfigError:  # told once the report is judged
            return spoken(report)

    def question(self, report: ReportRow) -> RaceQuestion:
        """What is judged. Raises ConfigError where a partner is missing, has another id, or lacks a dimension."""
        if self.queries is not None:
            self.queries.partner(report)
        criteria = self.criteria.partner(report)
        if self.weights is not None:
            criteria = criteria.model_copy(update={"dimension_weight": dict(self.weights)})
        if problems := list(lacks(criteria)):
            raise ConfigError(f"{self.criteria.path}: {criteria.id!r}: {'; '.join(map(str, problems))}")
        return RaceQuestion(
            case_id=case_id(report.id),
            language=self.language(report),
            query=report.prompt,
            article=report.article,
            reference=None if self.references is None else self.references.partner(report).article,
            criteria=criteria,
        )

    def unanswered(self, reports: Iterable[GoodRow[ReportRow] | LostRow]) -> list[QueryRow]:
        """The queries of which there is no report, not even one that is lost."""
        prompts = ((row.data or {}).get("prompt") for row in reports)
        answered = {prompt_key(prompt) for prompt in prompts if isinstance(prompt, str)}
        return [row for row in self.queries or () if prompt_key(row.prompt) not in answered]
