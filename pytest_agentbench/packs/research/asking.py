"""Ask a model for one part of one row's score: its request, its reply in pieces, and the stored replies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from pytest_agentbench.config.prompt_files import PromptTexts
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.judging.asking import JudgeReply, Send, ask, chat_sender, numbered_options, request_key
from pytest_agentbench.models.metering import metered
from pytest_agentbench.models.prompts import Block, compute_boundary, fill_prompt, render_parts
from pytest_agentbench.models.replies import (
    InvalidReply,
    ReplyPart,
    make_invalid_reply,
    read_json_object,
    validate_form,
)
from pytest_agentbench.packs.research.records import Language, RaceDimension
from pytest_agentbench.store.judgements import KeptReply

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient
    from pytest_agentbench.models.ledger import Ledger
    from pytest_agentbench.records.case import Model
    from pytest_agentbench.secrets.redaction import Redactor
    from pytest_agentbench.store.judgements import Judgements


@dataclass(frozen=True, slots=True)
class Wording:
    """Prompts in one language: for each question the task, followed by the form of the reply.

    `{...}` are placeholders. `labels` are titles of blocks of untrusted text. `dimensions` explain RACE's dimensions,
    `query_dimensions` the scores 1 and 5 of the seven by which queries are selected, by letter.
    """

    role: str
    how_to_read: str
    labels: Mapping[str, str]
    dimensions: Mapping[RaceDimension, str]
    query_dimensions: Mapping[str, str]
    select: str
    weigh: str
    criteria: str
    clean: str
    race_pairwise: str
    race_pointwise: str
    extract: str
    deduplicate: str
    validate: str
    strategic: str
    knowledge: str
    reuse: str


def read_texts(name: str) -> dict[str, Any]:
    """Return the texts of a file of `texts/`, package data that translators can edit without reading Python."""
    text = files(__package__).joinpath("texts", f"{name}.yaml").read_text("utf-8")
    texts: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)  # ours, and quicker than safe_load
    return texts


# Also part of the fingerprints of graded items: a changed text with the old version would leave stored scores
# valid.
PROMPT_VERSION = "1"
"""Part of every stored reply's identity: raise it if a wording, an order or the shown material changes."""

WORDINGS: dict[Language, Wording] = {
    "en": Wording(**read_texts("english")),
    "zh": Wording(**read_texts("chinese")),
}
"""By the language of the query."""


def stage_messages(language: Language, task: str, **material: str) -> list[dict[str, str]]:
    """Return a system and a user message. `material` is by the names of the wording's labels, in their order."""
    blocks, boundary, how_to_read = _delimit(language, material)
    return [
        {"role": "system", "content": f"{WORDINGS[language].role}\n\n{how_to_read}"},
        {"role": "user", "content": f"{render_parts(blocks.values(), boundary)}\n\n{task}"},
    ]


def _delimit(language: Language, material: Mapping[str, str]) -> tuple[dict[str, Block], str, str]:
    """Return the material as blocks, their boundary, and the text that explains them."""
    wording = WORDINGS[language]
    blocks = {name: Block(wording.labels[name], text) for name, text in material.items()}
    # Computed from the material, which therefore cannot contain it: no report can end its own block.
    boundary = compute_boundary([*blocks.values()])
    return blocks, boundary, wording.how_to_read.replace("{boundary}", boundary)


P = TypeVar("P", bound=ReplyPart)

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}


def object_schema(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object with these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def list_schema(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a list of such objects."""
    return {"type": "array", "items": object_schema(**properties)}


def parse_objects(text: str, names: Iterable[str], form: type[P]) -> dict[str, P]:
    """Return the reply's object of each name, as a `form`.

    Raises InvalidReply with all that is wrong with any of them.
    """
    reply = read_json_object(text)
    objects: dict[str, P] = {}
    problems: list[str] = []
    for name in names:
        if not isinstance(reply.get(name), dict):
            problems.append(f"{name}: missing, expected an object with reason and score")
            continue
        try:
            objects[name] = validate_form(reply[name], form)
        except InvalidReply as error:
            problems += [f"{name}.{problem}" for problem in error.problems]
    if problems:
        raise make_invalid_reply(problems)
    return objects


T = TypeVar("T")

REQUEST_SECONDS = 300.0
"""Seconds of one request: reports are long, and so are replies about them."""
_CUT = (
    "the reply was cut off at the model's limit of tokens; raise its max_tokens (parameters in models.yaml), or "
    "choose a judge with a higher limit"
)


class Unscored(AgentbenchError):
    """Error of a row without a score: the model gave none, or none that keeps the form."""


class ReplyCut(Unscored):
    """Error of a reply that was cut off at the model's limit: less has to be asked at once."""


class Asking:
    """One model that judges rows, its earlier replies, and its cost.

    `kept` None: replies are not stored, for example if a cassette does it. Secrets are removed from requests, unless
    `redactor` is None. If stored replies are to be replaced, `anew` contains the keys of the replies stored since: only
    these count. `options` are further fields of each request, which takes at most `request_seconds`. `prompts` replace
    ours.
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
        prompts: PromptTexts | None = None,
    ) -> None:
        self._prompts = prompts
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

    def messages(
        self,
        language: Language,
        prompt: str,
        material: Mapping[str, str],
        values: Mapping[str, object] = MappingProxyType({}),
    ) -> list[dict[str, str]]:
        """Return the messages of a question by the prompt of that name (prompts.py): a replaced one, else ours.

        `values` are our own texts and numbers.
        """
        if self._prompts is None or (text := self._prompts.find(prompt, language)) is None:
            return stage_messages(language, getattr(WORDINGS[language], prompt).format(**values), **material)
        blocks, boundary, how_to_read = _delimit(language, material)
        user = fill_prompt(text, values, {name: [block] for name, block in blocks.items()}, boundary)
        # Without our role, as the prompt has its own. The explanation of blocks is always added.
        return [{"role": "system", "content": how_to_read}, {"role": "user", "content": user}]

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
        """Return the result of `parse` on the reply; a refused one (InvalidReply) is asked for again, with its
        mistakes.

        `version` identifies the prompt and the parser of its reply, `draw` the number of one of several answers to the
        same question, `request` that of one of several questions, by which scripts answer each (default: `draw`).
        Raises Unscored; ReplyCut at once if the reply was cut off, as the next one would be: callers that can ask for
        less set `divisible`. The valid reply is stored, so a later call repeats only failed requests.
        """
        # Only scripts see the number; draws of a paid model are distinguished by their storage key.
        options = numbered_options(self._client, self._options, request or draw)
        send_request = chat_sender(self._client, case_id, response_format, options, self._request_seconds)
        # A script is free and may be edited: nothing of it is kept.
        judgements = None if self._client.model.scripted else self._kept
        # Redacted before the key is computed: a key that depended on a secret would differ after the secret
        # changes.
        question = messages if self._redactor is None else self._redactor.value(messages)
        key = request_key(version, self._client.model, question, draw, stage=stage, options=self._options)
        stored_reply = await self._known(judgements, key)
        # All replies to this question; the first may be a stored one, further ones answer to the mistakes before.
        replies: list[KeptReply] = []
        stopped: str | None = None

        def cut() -> bool:
            return bool(replies) and replies[-1].finish_reason == "length"

        async def send(conversation: Sequence[dict[str, str]]) -> JudgeReply:
            nonlocal stopped
            # The model would get its mistakes and answer at the same length: each attempt would be paid for,
            # and cut again.
            if cut():
                raise ReplyCut(_CUT)
            if stored_reply is not None and not replies:
                replies.append(stored_reply)
            # Before each request and not before each row: one row may ask a dozen times.
            elif (stopped := self._ledger.used_up()) is not None:
                raise Unscored(stopped)
            else:
                replies.append(await self._reply(stage, send_request, conversation))
            return JudgeReply(replies[-1].content, finish_reason=replies[-1].finish_reason)

        outcome = await ask(send, question, parse)
        # A cut reply counts too where halves follow: a later call goes on with these, without asking for the whole.
        counts = outcome.verdict is not None or (divisible and cut())
        if judgements is not None and counts and replies[-1] is not stored_reply:
            judgements.keep(key, self.model, replies[-1])
            if self._anew is not None:
                self._anew.add(key)
        if outcome.verdict is None:
            raise ReplyCut(_CUT) if cut() else Unscored(stopped or str(outcome.error))
        return outcome.verdict

    async def _reply(self, stage: str, send: Send, conversation: Sequence[dict[str, str]]) -> KeptReply:
        async with metered(partial(self._ledger.book, stage)):
            reply = await send(conversation)
        self._ledger.book(stage, reply.usage)
        content = reply.content or ""
        redacted = content if self._redactor is None else self._redactor.text(content)
        return KeptReply(content=redacted, finish_reason=reply.finish_reason)

    async def _known(self, judgements: Judgements | None, key: str) -> KeptReply | None:
        """Return the reply that is kept here, or in the store that other machines share."""
        # With --agentbench-rejudge replies from before the session do not count, but replies of this session
        # to the same question do.
        if judgements is None or (self._anew is not None and key not in self._anew):
            return None
        if (reply := judgements.find_reply(key)) is None and judgements.remote is not None:
            await judgements.pull(key)
            reply = judgements.find_reply(key)
        return reply


S = TypeVar("S")
R = TypeVar("R")


async def gather_all(*parts: Awaitable[R]) -> list[R]:
    """Return the results of all awaitables, which run concurrently.

    The first failure is raised after the others have ended and their replies are stored.
    """
    # Not a TaskGroup, which cancels the others: their replies are paid for already, and kept once they have come.
    results = await asyncio.gather(*parts, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


async def ask_by_halves(piece: str, smallest: int, answer: Callable[[str], Awaitable[R]]) -> list[tuple[str, R]]:
    """Return the text, or the pieces for which replies are not cut off, in order, each with its answer.

    Raises ReplyCut if one of fewer than twice `smallest` characters is still too long.
    """
    try:
        return [(piece, await answer(piece))]
    except ReplyCut:
        if len(piece) < 2 * smallest:
            raise
    first, second = await gather_all(*(ask_by_halves(half, smallest, answer) for half in split_text(piece)))
    return first + second


async def ask_list_by_halves(items: list[S], smallest: int, answer: Callable[[list[S]], Awaitable[list[R]]]) -> list[R]:
    """Return the answers to a list's parts, concatenated; parts are halved as in `ask_by_halves`."""
    try:
        return await answer(items)
    except ReplyCut:
        if len(items) < 2 * smallest:
            raise
    middle = len(items) // 2
    parts = (ask_list_by_halves(half, smallest, answer) for half in (items[:middle], items[middle:]))
    first, second = await gather_all(*parts)
    return first + second


def split_text(text: str) -> tuple[str, str]:
    """Return both halves, cut near the middle behind a paragraph, else a line, else a sentence; else in the middle."""
    middle = len(text) // 2
    for end in ("\n\n", "\n", "。", ". "):
        # Within the middle half, so that neither half is so small that the other one is cut off again.
        at = max(text.rfind(end, middle // 2, middle), 0) or text.find(end, middle, middle * 3 // 2)
        if at > 0:
            return text[: at + len(end)], text[at + len(end) :]
    return text[:middle], text[middle:]
