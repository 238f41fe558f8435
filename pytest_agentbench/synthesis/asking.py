"""Asks the model at each stage, unless its reply is kept, and keeps what it says at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.errors import AgentbenchError, UnwritableError
from pytest_agentbench.judging import JudgeReply, ask, chat_sender
from pytest_agentbench.store import Redactor
from pytest_agentbench.synthesis.drafts import Drafts, Place

if TYPE_CHECKING:
    from pytest_agentbench.models import ChatClient, Ledger

CASE_ID = "mcp-synthesize"
"""By which scripted models know these requests."""

T = TypeVar("T")


class Unusable(AgentbenchError):
    """The model's replies did not keep the form that was asked for."""


class Unanswered(AgentbenchError):
    """The model cannot be asked, or not any more: the task has to wait for the next call."""


class Asking:
    """One model, the replies it gave before, and what it costs. Secrets are redacted from what it is sent and says.

    `stopped` says why nothing more is asked.
    """

    def __init__(self, client: ChatClient, drafts: Drafts, ledger: Ledger, redactor: Redactor) -> None:
        self.stopped: str | None = None
        self._client, self._drafts, self._ledger, self._redactor = client, drafts, ledger, redactor

    async def __call__(
        self,
        place: Place,
        messages: Sequence[dict[str, str]],
        response_format: Mapping[str, Any] | None,
        parse: Callable[[str], T],
    ) -> T:
        """What `parse` makes of the reply; a reply that it refuses is asked for again, with what was wrong.

        Raises Unusable after the last of them, and Unanswered where the model gives none or the budget is used up.
        """
        send_request = chat_sender(self._client, CASE_ID, response_format, {})
        numbers = itertools.count(1)

        async def send(conversation: Sequence[dict[str, str]]) -> JudgeReply:
            number = next(numbers)
            if (kept := self._drafts.reply(place, number)) is not None:
                return kept
            self._may_ask()
            reply = await send_request(conversation)
            self._ledger.book(place.stage, reply.usage)
            shown = JudgeReply(self._redactor.text(reply.content or ""), reply.usage, reply.finish_reason)
            self._keep(place, number, shown)
            return shown

        asked = await ask(send, self._redactor.value(messages), parse)
        if asked.verdict is not None:
            return asked.verdict
        if asked.status == "invalid_output":
            raise Unusable(str(asked.error))
        raise Unanswered(self.stopped or str(asked.error))

    def _may_ask(self) -> None:
        self.stopped = self.stopped or self._ledger.used_up()
        if self.stopped is not None:
            raise Unanswered(self.stopped)

    def _keep(self, place: Place, number: int, reply: JudgeReply) -> None:
        try:
            self._drafts.keep_reply(place, number, reply.content or "", reply.usage)
        except UnwritableError as error:
            self.stopped = str(error)
            raise
