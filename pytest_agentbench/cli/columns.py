"""The fields of unknown rows: their dotted paths and values, and conversations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

Values = dict[int, Any]
"""The values of a field by the places of the rows that have it."""

INNER = ("text", "value", "stem", "content", "body", "spans")
"""Names inside of the object that is the question or the answer."""

ROLES = ("role", "from")
"""Keys that name the speaker of a turn in a conversation."""

_DEPTH = 4
_MOST_FIELDS = 500
_MOST_TURNS = 8


def list_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Values]:
    """Return all fields down to a depth of 4 that a dotted path can name. Null counts as no value.

    A list contributes the fields of its first element, a conversation those of its first 8 turns.
    """
    columns: dict[str, Values] = {}
    for at, row in enumerate(rows):
        for path, value in islice(_walk_leaves(row, "", _DEPTH), _MOST_FIELDS):
            if value is not None:
                columns.setdefault(path, {})[at] = value
    return columns


def find_named_field(
    columns: Mapping[str, Values],
    names: Sequence[str],
    fits: Callable[[Values], bool],
    taken: Collection[str],
    *,
    inner: bool = True,
) -> str | None:
    """Return the field that fits and has the first of the names, the least nested one.

    `inner`: a name may also be the one of an object or list that holds the text (`answers.text.0`).
    """
    best: dict[str, str] = {}
    # The least nested first: `answer` before `meta.answer`.
    for path in sorted(columns, key=lambda path: path.count(".")):
        for name in _list_names(path, inner):
            if name in names and name not in best and path not in taken and fits(columns[path]):
                best[name] = path
    return next((best[name] for name in names if name in best), None)


def find_fields_below(columns: Mapping[str, Values], names: Sequence[str]) -> set[str]:
    """Return the fields that have one of the names, and all inside them."""
    return {path for path in columns if any(normalize_name(part) in names for part in path.split("."))}


def list_unused(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Values], used: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the fields that are neither used nor hold or belong to a used one, outermost only, each with a value."""
    roots = {path.partition(".*")[0] for path in used}
    above = {path.rsplit(".", depth)[0] for path in roots for depth in range(1, path.count(".") + 1)}
    named: set[str] = set()
    for path, values in columns.items():
        below = any(path.startswith(f"{other}.") for other in (*roots, *named))
        # The place of a turn already names its speaker.
        speaks = path.rpartition(".")[2] in ROLES and path.rpartition(".")[0] in above
        if path not in roots | above and not below and not speaks:
            named.add(path)
            yield path, next((value for value in values.values() if value != ""), "")
    # Names that no path can spell have no column.
    for key in dict.fromkeys(key for row in rows for key in row if key not in columns):
        value = next((row[key] for row in rows if row.get(key) is not None), None)
        if value is not None:
            yield key, value


def take_last_name(path: str) -> str:
    """Return the field's own name, without the objects that hold it."""
    return path.rpartition(".")[2]


def normalize_name(name: str) -> str:
    """Return the name without case and separators: `finalanswer` of `Final answer` and `final_answer`."""
    return "".join(sign for sign in name.casefold() if sign.isalnum())


def _walk_leaves(value: object, path: str, depth: int) -> Iterator[tuple[str, object]]:
    if path:
        yield path, value
    inner: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        # A name with a dot looks like a path, so no descriptor can name the field.
        inner = [(key, each) for key, each in value.items() if key.strip() and "." not in key]
    elif isinstance(value, list) and value:
        # The first element represents a whole list; turns of a conversation differ by place.
        inner = [(str(at), each) for at, each in enumerate(value[: _MOST_TURNS if _is_turn(value[0]) else 1])]
    if depth:
        for key, each in inner:
            yield from _walk_leaves(each, f"{path}.{key}" if path else key, depth - 1)


def _is_turn(value: object) -> bool:
    return isinstance(value, Mapping) and any(isinstance(value.get(key), str) for key in ROLES)


def _list_names(path: str, inner: bool) -> list[str]:
    # Numbers are places in lists: `answers.text.0` is called `text`.
    parts = [normalize_name(part) for part in path.split(".") if not (inner and part.isdecimal())]
    if inner and parts[-1:] and parts[-1] in INNER:
        return parts[-2:]
    return parts[-1:]


_USER = frozenset({"user", "human"})
_ASSISTANT = frozenset({"assistant", "gpt", "model", "bot", "chatgpt"})
_SYSTEM = frozenset({"system", "developer"})
_CONTENTS = ("content", "value", "text")


@dataclass(frozen=True, slots=True)
class Exchange:
    """The fields of a conversation's first turns: the user's message, the reply, and the system message before."""

    conversation: str
    question: str
    answer: str | None
    system: str | None
    goes_on: bool


def find_first_exchange(columns: Mapping[str, Values], count: int) -> Exchange | None:
    """Return the first turns of the rows' conversations, or None if the conversations begin differently."""
    for conversation, place in _find_turns(columns, count, _USER):
        question = _find_content(columns, count, conversation, place, _USER)
        if question is not None:
            return Exchange(
                conversation=conversation,
                question=question,
                answer=_find_content(columns, count, conversation, place + 1, _ASSISTANT),
                system=_find_content(columns, count, conversation, 0, _SYSTEM),
                goes_on=any(f"{conversation}.{place + 2}.{key}" in columns for key in ROLES),
            )
    return None


def _find_turns(columns: Mapping[str, Values], count: int, speakers: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield conversation and place of the turns that all rows have and one of the speakers speaks."""
    for path in columns:
        turn, _, key = path.rpartition(".")
        conversation, _, place = turn.rpartition(".")
        if key in ROLES and place.isdecimal() and _are_speakers(columns[path], count, speakers):
            yield conversation, int(place)


def _find_content(
    columns: Mapping[str, Values], count: int, conversation: str, place: int, speakers: frozenset[str]
) -> str | None:
    """Return the field with the text of a turn, or None unless the same speaker has it in all rows."""
    turn = f"{conversation}.{place}"
    if not any(_are_speakers(columns.get(f"{turn}.{key}", {}), count, speakers) for key in ROLES):
        return None
    paths = [f"{turn}.{name}" for name in _CONTENTS]
    return next((path for path in paths if path in columns and _are_texts(columns[path], count)), None)


def _are_speakers(values: Values, count: int, speakers: frozenset[str]) -> bool:
    return _are_texts(values, count) and all(value.casefold() in speakers for value in values.values())


def _are_texts(values: Values, count: int) -> bool:
    return len(values) == count and all(isinstance(value, str) for value in values.values())
