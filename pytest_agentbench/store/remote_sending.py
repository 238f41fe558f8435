"""Results on their way to a shared store: brought there in the background, so that nobody waits for an upload."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import NamedTuple

from pytest_agentbench.store.remote_places import Place

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


class Parcel(NamedTuple):
    """A result to bring: objects by name, in the order in which they go. The last one makes the others count.

    Each is read when its turn comes, so that what waits takes no room; None: there is nothing to bring any more.
    `prefix` is what its name has in common with those of many others.
    """

    prefix: str
    files: tuple[tuple[str, Callable[[], bytes | None]], ...]

    @property
    def name(self) -> str:
        """The name that says whether it is there."""
        return self.files[-1][0]


class _Errand(NamedTuple):
    """A parcel to bring, where `unless_there` only if its name is not there."""

    parcel: Parcel
    unless_there: bool


class Sender:
    """Brings parcels to a place, on the place's loop; what fails is tried again at the end, and counted.

    `known` are the names that are there or on their way. `send` and `offer` are for one thread, `finish` for after it.
    """

    def __init__(self, place: Place, deadline: float) -> None:
        """`deadline` are the seconds that one parcel or listing may take."""
        self.known: set[str] = set()
        self._place, self._deadline = place, deadline
        self._offers: dict[str, list[Parcel]] = {}
        self._siftings: list[Future[None]] = []
        self._listings: dict[str, asyncio.Task[set[str]]] = {}
        self._errands: deque[_Errand] = deque()
        self._carriers: set[asyncio.Task[None]] = set()
        self._failed: list[_Errand] = []
        self._error: Exception | None = None
        self._paused_until = 0.0
        self._heavy = asyncio.Semaphore(HEAVY_AT_ONCE)

    def send(self, parcel: Parcel) -> None:
        """Takes the place of what has the parcel's name."""
        self.known.add(parcel.name)
        self._place.loop.call_soon_threadsafe(self._enqueue, [_Errand(parcel, unless_there=False)])

    def offer(self, parcel: Parcel) -> None:
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
        """Waits for everything. How many parcels are not there, and the last error where there are any.

        `on_wait` is told how many are still to come, once, where that takes a while.
        """
        rest = [_Errand(parcel, unless_there=True) for batch in self._offers.values() for parcel in batch]
        settling = asyncio.run_coroutine_threadsafe(self._settle(rest), self._place.loop)
        if not wait([settling], PATIENCE).done:
            on_wait(len(self._errands) + len(self._carriers) + len(self._failed))
        settling.result()
        return len(self._failed), self._error if self._failed else None

    # -- on the place's loop

    async def _sift(self, prefix: str, batch: list[Parcel]) -> None:
        """Enqueues what is not there."""
        listing = self._listings.get(prefix)
        if listing is None:
            listing = self._listings[prefix] = asyncio.create_task(self._place.names(prefix))
        try:
            names = await asyncio.wait_for(asyncio.shield(listing), self._deadline)
        except Exception:  # noqa: BLE001  # whatever a package raises: those who look one by one will meet it too
            self._enqueue(_Errand(parcel, unless_there=True) for parcel in batch)
        else:
            self._enqueue(_Errand(parcel, unless_there=False) for parcel in batch if parcel.name not in names)

    def _enqueue(self, errands: Iterable[_Errand]) -> None:
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

    async def _run(self, errand: _Errand) -> None:
        if errand.unless_there and await self._place.exists(errand.parcel.name):
            return
        files = errand.parcel.files
        async with self._heavy if len(files) > 1 else contextlib.nullcontext():
            for name, read in files:
                content = read()
                if content is not None:
                    await self._place.write(name, content)

    async def _settle(self, errands: list[_Errand]) -> None:
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
