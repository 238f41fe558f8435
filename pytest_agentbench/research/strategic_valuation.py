"""The strategic value of one report: the judge's eight scores, the knowledge that it adds, and what it uses of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import lru_cache

from pydantic import Field

from pytest_agentbench.config.poet_config import KnowledgeBaseSettings, PoetConfig
from pytest_agentbench.records import Record
from pytest_agentbench.records.research import NotNegative, Share
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.efficiency import clamped
from pytest_agentbench.research.knowledge import KnowledgeBase, Unit, contribution
from pytest_agentbench.research.likeness import Passages, words_of
from pytest_agentbench.research.report import Report
from pytest_agentbench.research.strategic import confirm_reuse, draw_knowledge, judge_strategic
from pytest_agentbench.research.strategic_scores import (
    StrategicWeights,
    knowledge_creation_value,
    strategic_value,
)

_MOST_CANDIDATES = 50
"""Known units that a judge is shown at most: those of which the article has the largest share."""

_words = lru_cache(maxsize=2**15)(words_of)


class StrategicScore(Record):
    """A report's strategic value, 0-1: the judge's eight scores (1-5) with their reasons, and units of knowledge.

    `known` counts what was known before, `created` are those that were not, `repeated` counts drawn ones that were, or
    that another one of the article says too, `below_quality` those under the least quality; `reused` are known ones
    that it uses.
    """

    strategic_score: Share
    scores: dict[str, float]
    score_reasons: dict[str, str] = Field(default_factory=dict)
    known: int = 0
    created: tuple[Unit, ...]
    repeated: int
    below_quality: int
    reused: tuple[Unit, ...]
    knowledge_creation_value: NotNegative


async def strategic_of(
    asking: Asking,
    report: Report,
    base: KnowledgeBase,
    config: PoetConfig,
    turn: AbstractAsyncContextManager[None] | None = None,
    batch: str | None = None,
) -> StrategicScore:
    """What the judge says of a report; its knowledge is added to the base. Raises Unscored, ConfigError, Unwritable.

    The base is entered once, after the report's units are drawn and before it is asked which known ones it uses: what
    is known is what reports before it added, and a repeated call changes and finds nothing else. That is done while
    `turn` is held, where reports that are scored side by side are to enter it in an order; where they have none, they
    are of one `batch`, and know nothing of one another.
    """
    settings = config.knowledge_base_settings
    judged = await judge_strategic(asking, report.case_id, report.language, report.prompt, report.article)
    most = settings.max_knowledge_units_per_task
    drawn = await draw_knowledge(asking, report.case_id, report.language, report.article, most)
    good = [each for each in drawn if each.quality >= settings.min_knowledge_quality_threshold]
    async with turn or nullcontext():
        known = base.enter(contribution(report.model, report.id, report.prompt, report.article, good, batch))
    created = new_units(good, known, settings.knowledge_similarity_threshold)
    candidates = found_units(report.article, known, settings)
    reused = (
        await confirm_reuse(asking, report.case_id, report.language, report.article, candidates) if candidates else []
    )
    weights = config.strategic_weights
    scores = {name: score for name, (score, _) in judged.items()}
    value = strategic_value(scores, StrategicWeights(weights.task_capability, weights.knowledge_capability))
    return StrategicScore(
        strategic_score=clamped(value),
        scores=scores,
        score_reasons={name: reason for name, (_, reason) in judged.items()},
        known=len(known),
        created=tuple(created),
        repeated=len(good) - len(created),
        below_quality=len(drawn) - len(good),
        reused=tuple(reused),
        knowledge_creation_value=knowledge_creation_value([each.quality for each in created]),
    )


def new_units(drawn: Sequence[Unit], known: Sequence[Unit], likeness: float) -> list[Unit]:
    """The drawn units that neither a known one nor one drawn before says: those are at least so alike (0-1)."""
    new: list[Unit] = []
    for each in drawn:
        words = _words(each.text)
        if all(each.id != other.id and words.likeness(_words(other.text)) < likeness for other in (*known, *new)):
            new.append(each)
    return new


def found_units(article: str, known: Sequence[Unit], settings: KnowledgeBaseSettings) -> list[Unit]:
    """The known units that three sentences of the article have the words of, so that it may state them."""
    passages, share = Passages(article), settings.knowledge_similarity_threshold
    found = [each for each in known if passages.have(_words(each.text), share)]
    return sorted(found, key=lambda each: -passages.share_of(_words(each.text)))[:_MOST_CANDIDATES]
