"""Pages by their addresses: shared by everybody who asks, and by later sessions."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from pytest_agentbench.errors import UnavailableError
from pytest_agentbench.research.fact.citations import canonical_url
from pytest_agentbench.research.fact.validating import SCRAPE_FAILED
from pytest_agentbench.research.pages.direct import Direct
from pytest_agentbench.research.pages.jina import Jina
from pytest_agentbench.research.pages.kept import KeptPages
from pytest_agentbench.research.pages.settings import KEY_VARIABLE, PageSettings
from pytest_agentbench.tools import FetchError, RefusedError, missing_libraries, require_web

PAGES = "research/pages"
"""The folder of the pages below the output folder."""


class Source(Protocol):
    """Whoever fetches pages. `version` names what changes how a page is fetched or read."""

    @property
    def version(self) -> str:
        """As the protocol says."""
        ...

    async def content(self, url: str) -> str:
        """Fetches it when its turn has come. Raises FetchError and RefusedError."""
        ...


class Pages:
    """The pages of one session: a context manager, at whose end fetching ends.

    `output` is the folder that keeps pages for later sessions and shares them with others that run now; None: this
    session alone knows them. A page that could not be had is remembered by this session only: the next one asks again.
    """

    def __init__(self, output: Path | None, settings: PageSettings) -> None:
        self._settings = settings
        self._kept = None if output is None else KeptPages(output / PAGES)
        self._asked: dict[str, asyncio.Task[str]] = {}
        self._opened = AsyncExitStack()
        self._source: Source | None = None

    async def __aenter__(self) -> Self:
        """Raises UnavailableError where a library is missing, or the network settings deny the web."""
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
        """Title, description and text of the page, joined by blank lines, or `scrape failed: <reason>`.

        Raises ProviderError where the Jina reader refuses its key or has no balance, and SandboxError where pages
        cannot be read here at all: either says nothing of the page.
        """
        address = canonical_url(url)
        if (task := self._asked.get(address)) is None:
            if self._kept is not None and (known := self._kept.find(self._key(address))) is not None:
                return known
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
            self._forget(address)
            raise
        if kept:
            self._forget(address)
        return content

    async def _fetched(self, address: str) -> str:
        """What the page says; a page that itself begins like a failure does not become one."""
        assert self._source is not None
        content = await self._source.content(address)
        return f" {content}" if content.startswith(SCRAPE_FAILED) else content

    def _key(self, address: str) -> str:
        assert self._source is not None
        return KeptPages.key(address, self._source.version)

    def _forget(self, address: str) -> None:
        """Whoever asks next finds it in the folder, not in memory, or has it fetched again."""
        del self._asked[address]
