"""The places on a tape: exchanges in order, each with the one that its task had before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.models.cassette_file import Exchange
from pytest_agentbench.store import fingerprint


@dataclass(eq=False, slots=True)
class Slot:
    """A place on the tape. `exchange` is None while nothing has come back; `previous` is what the task asked before."""

    exchange: Exchange | None
    previous: Slot | None = None
    used: bool = False


def request_key(asked: str, request: dict[str, Any]) -> str:
    """The same for equal requests to one."""
    return fingerprint([asked, request])


def slots_of(exchanges: Sequence[Exchange]) -> list[Slot]:
    """The exchanges of a file as places on a tape."""
    slots = [Slot(exchange) for exchange in exchanges]
    for slot, exchange in zip(slots, exchanges, strict=True):
        if exchange.after is not None and exchange.after <= len(slots):
            slot.previous = slots[exchange.after - 1]
    return slots


def merged(kept: Sequence[Slot], fresh: Iterable[Slot]) -> list[Slot]:
    """What is kept, then what is fresh, has come to something, and is not there already."""
    there: dict[str, int] = {}
    for slot in kept:
        there[_identity(slot)] = there.get(_identity(slot), 0) + 1
    result = list(kept)
    for slot in fresh:
        if slot.exchange is None:
            continue
        if there.get(_identity(slot)):
            there[_identity(slot)] -= 1
        else:
            result.append(slot)
    return result


def numbered(slots: Sequence[Slot]) -> Iterator[Exchange]:
    """The exchanges for a file, with `after` where equal requests are to be told apart by it."""
    exchanges = [slot.exchange for slot in slots if slot.exchange is not None]
    places = {id(slot): number for number, slot in enumerate(slots, start=1)}
    alike = {_identity(slot): number for number, slot in enumerate(slots, start=1)}  # read again since, or merged
    before = [
        None if previous is None else places.get(id(previous)) or alike.get(_identity(previous))
        for previous in (slot.previous for slot in slots)
    ]
    keys = [request_key(exchange.asked, exchange.request) for exchange in exchanges]
    origins: dict[str, set[int | None]] = {}
    for key, number in zip(keys, before, strict=True):
        origins.setdefault(key, set()).add(number)
    for exchange, key, number in zip(exchanges, keys, before, strict=True):
        yield exchange.model_copy(update={"after": number if len(origins[key]) > 1 else None})


def _identity(slot: Slot) -> str:
    """What an exchange is, wherever it stands in a file."""
    return "" if slot.exchange is None else fingerprint(slot.exchange.model_dump(mode="json", exclude={"after"}))
