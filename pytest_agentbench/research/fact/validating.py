"""FACT, fourth stage: a judge says of each statement whether the page that it cites backs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from pytest_agentbench.judging import InvalidReply, structured
from pytest_agentbench.models import ReplyPart, clipped, read_json
from pytest_agentbench.records import Language
from pytest_agentbench.research.asking import Asking
from pytest_agentbench.research.fact.deduplicating import numbered
from pytest_agentbench.research.fact.statistics import Label
from pytest_agentbench.research.pieces import listed_by_halves, together
from pytest_agentbench.research.prompting import stage_messages
from pytest_agentbench.research.replies import TEXT, listed
from pytest_agentbench.research.wording import PROMPT_VERSION, WORDINGS

STAGE = "validate"
SCRAPE_FAILED = "scrape failed: "
"""How the content begins of a page that could not be had."""
MOST_AT_ONCE = 20
"""Statements in one request."""
_SHOWN = 60_000
_OVERLAP = 2_000
_MOST_PARTS = 4
_NOTE = 100
_LONGEST = _SHOWN + (_MOST_PARTS - 1) * (_SHOWN - _OVERLAP) - _NOTE
"""Characters of a page: more than pages are kept with. `_NOTE` are those that tell how many are left out of others."""

_LABEL = {"type": "string", "enum": ["supported", "unsupported", "unknown"]}
_FORMAT = structured(f"research_{STAGE}", {"results": listed(idx={"type": "integer"}, reason=TEXT, result=_LABEL)})


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


AnyCaseLabel = Annotated[Label, BeforeValidator(_lower)]
"""A label, however it is written."""


class _Entry(ReplyPart):
    idx: Annotated[int, Field(strict=True)]
    result: AnyCaseLabel


class _Reply(ReplyPart):
    results: tuple[_Entry, ...]


async def validate(
    asking: Asking, case_id: str, language: Language, page: str, facts: list[str], request: int = 1
) -> list[Label]:
    """A label for each statement. Of a page that could not be had all are unknown without asking. Raises Unscored.

    A long page is shown in parts that overlap, as long as there are statements that none has backed: one is supported
    where a part backs it, unsupported where all parts say so, else unknown.

    Requests are numbered from `request`: `requests_for` many, less those whose statements are all backed. One whose
    reply is cut off is asked again in halves.
    """
    if not _readable(page):
        return ["unknown"] * len(facts)
    groups = [facts[at : at + MOST_AT_ONCE] for at in range(0, len(facts), MOST_AT_ONCE)]
    parts = _parts(page)

    async def labels(group: list[str], first: int) -> list[Label]:
        said: list[set[Label]] = [set() for _ in group]
        for number, part in enumerate(parts, first):
            left = [at for at, each in enumerate(said) if "supported" not in each]
            ask = partial(_validate, asking, case_id, language, part, request=number)
            found = await listed_by_halves([group[at] for at in left], 1, ask) if left else []
            for at, label in zip(left, found, strict=True):
                said[at].add(label)
        return [_together(each) for each in said]

    firsts = range(request, request + len(groups) * len(parts), len(parts))
    found = await together(*(labels(group, first) for group, first in zip(groups, firsts, strict=True)))
    return [label for group in found for label in group]


def requests_for(page: str, facts: Sequence[str]) -> int:
    """How many numbers of requests it takes, at least one."""
    return max(1, len(_parts(page)) * -(-len(facts) // MOST_AT_ONCE))


def _readable(page: str) -> bool:
    return bool(page.strip()) and not page.startswith(SCRAPE_FAILED)


def _parts(page: str) -> list[str]:
    """The page, or parts of it that share _OVERLAP characters with the next. Of more than _LONGEST both ends count."""
    text = clipped(page, _LONGEST)
    starts = range(0, max(1, len(text) - _OVERLAP), _SHOWN - _OVERLAP)
    return [_part(text, start) for start in starts]


def _part(text: str, start: int) -> str:
    before = f"[... {start:,} characters before this part ...]\n" if start else ""
    left = max(0, len(text) - start - _SHOWN)
    after = f"\n[... {left:,} characters behind this part ...]" if left else ""
    return f"{before}{text[start : start + _SHOWN]}{after}"


def _together(said: set[Label]) -> Label:
    """What all parts of a page say of a statement."""
    if "supported" in said:
        return "supported"
    return "unsupported" if said == {"unsupported"} else "unknown"


async def _validate(
    asking: Asking, case_id: str, language: Language, page: str, facts: list[str], request: int
) -> list[Label]:
    messages = stage_messages(language, WORDINGS[language].validate.format(), page=page, statements=numbered(facts))

    def parse(text: str) -> list[Label]:
        results = read_json(text, _Reply).results
        counts = Counter(each.idx for each in results)
        wrong = [number for number in range(len(facts)) if counts[number] != 1]
        unknown = sorted(counts.keys() - set(range(len(facts))))
        if wrong or unknown:
            raise InvalidReply(
                f"- results: expected each idx from 0 to {len(facts) - 1} once; "
                f"missing or repeated: {wrong}, not asked for: {unknown}"
            )
        return [each.result for each in sorted(results, key=lambda each: each.idx)]

    return await asking(
        STAGE, case_id, messages, _FORMAT, parse, version=PROMPT_VERSION, request=request, divisible=len(facts) > 1
    )
