"""Responses of a gateway: streamed replies, canned replies, and token counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_agentbench.models.apis.base import AgentApi, Asked, RequestRefused
from pytest_agentbench.models.completions import EVENT_STREAM
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.passing import UsageFilter
from pytest_agentbench.models.prompts import TokenCounter, message_text
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.runners.gateway.policy import Helper

if TYPE_CHECKING:
    from starlette.types import Send


class ReplyStream:
    """A response in pieces. Its head is sent with the first piece: until then the request can be refused."""

    # Not StreamingResponse, which sends its head before its first event exists

    def __init__(self, send: Send, dialect: AgentApi, asked: Asked) -> None:
        self._send, self._dialect, self._asked = send, dialect, asked
        self.begun = self._gone = False
        self._last = b"\n\n"
        # The gateway requests the usage of every stream. A client that did not may fail at the additional event
        hides = dialect.name == "chat" and asked.stream and not asked.include_usage
        self._hidden = UsageFilter() if hides else None

    async def keep_alive(self) -> None:
        """Send a keep-alive event if the last piece ended an event."""
        if self._last.endswith(_BETWEEN_EVENTS):
            await self.write(self._dialect.keep_alive)

    async def finish(self, reply: ChatReply) -> None:
        """Send the reply and end."""
        # In one piece: the reply is complete, and a short piece costs as much as a long one
        await self.write(b"".join(self._dialect.events(reply, self._asked)))
        await self.end()

    async def fail(self, refused: RequestRefused) -> None:
        """Send the reason why there is no reply, and end.

        Raises ConnectionError if the response is not a stream: only a broken connection can report the failure.
        """
        if not self._asked.stream:
            raise ConnectionAbortedError("the reply broke off")
        await self.write(self._dialect.error_events(refused.status, refused.code, str(refused)))
        await self.end()

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Send the head of the response, unless it has gone."""
        if not self.begun:
            self.begun = True
            sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": sent})

    async def write(self, piece: bytes) -> None:
        """Send a piece of the response."""
        await self.begin(EVENT_STREAM)
        if piece:
            self._last = (self._last + piece)[-4:]
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def begin_passed(self, headers: Mapping[str, str]) -> None:
        """Send the head of an endpoint's own response; nothing if the agent has gone."""
        if not self._gone:
            try:
                await self.begin(headers)
            except ConnectionError:  # the reply is still read, for its usage
                self._gone = True

    async def pass_on(self, piece: bytes) -> None:
        """Send a piece of an endpoint's own response; nothing if the agent has gone."""
        if not self._gone:
            try:
                await self.write(piece if self._hidden is None else self._hidden.feed(piece))
            except ConnectionError:
                self._gone = True

    def hang_up(self) -> None:
        """Send nothing more of an endpoint's own response."""
        self._gone = True

    async def end_passed(self) -> None:
        """Send the rest of an endpoint's own response, and end."""
        if self._hidden is not None:
            await self.write(self._hidden.finish())
        await self.end()

    async def end(self) -> None:
        """Send the end of the response."""
        await self._send({"type": "http.response.body", "body": b""})


_BETWEEN_EVENTS = (b"\n\n", b"\r\n\r\n")


class LastText:
    """The model's last text in a turn.

    The main conversation has precedence. A program may begin another one for each turn, and offer no tools: then the
    requests with the turn's text and tools count, then those with the turn's text.
    """

    def __init__(self) -> None:
        self.text: str | None = None
        self._rank = (False, False, False)

    def add(self, reply: ChatReply, *, is_main: bool, offers_tools: bool, of_turn: bool) -> None:
        """Take the text of a reply, unless an earlier one has precedence."""
        rank = (is_main, of_turn, of_turn and offers_tools)
        if reply.content and reply.content.strip() and rank >= self._rank:
            self.text, self._rank = reply.content, rank


def canned_reply(asked: Asked, helpers: Sequence[Helper], model: Model) -> ChatReply | None:
    """Return the canned answer to an agent's internal request, or None for a request of the run. It costs nothing."""
    if not helpers:
        return None
    system = "\n".join(message_text(part) for part in asked.messages if part.get("role") in ("system", "developer"))
    reply = next((reply for pattern, reply in helpers if pattern.search(system)), None)
    if reply is None:
        return None
    usage = Usage(input_tokens=0, output_tokens=0, total_tokens=0, cost_usd=0.0)
    message = {"role": "assistant", "content": reply}
    return ChatReply(reply, (), "stop", usage, model.requested_model, None, message, 1, 0.0)


def count_tokens(asked: Asked, counter: TokenCounter) -> int:
    """Return the tokens of a request, by the model's tokenizer if it is installed, else a quarter of its characters.

    Only texts and tools count. The tokens that a provider adds between messages are unknown.
    """
    texts = [message_text(message) for message in asked.messages]
    texts += [json.dumps(tool, ensure_ascii=False) for tool in asked.tools]
    text = "\n".join(texts)
    if counter.tokenizer is not None:
        return counter.count(text)
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


_CHARACTERS_PER_TOKEN = 4
