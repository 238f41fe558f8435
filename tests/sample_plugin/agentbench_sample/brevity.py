"""Grader: an answer to a card has at most so many words. What it finds is kept with the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentbench_sample.cards import Card
from pytest_agentbench import (
    Case,
    Grade,
    Grader,
    GradeRequest,
    GradingServices,
    Job,
    JudgeResult,
    MetricResult,
    Record,
    RunArtifact,
)


class Brevity(Record):
    """How long an answer was, and was to be, in words."""

    words: int
    most_words: int


class BrevityGrader(Grader):
    """Fails answers that are too long."""

    part_name = "brevity"

    def applies(self, case: Case) -> bool:
        """Return whether the case is a card: a hook's grader is asked of all cases, a pack's of those only."""
        return case.part(Card) is not None

    def decides(self, case: Case) -> bool:
        """Return True: a card is decided by its words, whatever else decides it."""
        return True

    def identity(self, services: GradingServices, job: Job, case: Case) -> Mapping[str, Any]:
        """Return what can change the grade of the same run: the card, and the version of how words are counted."""
        return {"brevity": {"version": 1, "card": case.part(Card)}}

    async def grade(self, request: GradeRequest) -> Grade:
        """Return the words of the answer, and a failure where there are too many."""
        return _grade(request.case, request.artifact)

    def regrade(
        self,
        case: Case,
        artifact: RunArtifact,
        metrics: Sequence[MetricResult],
        judged: JudgeResult | None,
        record: Record | None,
    ) -> Grade:
        """Return the same again: it costs nothing."""
        return _grade(case, artifact)


def _grade(case: Case, artifact: RunArtifact) -> Grade:
    card = case.part(Card) or Card()
    found = Brevity(words=len((artifact.final_output or "").split()), most_words=card.most_words)
    if found.words <= found.most_words:
        return Grade(record=found)
    return Grade(record=found, failures=(f"brevity: {found.words} words, expected at most {found.most_words}",))


BREVITY = BrevityGrader()
