"""A judge of research reports on loopback, asked as stages ask one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.failures import Backoff
from pytest_agentbench.models.ledger import Ledger
from pytest_agentbench.packs.research.asking import Asking
from pytest_agentbench.packs.research.stages import QUESTIONS
from pytest_agentbench.records.case import Model
from pytest_agentbench.secrets.redaction import Redactor
from pytest_agentbench.store.judgements import Judgements

T = TypeVar("T")


class Judge:
    """Gives `replies` in their order, the last one again: JSON, texts, messages with a finish_reason, or what
    a function makes of the request.

    With `kept` its replies are kept in that folder. `settings` are those of the model.
    """

    def __init__(
        self, *replies: Any, kept: Path | None = None, environ: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        self.replies, self.kept, self.settings = list(replies), kept, settings
        self.redactor = Redactor(environ or {})
        self.ledger = Ledger(QUESTIONS)
        self._endpoint = FaultEndpoint(answer=self._answer)

    def __enter__(self) -> Judge:
        self._endpoint.__enter__()
        return self

    def __exit__(self, *ended: object) -> None:
        self._endpoint.__exit__(*ended)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The requests that came, in order."""
        return [request.body for request in self._endpoint.requests]

    def ask(self, question: Callable[[Asking], Awaitable[T]]) -> T:
        """What comes of it, in an event loop of its own, as in a call of its own."""
        return asyncio.run(self._ask(question))

    async def _ask(self, question: Callable[[Asking], Awaitable[T]]) -> T:
        model = Model(model_id="judge", requested_model="judge", base_url=self._endpoint.base_url, api_key_env=None)
        endpoints = Endpoints(backoff=Backoff(first=0.001))
        kept = None if self.kept is None else Judgements(self.kept, self.redactor)
        try:
            client = endpoints.client(model.model_copy(update=self.settings))
            return await question(Asking(client, kept, self.ledger, self.redactor))
        finally:
            await endpoints.close()

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        reply = self.replies[0] if len(self.replies) == 1 else self.replies.pop(0)
        if callable(reply):
            reply = reply(body)
        if isinstance(reply, dict) and "content" in reply:
            return {"role": "assistant", **reply}
        return {"role": "assistant", "content": reply if isinstance(reply, str) else json.dumps(reply)}


def cut(text: str) -> dict[str, str]:
    """A reply that ends at the model's limit of tokens."""
    return {"content": text, "finish_reason": "length"}
