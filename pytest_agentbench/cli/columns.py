"""The fields of unknown rows: their dotted paths, their values, and how they are found by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

Values = dict[int, Any]
"""The values of a field by the places of the rows that have it."""

INNER = ("text", "value", "stem", "content", "body", "spans")
"""Names inside of the object that is the question or the answer."""

ROLES = ("role", "from")
"""Keys that say who speaks in a turn of a conversation."""

_DEPTH = 4
_MOST_FIELDS = 500
_MOST_TURNS = 8


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Values]:
    """All fields down to a depth of 4 that a dotted path can name. Null is no value.

    Of a list that is its first element, of a conversation its first 8 turns.
    """
    columns: dict[str, Values] = {}
    for at, row in enumerate(rows):
        for path, value in islice(_leaves(row, "", _DEPTH), _MOST_FIELDS):
            if value is not None:
                columns.setdefault(path, {})[at] = value
    return columns


def named(
    columns: Mapping[str, Values],
    names: Sequence[str],
    fits: Callable[[Values], bool],
    taken: Collection[str],
    *,
    inner: bool = True,
) -> str | None:
    """The field that fits and has the first of the names, the least nested one.

    `inner`: a name may also be the one of an object or list that holds the text (`answers.text.0`).
    """
    best: dict[str, str] = {}
    for path in sorted(columns, key=lambda path: path.count(".")):
        for name in _names(path, inner):
            if name in names and name not in best and path not in taken and fits(columns[path]):
                best[name] = path
    return next((best[name] for name in names if name in best), None)


def below(columns: Mapping[str, Values], names: Sequence[str]) -> set[str]:
    """The fields that have one of the names, and all inside them."""
    return {path for path in columns if any(plain(part) in names for part in path.split("."))}


def last(path: str) -> str:
    """The field's own name, without the objects that hold it."""
    return path.rpartition(".")[2]


def plain(name: str) -> str:
    """The name without case and separators: `finalanswer` of `Final answer` and `final_answer`."""
    return "".join(sign for sign in name.casefold() if sign.isalnum())


def _leaves(value: object, path: str, depth: int) -> Iterator[tuple[str, object]]:
    if path:
        yield path, value
    inner: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        inner = [(key, each) for key, each in value.items() if key.strip() and "." not in key]
    elif isinstance(value, list) and value:
        inner = [(str(at), each) for at, each in enumerate(value[: _MOST_TURNS if _is_turn(value[0]) else 1])]
    if depth:
        for key, each in inner:
            yield from _leaves(each, f"{path}.{key}" if path else key, depth - 1)


def _is_turn(value: object) -> bool:
    return isinstance(value, Mapping) and any(isinstance(value.get(key), str) for key in ROLES)


def _names(path: str, inner: bool) -> list[str]:
    parts = [plain(part) for part in path.split(".") if not (inner and part.isdecimal())]
    return parts[-2:] if inner and parts[-1:] and parts[-1] in INNER else parts[-1:]
