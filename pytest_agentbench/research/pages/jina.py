"""Pages that the Jina reader fetches and reads (https://jina.ai/reader)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models import retry_after_seconds, tls_context
from pytest_agentbench.research.pages.bodies import joined
from pytest_agentbench.research.pages.settings import KEY_VARIABLE, URL_VARIABLE, PageSettings
from pytest_agentbench.store import REDACTED
from pytest_agentbench.tools import FetchError, checked_addresses, checked_url, host_of, system_resolver
from pytest_agentbench.tools.pages import MAX_TEXT

if TYPE_CHECKING:
    import httpx2

_AT_ONCE = 10
_TRIES = 3
_MOST_BYTES = 16 * 2**20
_LONGEST_WAIT = 30.0
_FIRST_WAIT = 1.0
_REFUSALS = {
    401: f"refuses its key: check {KEY_VARIABLE}",
    402: "has no balance left for this key: top it up",
    403: f"refuses its key: check {KEY_VARIABLE}",
    **dict.fromkeys((301, 302, 303, 307, 308), f"redirects elsewhere, which is not followed: check {URL_VARIABLE}"),
}


class Jina:
    """Asks the Jina reader. A context manager. Addresses that are not public are not told to it."""

    version = "jina-1"

    def __init__(self, settings: PageSettings) -> None:
        assert settings.jina_key is not None
        self._settings, self._key = settings, settings.jina_key
        self._free = asyncio.Semaphore(min(_AT_ONCE, settings.concurrency))
        self._resolve = system_resolver(asyncio.to_thread)
        self._opened = AsyncExitStack()
        self._client: httpx2.AsyncClient | None = None
        self._refused: str | None = None

    async def __aenter__(self) -> Self:
        import httpx2

        from pytest_agentbench.bounded import bounded_replies

        hooks = bounded_replies(_MOST_BYTES)
        client = httpx2.AsyncClient(timeout=self._settings.seconds * 2, verify=tls_context(), event_hooks=hooks)
        self._client = await self._opened.enter_async_context(client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.aclose()

    async def content(self, url: str) -> str:
        """As the protocol `Source` says. Raises ProviderError where the key is refused, from then on for all pages."""
        target = checked_url(url, self._settings.network)
        try:
            await checked_addresses(target, self._settings.network, self._resolve)
        except (OSError, UnicodeError) as error:
            raise FetchError(f"the name {host_of(target)} cannot be resolved") from error
        async with self._free:
            status, reply = await self._ask(str(target))
        said = str(reply.get("readableMessage") or reply.get("message") or "")[:300].replace(self._key, REDACTED)
        if status != 200:
            raise FetchError(f"the Jina reader answered HTTP {status}{': ' if said else ''}{said}")
        data = reply.get("data")
        if not isinstance(data, dict) or not isinstance(data.get("content"), str):
            raise FetchError("the Jina reader answered without the page's content")
        if not data["content"].strip():
            raise FetchError("the Jina reader found no text in the page")
        title, description, text = (
            str(data.get(name) or "").replace(self._key, REDACTED).encode("utf-8", "replace").decode()
            for name in ("title", "description", "content")
        )
        left_out = max(0, len(text) - MAX_TEXT)
        return joined(title[:MAX_TEXT], description[:MAX_TEXT], text[:MAX_TEXT], left_out)

    async def _ask(self, url: str) -> tuple[int, Mapping[str, Any]]:
        """Status and JSON of its answer, after a wait where it asks for one (429) or fails (5xx)."""
        wait = _FIRST_WAIT
        for left in reversed(range(_TRIES)):
            status, retry_after, reply = await self._post(url)
            if left == 0 or not (status == 429 or status >= 500):
                break
            if retry_after is not None and retry_after > _LONGEST_WAIT:
                break
            await asyncio.sleep(wait if retry_after is None else retry_after)
            wait *= 2
        return status, reply

    async def _post(self, url: str) -> tuple[int, float | None, Mapping[str, Any]]:
        import httpx2

        from pytest_agentbench.bounded import ReplyRefusedError

        assert self._client is not None, "pages are fetched inside of `async with`"
        if self._refused is not None:
            raise ProviderError(self._refused, code="jina_refused")
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}
        try:
            async with (
                asyncio.timeout(self._settings.seconds * 2),
                self._client.stream("POST", self._settings.jina_url, json={"url": url}, headers=headers) as response,
            ):
                body = await response.aread()
        except TimeoutError as error:
            raise FetchError("the Jina reader gave no complete answer in time") from error
        except ReplyRefusedError as error:
            raise FetchError(f"the Jina reader gave no answer that can be read: {error}") from error
        except httpx2.HTTPError as error:
            raise FetchError(f"the Jina reader could not be reached ({type(error).__name__})") from error
        if (refusal := _REFUSALS.get(response.status_code)) is not None:
            self._refused = f"the Jina reader {refusal} (HTTP {response.status_code})"
            raise ProviderError(self._refused, code="jina_refused")
        try:
            reply = json.loads(body)
        except (ValueError, RecursionError):  # an error page of whatever stands between
            reply = {}
        wait = retry_after_seconds(response.headers)
        return response.status_code, wait, reply if isinstance(reply, dict) else {}
