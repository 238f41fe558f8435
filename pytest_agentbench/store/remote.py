"""A store that many machines share, behind the output folder: what one has paid for, the others get from there."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pytest_agentbench.errors import InfrastructureError, UnreachableError
from pytest_agentbench.store.remote_places import CREDENTIALS, MARKER, PACKAGES, Place, open_place
from pytest_agentbench.store.remote_sending import Parcel, Sender

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
        """Connects, and sees that objects can be read there, in a new store also that they can be written.

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
        """An object; None where there is none. Raises UnreachableError where the store does not answer."""
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

    def send(self, parcel: Parcel) -> None:
        """Brings something there in the background, in the place of what has its name."""
        self._opened()[1].send(parcel)

    def offer(self, parcel: Parcel) -> None:
        """The same, unless it is there already."""
        self._opened()[1].offer(parcel)

    def close(self, say: Callable[[str], None] = lambda text: None) -> str | None:
        """Waits until everything is there that was sent or offered. What to say where some of it is not.

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
    """A text without what URLs in it hold beside address and path: users, passwords, signed queries."""
    return _QUERY.sub(r"\1[redacted]", _USER.sub("[redacted]@", text))


async def _marker(place: Place) -> bytes:
    """The object that says what the others are. A new store gets one, which shows that it can be written to."""
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
