"""File next to the tasks with every paid reply, and requests to the model for replies that are not in it.

One JSON object a line, appended immediately, so that a killed process loses only the replies that it waits
for. Kinds of lines: `reply` (task_id, draft, stage, request, content, usage) and `verdict` (task_id, draft, the texts,
scores and reasons; no reasons if the draft was accepted). Both name the model and the language: drafts of other models
do not count. A truncated or unknown line is skipped.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from pydantic import ValidationError

from pytest_agentbench.bounded.files import MAX_DOCUMENT, plain_size
from pytest_agentbench.errors import AgentbenchError, ConfigError, UnwritableError
from pytest_agentbench.judging.asking import JudgeReply, ask, chat_sender
from pytest_agentbench.models.metering import metered
from pytest_agentbench.packs.mcp_bench.synthesis.base import Language, Stage, Verdict
from pytest_agentbench.records.run import Usage
from pytest_agentbench.secrets.redaction import Redactor

if TYPE_CHECKING:
    from pytest_agentbench.models.client import ChatClient
    from pytest_agentbench.models.ledger import Ledger


DRAFTS_SUFFIX = ".drafts.jsonl"


class Place(NamedTuple):
    """A stage of a draft. Drafts of a task are numbered from 1."""

    task_id: str
    draft: int
    stage: Stage


class Drafts:
    """One model's drafts of the tasks of one file: its replies and their verdicts. Make it by `open`."""

    def __init__(
        self,
        path: Path,
        descriptor: int,
        model_id: str,
        language: Language,
        redactor: Redactor,
        prompts: str | None = None,
    ) -> None:
        self.path = path
        self._descriptor = descriptor
        self._author = {"model": model_id, "language": language}
        if prompts is not None:
            self._author["prompts"] = prompts
        self._redactor = redactor
        self._replies: dict[tuple[Place, int], JudgeReply] = {}
        self._verdicts: dict[tuple[str, int], Verdict] = {}

    @classmethod
    @contextmanager
    def open(
        cls, path: Path, model_id: str, language: Language, redactor: Redactor, prompts: str | None = None
    ) -> Iterator[Self]:
        """Open the file of drafts, creating it if it does not exist. Secrets are removed from stored lines.

        `prompts` is the digest of replaced prompts: drafts of other prompts do not count.

        :raises ConfigError: another process has the file open.
        :raises UnwritableError: the file cannot be written.
        """
        from filelock import lock_descriptor

        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # The descriptor stays open until the end, because it holds the lock; O_APPEND keeps earlier lines.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            if not lock_descriptor(descriptor, blocking=False):
                raise ConfigError(f"{path}: another process makes tasks for this file; wait until it is done")
            drafts = cls(path, descriptor, model_id, language, redactor, prompts)
            drafts._load()
            yield drafts
        finally:
            os.close(descriptor)  # this also releases the lock

    def reply(self, place: Place, request: int) -> JudgeReply | None:
        """Return the reply to the `request`-th request (from 1) at this stage, or None if it was never answered."""
        return self._replies.get((place, request))

    def keep_reply(self, place: Place, request: int, content: str, usage: Usage) -> None:
        """Store a reply. Raises UnwritableError."""
        used = usage.model_dump(include={"input_tokens", "output_tokens", "cost_usd"})
        self._append({"kind": "reply", **place._asdict(), "request": request, "content": content, "usage": used})

    def verdict(self, task_id: str, draft: int) -> Verdict | None:
        """Return the verdict on a draft, or None if it has not ended."""
        return self._verdicts.get((task_id, draft))

    def keep_verdict(self, task_id: str, draft: int, verdict: Verdict) -> None:
        """Store the verdict on a draft; it replaces an earlier one. Raises UnwritableError."""
        self._verdicts[task_id, draft] = verdict
        ended = verdict.model_dump(mode="json", exclude_none=True)
        self._append({"kind": "verdict", "task_id": task_id, "draft": draft, "accepted": verdict.accepted, **ended})

    def _append(self, line: Mapping[str, Any]) -> None:
        redacted = self._redactor.value({**line, **self._author})
        # A reply may contain half of a surrogate pair, which cannot be encoded.
        data = (json.dumps(redacted, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        try:
            # A write may be partial, if a signal arrives or the disk is nearly full.
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _load(self) -> None:
        plain_size(self._descriptor, self.path, MAX_DOCUMENT)
        with open(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            content = file.read()
        if content and not content.endswith(b"\n"):  # a process was killed while it wrote
            os.write(self._descriptor, b"\n")
        for text in content.split(b"\n"):
            try:
                line = json.loads(text)
                # Lines of other models and languages stay in the file: they are paid for, and may be used again.
                author = {name: line.get(name) for name in ("model", "language", "prompts") if name in line}
                if author == self._author:
                    self._read_line(line)
            except (ValueError, KeyError, TypeError, RecursionError, ValidationError):
                continue

    def _read_line(self, line: dict[str, Any]) -> None:
        if line["kind"] == "reply":
            place = Place(line["task_id"], line["draft"], line["stage"])
            self._replies[place, line["request"]] = JudgeReply(str(line["content"]))
        elif line["kind"] == "verdict":
            fields = {name: line[name] for name in Verdict.model_fields if name in line}
            self._verdicts[line["task_id"], line["draft"]] = Verdict.model_validate(fields)


def _unwritable(path: Path, error: OSError) -> UnwritableError:
    return UnwritableError(f"{path}: cannot be written: {error.strerror or error}; earlier drafts are kept")


CASE_ID = "mcp-synthesize"
"""Case id of these requests for scripted models."""

T = TypeVar("T")


class UnusableReplyError(AgentbenchError):
    """The model's replies did not have the requested form."""


class NoReplyError(AgentbenchError):
    """The model cannot be asked now: the task has to wait for the next call."""


class DraftWriter:
    """Send requests to one model, reuse its earlier replies, and book the cost.

    Secrets are removed from requests and replies. `stopped` is the reason to send no more requests, or None.
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
        """Ask, and return the result of `parse`; a refused reply is asked for again, with its mistakes.

        Raises UnusableReplyError after the last attempt, NoReplyError if the model gives no reply or the budget is used
        up.
        """
        send_request = chat_sender(self._client, CASE_ID, response_format, {})
        numbers = itertools.count(1)

        async def send(conversation: Sequence[dict[str, str]]) -> JudgeReply:
            number = next(numbers)
            # By place and number, not by the request's text: drafts are not paid for again when our prompts change.
            if (stored_reply := self._drafts.reply(place, number)) is not None:
                return stored_reply
            self._may_ask()
            async with metered(partial(self._ledger.book, place.stage)):
                reply = await send_request(conversation)
            # Booked before it is stored: paid replies count, even if the disk is full.
            self._ledger.book(place.stage, reply.usage)
            redacted = JudgeReply(self._redactor.text(reply.content or ""), reply.usage, reply.finish_reason)
            self._keep(place, number, redacted)
            return redacted

        answer = await ask(send, self._redactor.value(messages), parse)
        if answer.verdict is not None:
            return answer.verdict
        if answer.status == "invalid_output":
            raise UnusableReplyError(str(answer.error))
        raise NoReplyError(self.stopped or str(answer.error))

    def _may_ask(self) -> None:
        self.stopped = self.stopped or self._ledger.used_up()
        if self.stopped is not None:
            raise NoReplyError(self.stopped)

    def _keep(self, place: Place, number: int, reply: JudgeReply) -> None:
        try:
            self._drafts.keep_reply(place, number, reply.content or "", reply.usage)
        except UnwritableError as error:
            self.stopped = str(error)
            raise
