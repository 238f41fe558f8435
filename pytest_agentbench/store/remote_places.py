"""Where a shared store lies: a folder, or a bucket that fsspec knows. Objects are whole; the last of a name wins.

A place works on its own `loop`, in a daemon thread. It raises what lies below it does: FileNotFoundError for an object
that is not there, anything else for a place that fails.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from pytest_agentbench.bounded import MAX_RECORD, read_file
from pytest_agentbench.store.files import make_folder, write_atomically

MARKER = "agentbench-store.json"
"""The object that says what the others are; it is made at the first use of a place, and stays."""
PACKAGES = {"s3": ("s3fs", "s3"), "gs": ("gcsfs", "gcs"), "az": ("adlfs", "azure")}
"""For each scheme the package that speaks it, and the extra of this package that brings it."""
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login",
    "az": "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
"""Where the packages look for credentials first."""


class Place(Protocol):
    """Objects by name (parts of letters, digits and `_ - .`, joined by slashes)."""

    loop: asyncio.AbstractEventLoop

    async def read(self, name: str) -> bytes:
        """The object of this name. Raises FileNotFoundError where there is none."""

    async def write(self, name: str, data: bytes) -> None:
        """Puts an object there, whole or not at all, in the place of one of this name."""

    async def exists(self, name: str) -> bool:
        """Whether there is an object of this name."""

    async def names(self, prefix: str) -> set[str]:
        """The names of all objects below a prefix, which is a name's first parts."""

    def close(self) -> None:
        """Ends the thread, where it is the place's own."""


def open_place(url: str) -> Place:
    """The place of a URL that `options.parse_store` let pass. Raises ImportError for a package that is missing."""
    scheme, _, path = url.partition("://")
    return Folder(Path(path)) if scheme == "file" else Bucket(url)


class Folder:
    """A folder, mostly one that several machines mount. A mount that is gone may leave an empty folder: one without its
    marker is not a place that lacks an object, but one that fails.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.loop = asyncio.new_event_loop()  # nothing else runs there, so files may block it
        self._thread = threading.Thread(target=self.loop.run_forever, name="agentbench-store", daemon=True)
        self._thread.start()

    async def read(self, name: str) -> bytes:
        """See `Place`."""
        try:
            return read_file(self._root / name)
        except FileNotFoundError:
            if name != MARKER:
                _require_marker(self._root)
            raise

    async def write(self, name: str, data: bytes) -> None:
        """See `Place`."""
        _put(self._root, name, data)

    async def exists(self, name: str) -> bool:
        """See `Place`."""
        return _is_file(self._root / name)

    async def names(self, prefix: str) -> set[str]:
        """See `Place`."""
        return set(_below(self._root, prefix))

    def close(self) -> None:
        """See `Place`."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def _require_marker(root: Path) -> None:
    if not (root / MARKER).is_file():
        raise ConnectionError(f"{root} is not there any more, or not what it was: found no {MARKER} in it")


def _put(root: Path, name: str, data: bytes) -> None:
    if name != MARKER:
        _require_marker(root)
    elif not root.is_dir():
        raise FileNotFoundError(f"no such folder: {root}")
    folder, _, file = f"{root}/{name}".rpartition("/")
    make_folder(folder)
    write_atomically(folder, file, data)


def _is_file(path: Path) -> bool:
    return path.is_file()


def _below(root: Path, prefix: str) -> Iterator[str]:
    for folder, _, files in os.walk(root / prefix):
        below = Path(folder).relative_to(root).as_posix()
        yield from (f"{below}/{file}" for file in files)


class Bucket:
    """A bucket of S3, Google Cloud Storage or Azure. Credentials and endpoint come from where fsspec looks for them."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        # Its own connection, and no listings that it remembers: others write there too.
        filesystem, root = url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
        self._fs: Any = filesystem
        self._root = root.rstrip("/")
        self.loop: asyncio.AbstractEventLoop = filesystem.loop

    async def read(self, name: str) -> bytes:
        """See `Place`."""
        # With a start, s3fs does not ask for the size first; with an end, an object without end does not fill memory.
        content: bytes = await self._fs._cat_file(f"{self._root}/{name}", start=0, end=MAX_RECORD + 1)
        if len(content) > MAX_RECORD:
            raise OSError(errno.EFBIG, f"Is larger than {MAX_RECORD // 2**20} MB", name)
        return content

    async def write(self, name: str, data: bytes) -> None:
        """See `Place`."""
        await self._fs._pipe_file(f"{self._root}/{name}", data)

    async def exists(self, name: str) -> bool:
        """See `Place`."""
        return bool(await self._fs._exists(f"{self._root}/{name}"))

    async def names(self, prefix: str) -> set[str]:
        """See `Place`."""
        below = len(self._root) + 1
        try:
            found = await self._fs._find(f"{self._root}/{prefix}")
        except FileNotFoundError:
            return set()
        return {path[below:] for path in found}

    def close(self) -> None:
        """The thread is fsspec's."""
