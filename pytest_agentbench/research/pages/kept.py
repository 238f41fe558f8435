"""Pages on disk: one small file each, by the address and by how it was fetched and read."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from pytest_agentbench.bounded import read_file
from pytest_agentbench.records import Record
from pytest_agentbench.store import make_folder, write_atomically

_CLAIMS = ".claims"
_FIRST_WAIT, _LONGEST_WAIT = 0.02, 0.5
_OFFSETS = 2**62
_log = logging.getLogger(__name__)


class KeptPage(Record):
    """What a file holds: what was read at an address, and when it was fetched."""

    schema_version: Literal[1] = 1
    key: str
    url: str
    fetched_at: datetime
    content: str


class KeptPages:
    """A folder of pages that several sessions may share; closed by `close`.

    A file is whole or not there. Nothing is kept of a page that could not be had. While a page is fetched, a byte of
    the folder's file `.claims` is locked, by which other processes know to wait for it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._claims: int | None = None
        self._said = False
        try:
            make_folder(str(folder))
            self._claims = os.open(folder / _CLAIMS, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            self._say(error)

    def close(self) -> None:
        """Lets go of what is claimed."""
        if self._claims is not None:
            os.close(self._claims)
            self._claims = None

    @staticmethod
    def key(url: str, version: str) -> str:
        """64 hex digits."""
        return hashlib.sha256(f"{version} {url}".encode("utf-8", "replace")).hexdigest()

    def find(self, key: str) -> str | None:
        """What the page says; None where it is not kept, or in no file that this version can read."""
        try:
            page = KeptPage.model_validate_json(read_file("/".join(self._place(key))))
        except (OSError, ValidationError):
            return None
        return page.content if page.key == key else None

    async def get(self, key: str, url: str, fetch: Callable[[str], Awaitable[str]]) -> tuple[str, bool]:
        """What another session has fetched meanwhile, else what `fetch` gives; and whether it is kept now."""
        async with self._claim(key):
            if (known := self.find(key)) is not None:
                return known, True
            content = await fetch(url)
            page = KeptPage(key=key, url=url, fetched_at=datetime.now(UTC), content=content)
            return content, self._keep(page)

    @contextlib.asynccontextmanager
    async def _claim(self, key: str) -> AsyncIterator[None]:
        """Holds the key among all processes; without, where the folder's file system has no locks."""
        place, pause = int(key, 16) % _OFFSETS, _FIRST_WAIT
        while not self._lock(place):
            await asyncio.sleep(pause)
            pause = min(_LONGEST_WAIT, 2 * pause)
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
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except BlockingIOError:
            return False
        except OSError as error:
            self._say(error)
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
            self._say(error)
            return False
        return True

    def _say(self, error: OSError) -> None:
        if not self._said:
            self._said = True
            reason = error.strerror or str(error)
            _log.warning("%s: pages cannot be kept there, so they will be fetched again: %s", self._folder, reason)

    def _place(self, key: str) -> tuple[str, str]:
        """The folder and the name of its file."""
        return f"{self._folder}/{key[:1]}", f"{key}.json"
