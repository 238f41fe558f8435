"""The choices of multiple-choice questions: a list, an object by letter, or one field for each."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from string import ascii_uppercase
from typing import NamedTuple

from pytest_agentbench.cli.columns import Values, last, named, plain

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
