"""The places on a tape: exchanges in order, each with the one that its task had before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pytest_agentbench.models.cassette_file import Exchange
from pytest_agentbench.store import fingerprint


@dataclass(eq=False)
class Slot:
    """A place on the tape. `exchange` is None while nothing has come back; `previous` is what the task asked before."""

    exchange: Exchange | None
    previous: Slot | None = None
    used: bool = False

    @cached_property
    def key(self) -> str:
        """The `request_key` of its exchange."""
        assert self.exchange is not None
        return request_key(self.exchange.asked, self.exchange.request)

    @cached_property
    def identity(self) -> str:
        """What its exchange is, wherever it stands in a file."""
        assert self.exchange is not None
        came = self.exchange.model_dump(mode="json", exclude={"after", "asked", "request"})
        return fingerprint([self.key, came])


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
    there = Counter(slot.identity for slot in kept)
    result = list(kept)
    for slot in fresh:
        if slot.exchange is None:
            continue
        if there and there[slot.identity]:
            there[slot.identity] -= 1
        else:
            result.append(slot)
    return result


def numbered(slots: Sequence[Slot]) -> Iterator[Exchange]:
    """The exchanges for a file, with `after` where equal requests are to be told apart by it."""
    places = {id(slot): number for number, slot in enumerate(slots, start=1)}
    previous = [slot.previous for slot in slots if slot.previous is not None]
    strangers = any(id(slot) not in places for slot in previous)  # read again since, or merged
    alike = {slot.identity: number for number, slot in enumerate(slots, start=1)} if strangers else {}
    before = [
        None if slot.previous is None else places.get(id(slot.previous)) or alike.get(slot.previous.identity)
        for slot in slots
    ]
    origins: dict[str, set[int | None]] = {}
    for slot, number in zip(slots, before, strict=True):
        origins.setdefault(slot.key, set()).add(number)
    for slot, number in zip(slots, before, strict=True):
        assert slot.exchange is not None
        yield slot.exchange.model_copy(update={"after": number if len(origins[slot.key]) > 1 else None})
