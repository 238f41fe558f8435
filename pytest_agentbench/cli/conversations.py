"""The question and the answer of rows that hold a conversation: `messages`, `conversations`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pytest_agentbench.cli.columns import ROLES, Values

_USER = frozenset({"user", "human"})
_ASSISTANT = frozenset({"assistant", "gpt", "model", "bot", "chatgpt"})
_SYSTEM = frozenset({"system", "developer"})
_CONTENTS = ("content", "value", "text")


class Exchange(NamedTuple):
    """The fields of the first turns: what the user says, the reply, and the system message before it."""

    conversation: str
    question: str
    answer: str | None
    system: str | None
    goes_on: bool


def first_exchange(columns: Mapping[str, Values], count: int) -> Exchange | None:
    """Of rows whose conversations begin alike; None where they do not."""
    for conversation, place in _turns(columns, count, _USER):
        question = _content(columns, count, conversation, place, _USER)
        if question is not None:
            return Exchange(
                conversation=conversation,
                question=question,
                answer=_content(columns, count, conversation, place + 1, _ASSISTANT),
                system=_content(columns, count, conversation, 0, _SYSTEM),
                goes_on=any(f"{conversation}.{place + 2}.{key}" in columns for key in ROLES),
            )
    return None


def _turns(columns: Mapping[str, Values], count: int, speakers: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Conversation and place of the turns that all rows have and one of the speakers speaks."""
    for path in columns:
        turn, _, key = path.rpartition(".")
        conversation, _, place = turn.rpartition(".")
        if key in ROLES and place.isdecimal() and _speaks(columns[path], count, speakers):
            yield conversation, int(place)


def _content(
    columns: Mapping[str, Values], count: int, conversation: str, place: int, speakers: frozenset[str]
) -> str | None:
    """The field with the text of a turn, where one of the speakers says it in all rows."""
    turn = f"{conversation}.{place}"
    if not any(_speaks(columns.get(f"{turn}.{key}", {}), count, speakers) for key in ROLES):
        return None
    paths = [f"{turn}.{name}" for name in _CONTENTS]
    return next((path for path in paths if path in columns and _are_texts(columns[path], count)), None)


def _speaks(values: Values, count: int, speakers: frozenset[str]) -> bool:
    return _are_texts(values, count) and all(value.casefold() in speakers for value in values.values())


def _are_texts(values: Values, count: int) -> bool:
    return len(values) == count and all(isinstance(value, str) for value in values.values())
