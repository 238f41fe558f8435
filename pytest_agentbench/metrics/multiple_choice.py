"""The metric `multiple_choice`: which letter an answer chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from pytest_agentbench.metrics.choice_replies import (
    ALPHABET,
    chosen_letters,
    clean,
    letter_alone,
    mentioned_letters,
    option_letters,
)
from pytest_agentbench.metrics.passages import without_run_on
from pytest_agentbench.metrics.registry import Measured, metric
from pytest_agentbench.models.thoughts import drop_thoughts

AnswerIs = Literal["index", "index1", "letter", "text", "integer"]
"""Type of a ground truth. `integer`, for a number in JSON: an index from 0 if it is in range of the choices, else a
text.
"""


@metric("multiple_choice")
def multiple_choice(
    ground_truth: str, prediction: str, *, choices: Sequence[object] | None = None, answer_is: AnswerIs | None = None
) -> Measured:
    r"""Return 1 if the answer chose the right letter: in the last \boxed{B}, or else in the last line with
    one.

    A line names a letter by consisting of it ("**B**"), by a phrase ("the answer is (B)", "答案是B"), or else by
    beginning with one ("B. Paris"). Two letters in that line, or lines that begin with different ones, are no choice,
    but after "wait, no" the later one counts. With `choices`, the options' texts in order, the ground truth may also be
    an option's text or its index from 0, and the prediction may be the text or name it alone in a sentence. `answer_is`
    sets which of these the ground truth is; index1 counts from 1. Details: `expected`, `chosen`, and `run_on` for a
    reply that continues with a further question (`without_run_on`). Raises ValueError for any other ground truth.
    """
    options = _clean_options(choices)
    expected = _expected(ground_truth, options, answer_is)
    reply, run_on = without_run_on(drop_thoughts(prediction))
    chosen = _read_reply(reply, options)
    if run_on and not chosen:
        chosen, run_on = _read_reply(drop_thoughts(prediction), options), False
    letter = chosen.pop() if len(chosen) == 1 else None
    details = {"expected": expected, "chosen": letter} | ({"run_on": True} if run_on else {})
    return Measured(float(letter == expected), details)


def _read_reply(reply: str, options: Sequence[str]) -> set[str]:
    text = clean(reply)
    return chosen_letters(text, options) or mentioned_letters(text, options)


def find_readings(
    ground_truth: str, choices: Sequence[object] | None, answer_is: AnswerIs | None = None
) -> dict[str, str]:
    """Return the letter that each reading of the ground truth leads to, by `letter`, `text` and `index`.

    More than one letter: without `answer_is` nobody but the author knows which one is right. An integer is no letter.
    """
    text, options = clean(ground_truth), _clean_options(choices)
    readings = {"letter": _read_letter, "text": _read_text, "index": _read_index}
    if answer_is is not None:
        readings = {name: read for name, read in readings.items() if name in _AMBIGUOUS.get(answer_is, ())}
    letters = {name: read(text, options) for name, read in readings.items()}
    return {name: letter for name, letter in letters.items() if letter}


def _clean_options(choices: Sequence[object] | None) -> list[str]:
    options = [clean(str(choice)) for choice in choices or ()]
    if len(options) > len(ALPHABET):
        raise ValueError(f"multiple_choice: found {len(options)} choices, expected at most {len(ALPHABET)}")
    return options


def _expected(ground_truth: str, options: Sequence[str], answer_is: AnswerIs | None) -> str:
    text = clean(ground_truth)
    for read in _READINGS[answer_is]:
        if letter := read(text, options):
            return letter
    expected = _KINDS.get(answer_is, "a letter")
    if not answer_is and options:
        expected = "a letter, the text of one option or its index from 0"
    raise ValueError(f"multiple_choice: the ground truth is {ground_truth[:80]!r}, expected {expected}")


def _read_letter(text: str, options: Sequence[str]) -> str:
    return _only(letter_alone(text), options)


def _read_text(text: str, options: Sequence[str]) -> str:
    return _only(option_letters(text, options), options)


def _read_phrase(text: str, options: Sequence[str]) -> str:
    return _only(chosen_letters(text, options), options)


def _read_said_letter(text: str, options: Sequence[str]) -> str:
    """Return the letter that a phrase names, which is never an option's text."""
    return _only(chosen_letters(text, ()), options)


def _read_index(text: str, options: Sequence[str]) -> str:
    """Return the letter of an index into the options, empty if there are none: a range is needed."""
    if _is_number(text) and int(text) < len(options):
        return ALPHABET[int(text)]
    return ""


def _read_said_index(text: str, options: Sequence[str]) -> str:
    """Return the letter of an index; without options any letter's index is valid."""
    return _read_index(text, options or ALPHABET)


def _read_said_index1(text: str, options: Sequence[str]) -> str:
    if _is_number(text):
        return _read_said_index(str(int(text) - 1), options)
    return ""


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 3


def _only(letters: set[str], options: Sequence[str]) -> str:
    """Return the only letter, empty if there are several or it is beyond the options."""
    letter = letters.pop() if len(letters) == 1 else ""
    if "A" <= letter <= ALPHABET[len(options or ALPHABET) - 1]:
        return letter
    return ""


_READINGS: Mapping[AnswerIs | None, Sequence[Callable[[str, Sequence[str]], str]]] = {
    None: (_read_letter, _read_text, _read_phrase, _read_index),
    "integer": (_read_index, _read_text),
    "index": (_read_said_index,),
    "index1": (_read_said_index1,),
    "letter": (_read_letter, _read_said_letter),
    "text": (_read_text,),
}
"""How a ground truth is read, in order of precedence."""

_KINDS: Mapping[AnswerIs | None, str] = {
    "integer": "the index of an option from 0 or the text of one; metrics: args: choices names the options",
    "index": "the index of an option from 0 (answer_is: index)",
    "index1": "the number of an option from 1 (answer_is: index1)",
    "letter": "the letter of an option (answer_is: letter)",
    "text": "the text of one option (answer_is: text)",
}
_AMBIGUOUS: Mapping[AnswerIs, Sequence[str]] = {"integer": ("text", "index")}
"""Other readings of a ground truth by its declared type."""
