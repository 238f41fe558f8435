"""Pages that reports cite: each fetched once, here or by the Jina reader, and kept."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from pydantic import ValidationError

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.bounded.folders import make_folder
from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.errors import ProviderError, UnavailableError
from pytest_agentbench.models.connections import tls_context
from pytest_agentbench.models.failures import retry_after_seconds
from pytest_agentbench.packs.research.fact.citations import canonical_url
from pytest_agentbench.packs.research.fact.direct_pages import KEY_VARIABLE, URL_VARIABLE, Direct, PageSettings, joined
from pytest_agentbench.packs.research.fact.rows import SCRAPE_FAILED
from pytest_agentbench.records.base import Record
from pytest_agentbench.secrets.redaction import REDACTED
from pytest_agentbench.tools.fetching import MAX_TEXT
from pytest_agentbench.tools.network import (
    RefusedError,
    check_addresses,
    check_url,
    host_of,
    require_web,
    system_resolver,
)
from pytest_agentbench.tools.readers import missing_libraries
from pytest_agentbench.tools.web_client import FetchError

if TYPE_CHECKING:
    import httpx2


_AT_ONCE = 10
_TRIES = 3
_MOST_BYTES = 16 * 2**20
_LONGEST_JINA_WAIT = 30.0
_FIRST_JINA_WAIT = 1.0
_REFUSALS = {
    401: f"refuses its key: check {KEY_VARIABLE}",
    402: "has no balance left for this key: top it up",
    # Refusals of the key and not of the page: they hold for every page, so that nothing more is asked.
    403: f"refuses its key: check {KEY_VARIABLE}",
    **dict.fromkeys((301, 302, 303, 307, 308), f"redirects elsewhere, which is not followed: check {URL_VARIABLE}"),
}


class Jina:
    """Client of the Jina reader. A context manager. Private addresses are not sent to it."""

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

        from pytest_agentbench.bounded.replies import bounded_replies

        hooks = bounded_replies(_MOST_BYTES)
        client = httpx2.AsyncClient(timeout=self._settings.seconds * 2, verify=tls_context(), event_hooks=hooks)
        self._client = await self._opened.enter_async_context(client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.aclose()

    async def content(self, url: str) -> str:
        """Implement `Source.content`. Raises ProviderError if the key is refused, from then on for all pages."""
        target = check_url(url, self._settings.network)
        try:
            # The reader is elsewhere: it could not reach a private host, but would learn its name.
            await check_addresses(target, self._settings.network, self._resolve)
        except (OSError, UnicodeError) as error:
            raise FetchError(f"the name {host_of(target)} cannot be resolved") from error
        async with self._free:
            status, reply = await self._ask(str(target))
        problem = str(reply.get("readableMessage") or reply.get("message") or "")[:300].replace(self._key, REDACTED)
        if status != 200:
            raise FetchError(f"the Jina reader answered HTTP {status}: {problem}".removesuffix(": "))
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
        """Return status and JSON of its answer, after a wait if it asks for one (429) or fails (5xx)."""
        wait = _FIRST_JINA_WAIT
        for tries_left in reversed(range(_TRIES)):
            status, retry_after, reply = await self._post(url)
            if tries_left == 0 or not (status == 429 or status >= 500):
                break
            if retry_after is not None and retry_after > _LONGEST_JINA_WAIT:
                break
            await asyncio.sleep(wait if retry_after is None else retry_after)
            wait *= 2
        return status, reply

    async def _post(self, url: str) -> tuple[int, float | None, Mapping[str, Any]]:
        import httpx2

        from pytest_agentbench.bounded.replies import ReplyRefusedError

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


_CLAIMS = ".claims"
_FIRST_CLAIM_WAIT, _LONGEST_CLAIM_WAIT = 0.02, 0.5
# Locks are of single bytes of one file, whose bytes need not exist: a lock file for each page would have to be
# cleared away. Offsets are signed 64-bit numbers.
_OFFSETS = 2**62
_log = logging.getLogger(__name__)


class KeptPage(Record):
    """Content of a stored file: the text of an address, and the time of fetching."""

    schema_version: Literal[1] = 1
    key: str
    url: str
    fetched_at: datetime
    content: str


class KeptPages:
    """A folder of pages that several sessions may share; closed by `close`.

    A file is whole or not there. A failed page is not stored. While a page is fetched, a byte of
    the folder's file `.claims` is locked, by which other processes know to wait for it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._claims: int | None = None
        self._warned = False
        try:
            make_folder(str(folder))
            self._claims = os.open(folder / _CLAIMS, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            self._warn_once(error)

    def close(self) -> None:
        """Release all claims."""
        if self._claims is not None:
            os.close(self._claims)
            self._claims = None

    @staticmethod
    def key(url: str, version: str) -> str:
        """Return 64 hex digits, under which the page is kept."""
        return hashlib.sha256(f"{version} {url}".encode("utf-8", "replace")).hexdigest()

    def find(self, key: str) -> str | None:
        """Return the page's text, or None if it is not stored, or in no file that this version can read."""
        try:
            page = KeptPage.model_validate_json(read_file("/".join(self._place(key))))
        except (OSError, ValidationError):
            return None
        if page.key == key:
            return page.content
        return None

    async def get(self, key: str, url: str, fetch: Callable[[str], Awaitable[str]]) -> tuple[str, bool]:
        """Return another session's page of the meantime, else the result of `fetch`; and whether it is stored now."""
        # Looked up again inside: a waiter for the claim finds the page that its holder has fetched.
        async with self._claim(key):
            if (stored_text := self.find(key)) is not None:
                return stored_text, True
            content = await fetch(url)
            page = KeptPage(key=key, url=url, fetched_at=datetime.now(UTC), content=content)
            return content, self._keep(page)

    @contextlib.asynccontextmanager
    async def _claim(self, key: str) -> AsyncIterator[None]:
        """Hold the key among all processes, or not at all if the folder's file system has no locks."""
        place, pause = int(key, 16) % _OFFSETS, _FIRST_CLAIM_WAIT
        while not self._lock(place):
            await asyncio.sleep(pause)
            pause = min(_LONGEST_CLAIM_WAIT, 2 * pause)
        try:
            yield
        finally:
            if self._claims is not None:
                with contextlib.suppress(OSError):  # as it could not be locked
                    fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, place)

    def _lock(self, place: int) -> bool:
        if self._claims is None:
            return True
        try:
            # Never blocking: that would stop the whole loop. The kernel takes the locks of a killed process back.
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except BlockingIOError:
            return False
        except OSError as error:
            self._warn_once(error)
        return True

    def _keep(self, page: KeptPage) -> bool:
        (folder, name), content = self._place(page.key), page.model_dump_json().encode("utf-8", "replace")
        try:
            try:
                write_atomically(folder, name, content)
            except FileNotFoundError:
                make_folder(folder)
                write_atomically(folder, name, content)
        except OSError as error:
            self._warn_once(error)
            return False
        return True

    def _warn_once(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            reason = error.strerror or str(error)
            _log.warning("%s: pages cannot be kept there, so they will be fetched again: %s", self._folder, reason)

    def _place(self, key: str) -> tuple[str, str]:
        """Return the folder and the name of its file."""
        return f"{self._folder}/{key[:1]}", f"{key}.json"


PAGES = "research/pages"
"""The folder of the pages below the output folder."""


class Source(Protocol):
    """Source of pages. `version` changes with the method of fetching and reading."""

    @property
    def version(self) -> str:
        """Implement `Source.version`."""
        ...

    async def content(self, url: str) -> str:
        """Fetch it when its turn has come. Raises FetchError and RefusedError."""
        ...


class Pages:
    """Pages of one session: a context manager, at whose end fetching ends.

    `output` is the folder that keeps pages for later sessions and shares them with others that run now; None: this
    session alone knows them. A failed page is remembered by this session only: the next one asks again.
    """

    def __init__(self, output: Path | None, settings: PageSettings) -> None:
        self._settings = settings
        self._kept = None if output is None else KeptPages(output / PAGES)
        self._asked: dict[str, asyncio.Task[str]] = {}
        self._opened = AsyncExitStack()
        self._source: Source | None = None

    async def __aenter__(self) -> Self:
        """Raise UnavailableError if a library is missing, or the network settings deny the web."""
        require_web(self._settings.network, "fetching the pages that are cited")
        if self._settings.jina_key is not None:
            self._source = await self._opened.enter_async_context(Jina(self._settings))
        elif missing := missing_libraries():
            raise UnavailableError(
                f"fetching pages needs {', '.join(missing)}: pip install 'pytest-agentbench[web]', or set "
                f"{KEY_VARIABLE} to have the Jina reader fetch them"
            )
        else:
            self._source = await self._opened.enter_async_context(Direct(self._settings))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        await self._opened.aclose()
        if self._kept is not None:
            self._kept.close()

    async def content(self, url: str) -> str:
        """Return title, description and text of the page, joined by blank lines, or `scrape failed: <reason>`.

        Raises ProviderError if the Jina reader refuses its key or has no balance, and SandboxError if pages
        cannot be read here at all: neither is the page's fault.
        """
        address = canonical_url(url)
        if (task := self._asked.get(address)) is None:
            if self._kept is not None and (stored_text := self._kept.find(self._key(address))) is not None:
                return stored_text
            # One task for all who ask; `shield` keeps one of them, when it is cancelled, from ending it for the
            # others.
            task = self._asked[address] = asyncio.create_task(self._content(address))
        return await asyncio.shield(task)

    async def _content(self, address: str) -> str:
        assert self._source is not None, "pages are fetched inside of `async with`"
        try:
            if self._kept is None:
                return await self._fetched(address)
            content, kept = await self._kept.get(self._key(address), address, self._fetched)
        except (FetchError, RefusedError) as error:
            return f"{SCRAPE_FAILED}{error}"
        except BaseException:
            # A cancellation or a refused key is not the page's fault: later requests must not get this task's error.
            self._forget(address)
            raise
        # Later requests read the stored file: the texts of a session's pages, in memory, could take gigabytes.
        if kept:
            self._forget(address)
        return content

    async def _fetched(self, address: str) -> str:
        """Return the page's text; a page that itself begins like a failure does not become one."""
        assert self._source is not None
        content = await self._source.content(address)
        # Such a page would take its statements out of the accuracy, which who writes it could mean to do.
        if content.startswith(SCRAPE_FAILED):
            return f" {content}"
        return content

    def _key(self, address: str) -> str:
        assert self._source is not None
        return KeptPages.key(address, self._source.version)

    def _forget(self, address: str) -> None:
        """Remove the page from memory: the next request reads it from the folder, or fetches it again."""
        del self._asked[address]


class ScriptedPages:
    """Pages of a script: the texts of its `web_fetch` by URL; nothing is fetched."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        self._pages = {canonical_url(url): text for url, text in pages.items()}

    async def content(self, url: str) -> str:
        """Return the page's text, or `scrape failed: <reason>`."""
        return self._pages.get(canonical_url(url), f"{SCRAPE_FAILED}the script has no such page")
