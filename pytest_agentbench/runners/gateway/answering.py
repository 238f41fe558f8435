"""Write answers of a gateway: streams as they begin, and what no model is asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_agentbench.models.completions import EVENT_STREAM
from pytest_agentbench.models.dialects.base import Asked, Dialect, RequestRefused
from pytest_agentbench.models.prompts import TokenCounter, message_text
from pytest_agentbench.models.replies import ChatReply
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.runners.gateway.policy import Helper

if TYPE_CHECKING:
    from starlette.types import Send


class ReplyStream:
    """A response of server-sent events, begun with the first: until then the request can still be refused."""

    # Not StreamingResponse: that sends its head before its first event is known.

    def __init__(self, send: Send, dialect: Dialect, asked: Asked) -> None:
        self._send, self._dialect, self._asked = send, dialect, asked
        self.begun = False

    async def keep_alive(self) -> None:
        """Tell that the model is still at work."""
        await self._write(self._dialect.keep_alive)

    async def finish(self, reply: ChatReply) -> None:
        """Send the reply and end."""
        for event in self._dialect.events(reply, self._asked):
            await self._write(event)
        await self._send({"type": "http.response.body", "body": b""})

    async def fail(self, refused: RequestRefused) -> None:
        """Send why there is no reply and end."""
        await self._write(self._dialect.error_events(refused.status, refused.code, str(refused)))
        await self._send({"type": "http.response.body", "body": b""})

    async def _write(self, event: bytes) -> None:
        if not self.begun:
            self.begun = True
            headers = [(name.encode(), value.encode()) for name, value in EVENT_STREAM.items()]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": event, "more_body": True})


def canned_reply(asked: Asked, helpers: Sequence[Helper], model: Model) -> ChatReply | None:
    """Return the answer to a request of the agent's own, None where it is the run's. It costs nothing."""
    if not helpers:
        return None
    system = "\n".join(message_text(each) for each in asked.messages if each.get("role") in ("system", "developer"))
    reply = next((reply for pattern, reply in helpers if pattern.search(system)), None)
    if reply is None:
        return None
    usage = Usage(input_tokens=0, output_tokens=0, total_tokens=0, cost_usd=0.0)
    message = {"role": "assistant", "content": reply}
    return ChatReply(reply, (), "stop", usage, model.requested_model, None, message, 1, 0.0)


def count_tokens(asked: Asked, counter: TokenCounter) -> int:
    """Return the tokens of a request: by the model's own tokenizer where it is here, else a quarter of its characters.

    Only its texts and tools count: what a provider adds between messages is its own.
    """
    texts = [message_text(message) for message in asked.messages]
    texts += [json.dumps(tool, ensure_ascii=False) for tool in asked.tools]
    text = "\n".join(texts)
    return counter.count(text) if counter.tokenizer is not None else -(-len(text) // _CHARACTERS_PER_TOKEN)


_CHARACTERS_PER_TOKEN = 4
