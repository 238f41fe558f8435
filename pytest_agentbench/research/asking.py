"""Asks a model for one part of one row's score, unless its reply is kept, and keeps what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.judging import JudgeReply, Send, ask, chat_sender, numbered_options, request_key
from pytest_agentbench.store import KeptReply

if TYPE_CHECKING:
    from pytest_agentbench.models import ChatClient, Ledger
    from pytest_agentbench.records import Model
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
    "reuse",
)
"""What models are asked for, in the order of the pipeline."""

REQUEST_SECONDS = 300.0
"""How long one request may take: reports are long, and so is what is said of them."""
_CUT = (
    "the reply was cut off at the model's limit of tokens; raise its max_tokens (parameters in models.yaml), or take "
    "a judge that may say more"
)


class Unscored(AgentbenchError):
    """Why a row has no score: the model gave none, or none that keeps the form."""


class ReplyCut(Unscored):
    """The reply was cut off at the model's limit: less has to be asked at once."""


class Asking:
    """One model that judges rows, the replies it gave before, and what it costs.

    `kept` None: nothing is kept, as where a cassette does. Secrets are removed from what is sent, unless `redactor` is
    None. Where what is kept is to be asked anew, `anew` holds the keys of what was since: only that counts. `options`
    are further fields of each request, which takes at most `request_seconds`.
    """

    def __init__(
        self,
        client: ChatClient,
        kept: Judgements | None,
        ledger: Ledger,
        redactor: Redactor | None,
        anew: set[str] | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._options, self._request_seconds = dict(options or {}), request_seconds
        self._client, self._kept, self._ledger, self._redactor, self._anew = client, kept, ledger, redactor, anew

    @property
    def model(self) -> str:
        """The judge's name in results."""
        return self.judge.requested_model

    @property
    def judge(self) -> Model:
        """The model that is asked."""
        return self._client.model

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
        request: int | None = None,
        divisible: bool = False,
    ) -> T:
        """What `parse` makes of the reply; one that it refuses (InvalidReply) is asked for again, with what was wrong.

        `version` is that of the prompt and of how replies are read, `draw` the number of one of several answers to the
        same question, `request` that of one of several questions, by which scripts answer each (default: `draw`).
        Raises Unscored; ReplyCut at once where the reply was cut off, as the next one would be: whoever asks for less
        then says `divisible`. The reply that counts is kept, so that a later call takes up only what failed.
        """
        options = numbered_options(self._client, self._options, request or draw)
        send_request = chat_sender(self._client, case_id, response_format, options, self._request_seconds)
        kept = None if self._client.model.scripted else self._kept
        question = messages if self._redactor is None else self._redactor.value(messages)
        key = request_key(version, self._client.model, question, draw, stage=stage, options=self._options)
        known = await self._known(kept, key) if kept is not None else None
        replies: list[KeptReply] = []
        stopped: str | None = None

        def cut() -> bool:
            return bool(replies) and replies[-1].finish_reason == "length"

        async def send(conversation: Sequence[dict[str, str]]) -> JudgeReply:
            nonlocal stopped
            if cut():
                raise ReplyCut(_CUT)
            if known is not None and not replies:
                replies.append(known)
            elif (stopped := self._ledger.used_up()) is not None:
                raise Unscored(stopped)
            else:
                replies.append(await self._reply(stage, send_request, conversation))
            return JudgeReply(replies[-1].content, finish_reason=replies[-1].finish_reason)

        asked = await ask(send, question, parse)
        counts = asked.verdict is not None or (divisible and cut())
        if kept is not None and counts and replies[-1] is not known:
            kept.keep(key, self.model, replies[-1])
            if self._anew is not None:
                self._anew.add(key)
        if asked.verdict is None:
            raise ReplyCut(_CUT) if cut() else Unscored(stopped or str(asked.error))
        return asked.verdict

    async def _reply(self, stage: str, send: Send, conversation: Sequence[dict[str, str]]) -> KeptReply:
        reply = await send(conversation)
        self._ledger.book(stage, reply.usage)
        content = reply.content or ""
        shown = content if self._redactor is None else self._redactor.text(content)
        return KeptReply(content=shown, finish_reason=reply.finish_reason)

    async def _known(self, kept: Judgements, key: str) -> KeptReply | None:
        """The reply that is kept here, or in the store that other machines share."""
        if self._anew is not None and key not in self._anew:
            return None
        if (found := kept.find_reply(key)) is None and kept.remote is not None:
            await kept.pull(key)
            found = kept.find_reply(key)
        return found
