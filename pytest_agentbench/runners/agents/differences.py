"""Find texts that differ between two equal runs, and propose `volatile` lines for them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from pytest_agentbench.runners.gateway.offers import read_offer
from pytest_agentbench.terminal_text import shorten_text

OFFER = "the tools that they offer"
"""The place of a difference between the names of offered tools."""

_MOST_TEXT = 50_000
"""Maximum characters of a text that are compared word by word."""

_CONTEXT = 24
"""Characters before a difference that a pattern begins with."""

_KINDS = ((r"\d+", "[number]"), (r"[0-9a-f]+", "[id]"), (r"[0-9a-zA-Z_-]+", "[id]"), (r"\S+", "[text]"))
"""Patterns of values, the narrowest first, each with its replacement."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where two equal runs differ. `line` is a line of `volatile` that makes them equal, or None."""

    where: str
    one: str
    other: str
    line: str | None = None

    def describe(self) -> str:
        """Return the place with both texts."""
        return f"{self.where}: {shorten_text(self.one, 60)!r} and {shorten_text(self.other, 60)!r}"


def find_differences(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Return how the requests of two runs differ, each difference once; of other tools that they offer, only those."""
    found: dict[str, Difference] = {}
    if len(one) != len(other):
        found[""] = Difference("number of requests", str(len(one)), str(len(other)))
    for first, second in _pair(one, other):
        if (offers := _compare_offers(first, second)) is not None:
            return [offers]  # what differs besides follows from it
        texts = dict(_list_texts(second))
        for place, text in _list_texts(first):
            if texts.get(place, "") == text:
                continue
            for difference in _compare(place[0], text, texts.get(place, "")):
                found.setdefault(difference.line or difference.describe(), difference)
    return list(found.values())


def _compare_offers(first: Mapping[str, Any], second: Mapping[str, Any]) -> Difference | None:
    """Return the tools that only one of two requests offers, or None."""
    one, other = read_offer(first["tools"]), read_offer(second["tools"])
    only = [", ".join(name for name in offer if name not in rest) for offer, rest in ((one, other), (other, one))]
    return Difference(OFFER, *only) if any(only) else None


def _pair(
    one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the requests of two runs that are not in both, in pairs.

    A request beside the conversation, such as for a title, comes at any time.
    """
    left, rest = list(other), []
    for request in one:
        if request in left:
            left.remove(request)
        else:
            rest.append(request)
    for request in rest:
        alike = next((each for each in left if _measure(each) == _measure(request)), left[0] if left else None)
        if alike is not None:
            left.remove(alike)
            yield request, alike


def _measure(request: Mapping[str, Any]) -> tuple[int, int]:
    return len(request["messages"]), len(request["tools"])


def _list_texts(request: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts of a request by their places: the message's role or the field's name, then the path."""
    for name, value in request.items():
        if name == "messages":
            for number, message in enumerate(value):
                yield from _walk(message, (str(message.get("role")), str(number)))
        else:
            yield from _walk(value, (name,))


def _walk(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _walk(item, (*place, str(name)))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _walk(item, (*place, str(number)))
    elif value is not None:
        yield place, value if isinstance(value, str) else json.dumps(value)


def _compare(where: str, one: str, other: str) -> Iterator[Difference]:
    if max(len(one), len(other)) > _MOST_TEXT:
        yield Difference(where, one, other)
        return
    words, others = re.findall(r"[0-9a-zA-Z]+|\s+|.", one), re.findall(r"[0-9a-zA-Z]+|\s+|.", other)
    lines = []
    for kind, begin, end, begin_other, end_other in SequenceMatcher(None, words, others, autojunk=False).get_opcodes():
        if kind != "equal":
            before = "".join(words[:begin])
            values = "".join(words[begin:end]), "".join(others[begin_other:end_other])
            lines.append(Difference(where, *values, _propose(where, before, values)))
    proposed = [line for each in lines if (line := each.line) is not None]
    yield from lines if len(proposed) == len(lines) else [Difference(where, one, other)]


def _propose(where: str, before: str, values: tuple[str, str]) -> str | None:
    """Return a line of `volatile` for a value behind a text on the same line, or None."""
    context = before.rpartition("\n")[2][-_CONTEXT:]
    for pattern, name in _KINDS:
        if all(re.fullmatch(pattern, value) for value in values):
            role = f"where: {where}, " if where in ("system", "user", "assistant", "tool") else ""
            quoted = json.dumps(re.escape(context).replace("\\ ", " ") + pattern)
            return f"- {{{role}pattern: {quoted}, as: {json.dumps(context + name)}}}"
    return None
