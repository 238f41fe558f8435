"""Read an agent's requests and replies: its tool calls and results, and the case's own words."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.models.prompts import message_text
from pytest_agentbench.models.replies import ChatReply
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.runners.gateway.bounds import is_deep
from pytest_agentbench.runners.gateway.policy import GatewayPolicy

Messages = Sequence[Mapping[str, Any]]

_MOST_LOOKED_AT = 200
"""How far back histories and replies are compared: what an agent sends may be made to take long."""

_MOST_RESULTS = 64 * 2**20
"""Characters of the results in one trace. Those of a file that was read whole are some 50,000 with most agents."""


def restore_case_words(
    messages: Messages, turns: Sequence[str], internal: tuple[str, ...] = ()
) -> list[Mapping[str, Any]]:
    """Return the messages for a scripted model, which knows a conversation by the case's words.

    A user message that holds the text of one of `turns` becomes that text, the others are left out. Where none holds
    one, as in a sub-agent's conversation, all stay as they are. Messages that begin with an `internal` hold none.
    """
    result: list[Mapping[str, Any]] = []
    found_one = False
    for message in messages:
        if message.get("role") == "user":
            # Agents put the time and notes around the user's words, and a script's `matches` is about these alone.
            text = _find_turn(message, turns, internal)
            if text is None:
                continue
            found_one = True
            message = {"role": "user", "content": text}
        result.append(message)
    return result if found_one else list(messages)


def _find_turn(message: Mapping[str, Any], turns: Sequence[str], internal: tuple[str, ...]) -> str | None:
    """Return the longest text of a turn in the message; None where there is none, or the message is the agent's own."""
    text = message_text(message)
    if text.startswith(internal):
        return None
    # The longest: one turn's text may stand in another's.
    return max((turn for turn in turns if turn.strip() and turn.strip() in text), key=len, default=None)


@dataclass(slots=True)
class _Call:
    """A tool call as the model made it, `at` seconds into the run.

    `call_id`, which no other has, and `tool` are what the trace calls it.
    """

    sent_id: str
    call_id: str
    name: str
    arguments: Any
    tool: str
    at: float
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply with tool calls; `opening` is the first user message of the conversation that it continues."""

    calls: tuple[_Call, ...]
    opening: str

    @property
    def is_open(self) -> bool:
        """Return whether a call of it has no result yet."""
        return any(call.is_open for call in self.calls)


@dataclass(slots=True)
class _CallMessage:
    """An assistant message of a request that has tool calls, each (id, name, arguments), and the results behind it."""

    calls: list[tuple[str, str, Any]]
    results: list[tuple[str, str]]


class ToolTrace:
    """Writer of the tool calls of replies, and the results that later requests show, into a trace, each once.

    An agent sends its history with every request, may give the calls other ids there, shorten it, and have several
    conversations at a time. So the history's messages with tool calls are matched with the replies, in the order of
    both and from the end; where several replies have the same tools, by ids, arguments and the conversation's opening.
    """

    def __init__(self, trace: Recorder, policy: GatewayPolicy = GatewayPolicy()) -> None:  # noqa: B008 - frozen
        self._trace = trace
        self._policy = policy
        self._replies: list[_Reply] = []
        self._ids: set[str] = set()
        self._room = _MOST_RESULTS

    def replied(self, messages: Messages, reply: ChatReply, conversation: int | None = None) -> None:
        """Note the calls of a reply to these messages, and the text that it has beside them.

        `conversation` is the number of the one that they belong to, None for the main one.
        """
        if not reply.tool_calls:
            return
        if reply.content:
            self._trace.message("assistant", reply.content)
        calls = []
        for call in reply.tool_calls:
            call_id, (tool, arguments) = self._unique_id(call.id), self._policy.unwrap(call)
            calls.append(_Call(call.id, call_id, call.name, _parse_arguments(call.raw), tool, self._trace.seconds))
            if tool != call.name:
                self._trace.event("wrapped_call", call_id=call_id, by=call.name, id=(call.arguments or {}).get("id"))
            if conversation is not None:
                self._trace.event("side_call", call_id=call_id, conversation=conversation)
            self._trace.tool_call(call_id, tool, arguments, call.raw if arguments is None else None)
        self._replies.append(_Reply(tuple(calls), _find_opening(messages)))

    def requested(self, messages: Messages, failed: str | None = None) -> None:
        """Note the results in these messages of calls that had none yet; `failed` begins those of tools that failed."""
        end, opening = len(self._replies), _find_opening(messages)
        found: list[tuple[_Call, str]] = []
        for asked in itertools.islice(_call_messages(messages), _MOST_LOOKED_AT):
            # Every request sends the whole history: looking ends where no call before it still lacks its result.
            if not any(reply.is_open for reply in self._replies[max(0, end - _MOST_LOOKED_AT) : end]):
                break
            place = self._place(asked, opening, end)
            if place is not None:
                end = place
                # Found from the end, written in the order of what happened.
                found[:0] = _take_results(asked, self._replies[place])
        for call, content in found:
            marked = failed is not None and content.startswith(failed)
            self._trace.tool_result(
                call.call_id,
                call.tool,
                self._shorten(content.removeprefix(failed) if failed is not None else content),
                is_error=marked or self._policy.is_error(content, call.name),
                # As observed here: the agent's own work between two requests is in it
                duration_seconds=self._trace.seconds - call.at,
            )

    def _place(self, asked: _CallMessage, opening: str, end: int) -> int | None:
        """Return where the reply is, of those before `end`, that the message shows; None where it shows none."""
        ids, names, arguments = (list(column) for column in zip(*asked.calls, strict=True))
        best: tuple[bool, bool, bool] | None = None
        at = None
        for place in range(end - 1, max(0, end - _MOST_LOOKED_AT) - 1, -1):
            reply = self._replies[place]
            if [call.name for call in reply.calls] != names:
                continue
            same_ids = [call.sent_id for call in reply.calls] == ids
            same_arguments = [call.arguments for call in reply.calls] == arguments
            likeness = (same_ids, same_arguments, reply.opening == opening)
            # Where neither ids nor arguments are the same, only a reply that still waits can be meant.
            if (same_ids or same_arguments or reply.is_open) and (best is None or likeness > best):
                best, at = likeness, place
            if likeness == (True, True, True):
                break
        return at

    def _shorten(self, content: str) -> str:
        """Return what there is room for in the trace."""
        shown = content[: self._room]
        self._room -= len(shown)
        return shown if len(shown) == len(content) else f"{shown}[{len(content) - len(shown):,} more characters]"

    def _unique_id(self, call_id: str) -> str:
        """Return the id, with a number behind it where an earlier call has it."""
        # Some models count their calls anew in every reply: `call_0` is no id for a whole run.
        candidate, number = call_id, 1
        while candidate in self._ids:
            number += 1
            candidate = f"{call_id}-{number}"
        self._ids.add(candidate)
        return candidate


def _call_messages(messages: Messages) -> Iterator[_CallMessage]:
    """Yield the messages with tool calls and their results, the last one first."""
    results: list[tuple[str, str]] = []
    for message in reversed(messages):
        role = message.get("role")
        if role == "tool":
            results.append((str(message.get("tool_call_id")), message_text(message)))
        elif role == "assistant":
            sent = message.get("tool_calls")
            calls = [call for call in map(_parse_call, sent if isinstance(sent, list) else ()) if call is not None]
            if calls:
                yield _CallMessage(calls, results[::-1])
            results = []


def _parse_call(call: object) -> tuple[str, str, Any] | None:
    """Return the id, name and arguments of a call in a request; None where it is no call of a function."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        return None
    return str(call.get("id")), str(function.get("name")), _parse_arguments(function.get("arguments"))


def _take_results(asked: _CallMessage, reply: _Reply) -> list[tuple[_Call, str]]:
    """Return the calls of the reply that had no result, with those that the message has: by its ids, else in order."""
    waiting = {number: call_id for number, (call_id, _, _) in enumerate(asked.calls)}
    found = {}
    for result_id, content in asked.results:
        number = next((number for number, call_id in waiting.items() if call_id == result_id), None)
        if number is None:
            number = next(iter(waiting), None)
        if number is not None:
            del waiting[number]
            found[number] = content
    new = [(reply.calls[number], content) for number, content in sorted(found.items()) if reply.calls[number].is_open]
    for call, _ in new:
        call.is_open = False
    return new


def _parse_arguments(arguments: object) -> Any:
    """Return the arguments as JSON, so that spaces in them do not count; as they are where they are none, or nest
    deep.
    """
    try:
        read = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments
    return arguments if is_deep(read) else read


def _find_opening(messages: Messages) -> str:
    return next((message_text(message) for message in messages if message.get("role") == "user"), "")
