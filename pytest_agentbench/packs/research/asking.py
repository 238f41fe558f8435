"""Ask a model for one part of one row's score: its request, its reply in pieces, what is kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.judging.asking import JudgeReply, Send, ask, chat_sender, numbered_options, request_key
from pytest_agentbench.models.prompts import Block, compute_boundary, render_parts
from pytest_agentbench.models.replies import (
    InvalidReply,
    ReplyPart,
    make_invalid_reply,
    read_json_object,
    validate_form,
)
from pytest_agentbench.packs.research.records import Language
from pytest_agentbench.packs.research.wording import Wording, read_wording
from pytest_agentbench.store.judgements import KeptReply

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient
    from pytest_agentbench.models.pricing import Ledger
    from pytest_agentbench.records.case import Model
    from pytest_agentbench.store.judgements import Judgements
    from pytest_agentbench.store.redaction import Redactor


PROMPT_VERSION = "1"
"""Part of every kept reply's identity: raised when a wording, an order or what is shown changes."""

WORDINGS: dict[Language, Wording] = {"en": read_wording("en"), "zh": read_wording("zh")}
"""By the language of the query."""


def stage_messages(language: Language, task: str, **material: str) -> list[dict[str, str]]:
    """Return a system and a user message. `material` is by the names of the wording's labels, in their order."""
    wording = WORDINGS[language]
    blocks = [Block(wording.labels[name], text) for name, text in material.items()]
    boundary = compute_boundary(blocks)
    system = f"{wording.role}\n\n{wording.how_to_read.replace('{boundary}', boundary)}"
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": f"{render_parts(blocks, boundary)}\n\n{task}"},
    ]


P = TypeVar("P", bound=ReplyPart)

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}


def exactly(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object with these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def listed(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a list of such objects."""
    return {"type": "array", "items": exactly(**properties)}


def parts(text: str, names: Iterable[str], form: type[P]) -> dict[str, P]:
    """Return the reply's object of each name, as a `form`.

    Raises InvalidReply with all that is wrong with any of them.
    """
    found = read_json_object(text)
    read: dict[str, P] = {}
    problems: list[str] = []
    for name in names:
        if not isinstance(found.get(name), dict):
            problems.append(f"{name}: missing, expected an object with reason and score")
            continue
        try:
            read[name] = validate_form(found[name], form)
        except InvalidReply as error:
            problems += [f"{name}.{problem}" for problem in error.problems]
    if problems:
        raise make_invalid_reply(problems)
    return read


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
        """Return the judge's name in results."""
        return self.judge.requested_model

    @property
    def judge(self) -> Model:
        """Return the model that is asked."""
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
        """Return what `parse` makes of the reply; one that it refuses (InvalidReply) is asked for again, with what was
        wrong.

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
        """Return the reply that is kept here, or in the store that other machines share."""
        if self._anew is not None and key not in self._anew:
            return None
        if (found := kept.find_reply(key)) is None and kept.remote is not None:
            await kept.pull(key)
            found = kept.find_reply(key)
        return found


S = TypeVar("S")
R = TypeVar("R")


async def together(*parts: Awaitable[R]) -> list[R]:
    """Return what all of them give, side by side.

    The first failure is raised once the others have ended and are kept.
    """
    ended = await asyncio.gather(*parts, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            raise each
    return [each for each in ended if not isinstance(each, BaseException)]


async def by_halves(piece: str, smallest: int, answer: Callable[[str], Awaitable[R]]) -> list[tuple[str, R]]:
    """Return the text, or the pieces for which replies are not cut off, in order, each with its answer.

    Raises ReplyCut where one of fewer than twice `smallest` characters is still too long.
    """
    try:
        return [(piece, await answer(piece))]
    except ReplyCut:
        if len(piece) < 2 * smallest:
            raise
    first, second = await together(*(by_halves(half, smallest, answer) for half in halves(piece)))
    return first + second


async def listed_by_halves(items: list[S], smallest: int, answer: Callable[[list[S]], Awaitable[list[R]]]) -> list[R]:
    """Return the same of a list: the answers to its parts, one behind the other."""
    try:
        return await answer(items)
    except ReplyCut:
        if len(items) < 2 * smallest:
            raise
    middle = len(items) // 2
    parts = (listed_by_halves(half, smallest, answer) for half in (items[:middle], items[middle:]))
    first, second = await together(*parts)
    return first + second


def halves(text: str) -> tuple[str, str]:
    """At the end of a paragraph near the middle, else of a line, else of a sentence, else in the very middle."""
    middle = len(text) // 2
    for end in ("\n\n", "\n", "。", ". "):
        at = max(text.rfind(end, middle // 2, middle), 0) or text.find(end, middle, middle * 3 // 2)
        if at > 0:
            return text[: at + len(end)], text[at + len(end) :]
    return text[:middle], text[middle:]
