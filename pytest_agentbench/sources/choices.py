"""Options of questions: options with their own letters, and lists made of several fields of a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from string import ascii_uppercase
from typing import Any

from pytest_agentbench.config.dataset_file import AnswerIs, ChoiceFields
from pytest_agentbench.sources.items import MISSING, describe_kind, metadata_of

_OWN_LETTER = re.compile(r"\s*\(?([A-Za-z])\s?[).:]\s*")
_LETTER_IN_TEXT = {
    letter: re.compile(rf"(?:^|[\s(,;])({letter})\s?[).:]") for letter in (*ascii_uppercase, *ascii_uppercase.lower())
}
"""A letter before an option in a text of several: "A) 3 B) 4", "(a) red, (b) blue", "A. x" on a line."""


def strip_own_letters(options: Sequence[object]) -> list[str] | None:
    """Return the options without the letters that they carry: "red" of "A) red".

    Return None unless there are at least two options that carry A, B, C and so on in order.
    """
    texts: list[str] = []
    for option, letter in zip(options, ascii_uppercase, strict=False):
        if not isinstance(option, str) or (match := _OWN_LETTER.match(option)) is None or match[1].upper() != letter:
            return None
        texts.append(option[match.end() :])
    if 2 <= len(texts) == len(options):
        return texts
    return None


def find_letters(text: str) -> str:
    """Return the letters of the options that one text lists in order: "ABCD" of "A) 3 B) 4 C) 6 D) 9", else ""."""
    for alphabet in (ascii_uppercase, ascii_uppercase.lower()):
        found, place = "", 0
        for letter in alphabet:
            match = _LETTER_IN_TEXT[letter].search(text, place)
            if match is None:
                break
            # One character before the end of the match: it may be the blank that the next letter needs.
            found, place = found + letter.upper(), match.end() - 1
        if len(found) >= 2:
            return found
    return ""


def choices_of(
    item: Mapping[str, Any], find: Callable[[str], Any], choices: ChoiceFields, answer_is: AnswerIs | None
) -> dict[str, Any]:
    """Return the item with the list of its options as `choices`. Its answer becomes a letter if the descriptor has
    labels or shuffles the options.

    Raises ValueError for wrong options, and for an answer that is no option.
    """
    options = list_options(find, choices.fields)
    changed: dict[str, Any] = {}
    if "answer" in item and choices.letters_answer:
        if choices.labels is not None:
            right = _find_label(item["answer"], find(choices.labels), len(options))
        else:
            right = _find_right(item["answer"], options, answer_is)
        if choices.shuffle_seed is not None:
            options, right = _shuffle(options, right, f"{choices.shuffle_seed}{item['question']}")
        changed["answer"] = ascii_uppercase[right]
    metadata = metadata_of(item) | {"choices": options}
    return {key: item[key] for key in ("id", "question", "answer") if key in item} | changed | {"metadata": metadata}


def list_options(find: Callable[[str], Any], fields: Iterable[str]) -> list[str]:
    """Return the options in the fields. Raises ValueError for values that are no options."""
    options: list[Any] = []
    for path in fields:
        value = find(path)
        if value is MISSING:
            raise ValueError(f"choices: found no field {path!r}")
        if isinstance(value, dict):  # options by their letters, such as {"A": ..., "B": ...}
            options += [value[key] for key in sorted(value)]
        elif isinstance(value, list):
            options += value
        else:
            options.append(value)
    # Rows with fewer options than others have null or an empty text at the end.
    while options and options[-1] in (None, ""):
        options.pop()
    for option in options:
        if isinstance(option, dict | list):
            raise ValueError(f"choices: found {describe_kind(option)}, expected texts or numbers")
    texts = strip_own_letters(options) or ["" if option is None else str(option) for option in options]
    if not 2 <= len(texts) <= len(ascii_uppercase):
        raise ValueError(f"choices: found {len(texts)} options, expected 2 to {len(ascii_uppercase)}")
    return [text.strip() for text in texts]


def _find_label(answer: Any, labels: Any, count: int) -> int:
    """Return the place of the option with the label."""
    text, texts = str(answer).strip(), []
    if isinstance(labels, list):
        texts = [str(label) for label in labels[:count]]
    if text not in texts:
        raise ValueError(f"choices: found the answer {str(answer)[:80]!r}, expected one of the labels")
    return texts.index(text)


def _find_right(answer: Any, options: Sequence[str], answer_is: AnswerIs | None) -> int:
    """Return the place of the right option, read by `answer_is`, else as a number in range, a letter or a text."""
    text = str(answer).strip()
    number = -1
    if text.isdecimal() and len(text) < 3:
        number = int(text)
    places = range(len(options))
    readings = {
        "index": [place for place in places if place == number],
        "index1": [place for place in places if place + 1 == number],
        "letter": [place for place in places if ascii_uppercase[place] == text],
        "text": [place for place in places if options[place] == text],
    }
    if answer_is is not None:
        found = readings[answer_is]
    elif type(answer) is int and readings["index"]:
        found = readings["index"]
    else:
        found = sorted({*readings["letter"], *readings["text"]})
    if not found:
        raise ValueError(f"choices: found the answer {text[:80]!r}, which is no option")
    if len(found) > 1:
        raise ValueError(f"choices: found the answer {text[:80]!r}, which more than one option may be")
    return found[0]


def _shuffle(options: Sequence[str], right: int, seed: str) -> tuple[list[str], int]:
    """Return the options in an order that depends on the seed alone, and the place of the right one."""
    if options.count(options[right]) > 1:
        raise ValueError(f"choices: found the right option {options[right][:80]!r} twice")
    # By hashes and not by `random`, so that all versions of Python give the same order.
    hashes = [sha256(f"{seed}\0{place}".encode("utf-8", "surrogatepass")).digest() for place in range(len(options))]
    order = sorted(range(len(options)), key=hashes.__getitem__)
    return [options[place] for place in order], order.index(right)
