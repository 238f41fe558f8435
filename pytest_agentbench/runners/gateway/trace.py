"""Find tool calls, their results and the case's texts in an agent's requests and replies."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.prompts import message_text
from pytest_agentbench.records.run import ToolCallEvent, ToolResultEvent
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.runners.gateway.bounds import is_deep
from pytest_agentbench.runners.gateway.conversations import Conversations
from pytest_agentbench.runners.gateway.mcp_names import ServedTools
from pytest_agentbench.runners.gateway.policy import GatewayPolicy
from pytest_agentbench.tools.base import ToolOutput

Messages = Sequence[Mapping[str, Any]]

_MOST_LOOKED_AT = 200
"""Maximum messages and replies that are compared, because an agent may send a history that takes long."""

_MOST_RESULTS = 64 * 2**20
"""Maximum characters of results in one trace. With most agents the result of a whole file has about 50,000."""

_MOST_NOTED = 50
"""Maximum different names in a fact, because agents may invent names."""


def restore_case_words(
    messages: Messages, turns: Sequence[str], internal: tuple[str, ...] = ()
) -> list[Mapping[str, Any]]:
    """Return the messages for a scripted model, which recognises a conversation by the case's words.

    A user message that contains the text of one of `turns` becomes that text. Other user messages are left out. If no
    message contains one, as in a sub-agent's conversation, all stay unchanged. Messages that begin with one of
    `internal` do not count.
    """
    result: list[Mapping[str, Any]] = []
    has_turn = False
    for message in messages:
        if message.get("role") == "user":
            # Agents add the time and notes to the user's text. A script's `matches` compares the user's text only.
            text = _find_turn(message, turns, internal)
            if text is None:
                continue
            has_turn = True
            message = {"role": "user", "content": text}
        result.append(message)
    if has_turn:
        return result
    return list(messages)


def _find_turn(message: Mapping[str, Any], turns: Sequence[str], internal: tuple[str, ...]) -> str | None:
    """Return the longest turn text in the message, or None without one and for a message of the agent itself."""
    text = message_text(message)
    if text.startswith(internal):
        return None
    # The longest, because one turn's text may contain another's.
    return max((turn for turn in turns if turn.strip() and turn.strip() in text), key=len, default=None)


class GatewayFacts:
    """Facts about a run's gateway in its trace: the APIs of requests, and other notes by name."""

    def __init__(self, trace: Recorder, conversations: Conversations) -> None:
        self._trace, self._conversations = trace, conversations
        self._dialects: dict[str, dict[str, str]] = {}
        self._notes: dict[str, Any] = {"tool_seconds": "observed"}

    def add_way(self, way: dict[str, str]) -> None:
        """Record how the first request in an API was sent to the model. `note` writes it into the trace."""
        self._dialects.setdefault(way["dialect"], way)

    def count(self, name: str) -> int:
        """Return a number that was noted, 0 without one."""
        return int(self._notes.get(name, 0))

    def note(self, **facts: Any) -> bool:
        """Add facts to the trace. A list adds its new items. Return whether anything is new."""
        before = self.describe()
        for name, value in facts.items():
            if isinstance(value, list | tuple):
                items = self._notes.get(name, [])
                new = [item for item in dict.fromkeys(map(str, value)) if item not in items]
                value = [*items, *new[: _MOST_NOTED - len(items)]]
            if value:
                self._notes[name] = value
        self._trace.provider["gateway"] = self.describe()
        return self.describe() != before

    def describe(self) -> dict[str, Any]:
        """Return all facts."""
        return {"dialects": [*self._dialects.values()], **self._notes, **self._conversations.describe()}


_MOST_OF_A_REASON = 300


@dataclass(slots=True)
class _Call:
    """A tool call as the model made it, `at` seconds into the run. `call_id` (unique) and `tool` are its names in
    the trace.

    A call is open until a request shows its result. `is_served`: it is for a tool of the run's MCP endpoint. `served`
    is that endpoint's record of the call, None until the call arrives there.
    """

    sent_id: str
    call_id: str
    name: str
    arguments: Any
    tool: str
    at: float
    offered: bool | None = None
    is_open: bool = True
    is_served: bool = False
    served: ServedCall | None = None


@dataclass(slots=True)
class ServedCall:
    """A call at the run's MCP endpoint. `result` is None until it has ended.

    `shown` is the result that a request showed before. `given_up`: the agent does not wait for the result any more.
    """

    call_id: str
    tool: str
    result: str | None = None
    shown: str | None = None
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply with tool calls. `opening` is the first user message of its conversation."""

    calls: tuple[_Call, ...]
    opening: str

    @property
    def is_open(self) -> bool:
        """Return whether one of the calls has no result yet."""
        return any(call.is_open for call in self.calls)


@dataclass(slots=True)
class _CallMessage:
    """An assistant message with tool calls, each (id, name, arguments), and the results that follow it.

    `texts` are the user messages that follow it: some agents send results so.
    """

    calls: list[tuple[str, str, Any]]
    results: list[tuple[str, str]]
    texts: list[str]


class ToolTrace:
    """Writer of tool calls and results into a trace, each once. Replies have the calls, later requests the results.

    An agent sends its history with every request. It may change the ids of calls there, shorten the history, and have
    several conversations at a time. So messages with tool calls are matched with replies in the order of both, from
    the end. If several replies have the same tools, ids, arguments and the conversation's opening decide.

    Calls of the run's own tools, `served`, arrive at its MCP endpoint, too. Both are one call in the trace, with the
    endpoint's result: `begin_served` and `end_served`.
    """

    def __init__(
        self,
        trace: Recorder,
        policy: GatewayPolicy = GatewayPolicy(),  # noqa: B008 - frozen
        served: ServedTools | None = None,
    ) -> None:
        self._trace = trace
        self._policy = policy
        self._served = served
        self._replies: list[_Reply] = []
        self._ids: set[str] = set()
        self._room = _MOST_RESULTS

    def replied(
        self,
        messages: Messages,
        reply: ChatReply,
        conversation: int | None = None,
        offered: Collection[str] | None = None,
    ) -> None:
        """Add the tool calls and the text of a reply to the trace.

        `conversation` is the number of the conversation, or None for the main one. `offered` are the names of the
        request's tools, None if unknown.
        """
        if not reply.tool_calls:
            return
        if reply.content:
            self._trace.message("assistant", reply.content)
        calls = []
        for call in reply.tool_calls:
            call_id, (tool, arguments) = self._unique_id(call.id), self._policy.unwrap(call)
            is_offered = None if offered is None else call.name in offered
            served_id = None if self._served is None else self._served.find_called(call.name)
            written = _parse_arguments(call.raw)
            made = _Call(call.id, call_id, call.name, written, served_id or tool, self._trace.seconds, is_offered)
            made.is_served = served_id is not None
            calls.append(made)
            if tool != call.name:
                self._trace.event("wrapped_call", call_id=call_id, by=call.name, id=(call.arguments or {}).get("id"))
            if conversation is not None:
                self._trace.event("side_call", call_id=call_id, conversation=conversation)
            facts = {"agent_name": call.name} if made.is_served else {}
            if self._served is not None and self._served.has(made.tool):
                is_offered = None  # the run's own list of tools decides
            self._trace.tool_call(call_id, made.tool, arguments, call.raw, offered=is_offered, **facts)
        self._replies.append(_Reply(tuple(calls), _find_opening(messages)))

    def requested(self, messages: Messages, failed: str | None = None, turns: Sequence[str] = ()) -> None:
        """Add the results in these messages to the trace, for calls without a result. Errors begin with `failed`.

        A user message may be a result, unless it has the text of one of `turns`.
        """
        end, opening = len(self._replies), _find_opening(messages)
        results: list[tuple[_Call, str]] = []
        for message in itertools.islice(_call_messages(messages, turns), _MOST_LOOKED_AT):
            # Every request repeats the whole history, so the search ends once all earlier calls have results.
            if not any(reply.is_open for reply in self._replies[max(0, end - _MOST_LOOKED_AT) : end]):
                break
            place = self._place(message, opening, end)
            if place is not None:
                end = place
                # Results are found from the end and written in order of time.
                results[:0] = _take_results(message, self._replies[place])
        if not results and self._replies and self._replies[-1].opening == opening:
            results = _take_last_texts(messages, self._replies[-1], turns)
        for call, content in results:
            marked = failed is not None and content.startswith(failed)
            if failed is not None:
                content = content.removeprefix(failed)
            if call.served is not None:
                self._show(call.served, content)
                continue
            if call.is_served:
                self._note_unmade(call, content)
            self._trace.tool_result(
                call.call_id,
                call.tool,
                self._shorten(content),
                is_error=marked or call.is_served or self._policy.is_error(content, call.name),
                # The agent has no such tool or did not make the call, so the result is its rejection
                refused=call.is_served or call.offered is False,
                # Observed between two requests, so it includes the agent's own work
                duration_seconds=self._trace.seconds - call.at,
            )

    def begin_served(self, tool: str, arguments: dict[str, Any] | None, ids: Collection[str]) -> ServedCall:
        """Record a call at the MCP endpoint, and return it.

        It is the call of the model with one of these ids, else the oldest one of the same tool with equal arguments
        that no other call has answered. Without such a call the agent has made it by itself.
        """
        candidates = [call for reply in self._replies for call in reply.calls if self._may_be(call, tool)]
        made = next((call for call in candidates if call.sent_id in ids), None)
        if made is None:
            made = next((call for call in candidates if (call.arguments or {}) == (arguments or {})), None)
        if made is None:
            call_id = self._unique_id(f"mcp_{len(self._ids) + 1}")
            self._trace.tool_call(call_id, tool, arguments, recorded_by="mcp", asked_by_model=False)
            return ServedCall(call_id, tool)
        self._trace.amend(
            ToolCallEvent, made.call_id, name=tool, agent_name=made.name, arguments=arguments, recorded_by="mcp"
        )
        made.served = ServedCall(made.call_id, tool)
        return made.served

    def end_served(self, call: ServedCall, output: ToolOutput) -> None:
        """Record the result of a call at the MCP endpoint."""
        call.result = output.content
        self._trace.tool_result(
            call.call_id,
            call.tool,
            self._shorten(output.content),
            is_error=output.is_error,
            broken=output.broken,
            refused=output.refused,
            duration_seconds=output.seconds,
            shown=call.shown,
        )

    def give_up(self, call: ServedCall) -> None:
        """Record once that the agent does not wait for the result of a call at the MCP endpoint."""
        if not call.given_up:
            call.given_up = True
            self._trace.event("agent_gave_up", call_id=call.call_id)

    def end_turn(self) -> None:
        """Mark the calls of served tools that the agent has not made."""
        for reply in self._replies:
            for call in reply.calls:
                if call.is_served and call.served is None and call.is_open:
                    call.is_open = False
                    self._note_unmade(call, "the agent's turn ended before it made the call")

    def _may_be(self, call: _Call, tool: str) -> bool:
        """Return whether the model's call may be the one that arrives at the endpoint for this tool."""
        if call.served is not None or not call.is_open:
            return False
        if call.is_served:
            return call.tool == tool
        return self._served is not None and self._served.may_call(call.name, tool)

    def _show(self, call: ServedCall, content: str) -> None:
        """Keep the text that a request shows as the result of a call at the endpoint, if it is another one."""
        if call.result is None:
            call.shown = self._shorten(content)
            self.give_up(call)
        elif content != call.result:
            self._trace.amend(ToolResultEvent, call.call_id, shown=self._shorten(content))

    def _note_unmade(self, call: _Call, reason: str) -> None:
        assert self._served is not None
        if not self._served.has(call.tool):
            reason = f"the run has no tool {call.tool!r}"
        self._trace.amend(ToolCallEvent, call.call_id, executed=False, reason=reason[:_MOST_OF_A_REASON])

    def _place(self, message: _CallMessage, opening: str, end: int) -> int | None:
        """Return the index, below `end`, of the reply that the message repeats, or None."""
        ids, names, arguments = (list(column) for column in zip(*message.calls, strict=True))
        best: tuple[bool, bool, bool] | None = None
        at = None
        for place in range(end - 1, max(0, end - _MOST_LOOKED_AT) - 1, -1):
            reply = self._replies[place]
            if [call.name for call in reply.calls] != names:
                continue
            same_ids = [call.sent_id for call in reply.calls] == ids
            same_arguments = [call.arguments for call in reply.calls] == arguments
            likeness = (same_ids, same_arguments, reply.opening == opening)
            # Without equal ids or arguments, only a reply whose results are missing can match
            if (same_ids or same_arguments or reply.is_open) and (best is None or likeness > best):
                best, at = likeness, place
            if likeness == (True, True, True):
                break
        return at

    def _shorten(self, content: str) -> str:
        """Return the part of a result that the trace has room for."""
        part = content[: self._room]
        self._room -= len(part)
        if len(part) == len(content):
            return part
        return f"{part}[{len(content) - len(part):,} more characters]"

    def _unique_id(self, call_id: str) -> str:
        """Return the id, with a number appended if an earlier call has the same id."""
        # Some models number their calls from 0 in every reply, so `call_0` is not unique in a run
        candidate, number = call_id, 1
        while candidate in self._ids:
            number += 1
            candidate = f"{call_id}-{number}"
        self._ids.add(candidate)
        return candidate


def _call_messages(messages: Messages, turns: Sequence[str]) -> Iterator[_CallMessage]:
    """Yield the messages with tool calls and their results, the last one first."""
    results: list[tuple[str, str]] = []
    texts: list[str] = []
    for message in reversed(messages):
        role = message.get("role")
        if role == "tool":
            results.append((str(message.get("tool_call_id")), message_text(message)))
        elif role == "user" and _find_turn(message, turns, ()) is None:
            texts.append(message_text(message))
        elif role == "assistant":
            sent = message.get("tool_calls")
            if isinstance(sent, list) and (calls := [call for call in map(_parse_call, sent) if call is not None]):
                yield _CallMessage(calls, results[::-1], texts[::-1])
            results, texts = [], []


def _parse_call(call: object) -> tuple[str, str, Any] | None:
    """Return the id, name and arguments of a function call in a request, or None for anything else."""
    if not isinstance(call, Mapping) or not isinstance(function := call.get("function"), Mapping):
        return None
    return str(call.get("id")), str(function.get("name")), _parse_arguments(function.get("arguments"))


def _take_results(message: _CallMessage, reply: _Reply) -> list[tuple[_Call, str]]:
    """Return the reply's calls without a result, each with its result in the message: matched by id, else in order."""
    waiting = {number: call_id for number, (call_id, _, _) in enumerate(message.calls)}
    contents: dict[int, str] = {}
    for result_id, content in message.results:
        number = next((number for number, call_id in waiting.items() if call_id == result_id), None)
        if number is None:
            number = next(iter(waiting), None)
        if number is not None:
            del waiting[number]
            contents[number] = content
    if not message.results:
        contents = _match_texts(list(waiting.values()), message.texts)
    new = [
        (reply.calls[number], content) for number, content in sorted(contents.items()) if reply.calls[number].is_open
    ]
    for call, _ in new:
        call.is_open = False
    return new


def _take_last_texts(messages: Messages, reply: _Reply, turns: Sequence[str]) -> list[tuple[_Call, str]]:
    """Return the reply's open calls with the user messages at the end of a request that shows no calls."""
    texts: list[str] = []
    for message in itertools.takewhile(lambda message: message.get("role") == "user", reversed(messages)):
        if _find_turn(message, turns, ()) is None:
            texts.insert(0, message_text(message))
    if not turns or not all(call.is_open for call in reply.calls):
        return []
    contents = _match_texts([call.sent_id for call in reply.calls], texts)
    taken = [(reply.calls[number], content) for number, content in sorted(contents.items())]
    for call, _ in taken:
        call.is_open = False
    return taken


def _match_texts(call_ids: Sequence[str], texts: Sequence[str]) -> dict[int, str]:
    """Return the texts by the numbers of their calls: by the ids that they contain, else in order if they are as many
    as the calls.
    """
    by_id = {number: text for number, call_id in enumerate(call_ids) for text in texts if call_id in text}
    if by_id or len(texts) != len(call_ids):
        return by_id
    return dict(enumerate(texts))


def _parse_arguments(arguments: object) -> Any:
    """Return the arguments parsed as JSON, so that spaces do not matter.

    Arguments that are not JSON, or nest too deeply, are returned unchanged.
    """
    value = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
    if is_deep(value):
        return arguments
    return value


def _find_opening(messages: Messages) -> str:
    return next((message_text(message) for message in messages if message.get("role") == "user"), "")
