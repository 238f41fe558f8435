"""The trace of a stored run as a conversation: messages with the tool calls that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_agentbench.records.run import (
    FinalOutputEvent,
    MessageEvent,
    RunArtifact,
    RunnerEvent,
    ToolCallEvent,
    ToolResultEvent,
)

Author = Literal["case", "agent", "tool"]


@dataclass(frozen=True)
class Call:
    """A tool call. `arguments` is `{"raw": text}` if the text was no JSON object."""

    call_id: str
    name: str
    arguments: dict[str, Any]


@dataclass
class Message:
    """One message. `at` is in seconds since the run began; `finish_reason` is the provider's word, None if unknown.

    A tool's message has the answered `call`; `is_error` if it reports an error.
    """

    author: Author
    role: str
    content: str
    at: float
    finish_reason: str | None = None
    calls: list[Call] = field(default_factory=list)
    call: Call | None = None
    is_error: bool = False


@dataclass(frozen=True)
class Conversation:
    """All messages of a run. The first `prompt_length` of them were given to the agent before its first reply."""

    messages: Sequence[Message]
    prompt_length: int

    @property
    def prompt(self) -> Sequence[Message]:
        """Return the messages before the first reply of the agent."""
        return self.messages[: self.prompt_length]

    @property
    def answer(self) -> Message | None:
        """Return the last message of the agent, or None."""
        return next((message for message in reversed(self.messages) if message.author == "agent"), None)


def read_conversation(run: RunArtifact) -> Conversation:
    """Return the conversation of a run. A tool call belongs to the reply before it."""
    reader = _Reader()
    # Before a request, messages of the assistant are the case's; without requests they are the agent's.
    reader.in_prompt = any(isinstance(event, RunnerEvent) and event.name == "request" for event in run.trace)
    for event in run.trace:
        if isinstance(event, RunnerEvent):
            reader.read_runner_event(event)
        elif isinstance(event, MessageEvent):
            reader.read_message(event)
        elif isinstance(event, ToolCallEvent):
            reader.read_call(event)
        elif isinstance(event, ToolResultEvent):
            reader.read_result(event)
        else:
            reader.read_final_output(event)
    authors = [message.author for message in reader.messages]
    length = next((at for at, author in enumerate(authors) if author != "case"), len(authors))
    return Conversation(reader.messages, length)


class _Reader:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.in_prompt = False
        self._calls: dict[str, Call] = {}
        self._finish_reason: str | None = None

    def read_runner_event(self, event: RunnerEvent) -> None:
        if event.name == "request":
            self.in_prompt = False
        elif event.name == "reply":
            self._finish_reason = event.data.get("finish_reason")
        elif event.name == "reply_message" and isinstance(message := event.data.get("message"), dict):
            self._add_reply(_read_text(message.get("content")), event.at)

    def read_message(self, event: MessageEvent) -> None:
        if event.role == "assistant" and not self.in_prompt:
            self._add_text_of_agent(event.content, event.at)
        else:
            self.messages.append(Message("case", event.role, event.content, event.at))

    def read_call(self, event: ToolCallEvent) -> None:
        arguments = event.arguments
        if arguments is None:
            arguments = {"raw": event.raw or ""}
        call = self._calls[event.call_id] = Call(event.call_id, event.name, arguments)
        self._require_reply(event.at).calls.append(call)

    def read_result(self, event: ToolResultEvent) -> None:
        call = self._calls.get(event.call_id) or Call(event.call_id, event.name, {})
        self.messages.append(
            Message("tool", "tool", event.content, event.at, call=call, is_error=event.is_error or event.broken)
        )

    def read_final_output(self, event: FinalOutputEvent) -> None:
        self._add_text_of_agent(event.content, event.at)

    def _add_text_of_agent(self, text: str, at: float) -> None:
        """Add a message of the agent unless it repeats the reply before it."""
        last = self._last_reply()
        if last is None or (last.content and last.content != text) or last.calls:
            self._add_reply(text, at)
        else:
            last.content = text

    def _add_reply(self, text: str, at: float) -> None:
        self.messages.append(Message("agent", "assistant", text, at, self._finish_reason))
        self._finish_reason = None

    def _require_reply(self, at: float) -> Message:
        if (last := self._last_reply()) is not None:
            return last
        self._add_reply("", at)
        return self.messages[-1]

    def _last_reply(self) -> Message | None:
        """Return the last message if it is the agent's."""
        if self.messages and self.messages[-1].author == "agent":
            return self.messages[-1]
        return None


def _read_text(content: Any) -> str:
    """Return the text of a reply; parts of other kinds are left out."""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    if isinstance(content, str):
        return content
    return ""
