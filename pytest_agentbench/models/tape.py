"""The tape of one run: its cassette in use, which answers canonical requests and records new answers."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.config.grants import note_recording
from pytest_agentbench.errors import AgentbenchError, ConfigError, ProviderError, UnwritableError
from pytest_agentbench.identity.fingerprints import fingerprint
from pytest_agentbench.models.apis.chat import drop_empty
from pytest_agentbench.models.cassette_file import (
    Answer,
    Cassette,
    Exchange,
    Refusal,
    dump_cassette,
    find_nearest,
    read_cassette,
    refuse_links,
)
from pytest_agentbench.models.metering import METER
from pytest_agentbench.models.routes import Cassettes
from pytest_agentbench.records.case import Case, CassetteMode
from pytest_agentbench.records.run import Usage
from pytest_agentbench.secrets.redaction import Redactor

if TYPE_CHECKING:
    from pathlib import Path


WORKSPACE = "[workspace]"
"""Placeholder for the run's working folder, whose path differs each time."""

_TAGS = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "user"})
"""Fields by which a caller marks its requests; no model sees them."""

_BOUNDARY = re.compile(r"(<<<(?:DATA|END) )([0-9a-f]{32})\b")
"""The code of the blocks in a judge's request: a hash of all of them, folder names included."""


def canonicalize(request: Mapping[str, Any], folder: str | None, redactor: Redactor) -> dict[str, Any]:
    """Return the JSON-like request without tags and secrets, with `[workspace]` in place of the run's `folder`."""

    def neutralize(text: str) -> str:
        return _BOUNDARY.sub(r"\1[boundary]", _hide_folder(text, folder))

    untagged = {name: value for name, value in request.items() if name not in _TAGS}
    # Most requests contain neither. One search in all texts is cheaper than a copy of a long conversation.
    text = "\0".join(_list_texts(untagged))
    if neutralize(text) == text == redactor.text(text):
        return untagged
    result: dict[str, Any] = redactor.value(map_texts(untagged, neutralize))
    return result


def _neutralize(value: Any, folder: str | None, redactor: Redactor) -> Any:
    """Return a JSON-like answer as a cassette keeps it."""
    return redactor.value(map_texts(value, lambda text: _hide_folder(text, folder)))


def _restore_folder(value: Any, folder: str | None) -> Any:
    """Return a stored answer for a run in `folder`."""
    if folder is None:
        return value
    return map_texts(value, lambda text: text.replace(WORKSPACE, folder))


def _hide_folder(text: str, folder: str | None) -> str:
    """Return the text with `[workspace]` in place of the folder."""
    if folder is None:
        return text
    return text.replace(folder, WORKSPACE)


def _list_texts(value: Any) -> list[str]:
    """Return all texts in the value, keys included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, item in value.items() for part in (key, item) for text in _list_texts(part)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _list_texts(item)]
    return []


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with every text in it changed. Keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [map_texts(item, change) for item in value]
    return value


@dataclass(eq=False)
class Slot:
    """Slot of the tape. `exchange` is None until there is an answer; `previous` is the task's previous slot."""

    exchange: Exchange | None
    previous: Slot | None = None
    used: bool = False

    @cached_property
    def key(self) -> str:
        """Return the `_hash_request` of its exchange."""
        assert self.exchange is not None
        return _hash_request(self.exchange.asked, self.exchange.request)

    @cached_property
    def identity(self) -> str:
        """Return the hash of the exchange, independent of its place in a file."""
        assert self.exchange is not None
        result = self.exchange.model_dump(mode="json", exclude={"after", "asked", "request"})
        return fingerprint([self.key, result])


def _hash_request(asked: str, request: dict[str, Any]) -> str:
    """Return a hash that equal requests to one model or service share.

    Ignores empty fields of assistant messages: older versions sent and recorded them.
    """
    if isinstance(messages := request.get("messages"), list):
        request = {**request, "messages": [_drop_empty(message) for message in messages]}
    return fingerprint([asked, request])


def _drop_empty(message: Any) -> Any:
    if isinstance(message, Mapping) and message.get("role") == "assistant":
        return drop_empty(message)
    return message


def make_slots(exchanges: Sequence[Exchange]) -> list[Slot]:
    """Return the exchanges of a file as slots of a tape."""
    slots = [Slot(exchange) for exchange in exchanges]
    for slot, exchange in zip(slots, exchanges, strict=True):
        if exchange.after is not None and exchange.after <= len(slots):
            slot.previous = slots[exchange.after - 1]
    return slots


def _merge_slots(stored: Sequence[Slot], fresh: Iterable[Slot]) -> list[Slot]:
    """Return the stored slots, then the new ones that have an answer and are not among them."""
    counts = Counter(slot.identity for slot in stored)
    merged = list(stored)
    for slot in fresh:
        if slot.exchange is None:
            continue
        if counts and counts[slot.identity]:
            counts[slot.identity] -= 1
        else:
            merged.append(slot)
    return merged


def number_exchanges(slots: Sequence[Slot]) -> Iterator[Exchange]:
    """Yield the exchanges for a file, with `after` if equal requests are distinguished by it."""
    places = {id(slot): number for number, slot in enumerate(slots, start=1)}
    equals: dict[str, int] = {}
    if any(slot.previous is not None and id(slot.previous) not in places for slot in slots):
        # The file was read again or merged since, so an equal slot is in the place of the task's own.
        equals = {slot.identity: number for number, slot in enumerate(slots, start=1)}
    numbers = [
        None if slot.previous is None else places.get(id(slot.previous)) or equals.get(slot.previous.identity)
        for slot in slots
    ]
    origins: dict[str, set[int | None]] = {}
    for slot, number in zip(slots, numbers, strict=True):
        origins.setdefault(slot.key, set()).add(number)
    for slot, number in zip(slots, numbers, strict=True):
        assert slot.exchange is not None
        is_ambiguous = len(origins[slot.key]) > 1
        yield slot.exchange.model_copy(update={"after": number if is_ambiguous else None})


T = TypeVar("T")
E = TypeVar("E", bound=AgentbenchError)

_NOT_RECORDED = "not_recorded"
"""The code of the ProviderError for a request that a replay does not have."""

_GRACE_SECONDS = 5.0
"""Additional seconds that a replay waits if the agent of the recording gave up waiting."""


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """Codec of recorded answers of one kind: `write`, and `read` with the answer's seconds.

    `refusal` returns the recorded form of an exception (None: not recorded, for example an outage), `refused` the
    exception of a recorded form.
    """

    write: Callable[[T], Answer]
    read: Callable[[Answer, float], T]
    refusal: Callable[[Exception], Refusal | None]
    refused: Callable[[Refusal], Exception]


def _current_role() -> str | None:
    """Return the role that the current request belongs to, None for the run's own model and for judges."""
    meter = METER.get()
    if meter is None:
        return None
    return meter.role


_previous: ContextVar[Slot | None] = ContextVar("agentbench_previous_exchange", default=None)
"""The last exchange of the running task: it distinguishes equal requests of parallel tasks."""


class Tape:
    """The exchanges of one run and of its verdict. For one event loop.

    `folder` gives the run's workspace, None while it has none; `timer` is the run's time limit while it runs.
    `run_models` are the ids of the models that make the run: the subject, and the models of its roles.
    """

    def __init__(self, path: Path, label: Cassette, modes: Callable[[str], CassetteMode], redactor: Redactor) -> None:
        """Set up a tape; nothing is read yet.

        `label` names the cassette's run and the recording session; `modes` returns the mode for a model or service.
        """
        self.path, self.label, self.mode = path, label, modes
        self.folder: Callable[[], str | None] = lambda: None
        self.timer: asyncio.Timeout | None = None
        self.run_models: tuple[str, ...] = (label.model,)
        self._redactor = redactor
        self._stored: Cassette | ConfigError | None = None
        self._loaded = False
        self._by_request: dict[str, list[Slot]] = {}  # stored slots by the hash of their request, in file order
        self._fresh: list[Slot] = []  # slots of this run, in the order in which their requests began
        self._unsaved = False
        self._trouble: AgentbenchError | None = None
        self._duration: float | None = None
        self._waited: list[float] = []  # recorded seconds of the answers that came from the tape
        self._usages: dict[str | None, list[Usage]] = defaultdict(list)  # of paid answers, by the role of METER
        self._free_roles: set[str | None] = set()  # roles with an answer from the tape
        self._replayed = self._recorded = False

    async def play(
        self,
        asked: str,
        request: dict[str, Any],
        ask: Callable[[], Awaitable[T]],
        form: Form[T],
        earlier: dict[str, Any] | None = None,
    ) -> T:
        """Return the answer of a model or service (`asked`) to a JSON-like request: the answer on the tape, else that
        of `ask`, which is recorded.

        Equal requests get the recorded answers one after the other. `earlier` is the same request as an older version
        recorded it. Raises ProviderError (`not_recorded`) if a
        replay has none left, ConfigError for a broken file.
        """
        canonical = canonicalize(request, self.folder(), self._redactor)
        key = _hash_request(asked, canonical)
        slot = self._take_slot(asked, key)
        if slot is None and earlier is not None and earlier != request:
            slot = self._take_slot(asked, _hash_request(asked, canonicalize(earlier, self.folder(), self._redactor)))
        if slot is not None:
            return await self._replay(slot, form)
        if self.mode(asked) == "replay":
            raise self._make_miss(self._explain_missing(asked, canonical, key))
        return await self._ask_and_record(asked, canonical, ask, form)

    def settle_seconds(self, elapsed: float) -> float:
        """Set and return the duration of the run in seconds, at its end.

        It is the recorded duration if all answers came from the tape. Otherwise it is `elapsed` plus the recorded times
        of the answers from the tape.
        """
        self._duration = elapsed + sum(self._waited)
        if self._waited and not self._recorded and isinstance(self._stored, Cassette):
            recorded = self._stored.duration_seconds
            self._duration = self._duration if recorded is None else recorded
        return self._duration

    def take_state(self) -> Literal["recorded", "replayed"] | None:
        """Return whether anything was recorded, or else replayed, since the last call."""
        state: Literal["recorded", "replayed"] | None = None
        if self._recorded:
            state = "recorded"
        elif self._replayed:
            state = "replayed"
        self._recorded = self._replayed = False
        return state

    def take_paid(self, usages: Sequence[Usage], role: str | None = None) -> list[Usage]:
        """Return the paid part of a role's `usages` since the last call: answers from the tape cost nothing."""
        recorded = self._usages.pop(role, [])
        if role not in self._free_roles:
            return list(usages)
        self._free_roles.discard(role)
        return recorded

    def forget_cut_off(self) -> None:
        """Remove the answers that agents did not wait for: the session was stopped, so they are incomplete."""
        self._fresh = [slot for slot in self._fresh if slot.exchange is None or slot.exchange.cut_off != "agent"]
        # Also if nothing else was recorded: otherwise the removed slots would be written.
        self._unsaved = any(slot.exchange for slot in self._fresh)

    def require_complete(self) -> None:
        """Raise the first failure of the tape, such as a missing answer, also if an agent or a judge caught it."""
        if self._trouble is not None:
            raise self._trouble

    # -- answers from the tape

    def _take_slot(self, asked: str, key: str) -> Slot | None:
        """Return the next unused answer to the request. If several tasks made it, prefer the answer to this task."""
        self._load(asked)
        if self.mode(asked) == "record" and not self._is_ours(self._stored):
            return None
        slots = [slot for slot in self._by_request.get(key, ()) if not slot.used]
        if not slots:
            return None
        # Parallel tasks may make equal requests. Each continues after its own last exchange, as in the recording.
        previous = _previous.get()
        slot = next((slot for slot in slots if slot.previous is previous), slots[0])
        slot.used = True
        return slot

    def _load(self, asked: str) -> None:
        """Read the file once. A broken file is an error for a replay, and not for a new recording."""
        if not self._loaded:
            self._loaded = True
            try:
                self._stored = read_cassette(self.path, self.label)
            except ConfigError as error:
                self._stored = error
            for slot in make_slots(_list_exchanges(self._stored)):
                self._by_request.setdefault(slot.key, []).append(slot)
        if isinstance(self._stored, ConfigError) and self.mode(asked) != "record":
            raise self._note_trouble(self._stored)

    async def _replay(self, slot: Slot, form: Form[T]) -> T:
        exchange = slot.exchange
        assert exchange is not None
        self._replayed = True
        self._free_roles.add(_current_role())
        self._waited.append(exchange.seconds)
        _previous.set(slot)
        if exchange.refused is not None:
            raise form.refused(exchange.refused)
        if exchange.reply is None:
            raise await self._wait_for_cut_off(exchange)
        answer = exchange.reply
        folder = self.folder()
        if folder is not None:
            texts = answer.model_dump(include={"content", "message", "results"})
            answer = answer.model_copy(update=_restore_folder(texts, folder))
        return form.read(answer, exchange.seconds)

    async def _wait_for_cut_off(self, exchange: Exchange) -> ProviderError:
        """Wait to be cancelled as in the recording, at once if the run's time limit did it. Return the error to raise
        if nothing cancels.
        """
        timer = self.timer
        if exchange.cut_off == "run" and timer is not None and timer.when() is not None:
            # The recorded run hit its limit here: expire the limit now instead of waiting for it once more.
            timer.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()
        if exchange.cut_off == "agent":
            await asyncio.sleep(exchange.seconds + _GRACE_SECONDS)
        return self._make_miss(
            f"{exchange.asked}: no answer was recorded in {self.path}: the {exchange.cut_off} stopped waiting after "
            f"{exchange.seconds:.1f} s, and this time it waits longer; {_RECORD}"
        )

    def _make_miss(self, message: str) -> ProviderError:
        return self._note_trouble(ProviderError(message, code=_NOT_RECORDED))

    def _note_trouble(self, error: E) -> E:
        self._trouble = self._trouble or error
        return error

    def _explain_missing(self, asked: str, request: dict[str, Any], key: str) -> str:
        if self._stored is None:
            return f"{asked}: there is no cassette {self.path}; {_RECORD}"
        if count := len(self._by_request.get(key, ())):
            times = "once" if count == 1 else f"{count} times"
            return f"{asked}: the cassette {self.path} has this request {times}, and it is asked again; {_RECORD}"
        exchanges = enumerate(_list_exchanges(self._stored), start=1)
        recorded = [(number, exchange.request) for number, exchange in exchanges if exchange.asked == asked]
        nearest = find_nearest(request, recorded)
        if nearest is None:
            return f"{asked}: the cassette {self.path} has no request to it; {_RECORD}"
        number, diff = nearest
        return (
            f"{asked}: the cassette {self.path} does not have this request; the nearest it has is exchange {number}:\n"
            f"{diff}\n{_RECORD[0].upper()}{_RECORD[1:]}."
        )

    # -- answers for the tape

    async def _ask_and_record(
        self, asked: str, request: dict[str, Any], ask: Callable[[], Awaitable[T]], form: Form[T]
    ) -> T:
        self._require_writable()
        # Added before it is asked: parallel requests keep the order in which they began.
        slot = Slot(None, previous=_previous.get(), used=True)
        self._fresh.append(slot)
        begun = time.perf_counter()

        def keep(**result: Any) -> None:
            # Cassettes are under version control: rounded numbers have short diffs.
            seconds = round(time.perf_counter() - begun, 4)
            slot.exchange = Exchange(asked=asked, request=request, seconds=seconds, **result)
            self._unsaved = self._recorded = True
            _previous.set(slot)

        metering = None
        if (meter := METER.get()) is not None:
            metering = METER.set(meter.also(self._usages[meter.role].append))
        try:
            value = await ask()
        except asyncio.CancelledError:
            # A replay repeats the run's limit at once, and waits for the agent's own.
            by_run = self.timer is not None and self.timer.expired()
            keep(cut_off="run" if by_run else "agent")
            raise
        except Exception as error:
            refusal = form.refusal(error)
            if refusal is not None:
                keep(refused=_neutralize(refusal.model_dump(), self.folder(), self._redactor))
            raise
        finally:
            if metering is not None:
                METER.reset(metering)
        answer = form.write(value)
        keep(reply=Answer.model_validate(_neutralize(answer.model_dump(), self.folder(), self._redactor)))
        # Only models report usage; searches, pages and MCP calls have results.
        if answer.results is None:
            self._usages[_current_role()].append(answer.usage)
        return value

    def save(self) -> None:
        """Write the recorded exchanges to the file, and keep those of others and of this session.

        Raises UnwritableError if the file cannot be written.
        """
        if not self._unsaved:
            return
        # Read again just before writing: another run of this session, or its judge, may have saved since.
        slots = _merge_slots(self._read_kept_slots(), self._fresh)
        cassette = replace(self.label, duration_seconds=self._duration, exchanges=tuple(number_exchanges(slots)))
        try:
            content = dump_cassette(cassette)
            note_recording(self.path, content)
            write_atomically(str(self.path.parent), self.path.name, content)
        except OSError as error:
            raise self._make_unwritable(error.strerror or str(error)) from error
        self._unsaved = False

    def _read_kept_slots(self) -> list[Slot]:
        """Return the exchanges of the file that stay there."""
        try:
            stored = read_cassette(self.path, self.label)
        except ConfigError:
            return []
        if stored is not None and self._duration is None:
            self._duration = stored.duration_seconds
        ours = self._is_ours(stored)
        slots = make_slots(_list_exchanges(stored))
        return [slot for slot in slots if slot.exchange and (ours or self.mode(slot.exchange.asked) != "record")]

    def _is_ours(self, stored: Cassette | ConfigError | None) -> bool:
        return isinstance(stored, Cassette) and stored.session is not None and stored.session == self.label.session

    def _require_writable(self) -> None:
        """Raise UnwritableError before an answer is paid for that could not be recorded."""
        try:
            refuse_links(self.path)
        except ConfigError as error:
            raise self._note_trouble(error) from None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._note_trouble(self._make_unwritable(error.strerror or str(error))) from error
        if not os.access(self.path.parent, os.W_OK):
            raise self._note_trouble(self._make_unwritable("no permission"))

    def _make_unwritable(self, problem: str) -> UnwritableError:
        return UnwritableError(f"{self.path}: the cassette cannot be written: {problem}")


_RECORD = "record it with --agentbench-cassettes auto (missing answers) or record (all anew)"


def _list_exchanges(stored: Cassette | ConfigError | None) -> tuple[Exchange, ...]:
    if isinstance(stored, Cassette):
        return stored.exchanges
    return ()


def make_tape(
    cassettes: Cassettes,
    case: Case,
    model_id: str,
    repetition: int,
    modes: Mapping[str, CassetteMode],
    place: str | None = None,
) -> Tape:
    """Return the tape of a run. `modes` are its models' modes by id; others have the session's.

    `place` is the name of the file's column, default: the model's id.
    """
    label = Cassette(case.case_id, model_id, repetition, cassettes.session)
    path = cassettes.path(case, place or model_id, repetition)
    return Tape(path, label, lambda asked: modes.get(asked, cassettes.mode), cassettes.redactor)
