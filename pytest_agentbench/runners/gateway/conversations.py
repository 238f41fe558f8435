"""Tell the conversations of an agent apart, and put thoughts back that its dialect has no room for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from pytest_agentbench.models.dialects.base import Asked
from pytest_agentbench.models.prompts import message_text
from pytest_agentbench.models.replies import ChatReply

Messages = Sequence[Mapping[str, Any]]

_MOST_LOOKED_AT = 200
"""So many messages of a request say which conversation it continues."""

_MOST_CONVERSATIONS = 200


class Conversations:
    """The conversations of a run, numbered from 1 as they open.

    A request continues the conversation whose messages it begins with, further than with any other's; a system text
    alone continues none. `main` is the number of the first that holds the text of a turn and offers tools, None while
    there is none.
    """

    def __init__(self) -> None:
        self._shown: list[tuple[int, ...]] = []
        self.main: int | None = None

    def place(self, asked: Asked, turns: Sequence[str]) -> int:
        """Return the number of the conversation that a request belongs to."""
        shown = tuple(_hash_message(message) for message in islice(asked.messages, _MOST_LOOKED_AT))
        alike = [_count_alike(shown, known) for known in self._shown]
        least = next((at for at, each in enumerate(asked.messages) if each.get("role") == "user"), 0)
        best = max(range(len(alike)), key=alike.__getitem__, default=None)
        if best is None or alike[best] <= least:
            if len(self._shown) >= _MOST_CONVERSATIONS:
                return _MOST_CONVERSATIONS
            best = len(self._shown)
            self._shown.append(shown)
        self._shown[best] = shown
        if self.main is None and asked.tools and _holds(asked.messages, turns):
            self.main = best + 1
        return best + 1

    def describe(self) -> dict[str, Any]:
        """Return how many there are, and which is the main one."""
        return {"conversations": len(self._shown), "main": self.main}


def _hash_message(message: Mapping[str, Any]) -> int:
    calls = message.get("tool_calls")
    # As Python writes it: a third of what JSON takes, and only compared with itself
    return hash((message.get("role"), message_text(message), repr(calls) if calls else None))


def _count_alike(shown: Sequence[int], known: Sequence[int]) -> int:
    """Return how many messages both begin with."""
    return next(
        (number for number, (a, b) in enumerate(zip(shown, known, strict=False)) if a != b), min(len(shown), len(known))
    )


def _holds(messages: Messages, turns: Sequence[str]) -> bool:
    texts = [message_text(message) for message in messages if message.get("role") == "user"]
    return any(turn.strip() and turn.strip() in text for turn in turns for text in texts)


_MOST_KEPT = 16 * 2**20
"""Characters of thoughts that a run has kept; the oldest go first."""

_SAID = frozenset({"role", "content", "tool_calls", "refusal", "name"})


class KeptThoughts:
    """What the model's own messages hold beside text and calls, such as signed thoughts, by the ids of their calls.

    Some models refuse a conversation without them, and most dialects show an agent no more than a summary.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[dict[str, Any], int]] = {}
        self._size = 0

    def keep(self, reply: ChatReply) -> None:
        """Keep what the message of a reply with calls holds beside them."""
        calls = [call for call in reply.message.get("tool_calls") or () if isinstance(call, Mapping)]
        beside = {name: value for name, value in reply.message.items() if name not in _SAID and value}
        for place, call in enumerate(calls):
            own = {name: value for name, value in call.items() if name not in ("id", "type", "function", "index")}
            found = {"message": beside if place == 0 else {}, "call": own}
            if any(found.values()):
                self._add(_key_of(call), found)

    def _add(self, key: tuple[str, str], found: dict[str, Any]) -> None:
        self._size -= self._kept.pop(key, ({}, 0))[1]
        size = len(json.dumps(found, default=str))
        self._kept[key] = found, size
        self._size += size
        while self._size > _MOST_KEPT:
            self._size -= self._kept.pop(next(iter(self._kept)))[1]

    def restore(self, messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Return the messages with what was kept of them; what an agent sent by itself stays."""
        if not self._kept:
            return messages
        return [self._restore(message) if message.get("tool_calls") else message for message in messages]

    def _restore(self, message: dict[str, Any]) -> dict[str, Any]:
        sent = message["tool_calls"]
        if message.get("role") != "assistant" or not isinstance(sent, list):
            return message
        found = [self._find(call) for call in sent]
        calls = [{**kept["call"], **call} if kept["call"] else call for call, kept in zip(sent, found, strict=True)]
        beside = {name: value for kept in found for name, value in kept["message"].items()}
        return {**beside, **message, "tool_calls": calls}

    def _find(self, call: Any) -> dict[str, Any]:
        none: dict[str, Any] = {"message": {}, "call": {}}
        return self._kept.get(_key_of(call), (none, 0))[0] if isinstance(call, Mapping) else none


def _key_of(call: Mapping[str, Any]) -> tuple[str, str]:
    """Return what a call is known by: ids alone may come again in every reply."""
    function = call.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    return str(call.get("id")), str(name)
