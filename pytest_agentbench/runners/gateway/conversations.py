"""Distinguish the conversations of an agent, and restore thoughts that its API cannot carry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from pytest_agentbench.models.apis.base import Asked
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.prompts import message_text

Messages = Sequence[Mapping[str, Any]]

_MOST_LOOKED_AT = 200
"""Maximum messages of a request that are compared to find its conversation."""

_MOST_CONVERSATIONS = 200


class Conversations:
    """The conversations of a run, numbered from 1 in the order of their first requests.

    A request continues the conversation with which it shares the most leading messages. A shared system message alone
    does not count. `main` is the number of the first conversation that contains a turn's text and offers tools, or
    None.
    """

    def __init__(self) -> None:
        self._hashes: list[tuple[int, ...]] = []
        self.main: int | None = None

    def place(self, asked: Asked, turns: Sequence[str]) -> int:
        """Return the number of the conversation that a request belongs to."""
        hashes = tuple(_hash_message(message) for message in islice(asked.messages, _MOST_LOOKED_AT))
        alike = [_count_alike(hashes, earlier) for earlier in self._hashes]
        # Messages before the first of the user: a conversation that shares only these is another one
        least = next((at for at, message in enumerate(asked.messages) if message.get("role") == "user"), 0)
        best = max(range(len(alike)), key=alike.__getitem__, default=None)
        if best is None or alike[best] <= least:
            if len(self._hashes) >= _MOST_CONVERSATIONS:
                return _MOST_CONVERSATIONS
            best = len(self._hashes)
            self._hashes.append(hashes)
        self._hashes[best] = hashes
        if self.main is None and asked.tools and holds_turn(asked.messages, turns):
            self.main = best + 1
        return best + 1

    def describe(self) -> dict[str, Any]:
        """Return the number of conversations, and the number of the main one."""
        return {"conversations": len(self._hashes), "main": self.main}


def _hash_message(message: Mapping[str, Any]) -> int:
    calls = message.get("tool_calls")
    # repr takes a third of the time of JSON, and the text is only compared within this process.
    return hash((message.get("role"), message_text(message), repr(calls) if calls else None))


def _count_alike(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of leading messages that are equal."""
    shorter = min(len(one), len(other))
    return next((number for number in range(shorter) if one[number] != other[number]), shorter)


def holds_turn(messages: Messages, turns: Sequence[str]) -> bool:
    """Return whether a message of the user contains one of the turns' texts."""
    texts = [message_text(message) for message in messages if message.get("role") == "user"]
    return any(turn.strip() and turn.strip() in text for turn in turns for text in texts)


_MOST_KEPT = 16 * 2**20
"""Maximum characters of thoughts stored for a run; the oldest are dropped first."""

_STANDARD = frozenset({"role", "content", "tool_calls", "refusal", "name"})


class KeptThoughts:
    """Store of the extra fields of assistant messages, such as signed thoughts, by the ids of their tool calls.

    Some models refuse a conversation without these fields, and most APIs show an agent only a summary of them.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[dict[str, Any], int]] = {}
        self._size = 0

    def keep(self, reply: ChatReply) -> None:
        """Store the extra fields of a reply with tool calls."""
        calls = [call for call in reply.message.get("tool_calls") or () if isinstance(call, Mapping)]
        of_message = {name: value for name, value in reply.message.items() if name not in _STANDARD and value}
        for call in calls:
            of_call = {name: value for name, value in call.items() if name not in ("id", "type", "function", "index")}
            if of_message or of_call:
                self._add(_key_of(call), {"message": of_message, "call": of_call})
            of_message = {}  # stored once, with the first call

    def _add(self, key: tuple[str, str], fields: dict[str, Any]) -> None:
        self._size -= self._kept.pop(key, ({}, 0))[1]
        size = len(json.dumps(fields, default=str))
        self._kept[key] = fields, size
        self._size += size
        while self._size > _MOST_KEPT:
            self._size -= self._kept.pop(next(iter(self._kept)))[1]

    def restore(self, messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Return the messages with their stored fields. Fields that the agent sent have precedence."""
        if not self._kept:
            return messages
        return [self._restore(message) if message.get("tool_calls") else message for message in messages]

    def _restore(self, message: dict[str, Any]) -> dict[str, Any]:
        sent = message["tool_calls"]
        if message.get("role") != "assistant" or not isinstance(sent, list):
            return message
        stored = [self._find(call) for call in sent]
        calls = [
            {**fields["call"], **call} if fields["call"] else call for call, fields in zip(sent, stored, strict=True)
        ]
        of_message = {name: value for fields in stored for name, value in fields["message"].items()}
        return {**of_message, **message, "tool_calls": calls}

    def _find(self, call: Any) -> dict[str, Any]:
        if isinstance(call, Mapping) and (stored := self._kept.get(_key_of(call))) is not None:
            return stored[0]
        return {"message": {}, "call": {}}


def _key_of(call: Mapping[str, Any]) -> tuple[str, str]:
    """Return the key of a call, its id and name. Ids alone may repeat in every reply."""
    function = call.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    return str(call.get("id")), str(name)
