"""A store that many machines share: a folder or bucket, and uploads to it in the background."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from pytest_agentbench.bounded.files import MAX_RECORD, read_file
from pytest_agentbench.errors import InfrastructureError, UnreachableError
from pytest_agentbench.store.files import make_folder, write_atomically

# Where a shared store lies: a folder, or a bucket that fsspec knows. Objects are whole; the last of a name wins.
#
# A place works on its own `loop`, in a daemon thread. It raises what lies below it does: FileNotFoundError for an object
# that is not there, anything else for a place that fails.


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
        """Return the object of this name. Raises FileNotFoundError where there is none."""

    async def write(self, name: str, data: bytes) -> None:
        """Put an object there, whole or not at all, in the place of one of this name."""

    async def exists(self, name: str) -> bool:
        """Whether there is an object of this name."""

    async def names(self, prefix: str) -> set[str]:
        """Return the names of all objects below a prefix, which is a name's first parts."""

    def close(self) -> None:
        """End the thread, where it is the place's own."""


def open_place(url: str) -> Place:
    """Return the place of a URL that `options.parse_store` let pass.

    Raises ImportError for a package that is missing.
    """
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
        """Return the thread is fsspec's."""


AT_ONCE = 16
"""How many uploads are under way."""
HEAVY_AT_ONCE = 2
"""How many of those may be of several objects: an archive of a workspace takes up to 64 MB while it is on its way."""
BATCH = 64
"""So many offers below one prefix are worth a listing; fewer are looked up one by one."""
PAUSE = 30.0
"""Seconds for which nothing is tried after a failure: each try takes the retries of a package, many seconds."""
PATIENCE = 2.0
"""Seconds for which people wait at the end without being told for what."""


class Upload(NamedTuple):
    """A result to bring: objects by name, in the order in which they go. The last one makes the others count.

    Each is read when its turn comes, so that what waits takes no room; None: there is nothing to bring any more.
    `prefix` is what its name has in common with those of many others.
    """

    prefix: str
    files: tuple[tuple[str, Callable[[], bytes | None]], ...]

    @property
    def name(self) -> str:
        """Return the name that says whether it is there."""
        return self.files[-1][0]


class _QueuedUpload(NamedTuple):
    """A parcel to bring, where `unless_there` only if its name is not there."""

    parcel: Upload
    unless_there: bool


class Sender:
    """Brings parcels to a place, on the place's loop; what fails is tried again at the end, and counted.

    `known` are the names that are there or on their way. `send` and `offer` are for one thread, `finish` for after it.
    """

    def __init__(self, place: Place, deadline: float) -> None:
        """`deadline` are the seconds that one parcel or listing may take."""
        self.known: set[str] = set()
        self._place, self._deadline = place, deadline
        self._offers: dict[str, list[Upload]] = {}
        self._siftings: list[Future[None]] = []
        self._listings: dict[str, asyncio.Task[set[str]]] = {}
        self._errands: deque[_QueuedUpload] = deque()
        self._carriers: set[asyncio.Task[None]] = set()
        self._failed: list[_QueuedUpload] = []
        self._error: Exception | None = None
        self._paused_until = 0.0
        self._heavy = asyncio.Semaphore(HEAVY_AT_ONCE)

    def send(self, parcel: Upload) -> None:
        """Take the place of what has the parcel's name."""
        self.known.add(parcel.name)
        self._place.loop.call_soon_threadsafe(self._enqueue, [_QueuedUpload(parcel, unless_there=False)])

    def offer(self, parcel: Upload) -> None:
        """Goes only where its name is not there. Offers are looked up in batches: they are in no hurry."""
        if parcel.name in self.known:
            return
        self.known.add(parcel.name)
        batch = self._offers.setdefault(parcel.prefix, [])
        batch.append(parcel)
        if len(batch) == BATCH:
            del self._offers[parcel.prefix]
            sifting = asyncio.run_coroutine_threadsafe(self._sift(parcel.prefix, batch), self._place.loop)
            self._siftings.append(sifting)

    def finish(self, on_wait: Callable[[int], None]) -> tuple[int, Exception | None]:
        """Wait for everything. How many parcels are not there, and the last error where there are any.

        `on_wait` is told how many are still to come, once, where that takes a while.
        """
        rest = [_QueuedUpload(parcel, unless_there=True) for batch in self._offers.values() for parcel in batch]
        settling = asyncio.run_coroutine_threadsafe(self._settle(rest), self._place.loop)
        if not wait([settling], PATIENCE).done:
            on_wait(len(self._errands) + len(self._carriers) + len(self._failed))
        settling.result()
        return len(self._failed), self._error if self._failed else None

    # -- on the place's loop

    async def _sift(self, prefix: str, batch: list[Upload]) -> None:
        """Enqueues what is not there."""
        listing = self._listings.get(prefix)
        if listing is None:
            listing = self._listings[prefix] = asyncio.create_task(self._place.names(prefix))
        try:
            names = await asyncio.wait_for(asyncio.shield(listing), self._deadline)
        except Exception:  # noqa: BLE001  # whatever a package raises: those who look one by one will meet it too
            self._enqueue(_QueuedUpload(parcel, unless_there=True) for parcel in batch)
        else:
            self._enqueue(_QueuedUpload(parcel, unless_there=False) for parcel in batch if parcel.name not in names)

    def _enqueue(self, errands: Iterable[_QueuedUpload]) -> None:
        self._errands.extend(errands)
        for _ in range(min(AT_ONCE - len(self._carriers), len(self._errands))):
            carrier = self._place.loop.create_task(self._carry())
            self._carriers.add(carrier)
            carrier.add_done_callback(self._carriers.discard)

    async def _carry(self) -> None:
        while self._errands:
            errand = self._errands.popleft()
            if self._place.loop.time() < self._paused_until:
                self._failed.append(errand)
                continue
            try:
                async with asyncio.timeout(self._deadline):
                    await self._run(errand)
            except Exception as error:  # noqa: BLE001  # whatever a package raises: `finish` tells it
                self._failed.append(errand)
                self._error, self._paused_until = error, self._place.loop.time() + PAUSE

    async def _run(self, errand: _QueuedUpload) -> None:
        if errand.unless_there and await self._place.exists(errand.parcel.name):
            return
        files = errand.parcel.files
        async with self._heavy if len(files) > 1 else contextlib.nullcontext():
            for name, read in files:
                content = read()
                if content is not None:
                    await self._place.write(name, content)

    async def _settle(self, errands: list[_QueuedUpload]) -> None:
        """Until nothing is under way. What failed gets another chance, unless the first of it fails again."""
        await asyncio.gather(*map(asyncio.wrap_future, self._siftings))
        self._enqueue(errands)
        await self._carriers_are_back()
        failed, self._failed, self._paused_until = self._failed, [], 0.0
        for some in (failed[:1], failed[1:]):
            self._enqueue(some)
            await self._carriers_are_back()

    async def _carriers_are_back(self) -> None:
        while self._carriers:
            await asyncio.wait(self._carriers)


T = TypeVar("T")

VERSION = 1
"""Of the objects' names and layout; the records in them have a `schema_version` of their own."""
DEADLINE = 120.0
"""Seconds that an object may take, the retries of the package below included."""

_USER = re.compile(r"(?<=://)[^/\s'\"]*@")
_QUERY = re.compile(r"(://[^?\s'\"]*\?)[^\s'\"]+")


class Remote:
    """A store at a URL: read when asked, written in the background. One thread uses it, once it is open."""

    def __init__(self, url: str, redact: Callable[[str], str] = str) -> None:
        """`redact` takes secrets out of what packages say when they fail."""
        self.url = url
        self._scheme = url.partition("://")[0]
        self._redact = redact
        self._place: Place | None = None
        self._sender: Sender | None = None

    def open(self) -> None:
        """Connect, and sees that objects can be read there, in a new store also that they can be written.

        Raises InfrastructureError that says what is wrong and what to do about it.
        """
        try:
            place = open_place(self.url)
        except ImportError as error:
            package, extra = PACKAGES[self._scheme]
            hint = f"pip install 'pytest-agentbench[{extra}]'"
            raise InfrastructureError(f"--agentbench-store {self.url} needs {package}: {hint} ({error})") from error
        except Exception as error:
            raise self._failed("cannot be used", error) from error
        try:
            marker = asyncio.run_coroutine_threadsafe(_in_time(_marker(place)), place.loop).result()
            if (problem := _foreign(marker)) is not None:
                raise InfrastructureError(f"--agentbench-store {self.url}: {MARKER}: {problem}")
        except InfrastructureError:
            place.close()
            raise
        except Exception as error:
            place.close()
            raise self._failed("cannot be used", error) from error
        self._place, self._sender = place, Sender(place, DEADLINE)

    async def get(self, name: str) -> bytes | None:
        """Return an object; None where there is none. Raises UnreachableError where the store does not answer."""
        place, sender = self._opened()
        reading = asyncio.run_coroutine_threadsafe(_in_time(place.read(name)), place.loop)
        try:
            content = await asyncio.wrap_future(reading)
        except FileNotFoundError:
            return None
        except Exception as error:
            problem = f"--agentbench-store {self.url} cannot be asked for what is paid already: {self._reason(error)}"
            raise UnreachableError(problem) from error
        sender.known.add(name)
        return content

    def send(self, parcel: Upload) -> None:
        """Bring something there in the background, in the place of what has its name."""
        self._opened()[1].send(parcel)

    def offer(self, parcel: Upload) -> None:
        """Return the same, unless it is there already."""
        self._opened()[1].offer(parcel)

    def close(self, say: Callable[[str], None] = lambda text: None) -> str | None:
        """Wait until everything is there that was sent or offered. What to say where some of it is not.

        `say` is told what is waited for, where that takes more than a moment.
        """
        place, sender, self._place, self._sender = self._place, self._sender, None, None
        if place is None or sender is None:
            return None
        waiting = "waiting until {} in the store {}; after Ctrl-C, a later session sends what is missing there"
        unsent, error = sender.finish(lambda count: say(waiting.format(_results(count), self.url)))
        place.close()
        return None if error is None else self.unsent(_results(unsent), f": {self._reason(error)}")

    def unsent(self, what: str = "some results are", why: str = "") -> str:
        """What to say where results are not there."""
        return (
            f"{what} not in the store {self.url}{why}. The output folder keeps what is missing there; a later session "
            "on it with the same --agentbench-store sends it"
        )

    def _opened(self) -> tuple[Place, Sender]:
        assert self._place is not None
        assert self._sender is not None
        return self._place, self._sender

    def _failed(self, what: str, error: Exception) -> InfrastructureError:
        return InfrastructureError(f"--agentbench-store {self.url} {what}: {self._reason(error)}")

    def _reason(self, error: Exception) -> str:
        kind = type(error).__name__
        said = without_credentials(self._redact(str(error))).strip().rstrip(".") or kind
        if isinstance(error, TimeoutError):
            return f"no answer within {DEADLINE:g} s"
        if isinstance(error, FileNotFoundError):
            return f"{said}; make the bucket or folder, or correct the URL"
        if isinstance(error, PermissionError):
            return f"{said}; the credentials must allow to read, write and list objects there"
        if "credential" in f"{kind} {said}".lower() and self._scheme in CREDENTIALS:
            return f"{said}; set {CREDENTIALS[self._scheme]}"
        return said if isinstance(error, OSError) else f"{kind}: {said}"


def _results(count: int) -> str:
    return "1 result is" if count == 1 else f"{count} results are"


def without_credentials(text: str) -> str:
    """Return a text without what URLs in it hold beside address and path: users, passwords, signed queries."""
    return _QUERY.sub(r"\1[redacted]", _USER.sub("[redacted]@", text))


async def _marker(place: Place) -> bytes:
    """Return the object that says what the others are. A new store gets one, which shows that it can be written to."""
    try:
        return await place.read(MARKER)
    except FileNotFoundError:
        marker = json.dumps({"schema_version": VERSION, "what": "results of pytest-agentbench, whole objects by name"})
        await place.write(MARKER, marker.encode())
        return marker.encode()


def _foreign(marker: bytes) -> str | None:
    """Why these are no objects that this version may read or write."""
    try:
        version = json.loads(marker)["schema_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "found something else, expected what this package writes; name another folder or prefix"
    if version == VERSION:
        return None
    return f"found schema_version {version!r}, expected {VERSION}; use the version of pytest-agentbench that wrote it"


async def _in_time(work: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(DEADLINE):
        return await work
