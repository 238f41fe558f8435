"""Asks a model for one part of one row's score, unless its reply is kept, and keeps what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.judging import JudgeReply, Send, ask, chat_sender, numbered_options, request_key
from pytest_agentbench.store import KeptReply

if TYPE_CHECKING:
    from pytest_agentbench.models import ChatClient, Ledger
    from pytest_agentbench.store import Judgements, Redactor

T = TypeVar("T")

STAGES = (
    "select",
    "weights",
    "criteria",
    "clean",
    "race",
    "extract",
    "deduplicate",
    "validate",
    "strategic",
    "knowledge",
)
"""What models are asked for, in the order of the pipeline."""


class Unscored(AgentbenchError):
    """Why a row has no score: the model gave none, or none that keeps the form."""


class ReplyCut(Unscored):
    """The reply was cut off at the model's limit: less has to be asked at once."""


class Asking:
    """One model that judges rows, the replies it gave before, and what it costs.

    `kept` None: nothing is kept, as where a cassette does. Secrets are removed from what is sent. `stopped` says why
    nothing more is asked.
    """

    def __init__(self, client: ChatClient, kept: Judgements | None, ledger: Ledger, redactor: Redactor) -> None:
        self.stopped: str | None = None
        self._client, self._kept, self._ledger, self._redactor = client, kept, ledger, redactor

    @property
    def model(self) -> str:
        """The judge's name in results."""
        return self._client.model.requested_model

    async def __call__(
        self,
        stage: str,
        case_id: str,
        messages: Sequence[dict[str, str]],
        response_format: Mapping[str, Any] | None,
        parse: Callable[[str], T],
        *,
        version: str,
        draw: int = 1,
    ) -> T:
        """What `parse` makes of the reply; one that it refuses (InvalidReply) is asked for again, with what was wrong.

        `version` is that of the prompt and of how replies are read, `draw` the number of one of several answers to the
        same question. Raises Unscored; ReplyCut at once where the reply was cut off, as the next one would be.
        """
        options = numbered_options(self._client, {}, draw)
        send_request = chat_sender(self._client, case_id, response_format, options)
        kept = None if self._client.model.scripted else self._kept
        cut = False

        async def send(conversation: Sequence[dict[str, str]]) -> JudgeReply:
            nonlocal cut
            if cut:
                raise ReplyCut("the reply was cut off at the model's limit of tokens")
            key = request_key(version, self._client.model, conversation, draw, stage=stage)
            found = kept.find_reply(key) if kept is not None else None
            if found is None:
                found = await self._reply(stage, send_request, conversation)
                if kept is not None:
                    kept.keep(key, self.model, found)
            cut = found.finish_reason == "length"
            return JudgeReply(found.content, finish_reason=found.finish_reason)

        asked = await ask(send, self._redactor.value(messages), parse)
        if asked.verdict is None:
            raise (ReplyCut if cut else Unscored)(self.stopped or str(asked.error))
        return asked.verdict

    async def _reply(self, stage: str, send: Send, conversation: Sequence[dict[str, str]]) -> KeptReply:
        self.stopped = self.stopped or self._ledger.used_up()
        if self.stopped is not None:
            raise Unscored(self.stopped)
        reply = await send(conversation)
        self._ledger.book(stage, reply.usage)
        return KeptReply(content=self._redactor.text(reply.content or ""), finish_reason=reply.finish_reason)
