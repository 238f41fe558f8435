"""What the fields of unknown rows are for, guessed from their names and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from string import ascii_uppercase
from typing import Any, NamedTuple

Values = dict[int, Any]
"""The values of a field by the places of the rows that have it."""

QUESTION = ("question", "problem", "prompt", "instruction", "query", "input", "text", "task", "goal", "问题", "题目")
ANSWER = (
    *("answer", "finalanswer", "answers", "groundtruth", "expectedanswer", "correctanswer", "goldanswer", "expected"),
    *("target", "gold", "output", "expectedoutput", "label", "solution", "reference", "answerkey", "答案", "参考答案"),
)
ID = (
    "id",
    "uid",
    "uuid",
    "guid",
    "qid",
    "questionid",
    "taskid",
    "itemid",
    "exampleid",
    "uniqueid",
    "key",
    "index",
    "idx",
)
CONTEXT = ("context", "passage", "paragraph", "article", "story", "document", "table")
CHOICES = ("choices", "options", "candidates")
TAGS = ("tags", "tag", "keywords")
SPLIT = ("split", "fold", "subset", "set", "partition")
GROUPS = (
    *("difficulty", "level", "category", "subcategory", "subject", "topic", "domain", "type", "tasktype", "doctype"),
    *("source", "language", "lang", "answertype", "answerformat", "questiontype", "grade", "field", "area"),
)

_NEVER_ASKED = frozenset({*ID, "prediction", "predictions", "role"})
_SPLITS = {"test": 0, "validation": 1, "val": 1, "valid": 1, "dev": 1, "eval": 1, "train": 2, "training": 2}
_INNER = ("text", "value", "stem", "content", "body")
_DEPTH = 4
_MOST_FIELDS = 500
_MOST_GROUPS = 4
_MOSTLY = 0.8
_NEARLY_ALL = 0.95
_LONG_ANSWER = 12
_NUMBER = re.compile(r"\s*[-+]?[$€£¥]?\s?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?:/\d+)?\s?%?\s*")
_LAST_NUMBER = re.compile(r"####\s*[-+$]*\d[\d,]*(?:\.\d+)?\s*$")
_FORMULA = re.compile(r"\\(?:frac|sqrt|boxed|pi|cdot|left|text)\b|\$[^$]+\$|\^\{")


class Found(NamedTuple):
    """A field, and why it may be the wrong one; None where that is clear."""

    field: str
    doubt: str | None = None


class Choices(NamedTuple):
    """The field that holds the choices of a row: a list, or an object of them by these letters."""

    field: str
    letters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DatasetGuess:
    """What rows are made of. Fields are dotted paths from the top of a row."""

    question: Found
    answer: Found | None = None
    id: Found | None = None
    tags: Found | None = None
    split: Found | None = None
    splits: tuple[str, ...] = ()
    """The splits seen, those to evaluate on first."""
    context: str | None = None
    """What the question is about."""
    choices: Choices | None = None
    tags_from: tuple[str, ...] = ()
    answers_are: str = "short"
    """`choice`, `number`, `formula`, `long` or `short`."""

    @property
    def parts(self) -> dict[str, Found]:
        """What was found, by the names that a descriptor's `fields` have."""
        found = {
            "question": self.question,
            "answer": self.answer,
            "id": self.id,
            "tags": self.tags,
            "split": self.split,
        }
        return {name: each for name, each in found.items() if each is not None}


def guess_dataset(rows: Sequence[Mapping[str, Any]]) -> DatasetGuess | None:
    """What the rows' fields are for; None where no field holds a text that could be asked."""
    columns = _columns(rows)
    count = len(rows)
    question = _question(columns, count)
    if question is None:
        return None
    taken = {question.field}
    answer = _answer(columns, count, taken)
    taken |= {answer.field} if answer is not None else set()
    split = _split(columns, taken)
    taken |= {split.field} if split is not None else set()
    choices = _choices(columns, count)
    if answer is not None and choices is not None and _counts_from_one(columns[answer.field], columns[choices.field]):
        answer = Found(answer.field, "its numbers seem to count the choices from 1, multiple_choice counts from 0")
    tags = _tags(columns, taken)
    identifier = _id(columns, count, taken)
    taken |= {found.field for found in (identifier, tags) if found is not None}
    return DatasetGuess(
        question=question,
        answer=answer,
        id=identifier,
        tags=tags,
        split=split,
        splits=_splits(columns[split.field]) if split is not None else (),
        context=_context(columns, count, question, taken),
        choices=choices,
        tags_from=_groups(columns, taken),
        answers_are=_answer_kind(columns[answer.field], choices) if answer is not None else "short",
    )


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Values]:
    """All fields down to a depth of 4 that a dotted path can name; of a list its first element. Null is no value."""
    columns: dict[str, Values] = {}
    for at, row in enumerate(rows):
        for path, value in islice(_leaves(row, "", _DEPTH), _MOST_FIELDS):
            if value is not None:
                columns.setdefault(path, {})[at] = value
    return columns


def _leaves(value: object, path: str, depth: int) -> Iterator[tuple[str, object]]:
    if path:
        yield path, value
    inner: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        inner = [(key, each) for key, each in value.items() if key.strip() and "." not in key]
    elif isinstance(value, list) and value:
        inner = [("0", value[0])]
    if depth:
        for key, each in inner:
            yield from _leaves(each, f"{path}.{key}" if path else key, depth - 1)


def _question(columns: Mapping[str, Values], count: int) -> Found | None:
    def asks(values: Values) -> bool:
        return len(values) >= _MOSTLY * count and all(isinstance(value, str) for value in values.values())

    others = _below(columns, (*CHOICES, *ANSWER))
    named = _named(columns, QUESTION, asks, others)
    if named is not None:
        return Found(named, _gaps(columns[named], count))
    texts = [
        path
        for path, values in columns.items()
        if path not in others
        and asks(values)
        and len(set(values.values())) > len(values) / 2
        and _plain(path.split(".")[-1]) not in _NEVER_ASKED
    ]
    longest = max(texts, key=lambda path: sum(map(len, columns[path].values())), default=None)
    return None if longest is None else Found(longest, "no field has a usual name; this one has the longest texts")


def _answer(columns: Mapping[str, Values], count: int, taken: set[str]) -> Found | None:
    def answers(values: Values) -> bool:
        return sum(isinstance(value, str | int | float) for value in values.values()) > len(values) / 2

    named = _named(columns, ANSWER, answers, taken | _below(columns, CHOICES))
    if named is None:
        return None
    parent = columns.get(named.rpartition(".")[0], {})
    if any(isinstance(value, list) and len(value) > 1 for value in parent.values()):
        return Found(named, "some rows have several right answers, only the first one counts")
    return Found(named, _gaps(columns[named], count))


def _below(columns: Mapping[str, Values], names: Sequence[str]) -> set[str]:
    """The fields that have one of the names, and all inside them."""
    return {path for path in columns if any(_plain(part) in names for part in path.split("."))}


def _gaps(values: Values, count: int) -> str | None:
    filled = sum(not isinstance(value, str) or bool(value.strip()) for value in values.values())
    return None if filled == count else f"{count - filled} of {count} rows have none"


def _id(columns: Mapping[str, Values], count: int, taken: Collection[str]) -> Found | None:
    def identifies(values: Values) -> bool:
        plain = all(isinstance(value, str | int) and value != "" for value in values.values())
        return plain and len(set(map(str, values.values()))) == count

    named = _named(columns, ID, identifies, taken)
    if named is None and "id" in columns:
        return Found("id", "its values repeat or are missing; rows with the same id are errors")
    return None if named is None else Found(named)


def _tags(columns: Mapping[str, Values], taken: Collection[str]) -> Found | None:
    def tags(values: Values) -> bool:
        return all(
            isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value))
            for value in values.values()
        )

    named = _named(columns, TAGS, tags, taken, inner=False)
    return None if named is None else Found(named)


def _split(columns: Mapping[str, Values], taken: Collection[str]) -> Found | None:
    def splits(values: Values) -> bool:
        return all(isinstance(value, str) and value.casefold() in _SPLITS for value in values.values())

    named = _named(columns, SPLIT, splits, taken, inner=False)
    return None if named is None else Found(named)


def _splits(values: Values) -> tuple[str, ...]:
    return tuple(sorted(dict.fromkeys(values.values()), key=lambda split: _SPLITS[split.casefold()]))


def _context(columns: Mapping[str, Values], count: int, question: Found, taken: Collection[str]) -> str | None:
    """A text that each row has beside its question; the `input` of an `instruction`."""

    def tells(values: Values) -> bool:
        return len(values) == count and all(isinstance(value, str) for value in values.values())

    names = CONTEXT + (("input",) if _plain(question.field.rpartition(".")[2]) == "instruction" else ())
    return _named(columns, names, tells, taken, inner=False)


def _choices(columns: Mapping[str, Values], count: int) -> Choices | None:
    """A list of texts, an object of them by letter, or such a list below `text` (as in ARC)."""

    def listed(values: Values) -> bool:
        return len(values) >= _MOSTLY * count and all(map(_is_list_of_choices, values.values()))

    def lettered(values: Values) -> bool:
        kinds = set(map(_letters, values.values()))
        return len(values) == count and len(kinds) == 1 and kinds != {()}

    path = _named(columns, CHOICES, listed, (), inner=False)
    if path is None:
        below = [path for path in columns if path.endswith(".text") and _plain(path.split(".")[-2]) in CHOICES]
        path = next((path for path in below if listed(columns[path])), None)
    if path is not None:
        return Choices(path)
    path = _named(columns, CHOICES, lettered, (), inner=False)
    return None if path is None else Choices(path, _letters(columns[path][0]))


def _counts_from_one(answers: Values, choices: Values) -> bool:
    """Whether an answer is the place behind the last choice."""
    return any(type(answer) is int and answer == len(choices.get(at, ())) for at, answer in answers.items())


def _is_list_of_choices(value: object) -> bool:
    return isinstance(value, list) and len(value) >= 2 and all(isinstance(each, str | int | float) for each in value)


def _letters(value: object) -> tuple[str, ...]:
    """The keys A, B, ... of an object of choices; none where it is none."""
    if not isinstance(value, dict) or len(value) < 2 or not all(isinstance(each, str) for each in value.values()):
        return ()
    keys = tuple(value)
    return keys if "".join(keys).upper() == ascii_uppercase[: len(keys)] else ()


def _groups(columns: Mapping[str, Values], taken: Collection[str]) -> tuple[str, ...]:
    """Fields with 2 to 20 short values, no more than half as many as rows; known names first, 4 at most."""
    found = []
    for path, values in columns.items():
        plain = all(isinstance(value, str | int) and len(str(value)) <= 40 for value in values.values())
        if path in taken or not plain or path.rpartition(".")[2].isdecimal():
            continue
        distinct = {str(value).strip() for value in values.values()} - {""}
        known = _plain(path.rpartition(".")[2]) in GROUPS
        worded = known or all(isinstance(value, str) for value in values.values())
        if 2 <= len(distinct) <= 20 and 2 * len(distinct) <= len(values) and worded:
            found.append((not known, path))
    return tuple(path for _, path in sorted(found, key=lambda each: each[0])[:_MOST_GROUPS])


def _answer_kind(values: Values, choices: Choices | None) -> str:
    if choices is not None:
        return "choice"
    texts = [str(value) for value in values.values() if not isinstance(value, bool)]
    if not texts:
        return "short"

    def most(pattern: Callable[[str], object]) -> bool:
        return sum(bool(pattern(text)) for text in texts) >= _NEARLY_ALL * len(texts)

    if most(lambda text: _NUMBER.fullmatch(text) or _LAST_NUMBER.search(text)):
        return "number"
    if sum(bool(_FORMULA.search(text)) for text in texts) >= 0.2 * len(texts):
        return "formula"
    return "long" if median(len(text.split()) for text in texts) > _LONG_ANSWER else "short"


def _named(
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


def _names(path: str, inner: bool) -> list[str]:
    parts = [_plain(part) for part in path.split(".") if not (inner and part.isdecimal())]
    return parts[-2:] if inner and parts[-1:] and parts[-1] in _INNER else parts[-1:]


def _plain(name: str) -> str:
    return "".join(sign for sign in name.casefold() if sign.isalnum())
