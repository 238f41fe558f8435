"""The options of questions in unknown rows: lists, columns, objects by letter, one text, right and wrong answers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from string import ascii_uppercase

from pytest_agentbench.cli.columns import Values, find_named_field, normalize_name, take_last_name
from pytest_agentbench.sources.choices import find_letters, strip_own_letters

CHOICES = ("choices", "options", "candidates", "endings", "choice", "option", "选项")
CORRECT = ("correct", "correctanswer", "rightanswer", "correctoption", "correctchoice")
"""Names of an answer next to which there are wrong ones."""

_MOSTLY = 0.8
_OF_OPTION = r"(option|choice|opt|op|answer|ans|solution|sol|ending|alternative|candidate|)"
_LETTERED = re.compile(rf"{_OF_OPTION}([a-z])")
_NUMBERED = re.compile(rf"{_OF_OPTION}(\d)")
_WRONG = re.compile(r"(?:incorrect|wrong|false)(?:answer|option|choice)s?\d*|distractors?\d*")


@dataclass(frozen=True, slots=True)
class Choices:
    """The place of a row's options: a list, one field for each by letter, or fields that are to be made one list."""

    field: str
    lettered: tuple[tuple[str, str], ...] = ()
    listed: tuple[str, ...] = ()
    """The fields that the descriptor's `choices` makes a list of."""
    labels: str | None = None
    shuffled: bool = False
    """The right option always comes first, so the order has to be another one."""
    own_letters: bool = False
    """The options carry their letters in their texts."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Return all fields that hold choices."""
        return tuple(field for _, field in self.lettered) or self.listed or (self.field,)

    @property
    def shown(self) -> str:
        """Return the field that a prompt shows; of lettered fields it shows each."""
        if self.listed:
            return "choices"
        return self.field


def find_choices(columns: Mapping[str, Values], count: int) -> Choices | None:
    """Return the options of the rows' questions, None if there are none.

    They are a list of texts, such a list below `text` (as in ARC), one text with letters, a list of objects with a
    text, an object by letter, fields A, B, C, or fields that are numbered.
    """

    def listed(values: Values) -> bool:
        return len(values) >= _MOSTLY * count and all(map(_is_list_of_choices, values.values()))

    def lettered(values: Values) -> bool:
        letters = [find_letters(value) for value in values.values() if isinstance(value, str)]
        return sum(map(bool, letters)) >= _MOSTLY * count

    path = find_named_field(columns, CHOICES, listed, (), inner=False)
    if path is None:
        inside = [path for path in columns if path.endswith(".text") and normalize_name(path.split(".")[-2]) in CHOICES]
        path = next((path for path in inside if listed(columns[path])), None)
    if path is not None:
        labels = f"{path.removesuffix('text')}label"
        if path.endswith(".text") and labels in columns and _has_other_labels(columns[labels]):
            return Choices(path, listed=(path,), labels=labels)
        options = [value for value in columns[path].values() if strip_own_letters(value) is not None]
        return Choices(path, own_letters=len(options) >= _MOSTLY * count)
    path = find_named_field(columns, CHOICES, lettered, (), inner=False)
    if path is not None:
        return Choices(path, own_letters=True)
    return _find_objects(columns, count) or _find_columns(columns, count)


def find_wrong_answers(columns: Mapping[str, Values], count: int, answer: str | None) -> Choices | None:
    """Return the right answer and the wrong ones next to it, as options; None if there are no wrong ones."""
    if answer is None or normalize_name(take_last_name(answer)) not in CORRECT:
        return None
    parent = answer.rpartition(".")[0]
    wrong = [
        path
        for path, values in columns.items()
        if path.rpartition(".")[0] == parent
        and _WRONG.fullmatch(normalize_name(take_last_name(path)))
        and len(values) == count
        and (_are_choices(values) or all(isinstance(value, list) and value for value in values.values()))
    ]
    if wrong:
        return Choices(", ".join((answer, *wrong)), listed=(answer, *wrong), shuffled=True)
    return None


def find_letters_field(
    columns: Mapping[str, Values], choices: Choices, answer: str | None, taken: Collection[str]
) -> str | None:
    """Return the field whose values are the letters of the choices: the answer's, else another one not `taken`."""
    return next(iter(_find_letters(columns, choices, taken, first=answer)), None)


def are_places(answers: Values, columns: Mapping[str, Values], choices: Choices) -> bool:
    """Return whether nearly all answers are a letter, a place or the text of one of their row's options."""
    fitting = 0
    for at, answer in answers.items():
        options = _list_options(columns, choices, at)
        text = str(answer).strip()
        letter = len(text.strip("().")) == 1 and text.strip("().").isalpha()
        fitting += letter or text in options or (text.isdecimal() and int(text) <= len(options))
    return fitting >= _MOSTLY * len(answers)


def ask_with_letters(questions: Values, answers: Values) -> bool:
    """Return whether the questions list options by letter, and the answers are such letters."""
    letters = [find_letters(question) for question in questions.values() if isinstance(question, str)]
    plain = [str(answer).strip().strip("().") for answer in answers.values()]
    return (
        sum(map(bool, letters)) >= _MOSTLY * len(questions)
        and bool(plain)
        and all(len(letter) == 1 and letter in ascii_uppercase for letter in plain)
    )


def doubt_numbering(answers: Values, columns: Mapping[str, Values], choices: Choices) -> str | None:
    """Return why numbers among the answers may not count from 0 in the list of choices, or None if they can."""
    places: dict[int, int] = {}
    letters = 0
    options = {at: _list_options(columns, choices, at) for at in answers}
    for at, answer in answers.items():
        text = str(answer).strip()
        if text.isdecimal() and text not in options[at]:
            places[at] = int(text)
        letters += len(text) == 1 and text.isalpha()
    # One that is as large as the list is long cannot be counted from 0.
    if any(place == len(options[at]) for at, place in places.items()):
        return "its numbers seem to count the choices from 1, multiple_choice counts from 0"
    if places and letters:
        return "some are numbers, others letters; multiple_choice counts numbers from 0"
    return None


def _list_options(columns: Mapping[str, Values], choices: Choices, row: int) -> list[str]:
    options: list[str] = []
    for path in choices.fields:
        # Of a list only the first element has a column: `options.*.text` is counted by the list itself
        value = columns.get(path.partition(".*")[0], {}).get(row)
        if isinstance(value, dict):
            value = list(value.values())
        elif not isinstance(value, list):
            value = [value]
        options += [str(option).strip() for option in value]
    return strip_own_letters(options) or options


def _find_objects(columns: Mapping[str, Values], count: int) -> Choices | None:
    """Return a list of objects with a text each, or an object by letter whose letters differ from row to row."""
    for path, values in columns.items():
        if normalize_name(take_last_name(path)) not in CHOICES or len(values) < _MOSTLY * count:
            continue
        for name in ("text", "content", "value"):
            if f"{path}.0.{name}" in columns and all(
                isinstance(value, list) and len(value) >= 2 and _all_have(value, name) for value in values.values()
            ):
                return Choices(path, listed=(f"{path}.*.{name}",))
        if all(isinstance(value, dict) and _is_by_letter(value) for value in values.values()):
            inner = tuple((letter, f"{path}.{letter}") for letter in sorted(next(iter(values.values()))))
            alike = len(values) == count and all(
                sorted(value) == [letter for letter, _ in inner] and all(map(_is_choice, value.values()))
                for value in values.values()
            )
            if alike:
                return None
            return Choices(path, listed=(path,))
    return None


def _all_have(value: Iterable[object], name: str) -> bool:
    return all(isinstance(each, dict) and isinstance(each.get(name), str | int | float) for each in value)


def _is_by_letter(value: Mapping[str, object]) -> bool:
    return len(value) >= 2 and "".join(sorted(value)).upper() == ascii_uppercase[: len(value)]


def _has_other_labels(values: Values) -> bool:
    """Return whether labels are not always A, B, C and so on."""
    return any(
        isinstance(value, list) and "".join(map(str, value)) != ascii_uppercase[: len(value)]
        for value in values.values()
    )


def _find_columns(columns: Mapping[str, Values], count: int) -> Choices | None:
    for choices in _find_lettered(columns, count):
        if normalize_name(take_last_name(choices.field)) in CHOICES or any(_find_letters(columns, choices, ())):
            return choices
        # Columns A and B alone may be anything; those that are called options are options.
        if all(len(normalize_name(take_last_name(path))) > 1 for path in choices.fields):
            return Choices(choices.field, listed=choices.fields)
    for fields in _group_columns(columns, _NUMBERED).values():
        numbers = "".join(sorted(fields))
        named = all(not normalize_name(take_last_name(path)).isdecimal() for path in fields.values())
        filled = all(len(columns[path]) == count and _are_choices(columns[path]) for path in fields.values())
        if (
            named
            and filled
            and len(fields) >= 2
            and numbers in ("0123456789"[: len(fields)], "123456789"[: len(fields)])
        ):
            listed = tuple(path for _, path in sorted(fields.items()))
            return Choices(", ".join(listed), listed=listed)
    return None


def _group_columns(columns: Mapping[str, Values], pattern: re.Pattern[str]) -> Mapping[tuple[str, str], dict[str, str]]:
    """Return the fields whose names match, by their object and the name before the last sign, and by that sign."""
    groups: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for path in columns:
        match = pattern.fullmatch(normalize_name(take_last_name(path)))
        if match is not None:
            groups[path.rpartition(".")[0], match[1]][match[2].upper()] = path
    return groups


def _find_lettered(columns: Mapping[str, Values], count: int) -> Iterator[Choices]:
    """Yield fields of one object with names such as A, B, C or option_a, option_b, which all rows fill with texts."""
    for (parent, _), fields in _group_columns(columns, _LETTERED).items():
        # Gaps in the letters (A, B, D) are fields of another kind.
        filled = all(len(columns[path]) == count and _are_choices(columns[path]) for path in fields.values())
        if filled and len(fields) >= 2 and "".join(sorted(fields)) == ascii_uppercase[: len(fields)]:
            lettered = tuple(sorted(fields.items()))
            yield Choices(parent or ", ".join(path for _, path in lettered), lettered)


def _find_letters(
    columns: Mapping[str, Values], choices: Choices, taken: Collection[str], first: str | None = None
) -> Iterator[str]:
    known = {letter for letter, _ in choices.lettered} or set(ascii_uppercase[:10])
    # The answer may hold the letters itself.
    for path in filter(None, (first, *columns)):
        values = columns[path].values()
        if path not in taken and all(isinstance(value, str) and value.strip().upper() in known for value in values):
            yield path


def _are_choices(values: Values) -> bool:
    return all(map(_is_choice, values.values()))


def _is_choice(value: object) -> bool:
    return isinstance(value, str | int | float)


def _is_list_of_choices(value: object) -> bool:
    return isinstance(value, list) and len(value) >= 2 and all(map(_is_choice, value))
