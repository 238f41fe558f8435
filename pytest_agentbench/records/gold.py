"""Right answers that are no single text: several answers, or a value that has several spellings."""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pytest_agentbench.records.base import Record

Rule = Literal["any_of", "all_of"]
"""How many of several answers have to be given: one of them, or each of them."""

_RULES: tuple[Rule, ...] = get_args(Rule)
_EXPECTED = "expected a text, a number, true or false, or a list of right answers"


class Golds(Record):
    """The right answers of a case.

    Each answer is a tuple of its spellings, of which any one is right. `text` names all answers, for people and for
    models that are asked. `original` is the text that the original benchmark compares with (`compat`).
    """

    rule: Rule
    answers: tuple[tuple[str, ...], ...]
    text: str
    original: str

    @property
    def reply(self) -> str:
        """Return a right reply: the first answer, or all of them, one per line."""
        first = [spellings[0] for spellings in self.answers]
        if self.rule == "any_of":
            return first[0]
        return "\n".join(first)


Gold = str | Golds


def read_gold(value: Any) -> Gold:
    """Return the answer of a row as metrics compare it; "" for null.

    A list is "any of these"; `{any_of: ...}` and `{all_of: ...}` are rules. Values are spelled as in JSON; Python's
    spelling is right too, and so is a whole number without `.0`. Raises ValueError, with a reason for people, for other
    objects and for lists that are no answers.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, dict):
        rule = next(iter(value), None) if len(value) == 1 else None
        if rule not in _RULES:
            raise ValueError(_describe_object(value))
        answers = value[rule]
        if answers is None:
            return ""
        if isinstance(answers, list | tuple):
            return _several(rule, answers, str(answers))
        return _several(rule, [answers], str(answers))
    if isinstance(value, list | tuple):
        return _several("any_of", value, str(value))
    spellings = _spell(value)
    if spellings == (str(value),):
        return spellings[0]
    return Golds(rule="any_of", answers=(spellings,), text=spellings[0], original=str(value))


def gold_text(gold: Gold) -> str:
    """Return the answer as one text, for people and in prompts."""
    if isinstance(gold, str):
        return gold
    return gold.text


def gold_reply(gold: Gold) -> str:
    """Return a correct reply: the first of several alternatives, or all required answers, one per line."""
    if isinstance(gold, str):
        return gold
    return gold.reply


def gold_of_compat(gold: Gold) -> str:
    """Return the text that the original benchmark compares with: Python's text of the value."""
    if isinstance(gold, str):
        return gold
    return gold.original


def json_text(value: Any) -> Any:
    """Return a list or an object as its JSON, for metrics that compare JSON; another value and rules as they are."""
    if isinstance(value, dict) and len(value) == 1 and (rule := next(iter(value))) in _RULES:
        answers = value[rule]
        if isinstance(answers, list):
            return {rule: [_json(answer) for answer in answers]}
        return {rule: _json(answers)}
    return _json(value)


def are_integers(value: Any) -> bool:
    """Return whether the answer of a row is a whole number, or several of them."""
    if isinstance(value, Mapping) and len(value) == 1 and (rule := next(iter(value))) in _RULES:
        value = value[rule]
    if isinstance(value, list | tuple):
        return bool(value) and all(type(each) is int for each in value)  # `type`, because True is an int too
    return type(value) is int


def _json(value: Any) -> Any:
    if isinstance(value, list | dict | tuple):
        return json.dumps(value, ensure_ascii=False)
    return value


def _several(rule: Rule, values: list[Any] | tuple[Any, ...], original: str) -> Golds:
    if not values:
        raise ValueError("answer: found an empty list, expected at least one right answer; remove the row or fill it")
    for number, value in enumerate(values, 1):
        if value is None or isinstance(value, list | tuple | dict):
            if value is None:
                kind = "null"
            elif isinstance(value, dict):
                kind = "an object"
            else:
                kind = "a list"
            raise ValueError(f"answer: found {kind} as element {number}, expected a text, a number, true or false")
    answers = tuple(dict.fromkeys(map(_spell, values)))
    text = answers[0][0]
    if len(answers) > 1:
        texts = ", ".join(json.dumps(spellings[0], ensure_ascii=False) for spellings in answers)
        text = f"{rule.replace('_', ' ')} {texts}"
    return Golds(rule=rule, answers=answers, text=text, original=original)


def _spell(value: Any) -> tuple[str, ...]:
    """Return the spellings of a value, the one of JSON first."""
    if isinstance(value, bool):  # before numbers: True is an int in Python
        if value:
            return ("true", "True")
        return ("false", "False")
    if not isinstance(value, float):
        return (str(value),)
    # Python writes 1e-07 and 1e+16; people and other languages 1e-7 and 1e16, and 27 for 27.0.
    spelled = re.sub(r"(?<=e[-+])0", "", repr(value))
    return tuple(dict.fromkeys((spelled, str(value), spelled.replace("e+", "e").removesuffix(".0"))))


def _describe_object(value: Mapping[Any, Any]) -> str:
    keys = [str(key) for key in value]
    shown = ", ".join(repr(key[:40]) for key in keys[:5]) or "nothing"
    inner = next((key for key in keys if re.fullmatch(r"\w{1,40}", key)), "value")
    return (
        f"answer: found an object with {shown}, {_EXPECTED}; name the right field in dataset.yaml, as in "
        f"`fields: {{answer: answer.{inner}}}`, or several right answers by `fields: {{answer: {{any_of: "
        f"answer.{inner}}}}}`, or compare the object by the metric json_match"
    )
