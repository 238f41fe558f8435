"""The fields of unknown rows: their dotted paths and values, conversations, the choices of questions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from string import ascii_uppercase
from typing import Any, NamedTuple

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


_USER = frozenset({"user", "human"})
_ASSISTANT = frozenset({"assistant", "gpt", "model", "bot", "chatgpt"})
_SYSTEM = frozenset({"system", "developer"})
_CONTENTS = ("content", "value", "text")


class Exchange(NamedTuple):
    """The fields of the first turns: what the user says, the reply, and the system message before it."""

    conversation: str
    question: str
    answer: str | None
    system: str | None
    goes_on: bool


def first_exchange(columns: Mapping[str, Values], count: int) -> Exchange | None:
    """Of rows whose conversations begin alike; None where they do not."""
    for conversation, place in _turns(columns, count, _USER):
        question = _content(columns, count, conversation, place, _USER)
        if question is not None:
            return Exchange(
                conversation=conversation,
                question=question,
                answer=_content(columns, count, conversation, place + 1, _ASSISTANT),
                system=_content(columns, count, conversation, 0, _SYSTEM),
                goes_on=any(f"{conversation}.{place + 2}.{key}" in columns for key in ROLES),
            )
    return None


def _turns(columns: Mapping[str, Values], count: int, speakers: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Conversation and place of the turns that all rows have and one of the speakers speaks."""
    for path in columns:
        turn, _, key = path.rpartition(".")
        conversation, _, place = turn.rpartition(".")
        if key in ROLES and place.isdecimal() and _speaks(columns[path], count, speakers):
            yield conversation, int(place)


def _content(
    columns: Mapping[str, Values], count: int, conversation: str, place: int, speakers: frozenset[str]
) -> str | None:
    """The field with the text of a turn, where one of the speakers says it in all rows."""
    turn = f"{conversation}.{place}"
    if not any(_speaks(columns.get(f"{turn}.{key}", {}), count, speakers) for key in ROLES):
        return None
    paths = [f"{turn}.{name}" for name in _CONTENTS]
    return next((path for path in paths if path in columns and _are_texts(columns[path], count)), None)


def _speaks(values: Values, count: int, speakers: frozenset[str]) -> bool:
    return _are_texts(values, count) and all(value.casefold() in speakers for value in values.values())


def _are_texts(values: Values, count: int) -> bool:
    return len(values) == count and all(isinstance(value, str) for value in values.values())


CHOICES = ("choices", "options", "candidates", "endings", "选项")

_MOSTLY = 0.8
_LETTERED = re.compile(r"(option|choice|opt|op|)([a-z])")


class Choices(NamedTuple):
    """Where the choices of a row stand: the field of a list, or one field for each, by letter."""

    field: str
    lettered: tuple[tuple[str, str], ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields that hold choices."""
        return tuple(field for _, field in self.lettered) or (self.field,)


def find_choices(columns: Mapping[str, Values], count: int) -> Choices | None:
    """A list of texts, such a list below `text` (as in ARC), an object by letter, or fields A, B, C, ..."""

    def listed(values: Values) -> bool:
        return len(values) >= _MOSTLY * count and all(map(_is_list_of_choices, values.values()))

    path = named(columns, CHOICES, listed, (), inner=False)
    if path is None:
        inside = [path for path in columns if path.endswith(".text") and plain(path.split(".")[-2]) in CHOICES]
        path = next((path for path in inside if listed(columns[path])), None)
    if path is not None:
        return Choices(path)
    for choices in _by_letter(columns, count):
        if plain(last(choices.field)) in CHOICES or any(_letters(columns, choices, ())):
            return choices
    return None


def letters_of(
    columns: Mapping[str, Values], choices: Choices, answer: str | None, taken: Collection[str]
) -> str | None:
    """The field whose values are the letters of the choices: the answer's, else another one that is not `taken`."""
    return next(iter(_letters(columns, choices, taken, first=answer)), None)


def numbering_doubt(answers: Values, choices: Values) -> str | None:
    """Why numbers among the answers may not be places from 0 in the list of choices."""
    places: dict[int, int] = {}
    letters = 0
    for at, answer in answers.items():
        text = str(answer).strip()
        if text.isdecimal() and text not in map(str, choices.get(at, ())):
            places[at] = int(text)
        letters += len(text) == 1 and text.isalpha()
    if any(place == len(choices.get(at, ())) for at, place in places.items()):
        return "its numbers seem to count the choices from 1, multiple_choice counts from 0"
    if places and letters:
        return "some are numbers, others letters; multiple_choice counts numbers from 0"
    return None


def _by_letter(columns: Mapping[str, Values], count: int) -> Iterator[Choices]:
    """Fields of the same object with names such as A, B, C or option_a, option_b, which all rows fill with texts."""
    groups: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for path in columns:
        match = _LETTERED.fullmatch(plain(last(path)))
        if match is not None:
            groups[path.rpartition(".")[0], match[1]][match[2].upper()] = path
    for (parent, _), fields in groups.items():
        filled = all(len(columns[path]) == count and _are_choices(columns[path]) for path in fields.values())
        if filled and len(fields) >= 2 and "".join(sorted(fields)) == ascii_uppercase[: len(fields)]:
            lettered = tuple(sorted(fields.items()))
            yield Choices(parent or ", ".join(path for _, path in lettered), lettered)


def _letters(
    columns: Mapping[str, Values], choices: Choices, taken: Collection[str], first: str | None = None
) -> Iterator[str]:
    known = {letter for letter, _ in choices.lettered}
    for path in (*([first] if first is not None else []), *columns):
        values = columns[path].values()
        if path not in taken and all(isinstance(value, str) and value.strip().upper() in known for value in values):
            yield path


def _are_choices(values: Values) -> bool:
    return all(isinstance(value, str | int | float) for value in values.values())


def _is_list_of_choices(value: object) -> bool:
    return isinstance(value, list) and len(value) >= 2 and all(isinstance(each, str | int | float) for each in value)
