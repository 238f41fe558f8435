"""Guess the purpose of each field of unknown rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from pytest_agentbench.cli.choice_columns import (
    CHOICES,
    CORRECT,
    Choices,
    are_places,
    ask_with_letters,
    doubt_numbering,
    find_choices,
    find_letters_field,
    find_wrong_answers,
)
from pytest_agentbench.cli.columns import (
    Exchange,
    Values,
    find_fields_below,
    find_first_exchange,
    find_named_field,
    list_columns,
    list_unused,
    normalize_name,
    take_last_name,
)
from pytest_agentbench.cli.numbered_answers import Numbering, decide_numbering
from pytest_agentbench.sources.choices import list_options
from pytest_agentbench.sources.items import look_up

QUESTION = (
    *("question", "questionstem", "problem", "problemstatement", "prompt", "instruction", "query", "input", "text"),
    *("task", "goal", "问题", "题目"),
)
ANSWER = (
    *("answer", "finalanswer", "bestanswer", "answers", "groundtruth", "expectedanswer", "correctanswer", "goldanswer"),
    *("expected", "target", "gold", "ideal", "output", "expectedoutput", "label", "solution", "reference", "answerkey"),
    *("answersspans", "答案", "参考答案", *CORRECT, "correctletter", "correctindex", "correctansweridx", "answeridx"),
    *("answerindex", "answerletter", "goldlabel", "goldindex", "goldidx", "cop", "ans", "finaldecision"),
)
ID = (
    *("id", "uid", "uuid", "guid", "qid", "questionid", "queryid", "taskid", "itemid", "instanceid", "exampleid"),
    *("uniqueid", "key", "index", "idx"),
)
CONTEXT = ("context", "passage", "paragraph", "article", "story", "document", "table", "support")
BESIDE = ("body", "background", "scenario", "premise", "preamble", "text")
"""Names of a text that a question is about, if the text is at the top of a row, next to the question."""
LIKELY = ("content", "ctx", "sentence", "statement", "claim", "premise")
"""Names of a question for rows in which no field has a usual name."""
SOLUTION = (
    *("steps", "rationale", "explanation", "exp", "reasoning", "cot", "chainofthought", "thought", "thoughts", "proof"),
    *("derivation", "workings", "solution", "solutions", "canonicalsolution", "code", "equation", "formula", "hint"),
)
"""Names of the way to the answer, which no agent is shown."""
TAGS = ("tags", "tag", "keywords")
SPLIT = ("split", "fold", "subset", "set", "partition")
GROUPS = (
    *("difficulty", "level", "category", "subcategory", "subject", "topic", "domain", "type", "tasktype", "doctype"),
    *("source", "language", "lang", "answertype", "answerformat", "questiontype", "grade", "field", "area"),
)

_NEVER_ASKED = frozenset({*ID, *SOLUTION, "prediction", "predictions", "role", "from"})
_SPLITS = {"test": 0, "validation": 1, "val": 1, "valid": 1, "dev": 1, "eval": 1, "train": 2, "training": 2}
_MOST_GROUPS = 4
_MOSTLY = 0.8
# A few answers of another type are errors of the data and do not change the guess.
_NEARLY_ALL = 0.95
_LONG_ANSWER = 5
# Chinese and Japanese set no blanks: two signs are about a word.
_WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]{1,2}|[^\s\u3040-\u30ff\u4e00-\u9fff]+")
_IS_ID = re.compile(r"(?:^|[_\s-])(?:id|ids|uid|hash)$|[a-z]I[Dd]s?$", re.ASCII)
# A unit may follow in brackets: "9 (cups)".
_NUMBER = re.compile(r"\s*[-+]?[$€£¥]?\s?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?:/\d+)?\s?%?\s?(?:\([^()\d]{1,40}\))?\s*")
# GSM8K ends its solutions with `#### 42`.
_LAST_NUMBER = re.compile(r"####\s*[-+$]*\d[\d,]*(?:\.\d+)?\s*$")
_FORMULA = re.compile(r"\\(?:frac|sqrt|boxed|pi|cdot|left|text)\b|\$[^$]+\$|\^\s?\{")


@dataclass(frozen=True, slots=True)
class GuessedField:
    """A field with the reason why it may be the wrong one, or None if the guess is certain."""

    field: str
    doubt: str | None = None
    several: bool = False
    """The field holds a list of right answers, any of which counts."""

    @property
    def place(self) -> Any:
        """Return the field as a descriptor's `fields` names it."""
        if self.several:
            return {"any_of": self.field}
        return self.field


@dataclass(frozen=True, slots=True)
class DatasetGuess:
    """Guess of how rows become cases. Fields are dotted paths from the top of a row."""

    question: GuessedField
    answer: GuessedField | None = None
    id: GuessedField | None = None
    tags: GuessedField | None = None
    split: GuessedField | None = None
    splits: tuple[str, ...] = ()
    """The splits seen, those to evaluate on first."""
    context: str | None = None
    """The text that the question is about, or the system message of a conversation. It precedes the question."""
    input: str | None = None
    """The text that an instruction is to be applied to."""
    unshown: str | None = None
    """A context that is no text."""
    choices: Choices | None = None
    tags_from: tuple[str, ...] = ()
    unused: tuple[tuple[str, Any], ...] = ()
    """The fields that neither question nor score use, with a value each."""
    answers_are: str = "short"
    """`choice`, `boolean`, `number`, `formula`, `long` or `short`."""
    numbering: Numbering | None = None
    """The meaning of answers that are numbers of choices."""

    @property
    def parts(self) -> dict[str, GuessedField]:
        """Return the guessed fields by their names in a descriptor's `fields`."""
        found = {
            "question": self.question,
            "answer": self.answer,
            "id": self.id,
            "tags": self.tags,
            "split": self.split,
        }
        return {name: each for name, each in found.items() if each is not None}

    @property
    def used(self) -> list[str]:
        """Return the fields that have a purpose, or are named for having none."""
        fields = [*(guess.field for guess in self.parts.values()), *self.tags_from]
        optional = [self.context, self.input, self.unshown]
        if self.choices is not None:
            fields += self.choices.fields
            optional.insert(0, self.choices.labels)
        return [*fields, *(field for field in optional if field is not None)]


def guess_dataset(rows: Sequence[Mapping[str, Any]]) -> DatasetGuess | None:
    """Guess the purpose of the rows' fields. Return None if no field holds texts that could be questions."""
    columns, count = list_columns(rows), len(rows)
    exchange = find_first_exchange(columns, count)
    choices = find_choices(columns, count)
    question = _guess_question(columns, count, exchange, choices)
    if question is None:
        return None
    # A field with a usual name won: then the conversation is something else, such as a transcript.
    if exchange is not None and question.field != exchange.question:
        exchange = None
    answer = _guess_answer(columns, count, {question.field}, exchange)
    choices = choices or find_wrong_answers(columns, count, None if answer is None else answer.field)
    answer, chosen, choices = _guess_choice(columns, answer, choices, {question.field})
    if answer is not None and choices is None:
        chosen = ask_with_letters(columns[question.field], columns[answer.field])
    # The order matters: a field that has a purpose is not offered for the next one.
    taken = {question.field}
    if choices is not None:
        taken.update(choices.fields)
    kind = "short"
    if answer is not None:
        taken.add(answer.field)
        kind = "choice"
        if not chosen:
            kind, answer = _classify_answers(columns[answer.field]), _find_several(columns, answer)
    split = _guess_split(columns, taken)
    splits: tuple[str, ...] = ()
    if split is not None:
        taken.add(split.field)
        splits = _sort_splits(columns[split.field])
    tags = _guess_tags(columns, taken)
    identifier = _guess_id(columns, count, taken)
    taken |= {found.field for found in (identifier, tags) if found is not None}
    if exchange is not None:
        context = exchange.system
    else:
        context = _guess_context(columns, count, CONTEXT, taken) or _guess_beside(columns, count, question.field, taken)
    instructed = normalize_name(take_last_name(question.field)) == "instruction"
    groups = _guess_groups(columns, taken | find_fields_below(columns, (*CHOICES, *ANSWER)))
    guess = DatasetGuess(
        question=question,
        answer=answer,
        id=identifier,
        tags=tags,
        split=split,
        splits=splits,
        context=context,
        input=_guess_context(columns, count, ("input",), taken) if instructed else None,
        unshown=_guess_nested_context(columns, count, taken) if context is None else None,
        choices=choices,
        tags_from=groups,
        answers_are=kind,
    )
    return replace(guess, unused=tuple(list_unused(rows, columns, guess.used)))


def with_numbering(guess: DatasetGuess, rows: Iterable[Mapping[str, Any]]) -> DatasetGuess:
    """Return the guess with the meaning of numbered answers, decided from all rows.

    The rows are read only if answers are numbers of choices.
    """
    choices, answer = guess.choices, guess.answer
    if guess.answers_are != "choice" or choices is None or choices.lettered or answer is None:
        return guess
    if choices.shuffled:
        return replace(guess, numbering=Numbering("text", "the right option has a separate field"))
    if choices.labels is not None:
        return guess
    numbering = decide_numbering((look_up(row, answer.field), _options_of(row, choices)) for row in rows)
    if numbering is None:
        return guess
    return replace(guess, numbering=numbering, answer=GuessedField(answer.field))


def _options_of(row: Mapping[str, Any], choices: Choices) -> Any:
    if not choices.listed:
        return look_up(row, choices.field)
    try:
        return list_options(lambda path: look_up(row, path), choices.listed)
    except ValueError:
        return None  # such a row is an error when it runs


def _guess_question(
    columns: Mapping[str, Values], count: int, exchange: Exchange | None, choices: Choices | None
) -> GuessedField | None:
    def asks(values: Values) -> bool:
        return len(values) >= _MOSTLY * count and all(isinstance(value, str) for value in values.values())

    # An answer or a choice may be the longest text, and is never the question.
    others = find_fields_below(columns, (*CHOICES, *ANSWER))
    if choices is not None:
        others = others.union(choices.fields)
    # The object of a question with its options: {"question": {"stem": ..., "choices": [...]}}
    others = {path for path in others if not any(normalize_name(path) == name for name in QUESTION)}
    own = find_named_field(columns, QUESTION, asks, others)
    if exchange is not None and (own is None or own.startswith(f"{exchange.conversation}.")):
        goes_on = "the conversation goes on, only its first question is asked"
        return GuessedField(exchange.question, goes_on if exchange.goes_on else None)
    if own is not None:
        return GuessedField(own, _count_gaps(columns[own], count))
    texts = [
        path
        for path, values in columns.items()
        if path not in others
        and asks(values)
        # A text that most rows share is an instruction, not a question.
        and len(set(values.values())) > len(values) / 2
        and normalize_name(take_last_name(path)) not in _NEVER_ASKED
    ]
    likely = next((path for name in LIKELY for path in texts if normalize_name(path) == name), None)
    if likely is not None:
        return GuessedField(likely, "no field has a usual name; this one's is the likeliest")
    longest = max(texts, key=lambda path: sum(map(len, columns[path].values())), default=None)
    if longest is None:
        return None
    return GuessedField(longest, "no field has a usual name; this one has the longest texts")


def _guess_answer(
    columns: Mapping[str, Values], count: int, taken: set[str], exchange: Exchange | None
) -> GuessedField | None:
    def answers(values: Values) -> bool:
        return sum(isinstance(value, str | int | float) for value in values.values()) > len(values) / 2

    # `correct: true` is a verdict on somebody's answer.
    verdicts = {
        path
        for path, values in columns.items()
        if normalize_name(take_last_name(path)) == "correct"
        and all(isinstance(value, bool) for value in values.values())
    }
    own = find_named_field(columns, ANSWER, answers, taken | verdicts | find_fields_below(columns, CHOICES))
    if own is None:
        if exchange is not None and exchange.answer is not None:
            return GuessedField(exchange.answer)
        return None
    return GuessedField(own, _count_gaps(columns[own], count))


def _find_several(columns: Mapping[str, Values], answer: GuessedField) -> GuessedField:
    """Return the field with all right answers of a row, if it has several; else the answer as it is."""
    parent, _, name = answer.field.rpartition(".")
    # SQuAD and similar sets list every accepted answer, some as objects; TriviaQA lists them next to the
    # usual one.
    for path, field in ((parent, parent), (parent.rpartition(".")[0], f"{parent.rpartition('.')[0]}.*.{name}")):
        lists = columns.get(path, {}).values()
        if not lists or not answer.field.startswith(f"{path}.0"):
            continue
        if all(isinstance(value, list) and value for value in lists) and max(map(len, lists)) > 1:
            return GuessedField(field, several=True)
    aliases, values = columns.get(f"{parent}.aliases", {}), columns[answer.field]
    if aliases and all(isinstance(aliases.get(at), list) and value in aliases[at] for at, value in values.items()):
        return GuessedField(f"{parent}.aliases", several=True)
    return answer


def _guess_choice(
    columns: Mapping[str, Values], answer: GuessedField | None, choices: Choices | None, taken: Collection[str]
) -> tuple[GuessedField | None, bool, Choices | None]:
    """Return the field that names the right choice, whether there is one, and how the choices are read.

    A letter is enough for lettered choices. Other answers need the choices in a list.
    """
    if choices is None or choices.shuffled:
        return answer, choices is not None, choices
    if choices.lettered or answer is None:
        field = None if answer is None else answer.field
        letters = find_letters_field(columns, choices, field, {*taken, *choices.fields})
        if letters is not None:
            if answer is None or letters != field:
                answer = GuessedField(letters)
            return answer, True, choices
    if answer is None or not are_places(columns[answer.field], columns, choices):
        return answer, False, choices
    if choices.lettered:
        choices = replace(choices, lettered=(), listed=choices.fields)
    if choices.own_letters:
        if find_letters_field(columns, choices, answer.field, columns.keys() - {answer.field}) is not None:
            return answer, True, choices
        choices = replace(choices, own_letters=False, listed=choices.fields)
    if choices.labels is None and (doubt := doubt_numbering(columns[answer.field], columns, choices)) is not None:
        answer = GuessedField(answer.field, doubt)
    return answer, True, choices


def _count_gaps(values: Values, count: int) -> str | None:
    filled = sum(not isinstance(value, str) or bool(value.strip()) for value in values.values())
    if filled == count:
        return None
    return f"{count - filled} of {count} rows have none"


def _guess_id(columns: Mapping[str, Values], count: int, taken: Collection[str]) -> GuessedField | None:
    def identifies(values: Values) -> bool:
        scalars = all(isinstance(value, str | int) and value != "" for value in values.values())
        return scalars and len(set(map(str, values.values()))) == count

    own = find_named_field(columns, ID, identifies, taken)
    # Guessed in spite of the doubt, because people look for this field first.
    if own is None and "id" in columns:
        return GuessedField("id", "its values repeat or are missing; rows with the same id are errors")
    if own is None:
        return None
    return GuessedField(own)


def _guess_tags(columns: Mapping[str, Values], taken: Collection[str]) -> GuessedField | None:
    def tags(values: Values) -> bool:
        return all(
            isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value))
            for value in values.values()
        )

    own = find_named_field(columns, TAGS, tags, taken, inner=False)
    if own is None:
        return None
    return GuessedField(own)


def _guess_split(columns: Mapping[str, Values], taken: Collection[str]) -> GuessedField | None:
    def splits(values: Values) -> bool:
        return all(isinstance(value, str) and value.casefold() in _SPLITS for value in values.values())

    own = find_named_field(columns, SPLIT, splits, taken, inner=False)
    if own is None:
        return None
    return GuessedField(own)


def _sort_splits(values: Values) -> tuple[str, ...]:
    return tuple(sorted(dict.fromkeys(values.values()), key=lambda split: _SPLITS[split.casefold()]))


def _guess_context(
    columns: Mapping[str, Values], count: int, names: Sequence[str], taken: Collection[str]
) -> str | None:
    """Return a text that each row has next to its question."""

    def tells(values: Values) -> bool:
        return len(values) == count and all(isinstance(value, str) for value in values.values())

    return find_named_field(columns, names, tells, taken, inner=False)


def _guess_beside(columns: Mapping[str, Values], count: int, question: str, taken: Collection[str]) -> str | None:
    """Return a text at the top of a row that its question is about."""
    asked = columns[question]

    def tells(values: Values) -> bool:
        # A text with the question in it is a copy of the whole row, with its answer.
        copies = sum(isinstance(value, str) and str(asked.get(at)) in value for at, value in values.items())
        return len(values) == count and _are_texts(values) and 2 * copies < count

    top = {path: values for path, values in columns.items() if "." not in path}
    return find_named_field(top, BESIDE, tells, taken, inner=False)


def _are_texts(values: Values) -> bool:
    return all(isinstance(value, str) for value in values.values())


def _guess_nested_context(columns: Mapping[str, Values], count: int, taken: Collection[str]) -> str | None:
    """Return a context of lists or objects, which no prompt shows well."""

    def nested(values: Values) -> bool:
        return len(values) >= _MOSTLY * count and all(isinstance(value, list | dict) for value in values.values())

    return find_named_field(columns, CONTEXT, nested, taken, inner=False)


def _guess_groups(columns: Mapping[str, Values], taken: Collection[str]) -> tuple[str, ...]:
    """Return fields with 2 to 20 short values, no more than half as many as rows; known names first, 4 at most."""
    found = []
    for path, values in columns.items():
        name = take_last_name(path)
        if path in taken or name.isdecimal() or _IS_ID.search(name):
            continue
        filled = [value for value in values.values() if value != ""]
        known = normalize_name(name) in GROUPS
        # Numbers are groups only if the field has a name of groups: other fields with few numbers are scores
        # or years.
        short = all(isinstance(each, str | int if known else str) and len(str(each)) <= 40 for each in filled)
        distinct = {str(value).strip() for value in filled} - {""}
        if short and 2 <= len(distinct) <= 20 and 2 * len(distinct) <= len(filled):
            found.append((not known, path))
    return tuple(path for _, path in sorted(found, key=lambda each: each[0])[:_MOST_GROUPS])


def _classify_answers(values: Values) -> str:
    texts = [str(value) for value in values.values() if not isinstance(value, bool)]
    if not texts:
        return "boolean"

    def most(pattern: Callable[[str], object]) -> bool:
        return sum(bool(pattern(text)) for text in texts) >= _NEARLY_ALL * len(texts)

    if most(lambda text: _NUMBER.fullmatch(text) or _LAST_NUMBER.search(text)):
        return "number"
    # A fifth is enough: sets of mathematics mix formulas with plain numbers.
    if sum(bool(_FORMULA.search(text)) for text in texts) >= 0.2 * len(texts):
        return "formula"
    if median(len(_WORD.findall(text)) for text in texts) > _LONG_ANSWER:
        return "long"
    return "short"
