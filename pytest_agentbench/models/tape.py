"""One run's cassette at work: it answers what it has, and keeps what others answer."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pytest_agentbench.errors import AgentbenchError, ConfigError, ProviderError, UnwritableError
from pytest_agentbench.models.canonical import canonical, neutral, placed
from pytest_agentbench.models.cassette_file import (
    Answer,
    Cassette,
    Exchange,
    Refusal,
    cassette_yaml,
    read_cassette,
    refuse_links,
)
from pytest_agentbench.models.nearest import difference
from pytest_agentbench.models.slots import Slot, merged, numbered, request_key, slots_of
from pytest_agentbench.records import CassetteMode, Usage
from pytest_agentbench.store import Redactor, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")
E = TypeVar("E", bound=AgentbenchError)

NOT_RECORDED = "not_recorded"
"""The code of the ProviderError for a request that a replay does not have."""

_GRACE_SECONDS = 5.0
"""How much longer than in the recording a replay waits where the agent gave up waiting."""


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """How answers of one kind are kept: `write`, and `read` with the seconds that the answer took.

    `refusal` says what is kept of an exception (None: nothing, as of an outage), `refused` makes one of that again.
    """

    write: Callable[[T], Answer]
    read: Callable[[Answer, float], T]
    refusal: Callable[[Exception], Refusal | None]
    refused: Callable[[Refusal], Exception]


_previous: ContextVar[Slot | None] = ContextVar("agentbench_previous_exchange", default=None)
"""The last exchange of the running task: it tells equal requests of parallel tasks apart."""


class Tape:
    """The exchanges of one run and of its verdict. For one event loop.

    `folder` gives the run's workspace, None while it has none; `timer` is the run's time limit while it runs.
    """

    def __init__(self, path: Path, label: Cassette, modes: Callable[[str], CassetteMode], redactor: Redactor) -> None:
        """`label` says whose cassette it is and which session records it; `modes` what is done for whom is asked."""
        self.path, self.label, self.mode = path, label, modes
        self.folder: Callable[[], str | None] = lambda: None
        self.timer: asyncio.Timeout | None = None
        self._redactor = redactor
        self._stored: Cassette | ConfigError | None = None
        self._loaded = False
        self._by_request: dict[str, list[Slot]] = {}
        self._fresh: list[Slot] = []
        self._unsaved = False
        self._trouble: AgentbenchError | None = None
        self._duration: float | None = None
        self._waited: list[float] = []
        self._bill: list[Usage] = []
        self._replayed = self._recorded = self._free = False

    async def play(self, asked: str, request: dict[str, Any], ask: Callable[[], Awaitable[T]], form: Form[T]) -> T:
        """The answer of `asked` to a JSON-like request: the tape's, else that of `ask`, which the tape then keeps.

        Equal requests get the recorded answers one after the other. Raises ProviderError (`not_recorded`) where a
        replay has none left, ConfigError for a broken file.
        """
        wanted = canonical(request, self.folder(), self._redactor)
        key = request_key(asked, wanted)
        slot = self._take(asked, key)
        if slot is not None:
            return await self._replay(slot, form)
        if self.mode(asked) == "replay":
            raise self._miss(self._why_missing(asked, wanted, key))
        return await self._record(asked, wanted, ask, form)

    def seconds(self, elapsed: float) -> float:
        """What the run took, told at its end: as recorded where all its answers came from the tape, else `elapsed` and
        the time that those from the tape took once."""
        stored = self._stored.duration_seconds if isinstance(self._stored, Cassette) else None
        if self._waited and not self._recorded and stored is not None:
            self._duration = stored
        else:
            self._duration = elapsed + sum(self._waited)
        return self._duration

    def state(self) -> Literal["recorded", "replayed"] | None:
        """Whether anything was recorded, or else replayed, since this was asked last."""
        state: Literal["recorded", "replayed"] | None = (
            "recorded" if self._recorded else "replayed" if self._replayed else None
        )
        self._recorded = self._replayed = False
        return state

    def paid(self, usages: Sequence[Usage]) -> list[Usage]:
        """Of what was used since this was asked last, what was paid for now: answers from the tape cost nothing."""
        paid = self._bill if self._free else list(usages)
        self._bill, self._free = [], False
        return paid

    def interrupted(self) -> None:
        """The session was stopped: what it cut off is no answer of anybody."""
        self._fresh = [slot for slot in self._fresh if slot.exchange is None or slot.exchange.cut_off != "agent"]
        self._unsaved = any(slot.exchange for slot in self._fresh)

    def require_complete(self) -> None:
        """Raises what the tape could not do, such as answer, also where an agent or a judge has caught it."""
        if self._trouble is not None:
            raise self._trouble

    # -- answers from the tape

    def _take(self, asked: str, key: str) -> Slot | None:
        """The next unused answer to the request: that of this very task, where tasks ask the same."""
        self._load(asked)
        if self.mode(asked) == "record" and not self._is_ours(self._stored):
            return None
        slots = [slot for slot in self._by_request.get(key, ()) if not slot.used]
        before = _previous.get()
        slot = next((slot for slot in slots if slot.previous is before), slots[0] if slots else None)
        if slot is not None:
            slot.used = True
        return slot

    def _load(self, asked: str) -> None:
        """Reads the file once. A broken one stops whoever needs it, and not who records anew."""
        if not self._loaded:
            self._loaded = True
            try:
                self._stored = read_cassette(self.path)
            except ConfigError as error:
                self._stored = error
            for slot in slots_of(_exchanges(self._stored)):
                self._by_request.setdefault(slot.key, []).append(slot)
        if isinstance(self._stored, ConfigError) and self.mode(asked) != "record":
            raise self._noted(self._stored)

    async def _replay(self, slot: Slot, form: Form[T]) -> T:
        exchange = slot.exchange
        assert exchange is not None
        self._replayed = self._free = True
        self._waited.append(exchange.seconds)
        _previous.set(slot)
        if exchange.refused is not None:
            raise form.refused(exchange.refused)
        if exchange.reply is None:
            raise await self._cut_off(exchange)
        answer = exchange.reply
        folder = self.folder()
        if folder is not None:
            kept = {"content", "message", "results"}
            answer = answer.model_copy(update=placed(answer.model_dump(include=kept), folder))
        return form.read(answer, exchange.seconds)

    async def _cut_off(self, exchange: Exchange) -> ProviderError:
        """Waits to be cancelled again, at once where it was by the run's time limit; else the error to raise."""
        timer = self.timer
        if exchange.cut_off == "run" and timer is not None and timer.when() is not None:
            timer.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()
        if exchange.cut_off == "agent":
            await asyncio.sleep(exchange.seconds + _GRACE_SECONDS)
        return self._miss(
            f"{exchange.asked}: no answer was recorded in {self.path}: the {exchange.cut_off} gave it up after "
            f"{exchange.seconds:.1f} s, and now it is waited for; {_RECORD}"
        )

    def _miss(self, message: str) -> ProviderError:
        return self._noted(ProviderError(message, code=NOT_RECORDED))

    def _noted(self, error: E) -> E:
        self._trouble = self._trouble or error
        return error

    def _why_missing(self, asked: str, request: dict[str, Any], key: str) -> str:
        if self._stored is None:
            return f"{asked}: there is no cassette {self.path}; {_RECORD}"
        same = len(self._by_request.get(key, ()))
        if same:
            times = "once" if same == 1 else f"{same} times"
            return f"{asked}: the cassette {self.path} has this request {times}, and it is asked again; {_RECORD}"
        exchanges = list(enumerate(_exchanges(self._stored), start=1))
        recorded = [(number, each.request) for number, each in exchanges if each.asked == asked]
        found = difference(request, recorded)
        if found is None:
            return f"{asked}: the cassette {self.path} has no request to it; {_RECORD}"
        number, diff = found
        return (
            f"{asked}: the cassette {self.path} does not have this request; the nearest it has is exchange {number}:\n"
            f"{diff}\n{_RECORD[0].upper()}{_RECORD[1:]}."
        )

    # -- answers for the tape

    async def _record(self, asked: str, request: dict[str, Any], ask: Callable[[], Awaitable[T]], form: Form[T]) -> T:
        self._require_writable()
        slot = Slot(None, previous=_previous.get(), used=True)
        self._fresh.append(slot)
        begun = time.perf_counter()

        def keep(**came: Any) -> None:
            seconds = round(time.perf_counter() - begun, 4)
            slot.exchange = Exchange(asked=asked, request=request, seconds=seconds, **came)
            self._unsaved = self._recorded = True
            _previous.set(slot)

        try:
            value = await ask()
        except asyncio.CancelledError:
            keep(cut_off="run" if self.timer is not None and self.timer.expired() else "agent")
            raise
        except Exception as error:
            refusal = form.refusal(error)
            if refusal is not None:
                keep(refused=neutral(refusal.model_dump(), self.folder(), self._redactor))
            raise
        answer = form.write(value)
        keep(reply=Answer.model_validate(neutral(answer.model_dump(), self.folder(), self._redactor)))
        if answer.results is None:
            self._bill.append(answer.usage)
        return value

    def save(self) -> None:
        """Writes what was recorded into the file, beside what that has of others and of this session.

        Raises UnwritableError where that cannot be.
        """
        if not self._unsaved:
            return
        slots = merged(self._others(), self._fresh)
        cassette = replace(self.label, duration_seconds=self._duration, exchanges=tuple(numbered(slots)))
        try:
            write_atomically(str(self.path.parent), self.path.name, cassette_yaml(cassette))
        except OSError as error:
            raise self._unwritable(error.strerror or str(error)) from error
        self._unsaved = False

    def _others(self) -> list[Slot]:
        """What the file holds by now and is to stay there."""
        try:
            stored = read_cassette(self.path)
        except ConfigError:
            return []
        if stored is not None and self._duration is None:
            self._duration = stored.duration_seconds
        ours = self._is_ours(stored)
        slots = slots_of(_exchanges(stored))
        return [slot for slot in slots if slot.exchange and (ours or self.mode(slot.exchange.asked) != "record")]

    def _is_ours(self, stored: Cassette | ConfigError | None) -> bool:
        return isinstance(stored, Cassette) and stored.session is not None and stored.session == self.label.session

    def _require_writable(self) -> None:
        """Better now than when the answer is paid for."""
        try:
            refuse_links(self.path)
        except ConfigError as error:
            raise self._noted(error) from None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._noted(self._unwritable(error.strerror or str(error))) from error
        if not os.access(self.path.parent, os.W_OK):
            raise self._noted(self._unwritable("no permission"))

    def _unwritable(self, why: str) -> UnwritableError:
        return UnwritableError(f"{self.path}: the cassette cannot be written: {why}")


_RECORD = "record it with --agentbench-cassettes auto (what is missing) or record (all anew)"


def _exchanges(stored: Cassette | ConfigError | None) -> tuple[Exchange, ...]:
    return stored.exchanges if isinstance(stored, Cassette) else ()
