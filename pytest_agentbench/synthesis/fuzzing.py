"""The detailed task as somebody would ask for it (seed 004, 4.2 and A.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_agentbench.models import Block, InvalidReply
from pytest_agentbench.synthesis.base import Reason
from pytest_agentbench.synthesis.prompting import Filling, problems_block, request
from pytest_agentbench.synthesis.wording import Wording

_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_QUOTES = {'"': '"', "“": "”", "「": "」"}


def fuzzing_request(
    wording: Wording, task: str, tools: int, *, exact: bool, problems: Sequence[Reason]
) -> list[dict[str, str]]:
    """Asks for the fuzzy text of a detailed task. `exact`: its numbers are to stay. `tools` counts the agent's."""
    fillings: dict[str, Filling] = {
        "task": [Block("task", task)],
        "count": [wording.count.format(count=tools)],
        "exactness": [wording.exact] if exact else [],
        "problems": [wording.fuzzing_problems, problems_block(problems)] if problems else [],
    }
    return request(wording, wording.fuzzing, fillings)


def read_fuzzy(text: str) -> str:
    """The text in a reply, without quotes around it. Raises InvalidReply where there is none."""
    said = _THOUGHTS.sub("", text).strip()
    if len(said) > 1 and _QUOTES.get(said[0]) == said[-1] and not {said[0], said[-1]} & set(said[1:-1]):
        said = said[1:-1].strip()
    if not said:
        raise InvalidReply("- the reply is empty, expected the request")
    return said
