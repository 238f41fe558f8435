"""Grader: an answer to a card has at most so many words. What it finds is kept with the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentbench_sample.cards import Card
from pytest_agentbench import Case, FreeGrader, Grade, GradingServices, Job, MeasuredRun, Record


class Brevity(Record):
    """How long an answer was, and was to be, in words."""

    words: int
    most_words: int


class BrevityGrader(FreeGrader):
    """Fails answers that are too long."""

    part_name = "brevity"
    decides = True

    def applies(self, case: Case) -> bool:
        """Return whether the case is a card: a hook's grader is asked of all cases, a pack's of those only."""
        return case.part(Card) is not None

    def identity(self, services: GradingServices, job: Job, case: Case) -> Mapping[str, Any]:
        """Return what can change the grade of the same run: the card, and the version of how words are counted."""
        return {"brevity": {"version": 1, "card": case.part(Card)}}

    def compute(self, run: MeasuredRun) -> Grade:
        """Return the words of the answer, and a failure if there are too many."""
        card = run.case.part(Card) or Card()
        brevity = Brevity(words=len((run.artifact.final_output or "").split()), most_words=card.most_words)
        if brevity.words <= brevity.most_words:
            return Grade(record=brevity)
        failure = f"brevity: {brevity.words} words, expected at most {brevity.most_words}"
        return Grade(record=brevity, failures=(failure,))


BREVITY = BrevityGrader()
