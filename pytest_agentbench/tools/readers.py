"""A pool of isolated processes that read pages, because HTML, text and PDF can block a parser for hours or crash it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import struct
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from pytest_agentbench.errors import AgentbenchError, SandboxError
from pytest_agentbench.records.base import Record
from pytest_agentbench.workspaces.sandboxes.base import Process, ResourceLimits
from pytest_agentbench.workspaces.sandboxes.isolated import Isolation, isolation_problem, open_isolated

Kind = Literal["html", "text", "pdf", "robots"]

READ_SECONDS = 10.0
"""Maximum seconds for reading one body; three times as many for a PDF."""

_LIBRARIES = ("resiliparse", "pypdf", "protego")
_PROGRAM = Path(__file__).with_name("page_reader.py")
_LIMITS = ResourceLimits(memory_bytes=2**30, processes=64)
_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**26), "MALLOC_MMAP_THRESHOLD_": str(2**26)}
"""Settings of malloc that keep memory for the next page: returning it to the system took a third of parsing's time."""

_LENGTHS, _LENGTH = struct.Struct(">II"), struct.Struct(">I")
_LONGEST_REPLY = 8 * 2**20
_SPARE_SECONDS = 5.0
_START_SECONDS = 60.0
_log = logging.getLogger(__name__)
_MOST = 4
_BATCH_BYTES = 2**15
"""Bytes of requests that are sent together. They fit into a pipe's buffer, so that neither side blocks."""


class UnreadableError(AgentbenchError):
    """Raised for a page whose text cannot be read."""


class Reading(Record):
    """The first characters of a page's text, of `length` in all, or the answer of a robots.txt.

    `delay` is in seconds.
    """

    title: str = ""
    description: str = ""
    text: str = ""
    length: Annotated[int, Field(ge=0)] = 0
    allowed: bool = True
    delay: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    problem: str | None = None


@dataclass(slots=True, eq=False)
class _Request:
    """A page to read. `worker` is the task that has sent it. `alone`: it is not sent together with others."""

    message: bytes
    site: str
    seconds: float
    reading: asyncio.Future[Reading]
    worker: asyncio.Task[None] | None = None
    alone: bool = False

    def fail(self, error: Exception) -> None:
        if not self.reading.done():
            self.reading.set_exception(error)


class Readers:
    """A pool of at most `size` processes, started on demand and replaced after a crash. The block's end closes them.

    Each runs in bubblewrap if available, without network. A page cannot affect other sites' pages: see page_reader.py.
    Small waiting pages of one site are sent together, so that the sides do not wait for each other after each page.
    `size` None: as many as this machine has processors, 2 to 4.

    The event loop owns all state. Each process belongs to one worker task, which takes requests from `_waiting`. A
    request that was not answered returns to `_waiting`.
    """

    def __init__(self, size: int | None = None) -> None:
        self._size = size or max(2, min(_MOST, os.cpu_count() or 2))
        self._waiting: deque[_Request] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._idle: list[_Reader] = []
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Workers first: each owns a process, and closes it when it is cancelled
        self._closed = True
        workers = tuple(self._workers)
        for worker in workers:
            _cancel(worker)
        await asyncio.gather(*workers, return_exceptions=True)
        for request in self._waiting:
            request.reading.cancel()
        while self._idle:
            await self._idle.pop().close()

    def prepare(self) -> None:
        """Start the first process in advance."""
        if not self._workers and not self._idle:
            self._start_worker()

    async def read(self, kind: Kind, body: bytes, site: str, **options: Any) -> Reading:
        """Return the reading of a body. `options` are fields of the head for page_reader.py, always with `limit`.

        `site` names the page's site. Raises UnreadableError, and SandboxError if no process can be started.
        """
        seconds = READ_SECONDS * (3 if kind == "pdf" else 1)
        head = json.dumps({"kind": kind, "site": site, "seconds": seconds, **options}).encode()
        message = b"".join((_LENGTHS.pack(len(head), len(body)), head, body))
        reading = await self._wait_for_reading(message, site, seconds + _SPARE_SECONDS)
        if reading.problem == "time":
            raise UnreadableError(f"could not be read within {seconds:g} s")
        if reading.problem is not None:
            raise UnreadableError(f"could not be read ({reading.problem[:300]})")
        # The process that parsed the page may be under the page's control, so its reply is not trusted
        if max(map(len, (reading.title, reading.description, reading.text))) > options["limit"]:
            raise UnreadableError("could not be read (its reader returned too much)")
        return reading

    async def _wait_for_reading(self, message: bytes, site: str, seconds: float) -> Reading:
        request = _Request(message, site, seconds, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._start_worker()
        try:
            return await request.reading
        except asyncio.CancelledError:
            if request in self._waiting:
                self._waiting.remove(request)
            elif request.worker is not None:
                _cancel(request.worker)
            raise

    def _start_worker(self) -> None:
        if len(self._workers) < self._size and not self._closed:
            worker = asyncio.create_task(self._read_until_idle())
            self._workers.add(worker)
            worker.add_done_callback(self._on_worker_end)

    def _on_worker_end(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if self._waiting:
            self._start_worker()

    async def _read_until_idle(self) -> None:
        """Send waiting requests to one process until none are waiting."""
        reader = self._take_reader()
        try:
            with suppress(SandboxError):  # the next page meets the error again and reports it
                await reader.start()
            while self._waiting:
                if not await self._hand_over(reader, self._take_batch()):
                    await reader.close()
                    reader = _Reader()
        except BaseException:
            await reader.close()
            raise
        self._idle.append(reader)

    async def _hand_over(self, reader: _Reader, requests: deque[_Request]) -> bool:
        """Send requests to a process. Return False if it was lost: unanswered requests then wait again, each alone.

        If the process had answered nothing before, the first request fails, because its body killed the process.
        """
        for request in requests:
            request.worker = asyncio.current_task()
        try:
            process = await reader.start()
            async with asyncio.timeout(requests[0].seconds):
                await process.write(b"".join(request.message for request in requests))
            while requests:
                async with asyncio.timeout(requests[0].seconds):
                    reading = await reader.reply()
                request = requests.popleft()
                reader.site = request.site
                if not request.reading.done():
                    request.reading.set_result(reading)
            return True
        except (OSError, EOFError, TimeoutError, ValidationError) as error:
            if reader.site is None:
                why = reader.last_words() or type(error).__name__
                requests.popleft().fail(UnreadableError(f"could not be read ({why})"))
            return False
        except Exception as error:  # noqa: BLE001  SandboxError or another error: all requests fail with it
            while requests:
                requests.popleft().fail(error)
            return False
        finally:
            for request in requests:
                # One of them killed the process, and it is unknown which. Alone, each fails or succeeds by itself
                request.worker, request.alone = None, True
            self._waiting.extendleft(request for request in reversed(requests) if not request.reading.done())

    def _take_batch(self) -> deque[_Request]:
        """Return the first waiting request with small ones of its site, at most one process's share of all."""
        first = self._waiting.popleft()
        batch, room = deque([first]), _BATCH_BYTES - len(first.message)
        if not first.alone:
            # No more than a share of the waiting requests, so that the other processes get work, too
            for request in list(islice(self._waiting, len(self._waiting) // self._size)):
                if request.site == first.site and not request.alone and len(request.message) <= room:
                    self._waiting.remove(request)
                    batch.append(request)
                    room -= len(request.message)
        return batch

    def _take_reader(self) -> _Reader:
        """Return an idle reader, preferably one that read the same site last, else a new one."""
        site = self._waiting[0].site if self._waiting else None
        for number, reader in enumerate(self._idle):
            if reader.site == site:
                return self._idle.pop(number)
        if self._idle:
            return self._idle.pop()
        return _Reader()


class _Reader:
    """One process. `site` is the site of its last page, or None before the first page."""

    def __init__(self) -> None:
        self.site: str | None = None
        self._opened = AsyncExitStack()
        self._process: Process | None = None
        self._read = bytearray()

    async def start(self) -> Process:
        """Return the process, started at the first call. Raises SandboxError if that fails."""
        if self._process is None:
            isolation = await asyncio.to_thread(_find_isolation)
            command = [sys.executable, "-I", "-B", str(_PROGRAM), *map(str, _library_folders())]
            try:
                opened = await self._opened.enter_async_context(open_isolated(command, isolation, _MEMORY))
                self._process = opened
                async with asyncio.timeout(_START_SECONDS):
                    await self.reply()
            except (OSError, EOFError, TimeoutError, ValidationError) as error:
                why = self.last_words() or str(error) or type(error).__name__
                await self.close()
                raise SandboxError(f"no process can be started that reads pages: {why}") from error
        return self._process

    async def reply(self) -> Reading:
        """Return the reading of the next page, in order.

        Raises OSError, EOFError or ValidationError if the process is unusable.
        """
        (length,) = _LENGTH.unpack(await self._read_exactly(_LENGTH.size))
        if length > _LONGEST_REPLY:  # before the reply is read into this process's memory
            raise EOFError
        return Reading.model_validate_json(await self._read_exactly(length))

    async def _read_exactly(self, size: int) -> bytes:
        assert self._process is not None
        while len(self._read) < size:
            # A read may end anywhere, also in the next reply, so the rest stays in the buffer
            part = await self._process.read()
            if not part:
                raise EOFError
            self._read += part
        data = bytes(self._read[:size])
        del self._read[:size]
        return data

    def last_words(self) -> str:
        """Return the last line of the process's stderr."""
        if self._process is None or not (lines := self._process.errors().strip().splitlines()):
            return ""
        return lines[-1][:300]

    async def close(self) -> None:
        """Kill the process with its descendants."""
        # The buffer may hold half a reply of the old process, which must not precede a reply of the next one
        self._process = None
        self._read.clear()
        await self._opened.aclose()


def _cancel(worker: asyncio.Task[None]) -> None:
    """Cancel a worker once. A second cancellation could interrupt the end of its process."""
    if not worker.cancelling():
        worker.cancel()


def missing_libraries(names: Sequence[str] = _LIBRARIES) -> list[str]:
    """Return the libraries of the extra `web` that are not installed."""
    return [name for name in names if find_spec(name) is None]


@cache
def _find_isolation() -> Isolation:
    if (problem := isolation_problem()) is not None:
        _log.warning("web pages are read by a process with limits, but with all rights of this user: %s", problem)
    return Isolation(problem is None, (_PROGRAM, *_library_folders()), limits=_LIMITS)


def _library_folders() -> list[Path]:
    """Return the folders that contain the libraries."""
    origins = (spec.origin for name in _LIBRARIES if (spec := find_spec(name)) is not None and spec.origin)
    return list(dict.fromkeys(Path(origin).parent.parent for origin in origins))
