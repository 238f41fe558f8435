"""Asking the planner's model: each kind of request with its own limit of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.runners.requests import Requests

if TYPE_CHECKING:
    from pytest_agentbench.models import ChatReply

_LIMIT, _NEWER_LIMIT = "max_tokens", "max_completion_tokens"


class Asker:
    """Sends requests for replies of at most so many tokens.

    The limit is sent as `max_tokens`, or as `max_completion_tokens` where the `parameters` of the model and the run
    have that, or the provider asks for it. Where they set it, the lower number holds; where they remove it with null,
    none is sent.
    """

    def __init__(self, requests: Requests, parameters: Mapping[str, Any]) -> None:
        self._requests = requests
        self._given = [parameters[name] for name in (_LIMIT, _NEWER_LIMIT) if name in parameters]
        self._newer = parameters.get(_NEWER_LIMIT) is not None

    async def ask(self, purpose: str, messages: Sequence[Mapping[str, Any]], tokens: int) -> ChatReply:
        """One request. Raises ProviderError."""
        try:
            return await self._requests.send(messages, parameters=self._limited(tokens), purpose=purpose)
        except ProviderError as error:
            if self._newer or error.retryable or _NEWER_LIMIT not in str(error):
                raise
            self._newer = True
            return await self._requests.send(messages, parameters=self._limited(tokens), purpose=purpose)

    def _limited(self, tokens: int) -> dict[str, int | None]:
        """The parameters of a request that limit its reply."""
        numbers = [given for given in self._given if isinstance(given, int)]
        if self._given and not numbers:
            return {}
        limit = min([tokens, *numbers])
        return {_LIMIT: None, _NEWER_LIMIT: limit} if self._newer else {_LIMIT: limit}
