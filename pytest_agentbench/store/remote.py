"""A store that many machines share: a folder or bucket, and uploads to it in the background."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from pytest_agentbench.bounded.files import MAX_RECORD, FileRefusedError, read_file
from pytest_agentbench.bounded.folders import make_folder
from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.errors import DamagedObjectError, InfrastructureError, UnreachableError
from pytest_agentbench.secrets.redaction import strip_credentials

# Places of a shared store: a folder, or a bucket that fsspec supports. Objects are written whole; the last one of a
# name wins.
#
# An object store works on its own `loop`, in a daemon thread. It raises FileNotFoundError for a missing object, and the
# errors of its package for any other failure.


MARKER = "agentbench-store.json"
"""Object that marks a place as a store. It is created at the first use and never removed."""
PACKAGES = {"s3": ("s3fs", "s3"), "gs": ("gcsfs", "gcs"), "az": ("adlfs", "azure")}
"""For each scheme the package that speaks it, and the extra of this package that brings it."""
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login",
    "az": "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
"""Where each package looks for credentials first."""


class ObjectStore(Protocol):
    """Objects by name (parts of letters, digits and `_ - .`, joined by slashes)."""

    loop: asyncio.AbstractEventLoop

    async def read(self, name: str) -> bytes:
        """Return the object of this name.

        Raises FileNotFoundError if there is none, FileRefusedError if it is a link, no plain file or too large.
        """

    async def write(self, name: str, data: bytes) -> None:
        """Store an object atomically, replacing any object of this name."""

    async def exists(self, name: str) -> bool:
        """Return whether there is an object of this name."""

    async def names(self, prefix: str) -> set[str]:
        """Return the names of all objects below a prefix, which is a name's first parts."""

    def close(self) -> None:
        """End the thread if this store started it."""


def open_object_store(url: str) -> ObjectStore:
    """Return the object store of a URL that `options.parse_store` accepted. Raises ImportError."""
    scheme, _, path = url.partition("://")
    if scheme == "file":
        return FolderStore(Path(path))
    return BucketStore(url)


class FolderStore:
    """A folder, mostly one that several machines mount.

    A mount that is gone may leave an empty folder: one without its marker is not a store that lacks an object, but one
    that fails.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self.loop = asyncio.new_event_loop()  # nothing else runs there, so files may block it
        self._thread = threading.Thread(target=self.loop.run_forever, name="agentbench-store", daemon=True)
        self._thread.start()

    async def read(self, name: str) -> bytes:
        """Implement `ObjectStore`."""
        try:
            _refuse_linked_folders(self._root, name)
            return read_file(self._root / name, follow_link=False)
        except FileNotFoundError:
            if name != MARKER:
                _require_marker(self._root)
            raise

    async def write(self, name: str, data: bytes) -> None:
        """Implement `ObjectStore`."""
        _write_object(self._root, name, data)

    async def exists(self, name: str) -> bool:
        """Implement `ObjectStore`."""
        return _is_plain(self._root, name)

    async def names(self, prefix: str) -> set[str]:
        """Implement `ObjectStore`."""
        return set(_list_below(self._root, prefix))

    def close(self) -> None:
        """Stop the loop's thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def _require_marker(root: Path) -> None:
    if not _is_plain(root, MARKER):
        raise ConnectionError(f"{root} was removed or replaced: found no {MARKER}")


def _write_object(root: Path, name: str, data: bytes) -> None:
    if name != MARKER:
        _require_marker(root)
    elif not root.is_dir():
        raise FileNotFoundError(f"no such folder: {root}")
    _refuse_linked_folders(root, name)
    folder, _, file = f"{root}/{name}".rpartition("/")
    make_folder(folder)
    write_atomically(folder, file, data)


def _refuse_linked_folders(root: Path, name: str) -> None:
    """Raise FileRefusedError if a folder between the root and an object is a link. The root itself may be one."""
    folder = str(root)
    for part in name.split("/")[:-1]:
        folder = f"{folder}/{part}"
        if os.path.islink(folder):
            raise FileRefusedError(errno.ELOOP, "found a link to a folder, expected a folder", folder)


def _is_plain(root: Path, name: str) -> bool:
    """Return whether an object is a plain file that no link leads to."""
    try:
        _refuse_linked_folders(root, name)
        return stat.S_ISREG(os.lstat(root / name).st_mode)
    except OSError:
        return False


def _list_below(root: Path, prefix: str) -> Iterator[str]:
    for folder, _, files in os.walk(root / prefix):
        below = Path(folder).relative_to(root).as_posix()
        yield from (name for file in files if _is_plain(root, name := f"{below}/{file}"))


class BucketStore:
    """A bucket of S3, Google Cloud Storage or Azure. Credentials and endpoint come from where fsspec looks for them."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        # Its own connection, and no listings that it remembers: others write there too.
        filesystem, root = url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
        self._fs: Any = filesystem
        self._root = root.rstrip("/")
        self.loop: asyncio.AbstractEventLoop = filesystem.loop

    async def read(self, name: str) -> bytes:
        """Implement `ObjectStore`."""
        # With a start, s3fs does not ask for the size first; with an end, an object without end does not fill memory.
        content: bytes = await self._fs._cat_file(f"{self._root}/{name}", start=0, end=MAX_RECORD + 1)
        if len(content) > MAX_RECORD:
            raise FileRefusedError(errno.EFBIG, f"found more than {MAX_RECORD:,} bytes, the most expected", name)
        return content

    async def write(self, name: str, data: bytes) -> None:
        """Implement `ObjectStore`."""
        await self._fs._pipe_file(f"{self._root}/{name}", data)

    async def exists(self, name: str) -> bool:
        """Implement `ObjectStore`."""
        return bool(await self._fs._exists(f"{self._root}/{name}"))

    async def names(self, prefix: str) -> set[str]:
        """Implement `ObjectStore`."""
        below = len(self._root) + 1
        try:
            paths = await self._fs._find(f"{self._root}/{prefix}")
        except FileNotFoundError:
            return set()
        return {path[below:] for path in paths}

    def close(self) -> None:
        """Do nothing: the thread is fsspec's."""


AT_ONCE = 16
"""How many uploads are under way."""
HEAVY_AT_ONCE = 2
"""How many of those may be of several objects: an archive of a workspace takes up to 64 MB while it is on its way."""
BATCH = 64
"""So many offers below one prefix are worth a listing; fewer are looked up one by one."""
PAUSE = 30.0
"""Seconds for which nothing is tried after a failure: each try takes the retries of a package, many seconds."""
PATIENCE = 2.0
"""Seconds at the end of a session before people are told that uploads are awaited."""


class Upload(NamedTuple):
    """A result to upload: objects by name, in upload order. The last object makes the others count.

    Each object is read when its turn comes, so that waiting uploads use no memory. None: the object is gone.
    `prefix` is the part of the name that many results share.
    """

    prefix: str
    files: tuple[tuple[str, Callable[[], bytes | None]], ...]

    @property
    def name(self) -> str:
        """Return the name by which the result is looked up: that of its last object."""
        return self.files[-1][0]


class _QueuedUpload(NamedTuple):
    """An upload that waits; with `unless_there` it goes only if its name is not there."""

    upload: Upload
    unless_there: bool


class Uploader:
    """Upload results to an object store on its loop. Failed uploads are tried again at the end, and counted.

    `known` are the names that exist or are being uploaded. Call `send` and `offer` from one thread, `finish`
    afterwards.
    """

    def __init__(self, objects: ObjectStore, deadline: float) -> None:
        """Start idle; `deadline` are the seconds that one upload or listing may take."""
        self.known: set[str] = set()
        self._objects, self._deadline = objects, deadline
        self._offers: dict[str, list[Upload]] = {}
        self._lookups: list[Future[None]] = []
        self._listings: dict[str, asyncio.Task[set[str]]] = {}
        self._queue: deque[_QueuedUpload] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._failed: list[_QueuedUpload] = []
        self._error: Exception | None = None
        self._paused_until = 0.0
        self._heavy = asyncio.Semaphore(HEAVY_AT_ONCE)

    def send(self, upload: Upload) -> None:
        """Upload a result, replacing any object of its name."""
        self.known.add(upload.name)
        # The queue belongs to the store's loop: all other methods below touch it from there only, so it needs no lock.
        self._objects.loop.call_soon_threadsafe(self._enqueue, [_QueuedUpload(upload, unless_there=False)])

    def offer(self, upload: Upload) -> None:
        """Upload a result unless its name is there. Offers are looked up in batches: they are in no hurry."""
        if upload.name in self.known:
            return
        self.known.add(upload.name)
        batch = self._offers.setdefault(upload.prefix, [])
        batch.append(upload)
        if len(batch) == BATCH:
            del self._offers[upload.prefix]
            lookup = asyncio.run_coroutine_threadsafe(self._enqueue_missing(upload.prefix, batch), self._objects.loop)
            self._lookups.append(lookup)

    def finish(self, on_wait: Callable[[int], None]) -> tuple[int, Exception | None]:
        """Wait for all uploads. Return the number of results that are missing, and the last error, if any.

        `on_wait` is called once with the number of pending results if that takes a while.
        """
        rest = [_QueuedUpload(upload, unless_there=True) for batch in self._offers.values() for upload in batch]
        settling = asyncio.run_coroutine_threadsafe(self._drain(rest), self._objects.loop)
        if not wait([settling], PATIENCE).done:
            on_wait(len(self._queue) + len(self._workers) + len(self._failed))
        settling.result()
        return len(self._failed), self._error if self._failed else None

    # -- on the place's loop

    async def _enqueue_missing(self, prefix: str, batch: list[Upload]) -> None:
        """Enqueue the results of a batch that the store lacks."""
        listing = self._listings.get(prefix)
        if listing is None:
            listing = self._listings[prefix] = asyncio.create_task(self._objects.names(prefix))
        try:
            # Shielded: several batches await one listing, and the time limit of one must not cancel it for the others.
            names = await asyncio.wait_for(asyncio.shield(listing), self._deadline)
        except Exception:  # noqa: BLE001  # packages raise anything; single look-ups will meet the same error
            self._enqueue(_QueuedUpload(upload, unless_there=True) for upload in batch)
        else:
            self._enqueue(_QueuedUpload(upload, unless_there=False) for upload in batch if upload.name not in names)

    def _enqueue(self, uploads: Iterable[_QueuedUpload]) -> None:
        self._queue.extend(uploads)
        for _ in range(min(AT_ONCE - len(self._workers), len(self._queue))):
            worker = self._objects.loop.create_task(self._work_off_queue())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work_off_queue(self) -> None:
        while self._queue:
            queued = self._queue.popleft()
            if self._objects.loop.time() < self._paused_until:
                self._failed.append(queued)
                continue
            try:
                async with asyncio.timeout(self._deadline):
                    await self._upload(queued)
            except Exception as error:  # noqa: BLE001  # packages raise anything; `finish` reports it
                self._failed.append(queued)
                self._error, self._paused_until = error, self._objects.loop.time() + PAUSE

    async def _upload(self, queued: _QueuedUpload) -> None:
        if queued.unless_there and await self._objects.exists(queued.upload.name):
            return
        files = queued.upload.files
        async with self._heavy if len(files) > 1 else contextlib.nullcontext():
            for name, read in files:
                content = read()
                if content is not None:
                    await self._objects.write(name, content)

    async def _drain(self, uploads: list[_QueuedUpload]) -> None:
        """Wait until no upload is pending. Failed ones are tried again, unless the first of them fails again."""
        await asyncio.gather(*map(asyncio.wrap_future, self._lookups))
        self._enqueue(uploads)
        await self._wait_for_workers()
        failed, self._failed, self._paused_until = self._failed, [], 0.0
        # Try one first: if the store is still unreachable, each further try would cost the package's retries.
        for some in (failed[:1], failed[1:]):
            self._enqueue(some)
            await self._wait_for_workers()

    async def _wait_for_workers(self) -> None:
        while self._workers:
            await asyncio.wait(self._workers)


T = TypeVar("T")

VERSION = 1
"""Version of the objects' names and layout. The records in them have a `schema_version`."""
DEADLINE = 120.0
"""Seconds that an object may take, the retries of the package below included."""


class Remote:
    """A store at a URL: read when asked, written in the background. One thread uses it, once it is open."""

    def __init__(self, url: str, redact: Callable[[str], str] = str) -> None:
        """Set up a store at `url`, not yet open; `redact` removes secrets from errors of other packages."""
        self.url = url
        self._scheme = url.partition("://")[0]
        self._redact = redact
        self._objects: ObjectStore | None = None
        self._sender: Uploader | None = None

    def open(self) -> None:
        """Connect, and check that objects can be read, and in a new store also written.

        Raises InfrastructureError with the problem and a remedy.
        """
        try:
            objects = open_object_store(self.url)
        except ImportError as error:
            package, extra = PACKAGES[self._scheme]
            hint = f"pip install 'pytest-agentbench[{extra}]'"
            raise InfrastructureError(f"--agentbench-store {self.url} needs {package}: {hint} ({error})") from error
        except Exception as error:
            raise self._make_unusable(error) from error
        try:
            marker = asyncio.run_coroutine_threadsafe(_limit_time(_read_marker(objects)), objects.loop).result()
            if (problem := _describe_foreign(marker)) is not None:
                raise InfrastructureError(f"--agentbench-store {self.url}: {MARKER}: {problem}")
        except InfrastructureError:
            objects.close()
            raise
        except Exception as error:
            objects.close()
            raise self._make_unusable(error) from error
        self._objects, self._sender = objects, Uploader(objects, DEADLINE)

    async def get(self, name: str) -> bytes | None:
        """Return an object, or None.

        Raises DamagedObjectError if it is not a plain object, UnreachableError if the store does not answer.
        """
        objects, sender = self._require_open()
        # Run on the store's loop: fsspec's file systems bind their sessions to the loop of fsspec's thread.
        reading = asyncio.run_coroutine_threadsafe(_limit_time(objects.read(name)), objects.loop)
        try:
            content = await asyncio.wrap_future(reading)
        except FileNotFoundError:
            return None
        except FileRefusedError as error:
            raise DamagedObjectError(f"{self.url}/{name}: {error.strerror}") from error
        except Exception as error:
            reason = self._describe_failure(error)
            problem = f"--agentbench-store {self.url} cannot be searched for paid runs: {reason}"
            raise UnreachableError(problem) from error
        sender.known.add(name)
        return content

    def send(self, upload: Upload) -> None:
        """Upload a result in the background, replacing any object of its name."""
        self._require_open()[1].send(upload)

    def offer(self, upload: Upload) -> None:
        """Upload a result in the background unless it is there already."""
        self._require_open()[1].offer(upload)

    def close(self, say: Callable[[str], None] = lambda text: None) -> str | None:
        """Wait for all uploads. Return a message if some of them failed.

        `say` is called with the reason of the wait if it takes more than a moment.
        """
        objects, sender, self._objects, self._sender = self._objects, self._sender, None, None
        if objects is None or sender is None:
            return None
        waiting = "waiting until {} in the store {}; after Ctrl-C, a later session sends the missing results"
        unsent, error = sender.finish(lambda count: say(waiting.format(_count_results(count), self.url)))
        objects.close()
        if error is None:
            return None
        return self.describe_unsent(_count_results(unsent), f": {self._describe_failure(error)}")

    def describe_unsent(self, what: str = "some results are", why: str = "") -> str:
        """Return the message for results that are not there."""
        return (
            f"{what} not in the store {self.url}{why}. The output folder keeps all results; a later session on it "
            "with the same --agentbench-store sends the missing ones"
        )

    def _require_open(self) -> tuple[ObjectStore, Uploader]:
        assert self._objects is not None
        assert self._sender is not None
        return self._objects, self._sender

    def _make_unusable(self, error: Exception) -> InfrastructureError:
        return InfrastructureError(f"--agentbench-store {self.url} cannot be used: {self._describe_failure(error)}")

    def _describe_failure(self, error: Exception) -> str:
        kind = type(error).__name__
        reason = strip_credentials(self._redact(str(error))).strip().rstrip(".") or kind
        if isinstance(error, TimeoutError):
            return f"no answer within {DEADLINE:g} s"
        if isinstance(error, FileNotFoundError):
            return f"{reason}; make the bucket or folder, or correct the URL"
        if isinstance(error, PermissionError):
            return f"{reason}; the credentials must allow to read, write and list its objects"
        if "credential" in f"{kind} {reason}".lower() and self._scheme in CREDENTIALS:
            return f"{reason}; set {CREDENTIALS[self._scheme]}"
        if isinstance(error, OSError):
            return reason
        return f"{kind}: {reason}"


def _count_results(count: int) -> str:
    if count == 1:
        return "1 result is"
    return f"{count} results are"


async def _read_marker(objects: ObjectStore) -> bytes:
    """Return the object that names the store's format. A new store gets one, which shows that it can be written to."""
    try:
        return await objects.read(MARKER)
    except FileNotFoundError:
        marker = json.dumps({"schema_version": VERSION, "what": "results of pytest-agentbench, whole objects by name"})
        await objects.write(MARKER, marker.encode())
        return marker.encode()


def _describe_foreign(marker: bytes) -> str | None:
    """Return why this version may not read or write the objects, or None."""
    try:
        version = json.loads(marker)["schema_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "found other content, expected a store of this package; name another folder or prefix"
    if version == VERSION:
        return None
    return f"found schema_version {version!r}, expected {VERSION}; use the version of pytest-agentbench that wrote it"


async def _limit_time(work: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(DEADLINE):
        return await work
